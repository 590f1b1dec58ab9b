//! A session that a test plays, with its records, and messages for it.

use prost::Message;
use tenure_macp::pb::{CommitmentPayload, Envelope, SessionStartPayload};
use tenure_macp::task_pb::{
    TaskAcceptPayload, TaskCompletePayload, TaskFailPayload, TaskRejectPayload, TaskRequestPayload,
    TaskUpdatePayload,
};
use tenure_macp::{
    MacpCode, MacpDecision, MacpEffect, MacpOpening, MacpPolicies, MacpRecord, MacpRefusal,
    MacpSession, MacpSteer, SessionState, TASK_MODE, open, replay,
};

pub const SESSION: &str = "8c0ee1e0-6d7a-4c3e-9f5e-0b6f4f0f7a11";
pub const OTHER_SESSION: &str = "8c0ee1e0-6d7a-4c3e-9f5e-0b6f4f0f7a12";
pub const START: i64 = 1_700_000_000_000;
pub const TTL: i64 = 60_000;

pub const PLANNER: &str = "planner";
pub const ANN: &str = "ann";
pub const BOB: &str = "bob";
pub const STRANGER: &str = "stranger";
/// May commit under the policy `lead`, and is no participant.
pub const LEAD: &str = "lead";

/// The policies that tests name.
pub fn policies() -> MacpPolicies {
    MacpPolicies::parse(
        r#"[
        {"policy_id": "reassign", "mode": "macp.mode.task.v1", "schema_version": 1,
         "rules": {"assignment": {"allow_reassignment_on_reject": true}}},
        {"policy_id": "output", "mode": "*", "schema_version": 3,
         "rules": {"completion": {"require_output": true}}},
        {"policy_id": "anyone", "mode": "macp.mode.task.v1", "schema_version": 2,
         "rules": {"commitment": {"authority": "any_participant"}}},
        {"policy_id": "lead", "mode": "macp.mode.task.v1", "schema_version": 1,
         "rules": {"commitment": {"authority": "designated_role", "designated_roles": ["lead"]}}},
        {"policy_id": "votes", "mode": "macp.mode.decision.v1", "schema_version": 1,
         "rules": {"voting": {"algorithm": "majority"}}}
        ]"#,
    )
    .unwrap()
}

/// An envelope. Its id is its type and sender, so that two of the same need `with_id`.
pub fn envelope(message_type: &str, sender: &str, payload: &impl Message) -> Envelope {
    Envelope {
        macp_version: "1.0".into(),
        mode: TASK_MODE.into(),
        message_type: message_type.into(),
        message_id: format!("{message_type}-{sender}"),
        session_id: SESSION.into(),
        sender: sender.into(),
        timestamp_unix_ms: START,
        payload: payload.encode_to_vec(),
    }
}

pub fn with_id(envelope: Envelope, message_id: &str) -> Envelope {
    Envelope { message_id: message_id.into(), ..envelope }
}

pub fn start_payload() -> SessionStartPayload {
    SessionStartPayload {
        intent: "analyse".into(),
        participants: vec![PLANNER.into(), ANN.into(), BOB.into()],
        mode_version: "1.0.0".into(),
        configuration_version: "config.default".into(),
        ttl_ms: TTL,
        ..Default::default()
    }
}

pub fn start() -> Envelope {
    start_with(&start_payload())
}

pub fn start_with(payload: &SessionStartPayload) -> Envelope {
    envelope("SessionStart", PLANNER, payload)
}

pub fn request(assignee: &str) -> Envelope {
    let payload = TaskRequestPayload {
        task_id: "t1".into(),
        title: "Sales".into(),
        requested_assignee: assignee.into(),
        input: b"in".to_vec(),
        ..Default::default()
    };
    envelope("TaskRequest", PLANNER, &payload)
}

pub fn accept(sender: &str) -> Envelope {
    envelope(
        "TaskAccept",
        sender,
        &TaskAcceptPayload { task_id: "t1".into(), ..Default::default() },
    )
}

pub fn reject(sender: &str) -> Envelope {
    let payload =
        TaskRejectPayload { task_id: "t1".into(), reason: "busy".into(), ..Default::default() };
    envelope("TaskReject", sender, &payload)
}

pub fn update(sender: &str, progress: f64) -> Envelope {
    let payload = TaskUpdatePayload {
        task_id: "t1".into(),
        status: "running".into(),
        progress,
        ..Default::default()
    };
    envelope("TaskUpdate", sender, &payload)
}

pub fn complete(sender: &str, output: &[u8]) -> Envelope {
    let payload = TaskCompletePayload {
        task_id: "t1".into(),
        output: output.to_vec(),
        summary: "done".into(),
        ..Default::default()
    };
    envelope("TaskComplete", sender, &payload)
}

pub fn fail(sender: &str) -> Envelope {
    let payload = TaskFailPayload {
        task_id: "t1".into(),
        error_code: "E1".into(),
        reason: "broken".into(),
        retryable: true,
        ..Default::default()
    };
    envelope("TaskFail", sender, &payload)
}

pub fn commitment(action: &str, outcome_positive: bool) -> CommitmentPayload {
    CommitmentPayload {
        commitment_id: "c1".into(),
        action: action.into(),
        authority_scope: "data".into(),
        reason: "delivered".into(),
        mode_version: "1.0.0".into(),
        configuration_version: "config.default".into(),
        outcome_positive,
        ..Default::default()
    }
}

pub fn commit(sender: &str, action: &str, outcome_positive: bool) -> Envelope {
    envelope("Commitment", sender, &commitment(action, outcome_positive))
}

/// A session and the records that made it.
#[derive(Debug, Clone)]
pub struct Played {
    pub session: MacpSession,
    pub records: Vec<MacpRecord>,
    pub now_ms: i64,
}

impl Played {
    pub fn new() -> Self {
        Self::begin(&start())
    }

    pub fn under(policy: &str) -> Self {
        Self::begin(&start_with(&SessionStartPayload {
            policy_version: policy.into(),
            ..start_payload()
        }))
    }

    pub fn begin(start: &Envelope) -> Self {
        let opening = open(start, None, &policies(), START).unwrap();
        let MacpOpening::Accept(record) = opening else { panic!("{opening:?}") };
        let session = MacpSession::begin(&record).unwrap();
        Self { session, records: vec![*record], now_ms: START }
    }

    /// With a request for `ann`, who has accepted.
    pub fn accepted() -> Self {
        Self::new().with(&request(ANN)).with(&accept(ANN))
    }

    /// With her report.
    pub fn completed() -> Self {
        Self::accepted().with(&complete(ANN, b"out"))
    }

    pub fn with(mut self, envelope: &Envelope) -> Self {
        self.send(envelope).unwrap();
        self
    }

    /// Sends a message that is not refused and no repetition.
    pub fn send(&mut self, envelope: &Envelope) -> Result<MacpEffect, MacpRefusal> {
        match self.session.decide(envelope, self.now_ms)? {
            MacpDecision::Accept(accepted) => {
                let effect = self.session.apply(&accepted.record).unwrap().unwrap();
                assert_eq!(effect, accepted.effect, "the record means what the decision said");
                assert_eq!(self.session.state(), accepted.state);
                self.records.push(accepted.record);
                Ok(effect)
            }
            MacpDecision::Expire { record, refusal } => {
                self.session.apply(&record).unwrap();
                self.records.push(*record);
                Err(refusal)
            }
            MacpDecision::Duplicate(_) => panic!("{} is a repetition", envelope.message_id),
        }
    }

    /// The code that a message is refused with. The refusal changes nothing but, when the time is over, the state.
    pub fn code(&self, envelope: &Envelope) -> MacpCode {
        let mut after = self.clone();
        let refusal = after.send(envelope).unwrap_err();
        if after.session.state() != SessionState::Expired {
            assert_eq!(after.session, self.session, "a refusal changes nothing");
        }
        refusal.code
    }

    pub fn steer(&mut self, steer: MacpSteer) -> Result<SessionState, MacpRefusal> {
        let steered = self.session.steer(steer, PLANNER, "why", self.now_ms).unwrap();
        if let Some(record) = steered.record {
            self.session.apply(&record).unwrap();
            self.records.push(record);
        }
        steered.answer
    }

    pub fn after(mut self, ms: i64) -> Self {
        self.now_ms += ms;
        self
    }

    /// The session as its records make it.
    pub fn replayed(&self) -> MacpSession {
        replay(&self.records).unwrap().unwrap()
    }
}
