//! The way of one Attempt: call the tool or go on with its task, follow it, answer it, cancel it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value as Json};
use tenure_core::Rejection;
use tenure_core::id::Ref;
use tenure_core::record::{Progress, RemoteRef};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::ToolOrder;
use super::ask::{self, Questions};
use super::mark::{PriorCall, ToolMark};
use crate::jitter::jittered;
use crate::mcp::{
    ServerAnswer, ServerCall, ToolClient, ToolError, ToolProgress, ToolQuestions, ToolResult,
    ToolTask, ToolTaskState,
};
use crate::worker::context::StepContext;
use crate::worker::words::cut;

/// How often a server may want the same call again at once.
const CALLS_MAX: u32 = 16;

/// How often what a server says while it works is reported at most.
const SAID_EVERY: Duration = Duration::from_secs(1);

/// How long a server may be out of reach, or fail, before a task that goes on is given up by this Attempt.
const PATIENCE: Duration = Duration::from_secs(600);

/// The first pause before such a server is asked again, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(15));

/// How long a cancellation may take.
const CANCEL_MAX: Duration = Duration::from_secs(8);

/// The server does not know what it is asked for.
const UNKNOWN: i64 = -32_602;

/// How the work ends for now.
pub(super) enum ToolEnd {
    /// The tool has ended.
    Result(ToolResult),
    /// The server asks this, and nobody has answered.
    Asks(String),
    /// The task of the server has failed.
    Failed(ToolError),
    /// It was canceled there.
    Canceled(Option<String>),
}

/// Why there is no end.
#[derive(Debug, thiserror::Error)]
pub(super) enum ToolFault {
    /// The server.
    #[error(transparent)]
    Server(#[from] ToolError),
    /// The server does not know its task any more.
    #[error("the server does not know its task any more: {0}")]
    TaskGone(ToolError),
    /// What the server asks cannot be passed on.
    #[error("{0}")]
    Question(String),
    /// The scheduler takes no report.
    #[error(transparent)]
    Local(#[from] Rejection),
}

/// What people have said to some questions.
enum PersonsAnswers {
    /// All are answered: the answers by name, and which texts these are.
    All(Map<String, Json>, Vec<String>),
    /// Some are not: what people are asked now.
    Missing(String),
}

/// The work of one Attempt.
pub(super) struct CallWork {
    pub(super) ctx: StepContext,
    pub(super) order: ToolOrder,
    pub(super) prior: PriorCall,
    /// What was reported of the task of the server last.
    pub(super) noted: Option<RemoteRef>,
    client: Arc<ToolClient>,
    said: Option<(String, Instant)>,
}

impl CallWork {
    pub(super) fn new(ctx: StepContext, order: ToolOrder, client: Arc<ToolClient>) -> Self {
        let prior = PriorCall::of(ctx.checkpoint_refs());
        Self { ctx, order, prior, noted: None, client, said: None }
    }

    /// Works until the tool has ended, or its server asks for what is not here.
    pub(super) async fn run(&mut self) -> Result<ToolEnd, ToolFault> {
        match self.prior.task.clone() {
            Some(task) => {
                let task = self.look(&task).await?;
                self.follow(task).await
            }
            None => self.begin().await,
        }
    }

    /// Passes a cancellation on. A worker that leaves cancels nothing: another one goes on with the task. A call
    /// without a task has ended already, as nobody waits for it any more.
    pub(super) async fn stop(&mut self) {
        let Some(left) = self.ctx.time_left() else { return };
        let Some(task) = &self.prior.task else { return };
        match timeout(left.min(CANCEL_MAX), self.client.cancel_task(task)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "a server of tools was not told of a cancellation")
            }
            Err(_) => tracing::warn!("a server of tools does not answer to a cancellation"),
        }
    }

    pub(super) async fn mark(&self, mark: &ToolMark) -> Result<(), Rejection> {
        self.ctx.checkpoint(&mark.to_text()).await
    }

    /// Calls the tool, as often as its server wants to be called with what is here.
    async fn begin(&mut self) -> Result<ToolEnd, ToolFault> {
        let mut asked = self.prior.asked.take();
        let mut is_recorded = asked.is_some();
        for _ in 0..CALLS_MAX {
            let mut answers = None;
            if let Some(questions) = &asked {
                match self.answers(&questions.input_requests).await? {
                    PersonsAnswers::All(given, texts) => {
                        answers = Some((given, texts, questions.request_state.clone()));
                    }
                    PersonsAnswers::Missing(prompt) => {
                        if !is_recorded {
                            self.record(questions).await?;
                        }
                        return Ok(ToolEnd::Asks(prompt));
                    }
                }
            }
            let (given, texts) =
                answers.map_or((None, vec![]), |(a, texts, s)| (Some((a, s)), texts));
            let answer = self.call(given).await?;
            if let ServerAnswer::Task(task) = &answer {
                // Before anything else: whoever comes after this worker goes on with the task.
                let begun = ToolMark::Begun { round: self.prior.round, task: task.id.clone() };
                self.mark(&begun).await?;
                self.prior.task = Some(task.id.clone());
            }
            self.note_sent(texts).await?;
            match answer {
                ServerAnswer::Result(result) => return Ok(ToolEnd::Result(result)),
                ServerAnswer::Task(task) => return self.follow(task).await,
                ServerAnswer::Asks(questions) => {
                    ask::check(&questions.input_requests).map_err(ToolFault::Question)?;
                    if questions.input_requests.is_empty() {
                        sleep(jittered(PAUSES.0)).await; // It has no capacity now, and says so.
                    }
                    (asked, is_recorded) = (Some(questions), false);
                }
            }
        }
        Err(ToolFault::Question("the server wants to be called again and again".to_owned()))
    }

    /// Leaves what the server asks to the Attempt that has the answers.
    async fn record(&mut self, questions: &ToolQuestions) -> Result<(), ToolFault> {
        let marks = ToolMark::asked(self.prior.round, self.prior.turns, questions);
        let too_long =
            || ToolFault::Question("what the server asks is too long to be kept".to_owned());
        for mark in marks.ok_or_else(too_long)? {
            self.mark(&mark).await?;
        }
        self.prior.turns += 1;
        Ok(())
    }

    /// One call, whose progress is that of the Step.
    async fn call(
        &mut self,
        answers: Option<(Map<String, Json>, Option<String>)>,
    ) -> Result<ServerAnswer, ToolFault> {
        let call = ServerCall {
            tool: self.order.tool.clone(),
            arguments: self.order.arguments.clone(),
            answers,
            traceparent: self.ctx.traceparent().map(str::to_owned),
        };
        let (sender, told) = watch::channel(None);
        tokio::select! {
            answered = self.client.call(&call, &sender) => Ok(answered?),
            never = tell(&self.ctx, told) => match never {},
        }
    }

    /// Follows a task until it has ended, or asks for what is not here.
    async fn follow(&mut self, mut task: ToolTask) -> Result<ToolEnd, ToolFault> {
        loop {
            self.note(&task).await?;
            match task.state {
                ToolTaskState::Completed(result) => return Ok(ToolEnd::Result(result)),
                ToolTaskState::Failed(error) => return Ok(ToolEnd::Failed(error)),
                ToolTaskState::Cancelled => return Ok(ToolEnd::Canceled(task.message)),
                ToolTaskState::Working => self.say(task.message.as_deref()).await?,
                ToolTaskState::Asks(questions) => {
                    if let Some(prompt) = self.answer(&task.id, questions).await? {
                        return Ok(ToolEnd::Asks(prompt));
                    }
                }
            }
            sleep(jittered(task.poll)).await;
            task = self.look(&task.id).await?;
        }
    }

    /// Answers what a task asks; or else what people are asked now.
    async fn answer(&mut self, task: &str, asked: Questions) -> Result<Option<String>, ToolFault> {
        // The server may show a question for a while after it got the answer.
        let is_open = |(name, _): &(String, Json)| !self.prior.answered.contains(name);
        let open: Questions = asked.into_iter().filter(is_open).collect();
        if open.is_empty() {
            return Ok(None);
        }
        ask::check(&open).map_err(ToolFault::Question)?;
        let (given, texts) = match self.answers(&open).await? {
            PersonsAnswers::All(given, texts) => (given, texts),
            PersonsAnswers::Missing(prompt) => return Ok(Some(prompt)),
        };
        with_patience(|| self.client.answer_task(task, &given)).await?;
        let names: Vec<String> = given.keys().cloned().collect();
        self.mark(&ToolMark::Answered(names.clone())).await?;
        self.prior.answered.extend(names);
        self.note_sent(texts).await?;
        Ok(None)
    }

    /// What people have said to these questions and was not sent yet. What is no answer is put aside.
    async fn answers(&mut self, questions: &Questions) -> Result<PersonsAnswers, Rejection> {
        let (mut given, mut used, mut wrong) = (Map::new(), Vec::new(), None);
        for (reference, text) in self.ctx.said_by_people().await? {
            let id = id_of(&reference);
            if self.prior.sent.contains(&id) {
                continue;
            }
            match ask::read(questions, &text) {
                Ok(answers) => {
                    given.extend(answers);
                    used.push(id);
                }
                Err(why) => {
                    wrong = Some(why);
                    self.note_sent(vec![id]).await?;
                }
            }
        }
        let missing: Questions = questions
            .iter()
            .filter(|(name, _)| !given.contains_key(*name))
            .map(|(n, q)| (n.clone(), q.clone()))
            .collect();
        if missing.is_empty() {
            return Ok(PersonsAnswers::All(given, used));
        }
        let prompt = ask::prompt(&missing);
        let prompt =
            wrong.map(|why| format!("The answer was not used: {why}.\n{prompt}")).unwrap_or(prompt);
        Ok(PersonsAnswers::Missing(cut(&prompt)))
    }

    async fn note_sent(&mut self, texts: Vec<String>) -> Result<(), Rejection> {
        if !texts.is_empty() {
            self.mark(&ToolMark::Sent(texts.clone())).await?;
            self.prior.sent.extend(texts);
        }
        Ok(())
    }

    /// The task as it is now.
    async fn look(&self, task: &str) -> Result<ToolTask, ToolFault> {
        match with_patience(|| self.client.task(task)).await {
            Ok(task) => Ok(task),
            Err(error @ ToolError::Refused { code: UNKNOWN, .. }) => {
                Err(ToolFault::TaskGone(error))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reports where the work is, and how it stands there, if that has changed.
    async fn note(&mut self, task: &ToolTask) -> Result<(), Rejection> {
        let remote = RemoteRef {
            native_protocol: "mcp".into(),
            remote_task_id: task.id.as_str().into(),
            remote_agent_ref: Some(self.order.server.as_str().into()),
            delivery_mechanism: Some("polling".into()),
            remote_status: Some(task.state.as_str().into()),
            native_status: Some(task.state.as_str().into()),
            ..RemoteRef::default()
        };
        if self.noted.as_ref() != Some(&remote) {
            self.ctx.delegate(remote.clone()).await?;
            self.noted = Some(remote);
        }
        Ok(())
    }

    /// Reports what the server says of its task, not too often.
    async fn say(&mut self, message: Option<&str>) -> Result<(), Rejection> {
        let Some(message) = message.filter(|it| !it.is_empty()) else { return Ok(()) };
        let is_new = match &self.said {
            Some((said, at)) => said != message && at.elapsed() >= SAID_EVERY,
            None => true,
        };
        if is_new {
            let summary = Some(cut(message));
            self.ctx.send_status(Progress { summary, ..Progress::default() }).await?;
            self.said = Some((message.to_owned(), Instant::now()));
        }
        Ok(())
    }
}

/// What tells an answer from others.
fn id_of(reference: &Ref) -> String {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, reference.as_str().as_bytes()).simple().to_string()
}

/// Reports how far a call has come, not too often, and without an end.
async fn tell(ctx: &StepContext, mut told: watch::Receiver<Option<ToolProgress>>) -> Infallible {
    while told.changed().await.is_ok() {
        let now = told.borrow_and_update().clone();
        if let Some(ToolProgress { done, total, message }) = now {
            let percent = total
                .filter(|total| *total > 0.0)
                .map(|total| (100.0 * done / total).clamp(0.0, 100.0));
            let summary = message.as_deref().map(cut);
            let progress = Progress { percent, summary, ..Progress::default() };
            if let Err(refused) = ctx.send_status(progress).await {
                tracing::debug!(%refused, "progress of a tool does not count");
            }
            sleep(SAID_EVERY).await;
        }
    }
    std::future::pending().await
}

/// Repeats a request about a task until there is an answer that stays the same, or the patience is at its end.
async fn with_patience<T, F>(ask: impl Fn() -> F) -> Result<T, ToolError>
where
    F: Future<Output = Result<T, ToolError>>,
{
    let (until, mut pause) = (Instant::now() + PATIENCE, PAUSES.0);
    loop {
        match ask().await {
            Err(error) if error.is_retryable() && Instant::now() < until => {
                tracing::debug!(%error, "a server of tools is asked again");
            }
            answered => return answered,
        }
        sleep(jittered(pause)).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}
