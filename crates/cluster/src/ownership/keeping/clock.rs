//! What a node does about its clock.

use std::time::Duration;

use tenure_core::id::Millis;

use super::{APART, Keeping};

impl Keeping {
    /// Notes whether this node's clock differs from Redis', which answered within `took`.
    pub(super) fn compare_clocks(&mut self, there: Millis, took: Duration) {
        if let Some(heard) = &self.options.heard {
            heard(there, took);
        }
        let apart = (self.options.clock)().abs_diff(there);
        let is_off = Duration::from_millis(apart) > APART + took;
        if is_off != self.fitness.is_off {
            match is_off {
                true => tracing::error!(
                    apart_ms = apart,
                    "this node's clock and Redis' are apart: it takes no partition and gives its own \
                     away until they agree; \
                     set the clock right that is wrong"
                ),
                false => tracing::info!("this node's clock and Redis' agree again"),
            }
        }
        self.fitness.is_off = is_off;
    }
}
