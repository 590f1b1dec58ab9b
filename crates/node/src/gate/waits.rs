//! What waits on a node and in which pools, as it was found out last.
//!
//! Finding it out takes as long as there are Tasks that wait, and meanwhile their pools give out no work. So only a
//! small part of the time goes into it, however often callers ask: who asks too soon is told what was found out last.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tenure_core::id::{PoolId, SessionId};
use tenure_ports::observer::Sample;
use tenure_scheduler::WaitingStep;

/// Finding it out takes one part in so many of the time.
const PART: u32 = 16;

/// So long it may take in any case to look at the sessions that ask.
const SESSIONS_TAKE: Duration = Duration::from_millis(1);

/// The Step of a session that has waited longest, by pool.
type LongestWaits = HashMap<PoolId, WaitingStep>;

/// What was found out last.
#[derive(Debug, Default)]
pub(crate) struct LastWaits(Mutex<Option<FoundWaits>>);

#[derive(Debug)]
struct FoundWaits {
    sample: Sample,
    longest: HashMap<SessionId, LongestWaits>,
    begun: Instant,
    /// How long it took, with the sessions.
    took: Duration,
}

impl FoundWaits {
    /// Whether so much more time may go into it by now.
    fn may_take(&self, more: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.begun) >= (self.took + more) * PART
    }
}

impl LastWaits {
    /// What waits on the node, and what of a session has waited longest in each pool. Of a session for which there was
    /// no time the latter is not known.
    pub(super) fn of(
        &self,
        session: &SessionId,
        sample: impl FnOnce() -> Sample,
        longest: impl FnOnce() -> Vec<(PoolId, WaitingStep)>,
    ) -> (Sample, LongestWaits) {
        let mut last = self.0.lock();
        let now = Instant::now();
        if last.as_ref().is_none_or(|found| found.may_take(Duration::ZERO, now)) {
            let sample = sample();
            let took = now.elapsed();
            *last = Some(FoundWaits { sample, longest: HashMap::new(), begun: now, took });
        }
        let Some(found) = last.as_mut() else { return Default::default() };
        // The first session is looked at together with the node.
        let now = Instant::now();
        let has_time = found.longest.is_empty()
            || found.took <= SESSIONS_TAKE
            || found.may_take(found.took, now);
        if has_time && !found.longest.contains_key(session) {
            found.longest.insert(session.clone(), longest().into_iter().collect());
            found.took += now.elapsed();
        }
        let longest = found.longest.get(session).cloned().unwrap_or_default();
        (found.sample.clone(), longest)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test that cannot go on has failed.
mod tests {
    use std::cell::Cell;
    use std::thread::sleep;

    use super::*;

    /// Mechanisms 15: however often callers ask for all nodes, little of a node's time goes into the answers.
    #[test]
    fn whoever_asks_too_soon_is_told_what_is_known() {
        let (last, [samples, sessions]) = (LastWaits::default(), [Cell::new(0), Cell::new(0)]);
        let ask = |session: &str| {
            let sample = || {
                sleep(Duration::from_millis(5));
                samples.set(samples.get() + 1);
                Sample { tasks: samples.get(), ..Sample::default() }
            };
            let longest = || {
                sessions.set(sessions.get() + 1);
                let (task_id, step_id) = ("t".parse().unwrap(), "s".parse().unwrap());
                vec![("p".parse().unwrap(), WaitingStep { task_id, step_id, since: 0 })]
            };
            let (sample, longest) = last.of(&session.parse().unwrap(), sample, longest);
            (sample.tasks, longest.len())
        };
        let begun = Instant::now();
        let (mut asked, mut told) = (0_u32, 0);
        while begun.elapsed() < Duration::from_millis(400) {
            for session in ["a", "b"] {
                let (tasks, longest) = ask(session);
                assert!(tasks > 0, "the node is always told of");
                told += longest;
            }
            asked += 1;
        }
        // At 5 ms each, one in 80 ms.
        let (samples, sessions) = (samples.get(), sessions.get());
        assert!((1..=6).contains(&samples) && asked > 50, "{samples} of {asked}");
        assert!(sessions <= 2 * samples && told > 50, "{sessions}, and {told} answers with both");
    }
}
