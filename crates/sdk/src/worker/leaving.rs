//! How a worker stops: it takes nothing more, and gives back what it does not finish (LEASE-18).

use std::sync::Arc;
use std::time::Duration;

use tenure_ports::bus::WorkerPort;

use super::pool::PoolShared;

impl PoolShared {
    pub(super) fn stop_taking(&self) {
        let mut capacity = self.capacity.lock();
        capacity.accepting = false;
        self.port.credit(capacity.credit());
    }

    /// Takes no more work, as an operator wants the worker to leave; what still runs after the time
    /// that is left stops and goes back. Of several times the one counts that ends first: to stop
    /// handlers that were stopped already does nothing.
    pub(super) fn dismiss(self: &Arc<Self>, time_left_ms: Option<u64>) {
        self.stop_taking();
        self.dismissed.send_replace(true);
        let Some(ms) = time_left_ms else { return };
        // Without any time, handlers get none to stop by themselves either.
        let grace = if ms == 0 { Duration::ZERO } else { self.options.grace };
        // Weak, so that the pool can be dropped, which says `bye`, while time is left.
        let shared = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            if let Some(shared) = shared.upgrade() {
                shared.stop_handlers(grace).await;
            }
        });
    }

    /// Asks handlers to stop, and ends those by force that have not after the grace. Returns how many
    /// it asked. The pool takes no more work by then, so that their Steps go back.
    pub(super) async fn stop_handlers(&self, grace: Duration) -> usize {
        let asked = {
            let open = self.open.lock();
            open.values().for_each(|one| one.stop.cancelled.cancel());
            open.len()
        };
        self.running.close();
        if tokio::time::timeout(grace, self.running.wait()).await.is_err() {
            self.open.lock().values().for_each(|one| one.stop.forced.cancel());
        }
        asked
    }
}
