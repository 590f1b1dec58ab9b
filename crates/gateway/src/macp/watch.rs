//! `WatchSessions` and `WatchSignals`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use futures::stream::BoxStream as Items;
use futures::{StreamExt as _, stream};
use tenure_core::id::TaskId;
use tenure_macp::pb::session_lifecycle_event::EventType;
use tenure_macp::pb::{
    Ack, Envelope, SessionLifecycleEvent, WatchSessionsResponse, WatchSignalsResponse,
};
use tenure_macp::{MacpCode, MacpRefusal, MacpSession, SessionState, acknowledge};
use tenure_ports::ClientPort as _;
use tenure_ports::client::Changed;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until};
use tonic::Status;
use tonic::codegen::BoxStream;

use super::caller::MacpCaller;
use super::now_ms;
use super::serve::{ServedSessions, not_found};
use super::service::ServiceShared;
use super::shares::ReadingTurn;
use super::status::{MacpFault, MacpResult, to_status};
use crate::Backend;
use crate::live::StreamPermit;

/// A hint may get lost: without one the sessions are listed so often.
const LOOK: std::time::Duration = std::time::Duration::from_secs(10);

/// How many Tasks whose ids are not those of their sessions a watcher remembers.
const OTHERS_MAX: usize = 10_000;

/// How many sessions that have ended a watcher remembers, so that it does not tell of them again.
const ENDED_MAX: usize = 10_000;

impl<B: Backend> ServiceShared<B> {
    /// Shows a signal to those who watch at this gateway now. Nobody keeps it.
    ///
    /// # Errors
    /// It names a session of which the sender is no member.
    pub(super) async fn signal(&self, envelope: &Envelope, caller: &MacpCaller) -> MacpResult<Ack> {
        let id = &envelope.session_id;
        if !id.is_empty() {
            let session = self.sessions().await?.shown(id).await?;
            let session = session.ok_or_else(|| not_found(id))?;
            if !session.is_member(&caller.name) {
                let message = "the sender is no member of the session";
                return Err(MacpRefusal::new(MacpCode::Forbidden, message).into());
            }
        }
        let _ = self.gateway.macp.signals.send(Arc::new(envelope.clone())); // Nobody may watch.
        Ok(acknowledge(envelope, SessionState::Open, false, now_ms()))
    }

    /// The signals from now on.
    ///
    /// # Errors
    /// There is no way to the scheduler now.
    pub(super) async fn signals(
        &self,
        caller: MacpCaller,
        permit: StreamPermit,
    ) -> MacpResult<BoxStream<WatchSignalsResponse>> {
        let signals = self.gateway.macp.signals.subscribe();
        let watched = WatchedSignals { sessions: self.sessions().await?, signals, caller };
        let told = stream::unfold((Some(watched), permit), async |(watched, permit)| {
            let mut watched = watched?;
            Some(match watched.next().await {
                Ok(told) => (Ok(told), (Some(watched), permit)),
                Err(status) => (Err(status), (None, permit)),
            })
        });
        Ok(told.boxed())
    }
}

struct WatchedSignals<B: Backend> {
    sessions: ServedSessions<B>,
    signals: broadcast::Receiver<Arc<Envelope>>,
    caller: MacpCaller,
}

impl<B: Backend> WatchedSignals<B> {
    async fn next(&mut self) -> Result<WatchSignalsResponse, Status> {
        loop {
            let envelope = match self.signals.recv().await {
                Ok(envelope) => envelope,
                Err(RecvError::Lagged(_)) => {
                    let message = "signals came faster than they were read";
                    return Err(to_status(&MacpRefusal::new(MacpCode::StreamLagged, message)));
                }
                Err(RecvError::Closed) => return Err(Status::unavailable("the gateway stops")),
            };
            // Progress of a session is for those who may read that.
            let id = &envelope.session_id;
            if !id.is_empty() {
                let _turn = self.sessions.turn_of(&self.caller).await;
                if !matches!(self.sessions.listed(id, &self.caller).await, Ok(Some(_))) {
                    continue;
                }
            }
            let envelope = Some(Envelope::clone(&envelope));
            // A token that is a name proves nothing.
            let sender_authenticated = !self.sessions.settings.trusts_tokens;
            return Ok(WatchSignalsResponse { envelope, sender_authenticated });
        }
    }
}

impl<B: Backend> ServedSessions<B> {
    /// The right of a watcher to read, for which this waits: those of one caller do not all read at a time.
    async fn turn_of(&self, caller: &MacpCaller) -> ReadingTurn {
        self.gateway.macp.shares.turn_of_watcher(&caller.name).await
    }

    /// The sessions that the caller may read, and what happens to them.
    ///
    /// # Errors
    /// They cannot be read now.
    pub(super) async fn watch(
        self,
        caller: MacpCaller,
        permit: StreamPermit,
    ) -> MacpResult<BoxStream<WatchSessionsResponse>> {
        let turn = self.gateway.macp.shares.turn(&caller.name).await?;
        let changes = self.client.port().changes(None).await?;
        let mut watched = WatchedSessions {
            sessions: self,
            caller,
            changes,
            states: HashMap::new(),
            ended: VecDeque::new(),
            others: HashMap::new(),
            told: VecDeque::new(),
            look_at: Instant::now() + LOOK,
            begun_ms: now_ms(),
            _permit: permit,
        };
        watched.look_at_all().await?;
        drop(turn);
        let told = stream::unfold(Some(watched), async |watched| {
            let mut watched = watched?;
            Some(match watched.next().await {
                Ok(event) => (Ok(WatchSessionsResponse { event: Some(event) }), Some(watched)),
                Err(fault) => (Err(fault.into()), None),
            })
        });
        Ok(told.boxed())
    }
}

/// What a watcher knows of the sessions.
struct WatchedSessions<B: Backend> {
    sessions: ServedSessions<B>,
    caller: MacpCaller,
    changes: Items<'static, Changed>,
    /// The states that were told.
    states: HashMap<String, SessionState>,
    /// Those of them that have ended, the oldest first.
    ended: VecDeque<String>,
    /// The sessions of Tasks whose ids do not say it; none: they are no sessions.
    others: HashMap<TaskId, Option<String>>,
    told: VecDeque<SessionLifecycleEvent>,
    look_at: Instant,
    /// When the watcher began, in milliseconds since 1970.
    begun_ms: i64,
    _permit: StreamPermit,
}

impl<B: Backend> WatchedSessions<B> {
    async fn next(&mut self) -> MacpResult<SessionLifecycleEvent> {
        loop {
            if let Some(event) = self.told.pop_front() {
                return Ok(event);
            }
            tokio::select! {
                changed = self.changes.next() => match changed {
                    Some(changed) => {
                        let _turn = self.sessions.turn_of(&self.caller).await;
                        if let Some(id) = self.session_of(&changed.task_id).await? {
                            self.look_at(&id).await?;
                        }
                    }
                    None => {
                        let message = "nothing is heard of the sessions any more";
                        let gone = tenure_core::Rejection::new(tenure_core::Code::Unavailable, message);
                        return Err(MacpFault::Trouble(gone));
                    }
                },
                () = sleep_until(self.look_at) => {
                    let _turn = self.sessions.turn_of(&self.caller).await;
                    self.look_at_all().await?;
                }
            }
        }
    }

    async fn session_of(&mut self, task: &TaskId) -> MacpResult<Option<String>> {
        if let Some(known) = self.others.get(task) {
            return Ok(known.clone());
        }
        let id = self.sessions.id_of(task).await?;
        if super::cached::session_of(task).is_none() && id.is_some() {
            self.others.insert(task.clone(), id.clone());
        }
        if self.others.len() > OTHERS_MAX {
            self.others.clear();
        }
        Ok(id)
    }

    async fn look_at_all(&mut self) -> MacpResult<()> {
        let mut ids = self.sessions.ids(false).await?;
        let goes_on =
            |state: &SessionState| matches!(state, SessionState::Open | SessionState::Suspended);
        let known = self.states.iter().filter(|(_, state)| goes_on(state));
        ids.extend(known.map(|(id, _)| id.clone()));
        for id in ids {
            self.look_at(&id).await?;
        }
        self.look_at = Instant::now() + LOOK;
        Ok(())
    }

    async fn look_at(&mut self, id: &str) -> MacpResult<()> {
        let Some(session) = self.sessions.listed(id, &self.caller).await? else { return Ok(()) };
        let state = session.state();
        let before = self.states.insert(id.to_owned(), state);
        if session.has_ended() && before != Some(state) {
            self.note_ended(id);
        }
        if before.is_none() && session.has_ended() && session.bound().started_at_ms < self.begun_ms
        {
            return Ok(()); // It was over before anybody watched.
        }
        if before.is_none() {
            self.tell(EventType::Created, &session);
        }
        // What had happened before anybody watched is in the session that was told as created.
        let is_new = before.is_none() && session.bound().started_at_ms < self.begun_ms;
        if !is_new && before.unwrap_or(SessionState::Open) != state {
            let happened = match state {
                SessionState::Open | SessionState::Unspecified => EventType::Resumed,
                SessionState::Resolved => EventType::Resolved,
                SessionState::Expired => EventType::Expired,
                SessionState::Suspended => EventType::Suspended,
                SessionState::Cancelled => EventType::Cancelled,
            };
            self.tell(happened, &session);
        }
        Ok(())
    }

    /// Forgets the session that ended first if there are too many.
    fn note_ended(&mut self, id: &str) {
        self.ended.push_back(id.to_owned());
        if self.ended.len() > ENDED_MAX
            && let Some(oldest) = self.ended.pop_front()
        {
            self.states.remove(&oldest);
        }
    }

    fn tell(&mut self, happened: EventType, session: &MacpSession) {
        self.told.push_back(SessionLifecycleEvent {
            event_type: happened.into(),
            session: Some(session.metadata()),
            observed_at_unix_ms: now_ms(),
        });
    }
}
