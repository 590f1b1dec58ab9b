//! What a node does about the features of others (EVOLVE-02).

use tenure_core::features::Features;

use super::{Cause, Keeping, SETTLED_POLLS, count};

impl Keeping {
    /// Notes whether logs may hold what this node cannot read. Logs a change.
    pub(super) fn compare_features(&mut self, of_logs: &Features) {
        let lacking = self.journal.features().lacking(of_logs);
        match (self.fitness.lacks_features, !lacking.is_empty()) {
            (false, true) => tracing::error!(
                %lacking,
                "logs of this cluster may hold what this node cannot read: it takes no partition; start a newer \
                 version of it"
            ),
            (true, false) => tracing::info!("this node can read what logs may hold"),
            _ => {}
        }
        self.fitness.lacks_features = !lacking.is_empty();
        *self.shared.lacking.lock() = lacking;
    }

    /// If all live nodes have had a feature for some polls that the log of a partition of this node may not hold
    /// yet, takes the partition again: its new owner record names the feature (EVOLVE-02). One partition at a
    /// time, as each is without service for a moment.
    pub(super) fn raise(&mut self, partition: u32, shared: &Features, cause: Cause) {
        let held = self.journal.features_of(partition);
        let is_due = held.is_some_and(|held| !held.has_all(shared));
        let seen = count(&mut self.richer, partition, is_due, cause);
        let is_free = !self.leaving.contains_key(&partition) && !self.takings.is_busy();
        if seen >= SETTLED_POLLS && is_free && self.fitness.is_candidate() {
            self.richer.remove(&partition);
            tracing::info!(partition, %shared, "the partition is taken again: all nodes have these features");
            self.takings.begin(partition, shared);
        }
    }
}
