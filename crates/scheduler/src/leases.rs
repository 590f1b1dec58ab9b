//! Calls to the store of leases that no request waits for, and what is known of leases (law 5).

use std::future::Future;
use std::sync::Arc;

use tenure_core::id::{AttemptId, Millis};
use tenure_core::view::LeaseFact;
use tenure_ports::leases::{Lease, LeaseError};
use tenure_ports::observer::LeaseCall;
use tenure_ports::{Journal, Leases};

use crate::node::NodeShared;

/// What the store of leases is to be told next.
#[derive(Debug, Default)]
pub(crate) struct GatheredLeases {
    renewed: Vec<Lease>,
    released: Vec<AttemptId>,
    /// Whether a task that will send this has begun.
    is_due: bool,
}

impl<J: Journal, L: Leases> NodeShared<J, L> {
    /// What this node knows of an Attempt's lease.
    pub(crate) fn lease(&self, attempt: AttemptId, now: Millis) -> Option<LeaseFact> {
        let left = self.leases.left_ms(attempt)?;
        Some(LeaseFact { expires_at: now.saturating_add_unsigned(left), valid: left > 0 })
    }

    /// Drops leases of Attempts that have ended. If a lease stays, a scan finds it.
    pub(crate) fn drop_leases(self: &Arc<Self>, attempts: Vec<AttemptId>) {
        if !attempts.is_empty() {
            self.gather_leases(|gathered| gathered.released.extend(attempts));
        }
    }

    /// Renews leases of Attempts whose holders have reported (LEASE-04).
    pub(crate) fn renew_leases(self: &Arc<Self>, leases: Vec<Lease>) {
        if !leases.is_empty() {
            self.gather_leases(|gathered| gathered.renewed.extend(leases));
        }
    }

    /// What the store is to be told waits here until the other tasks that are ready on this thread have run once. Under
    /// load, many Tasks then share one call.
    fn gather_leases(self: &Arc<Self>, add: impl FnOnce(&mut GatheredLeases)) {
        let mut gathered = self.gathered_leases.lock();
        add(&mut gathered);
        if std::mem::replace(&mut gathered.is_due, true) {
            return;
        }
        drop(gathered);
        let node = Arc::clone(self);
        tokio::spawn(async move {
            tokio::task::yield_now().await;
            let GatheredLeases { renewed, released, .. } =
                std::mem::take(&mut *node.gathered_leases.lock());
            let (renewals, releases) = (renewed.len(), released.len());
            let renew = node.call_store(LeaseCall::Renew, renewals, node.leases.renew(renewed));
            let release =
                node.call_store(LeaseCall::Release, releases, node.leases.release(released));
            // Renewals are handed over first: an Attempt may have been renewed before it ended.
            tokio::join!(biased; renew, release);
        });
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
        tokio::spawn(async move { node.call_store(call, items, told).await });
    }

    /// Makes a call to the store, waits for it, and notes a failure as a gap. Does nothing if there are no items.
    async fn call_store(
        &self,
        call: LeaseCall,
        items: usize,
        told: impl Future<Output = Result<(), LeaseError>>,
    ) {
        if items > 0
            && let Err(error) = self.watch_leases(call, items, told).await
        {
            self.note_leases_failed(call, &error);
        }
    }
}
