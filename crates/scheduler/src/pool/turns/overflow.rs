//! Tasks that some workers do not fit, and for which there are no lines left.
//!
//! Each has another list of workers that do not fit, so each must be looked at by itself. A pass looks at a few of
//! them, those first that were looked at longest ago, and only at workers that came to have credits since then. So a
//! pass costs the same however many they are, and as many passes as it takes look at all of them. One that a free
//! worker fits takes its turn among the Tasks that all may fit.

use std::collections::BTreeMap;

use tenure_ports::journal::TaskKey;

use super::super::groups::GroupSet;
use super::line::{Lane, LineKey};
use super::{LaneEntry, Supply, Turns};

/// How many of these Tasks one pass looks at.
pub(super) const LOOKS_MAX: usize = 64;

/// When a Task was looked at: how many workers had come to have credits ([`Supply::arrivals`]) when none with credits
/// fitted it (0: nobody has looked), and a number.
pub(super) type LookedAt = (u64, u64);

/// The Tasks without a line of their own.
#[derive(Debug, Default)]
pub(super) struct OverflowTasks {
    by_look: BTreeMap<LookedAt, TaskKey>,
    /// How many looks there were.
    looks: u64,
    /// The Task that takes its turn.
    promoted: Option<TaskKey>,
}

impl OverflowTasks {
    /// Adds a Task that no worker with credits fitted at so many arrivals; 0: nobody has looked.
    pub(super) fn put(&mut self, key: TaskKey, arrivals: u64) -> LookedAt {
        self.looks += 1;
        let look = (arrivals, self.looks);
        self.by_look.insert(look, key);
        look
    }

    /// Takes a Task out.
    pub(super) fn remove(&mut self, look: LookedAt) {
        self.by_look.remove(&look);
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.by_look.clear();
    }

    /// The look that is longest ago, if workers came to have credits since.
    fn due(&self, supply: &impl Supply) -> Option<LookedAt> {
        let (look, _) = self.by_look.first_key_value()?;
        (look.0 < supply.arrivals()).then_some(*look)
    }

    fn take_due(&mut self, supply: &impl Supply) -> Option<(LookedAt, TaskKey)> {
        let look = self.due(supply)?;
        Some((look, self.by_look.remove(&look)?))
    }

    /// Notes that a Task has had its turn. Answers whether it was the one that took it.
    pub(super) fn had_turn(&mut self, key: &TaskKey) -> bool {
        self.promoted.take_if(|promoted| promoted == key).is_some()
    }
}

impl Turns {
    /// Whether Tasks of overflow lines are still to be looked at, by another pass.
    pub(in crate::pool) fn is_to_look(&self, supply: &impl Supply) -> bool {
        self.overflow.due(supply).is_some() && !supply.open().is_empty()
    }

    /// Looks at some of the Tasks of overflow lines. The first that a free worker fits takes its turn, unless one of
    /// the same or a higher priority does.
    pub(super) fn look_at_some(&mut self, supply: &impl Supply) {
        if !self.is_to_look(supply) {
            return;
        }
        let (promoted, arrivals) = (self.promoted_lane(), supply.arrivals());
        for _ in 0..LOOKS_MAX {
            let Some((look, key)) = self.overflow.take_due(supply) else { return };
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            let (groups, (lane, _)) = (entry.line.groups, entry.place);
            let unfit = self.unfit.all(&key);
            let is_served = entry.has.ready > 0 && supply.has_fit(unfit, groups, look.0);
            if is_served && promoted.is_none_or(|promoted| lane < promoted) {
                entry.look = None;
                return self.promote(key, groups);
            }
            // One that has to wait for its turn stays due.
            let none_at = if is_served { arrivals.saturating_sub(1) } else { arrivals };
            entry.look = Some(self.overflow.put(key, none_at));
        }
    }

    /// The priority of the Task of an overflow line that takes its turn. There is one such Task at most, so that no
    /// more than one is tried in vain.
    fn promoted_lane(&self) -> Option<Lane> {
        let key = self.overflow.promoted.as_ref().filter(|key| self.unfit.has(key))?;
        let waits = |it: &&LaneEntry| it.line.is_for_all() && it.has.ready > 0;
        self.entries.get(key).filter(waits).map(|it| it.place.0)
    }

    fn promote(&mut self, key: TaskKey, groups: GroupSet) {
        if let Some(other) = self.overflow.promoted.take() {
            self.move_to_its_line(&other, 0);
        }
        self.move_to(&key, LineKey::for_all(groups), 0);
        self.overflow.promoted = Some(key);
    }
}
