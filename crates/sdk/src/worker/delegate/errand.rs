//! The way of one Attempt: begin or find the task of the agent, follow it, answer it, cancel it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_a2a::{
    A2aMessage, A2aReply, A2aSend, A2aTask, A2aTaskStatus, A2aUpdate, has_ended, is_interrupted,
    is_settled, state_to_wire,
};
use tenure_core::Rejection;
use tenure_core::record::{Progress, RemoteRef};
use tenure_core::view::gateway::A2aState;
use tokio::time::{Instant, sleep_until, timeout};

use super::DelegationSettings;
use super::input::{Delegation, PersonsAnswer, StepIds, answers};
use super::mark::{PriorWork, WorkMark};
use crate::a2a::follow::with_patience;
use crate::a2a::{PeerClient, PeerError, PeerFollower, PeerReason, PeerSettings};
use crate::worker::context::StepContext;
use crate::worker::words::cut;

/// How many answers go into one message.
const ANSWERS_MAX: usize = 32;

/// The longest id of a task of an agent.
const ID_MAX: usize = 1_024;

/// How often what an agent says while it works is reported at most.
const SAID_EVERY: Duration = Duration::from_secs(1);

/// How often it is reported at once how the work stands. After that it is reported, while the work goes on, as what an
/// agent says.
const NOTED_AT_ONCE: u32 = 10;

/// How long a cancellation may take.
const CANCEL_MAX: Duration = Duration::from_secs(8);

/// How much of the history of a task is asked for.
const HISTORY: u32 = 100;

/// How the work of an agent ends for now.
pub(super) enum ErrandEnd {
    /// The agent has answered with a message, and made no task.
    Message(A2aMessage),
    /// The agent asks for something.
    Asks(A2aTaskStatus),
    /// The task of the agent has ended.
    Ended(A2aTask),
}

/// Why there is no end.
#[derive(Debug, thiserror::Error)]
pub(super) enum ErrandError {
    /// The agent.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// The scheduler takes no report.
    #[error(transparent)]
    Local(#[from] Rejection),
}

/// The work of one Attempt.
pub(super) struct Errand {
    pub(super) ctx: StepContext,
    pub(super) work: PriorWork,
    /// What was reported of the task of the agent last.
    pub(super) noted: Option<RemoteRef>,
    /// How often that was, and when it was last.
    notes: (u32, Option<Instant>),
    pub(super) ids: StepIds,
    input: Delegation,
    /// The token that the Step itself names. Only the host of the card gets it.
    token: Option<String>,
    settings: Arc<DelegationSettings>,
    client: Option<PeerClient>,
    said: Option<(String, Instant)>,
}

impl Errand {
    pub(super) fn new(
        ctx: StepContext,
        (input, token): (Delegation, Option<String>),
        settings: Arc<DelegationSettings>,
    ) -> Self {
        let (work, ids) = (PriorWork::of(ctx.checkpoint_refs()), StepIds::of(&ctx));
        let (noted, notes, client, said) = Default::default();
        Self { ctx, work, noted, notes, ids, input, token, settings, client, said }
    }

    /// Works until the task of the agent has ended, or asks for what is not here.
    pub(super) async fn run(&mut self) -> Result<ErrandEnd, ErrandError> {
        let client = self.connect().await?;
        self.client = Some(client.clone());
        let mut task = match self.begin(&client).await? {
            A2aReply::Task(task) => task,
            A2aReply::Message(message) => return Ok(ErrandEnd::Message(message)),
        };
        let mut follower = PeerFollower::new(client.clone(), &*task.id);
        let mut answered: Option<A2aTaskStatus> = None;
        loop {
            self.note(&client, &task).await?;
            if has_ended(task.status.state) {
                return Ok(ErrandEnd::Ended(task));
            }
            // The agent may show its question for a while after it got the answer.
            if is_interrupted(task.status.state) && answered.as_ref() != Some(&task.status) {
                if !self.answer(&client, &task).await? {
                    return Ok(ErrandEnd::Asks(task.status));
                }
                answered = Some(task.status.clone());
            }
            task = self.next(&mut follower, task).await?;
        }
    }

    /// Passes a cancellation on. A worker that leaves cancels nothing: another one goes on with the task.
    pub(super) async fn stop(&mut self) {
        let Some(left) = self.ctx.time_left() else { return };
        match timeout(left.min(CANCEL_MAX), self.cancel()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "an agent was not told of a cancellation"),
            Err(_) => tracing::warn!("an agent does not answer to a cancellation"),
        }
    }

    async fn cancel(&mut self) -> Result<(), ErrandError> {
        let client = match self.client.clone() {
            Some(client) => client,
            None => self.connect_once().await?,
        };
        let known = match self.work.task.clone() {
            Some(task) => Some(task),
            None => came(&client, &self.input.first(&self.ids, self.work.round).message)
                .await?
                .map(|task| task.id),
        };
        if let Some(task) = known {
            let canceled = client.cancel(&task).await?;
            self.note(&client, &canceled).await?;
        }
        Ok(())
    }

    async fn connect(&self) -> Result<PeerClient, PeerError> {
        with_patience(|| self.connect_once()).await
    }

    async fn connect_once(&self) -> Result<PeerClient, PeerError> {
        let Delegation { card, version, .. } = &self.input;
        let mut settings = PeerSettings {
            version: *version,
            ca: self.settings.ca.clone(),
            tokens: self.settings.tokens.clone(),
            ..PeerSettings::new(card)
        };
        let host = settings.host()?;
        let hosts = self.settings.hosts.clone();
        if hosts.as_ref().is_some_and(|all| !all.iter().any(|it| it.eq_ignore_ascii_case(&host))) {
            return Err(PeerError::Host(host));
        }
        if let Some(token) = &self.token {
            // Whoever made the Step has said where it goes, with TLS or without: no other token counts there.
            settings
                .tokens
                .retain(|at, _| PeerSettings::new(at).host().ok().as_ref() != Some(&host));
            for key in [format!("http://{host}"), host] {
                settings.tokens.insert(key, token.clone());
            }
        }
        PeerClient::connect(&PeerSettings { hosts: hosts.unwrap_or_default(), ..settings }).await
    }

    /// The task of the agent: that of an earlier Attempt, or a new one, which a checkpoint names before anything
    /// else happens.
    async fn begin(&mut self, client: &PeerClient) -> Result<A2aReply, ErrandError> {
        if let Some(task) = &self.work.task {
            let task = with_patience(|| client.get(task, Some(HISTORY))).await?;
            return Ok(A2aReply::Task(task));
        }
        let asked = self.input.first(&self.ids, self.work.round);
        let reply = deliver(client, &asked, self.ctx.attempt() == 1).await?;
        if let A2aReply::Task(task) = &reply {
            if task.id.is_empty() || task.id.len() > ID_MAX {
                let why = format!("the id of a task has 1 to {ID_MAX} bytes");
                return Err(self.malformed(why).into());
            }
            self.mark(&WorkMark::Begun { round: self.work.round, task: task.id.clone() }).await?;
            self.work.task = Some(task.id.clone());
        }
        Ok(reply)
    }

    fn malformed(&self, why: String) -> PeerError {
        let client = self.client.as_ref();
        let address = client.map_or(&self.input.card, |client| &client.card().interface.url);
        PeerError::Malformed { address: address.clone(), why }
    }

    /// The task after what happens to it next.
    async fn next(
        &mut self,
        follower: &mut PeerFollower,
        mut task: A2aTask,
    ) -> Result<A2aTask, ErrandError> {
        loop {
            match follower.next().await? {
                A2aUpdate::Task(other) if other.id != task.id => {
                    let why = "it tells of another task than the one that is followed".into();
                    return Err(self.malformed(why).into());
                }
                A2aUpdate::Task(task) => return Ok(task),
                // An end comes with everything that the agent has made.
                A2aUpdate::StatusUpdate(update) if is_settled(update.status.state) => {
                    return Ok(follower.task().await?);
                }
                A2aUpdate::StatusUpdate(update) => {
                    self.tell(&update.status).await?;
                    task.status = update.status;
                    return Ok(task);
                }
                A2aUpdate::ArtifactUpdate(_) | A2aUpdate::Message(_) => {}
            }
        }
    }

    /// Sends the answers that the agent does not have yet. `false`: there are none.
    async fn answer(&mut self, client: &PeerClient, task: &A2aTask) -> Result<bool, ErrandError> {
        let given = answers(self.ctx.input_refs(), &self.ids);
        let open =
            given.into_iter().filter(|it| !self.work.sent.contains(&it.id)).take(ANSWERS_MAX);
        let open: Vec<PersonsAnswer> = open.collect();
        if open.is_empty() {
            return Ok(false);
        }
        let asked = self.input.answering(&self.ids, &task.id, &task.context_id, &open);
        match deliver(client, &asked, false).await {
            Ok(_) => {}
            // The task has gone on meanwhile; what comes of that is seen next.
            Err(error) if error.reason() == Some(PeerReason::Unsupported) => {}
            Err(error) => return Err(error.into()),
        }
        let sent: Vec<String> = open.into_iter().map(|it| it.id).collect();
        self.mark(&WorkMark::Sent(sent.clone())).await?;
        self.work.sent.extend(sent);
        Ok(true)
    }

    pub(super) async fn mark(&self, mark: &WorkMark) -> Result<(), Rejection> {
        self.ctx.checkpoint(&mark.to_text()).await
    }

    /// A2A-02: reports where the work is, and how it stands there, if that has changed.
    async fn note(&mut self, client: &PeerClient, task: &A2aTask) -> Result<(), Rejection> {
        let card = client.card();
        let mechanism = if card.streams { "streaming" } else { "polling" };
        let remote = RemoteRef {
            native_protocol: "a2a".into(),
            remote_task_id: task.id.as_str().into(),
            remote_context_id: Some(task.context_id.as_str().into())
                .filter(|_| !task.context_id.is_empty()),
            remote_agent_ref: Some(card.interface.url.as_str().into()),
            agent_card_ref: Some(card.url.as_str().into()),
            delivery_mechanism: Some(mechanism.into()),
            remote_status: Some(task.status.state.as_str().into()),
            native_status: Some(state_to_wire(task.status.state).into()),
            ..RemoteRef::default()
        };
        if self.noted.as_ref() != Some(&remote) {
            if let Some(at) = noted_from(self.notes, task.status.state) {
                sleep_until(at).await;
            }
            self.ctx.delegate(remote.clone()).await?;
            self.noted = Some(remote);
            self.notes = (self.notes.0.saturating_add(1), Some(Instant::now()));
        }
        Ok(())
    }

    /// Reports what the agent says while it works, not too often.
    async fn tell(&mut self, status: &A2aTaskStatus) -> Result<(), Rejection> {
        let text = status.message.as_ref().map(A2aMessage::text).unwrap_or_default();
        let is_new = match &self.said {
            Some((said, at)) => *said != text && at.elapsed() >= SAID_EVERY,
            None => true,
        };
        if is_new && !text.is_empty() {
            let summary = Some(cut(&text));
            self.ctx.send_status(Progress { summary, ..Progress::default() }).await?;
            self.said = Some((text, Instant::now()));
        }
        Ok(())
    }
}

/// From when on this state may be reported, after so many reports and the last one: none, if it may be at once.
fn noted_from((count, last): (u32, Option<Instant>), state: A2aState) -> Option<Instant> {
    let is_often = count >= NOTED_AT_ONCE && !is_settled(state);
    last.filter(|_| is_often).map(|last| last + SAID_EVERY)
}

/// Sends a message until there is an answer. One that may have come already is looked for before it is sent.
async fn deliver(
    client: &PeerClient,
    asked: &A2aSend,
    is_first: bool,
) -> Result<A2aReply, PeerError> {
    let may_have_come = AtomicBool::new(!is_first);
    let may_have_come = &may_have_come;
    with_patience(|| async move {
        if may_have_come.swap(true, Ordering::Relaxed)
            && let Some(task) = came(client, &asked.message).await?
        {
            return Ok(A2aReply::Task(task));
        }
        client.send(asked).await
    })
    .await
}

/// The task to which a message has come, if it has.
async fn came(client: &PeerClient, message: &A2aMessage) -> Result<Option<A2aTask>, PeerError> {
    match (message.task(), message.context()) {
        (Some(task), _) => {
            let task = client.get(task, Some(HISTORY)).await?;
            let has_it = task.history.iter().any(|said| said.message_id == message.message_id);
            Ok(has_it.then_some(task))
        }
        (None, Some(context)) => client.find(context, &message.message_id).await,
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent that goes to and fro writes no more than a line a second into the log, and its end is told at once.
    #[test]
    fn what_changes_all_the_time_is_noted_in_measure() {
        let now = Instant::now();
        let from = |count, state| noted_from((count, Some(now)), state);
        assert_eq!(noted_from((0, None), A2aState::Working), None);
        assert_eq!(from(NOTED_AT_ONCE - 1, A2aState::Working), None);
        assert_eq!(from(NOTED_AT_ONCE, A2aState::Submitted), Some(now + SAID_EVERY));
        assert_eq!(from(NOTED_AT_ONCE, A2aState::Completed), None);
        assert_eq!(from(NOTED_AT_ONCE, A2aState::InputRequired), None);
    }
}
