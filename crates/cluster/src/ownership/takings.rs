//! Runs the takings of partitions: each for itself, so that one that is slow to be read delays no
//! other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tenure_core::features::Features;
use tenure_ports::supervise::guard;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::Rival;
use crate::journal::{JetStreamJournal, TakeError};

/// How long giving a partition away waits for appends in flight. The next owner's record settles the rest.
pub(super) const SETTLE: Duration = Duration::from_secs(2);

/// How many takings in a row must have failed, and for how long, before a node lets a partition go
/// that it cannot take: JetStream may be electing a leader.
const FAILED: (u32, Duration) = (5, Duration::from_secs(2));
/// For takings that fail slowly: after so long two are enough.
const FAILED_SLOWLY: (u32, Duration) = (2, Duration::from_secs(10));
/// For how long other nodes come first, after the first failure and at most.
const AVOID: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));

/// After how long a partition whose log has lost data is tried again: it stands still until an
/// operator helps.
const AFTER_LOSS: Duration = Duration::from_secs(5);
/// After how long a partition that another node serves is tried again.
const AFTER_RIVAL: Duration = Duration::from_secs(1);

/// The takings of a node.
pub(super) struct Takings {
    journal: Arc<JetStreamJournal>,
    /// Finds out whether another node serves a partition.
    rival: Option<Rival>,
    /// The runtime of the takings: not the thread that renews leases.
    runtime: Handle,
    each: Arc<Mutex<BTreeMap<u32, Taking>>>,
}

#[derive(Debug, Default)]
struct Taking {
    is_running: bool,
    failed: u32,
    /// When the first of those that failed began.
    since: Option<Instant>,
    /// Until when no taking is tried.
    rests_until: Option<Instant>,
    /// How often the partition was let go since it was last taken.
    let_go: u32,
    /// Why the last taking failed: an unchanged reason is logged once.
    why: Option<String>,
}

impl Takings {
    /// No takings yet; they will run on the runtime of this call.
    pub(super) fn new(journal: Arc<JetStreamJournal>, rival: Option<Rival>) -> Self {
        Self { journal, rival, runtime: Handle::current(), each: Arc::default() }
    }

    /// Has a partition taken, unless that is under way. `shared` are the features that all live nodes have.
    /// A partition that this node has already is left and taken again, so that its log may hold them.
    pub(super) fn begin(&self, partition: u32, shared: &Features) {
        let mut each = self.each.lock();
        let taking = each.entry(partition).or_default();
        let rests = taking.rests_until.is_some_and(|until| Instant::now() < until);
        if rests || std::mem::replace(&mut taking.is_running, true) {
            return;
        }
        taking.since.get_or_insert_with(Instant::now);
        let (journal, all) = (Arc::clone(&self.journal), Arc::clone(&self.each));
        let rival = self.rival.clone();
        let shared = shared.clone();
        let take = async move {
            if journal.owned().epoch(partition).is_some() {
                // Written while the partition is owned; so little of the log has to be read.
                let _ = timeout(SETTLE, journal.checkpoint(partition)).await;
                journal.leave(partition).settled(SETTLE).await;
            }
            let rival = match rival {
                Some(asks) => asks(partition).await,
                None => None,
            };
            let taken = match rival {
                Some(node) => {
                    Err((TakingFailure::Rival, format!("node {node} has it and answers for it")))
                }
                None => journal.take_with(partition, &shared).await.map_err(|error| {
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

    /// Whether some partition is being taken.
    pub(super) fn is_busy(&self) -> bool {
        self.each.lock().values().any(|taking| taking.is_running)
    }

    /// Whether this partition is being taken.
    pub(super) fn is_taking(&self, partition: u32) -> bool {
        self.each.lock().get(&partition).is_some_and(|taking| taking.is_running)
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

    /// The partition is not this node's to take: earlier failures no longer count.
    pub(super) fn forget(&self, partition: u32) {
        if let Some(taking) = self.each.lock().get_mut(&partition) {
            (taking.failed, taking.since) = (0, None);
        }
    }

    /// Notes that the partition is let go. Answers for how long other nodes should come first.
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
    /// It may succeed another time, or on another node.
    Passing,
    /// Its log has lost data.
    Lost,
    /// Another node serves it, whatever this node's Redis says.
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

    /// How long nothing is tried, if another node would do no better and should not try.
    fn rest(self) -> Option<Duration> {
        match self {
            Self::Passing => None,
            Self::Lost => Some(AFTER_LOSS),
            Self::Rival => Some(AFTER_RIVAL),
        }
    }
}

impl Taking {
    /// Notes a failure. Answers whether its reason is new. If the log has lost data, or another
    /// node serves the partition, it is no failure of this node: another would do no better, and
    /// might not know of it (mechanisms 1).
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

    /// Mechanisms 17: the reason why a partition is not taken is logged once, as long as it does
    /// not change.
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
