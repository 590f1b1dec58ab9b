//! L-07: sessions that end when their assignee is silent.

use tenure_macp::pb::SessionStartPayload;
use tenure_macp::{MacpCode, MacpOpening, MacpSteer, SessionState, open};

use crate::common::*;

const LEASE: i64 = 5_000;

fn of_configuration(version: &str) -> tenure_macp::pb::Envelope {
    let configuration_version = version.into();
    start_with(&SessionStartPayload { configuration_version, ..start_payload() })
}

/// A session whose assignee may be silent for five seconds.
fn leased() -> Played {
    let start = of_configuration("tenure.lease.5s");
    Played::begin(&start).with(&request(ANN)).with(&accept(ANN))
}

/// L-07, MACP-18: an assignee that is silent for longer than its lease ends the session, as its deadline does. Progress
/// renews the lease, and what others say does not.
#[test]
fn a_silent_assignee_ends_the_session() {
    let played = leased();
    assert_eq!(played.session.lease_until_ms(), Some(START + LEASE));
    assert_eq!(played.session.expires_at_ms(), Some(START + LEASE + 1));
    assert_eq!(played.session.metadata().expires_at_unix_ms, START + TTL, "that is the deadline");

    let played = played.after(LEASE).with(&update(ANN, 0.1));
    assert_eq!(played.session.lease_until_ms(), Some(START + 2 * LEASE));
    let played = played.after(LEASE);
    assert_eq!(
        played.code(&with_id(request(ANN), "again")),
        MacpCode::InvalidEnvelope,
        "it is still open"
    );
    assert!(!played.session.has_lapsed(played.now_ms));

    let mut late = played.after(1);
    assert!(late.session.has_lapsed(late.now_ms));
    let refusal = late.send(&with_id(update(ANN, 0.2), "late")).unwrap_err();
    assert_eq!(refusal.code, MacpCode::SessionNotOpen);
    assert!(refusal.message.contains("5 s"), "{}", refusal.message);
    assert_eq!(late.session.state(), SessionState::Expired);
    assert_eq!(late.replayed(), late.session);
    assert!(!late.session.has_lapsed(late.now_ms), "it is over");
}

/// L-07: before there is an assignee, after its report, and while the session is suspended, nobody has to say anything.
#[test]
fn only_an_assignee_at_work_has_a_lease() {
    let start = of_configuration("tenure.lease.5s");
    let asked = Played::begin(&start).with(&request(ANN)).after(TTL);
    assert_eq!((asked.session.lease_until_ms(), asked.session.expire(asked.now_ms)), (None, None));

    for report in [complete(ANN, b"out"), fail(ANN)] {
        let done = leased().with(&report).after(TTL);
        assert_eq!((done.session.lease_until_ms(), done.session.expire(done.now_ms)), (None, None));
    }

    let mut played = leased().after(LEASE - 1);
    played.steer(MacpSteer::Suspend).unwrap();
    let mut played = played.after(10 * LEASE);
    assert!(!played.session.has_lapsed(played.now_ms));
    played.steer(MacpSteer::Resume).unwrap();
    let in_time = played.clone().after(1);
    assert_eq!(in_time.session.expire(in_time.now_ms), None, "one millisecond was left");
    assert!(played.after(2).session.has_lapsed(START + 11 * LEASE + 1));
}

/// L-07: without such a version there is no lease, and a version of Tenure that there is not is refused. What a record
/// says counts, whatever its version is called.
#[test]
fn a_lease_is_asked_for_by_the_version_of_the_configuration() {
    assert_eq!(Played::accepted().session.lease_until_ms(), None);
    for wrong in
        ["tenure.lease.0s", "tenure.lease.86401s", "tenure.lease.5", "tenure.lease.+5s", "tenure.x"]
    {
        let refusal = open(&of_configuration(wrong), None, &policies(), START).unwrap_err();
        assert_eq!(refusal.code, MacpCode::InvalidEnvelope, "{wrong}");
        assert!(refusal.message.contains("tenure.lease.<seconds>s"), "{}", refusal.message);
    }
    for (version, lease_ms) in [("tenure.lease.1s", 1_000), ("tenure.lease.86400s", 86_400_000)] {
        let opening = open(&of_configuration(version), None, &policies(), START).unwrap();
        let MacpOpening::Accept(record) = opening else { panic!("{opening:?}") };
        assert_eq!(tenure_macp::MacpSession::begin(&record).unwrap().bound().lease_ms, lease_ms);
    }
}
