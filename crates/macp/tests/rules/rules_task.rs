//! T: the messages about the task.

use tenure_core::view::gateway::MacpPhase;
use tenure_macp::pb::Envelope;
use tenure_macp::task_pb::{
    TaskAcceptPayload, TaskCompletePayload, TaskFailPayload, TaskRejectPayload, TaskRequestPayload,
    TaskUpdatePayload,
};
use tenure_macp::{MacpCode, MacpDecline, MacpEffect, MacpReport, SessionState};

use crate::common::*;

fn requested(task_id: &str, assignee: &str) -> Envelope {
    let payload = TaskRequestPayload {
        task_id: task_id.into(),
        requested_assignee: assignee.into(),
        ..Default::default()
    };
    envelope("TaskRequest", PLANNER, &payload)
}

/// T-01, MACP-02: the initiator alone requests, and the request is the Step to do.
#[test]
fn the_initiator_requests_the_task() {
    for sender in [ANN, STRANGER] {
        let code = Played::new().code(&Envelope { sender: sender.into(), ..request(ANN) });
        assert_eq!(code, MacpCode::Forbidden, "{sender}");
    }
    let mut played = Played::new();
    let effect = played.send(&request(ANN)).unwrap();
    let MacpEffect::Request(payload) = effect else { panic!("{effect:?}") };
    assert_eq!((payload.task_id.as_str(), payload.title.as_str()), ("t1", "Sales"));
    assert_eq!(payload.input, b"in");
    assert_eq!(played.session.request(), Some(&payload));
    assert_eq!(played.session.state(), SessionState::Open);
}

/// T-01, MACP-03: a second request is refused, whatever its task.
#[test]
fn a_session_has_one_request() {
    for played in [Played::new().with(&request(ANN)), Played::accepted(), Played::completed()] {
        for task_id in ["t1", "t2"] {
            let second = with_id(requested(task_id, ANN), "m2");
            assert_eq!(played.code(&second), MacpCode::InvalidEnvelope, "{task_id}");
        }
    }
}

/// T-01: a request has a task_id, and asks nobody or a participant, who may be the initiator.
#[test]
fn a_request_asks_participants() {
    assert_eq!(Played::new().code(&requested("", ANN)), MacpCode::InvalidEnvelope);
    assert_eq!(Played::new().code(&requested("t1", STRANGER)), MacpCode::InvalidEnvelope);
    assert_eq!(Played::new().code(&requested("t1", " ann")), MacpCode::InvalidEnvelope);
    for assignee in ["", ANN, PLANNER] {
        let played = Played::new().with(&requested("t1", assignee));
        assert_eq!(played.session.request().unwrap().requested_assignee, assignee);
    }
    // Who asks itself may accept.
    let own = Played::new().with(&requested("t1", PLANNER)).with(&accept(PLANNER));
    assert_eq!(own.session.assignee(), Some(PLANNER));
}

/// T-02, MACP-04: who was asked accepts; if nobody was, every participant but the initiator may.
#[test]
fn only_who_was_asked_accepts() {
    let code = |assignee: &str, sender: &str| {
        let mut played = Played::new().with(&requested("t1", assignee));
        played.send(&accept(sender)).map(|_| played.session.assignee().unwrap().to_owned())
    };
    for (assignee, sender, is_right) in [
        (ANN, ANN, true),
        (ANN, BOB, false),
        (ANN, PLANNER, false),
        (ANN, STRANGER, false),
        ("", ANN, true),
        ("", BOB, true),
        ("", PLANNER, false),
        ("", STRANGER, false),
    ] {
        match code(assignee, sender) {
            Ok(accepted) => assert!(is_right && accepted == sender, "{assignee:?} {sender}"),
            Err(refusal) => {
                assert!(!is_right, "{assignee:?} {sender}");
                assert_eq!(refusal.code, MacpCode::Forbidden, "{assignee:?} {sender}");
            }
        }
    }
}

/// T-02: a payload that names another assignee than its sender is refused before it is asked who may accept.
#[test]
fn nobody_accepts_for_another() {
    let played = Played::new().with(&request(ANN));
    let accept = |sender: &str, assignee: &str| {
        let payload = TaskAcceptPayload {
            task_id: "t1".into(),
            assignee: assignee.into(),
            ..Default::default()
        };
        envelope("TaskAccept", sender, &payload)
    };
    assert_eq!(played.code(&accept(ANN, BOB)), MacpCode::InvalidEnvelope);
    assert_eq!(played.code(&accept(BOB, ANN)), MacpCode::InvalidEnvelope);
    assert_eq!(played.code(&accept(BOB, BOB)), MacpCode::Forbidden);
    assert_eq!(played.with(&accept(ANN, ANN)).session.assignee(), Some(ANN));
}

/// T-02, MACP-05: there is one assignee at a time. A second TaskAccept is refused, also of the same sender.
#[test]
fn there_is_one_assignee() {
    let mut played = Played::new().with(&requested("t1", ""));
    let effect = played.send(&accept(ANN)).unwrap();
    assert!(matches!(effect, MacpEffect::Accept(_)), "{effect:?}");
    for sender in [ANN, BOB, PLANNER] {
        let second = with_id(accept(sender), "m2");
        assert_eq!(played.code(&second), MacpCode::InvalidEnvelope, "{sender}");
    }
    assert_eq!(played.session.assignee(), Some(ANN));
}

/// T-03, MACP-06: who rejects before there is an assignee declines for itself alone, once, and can never accept.
#[test]
fn a_participant_declines_for_itself() {
    let mut played = Played::new().with(&requested("t1", ""));
    let effect = played.send(&reject(ANN)).unwrap();
    let MacpEffect::Decline(payload) = effect else { panic!("{effect:?}") };
    assert_eq!(payload.reason, "busy");
    let decline =
        MacpDecline { participant: ANN.into(), reason: "busy".into(), while_assigned: false };
    assert_eq!(played.session.declines(), [decline]);

    assert_eq!(played.code(&with_id(reject(ANN), "m2")), MacpCode::InvalidEnvelope);
    assert_eq!(played.code(&accept(ANN)), MacpCode::InvalidEnvelope);
    for sender in [PLANNER, STRANGER] {
        assert_eq!(played.code(&reject(sender)), MacpCode::Forbidden, "{sender}");
    }
    let played = played.with(&accept(BOB));
    assert_eq!(played.code(&with_id(accept(ANN), "m3")), MacpCode::InvalidEnvelope);
    let named = Played::new().with(&request(ANN));
    assert_eq!(named.code(&reject(BOB)), MacpCode::Forbidden);
    let others =
        TaskRejectPayload { task_id: "t1".into(), assignee: ANN.into(), ..Default::default() };
    assert_eq!(named.code(&envelope("TaskReject", BOB, &others)), MacpCode::InvalidEnvelope);
}

/// T-04: the assignee may not reject, unless the policy allows it. Nobody else may while there is an assignee.
#[test]
fn an_assignee_gives_back_only_what_the_policy_allows() {
    let played = Played::accepted();
    let refusal = played.clone().send(&reject(ANN)).unwrap_err();
    assert_eq!(refusal.code, MacpCode::PolicyDenied);
    let details: serde_json::Value = serde_json::from_slice(&refusal.details()).unwrap();
    assert_eq!(details["denials"][0]["code"], "reassignment_not_allowed");
    assert_eq!(details["reasons"][0], details["denials"][0]["message"]);
    assert_eq!(played.code(&reject(ANN)), MacpCode::PolicyDenied);
    assert_eq!(played.code(&reject(BOB)), MacpCode::InvalidEnvelope);

    let mut played = Played::under("reassign").with(&requested("t1", "")).with(&accept(ANN));
    assert_eq!(played.code(&reject(BOB)), MacpCode::InvalidEnvelope);
    let effect = played.send(&reject(ANN)).unwrap();
    assert!(matches!(effect, MacpEffect::Return(_)), "{effect:?}");
    assert_eq!(played.session.assignee(), None);
    assert!(played.session.declines()[0].while_assigned);
    assert_eq!(played.code(&with_id(accept(ANN), "m2")), MacpCode::InvalidEnvelope);
    assert_eq!(played.code(&update(ANN, 0.5)), MacpCode::Forbidden);
    let played = played.with(&accept(BOB)).with(&complete(BOB, b"out"));
    assert_eq!(played.session.assignee(), Some(BOB));
}

/// T-04: after the last report a TaskReject and a TaskAccept are still recorded under such a policy, and mean nothing
/// for the Step.
#[test]
fn after_the_report_the_step_is_not_given_back() {
    let played = Played::under("reassign").with(&requested("t1", "")).with(&accept(ANN));
    let mut played = played.with(&complete(ANN, b"out"));
    assert_eq!(played.send(&reject(ANN)).unwrap(), MacpEffect::Noted);
    assert_eq!(played.session.assignee(), None);
    assert_eq!(played.send(&accept(BOB)).unwrap(), MacpEffect::Noted);
    assert_eq!(played.session.assignee(), Some(BOB));
    assert_eq!(played.code(&update(BOB, 0.1)), MacpCode::Forbidden);
    assert_eq!(played.session.phase(), MacpPhase::Completed);
    assert_eq!(played.replayed(), played.session);
    let played = played.with(&commit(PLANNER, "task.completed", true));
    assert_eq!(played.session.state(), SessionState::Resolved);
}

/// T-05, MACP-07, MACP-08: the assignee alone reports, until its last report.
#[test]
fn only_the_assignee_reports() {
    let reports = |sender: &str| [update(sender, 0.5), complete(sender, b"out"), fail(sender)];
    let unassigned = Played::new().with(&requested("t1", ""));
    let declined = unassigned.clone().with(&reject(ANN));
    for played in [unassigned, declined] {
        for report in [PLANNER, ANN, BOB, STRANGER].into_iter().flat_map(reports) {
            assert_eq!(played.code(&report), MacpCode::Forbidden, "{report:?}");
        }
    }
    for report in [PLANNER, BOB, STRANGER].into_iter().flat_map(reports) {
        assert_eq!(Played::accepted().code(&report), MacpCode::Forbidden, "{report:?}");
    }
    for played in [Played::completed(), Played::accepted().with(&fail(ANN))] {
        for report in [ANN, PLANNER].into_iter().flat_map(reports) {
            let report = with_id(report, "m2");
            assert_eq!(played.code(&report), MacpCode::Forbidden, "{report:?}");
        }
    }
}

/// T-05: another task_id is refused before it is asked who sends it, and before there is a request.
#[test]
fn a_message_is_about_the_task() {
    let other = || "t2".to_owned();
    let messages = |sender: &str| {
        [
            envelope(
                "TaskAccept",
                sender,
                &TaskAcceptPayload { task_id: other(), ..Default::default() },
            ),
            envelope(
                "TaskReject",
                sender,
                &TaskRejectPayload { task_id: other(), ..Default::default() },
            ),
            envelope(
                "TaskUpdate",
                sender,
                &TaskUpdatePayload { task_id: other(), ..Default::default() },
            ),
            envelope(
                "TaskComplete",
                sender,
                &TaskCompletePayload { task_id: other(), ..Default::default() },
            ),
            envelope(
                "TaskFail",
                sender,
                &TaskFailPayload { task_id: other(), ..Default::default() },
            ),
        ]
    };
    for message in [PLANNER, ANN, BOB].into_iter().flat_map(messages) {
        assert_eq!(
            Played::accepted().code(&with_id(message.clone(), "m2")),
            MacpCode::InvalidEnvelope
        );
        assert_eq!(Played::new().code(&message), MacpCode::InvalidEnvelope, "{message:?}");
    }
    for message in [accept(ANN), reject(ANN), update(ANN, 0.0), complete(ANN, b""), fail(ANN)] {
        assert_eq!(Played::new().code(&message), MacpCode::InvalidEnvelope, "{message:?}");
        let broken = Envelope { payload: vec![0xff], ..with_id(message, "m2") };
        assert_eq!(Played::accepted().code(&broken), MacpCode::InvalidEnvelope);
    }
    for message in messages(STRANGER) {
        assert_eq!(Played::accepted().code(&message), MacpCode::Forbidden);
    }
}

/// T-05: a report that names another assignee is refused, but first it is asked who sends it.
#[test]
fn nobody_reports_for_another() {
    let complete = |sender: &str| {
        let payload = TaskCompletePayload {
            task_id: "t1".into(),
            assignee: BOB.into(),
            ..Default::default()
        };
        envelope("TaskComplete", sender, &payload)
    };
    let fail = |sender: &str| {
        let payload =
            TaskFailPayload { task_id: "t1".into(), assignee: BOB.into(), ..Default::default() };
        envelope("TaskFail", sender, &payload)
    };
    for (ann, bob) in [(complete(ANN), complete(BOB)), (fail(ANN), fail(BOB))] {
        assert_eq!(Played::accepted().code(&ann), MacpCode::InvalidEnvelope);
        assert_eq!(Played::accepted().code(&bob), MacpCode::Forbidden);
    }
}

/// T-06, MACP-08, MACP-09: a report is the result of the Step, and the session stays open.
#[test]
fn a_report_does_not_resolve_the_session() {
    let mut played = Played::accepted();
    let effect = played.send(&complete(ANN, b"out")).unwrap();
    let MacpEffect::Report(MacpReport::Complete(report)) = effect else { panic!("{effect:?}") };
    assert_eq!((report.output.as_slice(), report.summary.as_str()), (&b"out"[..], "done"));
    assert_eq!(played.session.state(), SessionState::Open);

    let mut played = Played::accepted();
    let effect = played.send(&fail(ANN)).unwrap();
    let MacpEffect::Report(MacpReport::Fail(report)) = effect else { panic!("{effect:?}") };
    assert_eq!((report.error_code.as_str(), report.reason.as_str()), ("E1", "broken"));
    assert!(report.retryable);
    assert_eq!(played.session.state(), SessionState::Open);
}

/// T-07, MACP-07: every number is taken as progress, also one that falls; the last one counts.
#[test]
fn progress_is_any_number() {
    let mut played = Played::accepted();
    for (at, progress) in [0.7, 0.3, 7.0, -1.0, f64::MAX].into_iter().enumerate() {
        let effect = played.send(&with_id(update(ANN, progress), &format!("u{at}"))).unwrap();
        let MacpEffect::Progress(update) = effect else { panic!("{effect:?}") };
        assert_eq!((update.progress, update.status.as_str()), (progress, "running"));
        assert_eq!(played.session.latest_update(), Some(&update));
    }
    assert_eq!(played.session.updates(), 5);
}

/// T-08, MACP-07: what is no number is refused, and the session goes on.
#[test]
fn progress_that_is_no_number_is_refused() {
    for progress in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let played = Played::accepted();
        assert_eq!(played.code(&update(ANN, progress)), MacpCode::InvalidEnvelope);
        assert_eq!(played.code(&update(BOB, progress)), MacpCode::Forbidden);
        let played = played.with(&update(ANN, 0.5)).with(&complete(ANN, b""));
        assert!(played.session.report().is_some());
    }
}

/// MACP-11: the deadline of a request is kept and ends nothing.
#[test]
fn the_deadline_of_a_request_is_soft() {
    let payload = TaskRequestPayload {
        task_id: "t1".into(),
        deadline_unix_ms: START - 1,
        ..Default::default()
    };
    let played = Played::new().with(&envelope("TaskRequest", PLANNER, &payload)).after(1000);
    assert_eq!(played.session.request().unwrap().deadline_unix_ms, START - 1);
    let played = played.with(&accept(ANN)).with(&complete(ANN, b"late"));
    assert!(played.session.report().is_some());
}

/// MACP-13, MACP-14: phases of a session in the order of table 7.4, with the facts that a projection shows.
#[test]
fn the_phase_follows_the_messages() {
    let requested = Played::new().with(&requested("t1", ""));
    let returned =
        Played::under("reassign").with(&request(ANN)).with(&accept(ANN)).with(&reject(ANN));
    for (played, phase) in [
        (Played::new(), MacpPhase::Pending),
        (requested.clone(), MacpPhase::Requested),
        (requested.clone().with(&reject(ANN)), MacpPhase::Requested),
        (Played::accepted(), MacpPhase::InProgress),
        (Played::accepted().with(&update(ANN, 0.5)), MacpPhase::InProgress),
        (returned, MacpPhase::InProgress),
        (Played::completed(), MacpPhase::Completed),
        (Played::accepted().with(&fail(ANN)), MacpPhase::Failed),
        (Played::completed().with(&commit(PLANNER, "task.completed", true)), MacpPhase::Committed),
        (Played::completed().with(&commit(PLANNER, "task.failed", false)), MacpPhase::Committed),
        (
            Played::new().with(&request(ANN)).with(&reject(ANN)).with(&commit(
                PLANNER,
                "task.declined",
                false,
            )),
            MacpPhase::Committed,
        ),
    ] {
        assert_eq!(played.session.phase(), phase, "{:?}", played.session);
        assert_eq!(played.replayed().phase(), phase);
    }
    let session = Played::completed().session;
    assert_eq!(session.request().map(|it| it.task_id.as_str()), Some("t1"));
    assert_eq!(session.assignee(), Some(ANN));
    assert!(matches!(session.report(), Some(MacpReport::Complete(_))));
    assert!(session.declines().is_empty() && session.commitment().is_none());
}
