//! Takings of partitions: each for itself, so that one that is slow to be read holds up no other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::journal::{JetStreamJournal, TakeError};
use crate::supervise::guard;

/// Takings in a row that must have failed, and for how long, before a node lets a partition go that
/// it cannot take: JetStream may be electing a leader.
const FAILED: (u32, Duration) = (5, Duration::from_secs(2));
/// Takings that are slow to fail: after so long two are enough.
const FAILED_SLOWLY: (u32, Duration) = (2, Duration::from_secs(10));
/// For how long others come first, when a taking has failed for the first time and at most.
const AVOID: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));

/// When a partition whose log has lost data is looked at again: it stands still until somebody helps.
const AFTER_LOSS: Duration = Duration::from_secs(5);

/// The takings of a node.
#[derive(Debug)]
pub(super) struct Takings {
    journal: Arc<JetStreamJournal>,
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
    /// When it was found last that its log has lost data.
    lost: Option<Instant>,
    /// How often it was let go since it was last taken.
    let_go: u32,
    /// Why the last one failed: what stays so is said once.
    why: Option<String>,
}

impl Takings {
    /// None yet; they will run where this is called.
    pub(super) fn new(journal: Arc<JetStreamJournal>) -> Self {
        Self { journal, runtime: Handle::current(), each: Arc::default() }
    }

    /// Has a partition taken, unless that is under way. `lowest` is what every live node reads.
    pub(super) fn begin(&self, partition: u32, lowest: u32) {
        let mut each = self.each.lock();
        let taking = each.entry(partition).or_default();
        let has_just_lost = taking.lost.is_some_and(|at| at.elapsed() < AFTER_LOSS);
        if has_just_lost || std::mem::replace(&mut taking.is_running, true) {
            return;
        }
        taking.since.get_or_insert_with(Instant::now);
        let (journal, all) = (Arc::clone(&self.journal), Arc::clone(&self.each));
        let take = async move {
            let taken = journal.take_at(partition, lowest).await;
            if let Ok(epoch) = &taken {
                tracing::info!(partition, epoch, "partition taken");
            }
            if let Some(taking) = all.lock().get_mut(&partition) {
                match taken {
                    Ok(_) => *taking = Taking::default(),
                    Err(error) => {
                        let has_lost = matches!(error, TakeError::Lost { .. });
                        let why = error.to_string();
                        match (taking.note_failure(&why, has_lost), has_lost) {
                            (false, _) => {}
                            (true, true) => tracing::error!(
                                partition,
                                why,
                                "the partition stands still: nothing is written over what was lost"
                            ),
                            (true, false) => tracing::warn!(partition, why, "partition not taken"),
                        }
                    }
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

impl Taking {
    /// Answers whether that is news. That the log has lost data is no failure of this node: another
    /// would do no better, and might not know of it (mechanisms 1).
    fn note_failure(&mut self, why: &str, has_lost: bool) -> bool {
        (self.is_running, self.failed) = (false, self.failed + 1);
        self.lost = has_lost.then(Instant::now);
        if has_lost {
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
        let said = ["old", "old", "away", "old"].map(|why| taking.note_failure(why, false));
        assert_eq!((said, taking.failed), ([true, false, true, true], 4));
        assert!(taking.note_failure("lost", true));
        assert_eq!(taking.failed, 0, "nobody else is to try");
    }
}
