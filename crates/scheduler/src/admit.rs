//! What a Task needs before it comes to a node: one that is created, and one whose log is imported.

use std::fmt;

use tenure_core::id::SessionId;
use tenure_core::{Caller, Rejection};
use tenure_ports::{Journal, Leases};

use crate::handle::{Lane, Permit, Scheduler};

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
    /// Capacity for a part of a log that makes a Task. A principal gets it as it does for a create (LIVE-04).
    ///
    /// # Errors
    /// `unavailable` where the principal has its share of permits.
    pub fn admit_import(&self, caller: &Caller) -> Result<ImportPermit, Rejection> {
        self.permit(Lane::Creates, caller).map(ImportPermit)
    }

    /// Refuses one live Task more where there are as many as there may be (LIVE-01).
    ///
    /// # Errors
    /// `quota_exceeded` at a bound of the session, `unavailable` at one of the node.
    pub fn check_new_task(&self, session: &SessionId) -> Result<(), Rejection> {
        let admitted = self.node.live.admit_task(session);
        self.node.note_refusal(&admitted);
        admitted
    }
}
