//! Heartbeats of a worker: leases renewed on their own schedule, and what the answers say.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_ports::bus::{Holding, Pulse, WorkerPort};
use tokio::time::Instant;

use super::pool::{Open, Shared};

/// CTX-11: renews leases at a third of their duration, whatever handlers do.
pub(super) async fn heartbeat<P: WorkerPort>(shared: Arc<Shared<P>>) {
    loop {
        let shortest = shared.plan();
        let every = shortest.map(|ms| Duration::from_millis((ms / 3).max(1)));
        let pause = async {
            match every {
                Some(every) => tokio::time::sleep(every).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = pause => shared.renew().await,
            () = shared.sooner.notified() => {}
        }
    }
}

impl<P: WorkerPort> Shared<P> {
    /// Notes the shortest lease in hand, by which heartbeats go. One that comes meanwhile either
    /// is seen here or tells.
    fn plan(&self) -> Option<u64> {
        let open = self.open.lock();
        let shortest = open.values().map(|open| open.holding.lease_ms).min();
        self.shortest.store(shortest.unwrap_or(u64::MAX), Ordering::Release);
        shortest
    }

    async fn renew(self: &Arc<Self>) {
        let asked = Instant::now(); // A lease counts from before the request.
        let holdings: Vec<Holding> =
            self.open.lock().values().filter(|o| !o.lost).map(|o| o.holding.clone()).collect();
        let pulses = self.port.heartbeat(&holdings).await;
        for (held, pulse) in holdings.iter().zip(pulses) {
            match pulse {
                Pulse::Renewed { cancel_requested } => {
                    if let Some(open) = self.open.lock().get_mut(&held.attempt_id) {
                        open.renewed = asked;
                    }
                    if cancel_requested {
                        self.ask_to_stop(held.attempt_id);
                    }
                }
                Pulse::Lost(refused) => {
                    tracing::warn!(attempt = %held.attempt_id, %refused, "the attempt is lost");
                    self.lose(held.attempt_id);
                }
                Pulse::Unknown => self.fence(held),
            }
        }
    }

    /// A worker that cannot renew stops by itself before its lease ends.
    fn fence(&self, held: &Holding) {
        let limit = Duration::from_millis(held.lease_ms * 9 / 10);
        let late = |open: &Open| open.renewed.elapsed() >= limit;
        if self.open.lock().get(&held.attempt_id).is_some_and(late) {
            tracing::warn!(attempt = %held.attempt_id, "the lease could not be renewed; stopping");
            self.lose(held.attempt_id);
        }
    }
}
