//! L: what is done to a session as a whole, and who sees it.

use tenure_macp::pb::SessionStartPayload;
use tenure_macp::{
    MacpChange, MacpCode, MacpDecision, MacpRecord, MacpReplayError, MacpSession, MacpSteer,
    MacpSteered, SUSPENSIONS_MAX, SessionState, acknowledge_steer,
};

use crate::common::*;

const STEERS: [MacpSteer; 3] = [MacpSteer::Suspend, MacpSteer::Resume, MacpSteer::Cancel];

fn started(ttl_ms: i64, max_suspend_ms: i64) -> Played {
    Played::begin(&start_with(&SessionStartPayload { ttl_ms, max_suspend_ms, ..start_payload() }))
}

/// L-01, MACP-02: a message at the deadline is in time. The first after it is refused and ends the session; whoever
/// looks at the session ends it, too.
#[test]
fn a_session_expires_after_its_deadline() {
    let in_time = Played::new().after(TTL);
    assert_eq!(in_time.session.expire(in_time.now_ms), None);
    let in_time = in_time.with(&request(ANN));
    assert_eq!(in_time.session.state(), SessionState::Open);
    assert_eq!(in_time.session.expires_at_ms(), Some(START + TTL + 1));

    let mut late = in_time.after(1);
    let record = late.session.expire(late.now_ms).unwrap();
    assert_eq!((record.ordinal, record.sender.as_str()), (2, ""));
    let decision = late.session.decide(&accept(STRANGER), late.now_ms).unwrap();
    let MacpDecision::Expire { record: by_message, refusal } = decision else {
        panic!("{decision:?}")
    };
    assert_eq!(*by_message, record);
    assert_eq!(refusal.code, MacpCode::SessionNotOpen);
    assert_eq!(late.send(&accept(ANN)).unwrap_err().code, MacpCode::SessionNotOpen);
    assert_eq!(late.session.state(), SessionState::Expired);
    assert!(late.session.has_ended());
    assert_eq!((late.session.expires_at_ms(), late.session.expire(i64::MAX)), (None, None));
    assert!(!late.session.has_accepted(&accept(ANN).message_id));
    assert_eq!(late.session.ordinal(), 2);
}

/// L-02: the initiator steers a session, and those who may commit. Others are refused before the state is looked at.
#[test]
fn only_the_initiator_and_committers_steer() {
    for (policy, may) in
        [("", &[PLANNER][..]), ("anyone", &[PLANNER, ANN, BOB]), ("lead", &[PLANNER, LEAD])]
    {
        for sender in [PLANNER, ANN, BOB, LEAD, STRANGER] {
            for steer in STEERS {
                let steered = Played::under(policy).session.steer(steer, sender, "", START);
                assert_eq!(steered.is_ok(), may.contains(&sender), "{policy} {sender} {steer:?}");
                let code = steered.err().map_or(MacpCode::Forbidden, |refusal| refusal.code);
                assert_eq!(code, MacpCode::Forbidden);
            }
        }
    }
}

/// L-03, L-04: what each state answers to each request, as a table.
#[test]
fn every_state_answers_every_steer() {
    use SessionState as S;
    let open = Played::accepted();
    let mut suspended = open.clone();
    suspended.steer(MacpSteer::Suspend).unwrap();
    let mut cancelled = open.clone();
    cancelled.steer(MacpSteer::Cancel).unwrap();
    let resolved = Played::completed().with(&commit(PLANNER, "task.completed", true));
    let mut expired = open.clone().after(TTL + 1);
    expired.send(&update(ANN, 0.5)).unwrap_err();
    let overdue = open.clone().after(TTL + 1);
    // Suspend, resume, cancel; `None` is SESSION_NOT_OPEN.
    for (played, answers) in [
        (open, [Some(S::Suspended), None, Some(S::Cancelled)]),
        (suspended, [None, Some(S::Open), Some(S::Cancelled)]),
        (resolved, [None, None, Some(S::Resolved)]),
        (cancelled, [None, None, Some(S::Cancelled)]),
        (expired, [None, None, Some(S::Expired)]),
        (overdue, [None, None, Some(S::Expired)]),
    ] {
        for (steer, expected) in STEERS.into_iter().zip(answers) {
            let (mut after, before) = (played.clone(), played.session.state());
            let answer = after.steer(steer);
            let code = answer.as_ref().err().map_or(MacpCode::SessionNotOpen, |it| it.code);
            assert_eq!(
                (answer.ok(), code),
                (expected, MacpCode::SessionNotOpen),
                "{before:?} {steer:?}"
            );
            let state =
                if played.session.expire(played.now_ms).is_some() { S::Expired } else { before };
            assert_eq!(after.session.state(), expected.unwrap_or(state), "{before:?} {steer:?}");
            assert_eq!(after.session.ordinal(), played.session.ordinal(), "only envelopes count");
            assert_eq!(after.replayed(), after.session);
        }
    }
}

/// L-03, L-04: their Acks have no message id, and say the state or the error.
#[test]
fn an_ack_of_a_steer_has_no_message_id() {
    let ack = acknowledge_steer(SESSION, &Ok(SessionState::Cancelled), 5);
    assert!(ack.ok && ack.message_id.is_empty() && ack.error.is_none());
    assert_eq!((ack.session_id.as_str(), ack.accepted_at_unix_ms), (SESSION, 5));
    assert_eq!(ack.session_state(), SessionState::Cancelled);
    let answer = Played::new().steer(MacpSteer::Resume);
    let ack = acknowledge_steer(SESSION, &answer, 5);
    assert!(!ack.ok && ack.message_id.is_empty() && ack.session_state == 0);
    assert_eq!(ack.error.unwrap().code, "SESSION_NOT_OPEN");
}

/// L-04: while a session is suspended its time stands still; what it stood is added to the deadline.
#[test]
fn suspended_time_does_not_count() {
    let mut played = started(700, 0).with(&request(ANN)).after(500);
    played.steer(MacpSteer::Suspend).unwrap();
    let mut played = played.after(1000);
    assert_eq!(played.session.expire(played.now_ms), None);
    assert_eq!(played.session.metadata().expires_at_unix_ms, START + 700);
    assert_eq!(played.steer(MacpSteer::Resume), Ok(SessionState::Open));
    assert_eq!(played.session.metadata().expires_at_unix_ms, START + 1700);
    let played = played.after(200).with(&accept(ANN)).after(1);
    assert_eq!(played.code(&update(ANN, 0.1)), MacpCode::SessionNotOpen);
}

/// L-04: a session that stood still for longer than it may, altogether, is over.
#[test]
fn a_session_may_stand_still_for_a_time() {
    let mut played = started(TTL, 1000);
    for _ in 0..2 {
        played.steer(MacpSteer::Suspend).unwrap();
        assert!(played.session.expires_at_ms().unwrap() > played.now_ms);
        played = played.after(500);
        played.steer(MacpSteer::Resume).unwrap();
    }
    played.steer(MacpSteer::Suspend).unwrap();
    assert_eq!(played.session.expires_at_ms(), Some(played.now_ms + 1));
    assert_eq!(played.clone().steer(MacpSteer::Resume), Ok(SessionState::Open));
    let over = played.after(1);
    for steer in [MacpSteer::Resume, MacpSteer::Suspend] {
        let mut over = over.clone();
        assert_eq!(over.steer(steer).unwrap_err().code, MacpCode::SessionNotOpen);
        assert_eq!(over.session.state(), SessionState::Expired);
        assert_eq!(over.replayed(), over.session);
    }
    assert_eq!(over.code(&request(ANN)), MacpCode::SessionNotOpen);
    assert_eq!(over.clone().steer(MacpSteer::Cancel), Ok(SessionState::Expired));
}

/// L-04: a session is resumed 1024 times at most.
#[test]
fn a_session_may_be_suspended_so_often() {
    let mut played = Played::new();
    for _ in 0..SUSPENSIONS_MAX {
        played.steer(MacpSteer::Suspend).unwrap();
        played.steer(MacpSteer::Resume).unwrap();
    }
    played.steer(MacpSteer::Suspend).unwrap();
    assert_eq!(played.session.expire(played.now_ms), None);
    assert_eq!(played.steer(MacpSteer::Resume).unwrap_err().code, MacpCode::SessionNotOpen);
    assert_eq!(played.session.state(), SessionState::Expired);
    assert_eq!(played.replayed(), played.session);
}

/// L-04: a clock that goes back takes nothing from a session.
#[test]
fn a_clock_that_goes_back_adds_nothing() {
    let mut played = Played::new();
    played.steer(MacpSteer::Suspend).unwrap();
    let mut played = played.after(-5000);
    played.steer(MacpSteer::Resume).unwrap();
    assert_eq!(played.session.metadata().expires_at_unix_ms, START + TTL);
}

/// L-03, L-04: a record of what does not fit the state is not believed, and changes nothing.
#[test]
fn a_record_must_fit_the_state() {
    let mut suspended = Played::new();
    suspended.steer(MacpSteer::Suspend).unwrap();
    let record = |session: &MacpSession, change: MacpChange, ordinal: u64| {
        let record = MacpRecord {
            revision: 1,
            ordinal,
            accepted_at_ms: START,
            sender: PLANNER.into(),
            change: Some(change),
            carried_out: false,
        };
        let mut after = session.clone();
        let error = after.apply(&record).unwrap_err();
        assert_eq!(&after, session);
        error
    };
    let open = Played::new().session;
    let unfit = MacpReplayError::Unfit("in another state");
    assert_eq!(record(&open, MacpChange::Resumed(String::new()), 1), unfit);
    assert_eq!(record(&open, MacpChange::Expired(true), 1), unfit);
    assert_eq!(record(&suspended.session, MacpChange::Suspended(String::new()), 1), unfit);
    let ordinal = MacpReplayError::Ordinal { found: 2, expected: 1 };
    assert_eq!(record(&open, MacpChange::Cancelled(String::new()), 2), ordinal);
    let nothing = MacpRecord { revision: 1, ordinal: 1, ..MacpRecord::default() };
    assert!(matches!(open.clone().apply(&nothing), Err(MacpReplayError::Unreadable(_))));
}

/// L-05: the initiator and participants read a session; an observer is the gateway's to know. What each has sent is
/// counted without the start.
#[test]
fn members_read_a_session() {
    let led = Played::under("lead").session;
    for (name, may) in [(PLANNER, true), (ANN, true), (BOB, true), (STRANGER, false), (LEAD, false)]
    {
        assert_eq!(led.may_read(name), may, "{name}");
    }
    let unlisted = SessionStartPayload { participants: vec![ANN.into()], ..start_payload() };
    assert!(Played::begin(&start_with(&unlisted)).session.may_read(PLANNER));

    let played = Played::accepted().after(3).with(&update(ANN, 0.5));
    let metadata = played.session.metadata();
    let activity = metadata.participant_activity.iter();
    let activity: Vec<_> = activity
        .map(|it| (it.participant_id.as_str(), it.message_count, it.last_message_at_unix_ms))
        .collect();
    assert_eq!(activity, [(ANN, 2, START + 3), (PLANNER, 1, START)]);
    assert_eq!(metadata.state(), SessionState::Open);
    assert_eq!((metadata.session_id.as_str(), metadata.initiator.as_str()), (SESSION, PLANNER));
    assert_eq!(
        (metadata.mode_version.as_str(), metadata.mode.as_str()),
        ("1.0.0", "macp.mode.task.v1")
    );
    assert_eq!(metadata.configuration_version, "config.default");
    assert!(Played::new().session.metadata().participant_activity.is_empty());
}

/// L-03: a request that changes nothing has no record.
#[test]
fn what_changes_nothing_is_not_recorded() {
    let resolved = Played::completed().with(&commit(PLANNER, "task.completed", true)).session;
    let steered = resolved.steer(MacpSteer::Cancel, PLANNER, "", START + 10 * TTL).unwrap();
    assert_eq!(steered, MacpSteered { record: None, answer: Ok(SessionState::Resolved) });
}
