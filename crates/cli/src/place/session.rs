//! Sends commands on a Task to the nodes of a cluster, to the process at work on a directory, or to a scheduler
//! of this process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt as _;
use tenure_core::Context;
use tenure_core::command::RetryEnded;
use tenure_core::event::Body;
use tenure_core::id::{CommandId, RunId, StepId, TaskId};
use tenure_core::view::{Explanation, QueryInput, StepView, TaskSummary, TaskView, WriteSummary};
use tenure_core::{Code, Command, Limits, Rejection};
use tenure_embedded::Embedded;
use tenure_local::{JsonlReader, OpenError};
use tenure_ports::ClientPort as _;
use tenure_ports::erased::ErasedClient;
use tenure_ports::journal::TaskKey;
use tenure_sdk::client::{Client, passes, patiently};

use super::args::{PlaceArgs, resume};
use super::data::me;
use super::ended::ended_in;
use super::host::Host;
use super::names::{self, HEADER_BYTES};
use super::socket;
use crate::answer::{Exit, Failure, did_you_mean, output};

/// The pause between two tries while waiting.
const PAUSE: Duration = Duration::from_millis(500);

/// A Task, and the client that commands it.
pub(crate) struct CallerSession {
    client: Client<ErasedClient>,
    way: SessionWay,
    key: TaskKey,
}

/// Where the client leads to.
enum SessionWay {
    /// The nodes of a cluster.
    Far,
    /// The process that is at work on this directory.
    AtWork { data: PathBuf, host: Host },
    /// A scheduler of this process.
    Here { _scheduler: Embedded },
}

impl CallerSession {
    pub(crate) async fn open(place: &PlaceArgs, key: TaskKey) -> Result<Self, Failure> {
        if place.is_cluster() {
            let client = place.cluster.caller().await?.client(&key.session_id).await?;
            return Ok(Self { client: client.erased(), way: SessionWay::Far, key });
        }
        let data = place.dir();
        JsonlReader::open(data)?; // A command must not create the directory.
        let (client, way) = match Embedded::open(data).await {
            Ok(scheduler) => {
                let me = me(&key.session_id)?;
                let port = scheduler.scheduler().client(me.role, me.agent, me.session_id);
                (Client::new(port).erased(), SessionWay::Here { _scheduler: scheduler })
            }
            Err(refused) => at_work(data, &key, refused).await?,
        };
        Ok(Self { client, way, key })
    }

    /// Which Task it is.
    pub(crate) fn key(&self) -> &TaskKey {
        &self.key
    }

    /// Replaces `last` by the newest Task. Returns whether the name was `last`.
    pub(crate) async fn find_last(&mut self) -> Result<bool, Failure> {
        if !names::is_last(&self.key) {
            return Ok(false);
        }
        let known = self.client.list(true).await?;
        let newest = names::newest(&self.key, &known)?;
        let is_found = newest.is_some();
        self.key = newest.unwrap_or_else(|| self.key.clone());
        Ok(is_found)
    }

    pub(crate) async fn command(
        &self,
        context: Context,
        command: Command,
    ) -> Result<WriteSummary, Failure> {
        let (task, id) = (&self.key.task_id, context.command_id.clone());
        let done = self.client.command_as(task, context, command).await;
        done.map_err(|refused| in_doubt(refused, &id))
    }

    pub(crate) async fn retry_ended(
        &self,
        new: &TaskId,
        context: Context,
        how: RetryEnded,
    ) -> Result<WriteSummary, Failure> {
        let (new, id) = (new.clone(), context.command_id.clone());
        let done = self.client.retry_ended_as(new, context, how).await;
        done.map_err(|refused| in_doubt(refused, &id))
    }

    /// The Task; without its lists if it is too long for one answer.
    pub(crate) async fn view(&self) -> Result<TaskView, Failure> {
        Ok(self.client.get(&self.key.task_id).await?)
    }

    /// The Steps of the Task, including settled ones if asked for.
    pub(crate) async fn steps(&self, with_settled: bool) -> Result<Vec<StepView>, Failure> {
        let mut all = Vec::new();
        let mut next = Some(0);
        while let Some(offset) = next {
            let input = QueryInput {
                include_terminal_steps: with_settled,
                limit: Some(Limits::default().page_max),
                offset,
                ..QueryInput::default()
            };
            let page = self.client.steps(&self.key.task_id, input).await?;
            all.extend(page.steps);
            next = page.next_offset;
        }
        Ok(all)
    }

    /// Why a Step is not running.
    pub(crate) async fn explain(&self, step: &StepId) -> Result<Explanation, Failure> {
        Ok(self.client.explain(&self.key.task_id, step.clone()).await?)
    }

    /// The Run of this id, or the only one whose id begins so.
    pub(crate) async fn run(&self, name: &str) -> Result<RunId, Failure> {
        if let Ok(run) = name.parse() {
            return Ok(run);
        }
        let view = self.view().await?;
        if view.left_out.is_some() {
            let message = format!("task {} has too many runs to find one by `{name}`", self.key);
            return Err(Failure::new(Exit::Usage, message).help("name it in full"));
        }
        let known = view.runs.iter().map(|run| run.run_id);
        names::run(name, known).ok_or_else(|| names::no_run(name, &self.key))
    }

    /// Waits until the Task has ended, and returns it in short. The process at work on a directory may leave with
    /// its Task, and only the log there says then how it has ended. If it leaves before, the wait is over.
    pub(crate) async fn end(&self) -> Result<TaskSummary, Failure> {
        if let SessionWay::AtWork { data, host } = &self.way {
            return tokio::select! {
                ended = ended_in(data, &self.key) => ended,
                () = host.until_left(data) => Err(left_alone(data, &self.key)),
            };
        }
        let task = &self.key.task_id;
        self.client.wait_for_end(task).await?;
        let client = self.client.within(HEADER_BYTES);
        Ok(patiently(client.port(), || client.get(task)).await?.task)
    }

    /// Sends a command whose answer comes when its effect is over, such as the end of a Run,
    /// however long that takes.
    pub(crate) async fn answer(
        &self,
        context: Context,
        command: Command,
    ) -> Result<WriteSummary, Failure> {
        let mut is_told = false;
        loop {
            // No single request can wait for hours: a repetition goes on waiting.
            match self.command(context.clone(), command.clone()).await {
                Err(silence) if silence.refusal().is_some_and(passes) => {
                    if !is_told {
                        output::say("no answer yet; it is waited for");
                    }
                    is_told = true;
                    tokio::time::sleep(PAUSE).await;
                }
                answer => return answer,
            }
        }
    }

    /// The version of the Task.
    pub(crate) async fn version(&self) -> Result<u64, Failure> {
        Ok(self.client.port().log(&self.key.task_id, u64::MAX).await?.version)
    }

    /// The Run that a command makes behind event `after` of the log, once it is there.
    pub(crate) async fn run_made_by(&self, command: &CommandId, after: u64) -> Option<RunId> {
        let task = &self.key.task_id;
        let mut commits = self.client.watch(task, after).boxed();
        while let Some(Ok(commit)) = commits.next().await {
            if commit.command_id.as_ref() == Some(command) {
                return commit.events.iter().find_map(|event| match &event.body {
                    Body::RunDispatched(made) => Some(made.run_id),
                    _ => None,
                });
            }
        }
        None
    }

    /// Adds similar names to the failure for something that does not exist.
    pub(crate) async fn with_names(&self, failure: Failure) -> Failure {
        let meant = match failure.refusal() {
            Some(no) if no.code == Code::TaskNotFound => self.nearest_task(no).await,
            Some(no) if no.code == Code::StepNotFound => self.nearest_step(no).await,
            _ => None,
        };
        match meant {
            Some(help) => failure.help(help),
            None => failure,
        }
    }

    async fn nearest_task(&self, no: &Rejection) -> Option<String> {
        // A mere suggestion is not worth that a cluster reads its streams.
        let is_here = matches!(self.way, SessionWay::Here { .. });
        let known = self.client.list(is_here).await.ok()?;
        let names = known.entries.iter().map(|entry| entry.key.task_id.as_str());
        did_you_mean(no.details.get("task_id")?.as_str()?, names)
    }

    async fn nearest_step(&self, no: &Rejection) -> Option<String> {
        let known = self.steps(true).await.ok()?;
        let names = known.iter().map(|step| step.spec.step_id.as_str());
        did_you_mean(no.details.get("step_id")?.as_str()?, names)
    }
}

/// The process that has the directory. If it does not answer, the directory cannot be opened for this reason.
async fn at_work(
    data: &Path,
    key: &TaskKey,
    refused: tenure_embedded::Error,
) -> Result<(Client<ErasedClient>, SessionWay), Failure> {
    let is_locked = matches!(refused, tenure_embedded::Error::Open(OpenError::Locked { .. }));
    if is_locked && let Some(client) = socket::soon_at_work(data, &key.session_id).await {
        let way = SessionWay::AtWork { data: data.to_owned(), host: Host::of(data) };
        return Ok((client.erased(), way));
    }
    Err(refused.into())
}

/// The failure when the process that was at work on a directory has left, and a Task there has not ended.
fn left_alone(data: &Path, key: &TaskKey) -> Failure {
    let message = format!("the process at work has left, and task {key} has not ended");
    let resume = resume(data, key);
    Failure::new(Exit::Unavailable, message).help(format!("to go on: {resume}"))
}

/// The failure for a refusal. If the command may have taken effect, it has the id with which to
/// repeat it.
fn in_doubt(refused: Rejection, id: &CommandId) -> Failure {
    let is_in_doubt = refused.code == Code::Unavailable;
    let failure = Failure::from(refused);
    match is_in_doubt {
        true => failure.help(format!("the same with `--command-id {id}` takes effect once")),
        false => failure,
    }
}
