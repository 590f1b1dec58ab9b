//! What a Task has left for the workers of a pool.

use std::iter::once;
use std::sync::Arc;

use tenure_core::Task;
use tenure_core::id::{HandlerName, Millis, PoolId, StepId};

use crate::task::address::Address;

/// Of so many handlers a Task says how many Steps they have; it says together how many the others have. Whoever makes
/// a Task chooses their names, and a pool keeps them for as long as the Task waits.
pub(super) const TOLD_APART: usize = 64;

/// What a Task has left for the workers of a pool, and sends to the pool.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) task: Address,
    pub(crate) priority: i32,
    /// Ready Steps and Runs to take.
    pub(crate) ready: usize,
    /// How many of them are Steps, by handler.
    pub(super) steps: HandlerSteps,
    /// The Step that is next in line, and since when it has been ready.
    pub(crate) next: Option<(Millis, StepId)>,
    /// The Task takes no credits for now: it waits all the same, and is counted.
    pub(crate) is_withheld: bool,
}

/// How many Steps a Task has by handler. Most Tasks have one handler, and a copy costs little for any.
#[derive(Debug, Clone, Default)]
pub(super) struct HandlerSteps {
    first: Option<(HandlerName, usize)>,
    more: Option<Arc<[(HandlerName, usize)]>>,
    /// How many Steps the handlers have that are not told apart.
    others: usize,
}

impl HandlerSteps {
    /// Steps of handlers, each named once.
    pub(super) fn of<'a>(mut steps: impl Iterator<Item = (&'a HandlerName, usize)>) -> Self {
        let mut named = steps.by_ref().map(|(name, count)| (name.clone(), count));
        let first = named.next();
        let more: Vec<_> = named.take(TOLD_APART - 1).collect();
        let more = (!more.is_empty()).then(|| more.into());
        Self { first, more, others: steps.map(|(_, count)| count).sum() }
    }

    /// The same of only so many Steps. `None`: handlers that are not told apart.
    pub(super) fn ready(
        &self,
        ready: usize,
    ) -> impl Iterator<Item = (Option<&HandlerName>, usize)> {
        let named = self.first.iter().chain(self.more.iter().flat_map(|more| more.iter()));
        let counts = named.map(|(handler, count)| (Some(handler), *count));
        counts.chain(once((None, self.others))).scan(ready, |left, (handler, count)| {
            let ready = count.min(*left);
            *left -= ready;
            Some((handler, ready))
        })
    }
}

impl Left {
    /// What a Task has left for this pool, with `ready` Steps and Runs.
    pub(crate) fn of(task: &Task, at: &Address, pool: &PoolId, ready: usize) -> Self {
        Self {
            task: at.clone(),
            priority: task.head().spec.priority,
            ready,
            steps: HandlerSteps::of(task.given_out_in(pool)),
            next: task.next_ready(pool).map(|(since, step)| (since, step.clone())),
            is_withheld: false,
        }
    }

    /// How many of the Steps are ready.
    pub(super) fn ready_steps(&self) -> u64 {
        self.steps.ready(self.ready).map(|(_, count)| count as u64).sum()
    }

    /// The same of a Task that begins nothing for now, as the log or the store of leases does not answer.
    pub(crate) fn withheld(self, is_withheld: bool) -> Self {
        Self { is_withheld, ..self }
    }

    pub(crate) fn nothing(at: &Address) -> Self {
        let (steps, next) = (HandlerSteps::default(), None);
        Self { task: at.clone(), priority: 0, ready: 0, steps, next, is_withheld: false }
    }
}
