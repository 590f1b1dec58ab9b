//! Calls to the store of leases that no request waits for, and what is known of leases (law 5).

use std::future::Future;
use std::sync::Arc;

use tenure_core::id::{AttemptId, Millis};
use tenure_core::view::LeaseFact;
use tenure_ports::leases::{Lease, LeaseError};
use tenure_ports::observer::LeaseCall;
use tenure_ports::{Journal, Leases};

use crate::node::NodeShared;

impl<J: Journal, L: Leases> NodeShared<J, L> {
    /// What this node knows of an Attempt's lease.
    pub(crate) fn lease(&self, attempt: AttemptId, now: Millis) -> Option<LeaseFact> {
        let left = self.leases.left_ms(attempt)?;
        Some(LeaseFact { expires_at: now.saturating_add_unsigned(left), valid: left > 0 })
    }

    /// Drops leases of Attempts that have ended. If a lease stays, a scan finds it.
    pub(crate) fn drop_leases(self: &Arc<Self>, attempts: Vec<AttemptId>) {
        let count = attempts.len();
        self.tell_store(LeaseCall::Release, count, |node| async move {
            node.leases.release(attempts).await
        });
    }

    /// Renews leases of Attempts whose holders have reported (LEASE-04).
    pub(crate) fn renew_leases(self: &Arc<Self>, leases: Vec<Lease>) {
        let count = leases.len();
        self.tell_store(
            LeaseCall::Renew,
            count,
            |node| async move { node.leases.renew(leases).await },
        );
    }

    /// Makes sure that leases last at least for a while (LEASE-15).
    pub(crate) fn raise_leases(self: &Arc<Self>, leases: Vec<Lease>) {
        let count = leases.len();
        self.tell_store(
            LeaseCall::Raise,
            count,
            |node| async move { node.leases.raise(leases).await },
        );
    }

    /// Makes the leases that are missing.
    pub(crate) fn ensure_leases(self: &Arc<Self>, leases: Vec<Lease>) {
        let count = leases.len();
        self.tell_store(LeaseCall::Ensure, count, |node| async move {
            node.leases.ensure(leases).await
        });
    }

    /// Makes a call to the store that nobody waits for. If the store does not answer, there is a
    /// gap, whatever the call was: no lease is judged for a while (mechanisms 6).
    fn tell_store<F>(
        self: &Arc<Self>,
        call: LeaseCall,
        items: usize,
        tell: impl FnOnce(Arc<Self>) -> F,
    ) where
        F: Future<Output = Result<(), LeaseError>> + Send + 'static,
    {
        if items == 0 {
            return;
        }
        let (node, told) = (Arc::clone(self), tell(Arc::clone(self)));
        tokio::spawn(async move {
            if let Err(error) = node.watch_leases(call, items, told).await {
                node.note_leases_failed(call, &error);
            }
        });
    }
}
