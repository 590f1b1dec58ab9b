//! `SendMessage`: a message begins a task, answers a question, or comes late to a task at work.

use std::time::Duration;

use smol_str::SmolStr;
use tenure_core::command::AppendProgress;
use tenure_core::id::{CommandId, Ref, StepId, TaskId};
use tenure_core::patch::{Operation, ReasonInput};
use tenure_core::status::EdgeKind;
use tenure_core::view::gateway::A2aState;
use tenure_core::{Code, Context, Rejection};
use tenure_sdk::client::put_blob;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::AgentCall;
use super::follow::TaskFollower;
use crate::Backend;
use crate::a2a::agents::AgentAnswers;
use crate::a2a::error::{A2aError, A2aReason};
use crate::a2a::map::{
    NewTask, StoredMessage, TaskFold, is_interrupted, key_of, standard_base64, stored,
};
use crate::a2a::wire::{
    A2aContent, A2aMessage, A2aPart, A2aPushConfig, A2aReply, A2aRole, A2aSend, A2aTask,
};

/// The code of a reopening that brings an answer (A2A-10).
const INPUT_RECEIVED: &str = "input_received";

/// How many characters a context has at most, as it is a label of its Tasks (LABEL-01).
const CONTEXT_CHARS_MAX: usize = 128;

/// How many tasks a message may refer to, and how many bytes they may have made together, about: all of it becomes
/// a part of one input.
const REFERENCES_MAX: usize = 16;
const REFERENCED_BYTES_MAX: usize = 12 << 20;

/// What became of a message.
pub(super) struct DeliveredMessage<P> {
    /// The Task that has it.
    pub(super) task: TaskId,
    /// What is known of the Task.
    pub(super) known: KnownTask<P>,
}

/// What is known of the Task to which a message came.
pub(super) enum KnownTask<P> {
    /// The message has made it. If somebody waits for the answer, the gateway has listened to its commits since before
    /// that.
    New(Option<Box<TaskFollower<P>>>),
    /// It was there, and stood like this before the message.
    Before(Box<TaskFold>),
    /// The same message has made it before.
    Repeated,
}

impl<P> KnownTask<P> {
    /// How it stood before the message.
    pub(super) fn fold(self) -> Option<TaskFold> {
        match self {
            Self::Before(fold) => Some(*fold),
            Self::New(_) | Self::Repeated => None,
        }
    }
}

impl<B: Backend> AgentCall<B> {
    /// Takes a message, and answers when its task has ended or asks for something, or at once if the caller
    /// wants that. When the longest wait is over, it answers with the task as it is.
    ///
    /// # Errors
    /// The message is not well formed, or its task does not take it.
    pub(crate) async fn send(&self, asked: A2aSend) -> Result<A2aReply, A2aError> {
        let options = asked.configuration.clone().unwrap_or_default();
        let shows_tasks = self.agent.answers == AgentAnswers::Task;
        let waits = !(options.return_immediately && shows_tasks);
        let DeliveredMessage { task, known } = self.deliver(asked, waits).await?;
        let fold = self.answered(&task, known, waits).await?;
        if shows_tasks {
            return Ok(shown(fold, options.history_length));
        }
        self.message_alone(&task, &fold).await.map(A2aReply::Message)
    }

    /// The task with which a message is answered.
    async fn answered(
        &self,
        task: &TaskId,
        known: KnownTask<B::Client>,
        waits: bool,
    ) -> Result<TaskFold, A2aError> {
        let wait = self.gateway.settings.wait_max;
        let known = match known {
            KnownTask::New(Some(follower)) => match follow(*follower, wait).await? {
                Some(fold) => return self.whole(task, fold).await,
                None => return self.reader().load(task).await, // Nothing was heard of it.
            },
            known => known.fold(),
        };
        let fold = self.reader().read_on(task, known).await?;
        if waits { self.settle(task.clone(), fold, wait).await } else { Ok(fold) }
    }

    /// Waits until a task has ended or asks for something, at most so long.
    pub(super) async fn settle(
        &self,
        task: TaskId,
        fold: TaskFold,
        wait: Duration,
    ) -> Result<TaskFold, A2aError> {
        if fold.is_settled() {
            return Ok(fold);
        }
        let follower = TaskFollower::behind(self.reader(), task.clone(), fold);
        let fold = follow(follower, wait).await?.ok_or_else(too_slow)?;
        self.whole(&task, fold).await
    }

    /// The task with all that is shown of it: little was kept while it was followed.
    async fn whole(&self, task: &TaskId, fold: TaskFold) -> Result<TaskFold, A2aError> {
        if fold.is_cut() { self.reader().load(task).await } else { Ok(fold) }
    }

    /// Brings a message to the Task that it is for. `waits`: somebody waits until a new Task has an answer.
    pub(super) async fn deliver(
        &self,
        mut asked: A2aSend,
        waits: bool,
    ) -> Result<DeliveredMessage<B::Client>, A2aError> {
        check(&asked.message)?;
        unify_bytes(&mut asked.message.parts)?;
        let push = asked.configuration.as_ref();
        let push = push.and_then(|options| options.task_push_notification_config.clone());
        let push = push.map(|config| self.checked(config)).transpose()?;
        let _place = push.as_ref().map(|_| self.place_for_courier()).transpose()?;
        let delivered = match asked.message.task().map(str::to_owned) {
            Some(id) => self.follow_up(&id, asked.message, push.as_ref()).await?,
            None => self.begin(asked, waits).await?,
        };
        if let Some(config) = push {
            let since = match &delivered.known {
                KnownTask::Before(fold) => fold.version(),
                KnownTask::New(_) | KnownTask::Repeated => 0,
            };
            self.keep_inline(&delivered.task, since, config).await?;
        }
        Ok(delivered)
    }

    /// Keeps a configuration that came with a message. A task that is being canceled meanwhile takes none, and its
    /// courier sends what there is all the same.
    async fn keep_inline(
        &self,
        task: &TaskId,
        since: u64,
        config: A2aPushConfig,
    ) -> Result<(), A2aError> {
        match self.keep_push(task, since, config).await {
            Err(error) if error.reason == A2aReason::UnsupportedOperation => Ok(()),
            kept => kept.map(drop),
        }
    }

    /// A2A-05: a message without a task begins one.
    async fn begin(
        &self,
        asked: A2aSend,
        waits: bool,
    ) -> Result<DeliveredMessage<B::Client>, A2aError> {
        let A2aSend { mut message, configuration, metadata } = asked;
        let key = message.context().map(|context| self.key(context, &message.message_id));
        message.context_id.get_or_insert_with(String::new);
        if message.context().is_none() {
            message.context_id = Some(Uuid::now_v7().to_string());
        }
        let task = match &key {
            Some(key) => TaskId::of_key(&self.agent.session, key),
            None => TaskId::new(Uuid::now_v7().to_string()).map_err(Rejection::from)?,
        };
        let referenced_tasks = self.referenced(&message).await?;
        let referenced: Vec<String> = referenced_tasks.iter().map(|it| it.id.clone()).collect();
        let new = NewTask {
            agent: &self.agent,
            caller: self.caller(),
            message,
            accepted_output_modes: configuration.unwrap_or_default().accepted_output_modes,
            metadata,
            referenced_tasks,
            task_id: task.clone(),
            idempotency_key: key,
        };
        let command = CommandId::new(Uuid::now_v7().to_string()).map_err(Rejection::from)?;
        let new = new.into_create()?;
        let follower = waits.then(|| Box::new(TaskFollower::of_new(self.reader(), task.clone())));
        let made = self.client.create_under(Context::new(command), new).await?;
        self.relate(&task, &referenced).await?;
        let is_new = made.spec_version.is_some(); // A repetition does not have it.
        let known = if is_new { KnownTask::New(follower) } else { KnownTask::Repeated };
        Ok(DeliveredMessage { task, known })
    }

    fn key(&self, context: &str, message_id: &str) -> SmolStr {
        key_of(&self.agent.name, self.caller(), context, message_id)
    }

    /// A2A-12: the tasks that a message refers to, with what they have made.
    async fn referenced(&self, message: &A2aMessage) -> Result<Vec<A2aTask>, A2aError> {
        let (mut all, mut bytes) = (Vec::new(), 0);
        for id in &message.reference_task_ids {
            let (_, fold) = self.find(id).await?;
            let task = fold.into_shown().with_history(Some(0));
            bytes += task.weight();
            if bytes > REFERENCED_BYTES_MAX {
                let message = "what these tasks have made is too large for a message";
                return Err(A2aError::invalid("message.referenceTaskIds", message));
            }
            all.push(task);
        }
        Ok(all)
    }

    /// A2A-12: relates a draft to the tasks that its message refers to, and lets it begin.
    async fn relate(&self, task: &TaskId, referenced: &[String]) -> Result<(), A2aError> {
        if referenced.is_empty() {
            return Ok(());
        }
        for id in referenced {
            let to = Ref::new(id).map_err(Rejection::from)?;
            match self.client.link(task, EdgeKind::SourceTask, to).await {
                Err(refused) if refused.code == Code::TaskTerminal => {} // It was begun before.
                linked => drop(linked?),
            }
        }
        match self.client.submit(task).await {
            Ok(_) => Ok(()),
            Err(refused)
                if matches!(refused.code, Code::InvalidTransition | Code::TaskTerminal) =>
            {
                Ok(()) // It was begun before.
            }
            Err(refused) => Err(refused.into()),
        }
    }

    /// A2A-06: a message with a task goes on with it.
    async fn follow_up(
        &self,
        id: &str,
        mut message: A2aMessage,
        push: Option<&A2aPushConfig>,
    ) -> Result<DeliveredMessage<B::Client>, A2aError> {
        let (task, fold) = self.find(id).await?;
        let context = &fold.shown().context_id;
        if message.context().is_some_and(|named| named != context) {
            return Err(A2aError::invalid("contextId", "the task belongs to another context"));
        }
        if fold.has_ended() {
            // A2A-12, A2A-13: a new message may refer to it.
            let message =
                "the task has ended: begin another one, and name this in referenceTaskIds";
            return Err(A2aError::new(A2aReason::UnsupportedOperation, message));
        }
        if let Some(config) = push {
            self.check_room(&task, &config.id).await?; // Before the message does anything.
        }
        message.context_id = Some(context.clone());
        message.task_id = Some(id.to_owned());
        let reference = self.keep(&task, &message).await?;
        let asks = is_interrupted(fold.shown().status.state);
        match fold.asking().into_iter().next().filter(|_| asks) {
            // A2A-10, A2A-11: of two answers to one question the second is refused, also if the agent has asked
            // another question meanwhile.
            Some(step) => {
                let client = self.client.expecting_spec(fold.spec_version());
                client.update(&task, vec![answer(step, reference)]).await?;
            }
            // A2A-21: nobody has asked, and nothing is interrupted.
            None => {
                let late = AppendProgress { input_refs: vec![reference], ..Default::default() };
                self.client.note(&task, late).await?;
            }
        }
        Ok(DeliveredMessage { task, known: KnownTask::Before(Box::new(fold)) })
    }

    /// Keeps a message with its Task, and returns where it is.
    async fn keep(&self, task: &TaskId, message: &A2aMessage) -> Result<Ref, A2aError> {
        match stored(message) {
            StoredMessage::Inline(reference) => Ok(reference),
            StoredMessage::Large(bytes) => {
                let blob = put_blob(self.client.port(), task, &bytes).await?;
                Ok(blob.reference())
            }
        }
    }

    /// A2A-19: the answer of an agent whose callers see no tasks.
    async fn message_alone(&self, task: &TaskId, fold: &TaskFold) -> Result<A2aMessage, A2aError> {
        let shown = fold.shown();
        let parts = match shown.status.state {
            A2aState::Completed => said_or_made(fold),
            A2aState::InputRequired | A2aState::AuthRequired => {
                // The caller answers with a message of its own, so nobody answers this Step.
                match self.client.cancel(task, "the question was sent to the caller").await {
                    // The same message came twice.
                    Err(refused)
                        if matches!(refused.code, Code::TaskTerminal | Code::TaskCancelling) => {}
                    cancelled => drop(cancelled?),
                }
                said_or_made(fold)
            }
            // If the agent has asked, the same message came before, and the question was the answer to it.
            A2aState::Canceled => asked_at_last(fold),
            A2aState::Submitted | A2aState::Working => return Err(too_slow()),
            A2aState::Failed | A2aState::Rejected => Vec::new(),
        };
        if parts.is_empty() {
            let said = shown.status.message.as_ref().map(A2aMessage::text);
            let message = said.unwrap_or_else(|| "the agent gave no answer".into());
            return Err(A2aError::new(A2aReason::InvalidAgentResponse, message));
        }
        let id = format!("{task}-reply");
        let answer = A2aMessage::of_agent(id, &shown.context_id, "", parts);
        Ok(A2aMessage { task_id: None, ..answer })
    }
}

/// The last question of the agent that nobody has answered, if there is one.
fn asked_at_last(fold: &TaskFold) -> Vec<A2aPart> {
    let last = fold.shown().history.last().filter(|message| message.role == A2aRole::Agent);
    last.map(|message| message.parts.clone()).unwrap_or_default()
}

/// What the agent has said at last, or else all that it has made.
fn said_or_made(fold: &TaskFold) -> Vec<A2aPart> {
    let shown = fold.shown();
    let said = shown.status.message.as_ref().map(|message| message.parts.clone());
    let made = || shown.artifacts.iter().flat_map(|made| made.parts.clone()).collect();
    said.unwrap_or_else(made)
}

/// The answer that shows a task. A direct answer that came before anybody saw a task stands for it (CTX-01).
fn shown(fold: TaskFold, history: Option<u32>) -> A2aReply {
    match fold.direct() {
        Some(answer) => A2aReply::Message(answer.clone()),
        None => A2aReply::Task(fold.into_shown().with_history(history)),
    }
}

/// Follows a task until it has ended or asks for something, at most so long. None if not even its beginning
/// was read.
async fn follow<P: tenure_ports::ClientPort>(
    mut follower: TaskFollower<P>,
    wait: Duration,
) -> Result<Option<TaskFold>, A2aError> {
    let until = Instant::now() + wait;
    while let Ok(Some(told)) = timeout_at(until, follower.next()).await {
        told?;
        if follower.fold().is_some_and(TaskFold::is_settled) {
            break;
        }
    }
    Ok(follower.into_fold())
}

fn too_slow() -> A2aError {
    A2aError::new(A2aReason::Unavailable, "the agent has not answered in time")
}

/// A2A-10: the answer to the question of a Step.
fn answer(step_id: StepId, reference: Ref) -> Operation {
    let reason = ReasonInput {
        code: Some(INPUT_RECEIVED.into()),
        details: None,
        message: String::new(),
        retryable: None,
    };
    Operation::ReopenStep { input_refs: vec![reference], reason: Some(reason), step_id }
}

/// Refuses a message that is not well formed.
fn check(message: &A2aMessage) -> Result<(), A2aError> {
    let wrong = |field: &str, why: &str| Err(A2aError::invalid(field, why));
    if message.message_id.is_empty() {
        return wrong("message.messageId", "a message needs an id");
    }
    if message.role != A2aRole::User {
        return wrong("message.role", "what comes to an agent is said by ROLE_USER");
    }
    if message.parts.is_empty() {
        return wrong("message.parts", "a message has at least one part");
    }
    if message.context().is_some_and(|id| id.chars().count() > CONTEXT_CHARS_MAX) {
        return wrong("message.contextId", "a context has at most 128 characters");
    }
    if message.reference_task_ids.len() > REFERENCES_MAX {
        return wrong("message.referenceTaskIds", "a message refers to at most 16 tasks");
    }
    Ok(())
}

/// Refuses parts whose bytes are not base64, and writes those of the others as any worker can read them.
fn unify_bytes(parts: &mut [A2aPart]) -> Result<(), A2aError> {
    for (at, part) in parts.iter_mut().enumerate() {
        if let A2aContent::Raw(text) = &mut part.content {
            let field = format!("message.parts[{at}].raw");
            let wrong = || A2aError::invalid(&field, format!("{field} is not base64"));
            *text = standard_base64(text).ok_or_else(wrong)?;
        }
    }
    Ok(())
}
