//! Waiting through what passes: an election, a new owner, a broken connection, a full queue.

use std::time::Duration;

use tenure_core::{Code, Rejection};
use tenure_ports::ClientPort;

use crate::pauses::Pauses;

/// First and longest pause between two questions that nobody answered.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Target of the two log lines of a wait that outlasts a silence: that nobody answers, and that it is over.
pub const WAITS: &str = "tenure_sdk::waits";

/// Asks until there is an answer for good, however long nobody gives one: whoever waits for a Task waits
/// for a scheduler too. Dropping it gives up. That nobody answers is logged once, and that somebody does
/// again ([`WAITS`]).
///
/// # Errors
/// A refusal that stands: one that does not [pass](passes), or of a scheduler in this process that has
/// stopped.
pub async fn patiently<P: ClientPort, T, F>(port: &P, ask: impl Fn() -> F) -> Result<T, Rejection>
where
    F: Future<Output = Result<T, Rejection>>,
{
    let mut pauses = Pauses::between(PAUSES.0, PAUSES.1);
    let mut is_told = false;
    loop {
        match ask().await {
            Err(refused) if passes(&refused) && !port.is_over() => {
                if !is_told {
                    tracing::warn!(target: WAITS, "{refused}; it is waited for");
                }
                is_told = true;
                tokio::time::sleep(pauses.after(&refused)).await;
            }
            answer => {
                if is_told && answer.is_ok() {
                    tracing::info!(target: WAITS, "there is an answer again");
                }
                return answer;
            }
        }
    }
}

/// Whether the same may be answered a while after this refusal (CTRL-11): `unavailable` and `not_owner`
/// pass, but not a `not_owner` that names another partition, as the cluster was made anew then.
pub fn passes(refused: &Rejection) -> bool {
    match refused.code {
        Code::Unavailable => true,
        Code::NotOwner => !refused.details.contains_key("partition"),
        _ => false,
    }
}
