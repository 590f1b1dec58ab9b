//! [`ServedSessions`]: what is asked of a session, and what is done to it.

use std::sync::Arc;

use tenure_core::id::TaskId;
use tenure_core::status::Role;
use tenure_core::{Code, Command, Rejection};
use tenure_macp::pb::{Ack, Envelope};
use tenure_macp::{
    MacpAccepted, MacpCode, MacpDecision, MacpEffect, MacpRecord, MacpRefusal, MacpSession,
    MacpSteer, acknowledge, acknowledge_steer, is_session_id,
};
use tenure_ports::ClientPort;
use tenure_ports::client::LogPage;
use tenure_sdk::client::Client;
use tenure_wire::bus::subject::Token;

use super::cached::{CachedSession, UsedSession};
use super::caller::MacpCaller;
use super::marks::SessionMark;
use super::status::{MacpFault, MacpResult};
use super::{MacpSettings, effects, facts, now_ms};
use crate::identity::{Allowed, Identity};
use crate::{Backend, Gateway};

/// As whom the gateway writes what senders have sent. The records name the senders.
const PRINCIPAL: &str = "macp";

/// How often a message is judged again, as others have changed the Task meanwhile.
const TRIES_MAX: usize = 64;

/// Asks for no commits, only for the Task's status and version.
const NO_COMMITS: u64 = u64::MAX;

/// The sessions of a gateway, for one request.
pub(super) struct ServedSessions<B: Backend> {
    pub(super) gateway: Arc<Gateway<B>>,
    pub(super) settings: Arc<MacpSettings>,
    pub(super) client: Client<B::Client>,
}

impl<B: Backend> ServedSessions<B> {
    /// The way to the sessions.
    ///
    /// # Errors
    /// There is no way to the scheduler now.
    pub(super) async fn open(
        gateway: Arc<Gateway<B>>,
        settings: Arc<MacpSettings>,
    ) -> MacpResult<Self> {
        let who = Identity {
            principal: Token::new(PRINCIPAL).map_err(Rejection::from)?,
            role: Role::Orchestrator,
            sessions: Allowed::Only(vec![settings.session.clone()]),
            pools: Allowed::Only(Vec::new()),
        };
        let client = gateway.backend.client(&who, &settings.session).await?;
        Ok(Self { gateway, settings, client })
    }

    /// Takes a message of a session that was started.
    ///
    /// # Errors
    /// It is refused, or cannot be carried out now.
    pub(super) async fn send(&self, envelope: &Envelope) -> MacpResult<Ack> {
        let id = &envelope.session_id;
        let known = self.known(id)?;
        let mut kept = known.lock().await;
        // What this gateway has read last may be all there is: then the Task takes the record, and nothing has to be
        // read. Whatever else the session answers, it answers by what the Task says now.
        if let Some(accepted) = kept.accepts(envelope, now_ms()) {
            match self.accept(&mut kept, accepted, envelope).await {
                Ok(Some(ack)) => return Ok(ack),
                // The session may have ended at another gateway, so the records that are kept of it decide.
                Ok(None) | Err(MacpFault::Refused(_)) => kept.is_cut_off = false,
                Err(trouble) => return Err(trouble),
            }
        }
        for _ in 0..TRIES_MAX {
            self.catch_up(&mut kept).await?;
            let session = kept.session.as_ref().ok_or_else(|| not_found(id))?;
            let now = now_ms();
            match session.decide(envelope, now)? {
                MacpDecision::Duplicate(state) => {
                    let state = kept.shown().map_or(state, |shown| shown.state());
                    return Ok(acknowledge(envelope, state, true, now));
                }
                MacpDecision::Expire { record, refusal } => {
                    if self.keep(&mut kept, *record, None).await? {
                        return Err(refusal.into());
                    }
                }
                MacpDecision::Accept(accepted) => {
                    if let Some(ack) = self.accept(&mut kept, *accepted, envelope).await? {
                        return Ok(ack);
                    }
                }
            }
        }
        Err(contended())
    }

    /// Keeps a message that is accepted. None: the Task has changed meanwhile.
    async fn accept(
        &self,
        kept: &mut CachedSession,
        accepted: MacpAccepted,
        envelope: &Envelope,
    ) -> MacpResult<Option<Ack>> {
        let MacpAccepted { record, effect, state } = accepted;
        let now = record.accepted_at_ms;
        let is_kept = self.keep(kept, record, Some(&effect)).await?;
        Ok(is_kept.then(|| acknowledge(envelope, state, false, now)))
    }

    /// Does something to a session as a whole.
    ///
    /// # Errors
    /// There is no such session, the caller may not, or it cannot be carried out now.
    pub(super) async fn steer(
        &self,
        steer: MacpSteer,
        session_id: &str,
        reason: &str,
        caller: &MacpCaller,
    ) -> MacpResult<Ack> {
        let known = self.known(session_id)?;
        let mut kept = known.lock().await;
        for _ in 0..TRIES_MAX {
            self.catch_up(&mut kept).await?;
            let now = now_ms();
            let is_cut_off = kept.is_cut_off;
            let session = if is_cut_off { kept.shown() } else { kept.session.clone() };
            let session = session.ok_or_else(|| not_found(session_id))?;
            let steered = session.steer(steer, &caller.name, reason, now)?;
            let is_kept = match steered.record {
                Some(record) => match self.keep(&mut kept, record, None).await {
                    Err(_) if kept.is_cut_off && !is_cut_off => false, // It is judged again as what it is.
                    kept => kept?,
                },
                None => true,
            };
            if is_kept {
                return Ok(acknowledge_steer(session_id, &steered.answer, now));
            }
        }
        Err(contended())
    }

    /// The session as it stands, for one who may read it.
    ///
    /// # Errors
    /// There is none, or the caller is no member of it.
    pub(super) async fn readable(
        &self,
        session_id: &str,
        caller: &MacpCaller,
    ) -> MacpResult<MacpSession> {
        let session = self.shown(session_id).await?.ok_or_else(|| not_found(session_id))?;
        if caller.may_read(&session) {
            return Ok(session);
        }
        let message = "only the members of a session may read it";
        Err(MacpRefusal::new(MacpCode::Forbidden, message).into())
    }

    /// The place of the log behind which all messages of a session are but the first `after`, as far as it is known.
    ///
    /// # Errors
    /// There is no such session.
    pub(super) async fn mark_before(
        &self,
        session_id: &str,
        after: u64,
    ) -> MacpResult<SessionMark> {
        let known = self.known(session_id)?;
        let kept = known.lock().await;
        Ok(kept.marks.before(after))
    }

    /// The session as it stands, if there is one.
    ///
    /// # Errors
    /// It cannot be read now.
    pub(super) async fn shown(&self, session_id: &str) -> MacpResult<Option<MacpSession>> {
        if !is_session_id(session_id) {
            return Ok(None);
        }
        let known = self.known(session_id)?;
        let mut kept = known.lock().await;
        self.look(&mut kept).await?;
        Ok(kept.shown())
    }

    /// The session as it stands, for a list or a watcher, if there is one that the caller may read. No other session
    /// leaves memory for it, and nothing is read of one there that has ended, or that is none of the caller's.
    ///
    /// # Errors
    /// It cannot be read now.
    pub(super) async fn listed(
        &self,
        session_id: &str,
        caller: &MacpCaller,
    ) -> MacpResult<Option<MacpSession>> {
        if !is_session_id(session_id) {
            return Ok(None);
        }
        let mut known = self.known(session_id)?;
        known.pushes_out = false;
        let mut kept = known.lock().await;
        if kept.session.as_ref().is_none_or(|it| caller.may_read(it) && !it.has_ended()) {
            self.look(&mut kept).await?;
        }
        Ok(kept.shown().filter(|session| caller.may_read(session)))
    }

    /// Reads what was kept meanwhile, and whether the Task has ended.
    async fn look(&self, kept: &mut CachedSession) -> MacpResult<()> {
        self.read_on(kept).await?;
        let goes_on =
            |kept: &CachedSession| kept.session.as_ref().is_some_and(|it| !it.has_ended());
        if goes_on(kept) && self.has_ended(&kept.task).await? {
            self.read_on(kept).await?; // Another gateway may have kept its end just before.
            kept.is_cut_off = goes_on(kept);
        }
        Ok(())
    }

    /// Ends a session whose time is over, and carries out what nobody has.
    ///
    /// # Errors
    /// It cannot be done now.
    pub(super) async fn look_after(&self, session_id: &str) -> MacpResult<()> {
        let known = self.known(session_id)?;
        let mut kept = known.lock().await;
        kept.due = None; // The session was due now. If it goes on, its next time is noted.
        for _ in 0..TRIES_MAX {
            self.catch_up(&mut kept).await?;
            let over = kept.session.as_ref().and_then(|session| session.expire(now_ms()));
            let Some(record) = over else { return Ok(()) };
            if self.keep(&mut kept, record, None).await? {
                return Ok(());
            }
        }
        Err(contended())
    }

    /// What is known of a session with an id that may be one.
    pub(super) fn known(&self, session_id: &str) -> MacpResult<UsedSession<'_>> {
        if !is_session_id(session_id) {
            return Err(not_found(session_id).into());
        }
        Ok(self.gateway.macp.of(&self.settings.session, session_id))
    }

    /// Reads what was kept meanwhile, and carries out what perhaps nobody has.
    pub(super) async fn catch_up(&self, kept: &mut CachedSession) -> MacpResult<()> {
        self.read_on(kept).await?;
        self.carry_out(kept).await?;
        self.tell_pool_work(kept).await
    }

    /// Reads what was kept meanwhile.
    pub(super) async fn read_on(&self, kept: &mut CachedSession) -> MacpResult<()> {
        kept.is_behind = true;
        loop {
            let page = facts::read(&self.client, &kept.task, kept.through).await?;
            let Some(page) = page else {
                kept.version = None;
                return Ok(());
            };
            for (place, record) in page.records {
                kept.take(record)?;
                kept.through = place;
            }
            if !page.more {
                kept.note_version(page.version);
                kept.is_behind = false;
                self.gateway.macp.note_due(kept);
                return Ok(());
            }
        }
    }

    /// Keeps a record, and carries it out. False: the Task has changed meanwhile.
    pub(super) async fn keep(
        &self,
        kept: &mut CachedSession,
        record: MacpRecord,
        effect: Option<&MacpEffect>,
    ) -> MacpResult<bool> {
        let then = match &kept.session {
            Some(session) => effects::commands(session, &record, effect)?,
            None => Vec::new(),
        };
        let record = MacpRecord { carried_out: !then.is_empty(), ..record };
        match self.keep_with(kept, record.clone(), then).await {
            // Somebody steers the Task beside the session, and it refuses the commands. The message counts all the
            // same.
            Err(MacpFault::Trouble(refused)) if record.carried_out && is_final(&refused) => {
                let record = MacpRecord { carried_out: false, ..record };
                self.keep_with(kept, record, Vec::new()).await
            }
            kept => kept,
        }
    }

    /// Keeps a record with these commands, or carries out what it means afterwards.
    async fn keep_with(
        &self,
        kept: &mut CachedSession,
        record: MacpRecord,
        then: Vec<Command>,
    ) -> MacpResult<bool> {
        let Some(version) = kept.version else { return Ok(false) };
        let written = facts::keep(&self.client, &kept.task, version, &record, then).await;
        let Ok(Some(version)) = written else {
            kept.is_behind = true;
            return match written {
                Ok(_) => Ok(false),
                Err(MacpFault::Trouble(refused)) if has_ended(&refused) => {
                    kept.is_cut_off = true;
                    let message = "the task of the session has been ended";
                    Err(MacpRefusal::new(MacpCode::SessionNotOpen, message).into())
                }
                Err(fault) => Err(fault),
            };
        };
        self.take(kept, record, version)?;
        self.carry_out(kept).await?;
        Ok(true)
    }

    /// Takes a record that is kept, at the version that the Task has with it.
    pub(super) fn take(
        &self,
        kept: &mut CachedSession,
        record: MacpRecord,
        version: u64,
    ) -> MacpResult<()> {
        kept.take(record)?;
        kept.note_version(version);
        self.gateway.macp.note_due(kept);
        Ok(())
    }

    /// Whether the Task has ended, or is ending.
    async fn has_ended(&self, task: &TaskId) -> MacpResult<bool> {
        let page: LogPage = self.client.port().log(task, NO_COMMITS).await?;
        Ok(page.status.is_terminal())
    }
}

/// Whether a refusal says that the Task has ended, or is ending.
fn has_ended(refused: &Rejection) -> bool {
    matches!(refused.code, Code::TaskTerminal | Code::TaskCancelling)
}

pub(super) fn not_found(session_id: &str) -> MacpRefusal {
    let short: String = session_id.chars().take(128).collect();
    MacpRefusal::new(MacpCode::SessionNotFound, format!("there is no session {short:?}"))
}

pub(super) fn contended() -> MacpFault {
    MacpFault::Trouble(Rejection::new(Code::Unavailable, "others change the session all the time"))
}

/// Whether a refusal will be the same the next time.
pub(super) fn is_final(refused: &Rejection) -> bool {
    !matches!(
        refused.code,
        Code::Unavailable | Code::NotOwner | Code::StorageError | Code::StorageUnavailable
    )
}
