//! RUN: how Runs end, and what becomes of the Step they hold.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use tenure_core::command::{EndRun, RunOutcome, StepReport, Wait};
use tenure_core::id::RunId;
use tenure_core::status::{EndReason, Outcome, Policy, RunState, StepStatus, TaskStatus};
use tenure_core::view::RunEnd;
use tenure_core::{Code, Command};

const SILENT: &str = "worker_finished_without_terminal_step_status";

/// RUN-03, RUN-04, RUN-05, RUN-06, RUN-07, S13, A08 to A10, R07 to R09: a Run that ends holding its Step
/// fails it, and no other, by the scheduler, with the code of how it ended.
#[test]
fn a_run_that_ends_without_a_word_fails_its_step() {
    let cases = [
        (
            RunOutcome::Finished,
            SILENT,
            Outcome::Abandoned,
            EndReason::FinishedWithoutTerminalStepStatus,
        ),
        (
            RunOutcome::Error,
            SILENT,
            Outcome::Abandoned,
            EndReason::FinishedWithoutTerminalStepStatus,
        ),
        (RunOutcome::Cancelled, "worker_cancelled", Outcome::Cancelled, EndReason::Cancelled),
        (RunOutcome::TimedOut, "worker_timeout", Outcome::TimedOut, EndReason::TimedOut),
    ];
    for started in [false, true] {
        for (how, code, outcome, end_reason) in cases {
            let mut t = Fixture::manual("a b");
            let (held, other) = (t.claim("a"), t.claim("b"));
            if started {
                t.start(&held);
            }
            match how {
                RunOutcome::Cancelled => t.stop(&held),
                _ => t.end(&held, how),
            };
            assert_eq!(t.events(), ["task_step_failed a"]);
            assert_eq!(t.actors(), ["system"]);
            assert_eq!(t.code_of("a"), code);
            assert_eq!(t.step("a").state.facts().result_summary.as_deref(), Some(code));
            let (attempt, run) = (t.attempt_of(&held), t.run_of(held.run_id));
            assert_eq!(attempt.outcome, Some(outcome));
            assert_eq!(attempt.error.as_ref().unwrap().code, code);
            assert_eq!((run.state, run.end_reason), (RunState::Ended, Some(end_reason)));
            assert_eq!(t.status("b"), StepStatus::Claimed, "RUN-07: no other Step is touched");
            assert_eq!(t.attempt_of(&other).outcome, None);
        }
    }
}

/// RUN-03: after a final report or a block the end of the Run says nothing more.
#[test]
fn a_run_that_reported_ends_without_an_event() {
    for status in [StepStatus::Completed, StepStatus::Failed, StepStatus::Blocked] {
        let mut t = Fixture::manual("a b");
        let held = t.claim("a");
        t.report(&held, status);
        assert!(t.end(&held, RunOutcome::Error).commit.is_none());
        assert_eq!(t.status("a"), status);
    }
}

/// RUN-09, OCC-05: an explicit end is a failure, silence a lost lease; the first one written wins.
#[test]
fn the_first_end_written_wins() {
    let mut t = Fixture::manual("a b");
    let (a, b) = (t.claim("a"), t.claim("b"));
    t.end(&a, RunOutcome::Finished);
    t.lose(&a);
    assert_eq!(t.attempt_of(&a).outcome, Some(Outcome::Abandoned));
    t.lose(&b);
    assert!(t.end(&b, RunOutcome::Finished).commit.is_none());
    assert_eq!(t.attempt_of(&b).outcome, Some(Outcome::Lost));
    assert_eq!(t.statuses("a b"), "a:failed b:ready");
}

/// R05, DISP-12, DISP-16, U14: the end of a Run that found nothing is written, once, with its worker.
#[test]
fn the_end_of_a_run_that_found_nothing_is_written() {
    let mut t = Fixture::manual("a");
    let run = t.dispatch(POOL);
    let ant = t.member("ant", run);
    t.ok_as(&ant, end_run(run, RunOutcome::Finished));
    assert_eq!(t.events(), ["task_run_ended"]);
    let told = t.payload("task_run_ended");
    assert_eq!(
        (&told["end_reason"], &told["worker_id"]),
        (&json!("no_step_claimed"), &json!("ant"))
    );
    assert!(t.ok_as(&ant, end_run(run, RunOutcome::Finished)).commit.is_none(), "again: no-op");
    assert_eq!(t.statuses("a"), "a:ready");
}

/// DISP-16, RECOVER-01: a Run whose dispatcher was told that it found nothing is never offered again,
/// whatever becomes ready, and whoever owns the Task.
#[test]
fn a_run_that_was_told_as_ended_never_runs_a_step() {
    let mut t = Fixture::manual("gate deploy<-gate");
    let run = t.dispatch_for(POOL, Some(&["deploy"]));
    let ant = t.member("ant", run);
    t.ok_as(&ant, end_run(run, RunOutcome::Finished));
    assert_eq!(told(&t, run), some(EndReason::NoStepClaimed, ""));
    t.do_step("gate");
    t.restart();
    assert_eq!(t.statuses("gate deploy"), "gate:completed deploy:ready");
    assert_eq!(t.task.runs_to_take(&pool_id(POOL), t.now).count(), 0);
    assert!(!t.takes(run, "ant"));
    t.refuse_as(&ant, claim_command(run, "deploy"), Code::RunEnded);
    assert_eq!(told(&t, run), some(EndReason::NoStepClaimed, ""));
}

/// DISP-16, RUN-08, RUN-11: it is written while the Task is being closed, and not after its end.
#[test]
fn a_run_that_found_nothing_ends_in_a_task_that_is_closed() {
    let mut t = Fixture::manual("a");
    let (held, run, other) = (t.claim("a"), t.dispatch(POOL), t.dispatch(POOL));
    t.ok(cancel_task());
    let ant = t.member("ant", run);
    t.ok_as(&ant, end_run(run, RunOutcome::Finished));
    assert_eq!(t.events(), ["task_run_ended"]);
    t.end(&held, RunOutcome::Finished);
    assert!(t.task.is_terminal());
    let ant = t.member("ant", other);
    assert!(t.ok_as(&ant, end_run(other, RunOutcome::Finished)).commit.is_none());
    assert_eq!(told(&t, other), some(EndReason::TaskTerminal, ""));
}

/// Mechanisms of `abort`: what only memory holds is taken back with the commits it came with.
#[test]
fn an_aborted_end_leaves_the_run_usable() {
    let mut t = Fixture::manual("a");
    let run = t.dispatch(POOL);
    let ant = t.member("ant", run);
    let mut trial = t.clone();
    trial.in_one_append(&[
        (orchestrator(), block_task()),
        (ant.clone(), end_run(run, RunOutcome::Finished)),
    ]);
    trial.task.abort();
    assert_eq!(trial.task, t.task);
    t.task = trial.task;
    t.claim_under("ant", run, "a");
}

/// RUN-12, R04, 5.4 `decline_run`: before the claim only; a fact of the log, with who and why.
#[test]
fn a_worker_declines_a_run_before_it_claims() {
    let mut t = Fixture::manual("a");
    let run = t.dispatch(POOL);
    let ant = t.member("ant", run);
    t.ok_as(&ant, decline_run(run));
    assert_eq!(t.events(), ["task_run_ended"]);
    let payload = t.payload("task_run_ended");
    assert_eq!(payload["end_reason"], "declined");
    assert_eq!(payload["worker_id"], "ant");
    assert_eq!(payload["reason"]["code"], "busy");
    assert_eq!(t.run_of(run).end_reason, Some(EndReason::Declined));
    assert_eq!(t.run_of(run).ended_because.as_ref().unwrap().code, "busy");
    assert_eq!(t.status("a"), StepStatus::Ready);
    assert!(t.ok_as(&ant, decline_run(run)).commit.is_none(), "already ended: no-op");

    let held = t.claim("a");
    t.refuse_as(&held.caller(), decline_run(held.run_id), Code::InvalidTransition);
    t.complete(&held);
    t.refuse_as(&held.caller(), decline_run(held.run_id), Code::InvalidTransition);

    let spent = t.dispatch(POOL);
    let ant = t.member("ant", spent);
    t.ok_as(&ant, end_run(spent, RunOutcome::Finished));
    assert!(t.ok_as(&ant, decline_run(spent)).commit.is_none(), "ended in memory: no-op");
}

/// 5.4: unknown Runs are `run_not_found`, others' `permission_denied`.
#[test]
fn a_run_is_ended_by_its_own_worker() {
    let mut t = Fixture::manual("a");
    let unknown = RunId(uuid::Uuid::from_u128(77_777));
    let stranger = worker("bee", POOL, None);
    t.refuse_as(&stranger, end_run(unknown, RunOutcome::Finished), Code::RunNotFound);
    t.refuse_as(&stranger, decline_run(unknown), Code::RunNotFound);
    t.refuse(cancel_run(unknown), Code::RunNotFound);
    let held = t.claim("a");
    t.refuse_as(&stranger, held.ends(RunOutcome::Finished), Code::PermissionDenied);
    t.refuse_as(&stranger, decline_run(held.run_id), Code::PermissionDenied);
    let taken = t.dispatch(POOL);
    t.takes(taken, "ant");
    t.refuse_as(&stranger, decline_run(taken), Code::PermissionDenied);
    let elsewhere = worker("bee", "gpu", None);
    let free = t.dispatch(POOL);
    t.refuse_as(&elsewhere, end_run(free, RunOutcome::Finished), Code::PermissionDenied);
    t.ok(cancel_task());
    t.refuse_as(&stranger, held.ends(RunOutcome::Finished), Code::PermissionDenied);
}

/// RUN-02, R08, 5.4 `cancel_run`: a Run without a Step ends at once.
#[test]
fn an_unused_run_is_cancelled_at_once() {
    let mut t = Fixture::manual("a");
    let run = t.dispatch(POOL);
    t.ok(cancel_run(run));
    assert_eq!(t.events(), ["task_run_ended"]);
    assert_eq!(t.run_of(run).end_reason, Some(EndReason::Cancelled));
    assert!(t.ok(cancel_run(run)).commit.is_none());
}

/// RUN-02, RUN-05, CANCEL-07, CTRL-03: a Run with a Step is asked to stop; the DAG is unchanged by
/// the request; at its end the Step fails `worker_cancelled`, whatever the worker calls it.
#[test]
fn a_run_at_work_is_asked_to_stop_first() {
    for how in [RunOutcome::Finished, RunOutcome::Error, RunOutcome::Cancelled] {
        let mut t = Fixture::manual("a");
        let held = t.claim("a");
        let at = t.step("a").state.current.unwrap();
        assert!(!t.asks_to_stop(at));
        let asked = t.ok(cancel_run(held.run_id));
        assert!(asked.commit.is_none());
        assert!(matches!(asked.reply.waits, Some(Wait::RunEnd(_))));
        assert!(t.asks_to_stop(at));
        assert_eq!(t.status("a"), StepStatus::Claimed);
        t.end(&held, how);
        assert_eq!(t.code_of("a"), "worker_cancelled");
        assert_eq!(t.attempt_of(&held).outcome, Some(Outcome::Cancelled));
        assert_eq!(t.run_of(held.run_id).end_reason, Some(EndReason::Cancelled));
    }
}

/// RUN-05, 5.4 `cancel_run`: a worker that does not answer has the closing limit, then the Step
/// fails; the event carries the command that asked.
#[test]
fn a_run_that_does_not_answer_is_ended_after_the_limit() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let envelope =
        Envelope { command_id: Some("stop".into()), digest: Some([3; 32]), ..Envelope::default() };
    t.run_with(&orchestrator(), &cancel_run(held.run_id), &envelope).unwrap();
    let deadline = t.now + 10_000;
    assert_eq!(t.task.next_due(), Some(deadline));
    assert!(t.due_at(deadline - 1).commit.is_none());
    t.due_at(deadline);
    assert_eq!(t.code_of("a"), "worker_cancelled");
    assert_eq!(t.last().command_id.as_ref().unwrap().as_str(), "stop");
    assert_eq!(t.last().command_digest, Some(tenure_core::id::Digest::first([3; 32])));
    assert_eq!(t.task.next_due(), None);
    let again = t.run_with(&orchestrator(), &cancel_run(held.run_id), &envelope).unwrap();
    assert!(again.commit.is_none());
    assert_eq!(again.reply.version, t.task.version(), "the first result");
}

/// CANCEL-08, CTRL-03: a stop that the report overtakes changes nothing, and leaves no timer that
/// fires for nothing more than once.
#[test]
fn a_report_overtakes_a_stop() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    t.ok(cancel_run(held.run_id));
    t.complete(&held);
    assert_eq!(t.status("a"), StepStatus::Completed);
    while let Some(due) = t.task.next_due() {
        assert!(t.due_at(due).commit.is_none());
    }
}

/// RUN-05, POL-05, RETRY-05: a cancelled Run's Step is neither tried again nor fails its Task.
#[test]
fn a_cancelled_run_leaves_its_step_to_the_orchestrator() {
    let mut t = Fixture::auto("a");
    let held = t.grant("ant", POOL).unwrap();
    t.stop(&held);
    assert_eq!(t.status("a"), StepStatus::Failed);
    assert_eq!(t.task_status(), TaskStatus::Running);
    assert_eq!(t.step("a").state.attempt_count, 0, "counts in no budget (RETRY-03)");
}

/// RUN-05, S26, R12, WAL-07: a worker that stops for a cancel of which nobody knows gives its Step back,
/// which is ready at once and counts in no budget: a cancel of its Run, or of its Task, whose append has
/// failed, and one that never was.
#[test]
fn a_step_that_is_given_up_for_a_cancel_that_never_was_goes_back() {
    for asked in [None, Some(cancel_run as fn(RunId) -> Command), Some(|_| cancel_task())] {
        let mut t = Fixture::auto("a");
        let held = t.grant("ant", POOL).unwrap();
        if let Some(asked) = asked {
            let title = serde_json::from_value(json!([{"op": "update_task", "title": "b"}]));
            let before = Command::TaskUpdate { operations: title.unwrap() };
            t.in_one_append(&[(orchestrator(), before), (orchestrator(), asked(held.run_id))]);
            t.task.abort();
        }
        t.end(&held, RunOutcome::Cancelled);
        assert_eq!(t.events(), ["task_step_lease_expired a", "task_step_ready a"]);
        assert_eq!(t.actors()[0], "ant");
        assert_eq!(t.attempt_of(&held).outcome, Some(Outcome::Abandoned));
        assert_eq!(t.run_of(held.run_id).end_reason, Some(EndReason::Released));
        let state = &t.step("a").state;
        assert_eq!((state.attempt_count, state.lost_count), (0, 0));
        assert!(t.grant("bee", POOL).is_some());
    }
}

/// R09, R01: an unused Run ends at `expires_at` by the scheduler.
#[test]
fn an_unused_run_expires() {
    let mut t = Fixture::manual("a");
    let run = t.dispatch(POOL);
    let at = t.run_of(run).expires_at.unwrap();
    assert_eq!(t.task.next_due(), Some(at));
    assert!(t.due_at(at - 1).commit.is_none());
    t.due_at(at);
    assert_eq!((t.events(), t.actors()), (vec!["task_run_ended".to_owned()], vec!["system"]));
    assert_eq!(t.run_of(run).end_reason, Some(EndReason::TimedOut));
    let used = t.claim("a");
    assert_eq!(t.task.next_due(), None, "a used Run expires no more");
    assert_eq!(t.run_of(used.run_id).state, RunState::Active);
}

/// RUN-08: while the Task is closing, ends, losses, limits and releases leave the Step to phase 2,
/// which begins with the last of them.
#[test]
fn while_closing_every_end_of_a_run_is_just_that() {
    let policy = json!({"start_to_close_ms": 500, "max_attempts": 9, "max_lost": 1});
    let mut t = with_policy("a b c d e", policy, Policy::Manual);
    let held: Vec<Held> = ["a", "b", "c", "d", "e"].iter().map(|s| t.claim(s)).collect();
    t.ok(cancel_task());
    assert_eq!(t.events(), ["task_cancel_requested"]);
    let version = t.task.version();
    t.end(&held[0], RunOutcome::Finished);
    t.lose(&held[1]);
    t.ok_as(&held[2].caller(), held[2].releases());
    t.ok_as(&held[3].caller(), cancelled_end(&held[3]));
    assert_eq!(t.task.version(), version, "nothing is written yet");
    // The limits of all five have passed; four of the Runs are gone already.
    t.now += 600;
    t.ok_as(&system(), Command::Due);
    assert_eq!(t.task_status(), TaskStatus::Cancelled);
    assert!(t.task.version() > version);
    for (step, held) in ["a", "b", "c", "d", "e"].iter().zip(&held) {
        assert_eq!((t.status(step), t.code_of(step)), (StepStatus::Cancelled, "task_cancelled"));
        assert_eq!(t.attempt_of(held).outcome, Some(Outcome::Cancelled));
        assert_eq!(t.run_of(held.run_id).end_reason, Some(EndReason::TaskTerminal));
    }
}

fn cancelled_end(held: &Held) -> Command {
    held.ends(RunOutcome::Cancelled)
}

/// RUN-08: the limit of a Run that is gone wakes nobody again while others are at work.
#[test]
fn a_limit_that_passed_while_closing_is_judged_once() {
    let mut t = with_policy("a b", json!({"start_to_close_ms": 500}), Policy::Manual);
    let a = t.claim("a");
    t.wait_ms(300);
    let _b = t.claim("b");
    t.ok(fail_task());
    let first = t.attempt_of(&a).started_at + 500;
    assert_eq!(t.task.next_due(), Some(first));
    assert!(t.due_at(first).commit.is_none());
    let second = t.task.next_due().unwrap();
    assert!(second > first, "the next limit, not the same again");
    t.due_at(second);
    assert_eq!(t.task_status(), TaskStatus::Failed);
}

/// RUN-11, R11: Runs outlive their Task: their ends are accepted and write nothing.
#[test]
fn a_run_may_end_after_its_task() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    t.complete(&held);
    let unused = t.dispatch(POOL);
    t.ok(cancel_task());
    assert_eq!(t.run_of(unused).end_reason, Some(EndReason::TaskTerminal));
    let ant = t.member("ant", unused);
    assert!(t.end(&held, RunOutcome::Finished).commit.is_none());
    assert!(t.ok_as(&ant, end_run(unused, RunOutcome::Finished)).commit.is_none());
    assert!(t.ok_as(&ant, decline_run(unused)).commit.is_none());
    assert!(t.ok(cancel_run(unused)).commit.is_none());
}

/// R05, R09, RUN-02: a Run that ended with nothing claimed ends once: neither its time limit nor a
/// `cancel_run` writes another end of it, before and after an owner change.
#[test]
fn a_run_that_found_nothing_ends_once() {
    let mut t = Fixture::manual("a");
    let run = t.dispatch(POOL);
    let ant = t.member("ant", run);
    assert!(t.task.next_due().is_some());
    t.ok_as(&ant, end_run(run, RunOutcome::Finished));
    assert_eq!(t.task.next_due(), None);
    assert!(t.ok(cancel_run(run)).commit.is_none());
    t.now += 400_000;
    assert!(t.ok_as(&system(), Command::Due).commit.is_none());
    t.restart();
    assert!(t.ok_as(&system(), Command::Due).commit.is_none());
}

/// The final word of a holder, with what its Run says in the end.
fn says(held: &Held, status: StepStatus, result: &str) -> Command {
    let (status, run_result) = (Some(status), Some(result.to_owned()));
    Command::TaskUpdateStep(StepReport { status, run_result, ..held.says() })
}

fn ends_saying(run_id: RunId, result: &str) -> Command {
    let (outcome, result) = (RunOutcome::Finished, Some(result.to_owned()));
    Command::EndRun(EndRun { outcome, result, run_id })
}

/// What the dispatcher of a Run is told, if it has ended.
fn told(t: &Fixture, run: RunId) -> Option<(EndReason, bool, Option<String>)> {
    let view = t.task.durable();
    let end = RunEnd::of(&view, view.find_run(run).unwrap())?;
    Some((end.end_reason, end.no_step_claimed, end.result.map(|text| text.to_string())))
}

fn some(end_reason: EndReason, result: &str) -> Option<(EndReason, bool, Option<String>)> {
    let result = (!result.is_empty()).then(|| result.to_owned());
    Some((end_reason, end_reason == EndReason::NoStepClaimed, result))
}

/// DISP-12, DISP-13, DAG-13, RUN-11: what a Run says in the end is for its dispatcher. The first word
/// counts, before and after the Task has ended; log, Steps and replay are as without it.
#[test]
fn what_a_run_says_in_the_end_is_for_its_dispatcher() {
    let mut t = Fixture::manual("a b c");
    let (a, b) = (t.claim("a"), t.claim("b"));
    assert_eq!(told(&t, a.run_id), None, "it goes on");
    let mut mute = t.clone();
    mute.complete(&a);
    t.ok_as(&a.caller(), says(&a, StepStatus::Completed, "all of it"));
    assert_eq!((&t.task, t.last()), (&mute.task, mute.last()));
    assert_eq!(told(&t, a.run_id), some(EndReason::Completed, "all of it"));
    assert!(t.ok_as(&a.caller(), ends_saying(a.run_id, "and more")).commit.is_none());
    assert_eq!(told(&t, a.run_id), some(EndReason::Completed, "all of it"));

    let silent = EndReason::FinishedWithoutTerminalStepStatus;
    t.ok_as(&b.caller(), ends_saying(b.run_id, "half of it"));
    assert_eq!((t.status("b"), t.code_of("b")), (StepStatus::Failed, SILENT));
    assert_eq!(told(&t, b.run_id), some(silent, "half of it"));

    let idle = t.dispatch(POOL);
    let ant = t.member("ant", idle);
    t.ok_as(&ant, ends_saying(idle, "nothing here"));
    assert_eq!(told(&t, idle), some(EndReason::NoStepClaimed, "nothing here"));

    let c = t.claim("c");
    t.complete(&c);
    t.ok(cancel_task());
    assert_eq!(told(&t, c.run_id), some(EndReason::Completed, ""));
    assert!(t.ok_as(&c.caller(), ends_saying(c.run_id, "late")).commit.is_none());
    assert_eq!(told(&t, c.run_id), some(EndReason::Completed, "late"));
    t.restart();
    assert_eq!(told(&t, a.run_id), some(EndReason::Completed, ""), "only memory had it");
}

/// DISP-13, K3: a result is as short as other texts, and goes with the word that ends the Run.
#[test]
fn a_result_of_a_run_is_short_and_comes_last() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let most = t.limits.progress_bytes_max;
    let long = "x".repeat(most + 1);
    for wrong in [
        says(&held, StepStatus::Completed, &long),
        says(&held, StepStatus::Running, "too early"),
        ends_saying(held.run_id, &long),
    ] {
        t.refuse_as(&held.caller(), wrong, Code::ValidationError);
    }
    t.refuse(says(&held, StepStatus::Completed, "not its Run"), Code::ValidationError);
    t.ok_as(&held.caller(), says(&held, StepStatus::Blocked, &long[1..]));
    assert_eq!(told(&t, held.run_id), some(EndReason::Completed, &long[1..]));
}

/// DISP-13: results are kept for dispatchers, of the newest Runs, and not where the end of the Run was
/// taken back.
#[test]
fn results_of_runs_take_little_memory() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let mut trial = t.clone();
    trial.in_one_append(&[(held.caller(), says(&held, StepStatus::Completed, "done"))]);
    trial.task.abort();
    trial.stop(&held);
    assert_eq!(told(&trial, held.run_id), some(EndReason::Cancelled, ""));

    let runs: Vec<RunId> = (0..300)
        .map(|_| {
            let run = t.dispatch(POOL);
            let ant = t.member("ant", run);
            t.ok_as(&ant, ends_saying(run, "nothing"));
            run
        })
        .collect();
    let kept = |run: &RunId| told(&t, *run) == some(EndReason::NoStepClaimed, "nothing");
    assert_eq!(runs.iter().filter(|run| kept(run)).count(), 256);
    assert!(runs[300 - 256..].iter().all(kept));

    let mut t = Fixture::auto("a b");
    let held = t.grant("ant", POOL).unwrap();
    t.ok_as(&held.caller(), says(&held, StepStatus::Completed, "nobody waits"));
    assert_eq!(told(&t, held.run_id), some(EndReason::Completed, ""));
}

/// RUN-08, 5.2: a dispatcher whose Run ends while its Task is being closed is told how it ends.
#[test]
fn a_run_that_ends_while_its_task_is_closed_is_told_of() {
    let mut t = Fixture::manual("a b");
    let (a, _b) = (t.claim("a"), t.claim("b"));
    t.ok(cancel_task());
    t.ok_as(&a.caller(), ends_saying(a.run_id, "as far as I got"));
    assert_eq!(t.events(), ["task_cancel_requested"], "the other one is at work");
    assert_eq!(told(&t, a.run_id), some(EndReason::TaskTerminal, "as far as I got"));
}
