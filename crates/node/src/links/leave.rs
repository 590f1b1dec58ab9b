//! By when a worker that was asked to leave stops what still runs.

use std::time::Duration;

use tenure_ports::bus::Delivery;
use tokio::time::Instant;

/// The request that a worker leave. A node keeps it for the worker's next link, which learns what is
/// left of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leave {
    /// When the worker stops what still runs; none: never.
    stops: Option<Instant>,
    /// Whether handlers get no time to stop by themselves: only if somebody asked for that, not
    /// because the time is over.
    is_forced: bool,
}

impl Leave {
    /// A request that comes now.
    pub(super) fn within(ms: Option<u64>) -> Self {
        let stops = ms.map(|ms| Instant::now() + Duration::from_millis(ms));
        Self { stops, is_forced: ms == Some(0) }
    }

    /// This request beside an earlier one: the time counts that ends first.
    pub(super) fn or_sooner(self, earlier: Option<Self>) -> Self {
        let all = self.stops.into_iter().chain(earlier.and_then(|it| it.stops));
        let is_forced = self.is_forced || earlier.is_some_and(|it| it.is_forced);
        Self { stops: all.min(), is_forced }
    }

    /// The delivery that tells the worker.
    pub(super) fn delivery(self) -> Delivery {
        let left = self.stops.map(|at| at.saturating_duration_since(Instant::now()));
        let ms = left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
        let least = u64::from(!self.is_forced); // 0 would mean by force.
        Delivery::Drain(ms.map(|ms| ms.max(least)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(leave: Leave) -> Option<u64> {
        match leave.delivery() {
            Delivery::Drain(left) => left,
            other => panic!("{other:?}"),
        }
    }

    /// docs/protocol.md, `drain`: of several times the one counts that ends first, and whoever is told later
    /// has what is left of it.
    #[tokio::test(start_paused = true)]
    async fn a_worker_has_what_is_left_of_the_shortest_time() {
        let never = Leave::within(None);
        assert_eq!(left(never), None);
        let first = Leave::within(Some(5_000)).or_sooner(Some(never));
        assert_eq!(left(first), Some(5_000));
        assert_eq!(left(never.or_sooner(Some(first))), Some(5_000), "no time lengthens nothing");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(left(Leave::within(Some(9_000)).or_sooner(Some(first))), Some(3_000));
        assert_eq!(left(Leave::within(Some(0)).or_sooner(Some(first))), Some(0));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(left(first), Some(1), "a time that is over is no force");
        let forced = Leave::within(Some(9_000)).or_sooner(Some(Leave::within(Some(0))));
        assert_eq!(left(forced), Some(0));
    }
}
