//! What gateways show: tables 7.3, 7.4 and 6.4, exhaustively.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use crate::views;
use std::collections::BTreeSet;

use common::*;
use tenure_core::command::StepReport;
use tenure_core::status::{StepStatus, TaskStatus, WaitKind};
use tenure_core::view::gateway::{
    A2aFacts, A2aState, MacpFacts, MacpPhase, a2a_state, a2akit_name, macp_code, macp_phase,
};
use tenure_core::view::{Facts, Normal};
use tenure_core::{Code, Command};
use views::*;

fn status(t: &Fixture) -> Normal {
    Facts::of(&t.task.durable(), &known()).status()
}

fn report(t: &mut Fixture, held: &Held, to: StepStatus, wait: Option<WaitKind>, code: &str) {
    let said = StepReport {
        status: Some(to),
        wait_kind: wait,
        reason: Some(reason(code, "")),
        ..held.says()
    };
    t.ok_as(&held.caller(), Command::TaskUpdateStep(said));
}

fn expire(t: &mut Fixture, held: &Held) {
    let attempt_ids = vec![held.attempt_id];
    let reason = tenure_core::event::LeaseEnd::LeaseExpired;
    t.ok_as(&system(), Command::ExpireLeases { attempt_ids, reason });
}

fn a2a(status: Normal, native: TaskStatus, picked_up: bool, rejected: bool) -> &'static str {
    a2a_state(status, A2aFacts { native, picked_up, rejected }).map_or("none", A2aState::as_str)
}

/// 7.3: every normalized status, with everything that the table looks at.
#[test]
fn every_portable_status_has_an_a2a_state() {
    use Normal as N;
    use TaskStatus as T;
    for &status in Normal::ALL {
        for picked_up in [false, true] {
            for rejected in [false, true] {
                for &native in TaskStatus::ALL {
                    let open = if picked_up { "working" } else { "submitted" };
                    let failed = if rejected { "rejected" } else { "failed" };
                    let expected = match status {
                        N::Draft | N::Accepted => "submitted",
                        N::Queued | N::Retrying | N::Blocked | N::Paused => open,
                        N::Preparing | N::Running | N::WaitingResource | N::Cancelling => "working",
                        N::WaitingInput => "input_required",
                        N::WaitingPermission => "auth_required",
                        N::Stale | N::Unknown | N::Released => "none",
                        N::Cancelled => "canceled",
                        N::TimedOut => "failed",
                        N::Failed => failed,
                        N::Lost if native.is_terminal() => "failed",
                        N::Lost => "working",
                        N::Completed => "completed",
                        N::Archived => match native {
                            T::Completed => "completed",
                            T::Cancelled => "canceled",
                            _ => failed,
                        },
                    };
                    assert_eq!(a2a(status, native, picked_up, rejected), expected);
                }
            }
        }
    }
}

/// A2A-09, A2A-10, 7.3 "picked up": submitted until a worker takes it, working from then on, and
/// submitted again after an answered request for input or permission, but not after other stops.
#[test]
fn picked_up_begins_anew_with_every_answer() {
    let state = |t: &Fixture| {
        let view = t.task.durable();
        a2a_state(status(t), A2aFacts::of(&view)).unwrap().as_str()
    };
    let mut t = Fixture::manual("a");
    assert_eq!(state(&t), "submitted");
    let held = t.claim("a");
    assert_eq!(state(&t), "working");
    expire(&mut t, &held);
    assert_eq!(state(&t), "working", "a lost worker had picked it up");
    for (wait, asked) in
        [(WaitKind::Input, "input_required"), (WaitKind::Permission, "auth_required")]
    {
        let held = t.claim("a");
        report(&mut t, &held, StepStatus::Blocked, Some(wait), "x");
        assert_eq!(state(&t), asked);
        t.write("a", StepStatus::Pending);
        assert_eq!(state(&t), "submitted");
    }
    let held = t.claim("a");
    report(&mut t, &held, StepStatus::Blocked, Some(WaitKind::Resource), "x");
    t.write("a", StepStatus::Pending);
    assert_eq!(state(&t), "working");
}

/// 7.3: a Task that failed by `rejected` is rejected.
#[test]
fn a_rejected_task_is_shown_as_rejected() {
    let mut t = Fixture::auto("a");
    let held = t.claim("a");
    report(&mut t, &held, StepStatus::Failed, None, "rejected");
    assert_eq!(t.task_status(), TaskStatus::Failed);
    let facts = A2aFacts::of(&t.task.durable());
    assert_eq!(a2a_state(status(&t), facts), Some(A2aState::Rejected));
}

/// MACP-14, 7.4: every combination of the facts hits the first row that fits; all six phases are
/// reached.
#[test]
fn every_combination_has_a_macp_phase() {
    let mut reached = BTreeSet::new();
    let tasks = TaskStatus::ALL.iter().map(|&t| Some(t)).chain([None]);
    for task in tasks {
        for step in StepStatus::ALL.iter().map(|&s| Some(s)).chain([None]) {
            for (committed, attempted) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let facts = MacpFacts { task, committed, step, attempted };
                let ended = matches!(task, Some(TaskStatus::Completed | TaskStatus::Failed));
                let rows = [
                    (matches!(task, None | Some(TaskStatus::Draft)), MacpPhase::Pending),
                    (ended && committed, MacpPhase::Committed),
                    (step == Some(StepStatus::Completed), MacpPhase::Completed),
                    (
                        step == Some(StepStatus::Failed) || task == Some(TaskStatus::Failed),
                        MacpPhase::Failed,
                    ),
                    (attempted, MacpPhase::InProgress),
                    (true, MacpPhase::Requested),
                ];
                let expected = rows.into_iter().find(|(fits, _)| *fits).unwrap().1;
                assert_eq!(macp_phase(facts), expected, "{facts:?}");
                reached.insert(expected);
            }
        }
    }
    assert_eq!(reached.len(), MacpPhase::ALL.len());
}

/// MACP-13, MACP-14: the phases of a session, from the Task's state.
#[test]
fn a_session_goes_through_its_phases() {
    let phase =
        |t: &Fixture, committed| macp_phase(MacpFacts::of(&t.task.durable(), committed)).as_str();
    let mut t = Fixture::manual("a");
    assert_eq!(phase(&t, false), "Requested");
    let held = t.claim("a");
    assert_eq!(phase(&t, false), "InProgress");
    t.complete(&held);
    assert_eq!(phase(&t, false), "Completed");
    t.ok(Command::TaskComplete(Default::default()));
    assert_eq!((phase(&t, false), phase(&t, true)), ("Completed", "Committed"));
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    report(&mut t, &held, StepStatus::Failed, None, "x");
    assert_eq!(phase(&t, false), "Failed");
}

/// 6.4, MACP-03, MACP-04, A2A-18: the codes that gateways translate, and no others.
#[test]
fn gateways_translate_these_codes_and_no_others() {
    for &code in Code::ALL {
        let expected = match code {
            Code::PermissionDenied | Code::ToolNotAvailable => [Some("FORBIDDEN"); 2],
            Code::StaleAttempt => [Some("FORBIDDEN"), None],
            Code::ValidationError | Code::TaskIdConflict => [Some("INVALID_ENVELOPE"); 2],
            _ => [None, None],
        };
        assert_eq!([macp_code(code, false), macp_code(code, true)], expected, "{code}");
        let name = match code {
            Code::VersionConflict => Some("ConcurrencyError"),
            Code::TaskTerminal => Some("TaskTerminalStateError"),
            _ => None,
        };
        assert_eq!(a2akit_name(code), name);
    }
}
