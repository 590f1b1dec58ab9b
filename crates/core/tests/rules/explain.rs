//! Why a Step is not running: the same judgement as a claim's, with evidence and remedies.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use crate::explain_means::{ask_with, means, workers};
use crate::views;
use common::*;
use proptest::prelude::*;
use serde_json::Value as Json;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{Close, RunOutcome, StepReport, Why};
use tenure_core::eligibility::Obstacle;
use tenure_core::event::LeaseEnd;
use tenure_core::id::RunId;
use tenure_core::status::{Policy, StepStatus, WaitKind};
use tenure_core::view::explain::{Evidence, ForWhom};
use tenure_core::view::{Explanation, Known, QueryInput, explain, query_steps};
use tenure_core::{Code, Command, Task};
use views::*;

fn ask(t: &Fixture, step: &str, whom: ForWhom<'_>) -> Explanation {
    explain(&t.task.durable(), &id(step), whom, &Known::new(t.now, &alive))
        .expect("the step exists")
}

fn anybody(t: &Fixture, step: &str) -> Explanation {
    ask(t, step, ForWhom::default())
}

fn under(t: &Fixture, step: &str, run_id: RunId) -> Explanation {
    ask(t, step, ForWhom { run_id: Some(run_id), ..ForWhom::default() })
}

pub(crate) fn headline(of: &Explanation) -> &'static str {
    of.headline.as_str()
}

/// What would change the headline, as `operation step_id`.
fn remedies(of: &Explanation) -> Vec<String> {
    let remedies = of.reasons[0].remedies.iter();
    let line = |r: &tenure_core::view::explain::Remedy| {
        let on = r.step_id.as_ref().map(|s| format!(" {s}")).unwrap_or_default();
        let off = r.depends_on_step_id.as_ref().map(|s| format!(" off {s}")).unwrap_or_default();
        format!("{}{on}{off}", r.operation)
    };
    remedies.map(line).collect()
}

pub(crate) fn evidence(of: &Explanation) -> Json {
    as_json(&of.reasons[0].evidence)
}

/// TASK-03, TASK-12, CANCEL-02: what stops the Task stops its Steps, with what lifts the stop.
#[test]
fn a_stopped_task_is_the_reason() {
    let stops: [(&str, Command, &str, &[&str]); 5] = [
        ("task_paused", Command::PauseTask(Why::default()), "paused", &["resume_task"]),
        ("task_blocked", Command::BlockTask(Why::default()), "blocked", &["reopen_task"]),
        ("task_terminal", Command::TaskCancel(Close::default()), "cancelled", &["retry_task"]),
        ("task_terminal", Command::TaskFail(Close::default()), "failed", &["retry_task"]),
        ("task_draft", Command::Due, "draft", &["submit_task"]),
    ];
    for (expected, command, word, remedy) in stops {
        let mut t = match expected {
            "task_draft" => Fixture::draft("a"),
            _ => Fixture::manual("a"),
        };
        drop(t.run(&if command == Command::Due { system() } else { orchestrator() }, &command));
        let why = anybody(&t, "a");
        assert_eq!(
            (headline(&why), remedies(&why)),
            (expected, remedy.iter().map(|r| r.to_string()).collect())
        );
        assert!(why.text.contains(word), "{}", why.text);
    }
    let mut t = Fixture::manual("a b");
    t.claim("b");
    t.ok(Command::TaskCancel(Close::default()));
    let why = anybody(&t, "a");
    assert_eq!(headline(&why), "task_cancelling");
    assert_eq!(evidence(&why)["intent"], "cancel");
    assert!(evidence(&why)["deadline_at"].is_i64() && remedies(&why).is_empty());
}

/// S18, S29, STEP-13, STEP-35: a Step that failed or is blocked is reopened or marked; a cancelled one is
/// done without or replaced; a completed one needs nothing.
#[test]
fn a_settled_step_is_the_reason() {
    let at = |to: StepStatus| {
        let mut t = Fixture::manual("a b");
        t.bring("a", to);
        let why = anybody(&t, "a");
        (headline(&why), remedies(&why).join(", "))
    };
    assert_eq!(at(StepStatus::Completed), ("step_terminal", String::new()));
    assert_eq!(
        at(StepStatus::Cancelled),
        ("step_terminal", "update_step a, add_step, delete_step a".into())
    );
    let ways = "reopen_step a, agent.task_update_step a";
    assert_eq!(at(StepStatus::Failed), ("step_failed", ways.into()));
    assert_eq!(at(StepStatus::Blocked), ("step_blocked", ways.into()));
}

/// STEP-07: a blocked Step says what it waits for, in whose words, and which Attempt asked.
#[test]
fn a_blocked_step_shows_its_question() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let question = StepReport {
        status: Some(StepStatus::Blocked),
        wait_kind: Some(WaitKind::Input),
        reason: Some(reason("input", "which branch?")),
        ..held.says()
    };
    t.ok_as(&held.caller(), Command::TaskUpdateStep(question));
    let why = anybody(&t, "a");
    assert_eq!(why.text, "step a is blocked, waiting for input: which branch? (input)");
    assert_eq!(evidence(&why)["last_attempt_id"], held.attempt_id.to_string());
    assert_eq!(evidence(&why)["wait_kind"], "input");
}

/// CLAIM-13: who is named keeps others away, on the Step or on the Task, and not itself.
#[test]
fn who_is_named_keeps_others_away() {
    let mut given = create_input("a b");
    given.claim_only_by = Some(agent_id("bee"));
    let mut t = Fixture::create(given, Policy::Manual);
    t.ok(
        t.patch(json!([{"op": "update_step", "step_id": "b", "fields": {"claim_only_by": "bee"}}]))
    );
    let (ant, bee) = (agent_id("ant"), agent_id("bee.boot1"));
    let by = |step: &str, who| ask(&t, step, ForWhom { worker: Some(who), ..ForWhom::default() });
    assert_eq!(
        (headline(&by("a", &ant)), remedies(&by("a", &ant))),
        ("assigned_elsewhere", vec!["update_task".to_owned()])
    );
    assert_eq!(remedies(&by("b", &ant)), ["update_step b"]);
    assert_eq!(evidence(&by("b", &ant))["claim_only_by"], "bee");
    assert_eq!(headline(&by("a", &bee)), "needs_dispatch");
    assert_eq!(headline(&anybody(&t, "a")), "needs_dispatch", "nobody in particular asks");
}

/// READY-04, DAG-07: a Step behind a failed or cancelled one waits in vain; the first causes are
/// named, however far back, with what would reopen or detach them.
#[test]
fn waiting_in_vain_comes_down_to_its_first_causes() {
    let mut t = Fixture::manual("a x b<-a c<-b,x d<-c");
    t.bring("a", StepStatus::Failed);
    t.bring("x", StepStatus::Cancelled);
    let why = anybody(&t, "d");
    assert_eq!(headline(&why), "dependency_unsatisfiable");
    let Evidence::Dependencies { unmet, roots, more_roots } = &why.reasons[0].evidence else {
        panic!("{:?}", why.reasons[0].evidence)
    };
    let ids = |list: &[tenure_core::view::explain::DependencyState]| {
        list.iter().map(|d| format!("{}:{}", d.step_id, d.status)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        (ids(unmet).as_str(), ids(roots).as_str(), *more_roots),
        ("c:pending", "a:failed x:cancelled", 0)
    );
    assert_eq!(remedies(&why), ["reopen_step a", "remove_dependency d off c"]);
    assert_eq!(why.text, "step d waits in vain: a (failed: failed), x (cancelled)");
    assert_eq!(why.reasons.len(), 1, "that it also waits is not a reason of its own");
}

/// READY-03: a waiting Step names what it waits for directly, and the Steps that have to move next.
#[test]
fn waiting_comes_down_to_the_steps_that_move_next() {
    let mut t = Fixture::manual("a b<-a c d<-b,c e<-d");
    let held = t.claim("a");
    t.start(&held);
    t.bring("c", StepStatus::Blocked);
    let why = anybody(&t, "e");
    assert_eq!(headline(&why), "dependency_pending");
    assert_eq!(evidence(&why)["unmet"][0]["step_id"], "d");
    let roots = &evidence(&why)["roots"];
    assert_eq!((&roots[0]["step_id"], &roots[0]["status"]), (&json!("a"), &json!("running")));
    assert_eq!((&roots[1]["step_id"], &roots[1]["status"]), (&json!("c"), &json!("blocked")));
    assert_eq!(remedies(&why), ["reopen_step c"]);
    assert_eq!(why.text, "step e waits for a (running), c (blocked: blocked)");
}

/// A long chain costs no stack, and a wide one does not flood the answer.
#[test]
fn long_and_wide_graphs_are_explained_too() {
    let chain: Vec<String> = (0..3_000)
        .map(|n| if n == 0 { "s0".into() } else { format!("s{n}<-s{}", n - 1) })
        .collect();
    let t = Fixture::manual(&chain.join(" "));
    assert_eq!(anybody(&t, "s2999").text, "step s2999 waits for s0 (ready)");
    let wide: Vec<String> = (0..100).map(|n| format!("w{n}")).collect();
    let t = Fixture::manual(&format!("{} last<-{}", wide.join(" "), wide.join(",")));
    let why = anybody(&t, "last");
    let shown = evidence(&why);
    assert_eq!(shown["roots"].as_array().unwrap().len(), 20);
    assert_eq!(shown["more_roots"], 80);
    assert!(why.text.ends_with("w4 (ready) and 95 more"), "{}", why.text);
}

/// READY-05: the end of the backoff, absolute and from now.
#[test]
fn a_backoff_says_when_it_ends() {
    let policy = json!({"max_attempts": 2, "backoff": {"initial_ms": 500, "jitter": 0.0}});
    let retry_policy = serde_json::from_value(policy).unwrap();
    let given = CreateTask { retry_policy: Some(retry_policy), ..create_input("a") };
    let mut t = Fixture::create(given, Policy::Manual);
    let held = t.claim("a");
    t.report(&held, StepStatus::Failed);
    t.wait_ms(100);
    let why = anybody(&t, "a");
    assert_eq!((headline(&why), evidence(&why)["in_ms"].as_u64()), ("not_before", Some(400)));
    assert_eq!(evidence(&why)["not_before"], t.step("a").state.not_before.unwrap());
    assert_eq!(why.text, "step a is tried again in 400 ms");
    assert!(remedies(&why).is_empty());
}

/// CLAIM-07: a held Step names its holder, Run, Attempt and lease.
#[test]
fn a_held_step_names_its_holder() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let why = anybody(&t, "a");
    assert_eq!(headline(&why), "held");
    let shown = &evidence(&why)["holder"];
    assert_eq!(shown["claimed_by_agent_id"], "ant");
    assert_eq!(shown["claimed_by_run_id"], held.run_id.to_string());
    assert_eq!(shown["current_attempt_id"], held.attempt_id.to_string());
    assert_eq!(
        (&shown["lease_expires_at"], &shown["lease_state"]),
        (&json!(START + 60_000), &json!("valid"))
    );
    assert_eq!(why.reasons[0].remedies[0].run_id, Some(held.run_id));
    assert_eq!(remedies(&why), ["cancel_run"]);
}

/// DISP-10, CLAIM-03: a Run of another pool, with another list, spent, ended or expired may not
/// claim.
#[test]
fn a_run_that_may_not_claim_is_the_reason() {
    let mut t = Fixture::manual("a b c@gpu");
    let (bound, gpu) = (t.dispatch_for("main", Some(&["b"])), t.dispatch("gpu"));
    let spent = t.claim("b");
    let free = t.dispatch("main");
    for run in [bound, gpu, spent.run_id] {
        let why = under(&t, "a", run);
        assert_eq!(
            (headline(&why), remedies(&why)),
            ("scope_excludes", vec!["dispatch_worker".to_owned()])
        );
        assert_eq!(evidence(&why)["run_id"], run.to_string());
    }
    assert_eq!(evidence(&under(&t, "a", bound))["allowed_step_ids"], json!(["b"]));
    assert_eq!(evidence(&under(&t, "a", gpu))["run_pool_id"], "gpu");
    assert_eq!(evidence(&under(&t, "a", spent.run_id))["attempt_id"], spent.attempt_id.to_string());
    assert_eq!(headline(&under(&t, "a", free)), "runnable_now");
    t.wait_ms(1_000_000);
    assert_eq!(headline(&under(&t, "a", free)), "scope_excludes", "it has expired");
}

/// VIEW-16, READY-07: a ready Step of a manual Task waits for a dispatch, until there is a Run that may claim
/// it: one of its pool, for this Step, that nobody has used, that has not expired, and that no other worker
/// than the one in the question has taken.
#[test]
fn a_ready_step_of_a_manual_task_waits_for_a_dispatch() {
    let mut t = Fixture::manual("a b c@gpu");
    let waits = |t: &Fixture| {
        let why = anybody(t, "a");
        assert_eq!(
            (headline(&why), remedies(&why)),
            ("needs_dispatch", vec!["dispatch_worker".to_owned()])
        );
    };
    waits(&t);
    t.dispatch("gpu");
    waits(&t);
    t.dispatch_for("main", Some(&["b"]));
    waits(&t);
    t.claim("b");
    waits(&t);
    let ended = t.dispatch("main");
    let ant = t.member("ant", ended);
    t.ok_as(&ant, end_run(ended, RunOutcome::Finished));
    waits(&t);
    for scope in [None, Some(["c", "a"].as_slice())] {
        let mut t = t.clone();
        let run = t.dispatch_for("main", scope);
        let why = anybody(&t, "a");
        assert_eq!((headline(&why), remedies(&why)), ("runnable_now", Vec::new()));
        t.takes(run, "ant");
        assert_eq!(headline(&anybody(&t, "a")), "runnable_now", "it is about to claim");
        for (who, expected) in [("ant", "runnable_now"), ("bee", "needs_dispatch")] {
            let who = agent_id(who);
            let why = ask(&t, "a", ForWhom { worker: Some(&who), ..ForWhom::default() });
            assert_eq!(headline(&why), expected, "{who}");
        }
        t.wait_ms(300_000);
        waits(&t);
    }
}

/// VIEW-17: a Step that nothing keeps can be claimed, as far as is known.
#[test]
fn a_step_that_nothing_keeps_can_be_claimed() {
    let t = Fixture::auto("a");
    let unknown = "step a is ready; whether a worker has room for it is not known here";
    assert_eq!(anybody(&t, "a").text, unknown);
    let room = workers(1, 1, 1);
    let known = ask_with(&t, "a", ForWhom::default(), means(&room));
    assert_eq!(known.text, "step a can be claimed now");
    assert!(remedies(&anybody(&t, "a")).is_empty());
}

/// Reasons come most decisive first, and the first is the headline.
#[test]
fn the_most_decisive_reason_comes_first() {
    let mut t = Fixture::manual("a b<-a");
    t.bring("a", StepStatus::Failed);
    t.ok(Command::PauseTask(Why::default()));
    let why = anybody(&t, "b");
    let codes: Vec<_> = why.reasons.iter().map(|r| r.code).collect();
    assert_eq!(codes, [Obstacle::TaskPaused, Obstacle::DependencyUnsatisfiable]);
    assert_eq!((why.headline, &why.text), (codes[0], &why.reasons[0].text));
}

/// What is asked of nothing is refused.
#[test]
fn unknown_steps_and_runs_are_refused() {
    let mut t = Fixture::manual("a");
    let view = t.task.durable();
    let no = explain(&view, &id("b"), ForWhom::default(), &known()).unwrap_err();
    assert_eq!(no.code, Code::StepNotFound);
    let run_id = Some("00000000-0000-0000-0000-00000000ffff".parse().unwrap());
    let no = explain(&view, &id("a"), ForWhom { run_id, ..ForWhom::default() }, &known());
    assert_eq!(no.unwrap_err().code, Code::RunNotFound);
    t.dispatch("main");
}

/// An explanation is data, and reads back.
#[test]
fn an_explanation_survives_the_wire() {
    let mut t = Fixture::manual("a b<-a");
    let held = t.claim("a");
    for why in [anybody(&t, "a"), anybody(&t, "b"), under(&t, "b", held.run_id)] {
        let again: Explanation = serde_json::from_value(as_json(&why)).unwrap();
        assert_eq!(again, why);
    }
}

/// Every Run of a Task with every Step of it.
fn pairs(task: &Task) -> Vec<(RunId, String, String)> {
    let view = task.durable();
    let runs: Vec<_> = view.runs().map(|(_, r)| (r.run_id, r.worker_pool_id.to_string())).collect();
    let steps: Vec<_> = view.steps().map(|s| s.id().to_string()).collect();
    let both = runs
        .iter()
        .flat_map(|(run, pool)| steps.iter().map(move |step| (*run, pool.clone(), step.clone())));
    both.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// VIEW-16, one judgement: for every Run and Step of any Task, a claim succeeds exactly when the
    /// explanation for that Run says `runnable_now`, and when a query under it shows the Step.
    #[test]
    fn a_claim_succeeds_exactly_when_the_explanation_says_so(
        dag in dags(), auto in any::<bool>(), moves in moves(60), wait in 0..2_u8,
    ) {
        let mut t = after(dag, auto, &moves);
        t.wait_ms(i64::from(wait) * 400_000);
        for (run_id, pool, step) in pairs(&t.task) {
            let now = t.now + 1;
            let ant = agent_id("ant");
            let (whom, nobody) = (ForWhom { run_id: Some(run_id), worker: Some(&ant) }, workers(0, 0, 0));
            let known = Known { means: Some(means(&nobody)), ..Known::new(now, &alive) };
            let why = explain(&t.task.durable(), &id(&step), whom, &known).unwrap();
            let mut trial = t.task.clone();
            let caller = worker("ant", &pool, Some(run_id));
            let claimed = decide(&mut trial, &caller, &claim_command(run_id, &step), now, u128::MAX);
            prop_assert_eq!(
                claimed.is_ok(), why.headline == Obstacle::RunnableNow,
                "{} under {}: {:?} but {:?}", step, run_id, claimed.map(|_| ()), why
            );
            let statuses = Some(vec![StepStatus::Ready]);
            let ready = QueryInput { statuses, limit: Some(50), ..QueryInput::default() };
            let page = query_steps(&t.task.durable(), &caller, &ready, &known, &t.limits);
            let is_shown = page.is_ok_and(|page| page.steps.iter().any(|s| s.spec.step_id == id(&step)));
            prop_assert_eq!(is_shown, why.headline == Obstacle::RunnableNow, "{} {:?}", step, why);
            let of_pool = |o: &Obstacle| tenure_core::task::Waits::BESIDE.contains(o);
            prop_assert!(!why.reasons.iter().any(|r| of_pool(&r.code)), "a run is named");
        }
    }

    /// Every Step of any Task has an explanation: at least one reason, in order, each in one line,
    /// and `runnable_now` for nobody in particular exactly where the Step is ready in a Task that
    /// gives Steps out.
    #[test]
    fn every_step_has_an_explanation(
        dag in dags(), auto in any::<bool>(), moves in moves(60),
    ) {
        let t = after(dag, auto, &moves);
        let view = t.task.durable();
        for step in view.steps() {
            let why = explain(&view, step.id(), ForWhom::default(), &known()).unwrap();
            let codes: Vec<_> = why.reasons.iter().map(|r| r.code).collect();
            prop_assert!(!codes.is_empty() && codes.is_sorted() && codes[0] == why.headline);
            prop_assert!(why.reasons.iter().all(|r| !r.text.is_empty() && !r.text.contains('\n')));
            let is_open = auto || view.runs().any(|(_, run)| {
                let allowed = run.allowed_step_ids.as_ref();
                run.is_unused()
                    && run.worker_pool_id == step.spec.worker_pool_id
                    && allowed.is_none_or(|ids| ids.contains(step.id()))
            });
            let runnable = step.status() == StepStatus::Ready && view.gives_out() && is_open;
            prop_assert_eq!(why.headline == Obstacle::RunnableNow, runnable, "{:?}", why);
        }
    }
}

/// LEASE-11: once its lease was judged, a lost Step can be claimed again and says so.
#[test]
fn a_lost_step_is_runnable_again() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let attempt_ids = vec![held.attempt_id];
    t.ok_as(&system(), Command::ExpireLeases { attempt_ids, reason: LeaseEnd::LeaseExpired });
    let run = t.dispatch("main");
    assert_eq!(headline(&under(&t, "a", run)), "runnable_now");
    assert_eq!(headline(&under(&t, "a", held.run_id)), "scope_excludes");
}
