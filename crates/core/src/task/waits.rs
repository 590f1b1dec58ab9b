//! Counts what the Steps of a Task wait for.

use super::Task;
use crate::eligibility::Obstacle;
use crate::status::{StepStatus, TaskStatus};

/// How many Steps wait, by their greatest obstacle: the first of
/// [`obstacles`](crate::eligibility::obstacles) for a caller that is no particular Run. Steps that
/// a worker has, and Steps that have ended, do not wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits([u32; Obstacle::ALL.len()]);

impl Waits {
    /// The obstacles that the Task alone can show, for a caller that is no particular Run.
    pub const REASONS: &'static [Obstacle] = &[
        Obstacle::TaskCancelling,
        Obstacle::TaskDraft,
        Obstacle::TaskBlocked,
        Obstacle::TaskPaused,
        Obstacle::TaskFailing,
        Obstacle::StepBlocked,
        Obstacle::DependencyUnsatisfiable,
        Obstacle::DependencyPending,
        Obstacle::NotBefore,
        Obstacle::RunnableNow,
    ];

    /// The further obstacles of a Step that is `runnable_now` by its Task: those of the pool, the
    /// log and the leases ([`Means`](crate::view::Means)).
    pub const BESIDE: &'static [Obstacle] = &[
        Obstacle::LogUnavailable,
        Obstacle::LeasesUnavailable,
        Obstacle::NoWorkerInPool,
        Obstacle::NoWorkerServesSession,
        Obstacle::NoWorkerWithHandler,
        Obstacle::PoolSaturated,
    ];

    /// The counts, by obstacle.
    pub fn iter(&self) -> impl Iterator<Item = (Obstacle, u32)> {
        Obstacle::ALL.iter().copied().zip(self.counts())
    }

    /// The counts, in the order of [`Obstacle::ALL`].
    pub fn counts(&self) -> impl Iterator<Item = u32> {
        self.0.into_iter()
    }

    /// How many are ready: nothing of the Task stands in their way.
    pub const fn ready(&self) -> u32 {
        self.0[Obstacle::RunnableNow as usize]
    }

    fn set(&mut self, obstacle: Obstacle, count: u32) {
        self.0[obstacle as usize] = count;
    }
}

impl Task {
    /// Counts what its Steps wait for. The cost does not depend on how many Steps there are.
    pub fn waits(&self) -> Waits {
        use Obstacle as O;
        let (head, tally) = (&self.head, self.tally());
        let mut waits = Waits::default();
        let whole = match head.status {
            status if status.is_terminal() => return waits,
            _ if head.cancel_requested.is_some() => Some(O::TaskCancelling),
            TaskStatus::Draft => Some(O::TaskDraft),
            TaskStatus::Blocked => Some(O::TaskBlocked),
            TaskStatus::Paused => Some(O::TaskPaused),
            _ if head.is_draining(tally) => Some(O::TaskFailing),
            _ => None,
        };
        if let Some(whole) = whole {
            waits.set(whole, tally.unfinished() - tally.held());
            return waits;
        }
        let for_dependencies =
            tally.of(StepStatus::Pending) - tally.unsatisfiable - tally.backing_off;
        waits.set(O::StepBlocked, tally.of(StepStatus::Blocked));
        waits.set(O::DependencyUnsatisfiable, tally.unsatisfiable);
        waits.set(O::DependencyPending, for_dependencies);
        waits.set(O::NotBefore, tally.backing_off);
        waits.set(O::RunnableNow, tally.of(StepStatus::Ready));
        waits
    }
}
