//! What a request needs before it comes to a Task, and a Task before it comes to a node: one that is created, and one
//! whose log is imported.
//!
//! Step 4 of the walk in docs/architecture.md.

use std::fmt;

use tenure_core::id::{AgentId, SessionId};
use tenure_core::{Caller, Rejection};
use tenure_ports::{Journal, Leases};

use crate::config::KEPT_FROM_CREATES;
use crate::handle::{Lane, Permit, Scheduler};
use crate::overloaded;

/// Capacity for a part of a log that is imported, given back when it is dropped.
#[must_use]
pub struct ImportPermit(Permit);

impl fmt::Debug for ImportPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(Permit { .. }) = self;
        f.debug_struct("ImportPermit").finish_non_exhaustive()
    }
}

impl<J: Journal, L: Leases> Scheduler<J, L> {
    /// Takes capacity for a request.
    pub(crate) fn permit(&self, lane: Lane, caller: &Caller) -> Result<Permit, Rejection> {
        let (permits, kept) = match lane {
            Lane::Creates => (&self.commands, KEPT_FROM_CREATES),
            Lane::Commands => (&self.commands, 0),
            Lane::Cancels | Lane::Reports => (&self.reports, 0),
        };
        let permit = permits.take(caller, kept).ok_or_else(overloaded);
        self.node.note_refusal(&permit);
        Ok(Permit { lane, permit: permit? })
    }

    /// Capacity for a part of a log that makes a Task. A principal gets it as it does for a create (LIVE-04).
    ///
    /// # Errors
    /// `unavailable` where the principal has its share of permits.
    pub fn admit_import(&self, caller: &Caller) -> Result<ImportPermit, Rejection> {
        self.permit(Lane::Creates, caller).map(ImportPermit)
    }

    /// Refuses one live Task more of this maker where there are as many as there may be (LIVE-01).
    ///
    /// # Errors
    /// `quota_exceeded` at a bound of the session; `unavailable` at one of the node, or of a share of it.
    pub fn check_new_task(&self, session: &SessionId, maker: &AgentId) -> Result<(), Rejection> {
        let admitted = self.node.live.admit_task(session, maker);
        self.node.note_refusal(&admitted);
        admitted
    }
}
