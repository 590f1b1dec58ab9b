//! `SessionStart`: a draft Task, and its first fact.

use prost::Message as _;
use tenure_core::command::create::CreateTask;
use tenure_core::id::{CommandId, PoolId, TaskId};
use tenure_core::record::Labels;
use tenure_core::status::{Policy, TaskStatus};
use tenure_core::{Code, Rejection};
use tenure_macp::pb::{Ack, Envelope, SessionStartPayload};
use tenure_macp::{
    MacpCode, MacpOpening, MacpRecord, MacpRefusal, MacpSession, SessionState, acknowledge,
    is_session_id, open,
};

use super::cached::{CachedSession, task_of};
use super::effects::{policy, shortened};
use super::serve::{ServedSessions, contended};
use super::status::{MacpFault, MacpResult};
use super::{MACP_POOL, facts, now_ms};
use crate::Backend;

/// The protocol of the Tasks, and the label by which they are found.
pub(super) const PROTOCOL: &str = "macp";
/// The value of that label.
pub(super) const SESSION: &str = "session";
/// The label that names the session of a Task.
pub(super) const SESSION_ID: &str = "macp-session";

/// The command that makes the Task.
const CREATES: &str = "macp:0:create";

/// How an intent begins that names the session that is tried again (MACP-12).
const RETRY: &str = "retry: ";

/// The longest title of a Task, in characters.
const TITLE_CHARS_MAX: usize = 200;

/// How often a start is judged again, as others have changed the Task meanwhile.
const TRIES_MAX: usize = 16;

impl<B: Backend> ServedSessions<B> {
    /// Takes the start of a session.
    ///
    /// # Errors
    /// It is refused, or cannot be carried out now.
    pub(super) async fn start(&self, envelope: &Envelope) -> MacpResult<Ack> {
        let now = now_ms();
        if !is_session_id(&envelope.session_id) {
            open(envelope, None, &self.settings.policies.now(), now)?; // It says what is wrong.
        }
        let known = self.known(&envelope.session_id)?;
        let mut kept = known.lock().await;
        // A session that this gateway has never seen is most likely a new one: if it is, nothing has to be read.
        if kept.is_behind
            && kept.session.is_none()
            && let Ok(MacpOpening::Accept(record)) =
                open(envelope, None, &self.settings.policies.now(), now_ms())
        {
            MacpSession::begin(&record)?;
            match self.begin(&mut kept, envelope, *record).await {
                Ok(true) => return Ok(acknowledge(envelope, SessionState::Open, false, now_ms())),
                Err(MacpFault::Refused(refusal))
                    if refusal.code == MacpCode::RateLimited
                        && !self.gateway.macp.shares.is_open(&envelope.session_id) =>
                {
                    return Err(refusal.into());
                }
                // There is a session, and it may have ended, so the records that are kept of it decide.
                Ok(false) | Err(MacpFault::Refused(_)) => kept.is_cut_off = false,
                Err(trouble) => return Err(trouble),
            }
        }
        for _ in 0..TRIES_MAX {
            self.catch_up(&mut kept).await?;
            let opening =
                open(envelope, kept.session.as_ref(), &self.settings.policies.now(), now_ms())?;
            let record = match opening {
                MacpOpening::Duplicate(state) => {
                    return Ok(acknowledge(envelope, state, true, now_ms()));
                }
                MacpOpening::Accept(record) => *record,
            };
            MacpSession::begin(&record)?; // What cannot be read later is not kept.
            if self.begin(&mut kept, envelope, record).await? {
                return Ok(acknowledge(envelope, SessionState::Open, false, now_ms()));
            }
        }
        Err(contended())
    }

    /// Makes the Task if it is not there, and keeps the start. False: somebody else has done something.
    async fn begin(
        &self,
        kept: &mut CachedSession,
        envelope: &Envelope,
        record: MacpRecord,
    ) -> MacpResult<bool> {
        match kept.version {
            None => self.create(kept, envelope, record).await,
            Some(_) => {
                self.check_draft(&kept.task).await?;
                self.keep(kept, record, None).await
            }
        }
    }

    /// Makes the Task with the start as its first fact. False: somebody else has made it just now.
    async fn create(
        &self,
        kept: &mut CachedSession,
        envelope: &Envelope,
        record: MacpRecord,
    ) -> MacpResult<bool> {
        self.gateway.macp.shares.check_open(&envelope.sender, self.settings.open_max)?;
        let fact = facts::fact(&self.client, &kept.task, &record).await?;
        let input = CreateTask { facts: vec![fact], ..self.task(&kept.task, envelope)? };
        let command_id = CommandId::new(CREATES).map_err(Rejection::from)?;
        match self.client.create_as(command_id, input).await {
            Ok(made) => {
                self.take(kept, record, made.version)?;
                kept.is_behind = false;
                Ok(true)
            }
            Err(refused)
                if matches!(refused.code, Code::TaskIdConflict | Code::IdempotencyConflict) =>
            {
                Ok(false)
            }
            Err(refused) => Err(refused.into()),
        }
    }

    /// A Task that has no start yet must be one that a gateway made, which then died.
    async fn check_draft(&self, task: &TaskId) -> MacpResult<()> {
        let view = self.client.get(task).await?;
        let is_ours = view.native_protocol.as_deref() == Some(PROTOCOL);
        if is_ours && view.task.native_status == TaskStatus::Draft {
            return Ok(());
        }
        let message = "a Task has this id that is no session: choose another session_id";
        Err(MacpRefusal::new(MacpCode::SessionAlreadyExists, message).into())
    }

    fn task(&self, task: &TaskId, envelope: &Envelope) -> MacpResult<CreateTask> {
        // It was read when it was judged.
        let start = SessionStartPayload::decode(envelope.payload.as_slice()).unwrap_or_default();
        let again = start.intent.strip_prefix(RETRY).map(str::trim).filter(|id| is_session_id(id));
        let title = match start.intent.trim() {
            "" => "a session of MACP",
            intent => intent,
        };
        let label = |(name, value): (&str, &str)| (name.into(), value.into());
        let pairs = [(PROTOCOL, SESSION), (SESSION_ID, envelope.session_id.as_str())];
        Ok(CreateTask {
            task_id: Some(task.clone()),
            title: shortened(title, TITLE_CHARS_MAX).into(),
            draft: Some(true),
            dispatch: Some(Policy::Manual),
            completion: Some(Policy::Manual),
            default_worker_pool_id: Some(PoolId::new(MACP_POOL).map_err(Rejection::from)?),
            native_protocol: Some(PROTOCOL.into()),
            labels: pairs.into_iter().map(label).collect::<Labels>(),
            retry_of: again.map(|id| task_of(&self.settings.session, id)),
            retry_policy: Some(policy()),
            ..CreateTask::default()
        })
    }
}
