//! D: what is kept of a session, byte by byte. A log that was written once is read for ever.

use tenure_macp::pb::{Envelope, SessionStartPayload};
use tenure_macp::{
    MacpChange, MacpRecord, MacpReplayError, MacpSteer, REVISION, SessionState, replay,
};

use crate::common::*;

const GOLDEN: &str = include_str!("records.golden");

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}

/// A session with a record of each kind.
fn played() -> Played {
    let start =
        start_with(&SessionStartPayload { policy_version: "reassign".into(), ..start_payload() });
    let mut played = Played::begin(&start).after(1).with(&request("")).with(&reject(BOB)).after(1);
    played.steer(MacpSteer::Suspend).unwrap();
    played = played.after(10);
    played.steer(MacpSteer::Resume).unwrap();
    let played = played.with(&accept(ANN)).with(&update(ANN, 0.5)).with(&complete(ANN, b"out"));
    played.with(&commit(PLANNER, "task.completed", true))
}

fn shown(played: &Played) -> String {
    let mut ended = [Played::new(), Played::new().after(TTL + 1)];
    ended[0].steer(MacpSteer::Cancel).unwrap();
    ended[1].send(&request(ANN)).unwrap_err();
    let ends = ended.iter().flat_map(|it| it.records.last());
    let lines = played.records.iter().chain(ends).map(|it| to_hex(&it.to_bytes()) + "\n");
    lines.collect()
}

/// D-01, MACP-15: records have the bytes that the file beside this test has.
#[test]
fn records_have_these_bytes() {
    let found = shown(&played());
    assert_eq!(
        found, GOLDEN,
        "a new form needs a new revision, and the old one is still read:\n{found}"
    );
}

/// D-01, MACP-15: records that were written once make the same session.
#[test]
fn old_records_make_the_same_session() {
    let records = GOLDEN.lines().map(|line| MacpRecord::from_bytes(&from_hex(line)).unwrap());
    let records: Vec<MacpRecord> = records.collect();
    let (ends, records) = (&records[records.len() - 2..], &records[..records.len() - 2]);
    let session = replay(records).unwrap().unwrap();
    assert_eq!(session, played().session);
    assert_eq!((session.state(), session.ordinal()), (SessionState::Resolved, 7));
    assert_eq!(session.metadata().expires_at_unix_ms, START + TTL + 10);
    assert_eq!(ends[0].change, Some(MacpChange::Cancelled("why".into())));
    assert_eq!(ends[1].change, Some(MacpChange::Expired(true)));
}

/// D-01: a record keeps the envelope as it was accepted, its sender, its time and its number among envelopes.
#[test]
fn a_record_keeps_the_envelope() {
    let played = played();
    let sent = [
        start_with(&SessionStartPayload { policy_version: "reassign".into(), ..start_payload() }),
        request(""),
        reject(BOB),
        accept(ANN),
        update(ANN, 0.5),
        complete(ANN, b"out"),
        commit(PLANNER, "task.completed", true),
    ];
    let envelopes = played.records.iter().filter_map(|it| Some((it, it.envelope().unwrap()?)));
    let envelopes: Vec<(&MacpRecord, Envelope)> = envelopes.collect();
    assert_eq!(envelopes.len(), sent.len());
    for (ordinal, ((record, envelope), sent)) in (1..).zip(envelopes.iter().zip(sent)) {
        assert_eq!((envelope, record.ordinal), (&sent, ordinal));
        assert_eq!((record.sender.as_str(), record.revision), (sent.sender.as_str(), REVISION));
    }
    assert_eq!(played.records[0].accepted_at_ms, START);
    assert_eq!(played.records[2].accepted_at_ms, START + 1);
}

/// D-01: what is no record, and what a newer release wrote, is not guessed at.
#[test]
fn what_is_no_record_is_refused() {
    for bytes in [&b""[..], b"\xff", b"no record"] {
        let error = MacpRecord::from_bytes(bytes).unwrap_err();
        assert!(matches!(error, MacpReplayError::Unreadable(_)), "{error:?}");
    }
    let mut records = played().records;
    records[1].sender = ANN.into();
    assert!(matches!(replay(&records), Err(MacpReplayError::Unreadable(_))));
    let mut record = records.remove(0);
    record.revision = REVISION + 1;
    let error = MacpRecord::from_bytes(&record.to_bytes()).unwrap_err();
    assert_eq!(error, MacpReplayError::Newer(REVISION + 1));
    assert_eq!(Played::new().session.apply(&record).unwrap_err(), error);
}
