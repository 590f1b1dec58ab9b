//! Reading past what is not durable: `Task::durable` against a copy of the Task taken before.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use crate::views;
use common::*;
use proptest::prelude::*;
use tenure_core::Command;
use tenure_core::Task;
use tenure_core::view::{Facts, RunEnd, TaskView, View, graph};
use views::*;

/// Everything that a view can be asked.
fn everything(view: &View<'_>) -> (TaskView, String) {
    let known = known();
    let ids = |steps: &mut dyn Iterator<Item = tenure_core::view::StepRef<'_>>| -> Vec<String> {
        steps.map(|s| s.id().to_string()).collect()
    };
    let pools = ["main", "gpu"].map(pool_id);
    let lists = [
        ids(&mut view.held()),
        ids(&mut view.failed()),
        ids(&mut view.blocked()),
        ids(&mut view.cancelled_required()),
        ids(&mut view.ready_in_pool(&pools[0])),
        ids(&mut view.ready_in_pool(&pools[1])),
        view.live_runs().map(|(_, run)| run.run_id.to_string()).collect(),
        view.open_attempts().map(|a| a.attempt_id.to_string()).collect(),
        view.steps().flat_map(|s| view.attempts_of(s).map(|a| a.attempt_id.to_string())).collect(),
    ];
    let known_steps: Vec<_> = view.steps().map(|s| view.step(s.id()) == Some(s)).collect();
    let ends: Vec<_> = view.runs().map(|(pos, _)| RunEnd::of(view, pos)).collect();
    let asked: Vec<_> = view.attempts().map(|a| view.is_asked_to_stop(a)).collect();
    let rest = format!(
        "{lists:?} {known_steps:?} {:?} {:?} {:?} {:?} {:?} {:?} {ends:?} {asked:?}",
        view.tally(),
        Facts::of(view, &known),
        graph(view, &known),
        view.artifacts()
            .map(|a| view.artifact(&a.given.artifact_id) == Some(a))
            .collect::<Vec<_>>(),
        view.attempts().map(|a| view.attempt(a.attempt_id) == Some(a)).collect::<Vec<_>>(),
        view.version(),
    );
    (TaskView::of(view, &known), rest)
}

/// Decides moves without appending any of them; answers how many were carried out.
fn run_ahead(task: &mut Task, moves: &[Move], now: i64) -> usize {
    let mut done = 0;
    for (at, &one) in (1..).zip(moves) {
        let (caller, command) = read_move(task, one);
        let outcome = decide(task, &caller, &command, now + at, 1_000_000 + at as u128);
        done += usize::from(outcome.is_ok_and(|o| o.commit.is_some()));
    }
    done
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    /// Mechanisms 2, WAL-07: while commits are in flight, readers see the last durable state, exactly,
    /// and of what only the owner's memory holds what was there before; settled, they see it all.
    #[test]
    fn a_durable_view_is_the_task_as_it_was_before(
        dag in dags(), auto in any::<bool>(), first in moves(40), ahead in moves(12),
    ) {
        let mut t = after(dag, auto, &first);
        let before = t.task.clone();
        let done = run_ahead(&mut t.task, &ahead, t.now);
        let (now, then) = (everything(&t.task.durable()), everything(&before.durable()));
        prop_assert_eq!(now, then);
        prop_assert_eq!(t.task.durable().version(), before.version());
        prop_assert_eq!(everything(&t.task.durable().to_task().durable()), everything(&before.durable()));
        t.task.settle();
        prop_assert!(done == 0 || t.task.durable().version() > before.version());
    }
}
