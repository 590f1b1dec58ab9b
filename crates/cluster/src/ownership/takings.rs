//! Takings of partitions: each for itself, so that one that is slow to be read holds up no other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tenure_ports::supervise::guard;
use tokio::runtime::Handle;

use super::Rival;
use crate::journal::{JetStreamJournal, TakeError};

/// Takings in a row that must have failed, and for how long, before a node lets a partition go that
/// it cannot take: JetStream may be electing a leader.
const FAILED: (u32, Duration) = (5, Duration::from_secs(2));
/// Takings that are slow to fail: after so long two are enough.
const FAILED_SLOWLY: (u32, Duration) = (2, Duration::from_secs(10));
/// For how long others come first, when a taking has failed for the first time and at most.
const AVOID: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));

/// When a partition whose log has lost data is looked at again: it stands still until somebody helps.
const AFTER_LOSS: Duration = Duration::from_secs(5);
/// When one is that another node answers for.
const AFTER_RIVAL: Duration = Duration::from_secs(1);

/// The takings of a node.
pub(super) struct Takings {
    journal: Arc<JetStreamJournal>,
    /// Who knows whether another node has a partition.
    rival: Option<Rival>,
    /// Where they run: not on the thread that renews.
    runtime: Handle,
    each: Arc<Mutex<BTreeMap<u32, Taking>>>,
}

#[derive(Debug, Default)]
struct Taking {
    is_running: bool,
    failed: u32,
    /// When the first of those that failed was begun.
    since: Option<Instant>,
    /// Until when it is let be.
    rests_until: Option<Instant>,
    /// How often it was let go since it was last taken.
    let_go: u32,
    /// Why the last one failed: what stays so is said once.
    why: Option<String>,
}

impl Takings {
    /// None yet; they will run where this is called.
    pub(super) fn new(journal: Arc<JetStreamJournal>, rival: Option<Rival>) -> Self {
        Self { journal, rival, runtime: Handle::current(), each: Arc::default() }
    }

    /// Has a partition taken, unless that is under way. `lowest` is what every live node reads.
    pub(super) fn begin(&self, partition: u32, lowest: u32) {
        let mut each = self.each.lock();
        let taking = each.entry(partition).or_default();
        let rests = taking.rests_until.is_some_and(|until| Instant::now() < until);
        if rests || std::mem::replace(&mut taking.is_running, true) {
            return;
        }
        taking.since.get_or_insert_with(Instant::now);
        let (journal, all) = (Arc::clone(&self.journal), Arc::clone(&self.each));
        let rival = self.rival.clone();
        let take = async move {
            let rival = match rival {
                Some(asks) => asks(partition).await,
                None => None,
            };
            let taken = match rival {
                Some(node) => {
                    Err((TakingFailure::Rival, format!("node {node} has it and answers for it")))
                }
                None => journal.take_at(partition, lowest).await.map_err(|error| {
                    let has_lost = matches!(error, TakeError::Lost { .. });
                    (
                        if has_lost { TakingFailure::Lost } else { TakingFailure::Passing },
                        error.to_string(),
                    )
                }),
            };
            if let Some(taking) = all.lock().get_mut(&partition) {
                match taken {
                    Ok(epoch) => {
                        tracing::info!(partition, epoch, "partition taken");
                        *taking = Taking::default();
                    }
                    Err((how, why)) if taking.note_failure(&why, how) => how.tell(partition, &why),
                    Err(_) => {}
                }
            }
        };
        self.runtime.spawn(guard("the taking of a partition", take));
    }

    /// Whether a partition cannot be taken here for now.
    pub(super) fn fails(&self, partition: u32) -> bool {
        let each = self.each.lock();
        let Some(taking) = each.get(&partition) else { return false };
        let lasts = taking.since.map_or(Duration::ZERO, |since| since.elapsed());
        [FAILED, FAILED_SLOWLY]
            .iter()
            .any(|(often, long)| taking.failed >= *often && lasts >= *long)
    }

    /// The partition is not this node's to take: what failed does not count any more.
    pub(super) fn forget(&self, partition: u32) {
        if let Some(taking) = self.each.lock().get_mut(&partition) {
            (taking.failed, taking.since) = (0, None);
        }
    }

    /// The partition is let go: answers for how long others are to come first.
    pub(super) fn let_go(&self, partition: u32) -> Duration {
        let mut each = self.each.lock();
        let taking = each.entry(partition).or_default();
        let avoid = AVOID.0.saturating_mul(1 << taking.let_go.min(10)).min(AVOID.1);
        (taking.failed, taking.since) = (0, None);
        taking.let_go += 1;
        avoid
    }
}

/// How a taking failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TakingFailure {
    /// It may go better another time, or at another node.
    Passing,
    /// Its log has lost data.
    Lost,
    /// Another node has it, whatever Redis says here.
    Rival,
}

impl TakingFailure {
    fn tell(self, partition: u32, why: &str) {
        match self {
            Self::Passing => tracing::warn!(partition, why, "partition not taken"),
            Self::Lost => tracing::error!(
                partition,
                why,
                "the partition stands still: nothing is written over what was lost"
            ),
            Self::Rival => tracing::error!(
                partition,
                why,
                "this node has the lease of a partition that another serves: give all nodes the same Redis"
            ),
        }
    }

    /// How long it is let be, where another node would do no better and is not to try.
    fn rest(self) -> Option<Duration> {
        match self {
            Self::Passing => None,
            Self::Lost => Some(AFTER_LOSS),
            Self::Rival => Some(AFTER_RIVAL),
        }
    }
}

impl Taking {
    /// Answers whether that is news. That the log has lost data, or another node has the partition, is no
    /// failure of this node: another would do no better, and might not know of it (mechanisms 1).
    fn note_failure(&mut self, why: &str, how: TakingFailure) -> bool {
        (self.is_running, self.failed) = (false, self.failed + 1);
        let rest = how.rest();
        self.rests_until = rest.map(|rest| Instant::now() + rest);
        if rest.is_some() {
            (self.failed, self.since) = (0, None);
        }
        let before = self.why.replace(why.to_owned());
        before.as_deref() != Some(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mechanisms 17: why a partition is not taken is said once, as long as it stays so.
    #[test]
    fn what_stays_so_is_said_once() {
        let mut taking = Taking::default();
        let said = ["old", "old", "away", "old"]
            .map(|why| taking.note_failure(why, TakingFailure::Passing));
        assert_eq!((said, taking.failed), ([true, false, true, true], 4));
        for how in [TakingFailure::Lost, TakingFailure::Rival] {
            taking.note_failure("old", TakingFailure::Passing);
            assert!(taking.note_failure(&format!("{how:?}"), how));
            assert_eq!(taking.failed, 0, "nobody else is to try");
        }
    }
}
