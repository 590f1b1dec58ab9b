//! D: a session built again is the same session. Random histories, most of whose messages are right.

use proptest::prelude::*;
use tenure_macp::pb::{Envelope, SessionStartPayload};
use tenure_macp::{
    MacpDecision, MacpRecord, MacpReplayError, MacpSession, MacpSteer, SessionState, replay,
};

use crate::common::*;

/// One thing that happens.
#[derive(Debug, Clone)]
enum Act {
    Send(Envelope),
    Steer(MacpSteer),
    Wait(i64),
}

fn senders() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just(ANN), 3 => Just(BOB), 3 => Just(PLANNER), 1 => Just(STRANGER), 1 => Just(LEAD)]
}

fn message() -> impl Strategy<Value = Envelope> {
    let of = |sender: &'static str| {
        prop_oneof![
            2 => prop_oneof![Just(""), Just(ANN)].prop_map(request),
            3 => Just(accept(sender)),
            2 => Just(reject(sender)),
            2 => prop_oneof![Just(0.5), Just(f64::NAN)].prop_map(move |it| update(sender, it)),
            2 => Just(complete(sender, b"out")),
            1 => Just(fail(sender)),
            3 => prop_oneof![Just(("task.completed", true)), Just(("task.failed", false))]
                .prop_map(move |(action, positive)| commit(sender, action, positive)),
            1 => Just(start()),
        ]
    };
    let id = prop_oneof![
        8 => any::<u32>().prop_map(|it| format!("m{it}")),
        1 => (0..4_u8).prop_map(|it| it.to_string()),
    ];
    (senders().prop_flat_map(of), id).prop_map(|(envelope, id)| with_id(envelope, &id))
}

fn act() -> impl Strategy<Value = Act> {
    let steer = prop_oneof![
        3 => Just(MacpSteer::Suspend), 4 => Just(MacpSteer::Resume), 1 => Just(MacpSteer::Cancel)
    ];
    prop_oneof![
        16 => message().prop_map(Act::Send),
        2 => steer.prop_map(Act::Steer),
        3 => prop_oneof![6 => 0..TTL / 8, 1 => Just(TTL)].prop_map(Act::Wait),
    ]
}

fn policy() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just(""), Just("reassign"), Just("output"), Just("anyone"), Just("lead")]
}

/// Plays a history. Whatever is refused leaves the session as it was.
fn play(policy: &str, acts: &[Act]) -> Played {
    let start = SessionStartPayload {
        policy_version: policy.into(),
        max_suspend_ms: TTL / 4,
        ..start_payload()
    };
    let mut played = Played::begin(&start_with(&start));
    for act in acts {
        let before = played.session.clone();
        match act {
            Act::Wait(ms) => played.now_ms += ms,
            Act::Steer(steer) => drop(played.steer(*steer)),
            Act::Send(envelope) => {
                let decision = played.session.decide(envelope, played.now_ms);
                match decision {
                    Ok(MacpDecision::Accept(_) | MacpDecision::Expire { .. }) => {
                        drop(played.send(envelope));
                        assert_ne!(played.session, before);
                    }
                    Ok(MacpDecision::Duplicate(state)) => {
                        assert!(before.has_accepted(&envelope.message_id));
                        assert_eq!(state, before.state());
                    }
                    Err(_) => assert!(
                        !before.has_accepted(&envelope.message_id)
                            || !before.is_member(&envelope.sender)
                    ),
                }
            }
        }
        check(&before, &played.session);
    }
    played
}

/// Laws of a session: what has ended stays so, and what was said stays said.
fn check(before: &MacpSession, after: &MacpSession) {
    if before.has_ended() {
        assert_eq!(before, after);
    }
    assert!(after.ordinal() >= before.ordinal());
    assert!(after.declines().starts_with(before.declines()));
    assert!(before.request().is_none() || before.request() == after.request());
    assert!(before.report().is_none() || before.report() == after.report());
    assert!(after.request().is_some() || after.assignee().is_none());
    assert_eq!(after.commitment().is_some(), after.state() == SessionState::Resolved);
    assert_eq!(before.bound(), after.bound());
    let sent: u64 = after.activity().values().map(|it| u64::from(it.messages)).sum();
    assert_eq!(after.ordinal(), 1 + sent);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// D-01, MACP-15: the records of a session make the same session, at every point of its history, and after a way
    /// through their bytes. A refusal has changed nothing.
    #[test]
    fn replay_equals_live(policy in policy(), acts in prop::collection::vec(act(), 0..40)) {
        let played = play(policy, &acts);
        let bytes = played.records.iter().map(MacpRecord::to_bytes);
        let records: Vec<MacpRecord> =
            bytes.map(|it| MacpRecord::from_bytes(&it).unwrap()).collect();
        prop_assert_eq!(&records, &played.records);
        prop_assert_eq!(replay(&records).unwrap(), Some(played.session.clone()));
        let mut session = MacpSession::begin(&records[0]).unwrap();
        for record in &records[1..] {
            let before = session.clone();
            session.apply(record).unwrap();
            // A record that comes twice is not believed.
            let twice = session.apply(record);
            prop_assert!(twice.is_err());
            check(&before, &session);
        }
        prop_assert_eq!(session, played.session);
    }

    /// D-01: a log that lacks an envelope before another envelope is not believed.
    #[test]
    fn a_log_with_a_gap_is_not_believed(
        policy in policy(),
        acts in prop::collection::vec(act(), 0..40),
        at in any::<prop::sample::Index>(),
    ) {
        let mut records = play(policy, &acts).records;
        let at = at.index(records.len());
        let gone = records.remove(at);
        let is_envelope = |it: &MacpRecord| it.envelope().unwrap().is_some();
        if is_envelope(&gone) && records[at..].iter().any(is_envelope) {
            prop_assert!(replay(&records).is_err());
        }
    }
}

/// D-01: a log that lacks a report of progress, which no other record needs, is not believed either.
#[test]
fn a_log_without_a_progress_is_not_believed() {
    let mut records = Played::accepted().with(&update(ANN, 0.5)).with(&complete(ANN, b"")).records;
    records.remove(3);
    assert_eq!(replay(&records), Err(MacpReplayError::Ordinal { found: 5, expected: 4 }));
}

/// D-01: no records are no session, and a session begins with its start.
#[test]
fn a_session_begins_with_its_start() {
    assert_eq!(replay(&[]), Ok(None));
    let records = Played::accepted().records;
    assert!(matches!(replay(&records[1..]), Err(MacpReplayError::Unfit(_))));
    let twice = [records[0].clone(), records[0].clone()];
    assert!(replay(&twice).is_err());
}
