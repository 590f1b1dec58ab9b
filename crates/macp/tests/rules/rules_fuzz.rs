//! MACP-15: mutated envelopes, payloads, records and policies get an answer, and whatever is accepted is built again
//! from its records.

use prost::Message;
use tenure_macp::pb::Envelope;
use tenure_macp::{
    MacpDecision, MacpOpening, MacpPolicies, MacpRecord, MacpSession, PAYLOAD_BYTES_MAX,
    acknowledge, bind_sender, check_ambient, check_shape, open, page_of_sessions, refuse, replay,
};
use tenure_testkit::fuzz::{Corpus, InputForm, fuzz};

use crate::common::*;

fn envelopes() -> Vec<Envelope> {
    let commits = [commit(PLANNER, "task.completed", true), commit(PLANNER, "task.failed", false)];
    let rest = [
        start(),
        request(""),
        request(ANN),
        accept(ANN),
        reject(BOB),
        update(ANN, 0.5),
        complete(ANN, b"out"),
        fail(ANN),
    ];
    rest.into_iter().chain(commits).collect()
}

/// Sessions of every kind that a message may meet.
fn sessions() -> Vec<Played> {
    vec![Played::new(), Played::new().with(&request(ANN)), Played::accepted(), Played::completed()]
}

/// Judges an envelope as a gateway does; what is accepted leaves a record that builds the same session again.
fn is_accepted(envelope: &Envelope, sessions: &[Played]) -> bool {
    let mut accepted = false;
    let _ = (check_shape(envelope, PAYLOAD_BYTES_MAX), check_ambient(envelope));
    let _ = bind_sender(&mut envelope.clone(), ANN);
    if let Ok(MacpOpening::Accept(record)) = open(envelope, None, &policies(), START) {
        let session = MacpSession::begin(&record).expect("what was opened is begun");
        assert_eq!(replay([&*record]), Ok(Some(session)));
        accepted = true;
    }
    for played in sessions {
        match played.session.decide(envelope, played.now_ms) {
            Ok(MacpDecision::Accept(decided)) => {
                let mut session = played.session.clone();
                let bytes = decided.record.to_bytes();
                let record =
                    MacpRecord::from_bytes(&bytes).expect("a record is read as it was written");
                assert_eq!(session.apply(&record), Ok(Some(decided.effect)));
                let records = played.records.iter().chain([&record]);
                assert_eq!(replay(records), Ok(Some(session.clone())));
                let _ = (session.metadata(), acknowledge(envelope, session.state(), false, START));
                accepted = true;
            }
            Ok(_) => {}
            Err(refusal) => drop((refuse(envelope, &refusal, START), refusal.details())),
        }
    }
    accepted
}

#[test]
fn fuzz_envelopes_of_macp() {
    let sessions = sessions();
    let bytes = envelopes().into_iter().map(|it| it.encode_to_vec());
    fuzz("envelopes of MACP", &Corpus::new(InputForm::Bytes, bytes), |bytes| {
        let Ok(envelope) = Envelope::decode(bytes) else { return false };
        let written = envelope.encode_to_vec();
        assert_eq!(Envelope::decode(&*written).map(|it| it.encode_to_vec()), Ok(written));
        is_accepted(&envelope, &sessions);
        true
    });
}

/// The payload alone is mutated: the envelope around it is right.
#[test]
fn fuzz_payloads_of_macp() {
    let sessions = sessions();
    let envelopes = envelopes();
    let bytes = envelopes.iter().map(|it| it.payload.clone()).collect::<Vec<_>>();
    fuzz("payloads of MACP", &Corpus::new(InputForm::Bytes, bytes), |bytes| {
        let mut accepted = false;
        for envelope in &envelopes {
            let envelope = Envelope { payload: bytes.to_vec(), ..envelope.clone() };
            accepted |= is_accepted(&with_id(envelope, "m"), &sessions);
        }
        accepted
    });
}

/// Records as a log has them, of which some were changed.
#[test]
fn fuzz_records_of_macp() {
    let records = include_str!("records.golden").lines().map(|line| {
        let digits = line.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).unwrap());
        digits.map(|two| u8::from_str_radix(two, 16).unwrap()).collect::<Vec<u8>>()
    });
    let own = Played::completed().records.iter().map(MacpRecord::to_bytes).collect::<Vec<_>>();
    let sessions = sessions();
    fuzz("records of MACP", &Corpus::new(InputForm::Bytes, records.chain(own)), |bytes| {
        let Ok(record) = MacpRecord::from_bytes(bytes) else { return false };
        assert_eq!(
            MacpRecord::from_bytes(&record.to_bytes()).map(|it| it.to_bytes()),
            Ok(record.to_bytes())
        );
        let _ = (record.envelope(), replay([&record]));
        for played in &sessions {
            let _ = played.session.clone().apply(&record);
        }
        true
    });
}

#[test]
fn fuzz_policies_of_macp() {
    let list = r#"[{"policy_id": "p", "mode": "*", "description": "d", "schema_version": 3, "rules":
        {"assignment": {"allow_reassignment_on_reject": true}, "completion": {"require_output": true},
         "commitment": {"authority": "designated_role", "designated_roles": ["lead"]}, "voting": {"algorithm": "none"}}}]"#;
    fuzz("policies of MACP", &Corpus::new(InputForm::Json, [list.into()]), |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return false };
        let _ = page_of_sessions(i32::from(bytes.first().copied().unwrap_or(0)) - 9, text);
        let Ok(policies) = MacpPolicies::parse(text) else { return false };
        policies.list("").for_each(|policy| {
            let again = policy.text();
            assert!(!again.is_empty());
        });
        true
    });
}
