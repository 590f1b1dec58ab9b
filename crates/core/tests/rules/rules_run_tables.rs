//! 3.3 and 3.4 as tables: what becomes of a Run whatever befalls it, and that nothing befalls an Attempt
//! that has ended.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use tenure_core::command::{Complete, RunOutcome, StepReport};
use tenure_core::event::LeaseEnd;
use tenure_core::id::RunId;
use tenure_core::status::{RunState, StepStatus};
use tenure_core::view::RunView;
use tenure_core::{Caller, Command, Rejection};

use crate::common::*;

/// Something that befalls a Run that may hold a Step.
type Befalls = fn(&mut Fixture, RunId, Option<&Held>) -> Option<Result<(), Rejection>>;

fn asked(t: &mut Fixture, caller: &Caller, command: &Command) -> Option<Result<(), Rejection>> {
    Some(t.run(caller, command).map(drop))
}

const ALL: [(&str, Befalls); 11] = [
    ("claim", |t, run, _| {
        let ant = t.member("ant", run);
        asked(t, &ant, &claim_command(run, "x"))
    }),
    ("end_run", |t, run, _| {
        let ant = t.member("ant", run);
        asked(t, &ant, &end_run(run, RunOutcome::Finished))
    }),
    ("end_run, timed out", |t, run, _| {
        let ant = t.member("ant", run);
        asked(t, &ant, &end_run(run, RunOutcome::TimedOut))
    }),
    ("decline_run", |t, run, _| {
        let ant = t.member("ant", run);
        asked(t, &ant, &decline_run(run))
    }),
    ("cancel_run", |t, run, _| asked(t, &orchestrator(), &cancel_run(run))),
    ("its time passes", |t, run, _| {
        t.now = t.run_of(run).expires_at?;
        asked(t, &system(), &Command::Due)
    }),
    ("its lease ends", |t, _, held| asked(t, &system(), &expire(&[held?], LeaseEnd::LeaseExpired))),
    ("release_step", |t, _, held| asked(t, &held?.caller(), &held?.releases())),
    ("it completes", |t, _, held| asked(t, &held?.caller(), &held?.reports(StepStatus::Completed))),
    ("it is overruled", |t, _, held| {
        held?;
        asked(t, &orchestrator(), &write_command("x", StepStatus::Completed))
    }),
    ("the task ends", |t, _, held| {
        t.ok(cancel_task());
        held.filter(|_| !t.task.is_terminal()).map(|held| t.end(held, RunOutcome::Finished));
        Some(Ok(()))
    }),
];

/// A Run in a state, on a Task with a ready Step `x` beside another.
fn in_state(state: RunState) -> (Fixture, RunId, Option<Held>) {
    let mut t = Fixture::manual("x other");
    let run = t.dispatch(POOL);
    match state {
        RunState::Dispatched => (t, run, None),
        RunState::Active => {
            let held = t.claim_under("ant", run, "x");
            (t, run, Some(held))
        }
        RunState::Ended => {
            let ant = t.member("ant", run);
            t.ok_as(&ant, decline_run(run));
            (t, run, None)
        }
    }
}

fn state_of(t: &Fixture, run: RunId) -> String {
    let view = t.task.durable();
    let run = RunView::of(&view, view.find_run(run).unwrap());
    run.end_reason.map_or_else(|| run.state.to_string(), |why| format!("ended {why}"))
}

/// R01 to R12, CLAIM-03, RUN-01, RUN-03, RUN-06, RUN-12: every state of a Run meets everything that may
/// befall it.
#[test]
fn every_run_meets_everything_that_may_befall_it() {
    let mut table = String::new();
    for (name, befalls) in ALL {
        for state in [RunState::Dispatched, RunState::Active, RunState::Ended] {
            let (mut t, run, held) = in_state(state);
            let before = state_of(&t, run);
            let after = match befalls(&mut t, run, held.as_ref()) {
                None => continue,
                Some(Ok(())) => state_of(&t, run),
                Some(Err(refused)) => {
                    assert_eq!(state_of(&t, run), before, "{name}");
                    refused.code.to_string()
                }
            };
            table.push_str(&format!("{name} | {before} | {after}\n"));
        }
    }
    assert_eq!(
        table,
        "\
claim | dispatched | active
claim | active | step_already_claimed_by_run
claim | ended declined | run_ended
end_run | dispatched | ended no_step_claimed
end_run | active | ended finished_without_terminal_step_status
end_run | ended declined | ended declined
end_run, timed out | dispatched | ended no_step_claimed
end_run, timed out | active | ended timed_out
end_run, timed out | ended declined | ended declined
decline_run | dispatched | ended declined
decline_run | active | invalid_transition
decline_run | ended declined | ended declined
cancel_run | dispatched | ended cancelled
cancel_run | active | active
cancel_run | ended declined | ended declined
its time passes | dispatched | ended timed_out
its time passes | active | active
its time passes | ended declined | ended declined
its lease ends | active | ended lost
release_step | active | ended released
it completes | active | ended completed
it is overruled | active | ended revoked
the task ends | dispatched | ended task_terminal
the task ends | active | ended task_terminal
the task ends | ended declined | ended declined
"
    );
}

/// ATT-02, ATT-06, 3.3: whatever becomes of the Step later, and whatever is said of an Attempt that has
/// ended, it stays what it was; so does its Run.
#[test]
fn nothing_befalls_an_attempt_that_has_ended() {
    for (name, befalls) in ALL.into_iter().skip(1) {
        let (mut t, run, held) = in_state(RunState::Active);
        let held = held.unwrap();
        befalls(&mut t, run, Some(&held));
        let (attempt, state) = (t.attempt_of(&held).clone(), state_of(&t, run));
        if attempt.outcome.is_none() {
            continue;
        }
        for (again, befalls) in ALL {
            let mut t = t.clone();
            if again == "it completes" {
                let late = StepReport { status: Some(StepStatus::Failed), ..held.says() };
                let refused = t.run(&held.caller(), &Command::TaskUpdateStep(late));
                assert!(refused.is_err(), "{name}, then it fails");
            }
            if t.task.is_terminal() && again == "the task ends" {
                continue;
            }
            befalls(&mut t, run, Some(&held));
            assert_eq!(*t.attempt_of(&held), attempt, "{name}, then {again}");
            assert_eq!(state_of(&t, run), state, "{name}, then {again}");
        }
        let mut t = t.clone();
        let _ = t.run(&orchestrator(), &write_command("x", StepStatus::Pending));
        let _ = t.run(&orchestrator(), &Command::TaskComplete(Complete::default()));
        assert_eq!(*t.attempt_of(&held), attempt, "{name}, then the orchestrator goes on");
    }
}
