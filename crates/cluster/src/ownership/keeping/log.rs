//! What a node does about a log that does not answer it.

use super::{Keeping, SILENT_LEASES};

impl Keeping {
    /// Notes whether the log answers this node, and whether the node looks at the answers. Logs a change.
    pub(super) fn note_the_log(&mut self) {
        let limit = self.options.lease * SILENT_LEASES;
        let (silent, unlooked) = self.shared.log_silence(self.options.lease);
        let is_cut_off = silent >= limit || unlooked >= limit;
        match (self.fitness.is_cut_off, is_cut_off) {
            (false, true) if unlooked >= limit => tracing::warn!(
                unlooked_ms = unlooked.as_millis(),
                "this node's work stands still: it takes no partition, and gives its own to others that are \
                 well; give it more processor time"
            ),
            (false, true) => tracing::warn!(
                "the log does not answer this node: it takes no partition, and gives its own to others \
                 whom the log answers"
            ),
            (true, false) => tracing::info!("the log answers this node again"),
            _ => {}
        }
        self.fitness.is_cut_off = is_cut_off;
    }
}
