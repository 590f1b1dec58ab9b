//! Computes the rates of work from what a node has counted between two of its answers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tenure_core::Counts;
use tenure_core::id::{Millis, PoolId};
use tenure_wire::bus::operate::NodeFacts;

use crate::top::snapshot::Rates;

/// The counts of a boot of a node at its last answer, and its rates.
#[derive(Debug, Clone)]
pub(super) struct BootCounts {
    /// When it answered, by the clock here.
    pub(super) heard: Instant,
    /// The same by its own clock.
    at: Option<Millis>,
    counts: Option<Counts>,
    ended: BTreeMap<PoolId, u64>,
    /// None if it has answered only once.
    pub(super) rates: Option<Rates>,
    pub(super) steps: BTreeMap<PoolId, f64>,
}

impl BootCounts {
    /// The state of a node after an answer; `before` is the earlier state of the same boot.
    pub(super) fn after(before: Option<&Self>, facts: &NodeFacts, heard: Instant) -> Self {
        let ended = facts.pools.iter();
        let ended = ended.filter_map(|pool| Some((pool.pool.clone(), pool.ended?))).collect();
        let (at, counts) = (facts.at, facts.counts);
        let mut now = Self { heard, at, counts, ended, rates: None, steps: BTreeMap::new() };
        if let Some(before) = before {
            let seconds = now.passed(before).as_secs_f64();
            if seconds > 0.0 {
                now.note_rates(before, seconds);
            }
        }
        now
    }

    /// The time between two answers, by the node's own clock, which is more exact about when it
    /// counted.
    fn passed(&self, before: &Self) -> Duration {
        let by_its_clock = self.at.zip(before.at).and_then(|(now, then)| now.checked_sub(then));
        let by_its_clock = by_its_clock.and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms > 0);
        by_its_clock.map_or(self.heard.duration_since(before.heard), Duration::from_millis)
    }

    fn note_rates(&mut self, before: &Self, seconds: f64) {
        let counted = self.counts.zip(before.counts);
        self.rates = counted.map(|(now, then)| Rates::of(now.since(then), seconds));
        for (pool, now) in &self.ended {
            let then = before.ended.get(pool).copied().unwrap_or_default();
            self.steps.insert(pool.clone(), per_second(now.saturating_sub(then), seconds));
        }
    }
}

impl Rates {
    fn of(counts: Counts, seconds: f64) -> Self {
        let each = |count| per_second(count, seconds);
        Self {
            claims: each(counts.claims),
            completed: each(counts.completed),
            failed: each(counts.failed),
            lost: each(counts.lost),
            tasks_created: each(counts.tasks_created),
            tasks_ended: each(counts.tasks_ended),
        }
    }

    /// The sum of both.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            claims: self.claims + other.claims,
            completed: self.completed + other.completed,
            failed: self.failed + other.failed,
            lost: self.lost + other.lost,
            tasks_created: self.tasks_created + other.tasks_created,
            tasks_ended: self.tasks_ended + other.tasks_ended,
        }
    }
}

/// Rounds to hundredths.
#[allow(clippy::cast_precision_loss)] // What happened in a second is far below 2^53.
fn per_second(count: u64, seconds: f64) -> f64 {
    (count as f64 / seconds * 100.0).round() / 100.0
}

pub(super) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
