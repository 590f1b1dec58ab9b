//! Makes the Task of `tenure run`, or finds one that an earlier run left.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tenure_core::eligibility::named_claimer;
use tenure_core::event::{Body, Event};
use tenure_core::id::{Millis, PoolId, SessionId, TaskId};
use tenure_core::patch::{Change, TaskFields};
use tenure_core::record::Object;
use tenure_core::status::{End, Policy};
use tenure_core::view::View;
use tenure_core::{Code, Commit, Rejection, Task};
use tenure_embedded::DEFAULT_POOL;
use tenure_local::JsonlJournal;
use tenure_ports::Journal as _;
use tenure_ports::journal::{Entry, ReadError, TaskKey};

use super::args::RunArgs;
use super::follow::CommitFollower;
use super::host::RunHost;
use super::{hint, steer};
use crate::answer::{Exit, Failure};
use crate::request::{Origin, RunnablePlan, STDIN};
use crate::runtime::NO_CWD;
use crate::show::{Show, show_all};
use crate::telemetry::trace_of_caller;

/// How many Tasks are read at most in search of one that was made from a file.
const LOOKED_AT_MAX: usize = 1_000;

/// How many commits to read at a time before showing them.
const AT_ONCE: usize = 1000;

/// A Task that this process runs.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) key: TaskKey,
    /// Its commits from here on.
    pub(super) follower: CommitFollower,
    /// Its state so far; none for a new Task.
    pub(super) replica: Option<Box<Task>>,
    /// What a new Task took over from an older one.
    pub(super) takes_over: Option<TakesOver>,
    /// Whether this command has to end it, as nothing else will.
    pub(super) is_manual: bool,
    pub(super) deadline: Option<Millis>,
}

/// What a Task took over.
#[derive(Debug)]
pub(super) struct TakesOver {
    /// From which Task.
    pub(super) from: TaskId,
    /// How many Steps.
    pub(super) steps: usize,
}

impl Job {
    /// Makes the Task of a file. The workers start before: so a Step that is ready at once is
    /// claimed in the append that creates the Task.
    pub(super) async fn create(
        host: &mut RunHost,
        session_id: SessionId,
        request: RunnablePlan,
        args: &RunArgs,
    ) -> Result<Self, Failure> {
        let of_file = TasksOfFile::of(&request);
        let retried = match args.retry_failed {
            true => Some(failed(host, &session_id, &of_file, args).await?),
            false => None,
        };
        let plan = request.into_plan(args.new || args.retry_failed, args.when_failing());
        let mut input = tenure_embedded::plan::into_create(plan)?;
        // STORE-17; a directory whose name is no text is that of this command alone.
        let cwd = std::env::current_dir()
            .map_err(Failure::cannot(NO_CWD))?
            .into_os_string()
            .into_string();
        input.cwd = cwd.ok().map(Into::into);
        let key = TaskKey { session_id, task_id: input.task_id()?.clone() };
        let takes_over = match &retried {
            Some(old) => {
                let made_in = |task: &View<'_>| task.head().spec.cwd.clone();
                input.cwd = host.scheduler().read(old, made_in).await?.or(input.cwd);
                host.cwd = working_directory(&old.task_id, input.cwd.as_deref())?;
                input = host.scheduler().take_over(old, input).await?;
                Some(TakesOver { from: old.task_id.clone(), steps: input.taken_over.len() })
            }
            None => None,
        };
        if host.scheduler().journal().entry(&key).await?.is_some() {
            return Err(conflict(host, &key, &of_file, args).await);
        }
        let default = PoolId::new(DEFAULT_POOL).map_err(Rejection::from)?;
        let default = input.default_worker_pool_id.get_or_insert(default).clone();
        let named = input.steps.iter().filter_map(|step| step.worker_pool_id.clone());
        let uses_default = input.steps.iter().any(|step| step.worker_pool_id.is_none());
        let pools: BTreeSet<PoolId> = named.chain(uses_default.then_some(default)).collect();
        host.hire(pools, args.concurrency())?;
        let is_manual = input.completion == Some(Policy::Manual);
        let commits = host.scheduler().subscribe();
        match host.tenure.create_under(trace_of_caller(), key.session_id.as_str(), input).await {
            Ok(_) => {}
            Err(tenure_embedded::Error::Refused(r)) if r.code == Code::TaskIdConflict => {
                return Err(conflict(host, &key, &of_file, args).await);
            }
            Err(error) => return Err(error.into()),
        }
        let deadline = host.scheduler().read(&key, |task| task.head().spec.deadline_at()).await?;
        let follower = CommitFollower::new(host.scheduler().clone(), commits, key.clone(), 1);
        Ok(Self { key, follower, replica: None, takes_over, is_manual, deadline })
    }

    /// Finds the Task to go on with, and reads its state. None of its Steps runs before
    /// [`wake`](Self::wake).
    pub(super) async fn find(
        host: &RunHost,
        session_id: SessionId,
        request: Option<&RunnablePlan>,
        args: &RunArgs,
    ) -> Result<Self, Failure> {
        let key = find(host, session_id, request, args).await?;
        let commits = host.scheduler().subscribe();
        let journal = host.scheduler().journal();
        let task =
            tenure_scheduler::load(&**journal, &key).await.map_err(|e| unreadable(&key, e))?;
        let spec = Arc::clone(&task.head().spec);
        let next_seq = task.version() + 1;
        let follower =
            CommitFollower::new(host.scheduler().clone(), commits, key.clone(), next_seq);
        Ok(Self {
            key,
            follower,
            takes_over: None,
            is_manual: spec.completion == Policy::Manual,
            deadline: spec.deadline_at(),
            replica: Some(Box::new(task)),
        })
    }

    /// Whether there is nothing left to run.
    pub(super) fn has_ended(&self) -> bool {
        self.replica.as_deref().is_some_and(Task::is_terminal)
    }

    /// Publishes the events that an earlier run recorded but did not publish before it died
    /// (RECOVER-08).
    pub(super) async fn publish_missed(
        &self,
        host: &RunHost,
        show: &mut dyn Show,
    ) -> Result<(), Failure> {
        let (journal, key) = (host.scheduler().journal(), &self.key);
        let published = journal.published(key).map_or(Ok(0), |mark| mark.read());
        let published = published.map_err(Failure::cannot("read which events were printed"))?;
        let failed = |error| unreadable(key, error);
        let mut replica = match published {
            0 => None,
            seq => {
                let task = tenure_scheduler::load_until(&**journal, key, seq).await;
                Some(Box::new(task.map_err(failed)?))
            }
        };
        loop {
            let after = replica.as_deref().map_or(0, Task::version);
            let missed = commits_after(journal, key, after).await.map_err(failed)?;
            if missed.is_empty() {
                return Ok(());
            }
            show_all(&mut replica, &missed, show)?;
        }
    }

    /// Lets the scheduler go on with a found Task: it ends the Attempts that an earlier boot left
    /// open, and offers ready Steps to the workers that this starts.
    pub(super) async fn wake(&mut self, host: &mut RunHost, args: &RunArgs) -> Result<(), Failure> {
        let Some(task) = self.replica.as_deref() else { return Ok(()) };
        check_runnable(task, host.handlers())?;
        host.cwd = working_directory(task.task_id(), task.head().spec.cwd.as_deref())?;
        if let Some(when_failing) = args.when_failing() {
            let on_failure = Change::Set(tenure_embedded::plan::on_failure(when_failing));
            let fields = TaskFields { on_failure, ..TaskFields::default() };
            steer::change(host, &self.key, fields).await?;
        }
        let open = task.durable();
        let open = open.steps().filter(|step| !step.status().is_settled());
        let pools: BTreeSet<PoolId> = open.map(|step| step.spec.worker_pool_id.clone()).collect();
        host.hire(pools, args.concurrency())?;
        host.scheduler().read(&self.key, |task| task.version()).await?;
        Ok(())
    }
}

/// STORE-17: the directory in which the Task was made.
fn working_directory(id: &TaskId, cwd: Option<&str>) -> Result<Option<String>, Failure> {
    match cwd {
        Some(cwd) if !Path::new(cwd).is_dir() => {
            let message = format!("task `{id}` was made in {cwd}, which is no directory now");
            Err(Failure::new(Exit::Conflict, message).help("its steps run there: make it again"))
        }
        cwd => Ok(cwd.map(str::to_owned)),
    }
}

/// Whether this command can bring a Task to its end, with these handlers.
pub(super) fn check_runnable(task: &Task, handlers: &[&str]) -> Result<(), Failure> {
    let head = task.head();
    let id = &head.spec.task_id;
    if !head.status.is_dispatchable() {
        let message = format!("task `{id}` is {}: its steps do not start", head.status);
        return Err(Failure::new(Exit::Conflict, message));
    }
    if head.spec.dispatch == Policy::Manual {
        let message =
            format!("task `{id}` has `dispatch: manual`: its orchestrator starts the steps");
        return Err(Failure::new(Exit::Conflict, message));
    }
    let view = task.durable();
    let open = || view.steps().filter(|step| !step.status().is_settled());
    let named = open().find_map(|step| Some((step, named_claimer(head, step.spec)?.0)));
    if let Some((step, name)) = named {
        let step = step.id();
        let message =
            format!("step `{step}` is for {name} alone, and `tenure run` has no such worker");
        return Err(Failure::new(Exit::Conflict, message));
    }
    match open().find(|step| !handlers.contains(&step.spec.handler.as_str())) {
        None => Ok(()),
        Some(step) => {
            let (step, handler) = (step.id(), &step.spec.handler);
            let message =
                format!("step `{step}` needs the handler `{handler}`, which `tenure run` has not");
            Err(Failure::new(Exit::Conflict, message))
        }
    }
}

/// The refusal to make a Task that exists, with the one that `--resume` would take.
async fn conflict(host: &RunHost, key: &TaskKey, of_file: &TasksOfFile, args: &RunArgs) -> Failure {
    let id = &key.task_id;
    let found = of_file.newest(host, &key.session_id).await;
    let resume = hint::resume_file(args);
    let (state, effect) = match found.ok().flatten() {
        Some(other) if other.key != *key => {
            let verb = if other.ended.is_some() { "shows the result of" } else { "goes on with" };
            (String::new(), format!("{verb} `{}`", other.key.task_id))
        }
        Some(Entry { damaged: true, .. }) => {
            let message = format!("task `{id}` exists and its log cannot be read");
            let help = "`tenure wal verify` says where it is damaged; --new starts another task";
            return Failure::new(Exit::Conflict, message).help(help);
        }
        Some(Entry { ended: Some(status), .. }) => {
            (format!("and has ended: {status}"), "shows its result".to_owned())
        }
        Some(_) => ("and has not ended".to_owned(), "goes on with it".to_owned()),
        None => (String::new(), "goes on with it".to_owned()),
    };
    Failure::new(Exit::Conflict, format!("task `{id}` exists {state}").trim_end())
        .help(format!("`{resume}` {effect}; --new runs the file as another task"))
}

async fn find(
    host: &RunHost,
    session_id: SessionId,
    request: Option<&RunnablePlan>,
    args: &RunArgs,
) -> Result<TaskKey, Failure> {
    let entry = match (args.resumed_id(), request) {
        (Some(id), _) => {
            let task_id = TaskId::new(id).map_err(Rejection::from)?;
            let key = TaskKey { session_id, task_id };
            let found = host.scheduler().journal().entry(&key).await?;
            found.ok_or_else(|| {
                nothing(&format!("there is no task `{id}`"), &key.session_id, args)
            })?
        }
        (None, Some(request)) => {
            let found = TasksOfFile::of(request).newest(host, &session_id).await?;
            let message = format!("no task was made from {}", request.origin.file);
            found.ok_or_else(|| nothing(&message, &session_id, args))?
        }
        (None, None) => {
            let message = "--resume needs a file, or the id of a task: --resume=TASK_ID";
            return Err(Failure::new(Exit::Usage, message));
        }
    };
    check_readable(host, &entry)?;
    if let Some(request) = request {
        let origin = origin(host, &entry.key).await?;
        check_origin(&entry.key, origin.as_ref(), request, args)?;
    }
    Ok(entry.key)
}

fn check_readable(host: &RunHost, entry: &Entry) -> Result<(), Failure> {
    if !entry.damaged {
        return Ok(());
    }
    let damage = host.tenure.report().damaged.iter().find(|damage| damage.task == entry.key);
    let error = damage.map_or(ReadError::Failed("it is damaged".into()), |d| d.error.clone());
    Err(unreadable(&entry.key, error))
}

/// The last Task of the file, if it has failed or was cancelled.
async fn failed(
    host: &RunHost,
    session_id: &SessionId,
    of_file: &TasksOfFile,
    args: &RunArgs,
) -> Result<TaskKey, Failure> {
    let Some(entry) = of_file.last(host, session_id).await? else {
        let message = format!("no task was made from {}", of_file.origin.file);
        return Err(nothing(&message, session_id, args));
    };
    check_readable(host, &entry)?;
    let Entry { key, ended, .. } = entry;
    let id = &key.task_id;
    match ended {
        Some(status) if status != End::Completed => Ok(key),
        Some(status) => {
            let message = format!("task `{id}` is {status}: nothing that it needs is left to run");
            Err(Failure::new(Exit::Conflict, message).help("--new runs the file as another task"))
        }
        None => {
            let message = format!("task `{id}` has not ended");
            let resume = hint::resume_task(args, id);
            Err(Failure::new(Exit::Conflict, message).help(format!("`{resume}` goes on with it")))
        }
    }
}

/// How the Tasks of a file are found again.
struct TasksOfFile {
    /// The id that the file gives.
    task_id: Option<String>,
    /// The beginning of the other ids.
    prefix: String,
    origin: Origin,
}

impl TasksOfFile {
    fn of(request: &RunnablePlan) -> Self {
        let task_id = request.task_id().map(str::to_owned);
        Self { task_id, prefix: request.id_prefix(), origin: request.origin.clone() }
    }

    /// The newest unfinished Task of the file, or else the newest that has ended; before others one that
    /// was made from it as it is now, and with the same variables.
    async fn newest(
        &self,
        host: &RunHost,
        session_id: &SessionId,
    ) -> Result<Option<Entry>, Failure> {
        let mut entries = self.entries(host, session_id).await?;
        entries.sort_by_key(|entry| (entry.ended.is_some(), Reverse(entry.created_at)));
        let mut older = None;
        for entry in entries.into_iter().take(LOOKED_AT_MAX) {
            if older.as_ref().is_some_and(|it: &Entry| it.ended.is_none() && entry.ended.is_some())
            {
                break;
            }
            // Of damaged logs, `entries` keeps only that of the Task that the file names.
            if entry.damaged {
                older.get_or_insert(entry);
                continue;
            }
            let made_from = origin(host, &entry.key).await?;
            match made_from {
                Some(origin) if origin == self.origin => return Ok(Some(entry)),
                Some(origin) if origin.file == self.origin.file => {
                    older.get_or_insert(entry);
                }
                _ if self.is_named(&entry) => {
                    older.get_or_insert(entry);
                }
                _ => {}
            }
        }
        Ok(older)
    }

    /// The last Task that was made from the file, whether it has ended or not. Of Tasks from stdin, it is the
    /// last with the same text.
    async fn last(&self, host: &RunHost, session_id: &SessionId) -> Result<Option<Entry>, Failure> {
        let mut entries = self.entries(host, session_id).await?;
        entries.sort_by_key(|entry| Reverse(entry.created_at));
        for entry in entries.into_iter().take(LOOKED_AT_MAX) {
            // Of damaged logs, `entries` keeps only that of the Task that the file names.
            if entry.damaged {
                return Ok(Some(entry));
            }
            let made_from = origin(host, &entry.key).await?;
            let is_of_file = |from: Origin| {
                from == self.origin || (from.file == self.origin.file && from.file != STDIN)
            };
            if made_from.is_some_and(is_of_file) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// The Tasks that may be of the file, by their ids.
    async fn entries(&self, host: &RunHost, session_id: &SessionId) -> Result<Vec<Entry>, Failure> {
        let mut entries = host.scheduler().journal().entries(Some(session_id)).await?;
        entries.retain(|entry| {
            let is_of_prefix = entry.key.task_id.as_str().starts_with(&self.prefix);
            self.is_named(entry) || (is_of_prefix && !entry.damaged)
        });
        Ok(entries)
    }

    fn is_named(&self, entry: &Entry) -> bool {
        self.task_id.as_deref() == Some(entry.key.task_id.as_str())
    }
}

fn nothing(message: &str, session_id: &SessionId, args: &RunArgs) -> Failure {
    let data = args.data.path.display();
    let message = format!("{message} in session `{session_id}` of {data}");
    Failure::new(Exit::NotFound, message)
        .help("`tenure run FILE` alone makes a new task; `tenure task list` shows those there are")
}

/// Refuses to go on with a Task whose file has changed, as it would run Steps that the file no
/// longer has.
fn check_origin(
    key: &TaskKey,
    origin: Option<&Origin>,
    request: &RunnablePlan,
    args: &RunArgs,
) -> Result<(), Failure> {
    let (id, file) = (&key.task_id, &request.origin.file);
    let why = match origin {
        Some(origin) if origin.digest == request.origin.digest => return Ok(()),
        Some(origin) if origin.file == *file || origin.file.is_empty() => {
            format!("{file}, or a variable given with it, has changed since task `{id}` was made")
        }
        Some(origin) => format!("task `{id}` was made from {} and not from {file}", origin.file),
        None => {
            format!("task `{id}` was not made by `tenure run`, so {file} may say something else")
        }
    };
    let message = format!("{why}; the steps of a task stay as they were when it was made");
    let resume = hint::resume_task(args, id);
    Err(Failure::new(Exit::Conflict, message).help(format!(
        "`{resume}` goes on with the task as it was made; --new runs the file as another task"
    )))
}

/// The first few commits behind an event.
async fn commits_after(
    journal: &JsonlJournal,
    key: &TaskKey,
    after: u64,
) -> Result<Vec<Arc<Commit>>, ReadError> {
    let read: Arc<Mutex<Vec<Arc<Commit>>>> = Arc::default();
    let into = Arc::clone(&read);
    let each = move |commit| {
        let mut read = into.lock();
        read.push(Arc::new(commit));
        if read.len() < AT_ONCE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    journal.read(key, after, each).await?;
    Ok(std::mem::take(&mut *read.lock()))
}

/// The origin in the first event of a Task.
async fn origin(host: &RunHost, key: &TaskKey) -> Result<Option<Origin>, Failure> {
    let metadata: Arc<Mutex<Option<Object>>> = Arc::default();
    let into = Arc::clone(&metadata);
    let each = move |commit: Commit| {
        if let Some(Event { body: Body::TaskCreated(created), .. }) = commit.events.first() {
            into.lock().clone_from(&created.task.metadata);
        }
        ControlFlow::Break(())
    };
    host.scheduler().journal().read(key, 0, each).await.map_err(|e| unreadable(key, e))?;
    let origin = Origin::of(metadata.lock().as_ref());
    Ok(origin)
}

fn unreadable(key: &TaskKey, error: ReadError) -> Failure {
    let message = format!("the log of task `{}` cannot be read: {error}", key.task_id);
    Failure::new(Exit::Unavailable, message)
        .help("restore the file from a backup; other tasks are not touched by this")
}
