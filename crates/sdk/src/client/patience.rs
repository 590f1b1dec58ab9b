//! Waiting through what passes: an election, a new owner, a broken connection, a full queue.

use std::time::Duration;

use tenure_core::{Code, Rejection};

use crate::pauses::Pauses;

/// First and longest pause between two questions that nobody answered.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Asks until there is an answer for good, however long nobody gives one: whoever waits for a Task waits
/// for a scheduler too. Dropping it gives up.
///
/// # Errors
/// A refusal that stands: another than `unavailable` and `not_owner`, and a `not_owner` that names another
/// partition, as the cluster was made anew then.
pub async fn patiently<T, F>(ask: impl Fn() -> F) -> Result<T, Rejection>
where
    F: Future<Output = Result<T, Rejection>>,
{
    let mut pauses = Pauses::between(PAUSES.0, PAUSES.1);
    let mut is_told = false;
    loop {
        match ask().await {
            Err(refused) if passes(&refused) => {
                if !is_told {
                    tracing::warn!(%refused, "there is no answer yet; it is waited for");
                }
                is_told = true;
                tokio::time::sleep(pauses.after(&refused)).await;
            }
            answer => return answer,
        }
    }
}

fn passes(refused: &Rejection) -> bool {
    match refused.code {
        Code::Unavailable => true,
        Code::NotOwner => !refused.details.contains_key("partition"),
        _ => false,
    }
}
