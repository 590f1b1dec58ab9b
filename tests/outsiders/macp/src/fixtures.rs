//! The conformance fixtures of the protocol against tenure-macp, without a server: `cargo run -- fixtures FOLDER`. Over
//! gRPC, `cargo run -- conform ARGUMENTS` is the runner `macp-conform` as it is.

use std::future::Future;
use std::pin::pin;
use std::process::ExitCode;
use std::task::{Context, Poll, Waker};

use macp_conform::{
    Capabilities, ConformanceTarget, FixtureSet, HistoryEntry, Observation, Outcome, Profile,
    RunOptions, Submission, TargetError, run,
};
use macp_core::PolicyDefinition;
use macp_pb::pb::Envelope as TheirEnvelope;
use prost::Message;
use tenure_macp::pb::Envelope;
use tenure_macp::{
    MacpDecision, MacpKind, MacpOpening, MacpPolicies, MacpRecord, MacpRefusal, MacpSession,
    PAYLOAD_BYTES_MAX, check_shape, open, replay,
};

use crate::compare::converted;

/// Runs the fixtures of Task mode in a folder.
pub fn run_all(folder: &str) -> ExitCode {
    let mut set = FixtureSet::from_dir(folder).expect("a folder with fixtures");
    set.fixtures.retain(|it| it.name.starts_with("task_"));
    set.vectors.clear();
    let mut here = Here::default();
    let report = at_once(run(&mut here, &set, &RunOptions::default()));
    println!("{}", report.render_text());
    let passed = |it: &&macp_conform::report::FixtureResult| {
        it.outcome == Outcome::Pass && it.unverified.is_empty()
    };
    let passed = report.fixtures.iter().filter(passed).count();
    println!(
        "{passed} of {} fixtures of Task mode pass, with nothing unverified",
        set.fixtures.len()
    );
    if passed == set.fixtures.len() && passed >= 3 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A future that never waits, as nothing here sends anything.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
    }
}

/// Sessions in memory, and the policies of the fixture.
#[derive(Default)]
struct Here {
    policies: Vec<PolicyDefinition>,
    sessions: Vec<(MacpSession, Vec<MacpRecord>)>,
}

fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |it| it.as_millis() as i64)
}

impl Here {
    fn session(&mut self, id: &str) -> Option<&mut (MacpSession, Vec<MacpRecord>)> {
        self.sessions.iter_mut().find(|(session, _)| session.bound().session_id == id)
    }

    fn take(&mut self, envelope: &Envelope) -> Result<bool, MacpRefusal> {
        let kind = check_shape(envelope, PAYLOAD_BYTES_MAX)?;
        let policies = serde_json::to_string(&self.policies).expect("JSON");
        let policies = MacpPolicies::parse(&policies).expect("the policies of a fixture");
        let existing = self.session(&envelope.session_id);
        if kind == MacpKind::Start {
            let record =
                match open(envelope, existing.as_ref().map(|it| &it.0), &policies, now_ms())? {
                    MacpOpening::Duplicate(_) => return Ok(true),
                    MacpOpening::Accept(record) => record,
                };
            self.sessions.push((MacpSession::begin(&record).expect("a record"), vec![*record]));
            return Ok(false);
        }
        let (session, records) = existing.expect("a session of a fixture was started");
        let record = match session.decide(envelope, now_ms())? {
            MacpDecision::Duplicate(_) => return Ok(true),
            MacpDecision::Expire { refusal, .. } => return Err(refusal),
            MacpDecision::Accept(accepted) => accepted.record,
        };
        session.apply(&record).expect("a record");
        records.push(record);
        Ok(false)
    }
}

#[async_trait::async_trait]
impl ConformanceTarget for Here {
    fn profile(&self) -> Profile {
        Profile::Embedded
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default().with_replay(true)
    }

    fn describe(&self) -> String {
        "tenure-macp, in process".to_owned()
    }

    async fn begin_fixture(&mut self, _clock_start: Option<i64>) -> Result<(), TargetError> {
        *self = Self::default();
        Ok(())
    }

    async fn register_policy(&mut self, definition: PolicyDefinition) -> Result<(), TargetError> {
        self.policies.push(definition);
        Ok(())
    }

    async fn submit(&mut self, envelope: TheirEnvelope) -> Result<Submission, TargetError> {
        let envelope = Envelope::decode(envelope.encode_to_vec().as_slice());
        let envelope = envelope.map_err(|e| TargetError(e.to_string()))?;
        Ok(match self.take(&envelope) {
            Ok(duplicate) => Submission::Accepted { duplicate },
            Err(refusal) => Submission::Rejected { code: refusal.code.as_str().to_owned() },
        })
    }

    async fn observe(
        &mut self,
        session_id: &str,
        _initiator: &str,
    ) -> Result<Observation, TargetError> {
        let Some((session, records)) = self.session(session_id) else {
            return Err(TargetError("there is no such session".to_owned()));
        };
        let envelopes = records.iter().skip(1).filter_map(|it| it.envelope().expect("an envelope"));
        let history = envelopes.map(|it| HistoryEntry::from_envelope(&converted(&it))).collect();
        let resolution = session.commitment().map(Message::encode_to_vec);
        let observation = Observation::new(format!("{:?}", session.state()));
        Ok(observation.with_resolution(resolution).with_history(history))
    }

    async fn check_replay(&mut self, session_id: &str) -> Result<Result<(), String>, TargetError> {
        let Some((session, records)) = self.session(session_id) else {
            return Err(TargetError("there is no such session".to_owned()));
        };
        let again = replay(records.iter());
        if again.as_ref() == Ok(&Some(session.clone())) {
            return Ok(Ok(()));
        }
        Ok(Err(format!("built again: {again:?}")))
    }
}
