//! EVENT-07: what is told of Runs and changes no Task.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use tenure_core::command::{EndRun, RunOutcome, StepReport};
use tenure_core::id::RunId;
use tenure_core::status::{StepStatus, TaskStatus};
use tenure_core::view::RuntimeName::{self, *};
use tenure_core::{Code, Command, Cx, Outcome};

fn told(outcome: &Outcome) -> Vec<(RuntimeName, RunId)> {
    outcome.told.iter().map(|event| (event.event, event.run_id)).collect()
}

/// EVENT-07, TERM-13: when a closing has waited long enough it is told of each Run that has not
/// stopped, and the Task ends; the log knows nothing of that.
#[test]
fn runs_that_do_not_stop_are_told_of() {
    let mut t = Fixture::manual("a b c");
    let (a, b, c) = (t.claim("a"), t.claim_by("bee", "b"), t.claim_by("cat", "c"));
    assert_eq!(told(&t.ok(cancel_task())), []);
    let deadline = t.now + 10_000;
    assert_eq!(told(&t.end(&b, RunOutcome::Cancelled)), []);
    let ended = t.due_at(deadline);
    let late = ChildAgentCancelTimeout;
    assert_eq!(told(&ended), [(late, a.run_id), (late, c.run_id)]);
    let event = &ended.told[1];
    assert_eq!((event.session_id.as_str(), event.task_id.as_str()), ("s", "t"));
    assert_eq!((&event.step_id, event.attempt_id), (&Some(id("c")), Some(c.attempt_id)));
    assert_eq!((&event.worker_id, event.created_at), (&Some(agent_id("cat")), deadline));
    assert_eq!(t.task_status(), TaskStatus::Cancelled);
    let cancelled = ["a", "b", "c"].map(|step| format!("task_step_cancelled {step}"));
    assert_eq!(t.events(), [&cancelled[..], &["task_cancelled".to_owned()]].concat());

    let mut t = Fixture::manual("a b");
    let (a, b) = (t.claim("a"), t.claim("b"));
    t.ok(fail_task());
    t.end(&a, RunOutcome::Cancelled);
    assert_eq!(told(&t.end(&b, RunOutcome::Cancelled)), [], "all have stopped in time");
    assert_eq!(t.task_status(), TaskStatus::Failed);
}

/// EVENT-07, 5.4 `cancel_run`: so it is of a Run that was to stop alone.
#[test]
fn a_run_that_does_not_stop_when_it_is_cancelled_is_told_of() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    assert_eq!(told(&t.ok(cancel_run(held.run_id))), []);
    let ended = t.due_at(t.now + 10_000);
    assert_eq!(told(&ended), [(ChildAgentCancelTimeout, held.run_id)]);
}

/// EVENT-07, DISP-16, 7.1: a Run that found nothing to claim is no runtime event: its end is in the log, and
/// public.
#[test]
fn a_run_that_found_nothing_is_told_of_by_the_log() {
    let mut t = Fixture::manual("a");
    let run = t.dispatch(POOL);
    t.takes(run, "ant");
    let ant = t.member("ant", run);
    assert_eq!(told(&t.ok_as(&ant, end_run(run, RunOutcome::Finished))), []);
    assert_eq!(t.events(), ["task_run_ended"]);
}

/// EVENT-07, DISP-13, RUN-11: what a Run says in the end is told, whoever made the Run, and of a
/// dispatched one once.
#[test]
fn what_a_run_says_in_the_end_is_told() {
    let says = |held: &Held, result: &str| {
        let (status, run_result) = (Some(StepStatus::Completed), Some(result.to_owned()));
        Command::TaskUpdateStep(StepReport { status, run_result, ..held.says() })
    };
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let ended = t.ok_as(&held.caller(), says(&held, "well done"));
    assert_eq!(told(&ended), [(RunResult, held.run_id)]);
    assert_eq!(ended.told[0].result.as_deref(), Some("well done"));
    assert_eq!(ended.told[0].attempt_id, Some(held.attempt_id));
    let (outcome, result, run_id) = (RunOutcome::Finished, Some("more".to_owned()), held.run_id);
    let more = Command::EndRun(EndRun { outcome, result, run_id });
    assert_eq!(told(&t.ok_as(&held.caller(), more)), []);

    let mut t = Fixture::auto("a");
    let held = t.grant("ant", POOL).unwrap();
    let ended = t.ok_as(&held.caller(), says(&held, "by itself"));
    assert_eq!(told(&ended), [(RunResult, held.run_id)]);
}

/// EVENT-07, CLAIM-08, CLAIM-10: a claim is told of that was refused because another was faster, and
/// none that was refused for something else.
#[test]
fn a_claim_that_came_too_late_is_told_of() {
    let mut t = Fixture::manual("a b<-a");
    t.claim("a");
    let run = t.dispatch(POOL);
    let bee = t.member("bee", run);
    for (step, code) in [("a", Code::StepAlreadyClaimed), ("b", Code::StepNotReady)] {
        let command = claim_command(run, step);
        let refused = t.refuse_as(&bee, command.clone(), code);
        let (stamp, limits) = (t.stamp(), t.limits.clone());
        let cx = Cx {
            caller: &bee,
            stamp,
            command_id: None,
            digest: None,
            expected_version: None,
            expected_spec_version: None,
            trace: None,
            epoch: 0,
            limits: &limits,
        };
        let lost = t.task.lost_claim(&cx, &command, &refused);
        assert_eq!(lost.is_some(), step == "a", "{step}");
        let Some(lost) = lost else { continue };
        assert_eq!((lost.event, lost.run_id), (ClaimLost, run));
        assert_eq!((lost.step_id, lost.worker_id), (Some(id("a")), Some(agent_id("bee"))));
    }
}
