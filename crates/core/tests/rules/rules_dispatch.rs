//! DISP: `dispatch_worker` and the Runs it makes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use serde_json::Value as Json;
use tenure_core::command::{Dispatch, EndRun, RunOutcome, RunTtl, Wait};
use tenure_core::event::Bindings;
use tenure_core::id::RunId;
use tenure_core::status::{Policy, RunState, StepStatus};
use tenure_core::task::Made;
use tenure_core::view::{RunEnd, RunView};
use tenure_core::{Code, Command, Limits};

fn dispatch() -> Dispatch {
    Dispatch::to(pool_id(POOL))
}

/// CTRL-08, DISP-02, DISP-05, R01, U14, DISP-16: a dispatch makes a Run of the log, with everything it was
/// given, and starts nothing.
#[test]
fn a_dispatch_makes_a_run() {
    let mut t = Fixture::manual("a");
    let bindings = Bindings { thread_id: Some("th".into()), environment_ref: Some("env".into()) };
    let outcome = t.ok(Command::DispatchWorker(Dispatch {
        bindings: Some(bindings.clone()),
        instructions: Some("be kind".into()),
        ..dispatch()
    }));
    assert_eq!(t.events(), ["task_run_dispatched"]);
    assert_eq!(t.actors(), [ORCHESTRATOR]);
    let Made::Run(at) = outcome.reply.made else { panic!("{:?}", outcome.reply.made) };
    t.restart();
    let run = t.task.run_at(at);
    assert_eq!(
        (run.state, run.attempt, run.worker_id.as_ref()),
        (RunState::Dispatched, None, None)
    );
    assert_eq!((run.dispatch_version, run.expires_at), (t.task.version(), Some(t.now + 300_000)));
    assert_eq!(run.dispatched_by.as_str(), ORCHESTRATOR);
    assert_eq!(run.instructions.as_deref(), Some("be kind"));
    assert_eq!(run.bindings.as_deref(), Some(&bindings));
    assert_eq!(run.allowed_step_ids, None);
    assert_eq!(t.status("a"), StepStatus::Ready);
}

/// DISP-06, DISP-07, DISP-08, DISP-09: what `allowed_step_ids` may name.
#[test]
fn a_scope_names_known_steps_once() {
    let mut t = Fixture::manual("a b<-a gone");
    t.ok(patch(json!([{"op": "delete_step", "step_id": "gone"}])));
    let scope = |ids: &[&str]| {
        let allowed_step_ids = Some(ids.iter().map(|i| id(i)).collect());
        Command::DispatchWorker(Dispatch { allowed_step_ids, ..dispatch() })
    };
    let no = t.refuse(scope(&[]), Code::ValidationError);
    assert_eq!(no.details["field"], "allowed_step_ids");
    for unknown in ["never", "gone"] {
        let no = t.refuse(scope(&["a", unknown]), Code::StepNotFound);
        assert_eq!(no.details["step_id"], unknown);
    }
    t.ok(scope(&["b", "a", "b", "a"]));
    assert_eq!(t.payload("task_run_dispatched")["allowed_step_ids"], json!(["b", "a"]));
}

/// DISP-10, DISP-11: the scope is hard, whatever the status; inside it the worker picks.
#[test]
fn a_run_claims_inside_its_scope_only() {
    let mut t = Fixture::manual("a b c x@gpu");
    let run = t.dispatch_for(POOL, Some(&["b", "c", "x"]));
    let ant = t.member("ant", run);
    t.refuse_as(&ant, claim_command(run, "a"), Code::StepOutOfScope);
    t.refuse_as(&ant, claim_command(run, "x"), Code::StepOutOfScope);
    t.ok_as(&ant, claim_command(run, "c"));
}

/// DISP-04, TASK-09: a Task that stands still, is closing or has ended is not dispatched.
#[test]
fn a_task_that_cannot_run_is_not_dispatched() {
    let go = || Command::DispatchWorker(dispatch());
    let mut t = Fixture::draft("a");
    assert_eq!(t.refuse(go(), Code::TaskNotDispatchable).details["status"], "draft");
    let mut t = Fixture::manual("a");
    t.ok(block_task());
    assert_eq!(t.refuse(go(), Code::TaskNotDispatchable).details["status"], "blocked");
    t.ok(Command::ReopenTask(Default::default()));
    t.ok(Command::PauseTask(Default::default()));
    assert_eq!(t.refuse(go(), Code::TaskNotDispatchable).details["status"], "paused");
    t.ok(Command::ResumeTask(Default::default()));
    t.claim("a");
    t.ok(cancel_task());
    t.refuse(go(), Code::TaskCancelling);
    t.due_at(t.task.next_due().unwrap());
    t.refuse(go(), Code::TaskTerminal);
}

/// 5.2 `agent.dispatch_worker`: the Task's status is judged before the ids.
#[test]
fn dispatchs_checks_come_in_the_order_of_the_table() {
    let mut t = Fixture::manual("a");
    t.ok(block_task());
    let allowed_step_ids = Some(vec![id("never")]);
    let command = Command::DispatchWorker(Dispatch { allowed_step_ids, ..dispatch() });
    t.refuse(command, Code::TaskNotDispatchable);
}

/// DISP-01, DISP-03, DISP-14: under dispatch=auto an orchestrator may still dispatch, and nobody
/// else; such a Run is no automatic one.
#[test]
fn an_automatic_task_may_be_dispatched_by_hand() {
    let mut t = Fixture::auto("a b");
    let dispatching = Command::DispatchWorker(dispatch());
    t.refuse_as(&worker("ant", POOL, None), dispatching, Code::ToolNotAvailable);
    let held = t.claim("b");
    assert_eq!(t.run_of(held.run_id).dispatched_by.as_str(), ORCHESTRATOR);
    let granted = t.grant("bee", POOL).unwrap();
    assert_eq!(t.run_of(granted.run_id).dispatched_by.as_str(), "system");
}

/// DISP-12, DISP-13, P35: a caller may wait for the Run's end; a replay waits again until it has
/// ended.
#[test]
fn a_dispatcher_may_wait_for_the_runs_end() {
    let mut t = Fixture::manual("a");
    let waiting = Command::DispatchWorker(Dispatch { wait: Some(true), ..dispatch() });
    let envelope =
        Envelope { command_id: Some("d".into()), digest: Some([4; 32]), ..Envelope::default() };
    let first = t.run_with(&orchestrator(), &waiting, &envelope).unwrap();
    let Some(Wait::RunEnd(at)) = first.reply.waits else { panic!("{:?}", first.reply.waits) };
    let again = t.run_with(&orchestrator(), &waiting, &envelope).unwrap();
    assert_eq!((again.reply.waits, again.reply.made), (first.reply.waits, Made::Run(at)));
    let held = t.claim_under("ant", t.task.run_at(at).run_id, "a");
    t.end(&held, RunOutcome::Finished);
    let again = t.run_with(&orchestrator(), &waiting, &envelope).unwrap();
    assert_eq!((again.reply.waits, again.commit), (None, None));
}

/// TASK-13, R05: Runs that nobody used outlive a pause.
#[test]
fn unused_runs_outlive_a_pause() {
    let mut t = Fixture::manual("a");
    let run = t.dispatch(POOL);
    t.ok(Command::PauseTask(Default::default()));
    t.ok(Command::ResumeTask(Default::default()));
    t.claim_under("ant", run, "a");
}

/// DISP-02: a Run waits to be used as long as its dispatcher says, by default `agents.run_ttl_ms`.
#[test]
fn a_run_waits_as_long_as_its_dispatcher_says() {
    let mut t = Fixture::manual("a b c");
    let mut with = |ttl_ms: Json| {
        let dispatch = json!({"worker_pool_id": POOL, "ttl_ms": ttl_ms});
        t.ok(Command::DispatchWorker(serde_json::from_value(dispatch).unwrap()));
        let run_id = t.payload("task_run_dispatched")["run_id"].as_str().unwrap().parse().unwrap();
        (run_id, t.run_of(run_id).expires_at.map(|at| at - t.now))
    };
    assert_eq!(with(Json::Null).1, Some(300_000));
    assert_eq!(with(json!(1_000)).1, Some(1_000));
    assert_eq!(with(json!(604_800_000)).1, Some(604_800_000));
    let (for_ever, life) = with(json!("unlimited"));
    assert_eq!((life, t.payload("task_run_dispatched").get("expires_at")), (None, None));
    assert_eq!(RunView::of(&t.task.durable(), 3).expires_at, None);
    for _ in 0..3 {
        t.due_at(t.task.next_due().unwrap());
        assert_eq!(t.events(), ["task_run_ended"]);
    }
    assert_eq!(t.task.next_due(), None);
    t.now += 10 * 604_800_000;
    assert_eq!(offered(&t), [for_ever]);
    t.claim_under("ant", for_ever, "a");
}

/// DISP-02, DISP-13: what a Run says in the end is kept for its dispatcher, however long it may wait.
#[test]
fn a_run_without_a_limit_has_a_dispatcher() {
    let mut t = Fixture::manual("a");
    let command = Dispatch { ttl_ms: Some(RunTtl::UNLIMITED), ..dispatch() };
    t.ok(Command::DispatchWorker(command));
    let run_id = t.task.run_at(0).run_id;
    let (outcome, result) = (RunOutcome::Finished, Some("nothing".to_owned()));
    let ant = t.member("ant", run_id);
    t.ok_as(&ant, Command::EndRun(EndRun { outcome, result, run_id }));
    let told = RunEnd::of(&t.task.durable(), 0).unwrap();
    assert_eq!((told.no_step_claimed, told.result.as_deref()), (true, Some("nothing")));
}

/// DISP-02, K3: the time goes from a second to a week; other words than `unlimited` mean nothing.
#[test]
fn the_life_of_a_run_has_bounds() {
    let mut t = Fixture::manual("a");
    for ms in [0, 999, 604_800_001] {
        let ttl_ms = Some(RunTtl::Ms(ms));
        let command = Command::DispatchWorker(Dispatch { ttl_ms, ..dispatch() });
        let refused = t.refuse(command, Code::ValidationError);
        assert_eq!(refused.details["field"], "ttl_ms");
        assert!(refused.message.contains("from 1000 to 604800000, or is \"unlimited\""));
    }
    for wrong in [json!("never"), json!(-1), json!(1.5)] {
        let given = json!({"worker_pool_id": POOL, "ttl_ms": wrong});
        let refused = serde_json::from_value::<Dispatch>(given).unwrap_err().to_string();
        assert_eq!(refused, "a number of milliseconds, or \"unlimited\"");
    }
}

/// DISP-02: the time of an unused Run rests while its Task is blocked or paused, and begins anew when
/// the Task is reopened or resumed, also after an owner change.
#[test]
fn the_life_of_a_run_rests_while_its_task_stands_still() {
    let stops: [(Command, Command); 2] = [
        (block_task(), Command::ReopenTask(Default::default())),
        (Command::PauseTask(Default::default()), Command::ResumeTask(Default::default())),
    ];
    for (stop, go_on) in stops {
        let mut t = Fixture::manual("a b");
        let (run, other) = (t.dispatch(POOL), t.dispatch(POOL));
        let expires_at = |t: &Fixture| RunView::of(&t.task.durable(), 0).expires_at;
        let made = t.run_of(run).created_at;
        t.now += 299_000;
        assert_eq!(expires_at(&t), Some(made + 300_000));
        t.ok(stop);
        assert_eq!((t.task.next_due(), expires_at(&t)), (None, None));
        t.now += 604_800_000;
        assert!(t.ok_as(&system(), Command::Due).commit.is_none());
        let ant = t.member("ant", run);
        t.refuse_as(&ant, claim_command(run, "a"), Code::TaskNotDispatchable);
        t.ok(go_on);
        let resumed = t.now;
        for _ in 0..2 {
            assert_eq!(expires_at(&t), Some(resumed + 300_000));
            assert_eq!(t.task.next_due(), Some(resumed + 300_000));
            t.restart();
        }
        t.now += 299_000;
        t.claim_under("ant", run, "a");
        t.due_at(resumed + 300_000);
        assert_eq!(
            (t.events(), t.run_of(other).state),
            (vec!["task_run_ended".into()], RunState::Ended)
        );
        assert_eq!(
            expires_at(&t),
            Some(made + 300_000),
            "it is used, so it is as it was dispatched"
        );
    }
}

/// DISP-02, mechanisms of `abort`: a patch that reopens the Task and changes its policy is taken back whole.
#[test]
fn a_reopening_with_another_policy_is_taken_back_whole() {
    let mut t = Fixture::manual("a");
    t.dispatch(POOL);
    t.ok(block_task());
    let policy = json!({"max_attempts": 2, "schedule_to_start_ms": 1_000});
    let policy = json!({"op": "update_task", "retry_policy": policy});
    t.ok(t.patch(json!([policy, {"op": "reopen_task"}])));
    assert_eq!(t.task.next_due(), Some(t.now + 1_000));
}

/// 5.4 `take_run`, DISP-16: Runs are offered oldest first, to members of their pool, while unused
/// and not taken; a Run given back is offered again.
#[test]
fn unused_runs_are_offered_oldest_first() {
    let mut t = Fixture::manual("a b c");
    let runs = [t.dispatch(POOL), t.dispatch(POOL), t.dispatch(POOL)];
    t.dispatch("gpu");
    let offered = |t: &Fixture| -> Vec<_> {
        t.task.runs_to_take(&pool_id(POOL), t.now).map(|r| r.run_id).collect()
    };
    assert_eq!(offered(&t), runs);
    assert!(t.takes(runs[0], "ant"));
    assert!(t.takes(runs[0], "ant"), "asked again by the same worker");
    t.claim_under("bee", runs[1], "a");
    assert!(!t.takes(runs[1], "bee"), "it is used");
    assert_eq!(offered(&t), runs[2..]);
    assert_eq!(
        t.task.open_pools().collect::<Vec<_>>(),
        [(&pool_id("gpu"), 1), (&pool_id(POOL), 1)]
    );
    t.ok(Command::PauseTask(Default::default()));
    assert_eq!(offered(&t), [], "nothing can be claimed");
    t.ok(Command::ResumeTask(Default::default()));
    t.now += 300_000;
    assert_eq!(offered(&t), [], "expired");
}

/// 5.4 `take_run`: a taken Run whose worker says nothing for one lease duration is offered again;
/// one whose worker asked again under it is not, and nor is one that was used.
#[test]
fn a_run_taken_in_silence_is_offered_again() {
    let mut t = Fixture::manual("a b");
    let runs = [t.dispatch(POOL), t.dispatch(POOL), t.dispatch(POOL)];
    let until = t.now + 30;
    let take = |t: &mut Fixture, run, who: &str, until| {
        t.task.take_run(run, (&agent_id(who), &pool_id(POOL)), until)
    };
    assert!(!t.task.take_run(runs[0], (&agent_id("ant"), &pool_id("gpu")), until), "not its pool");
    for (run, who) in runs.into_iter().zip(["ant", "bee", "cat"]) {
        assert!(take(&mut t, run, who, until));
    }
    assert_eq!(t.task.open_pools().count(), 0);
    t.claim_under("cat", runs[2], "a");
    assert_eq!(t.task.give_runs_back(until - 1), Some(until));
    assert!(take(&mut t, runs[1], "bee", until + 5), "it asked again");
    assert!(!take(&mut t, runs[1], "ant", until + 9), "it is another's");
    assert_eq!(t.task.give_runs_back(until), Some(until + 5));
    let offered = |t: &Fixture| t.task.runs_to_take(&pool_id(POOL), t.now).count();
    assert_eq!(offered(&t), 1);
    assert!(take(&mut t, runs[0], "bee", until + 5), "anybody may have it");
    assert_eq!(t.task.give_runs_back(until + 5), None);
    assert_eq!(offered(&t), 2);
    t.task.check_invariants().unwrap();
}

/// The Runs that a worker may take, oldest first.
fn offered(t: &Fixture) -> Vec<RunId> {
    t.task.runs_to_take(&pool_id(POOL), t.now).map(|run| run.run_id).collect()
}

/// 5.4 `take_run`: a Run that its worker has used is not waited for: nobody is to look at it again.
#[test]
fn a_run_that_was_taken_and_used_is_not_waited_for() {
    let mut t = Fixture::manual("a b");
    let (used, silent) = (t.dispatch(POOL), t.dispatch(POOL));
    assert!(t.takes(used, "ant"));
    t.claim_under("ant", used, "a");
    assert_eq!(t.task.give_runs_back(t.now), None);
    assert!(t.takes(silent, "ant"));
    let until = t.now + 30_000;
    assert_eq!(t.task.give_runs_back(t.now), Some(until));
    assert_eq!(t.task.give_runs_back(until), None);
    assert_eq!(offered(&t), [silent]);
}

/// WAL-07, DISP-16: what memory alone holds of a Run, who took it or that it ended with nothing claimed, goes
/// with a dispatch that was not written: the next Run is new, and is offered.
#[test]
fn memory_forgets_a_run_that_was_not_written() {
    let takes = |t: &mut Fixture, run| assert!(t.takes(run, "ant"));
    let ends = |t: &mut Fixture, run_id| {
        let end = Command::EndRun(EndRun { outcome: RunOutcome::Finished, result: None, run_id });
        t.ahead(&worker("ant", POOL, Some(run_id)), &end);
    };
    let ways: [fn(&mut Fixture, RunId); 2] = [takes, ends];
    for known_to_memory in ways {
        let mut t = Fixture::manual("a b");
        let before = t.task.clone();
        let made = t.ahead(&orchestrator(), &Command::DispatchWorker(dispatch())).reply.made;
        let Made::Run(run) = made else { panic!("a dispatch makes a run") };
        let run = t.task.run_at(run).run_id;
        known_to_memory(&mut t, run);
        assert_eq!(offered(&t), []);
        t.task.abort();
        assert!(t.task.is_untouched_since(&before));
        let next = t.dispatch(POOL);
        assert_eq!(offered(&t), [next]);
        t.claim_under("bee", next, "a");
    }
}

/// WAL-07: what memory learnt while nothing was under way is no part of a later append that fails.
#[test]
fn memory_keeps_what_it_knew_before_an_append_that_fails() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    t.ok(cancel_run(held.run_id));
    let before = t.task.clone();
    t.ahead(&orchestrator(), &Command::DispatchWorker(dispatch()));
    t.task.abort();
    assert!(t.task.is_untouched_since(&before));
    assert!(t.asks_to_stop(0), "it is to stop");
}

/// K3, P30: instructions are bounded, at the limit and one over.
#[test]
fn instructions_are_bounded() {
    let limits = Limits { progress_bytes_max: 5, ..Limits::default() };
    let mut t = Fixture::try_create(create_input("a"), Policy::Manual, limits).unwrap();
    let with = |n: usize| {
        Command::DispatchWorker(Dispatch { instructions: Some("x".repeat(n)), ..dispatch() })
    };
    t.refuse(with(6), Code::ValidationError);
    t.ok(with(5));
}

/// K3, P30: so are the ids of a scope and the bindings: an offer fits into a message, whatever it has.
#[test]
fn an_offer_is_bounded() {
    let limits = Limits { progress_bytes_max: 5, told_bytes_max: 30, ..Limits::default() };
    let mut t = Fixture::try_create(create_input("a bbb"), Policy::Manual, limits).unwrap();
    let scope = |ids: &[&str]| {
        let allowed_step_ids = Some(ids.iter().map(|i| id(i)).collect());
        Command::DispatchWorker(Dispatch { allowed_step_ids, ..dispatch() })
    };
    let refused = t.refuse(scope(&["a"; 11]), Code::ValidationError);
    assert_eq!(refused.details["field"], "allowed_step_ids");
    assert_eq!((&refused.details["limit"], &refused.details["given"]), (&30.into(), &33.into()));
    t.ok(scope(&["a"; 10]));
    let bound = |thread: usize, environment: usize| {
        let of = |bytes: usize| Some("x".repeat(bytes).into());
        let bindings = Bindings { thread_id: of(thread), environment_ref: of(environment) };
        Command::DispatchWorker(Dispatch { bindings: Some(bindings), ..dispatch() })
    };
    for (over, field) in
        [(bound(6, 5), "bindings.thread_id"), (bound(5, 6), "bindings.environment_ref")]
    {
        assert_eq!(t.refuse(over, Code::ValidationError).details["field"], field);
    }
    t.ok(bound(5, 5));
}
