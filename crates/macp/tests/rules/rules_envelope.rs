//! G: what is looked at in every envelope.

use tenure_macp::pb::{Envelope, ProgressPayload, SignalPayload};
use tenure_macp::{
    MacpCode, MacpDecision, MacpKind, MacpOpening, PAYLOAD_BYTES_MAX, SessionState, acknowledge,
    bind_sender, check_ambient, check_shape, open, refuse,
};

use crate::common::*;

fn shape(envelope: &Envelope) -> Result<MacpKind, MacpCode> {
    check_shape(envelope, PAYLOAD_BYTES_MAX).map_err(|refusal| refusal.code)
}

/// G-02: only version 1.0 of the protocol is served, and this is looked at first.
#[test]
fn another_version_of_the_protocol_is_refused_first() {
    for macp_version in ["", "1", "1.0.0", "2.0", " 1.0"] {
        let envelope = Envelope { macp_version: macp_version.into(), ..Envelope::default() };
        assert_eq!(shape(&envelope), Err(MacpCode::UnsupportedProtocolVersion), "{macp_version}");
    }
    assert_eq!(shape(&start()), Ok(MacpKind::Start));
    assert_eq!(shape(&request(ANN)), Ok(MacpKind::InSession));
}

/// G-03: message_type, message_id, session_id and mode must not be empty.
#[test]
fn empty_fields_are_refused() {
    let clear: [fn(&mut Envelope); 4] = [
        |it| it.message_type.clear(),
        |it| it.message_id.clear(),
        |it| it.session_id.clear(),
        |it| it.mode = "  ".into(),
    ];
    for clear in clear {
        let mut envelope = request(ANN);
        clear(&mut envelope);
        assert_eq!(shape(&envelope), Err(MacpCode::InvalidEnvelope), "{envelope:?}");
    }
}

/// G-05, MACP-16: the authenticated principal is the sender, and an envelope that names another is refused.
#[test]
fn the_sender_is_who_is_authenticated() {
    let mut unnamed = Envelope { sender: String::new(), ..request(ANN) };
    bind_sender(&mut unnamed, PLANNER).unwrap();
    assert_eq!(unnamed.sender, PLANNER);
    let mut named = request(ANN);
    bind_sender(&mut named, PLANNER).unwrap();
    assert_eq!(named, request(ANN));
    let refusal = bind_sender(&mut named, ANN).unwrap_err();
    assert_eq!(refusal.code, MacpCode::Unauthenticated);
    assert_eq!(named.sender, PLANNER);
}

/// G-06: a payload may have as many bytes as the gateway allows, and is looked at after the fields.
#[test]
fn a_payload_that_is_too_large_is_refused() {
    let mut envelope = Envelope { payload: vec![0; PAYLOAD_BYTES_MAX], ..request(ANN) };
    assert_eq!(shape(&envelope), Ok(MacpKind::InSession));
    envelope.payload.push(0);
    assert_eq!(shape(&envelope), Err(MacpCode::PayloadTooLarge));
    assert_eq!(check_shape(&request(ANN), 3).unwrap_err().code, MacpCode::PayloadTooLarge);
    envelope.message_id.clear();
    assert_eq!(shape(&envelope), Err(MacpCode::InvalidEnvelope));
}

/// G-07: another mode, another session, a type that the mode does not have, `SessionCancel` and `SessionStart` inside a
/// session: all INVALID_ENVELOPE. The mode is looked at before the deadline and the state.
#[test]
fn what_does_not_belong_to_the_session_is_refused() {
    let played = Played::new();
    let of = |message_type: &str| envelope(message_type, ANN, &SignalPayload::default());
    for message_type in ["SessionCancel", "SessionSuspend", "Vote", "taskaccept", "SessionStart"] {
        assert_eq!(played.code(&of(message_type)), MacpCode::InvalidEnvelope, "{message_type}");
    }
    let strangers = envelope("SessionCancel", STRANGER, &SignalPayload::default());
    assert_eq!(played.code(&strangers), MacpCode::Forbidden);

    let over = Played::new().after(TTL + 1);
    for played in [&played, &over] {
        let other_mode = Envelope { mode: "macp.mode.decision.v1".into(), ..request(ANN) };
        assert_eq!(played.code(&other_mode), MacpCode::InvalidEnvelope);
        let other_session = Envelope { session_id: OTHER_SESSION.into(), ..request(ANN) };
        assert_eq!(played.code(&other_session), MacpCode::InvalidEnvelope);
    }
}

/// G-08: an id that was accepted is a repetition whatever else the message says, also when the session has ended. A
/// refused message takes no id. Only members learn that an id is known.
#[test]
fn an_accepted_id_is_a_repetition() {
    let mut played = Played::accepted();
    let repeated = |played: &Played, envelope: &Envelope| match played
        .session
        .decide(envelope, START + 10 * TTL)
    {
        Ok(MacpDecision::Duplicate(state)) => state,
        other => panic!("{other:?}"),
    };
    let known = request(ANN).message_id;
    let other = with_id(Envelope { mode: "other".into(), ..complete(BOB, b"") }, &known);
    assert_eq!(repeated(&played, &request(ANN)), SessionState::Open);
    assert_eq!(repeated(&played, &other), SessionState::Open);
    assert_eq!(repeated(&played, &start()), SessionState::Open);

    assert_eq!(played.code(&complete(BOB, b"")), MacpCode::Forbidden);
    assert!(!played.session.has_accepted(&complete(BOB, b"").message_id));
    played.send(&with_id(complete(ANN, b"x"), &complete(BOB, b"").message_id)).unwrap();
    played.send(&commit(PLANNER, "task.completed", true)).unwrap();
    assert_eq!(repeated(&played, &other), SessionState::Resolved);

    let strangers = Envelope { sender: STRANGER.into(), ..request(ANN) };
    assert_eq!(played.code(&strangers), MacpCode::Forbidden);
    assert_eq!(played.code(&Envelope { sender: LEAD.into(), ..request(ANN) }), MacpCode::Forbidden);
    let led = Played::under("lead").with(&request(ANN));
    assert_eq!(
        repeated(&led, &Envelope { sender: LEAD.into(), ..request(ANN) }),
        SessionState::Open
    );
}

/// G-08: ids count within one session.
#[test]
fn ids_of_one_session_say_nothing_in_another() {
    let first = Played::accepted();
    let start = Envelope { session_id: OTHER_SESSION.into(), ..start() };
    let opening = open(&start, None, &policies(), START).unwrap();
    assert!(matches!(opening, MacpOpening::Accept(_)));
    let mut second = Played::begin(&start);
    assert!(first.session.has_accepted(&request(ANN).message_id));
    second.send(&Envelope { session_id: OTHER_SESSION.into(), ..request(ANN) }).unwrap();
}

/// G-09: an Ack echoes the ids; it has the state after the message, or the error and no state.
#[test]
fn an_ack_says_what_came_of_the_message() {
    let ack = acknowledge(&request(ANN), SessionState::Open, false, 7);
    assert!(ack.ok && !ack.duplicate && ack.error.is_none());
    assert_eq!(
        (ack.message_id.as_str(), ack.session_id.as_str()),
        ("TaskRequest-planner", SESSION)
    );
    assert_eq!((ack.accepted_at_unix_ms, ack.session_state), (7, SessionState::Open.into()));
    assert!(acknowledge(&request(ANN), SessionState::Resolved, true, 7).duplicate);

    let refusal = Played::new().session.decide(&complete(ANN, b""), START).unwrap_err();
    let ack = refuse(&complete(ANN, b""), &refusal, 8);
    assert!(!ack.ok && !ack.duplicate);
    assert_eq!((ack.accepted_at_unix_ms, ack.session_state), (8, 0));
    let error = ack.error.unwrap();
    assert_eq!(error.code, "INVALID_ENVELOPE");
    assert_eq!(error.message, "no task has been requested");
    assert_eq!(
        (error.message_id.as_str(), error.session_id.as_str()),
        ("TaskComplete-ann", SESSION)
    );
    assert!(error.details.is_empty());
}

/// a Signal belongs to no session, and a Progress to one or to none. Neither is a message of the mode.
#[test]
fn signals_belong_to_no_session() {
    let ambient = |message_type: &str, session_id: &str, mode: &str| {
        let envelope = envelope(message_type, ANN, &SignalPayload::default());
        shape(&Envelope { session_id: session_id.into(), mode: mode.into(), ..envelope })
    };
    for (session_id, mode, signal, progress) in [
        ("", "", true, true),
        (SESSION, "m", false, true),
        (SESSION, "", false, false),
        ("", "m", false, false),
        ("", " ", true, true),
    ] {
        for (message_type, is_right) in [("Signal", signal), ("Progress", progress)] {
            let expected =
                if is_right { Ok(MacpKind::Ambient) } else { Err(MacpCode::InvalidEnvelope) };
            assert_eq!(
                ambient(message_type, session_id, mode),
                expected,
                "{message_type} {session_id} {mode}"
            );
        }
    }
    let signal = |signal_type: &str| {
        let payload = SignalPayload {
            signal_type: signal_type.into(),
            confidence: 0.5,
            ..Default::default()
        };
        check_ambient(&envelope("Signal", ANN, &payload)).map_err(|it| it.code)
    };
    assert_eq!(signal("anomaly"), Ok(()));
    assert_eq!(signal("  "), Err(MacpCode::InvalidEnvelope));
    let progress = ProgressPayload { progress: 0.5, ..Default::default() };
    assert!(check_ambient(&envelope("Progress", ANN, &progress)).is_ok());
    let broken = Envelope { payload: vec![0xff], ..envelope("Progress", ANN, &progress) };
    assert_eq!(check_ambient(&broken).unwrap_err().code, MacpCode::InvalidEnvelope);
    let empty = Envelope { payload: Vec::new(), ..broken };
    assert!(check_ambient(&empty).is_ok());
}
