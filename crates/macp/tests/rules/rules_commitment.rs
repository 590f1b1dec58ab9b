//! C: how a session is resolved.

use tenure_macp::pb::{CommitmentPayload, CommitmentRef, Envelope};
use tenure_macp::{MacpCode, MacpEffect, MacpSteer, SessionState};

use crate::common::*;

fn changed(change: impl FnOnce(&mut CommitmentPayload)) -> Envelope {
    let mut payload = commitment("task.completed", true);
    change(&mut payload);
    envelope("Commitment", PLANNER, &payload)
}

/// C-01, MACP-10: the initiator alone commits, unless the policy says who else.
#[test]
fn the_initiator_commits() {
    let committed = |policy: &str, sender: &str| {
        let played = Played::under(policy).with(&request(ANN)).with(&accept(ANN));
        let mut played = played.with(&complete(ANN, b"out"));
        played.send(&commit(sender, "task.completed", true)).map_err(|refusal| refusal.code)
    };
    for (policy, may) in [
        ("", &[PLANNER][..]),
        ("output", &[PLANNER]),
        ("anyone", &[PLANNER, ANN, BOB]),
        ("lead", &[LEAD]),
    ] {
        for sender in [PLANNER, ANN, BOB, STRANGER, LEAD] {
            match committed(policy, sender) {
                Ok(effect) => {
                    assert!(may.contains(&sender), "{policy} {sender}");
                    assert!(matches!(effect, MacpEffect::Commit(_)));
                }
                Err(code) => {
                    assert!(!may.contains(&sender), "{policy} {sender}");
                    assert_eq!(code, MacpCode::Forbidden, "{policy} {sender}");
                }
            }
        }
    }
}

/// C-02, MACP-10: a Commitment needs a TaskComplete or TaskFail.
#[test]
fn a_commitment_needs_a_report() {
    for played in [Played::new(), Played::new().with(&request(ANN)), Played::accepted()] {
        for (action, positive) in [("task.completed", true), ("task.failed", false), ("x", true)] {
            let commit = commit(PLANNER, action, positive);
            assert_eq!(played.code(&commit), MacpCode::InvalidEnvelope, "{action}");
            let anns = Envelope { sender: ANN.into(), ..commit };
            assert_eq!(played.code(&anns), MacpCode::Forbidden, "{action}");
        }
    }
}

/// C-02: if the one who was asked has declined, the session may be committed without a report, and only negatively.
#[test]
fn a_declined_request_is_committed_negatively() {
    let declined = Played::new().with(&request(ANN)).with(&reject(ANN));
    assert!(declined.session.has_nobody_left());
    assert_eq!(declined.code(&commit(PLANNER, "task.completed", true)), MacpCode::InvalidEnvelope);
    let resolved = declined.with(&commit(PLANNER, "task.declined", false));
    assert_eq!(resolved.session.state(), SessionState::Resolved);

    // If nobody was named, others may still accept.
    let open = Played::new().with(&request("")).with(&reject(ANN)).with(&reject(BOB));
    assert!(!open.session.has_nobody_left());
    assert_eq!(open.code(&commit(PLANNER, "task.declined", false)), MacpCode::InvalidEnvelope);
    // Giving back is no declining.
    let back = Played::under("reassign").with(&request(ANN)).with(&accept(ANN)).with(&reject(ANN));
    assert_eq!(back.code(&commit(PLANNER, "task.declined", false)), MacpCode::InvalidEnvelope);
}

/// C-03: four fields must say something, and versions must be those of the session.
#[test]
fn a_commitment_names_the_sessions_versions() {
    let played = Played::completed();
    let wrong: [fn(&mut CommitmentPayload); 11] = [
        |it| it.commitment_id = " ".into(),
        |it| it.action = String::new(),
        |it| it.authority_scope = "\t".into(),
        |it| it.reason = String::new(),
        |it| it.mode_version = String::new(),
        |it| it.mode_version = "1.0.1".into(),
        |it| it.configuration_version = String::new(),
        |it| it.configuration_version = "other".into(),
        |it| it.policy_version = "output".into(),
        |it| it.policy_version = " ".into(),
        |it| it.policy_version = "policy.other".into(),
    ];
    for change in wrong {
        let envelope = changed(change);
        assert_eq!(played.code(&envelope), MacpCode::InvalidEnvelope, "{envelope:?}");
    }
    for policy_version in ["", "policy.default"] {
        let right = changed(|it| it.policy_version = policy_version.into());
        assert_eq!(played.clone().with(&right).session.state(), SessionState::Resolved);
    }
    let broken = Envelope { payload: vec![0xff], ..commit(PLANNER, "task.completed", true) };
    assert_eq!(played.code(&broken), MacpCode::InvalidEnvelope);
}

/// C-04: the end of the action says whether the outcome is positive, if it is one of seven words.
#[test]
fn action_and_outcome_say_the_same() {
    for (action, positive, negative) in [
        ("task.completed", true, false),
        ("x.selected", true, false),
        ("x.accepted", true, false),
        ("approved", true, false),
        ("task.failed", false, true),
        ("x.rejected", false, true),
        ("xdeclined", false, true),
        ("task.done", true, true),
        ("failed.task", true, true),
        ("task.Failed", true, true),
    ] {
        for (outcome, is_right) in [(true, positive), (false, negative)] {
            let mut played = Played::completed();
            let sent = played.send(&commit(PLANNER, action, outcome));
            assert_eq!(sent.is_ok(), is_right, "{action} {outcome}");
        }
    }
}

/// C-05: a reference to an earlier Commitment names its session and its hash.
#[test]
fn what_is_superseded_is_named_in_full() {
    let digits = "0123456789abcdef".repeat(4);
    let hash = format!("sha256:{digits}");
    for (session_id, commitment_hash, is_right) in [
        ("s", hash.clone(), true),
        ("", hash.clone(), false),
        (" ", hash.clone(), false),
        ("s", String::new(), false),
        ("s", digits.clone(), false),
        ("s", hash.to_uppercase(), false),
        ("s", format!("sha256:{}", digits.to_uppercase()), false),
        ("s", format!("{hash}0"), false),
        ("s", hash[..hash.len() - 1].to_owned(), false),
        ("s", format!("sha256:{}g", &digits[1..]), false),
    ] {
        let shown = format!("{session_id:?} {commitment_hash}");
        let reference = CommitmentRef { session_id: session_id.into(), commitment_hash };
        let sent = Played::completed().send(&changed(|it| it.supersedes = Some(reference)));
        assert_eq!(sent.is_ok(), is_right, "{shown}");
        assert!(sent.is_ok() || sent.unwrap_err().code == MacpCode::InvalidEnvelope, "{shown}");
    }
}

/// C-06, MACP-10: a Commitment resolves the session, and may contradict the report: it is the outcome.
#[test]
fn a_commitment_is_not_held_against_the_report() {
    for report in [complete(ANN, b"out"), complete(ANN, b""), fail(ANN)] {
        for (action, positive) in [("task.completed", true), ("task.failed", false)] {
            let mut played = Played::accepted().with(&report);
            let effect = played.send(&commit(PLANNER, action, positive)).unwrap();
            let MacpEffect::Commit(payload) = effect else { panic!("{effect:?}") };
            assert_eq!(payload, commitment(action, positive));
            assert_eq!(played.session.commitment(), Some(&payload));
            assert_eq!(played.session.state(), SessionState::Resolved);
        }
    }
}

/// C-07: a policy may ask for an output before a positive Commitment.
#[test]
fn a_policy_may_ask_for_an_output() {
    let accepted = || Played::under("output").with(&request(ANN)).with(&accept(ANN));
    for report in [complete(ANN, b""), fail(ANN)] {
        let played = accepted().with(&report);
        let refusal = played.clone().send(&commit(PLANNER, "task.completed", true)).unwrap_err();
        assert_eq!(refusal.code, MacpCode::PolicyDenied);
        let details: serde_json::Value = serde_json::from_slice(&refusal.details()).unwrap();
        assert_eq!(details["denials"][0]["code"], "output_required");
        assert_eq!(played.code(&commit(PLANNER, "x", true)), MacpCode::PolicyDenied);
        let played = played.with(&commit(PLANNER, "task.failed", false));
        assert_eq!(played.session.state(), SessionState::Resolved);
    }
    let played = accepted().with(&complete(ANN, b"1"));
    let played = played.with(&commit(PLANNER, "task.completed", true));
    assert_eq!(played.session.state(), SessionState::Resolved);
}

/// C-08, C-09: a session that is resolved, expired, cancelled or suspended takes no new message of anybody. So of many
/// Commitments one resolves it.
#[test]
fn a_session_that_is_not_open_takes_no_message() {
    let mut suspended = Played::completed();
    suspended.steer(MacpSteer::Suspend).unwrap();
    let mut cancelled = Played::completed();
    cancelled.steer(MacpSteer::Cancel).unwrap();
    let mut expired = Played::completed().after(TTL + 1);
    assert!(expired.send(&update(ANN, 0.1)).is_err());
    let resolved = Played::completed().with(&commit(PLANNER, "task.completed", true));
    for (played, state) in [
        (suspended, SessionState::Suspended),
        (cancelled, SessionState::Cancelled),
        (expired, SessionState::Expired),
        (resolved, SessionState::Resolved),
    ] {
        assert_eq!(played.session.state(), state);
        for sender in [PLANNER, ANN, STRANGER] {
            for at in 0..8 {
                let second = with_id(commit(sender, "task.completed", true), &format!("m{at}"));
                assert_eq!(played.code(&second), MacpCode::SessionNotOpen, "{state:?} {sender}");
            }
            let unknown = with_id(Envelope { message_type: "Vote".into(), ..accept(sender) }, "m9");
            assert_eq!(played.code(&unknown), MacpCode::SessionNotOpen, "{state:?} {sender}");
        }
    }
}
