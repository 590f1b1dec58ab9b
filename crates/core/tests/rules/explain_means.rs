//! Why a Step is not running although its Task has nothing against it: workers, the log, leases.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use crate::explain::{evidence, headline};
use crate::views;
use common::*;
use tenure_core::command::create::CreateTask;
use tenure_core::eligibility::{Wanted, WorkerCounts};
use tenure_core::status::{Policy, StepStatus};
use tenure_core::view::explain::{Evidence, ForWhom};
use tenure_core::view::{Explanation, Known, Means, TaskExplanation, explain, explain_task};
use views::*;

/// The same, where this is known of workers, the log and leases.
pub(crate) fn ask_with(
    t: &Fixture,
    step: &str,
    whom: ForWhom<'_>,
    means: Means<'_>,
) -> Explanation {
    let known = Known { means: Some(means), ..Known::new(t.now, &alive) };
    explain(&t.task.durable(), &id(step), whom, &known).expect("the step exists")
}

pub(crate) fn means(workers: &dyn Fn(Wanted<'_>) -> WorkerCounts) -> Means<'_> {
    Means { workers, log_trouble: None, lacks_leases: false }
}

/// As many workers, of which so many have the handler, with so much room.
pub(crate) fn workers(workers: u32, able: u32, free: u32) -> impl Fn(Wanted<'_>) -> WorkerCounts {
    move |_| WorkerCounts { workers, serving: workers, able, free }
}

/// VIEW-17: the pool's workers are a reason where no Run is named: none there, none that has the handler,
/// or none of those free.
#[test]
fn a_pool_that_is_empty_cannot_or_is_busy_is_the_last_reason() {
    let t = Fixture::auto("a b<-a");
    let with = |step: &str, known, able, free| {
        ask_with(&t, step, ForWhom::default(), means(&workers(known, able, free)))
    };
    assert_eq!(headline(&with("a", 0, 0, 0)), "no_worker_in_pool");
    assert_eq!(headline(&with("a", 2, 0, 0)), "no_worker_with_handler");
    assert_eq!(headline(&with("a", 2, 1, 0)), "pool_saturated");
    assert_eq!(headline(&with("a", 2, 1, 1)), "runnable_now");
    assert_eq!(
        evidence(&with("a", 2, 1, 0)),
        json!({"worker_pool_id": "main", "handler": "default", "workers": 2, "able": 1, "free": 0})
    );
    assert_eq!(with("a", 3, 0, 0).text, "no worker of pool main has handler default (3 known)");
    let both = with("b", 0, 0, 0);
    let codes: Vec<_> = both.reasons.iter().map(|r| r.code.as_str()).collect();
    assert_eq!(codes, ["dependency_pending", "no_worker_in_pool"]);
}

/// VIEW-17, LEASE-01, WAL-06: a log that takes no writes, and leases that cannot be had, keep every Step
/// that waits from being given out; a Run's own claim has no need of the leases at once.
#[test]
fn what_no_claim_can_do_without_is_a_reason() {
    let mut t = Fixture::manual("a b c<-b");
    let held = t.claim("b");
    let run_id = Some(t.dispatch("main"));
    let room = workers(1, 1, 1);
    let full = Means { log_trouble: Some("no space\nleft"), ..means(&room) };
    let leaseless = Means { lacks_leases: true, ..means(&room) };
    let run = ForWhom { run_id, ..ForWhom::default() };
    for (step, whom, means, expected) in [
        ("a", ForWhom::default(), full, "log_unavailable"),
        ("a", run, full, "log_unavailable"),
        ("a", ForWhom::default(), leaseless, "leases_unavailable"),
        ("a", run, leaseless, "runnable_now"),
        ("b", ForWhom::default(), full, "held"),
        ("c", ForWhom::default(), full, "dependency_pending"),
    ] {
        let why = ask_with(&t, step, whom, means);
        assert_eq!(headline(&why), expected, "{step} {whom:?} {means:?}");
        assert!(why.reasons.iter().all(|r| !r.text.contains('\n')), "{why:?}");
    }
    let why = ask_with(&t, "a", ForWhom::default(), full);
    assert_eq!(why.text, "the log takes no writes: no space");
    assert_eq!(evidence(&why), json!({"trouble": "no space"}));
    let why = ask_with(&t, "b", ForWhom::default(), full);
    assert_eq!((why.reasons.len(), held.attempt_id), (1, holder(&why)), "who has it needs neither");
}

fn holder(of: &Explanation) -> tenure_core::id::AttemptId {
    match &of.reasons[0].evidence {
        Evidence::Held { holder, .. } => holder.current_attempt_id,
        other => panic!("{other:?}"),
    }
}

/// VIEW-17, CLAIM-13: only workers count that may claim the Step: those of the principal named, or who is asked about.
#[test]
fn workers_count_that_may_claim_the_step() {
    let only = Some(agent_id("bee"));
    let t = Fixture::create(CreateTask { claim_only_by: only, ..create_input("a") }, Policy::Auto);
    let (ant, bee) = (agent_id("ant"), agent_id("bee"));
    let there = |who: &'static str| {
        move |wanted: Wanted<'_>| {
            let mut facts = WorkerCounts::default();
            if wanted.admits(&agent_id(who)) {
                facts.add(true, false, 3);
            }
            facts
        }
    };
    let by = |whom, who: &'static str| {
        let worker = Some(whom);
        ask_with(&t, "a", ForWhom { worker, ..ForWhom::default() }, means(&there(who)))
    };
    let nobody = |who: &'static str| ask_with(&t, "a", ForWhom::default(), means(&there(who)));
    let text = "worker bee is not in pool main, and no other may claim step a";
    assert_eq!((headline(&nobody("ant")), &*nobody("ant").text), ("no_worker_in_pool", text));
    let text = "worker bee does not have handler default, and no other may claim step a";
    assert_eq!((headline(&nobody("bee")), &*nobody("bee").text), ("no_worker_with_handler", text));
    let why = by(&ant, "ant");
    assert_eq!((headline(&why), why.reasons.len()), ("assigned_elsewhere", 1));
    let why = by(&bee, "ant");
    assert_eq!(
        (headline(&why), &*why.text),
        ("no_worker_in_pool", "worker bee is not in pool main")
    );
}

/// VIEW-17: a Task's Steps are told in groups, each with the headline that each of its Steps is told alone;
/// the answer is short, and can be made shorter.
#[test]
fn a_task_is_told_in_groups_that_say_what_each_step_is_told() {
    let mut t = Fixture::auto("a b c<-a d<-c e<-f f g");
    t.bring("f", StepStatus::Failed);
    t.bring("g", StepStatus::Blocked);
    for means in [means(&workers(0, 0, 0)), means(&workers(1, 0, 0)), means(&workers(1, 1, 1))] {
        let known = Known { means: Some(means), ..Known::new(t.now, &alive) };
        let view = t.task.durable();
        let mut told = explain_task(&view, ForWhom::default(), &known).unwrap();
        let mut seen = 0;
        for group in &told.groups {
            assert_eq!((group.count, group.more), (group.step_ids.len(), 0));
            seen += group.count;
            for step in &group.step_ids {
                let alone = explain(&view, step, ForWhom::default(), &known).unwrap();
                assert_eq!(alone.headline, group.headline, "{step}");
            }
        }
        assert_eq!((seen, told.groups.is_sorted_by_key(|group| group.headline)), (7, true));
        while told.shorten() {}
        assert!(told.groups.iter().all(|g| g.step_ids.len() == 1 && g.more + 1 == g.count));
        let json = serde_json::to_value(&told).unwrap();
        assert_eq!(serde_json::from_value::<TaskExplanation>(json).unwrap(), told);
    }
}
