//! Says that messages came which nobody can read: the client library skips them (crates/vendor/README.md).

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::Client;

/// How often the node looks, and so logs at most.
const LOOK: Duration = Duration::from_secs(10);

/// Logs how many messages of each connection were skipped since the last look.
pub(crate) async fn watch_malformed(connections: [(&'static str, Client); 5]) {
    let mut known = [0; 5];
    loop {
        tokio::time::sleep(LOOK).await;
        for ((connection, client), known) in connections.iter().zip(&mut known) {
            let all = client.statistics().in_malformed.load(Ordering::Relaxed);
            let messages = all - std::mem::replace(known, all);
            if messages > 0 {
                tracing::warn!(connection, messages, "messages that cannot be read were skipped");
            }
        }
    }
}
