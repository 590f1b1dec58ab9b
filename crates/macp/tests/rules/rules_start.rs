//! S: how a session begins.

use std::collections::BTreeMap;

use tenure_macp::pb::{Envelope, Root, SessionStartPayload};
use tenure_macp::{
    MacpCode, MacpOpening, MacpSteer, SUSPEND_MS_MAX, SessionState, TTL_MS_MAX, is_session_id, open,
};

use crate::common::*;

fn code(envelope: &Envelope) -> Option<MacpCode> {
    open(envelope, None, &policies(), START).err().map(|refusal| refusal.code)
}

fn code_of(change: impl FnOnce(&mut SessionStartPayload)) -> Option<MacpCode> {
    let mut payload = start_payload();
    change(&mut payload);
    code(&start_with(&payload))
}

/// S-01: a UUID of version 4 or 7 in lower case, or 22 to 128 characters of base64url. What has the form of a UUID must
/// be one of those.
#[test]
fn ids_of_sessions_are_uuids_or_long_tokens() {
    let long = "a".repeat(128);
    for id in [
        "8c0ee1e0-6d7a-4c3e-9f5e-0b6f4f0f7a11",
        "0190a6b0-6d7a-7c3e-9f5e-0b6f4f0f7a11",
        "abcdefghijklmnopqrstuv",
        "A-B_0123456789abcdefghij",
        // 36 characters with hyphens that are no UUID.
        "8c0ee1e0-6d7a-4c3e-9f5e-0b6f4f0f7a1g",
        "8c0ee1e06d7a-4c3e-9f5e-0b6f4f0f7a1-1",
        long.as_str(),
    ] {
        assert!(is_session_id(id), "{id}");
        assert_eq!(code(&Envelope { session_id: id.into(), ..start() }), None, "{id}");
    }
    let too_long = "a".repeat(129);
    for id in [
        "",
        "s1",
        "abcdefghijklmnopqrstu",
        "8C0EE1E0-6D7A-4C3E-9F5E-0B6F4F0F7A11",
        "8c0ee1e0-6d7a-4c3e-9f5e-0b6f4f0f7A11",
        "8c0ee1e0-6d7a-1c3e-9f5e-0b6f4f0f7a11",
        "8c0ee1e0-6d7a-5c3e-9f5e-0b6f4f0f7a11",
        "00000000-0000-0000-0000-000000000000",
        "abcdefghijklmnopqrst uv",
        "abcdefghijklmnopqrstuv=",
        "abcdefghijklmnopqrstuvä",
        too_long.as_str(),
    ] {
        assert!(!is_session_id(id), "{id}");
        let start = Envelope { session_id: id.into(), mode: "other".into(), ..start() };
        assert_eq!(code(&start), Some(MacpCode::InvalidSessionId), "{id}");
    }
}

/// S-02, MACP-01: Task mode alone is served, and this is looked at before the payload.
#[test]
fn another_mode_is_not_supported() {
    for mode in ["macp.mode.decision.v1", "macp.mode.task.v2", "task", "macp.mode.task.v1 "] {
        let start = Envelope { mode: mode.into(), payload: Vec::new(), ..start() };
        assert_eq!(code(&start), Some(MacpCode::ModeNotSupported), "{mode}");
    }
}

/// S-03: the payload must be there, and must be read.
#[test]
fn a_payload_that_cannot_be_read_is_refused() {
    for payload in [vec![], vec![0xff], vec![0x0a, 0x05, b'x']] {
        assert_eq!(code(&Envelope { payload, ..start() }), Some(MacpCode::InvalidEnvelope));
    }
}

/// S-04, MACP-02: a session lives for 1 ms to a day.
#[test]
fn the_time_to_live_has_limits() {
    for (ttl_ms, expected) in [
        (1, None),
        (TTL_MS_MAX, None),
        (0, Some(MacpCode::InvalidEnvelope)),
        (-1, Some(MacpCode::InvalidEnvelope)),
        (i64::MIN, Some(MacpCode::InvalidEnvelope)),
        (TTL_MS_MAX + 1, Some(MacpCode::InvalidEnvelope)),
    ] {
        assert_eq!(code_of(|it| it.ttl_ms = ttl_ms), expected, "{ttl_ms}");
    }
}

/// S-05: mode_version is that of the mode, and configuration_version is there.
#[test]
fn versions_must_be_named() {
    for version in ["", " ", "1.0", "1.0.1", "2.0.0"] {
        let code = code_of(|it| it.mode_version = version.into());
        assert_eq!(code, Some(MacpCode::InvalidEnvelope), "{version}");
    }
    for version in ["", "  "] {
        let code = code_of(|it| it.configuration_version = version.into());
        assert_eq!(code, Some(MacpCode::InvalidEnvelope), "{version}");
    }
    assert_eq!(code_of(|it| it.configuration_version = "anything".into()), None);
}

/// S-06: 1 to 1000 participants, each with a name and once, and one of them other than the initiator, who need not be
/// among them.
#[test]
fn participants_are_a_set_with_somebody_to_ask() {
    let many = |n: usize| (0..n).map(|it| format!("w{it}")).collect::<Vec<_>>();
    let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    for (participants, is_right) in [
        (names(&[]), false),
        (names(&[PLANNER]), false),
        (names(&[ANN]), true),
        (names(&[PLANNER, ANN]), true),
        (names(&[ANN, ANN]), false),
        (names(&[ANN, " ann "]), false),
        (names(&[ANN, " "]), false),
        (names(&[ANN, ""]), false),
        (many(1000), true),
        (many(1001), false),
    ] {
        let shown = format!("{:?}", participants.iter().take(3).collect::<Vec<_>>());
        let code = code_of(|it| it.participants = participants);
        assert_eq!(code, (!is_right).then_some(MacpCode::InvalidEnvelope), "{shown}");
    }
}

/// S-07: no policy is `policy.default`; one that is not there, and one of another mode, have codes of their own, and
/// are looked for after the payload and after the session.
#[test]
fn a_session_binds_its_policy() {
    let started = |policy: &str| Played::under(policy).session;
    assert_eq!(started("").metadata().policy_version, "policy.default");
    assert_eq!(started("policy.default").bound().policy, started("").bound().policy);
    assert!(started("output").bound().policy.rules().require_output);
    let unknown = |it: &mut SessionStartPayload| it.policy_version = "nobody".into();
    assert_eq!(code_of(unknown), Some(MacpCode::UnknownPolicyVersion));
    let votes = |it: &mut SessionStartPayload| it.policy_version = "votes".into();
    assert_eq!(code_of(votes), Some(MacpCode::InvalidPolicyDefinition));
    // The pool is looked at after the policy, all else before it.
    let alone = |it: &mut SessionStartPayload| {
        (it.policy_version, it.participants) = ("nobody".into(), vec![PLANNER.into()]);
    };
    assert_eq!(code_of(alone), Some(MacpCode::UnknownPolicyVersion));
    let late = |it: &mut SessionStartPayload| (it.policy_version, it.ttl_ms) = ("nobody".into(), 0);
    assert_eq!(code_of(late), Some(MacpCode::InvalidEnvelope));
}

/// S-08: the time for which a session may be suspended is not negative, and is seven days if it is not said.
#[test]
fn the_time_of_a_suspension_is_bound() {
    assert_eq!(code_of(|it| it.max_suspend_ms = -1), Some(MacpCode::InvalidEnvelope));
    for (asked, bound) in [(0, SUSPEND_MS_MAX), (1, 1), (i64::MAX, i64::MAX)] {
        let start = start_with(&SessionStartPayload { max_suspend_ms: asked, ..start_payload() });
        assert_eq!(Played::begin(&start).session.bound().max_suspend_ms, bound);
    }
}

/// S-09: the same id of a session is a repetition with the same message id, and else SESSION_ALREADY_EXISTS, also when
/// the session has ended. A stranger does not learn which message ids are known.
#[test]
fn a_session_begins_once() {
    let mut played = Played::accepted();
    let again = |played: &Played, envelope: &Envelope| {
        open(envelope, Some(&played.session), &policies(), START).map_err(|refusal| refusal.code)
    };
    let other_id = with_id(start(), "m2");
    assert_eq!(again(&played, &start()), Ok(MacpOpening::Duplicate(SessionState::Open)));
    assert_eq!(again(&played, &other_id), Err(MacpCode::SessionAlreadyExists));
    let strangers = Envelope { sender: STRANGER.into(), ..start() };
    assert_eq!(again(&played, &strangers), Err(MacpCode::SessionAlreadyExists));
    // The payload is looked at first.
    let broken = Envelope { payload: vec![0xff], ..start() };
    assert_eq!(again(&played, &broken), Err(MacpCode::InvalidEnvelope));
    // The policy is not.
    let unknown =
        start_with(&SessionStartPayload { policy_version: "nobody".into(), ..start_payload() });
    assert_eq!(again(&played, &unknown), Ok(MacpOpening::Duplicate(SessionState::Open)));
    played.steer(MacpSteer::Cancel).unwrap();
    assert_eq!(again(&played, &start()), Ok(MacpOpening::Duplicate(SessionState::Cancelled)));
    assert_eq!(again(&played, &other_id), Err(MacpCode::SessionAlreadyExists));
}

/// S-10, MACP-02: the deadline is the time of the envelope with `ttl_ms`; without such a time, that of the acceptance.
#[test]
fn the_deadline_follows_from_the_envelope() {
    for (timestamp, expires) in [
        (START, START + TTL),
        (1000, 1000 + TTL),
        (0, START + TTL),
        (-5, START + TTL),
        (i64::MAX, i64::MAX),
    ] {
        let played = Played::begin(&Envelope { timestamp_unix_ms: timestamp, ..start() });
        assert_eq!(played.session.metadata().expires_at_unix_ms, expires, "{timestamp}");
        assert_eq!(played.session.metadata().started_at_unix_ms, START);
    }
    // It is accepted although its time is over, and expires when it is touched next.
    let old = Played::begin(&Envelope { timestamp_unix_ms: 1000, ..start() });
    assert_eq!(old.session.state(), SessionState::Open);
    assert_eq!(old.code(&request(ANN)), MacpCode::SessionNotOpen);
}

/// S-11, MACP-12: what the start says is kept as it came, a retry's intent too, and only shown: neither context nor
/// extensions change what is decided.
#[test]
fn what_the_start_says_is_kept_word_for_word() {
    let payload = SessionStartPayload {
        intent: format!("retry: {OTHER_SESSION}"),
        context_id: "ctx:sha256:00".into(),
        extensions: BTreeMap::from([("b".into(), vec![1, 2]), ("a".into(), vec![])]),
        roots: vec![Root { uri: "file:///r".into(), name: "r".into() }],
        ..start_payload()
    };
    let played = Played::begin(&start_with(&payload));
    assert_eq!(played.session.bound().start, payload);
    assert_eq!(played.session.bound().initiator, PLANNER);
    let metadata = played.session.metadata();
    assert_eq!(metadata.context_id, payload.context_id);
    assert_eq!(metadata.extension_keys, ["a", "b"]);
    assert_eq!(metadata.participants, payload.participants);
    let played = played.with(&request(ANN)).with(&accept(ANN));
    assert_eq!(played.session.phase(), Played::accepted().session.phase());
}
