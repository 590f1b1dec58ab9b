//! What an Attempt is given: which Steps hand on their results to its Step (STEP-37), and what a heartbeat adds to
//! what is known of the input that its holder has seen (CTRL-12).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{StepRef, View};
use crate::id::{AttemptId, StepId};
use crate::rules::Rules;
use crate::table::Pos;

impl View<'_> {
    /// Whether the owner does not know yet that the holder of this open Attempt has seen so many entries of the Task's
    /// `input_refs`: neither its log says so, nor did an earlier heartbeat.
    pub fn is_news_of_input(&self, attempt: AttemptId, seen: u64) -> bool {
        let Some(pos) = self.task.attempts.find(&attempt) else { return false };
        let Some(known) = self.attempt(attempt).filter(|it| it.ended_at.is_none()) else {
            return false;
        };
        let heard = self.task.volatile.input_seen.get(&pos).copied().unwrap_or(0);
        let seen = seen.min(u64::from(self.head().input_count()));
        seen > u64::from(known.input_seen.max(heard))
    }
}

/// How many Steps a claim reaches through joins, at most, unless its Step names itself whose results it
/// gets. A join between many Steps and many others is a barrier: if each of those got all results, the
/// claims of a Task would take as much as the product of both.
const JOINED_MAX: usize = 1_000;

/// STEP-37: the Steps that hand on their results to a Step that names these, in its order and each
/// once: instead of a Step that only joins others, those that hand on to it. The cost is that of the
/// Steps that it returns and passes.
pub(crate) fn handed_on<'a>(
    view: &View<'a>,
    (named, is_chosen): (&[StepId], bool),
    seen: &mut BTreeSet<Pos>,
) -> Vec<StepRef<'a>> {
    let of = |ids: &[StepId]| ids.iter().rev().filter_map(|id| view.step(id)).collect::<Vec<_>>();
    let looks_through = view.head().rules >= Rules::Second;
    let (mut steps, mut next, mut joined) = (Vec::new(), of(named), 0);
    while let Some(step) = next.pop() {
        if !seen.insert(step.pos) {
            continue;
        }
        if !(looks_through && step.only_joins()) {
            steps.push(step);
        } else if !step.state.joins_nothing {
            let more = of(step.spec.inputs());
            joined += more.len();
            next.extend(more);
        }
        if joined > JOINED_MAX && !is_chosen {
            steps = of(named);
            steps.reverse();
            steps.retain(|step| !step.only_joins());
            break;
        }
    }
    steps
}
