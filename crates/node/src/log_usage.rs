//! Asks now and then how much the logs of a node take, and how much more they may.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_ports::observer::LogSample;
use tokio::time::{MissedTickBehavior, interval};

use crate::gate::Gate;

/// How often the node asks. An answer costs the server a message for each stream.
const LOOK: Duration = Duration::from_secs(10);

/// The last answer; `None` before the first.
pub(crate) type LastUsage = Arc<Mutex<Option<LogSample>>>;

/// Asks again and again, and never returns. While the server does not answer, its last answer stays.
pub(crate) async fn watch_usage(gate: Arc<Gate>, last: LastUsage) {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let served = gate.served.lock().clone();
        match gate.fence.journal.usage(&served).await {
            Ok(usage) => *last.lock() = Some(usage),
            Err(error) => tracing::debug!(%error, "how much room the log has is not known"),
        }
    }
}
