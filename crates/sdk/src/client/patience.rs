//! Repeats a request through temporary failures: an election, a new owner, a broken connection, a
//! full queue.

use std::time::Duration;

use tenure_core::{Code, Rejection};
use tenure_ports::ClientPort;

use crate::pauses::Pauses;

/// First and longest pause between two requests that nobody answered.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Target of the two log lines about a scheduler that does not answer: one when the wait begins,
/// one when it is over.
pub const WAITS: &str = "tenure_sdk::waits";

/// Repeats a request until there is a final answer, however long no scheduler gives one: a client
/// that waits for a Task also waits for a scheduler. Drop the future to give up. It logs once that
/// no scheduler answers, and once that one answers again ([`WAITS`]).
///
/// # Errors
/// A final refusal: one that does not [pass](passes), or one from a scheduler in this process that
/// has stopped.
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

/// Whether the same request may succeed some time after this refusal (CTRL-11): `unavailable` and
/// `not_owner` pass, but not a `not_owner` that names another partition, because then the cluster
/// was made anew.
pub fn passes(refused: &Rejection) -> bool {
    match refused.code {
        Code::Unavailable => true,
        Code::NotOwner => !refused.details.contains_key("partition"),
        _ => false,
    }
}
