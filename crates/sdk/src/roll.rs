//! [`Roll`]: which Attempts of a heartbeat its answers have mentioned, whatever it goes over.

use std::collections::HashMap;
use std::time::Duration;

use tenure_core::id::AttemptId;
use tenure_ports::bus::{Holding, Pulse};
use tenure_wire::bus::worker::Pulse as Said;

/// Attempts in a message: with the longest ids it is well below the longest message.
pub(crate) const HOLDINGS_MAX: usize = 1000;

/// How long to wait for answers; less if a lease is short.
const ANSWERS: Duration = Duration::from_secs(2);

/// A heartbeat may take this part of a lease, so that there is time for another.
const PART_OF_LEASE: u64 = 6;

/// How long a heartbeat for these Attempts waits for its answers.
pub(crate) fn patience(holdings: &[Holding]) -> Duration {
    let shortest = holdings.iter().map(|held| held.lease_ms).min().unwrap_or(u64::MAX);
    ANSWERS.min(Duration::from_millis((shortest / PART_OF_LEASE).max(1)))
}

/// Which Attempts the answers have mentioned.
#[derive(Debug)]
pub(crate) struct Roll {
    places: HashMap<AttemptId, usize>,
    missing: usize,
    pulses: Vec<Pulse>,
}

impl Roll {
    /// Nothing is known of these Attempts yet.
    pub(crate) fn of(holdings: &[Holding]) -> Self {
        let places = holdings.iter().enumerate().map(|(at, held)| (held.attempt_id, at)).collect();
        let pulses = vec![Pulse::Unknown; holdings.len()];
        Self { places, pulses, missing: holdings.len() }
    }

    /// Notes an answer for an Attempt.
    pub(crate) fn take(&mut self, said: Said) {
        // The first answer counts: a former owner that answers late knows no more.
        if let Some(at) = self.places.remove(&said.attempt_id) {
            self.pulses[at] = Pulse::of(said);
            self.missing -= 1;
        }
    }

    /// Whether each Attempt has its answer.
    pub(crate) fn is_whole(&self) -> bool {
        self.missing == 0
    }

    /// The answers, in the order of the Attempts.
    pub(crate) fn into_pulses(self) -> Vec<Pulse> {
        self.pulses
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::Code;
    use tenure_core::id::{RunId, SessionId, TaskId};
    use tenure_ports::journal::TaskKey;
    use uuid::Uuid;

    use super::*;

    fn holding(lease_ms: u64) -> Holding {
        let session_id = SessionId::new("s").unwrap();
        let task_id = TaskId::new("t").unwrap();
        Holding {
            task: TaskKey { session_id, task_id },
            run_id: RunId(Uuid::now_v7()),
            attempt_id: AttemptId(Uuid::now_v7()),
            fencing_token: 3,
            lease_ms,
            input_seen: None,
        }
    }

    fn said(held: &Holding, lease_ms: Option<u64>) -> Said {
        Said {
            attempt_id: held.attempt_id,
            lease_ms,
            cancel_requested: true,
            time_left_ms: None,
            error: None,
        }
    }

    #[test]
    fn pulses_stand_in_the_order_of_what_was_held() {
        let held = [holding(9), holding(9), holding(9)];
        let mut roll = Roll::of(&held);
        roll.take(said(&held[2], Some(9)));
        roll.take(said(&held[0], None));
        roll.take(said(&holding(9), Some(9)));
        assert_eq!(roll.missing, 1);
        assert!(matches!(&roll.pulses[0], Pulse::Lost(no) if no.code == Code::StaleAttempt));
        assert_eq!(roll.pulses[1], Pulse::Unknown);
        assert_eq!(roll.pulses[2], Pulse::Renewed { cancel_requested: true, time_left_ms: None });
    }

    #[test]
    fn a_second_word_on_an_attempt_changes_nothing() {
        let held = [holding(9)];
        let mut roll = Roll::of(&held);
        roll.take(said(&held[0], Some(9)));
        roll.take(said(&held[0], None));
        assert_eq!(roll.pulses, [Pulse::Renewed { cancel_requested: true, time_left_ms: None }]);
    }

    #[test]
    fn a_heartbeat_leaves_time_for_another() {
        assert_eq!(patience(&[holding(60_000), holding(30_000)]), ANSWERS);
        assert_eq!(patience(&[holding(60_000), holding(1_200)]), Duration::from_millis(200));
    }
}
