//! Puts Tasks into other lines when a worker comes that serves other sessions than any worker before it.

use std::time::Duration;

use tenure_ports::journal::TaskKey;
use tokio::time::Instant;

use super::{Supply, Turns};

/// Tasks are put into other lines, and sessions matched with a new list, so rarely that it takes a tenth of the time or
/// so: it takes a microsecond each.
pub(super) const REGROUPED_EACH: Duration = Duration::from_micros(10);

/// So few Tasks and sessions are put into other lines at any time: a worker cannot come so often that it matters.
pub(super) const REGROUPED_AT_ANY_TIME: usize = 100;

impl Turns {
    /// After which time a new list of sessions may be matched with these sessions, and all Tasks be put into other
    /// lines; none: now.
    pub(in crate::pool) fn regroups_after(
        &self,
        sessions: usize,
        now: Instant,
    ) -> Option<Duration> {
        let matched = self.entries.len() + sessions;
        let matched = Some(matched).filter(|matched| *matched > REGROUPED_AT_ANY_TIME)?;
        let matched = u32::try_from(matched).unwrap_or(u32::MAX);
        let from = self.regrouped? + REGROUPED_EACH * matched;
        Some(from.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// Puts every Task into the line of the groups that serve it now. This costs as much as there are Tasks that wait,
    /// and happens only when a worker comes that serves other sessions than any worker before it.
    pub(in crate::pool) fn regroup(&mut self, supply: &impl Supply) {
        let keys: Vec<TaskKey> = self.entries.keys().cloned().collect();
        self.regrouped = Some(Instant::now());
        self.lines.clear();
        self.overflow.clear();
        for key in keys {
            let line = self.line_of(supply.serving(&key.session_id), &key);
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            entry.line = line.clone();
            entry.look = line.is_overflow.then(|| self.overflow.put(key.clone(), 0));
            self.lines.entry(line).or_default().insert(entry.place, key, entry.has.ready);
        }
    }
}
