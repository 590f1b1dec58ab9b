//! What is done to a session as a whole: it is suspended, resumed, cancelled, or its time is over.

use crate::code::forbidden;
use crate::{
    MacpChange, MacpRecord, MacpRefusal, MacpReplayError, MacpSession, REVISION, SUSPENSIONS_MAX,
    SessionState,
};

/// What a member asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MacpSteer {
    /// `SuspendSession`: it takes no messages until it is resumed, and its time stands still.
    Suspend,
    /// `ResumeSession`.
    Resume,
    /// `CancelSession`: it is over.
    Cancel,
}

/// What comes of it.
#[derive(Debug, Clone, PartialEq)]
pub struct MacpSteered {
    /// What is to be kept first. `None`: nothing changes.
    pub record: Option<MacpRecord>,
    /// Then the answer: the state of the session, or SESSION_NOT_OPEN, which is said in the Ack.
    pub answer: Result<SessionState, MacpRefusal>,
}

impl MacpSession {
    /// The record of the end of a session whose time is over. `None`: it is not over, or the session has ended. A
    /// message that comes exactly at the deadline is in time.
    pub fn expire(&self, now_ms: i64) -> Option<MacpRecord> {
        self.is_over(now_ms).then(|| self.record("", now_ms, MacpChange::Expired(true)))
    }

    /// When the session has to be looked at with [`MacpSession::expire`] for the next time, in milliseconds since 1970:
    /// one after its deadline, or after the end of the assignee's lease. `None`: it has ended.
    pub fn expires_at_ms(&self) -> Option<i64> {
        let last = match self.state {
            SessionState::Open => {
                self.lease_until_ms.map_or(self.deadline_ms, |until| until.min(self.deadline_ms))
            }
            SessionState::Suspended => {
                let left = self.bound().max_suspend_ms.saturating_sub(self.standstill.total_ms);
                self.standstill.since_ms.unwrap_or_default().saturating_add(left)
            }
            SessionState::Resolved
            | SessionState::Expired
            | SessionState::Cancelled
            | SessionState::Unspecified => return None,
        };
        Some(last.saturating_add(1))
    }

    /// Judges what a member asks for.
    ///
    /// # Errors
    ///
    /// FORBIDDEN, which is said in the status of the call: it is for the initiator, and for those who may commit.
    pub fn steer(
        &self,
        steer: MacpSteer,
        sender: &str,
        reason: &str,
        now_ms: i64,
    ) -> Result<MacpSteered, MacpRefusal> {
        if !self.is_initiator(sender) && !self.may_commit(sender) {
            return forbidden(
                "only the initiator, and those who may commit, may do this to the session",
            );
        }
        let (mut record, mut state) = (self.expire(now_ms), self.state);
        if steer == MacpSteer::Resume && self.was_suspended_too_often() {
            record = Some(self.record("", now_ms, MacpChange::Expired(true)));
        }
        if record.is_some() {
            state = SessionState::Expired;
        }
        let answer = match (steer, state) {
            (MacpSteer::Suspend, SessionState::Open) => {
                record =
                    Some(self.record(sender, now_ms, MacpChange::Suspended(reason.to_owned())));
                Ok(SessionState::Suspended)
            }
            (MacpSteer::Resume, SessionState::Suspended) => {
                record = Some(self.record(sender, now_ms, MacpChange::Resumed(reason.to_owned())));
                Ok(SessionState::Open)
            }
            (MacpSteer::Cancel, SessionState::Open | SessionState::Suspended) => {
                record =
                    Some(self.record(sender, now_ms, MacpChange::Cancelled(reason.to_owned())));
                Ok(SessionState::Cancelled)
            }
            (MacpSteer::Cancel, ended) => Ok(ended),
            (MacpSteer::Suspend | MacpSteer::Resume, _) => {
                let mut after = self.clone();
                after.state = state;
                Err(after.not_open())
            }
        };
        Ok(MacpSteered { record, answer })
    }

    pub(crate) fn apply_lifecycle(&mut self, record: &MacpRecord) -> Result<(), MacpReplayError> {
        self.check_ordinal(record, self.ordinal())?;
        let now_ms = record.accepted_at_ms;
        match (&record.change, self.state) {
            (Some(MacpChange::Expired(_)), SessionState::Open | SessionState::Suspended)
                if self.is_over(now_ms) || self.was_suspended_too_often() =>
            {
                self.end(SessionState::Expired);
            }
            (Some(MacpChange::Suspended(_)), SessionState::Open) => {
                self.state = SessionState::Suspended;
                self.standstill.since_ms = Some(now_ms);
            }
            (Some(MacpChange::Resumed(_)), SessionState::Suspended) => {
                let stood_ms = self.stood_ms(now_ms);
                self.standstill.total_ms = self.standstill.total_ms.saturating_add(stood_ms);
                self.standstill.times = self.standstill.times.saturating_add(1);
                self.standstill.since_ms = None;
                self.deadline_ms = self.deadline_ms.saturating_add(stood_ms);
                self.lease_until_ms = self.lease_until_ms.map(|it| it.saturating_add(stood_ms));
                self.state = SessionState::Open;
            }
            (Some(MacpChange::Cancelled(_)), SessionState::Open | SessionState::Suspended) => {
                self.end(SessionState::Cancelled);
            }
            (Some(_), _) => return Err(MacpReplayError::Unfit("in another state")),
            (None, _) => return Err(MacpReplayError::Unreadable("it says nothing".to_owned())),
        }
        Ok(())
    }

    fn end(&mut self, state: SessionState) {
        self.state = state;
        self.standstill.since_ms = None;
    }

    fn record(&self, sender: &str, now_ms: i64, change: MacpChange) -> MacpRecord {
        MacpRecord {
            revision: REVISION,
            ordinal: self.ordinal(),
            accepted_at_ms: now_ms,
            sender: sender.to_owned(),
            change: Some(change),
            carried_out: false,
        }
    }

    /// Whether the time is over: of an open session its own, of a suspended one the time that it may stand still.
    fn is_over(&self, now_ms: i64) -> bool {
        match self.state {
            SessionState::Open => now_ms > self.deadline_ms || self.has_lapsed(now_ms),
            SessionState::Suspended => {
                let total_ms = self.standstill.total_ms.saturating_add(self.stood_ms(now_ms));
                total_ms > self.bound().max_suspend_ms
            }
            SessionState::Resolved
            | SessionState::Expired
            | SessionState::Cancelled
            | SessionState::Unspecified => false,
        }
    }

    /// Whether it has been suspended so often that it is not resumed once more.
    fn was_suspended_too_often(&self) -> bool {
        self.state == SessionState::Suspended && self.standstill.times >= SUSPENSIONS_MAX
    }

    /// How long it has stood still this time. A clock that went back counts as none.
    fn stood_ms(&self, now_ms: i64) -> i64 {
        let since_ms = self.standstill.since_ms.unwrap_or(now_ms);
        now_ms.saturating_sub(since_ms).max(0)
    }
}
