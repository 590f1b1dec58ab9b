//! Repeats a request through temporary failures: an election, a new owner, a broken connection, a
//! full queue.

use std::fmt;
use std::time::Duration;

use tenure_core::{Code, Rejection};
use tenure_ports::ClientPort;

use crate::pauses::Pauses;

/// First and longest pause between two requests that nobody answered.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Target of the two log lines about a scheduler that does not answer: one when the wait begins, a warning, and one
/// when it is over. That is of level `INFO` if there is an answer, and else `DEBUG`.
pub const WAITS: &str = "tenure_sdk::waits";

/// A wait that the user was told of ([`WAITS`]). Dropped without an answer, it logs that it is over.
#[derive(Debug)]
#[must_use]
pub struct NotifiedWait {
    is_answered: bool,
}

impl NotifiedWait {
    /// Logs for what reason it begins.
    pub fn begin(why: impl fmt::Display) -> Self {
        tracing::warn!(target: WAITS, "{why}; it is waited for");
        Self { is_answered: false }
    }

    /// Logs that there is an answer.
    pub fn answered(mut self) {
        self.is_answered = true;
        tracing::info!(target: WAITS, "there is an answer again");
    }
}

impl Drop for NotifiedWait {
    fn drop(&mut self) {
        if !self.is_answered {
            tracing::debug!(target: WAITS, "the wait is over without an answer");
        }
    }
}

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
    let mut told = None;
    loop {
        match ask().await {
            Err(refused) if passes(&refused) && !port.is_over() => {
                if told.is_none() {
                    told = Some(NotifiedWait::begin(&refused));
                }
                tokio::time::sleep(pauses.after(&refused)).await;
            }
            answer => {
                if let Some(told) = told.filter(|_| answer.is_ok()) {
                    told.answered();
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
