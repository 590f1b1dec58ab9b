//! Answers to queries: about a Task as it stands, and about lists, histories and logs, which read
//! more than one state.
//!
//! Step 11 of the walk in docs/architecture.md.

use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_core::command::check_tool;
use tenure_core::eligibility::Wanted;
use tenure_core::id::{AttemptId, TaskId};
use tenure_core::task::Attempt;
use tenure_core::view::{
    InspectInput, Inspection, Known, ListInput, Means, ReplayInput, TaskPage, TaskSummary,
    TaskView, View, inspect, list_entry, timeline,
};
use tenure_core::{Caller, Code, Commit, Query, Rejection, TaskQuery};
use tenure_ports::client::{self as ports, Answers};
use tenure_ports::journal::{Entry, TaskKey};
use tenure_ports::{Journal, Leases};
use tenure_wire::bus::blob::{BlobGet, BlobPart, BlobPut, BlobTaken};
use tenure_wire::bus::event::{EventPage, ReadEvents};
use tenure_wire::bus::output::ReadOutput;
use tenure_wire::bus::request::{
    LeaseLeft, LogPage, READ_HELD_MS_MAX, RawBytes, ReadLog, ReadUntil,
};
use tenure_wire::stored::{EncodeError, encode};
use tokio::time::{Instant, timeout, timeout_at};

use super::{ClientLink, PAGE_BYTES, PAGE_EVENTS, Stands};
use crate::held::LogNews;
use crate::node::TaskWorkers;
use crate::task::open::{load_until, unreadable};

/// About how long a page of a list takes. Then it is cut short; the reading of logs goes on, and
/// the caller that asks for the rest finds them read.
pub(super) const LOOKS: Duration = Duration::from_secs(2);
/// How long a page waits for one Task even after that.
const LOOK: Duration = Duration::from_millis(100);
/// For how many Tasks a page that shows none waits so.
const LATE_MAX: usize = 20;

/// What `look` finds in a Task, if its log is read in time. A request for several Tasks waits no
/// longer for one: its log is read on in the background, and is there when the caller asks again.
pub(super) async fn in_time<T>(
    until: Instant,
    look: impl Future<Output = Result<T, Rejection>>,
) -> Result<T, Rejection> {
    let long = "the task's log is long, and not read yet; ask again";
    let looked = timeout_at(until.max(Instant::now() + LOOK), look).await;
    looked.unwrap_or_else(|_| Err(Rejection::new(Code::StorageError, long)))
}

/// A commit as the lines that a log file stores for it.
#[derive(Debug)]
pub(crate) struct EncodedCommit {
    last_seq: u64,
    lines: Arc<[u8]>,
}

macro_rules! answers {
    (
        task { $($task:ident($query:ty))* }
        history { $($history:ident($_read:ty))* }
        parts { $($part:ident($_part:ty))* }
        other { $($other:ident($_other:ty))* }
    ) => {$(
        impl<J: Journal, L: Leases> Answers<$query> for ClientLink<J, L> {
            async fn answer(
                &self,
                task: &TaskId,
                query: $query,
            ) -> Result<<$query as Query>::Output, Rejection> {
                self.read_task(task, query).await
            }
        }
    )*};
}

tenure_wire::queries!(answers);

impl<J: Journal, L: Leases> Answers<InspectInput> for ClientLink<J, L> {
    async fn answer(&self, task: &TaskId, query: InspectInput) -> Result<Inspection, Rejection> {
        self.inspected(task, query).await
    }
}

impl<J: Journal, L: Leases> Answers<ReplayInput> for ClientLink<J, L> {
    async fn answer(&self, task: &TaskId, query: ReplayInput) -> Result<TaskView, Rejection> {
        self.replayed(task, query).await
    }
}

impl<J: Journal, L: Leases> Answers<ReadEvents> for ClientLink<J, L> {
    async fn answer(&self, task: &TaskId, which: ReadEvents) -> Result<EventPage, Rejection> {
        Ok(self.follow(task, which.after, true).await?.0)
    }
}

impl<J: Journal, L: Leases> Answers<BlobGet> for ClientLink<J, L> {
    async fn answer(&self, task: &TaskId, asked: BlobGet) -> Result<BlobPart, Rejection> {
        self.scheduler.blob_part(&self.caller, &self.key(task), None, asked).await
    }
}

impl<J: Journal, L: Leases> Answers<BlobPut> for ClientLink<J, L> {
    async fn answer(&self, task: &TaskId, part: BlobPut) -> Result<BlobTaken, Rejection> {
        self.scheduler.take_blob_part(&self.caller, &self.key(task), None, part).await
    }
}

impl<J: Journal, L: Leases> ClientLink<J, L> {
    /// Reads a Task together with what is known of its leases, and of what claims need.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        task: &TaskId,
        look: impl FnOnce(&View<'_>, &Caller, &Known<'_>) -> T + Send + 'static,
    ) -> Result<T, Rejection> {
        let (caller, now) = (self.caller.clone(), self.scheduler.now());
        let (node, key) = (Arc::clone(&self.scheduler.node), self.key(task));
        let look = move |task: &View<'_>| {
            let known = |attempt| node.lease(attempt, now);
            let (wal, trouble) = (node.wal_path(task), node.log_trouble(&key));
            let of_pools = TaskWorkers::default();
            let workers = |wanted: Wanted<'_>| of_pools.facts(&node, wanted);
            let (log_trouble, lacks_leases) = (trouble.as_deref(), !node.keeps_leases());
            let means = Some(Means { workers: &workers, log_trouble, lacks_leases });
            let known = Known { wal_path: wal.as_deref(), means, ..Known::new(now, &known) };
            look(task, &caller, &known)
        };
        self.scheduler.read(&self.key(task), look).await
    }

    /// `agent.task_list` of these Tasks of the session, at most `most`. It reads no log of a Task
    /// that the index alone places before the page, or of one behind the page, and no more than
    /// `most` logs of ended Tasks: where so many do not belong into the list, it is cut short
    /// (LIST-07).
    ///
    /// # Errors
    /// Not for this caller; `validation_error` for the input.
    pub async fn tasks_page(
        &self,
        entries: Vec<Entry>,
        input: &ListInput,
        most: usize,
    ) -> Result<TaskPage, Rejection> {
        self.may_list()?;
        let limit = input.limit(&self.scheduler.node.config.limits)?.min(most);
        let (mut page, mut passed, mut opened) = (TaskPage::default(), 0, 0);
        let until = Instant::now() + LOOKS;
        for entry in Entry::in_order(entries, input) {
            let is_told = !entry.damaged && input.is_settled_by_index(entry.ended.is_some());
            if passed < input.offset && is_told {
                passed += 1;
                continue;
            }
            opened += usize::from(entry.ended.is_some());
            let has_enough = !page.tasks.is_empty() || page.unreadable.len() >= LATE_MAX;
            let is_late = has_enough && Instant::now() >= until;
            if opened > most.saturating_add(1) || is_late {
                page.cut(input.offset, page.tasks.len());
                break;
            }
            let task = &entry.key.task_id;
            match in_time(until, self.line(task)).await {
                Ok(line) if !input.admits(line.listed()) => {}
                Ok(_) if passed < input.offset => passed += 1,
                Ok(_) if page.tasks.len() == limit => {
                    page.cut(input.offset, limit);
                    break;
                }
                Ok(line) => page.tasks.push(line),
                Err(gone) if gone.code == Code::TaskNotFound => {}
                Err(broken) if broken.code == Code::StorageError => {
                    page.unreadable.push(task.clone());
                }
                Err(refused) => return Err(refused),
            }
        }
        Ok(self.fit(page, |page| input.shorten(page)))
    }

    async fn line(&self, task: &TaskId) -> Result<TaskSummary, Rejection> {
        let look =
            |view: &View<'_>, caller: &Caller, known: &Known<'_>| list_entry(view, caller, known);
        self.look(task, look).await?
    }

    /// Answers a query about a Task as it stands.
    async fn read_task<Q: TaskQuery>(
        &self,
        task: &TaskId,
        query: Q,
    ) -> Result<Q::Output, Rejection> {
        check_tool(&self.caller, Q::TOOL)?;
        query.check(&self.scheduler.node.config.limits)?;
        let (node, asked) = (Arc::clone(&self.scheduler.node), query.clone());
        let most = self.max_bytes.unwrap_or(usize::MAX).min(self.sent_max);
        let read = move |view: &View<'_>, caller: &Caller, known: &Known<'_>| {
            asked.read_within(view, caller, known, &node.config.limits, most)
        };
        let answer = self.look(task, read).await??;
        Ok(self.fit(answer, |answer| query.shorten(answer)))
    }

    pub(super) async fn inspected(
        &self,
        task: &TaskId,
        input: InspectInput,
    ) -> Result<Inspection, Rejection> {
        check_tool(&self.caller, InspectInput::TOOL)?;
        let key = self.key(task);
        self.version(&key).await?; // Refused if there is no such Task.
        let (first, last) = input.range().into_inner();
        let first = first.max(1);
        // Of a commit that is longer than a page only a part is shown, as in `read_log`.
        let page = first..=last.min(first.saturating_add(PAGE_EVENTS - 1));
        let commits = self.commits_within(&key, page.clone(), PAGE_BYTES).await?;
        let told = timeline(&key.session_id, task, &commits, page);
        let look =
            move |view: &View<'_>, _: &Caller, known: &Known<'_>| inspect(view, told, last, known);
        let history = self.look(task, look).await?;
        Ok(self.fit(history, |history| input.shorten(history)))
    }

    pub(super) async fn replayed(
        &self,
        task: &TaskId,
        input: ReplayInput,
    ) -> Result<TaskView, Rejection> {
        check_tool(&self.caller, ReplayInput::TOOL)?;
        let key = self.key(task);
        let version = self.version(&key).await?;
        let seq = match input.to_seq {
            Some(0) => return Err(Rejection::invalid("to_seq", "the first event is 1")),
            given => given.unwrap_or(version).min(version),
        };
        let journal = self.scheduler.journal();
        let task = load_until(&**journal, &key, seq).await.map_err(|error| unreadable(&error))?;
        Ok(self.fit(TaskView::as_it_was(&task.durable()), |task| input.shorten(task)))
    }

    /// An Attempt of a Task, for whoever may see what its command wrote (ART-09).
    ///
    /// # Errors
    /// Not for this caller; `validation_error` if the Task has no such Attempt.
    pub async fn attempt(&self, task: &TaskId, id: AttemptId) -> Result<Attempt, Rejection> {
        check_tool(&self.caller, ReadOutput::TOOL)?;
        let look = move |view: &View<'_>| view.attempt(id).cloned();
        let found = self.scheduler.read(&self.key(task), look).await?;
        found.ok_or_else(|| {
            Rejection::invalid("attempt_id", format!("task {task} has no attempt {id}"))
        })
    }

    async fn version(&self, key: &TaskKey) -> Result<u64, Rejection> {
        self.scheduler.read(key, |task| task.version()).await
    }

    /// How a Task stands. For one that has ended the index answers, and its log is not read.
    pub(super) async fn stands(&self, key: &TaskKey) -> Result<Stands, Rejection> {
        let node = Arc::clone(&self.scheduler.node);
        if let Some(ended) = node.journal.ended(key).await {
            let wal_path = node.journal.wal_path(key, &ended.wal_name);
            let (version, status) = (ended.version, ended.end.status());
            return Ok(Stands { version, status, leases: Vec::new(), wal_path });
        }
        let stands = move |task: &View<'_>| {
            let left = |id: AttemptId| node.leases.left_ms(id).map(|left| (id, left));
            let leases = task.open_attempts().filter_map(|a| left(a.attempt_id)).collect();
            let (version, status) = (task.version(), task.status());
            Stands { version, status, leases, wal_path: node.wal_path(task) }
        };
        self.scheduler.read(key, stands).await
    }

    /// Waits as the reader of a log asks for it. None: the log is to be read, as it has more than came meanwhile, or
    /// nothing came.
    ///
    /// # Errors
    /// There is no such Task, or `leave` refuses to look at it.
    pub(super) async fn news<T: Send>(
        &self,
        key: &TaskKey,
        which: ReadLog,
        leave: impl FnOnce() -> Result<T, Rejection> + Send,
    ) -> Result<Option<LogNews>, Rejection> {
        let ReadLog { after, wait_ms, until, .. } = which;
        if wait_ms == 0 {
            return Ok(None);
        }
        let node = &self.scheduler.node;
        let who = &self.caller.agent;
        let Some(mut held) = node.held.hold(who, key, until) else { return Ok(None) };
        let is_there = if after == 0 && until == ReadUntil::Settled {
            // The Task may be about to be made, and to ask for it would wait for that.
            node.journal.ended(key).await.is_some()
        } else {
            let _leave = leave()?;
            self.scheduler.recall(key, &self.caller).await?;
            let Stands { version, status, .. } = self.stands(key).await?;
            version > after || status.is_terminal()
        };
        if is_there {
            return Ok(None);
        }
        let wait = Duration::from_millis(wait_ms.min(READ_HELD_MS_MAX));
        let news = timeout(wait, held.news()).await.ok().flatten();
        Ok(news.filter(|news| news.is_all_behind(after)))
    }

    /// A page of what came while the answer was held.
    pub(super) fn page_of_news(&self, news: LogNews) -> ports::LogPage {
        let LogNews { commits, version, status } = news;
        ports::LogPage {
            commits: commits.into_iter().map(Arc::unwrap_or_clone).collect(),
            more: false,
            version,
            status,
            now: self.scheduler.now(),
            leases: Vec::new(),
            wal_path: None,
            steps_max: None,
        }
    }

    /// `read_log` for a reader that waits: what came while the answer was held, as lines. None: the log is to be
    /// read. `leave` gives what is held while the Task is looked at, before the wait.
    ///
    /// # Errors
    /// Not for this caller, there is no such Task, or `leave` refuses.
    pub async fn held_page<T: Send>(
        &self,
        task: &TaskId,
        which: ReadLog,
        most: usize,
        leave: impl FnOnce() -> Result<T, Rejection> + Send,
    ) -> Result<Option<LogPage>, Rejection> {
        check_tool(&self.caller, ReadLog::TOOL)?;
        let key = self.key(task);
        let Some(news) = self.news(&key, which, leave).await? else { return Ok(None) };
        let (mut commits, mut bytes) = (Vec::with_capacity(news.commits.len()), 0);
        for commit in &news.commits {
            let mut lines = Vec::new();
            if encode(commit, &key.session_id, &key.task_id, &mut lines).is_err() {
                return Ok(None);
            }
            bytes += lines.len();
            commits.push(RawBytes(lines));
        }
        let LogNews { version, status, .. } = news;
        let now = self.scheduler.now();
        let (cut, more, leases, wal_path, steps_max) = Default::default();
        let page =
            LogPage { commits, cut, more, version, status, now, leases, wal_path, steps_max };
        Ok(Some(page).filter(|_| bytes <= most))
    }

    /// `read_log`: as many commits as have `most` bytes of lines, at least one. Of a longer commit
    /// it sends only a part, and caches the lines for the caller that asks for the next part, as
    /// encoding them again for each part would cost as much as the whole commit.
    ///
    /// # Errors
    /// Not for this caller, or the log cannot be read.
    pub async fn log_page(
        &self,
        task: &TaskId,
        which: ReadLog,
        most: usize,
    ) -> Result<LogPage, Rejection> {
        check_tool(&self.caller, ReadLog::TOOL)?;
        let (key, long) = (self.key(task), &self.scheduler.node.long);
        let Stands { version, status, leases, wal_path } = self.stands(&key).await?;
        let place = (key, which.after);
        let read = match long.take(&place) {
            Some(long) => vec![long],
            None if which.after < version => self.lines_behind(&place.0, which.after, most).await?,
            None => Vec::new(),
        };
        let through = read.last().map_or(version, |one| one.last_seq);
        let mut commits: Vec<RawBytes> = Vec::with_capacity(read.len());
        let mut cut = None;
        for one in read {
            let from = if commits.is_empty() { which.from } else { 0 };
            let rest = one.lines.get(usize::try_from(from).unwrap_or(usize::MAX)..);
            let part = rest.and_then(|rest| rest.get(..most)).or(rest).unwrap_or_default();
            commits.push(RawBytes(part.to_vec()));
            if rest.is_some_and(|rest| rest.len() > most) {
                cut = Some(from + most as u64);
                let bytes = one.lines.len() as u64;
                long.put(place, one, 0, bytes);
                break;
            }
        }
        let left = |(attempt_id, left_ms)| LeaseLeft { attempt_id, left_ms };
        Ok(LogPage {
            commits,
            cut,
            more: through < version,
            version,
            status,
            now: self.scheduler.now(),
            leases: leases.into_iter().map(left).collect(),
            wal_path,
            steps_max: Some(self.scheduler.node.config.limits.steps_max),
        })
    }

    /// The first commit behind an event as lines, and as many of the next as fit with it into
    /// `most` bytes.
    async fn lines_behind(
        &self,
        key: &TaskKey,
        after: u64,
        most: usize,
    ) -> Result<Vec<EncodedCommit>, Rejection> {
        let read: Arc<Mutex<Result<Vec<EncodedCommit>, EncodeError>>> =
            Arc::new(Mutex::new(Ok(vec![])));
        let into = Arc::clone(&read);
        let (session, task) = (key.session_id.clone(), key.task_id.clone());
        let mut bytes = 0_usize;
        let each = move |commit: Commit| {
            let mut lines = Vec::new();
            let written = encode(&commit, &session, &task, &mut lines);
            let mut slot = into.lock();
            if let Err(error) = written {
                *slot = Err(error);
            } else if let Ok(read) = slot.as_mut()
                && (read.is_empty() || bytes + lines.len() <= most)
            {
                bytes += lines.len();
                read.push(EncodedCommit { last_seq: commit.last_seq(), lines: lines.into() });
                if bytes < most {
                    return ControlFlow::Continue(());
                }
            }
            ControlFlow::Break(())
        };
        let events = after + 1..=after.saturating_add(PAGE_EVENTS);
        let read_part = self.scheduler.journal().read_part(key, events, each);
        read_part.await.map_err(|error| unreadable(&error))?;
        let read = std::mem::replace(&mut *read.lock(), Ok(Vec::new()));
        read.map_err(|error| Rejection::invalid("log", error.to_string()))
    }

    /// The commits that have these events, from the first on: at most a page of them, up to the one
    /// with which they reach `most` bytes as a log stores them. What lies before and behind the
    /// page is not read.
    pub(super) async fn commits_within(
        &self,
        key: &TaskKey,
        events: RangeInclusive<u64>,
        most: usize,
    ) -> Result<Vec<Commit>, Rejection> {
        let first = (*events.start()).max(1);
        let last = (*events.end()).min(first.saturating_add(PAGE_EVENTS - 1));
        let read: Arc<Mutex<Vec<Commit>>> = Arc::default();
        let into = Arc::clone(&read);
        let (session, task) = (key.session_id.clone(), key.task_id.clone());
        let (mut lines, mut bytes) = (Vec::new(), 0_usize);
        let each = move |commit: Commit| {
            if most < usize::MAX {
                lines.clear();
                let written = encode(&commit, &session, &task, &mut lines);
                bytes += written.map_or(most, |()| lines.len());
            }
            into.lock().push(commit);
            if bytes < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let journal = self.scheduler.journal();
        let read_part = journal.read_part(key, first..=last, each);
        read_part.await.map_err(|error| unreadable(&error))?;
        let commits = std::mem::take(&mut *read.lock());
        Ok(commits)
    }
}
