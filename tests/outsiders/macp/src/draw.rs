//! Draws what happens: most messages are the next right one or nearly so.

use prost::Message;
use tenure_macp::pb::{CommitmentPayload, CommitmentRef, Envelope, Root, SessionStartPayload};
use tenure_macp::task_pb::{
    TaskAcceptPayload, TaskCompletePayload, TaskFailPayload, TaskRejectPayload, TaskRequestPayload,
    TaskUpdatePayload,
};
use tenure_macp::{MacpSession, MacpSteer, SessionState, TASK_MODE};

pub const START: i64 = 1_700_000_000_000;
const SESSION: &str = "8c0ee1e0-6d7a-4c3e-9f5e-0b6f4f0f7a11";
const OTHER: &str = "abcdefghijklmnopqrstuv";

/// The policies that sessions name.
pub const POLICIES: &str = r#"[
    {"policy_id": "reassign", "mode": "macp.mode.task.v1", "schema_version": 1, "description": "",
     "rules": {"assignment": {"allow_reassignment_on_reject": true}}},
    {"policy_id": "output", "mode": "*", "schema_version": 3, "description": "",
     "rules": {"completion": {"require_output": true}}},
    {"policy_id": "anyone", "mode": "macp.mode.task.v1", "schema_version": 2, "description": "",
     "rules": {"assignment": {"allow_reassignment_on_reject": true}, "commitment": {"authority": "any_participant"}}},
    {"policy_id": "lead", "mode": "macp.mode.task.v1", "schema_version": 1, "description": "",
     "rules": {"commitment": {"authority": "designated_role", "designated_roles": ["lead", "bob"]}}},
    {"policy_id": "votes", "mode": "macp.mode.decision.v1", "schema_version": 1, "description": "",
     "rules": {"voting": {"algorithm": "majority"}}}
]"#;

/// Whoever sends: the initiator, three participants, somebody whom a policy names, and nobody's friend.
const SENDERS: [&str; 6] = ["planner", "ann", "bob", "cid", "lead", "stranger"];

/// The numbers of splitmix64.
pub struct Rng(pub u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// Whether the progress of a TaskUpdate is a number.
pub fn is_finite(envelope: &Envelope) -> bool {
    envelope.message_type != "TaskUpdate"
        || TaskUpdatePayload::decode(envelope.payload.as_slice())
            .is_ok_and(|it| it.progress.is_finite())
}

pub struct Draw {
    pub rng: Rng,
    pub next_id: u64,
}

impl Draw {
    /// The time of what comes next; now and then it is just before or after the end of a session.
    pub fn now(&mut self, before_ms: i64, session: Option<&MacpSession>) -> i64 {
        if self.rng.one_in(60)
            && let Some(end_ms) = session.and_then(MacpSession::expires_at_ms)
            && (before_ms..START + 1_000_000_000).contains(&end_ms)
        {
            return end_ms.saturating_sub(self.rng.below(2) as i64);
        }
        before_ms
            + match self.rng.below(60) {
                0 => 5_000,
                1 => -3,
                2..=9 => self.rng.below(400) as i64,
                _ => self.rng.below(20) as i64,
            }
    }

    pub fn steer(&mut self) -> (MacpSteer, &'static str) {
        let steers = [
            MacpSteer::Suspend,
            MacpSteer::Suspend,
            MacpSteer::Suspend,
            MacpSteer::Resume,
            MacpSteer::Resume,
            MacpSteer::Resume,
            MacpSteer::Resume,
            MacpSteer::Cancel,
        ];
        let sender = if self.rng.one_in(3) { self.rng.of(&SENDERS) } else { "planner" };
        (self.rng.of(&steers), sender)
    }

    /// An id of a session, nearly right or wrong.
    pub fn session_id(&mut self) -> String {
        let mut id = match self.rng.below(3) {
            0 => SESSION.to_owned(),
            1 => "0190a6b0-6d7a-7c3e-9f5e-0b6f4f0f7a11".to_owned(),
            _ => {
                (0..self.rng.below(140)).map(|_| self.rng.of(&['a', 'Z', '0', '-', '_'])).collect()
            }
        };
        if id.len() == 36 && self.rng.one_in(2) {
            let version = self.rng.of(&["1", "4", "5", "7", "8", "f"]);
            id.replace_range(14..15, version);
        }
        for _ in 0..self.rng.below(3) {
            let at = self.rng.below(id.len() as u64 + 1) as usize;
            let to = (at + self.rng.below(2) as usize).min(id.len());
            if id.is_char_boundary(at) && id.is_char_boundary(to) {
                let new = self.rng.of(&["", "-", "A", "4", "g", " ", "{", "é", "7", "00"]);
                id.replace_range(at..to, new);
            }
        }
        id
    }

    /// Rules of a policy for Task mode, right or wrong.
    pub fn rules(&mut self) -> serde_json::Value {
        let groups = ["assignment", "completion", "commitment", "_note", "voting", "x-com.example"];
        let fields = [
            "allow_reassignment_on_reject",
            "require_output",
            "authority",
            "designated_roles",
            "$note",
            "require_vote_quorum",
        ];
        let values = [
            "true",
            "false",
            "1",
            "null",
            "{}",
            "[]",
            "[1]",
            r#"["a"]"#,
            r#""initiator_only""#,
            r#""any_participant""#,
            r#""designated_role""#,
            r#""boss""#,
        ];
        let mut rules = serde_json::Map::new();
        for _ in 0..self.rng.below(3) {
            let group = self.rng.of(&groups);
            let mut of_group = serde_json::Map::new();
            for _ in 0..self.rng.below(3) {
                // Most often the field and a value that go with the group.
                let (field, value) = match (self.rng.below(4), group) {
                    (0, _) => (self.rng.of(&fields), self.rng.of(&values)),
                    (_, "assignment") => (fields[0], self.rng.of(&values[..3])),
                    (_, "completion") => (fields[1], self.rng.of(&values[..3])),
                    (1, _) => (fields[3], self.rng.of(&values[4..8])),
                    _ => (fields[2], self.rng.of(&values[8..])),
                };
                of_group.insert(field.to_owned(), serde_json::from_str(value).expect("JSON"));
            }
            let value = match self.rng.below(12) {
                0 => serde_json::from_str(self.rng.of(&values)).expect("JSON"),
                _ => serde_json::Value::Object(of_group),
            };
            rules.insert(group.to_owned(), value);
        }
        serde_json::Value::Object(rules)
    }

    fn id(&mut self) -> String {
        if self.next_id > 0 && self.rng.one_in(12) {
            return id_of(self.rng.below(self.next_id));
        }
        self.next_id += 1;
        id_of(self.next_id - 1)
    }

    fn envelope(&mut self, message_type: &str, sender: &str, payload: Vec<u8>) -> Envelope {
        Envelope {
            macp_version: "1.0".into(),
            mode: TASK_MODE.into(),
            message_type: message_type.into(),
            message_id: self.id(),
            session_id: SESSION.into(),
            sender: sender.into(),
            timestamp_unix_ms: START,
            payload,
        }
    }

    pub fn start(&mut self) -> Envelope {
        let participants: &[&str] = match self.rng.below(8) {
            0 => &["ann"],
            1 => &["planner", "ann"],
            2 => &["ann", "bob", "cid"],
            _ => &["planner", "ann", "bob", "cid"],
        };
        let mut payload = SessionStartPayload {
            intent: "analyse".into(),
            participants: participants.iter().map(|it| (*it).to_owned()).collect(),
            mode_version: "1.0.0".into(),
            configuration_version: "config.default".into(),
            policy_version: self
                .rng
                .of(&["", "policy.default", "reassign", "reassign", "output", "anyone", "lead"])
                .into(),
            ttl_ms: self.rng.of(&[1_000, 4_000, 60_000, 60_000, 86_400_000]),
            max_suspend_ms: self.rng.of(&[0, 0, 300, 10_000]),
            context_id: self.rng.of(&["", "ctx"]).into(),
            ..Default::default()
        };
        if self.rng.one_in(4) {
            payload.extensions.insert("x".into(), vec![1]);
            payload.roots.push(Root { uri: "file:///".into(), name: String::new() });
        }
        if self.rng.one_in(3) {
            self.spoil_start(&mut payload);
        }
        let mut start = self.envelope("SessionStart", "planner", payload.encode_to_vec());
        match self.rng.below(30) {
            0 => start.payload.clear(),
            1 => drop(start.payload.pop()),
            2 => start.timestamp_unix_ms = self.rng.of(&[0, -1, 1_000, i64::MAX, START + 500]),
            3 => start.session_id = self.session_id(),
            4 => start.session_id = OTHER.into(),
            5 => start.mode = self.rng.of(&["macp.mode.decision.v1", "other"]).into(),
            6 => start.sender = self.rng.of(&SENDERS).into(),
            7 => start.macp_version = "2.0".into(),
            8 => start.message_id.clear(),
            9 => start.session_id.clear(),
            10 => start.mode = " ".into(),
            _ => {}
        }
        start
    }

    fn spoil_start(&mut self, payload: &mut SessionStartPayload) {
        match self.rng.below(10) {
            0 => payload.ttl_ms = self.rng.of(&[0, -1, 1, 86_400_001, i64::MAX]),
            1 => payload.mode_version = self.rng.of(&["", " ", "1.0", "2.0.0"]).into(),
            2 => payload.configuration_version = self.rng.of(&["", " "]).into(),
            3 => payload.participants.clear(),
            4 => {
                payload.participants.push(self.rng.of(&["", " ", "ann", " ann", "planner"]).into())
            }
            5 => payload.participants = vec!["planner".into()],
            6 => payload.max_suspend_ms = self.rng.of(&[-1, i64::MIN, i64::MAX]),
            7 => payload.participants = (0..1001).map(|it| format!("w{it}")).collect(),
            _ => payload.policy_version = self.rng.of(&["votes", "nobody", "votes ", " "]).into(),
        }
    }

    /// A message for a session, most often the next right one.
    pub fn message(&mut self, session: &MacpSession) -> Envelope {
        let (message_type, sender) = if self.rng.one_in(4) {
            let types = [
                "TaskRequest",
                "TaskAccept",
                "TaskReject",
                "TaskUpdate",
                "TaskComplete",
                "TaskFail",
                "Commitment",
                "Vote",
                "SessionCancel",
                "SessionStart",
            ];
            (self.rng.of(&types), self.rng.of(&SENDERS))
        } else {
            self.next_of(session)
        };
        let payload = self.payload(message_type, sender, session);
        let mut envelope = self.envelope(message_type, sender, payload);
        match self.rng.below(60) {
            0 => envelope.sender = self.rng.of(&SENDERS).into(),
            1 => envelope.mode = "macp.mode.decision.v1".into(),
            2 => envelope.session_id = OTHER.into(),
            3 => envelope.macp_version = self.rng.of(&["", "1", "2.0"]).into(),
            4 => drop(envelope.payload.pop()),
            5 => envelope.payload.push(0xff),
            6 => envelope.payload.clear(),
            7 => envelope.message_id.clear(),
            8 => envelope.message_type.clear(),
            9 => envelope.session_id.clear(),
            10 => envelope.mode.clear(),
            _ => {}
        }
        envelope
    }

    fn next_of(&mut self, session: &MacpSession) -> (&'static str, &'static str) {
        let known = |name: &str| SENDERS.into_iter().find(|it| *it == name).unwrap_or("ann");
        let Some(request) = session.request() else { return ("TaskRequest", "planner") };
        let asked = match request.requested_assignee.as_str() {
            "" => self.rng.of(&["ann", "bob", "cid"]),
            asked => known(asked),
        };
        match (session.assignee(), session.report()) {
            (_, Some(_)) if self.rng.one_in(5) => {
                (self.rng.of(&["TaskReject", "TaskAccept"]), asked)
            }
            (_, Some(_)) if session.state() == SessionState::Open => {
                ("Commitment", self.committer(session))
            }
            (_, Some(_)) => ("Commitment", "planner"),
            (None, None) if session.has_nobody_left() && !self.rng.one_in(4) => {
                ("Commitment", self.committer(session))
            }
            (None, None) => (self.rng.of(&["TaskAccept", "TaskAccept", "TaskReject"]), asked),
            (Some(assignee), None) => {
                let types = [
                    "TaskUpdate",
                    "TaskUpdate",
                    "TaskUpdate",
                    "TaskReject",
                    "TaskComplete",
                    "TaskComplete",
                    "TaskFail",
                ];
                (self.rng.of(&types), known(assignee))
            }
        }
    }

    fn committer(&mut self, session: &MacpSession) -> &'static str {
        let may: Vec<&'static str> =
            SENDERS.into_iter().filter(|it| session.may_commit(it)).collect();
        if may.is_empty() { "planner" } else { self.rng.of(&may) }
    }

    fn payload(&mut self, message_type: &str, sender: &str, session: &MacpSession) -> Vec<u8> {
        let task_id = match session.request() {
            Some(_) if self.rng.one_in(25) => self.rng.of(&["", "t3", "t1 "]).to_owned(),
            Some(request) => request.task_id.clone(),
            None => self.rng.of(&["t1", "t1", "t1", "t2", ""]).to_owned(),
        };
        let assignee = match self.rng.below(10) {
            0 => self.rng.of(&SENDERS),
            1..=5 => "",
            _ => sender,
        };
        let (assignee, reason) = (assignee.to_owned(), "why".to_owned());
        match message_type {
            "TaskRequest" => {
                let asked =
                    self.rng.of(&["", "", "ann", "ann", "ann", "bob", "planner", "stranger"]);
                let payload = TaskRequestPayload {
                    task_id,
                    title: "Sales".into(),
                    requested_assignee: asked.into(),
                    input: b"in".to_vec(),
                    deadline_unix_ms: self.rng.of(&[0, 1, START]),
                    ..Default::default()
                };
                payload.encode_to_vec()
            }
            "TaskAccept" => TaskAcceptPayload { task_id, assignee, reason }.encode_to_vec(),
            "TaskReject" => TaskRejectPayload { task_id, assignee, reason }.encode_to_vec(),
            "TaskUpdate" => {
                let progress = self.rng.of(&[
                    0.0,
                    0.5,
                    0.3,
                    7.0,
                    -1.0,
                    f64::MIN_POSITIVE,
                    1e308,
                    1.0,
                    0.9,
                    0.1,
                ]);
                let wild = self.rng.of(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
                let progress = if self.rng.one_in(20) { wild } else { progress };
                let status = "running".to_owned();
                let payload = TaskUpdatePayload { task_id, status, progress, ..Default::default() };
                payload.encode_to_vec()
            }
            "TaskComplete" => {
                let output = self.rng.of(&[&b""[..], b"out"]).to_vec();
                TaskCompletePayload { task_id, assignee, output, summary: "done".into() }
                    .encode_to_vec()
            }
            "TaskFail" => {
                let (error_code, retryable) = ("E1".to_owned(), self.rng.one_in(2));
                TaskFailPayload { task_id, assignee, error_code, reason, retryable }.encode_to_vec()
            }
            "Commitment" => self.commitment(session).encode_to_vec(),
            _ => Vec::new(),
        }
    }

    fn commitment(&mut self, session: &MacpSession) -> CommitmentPayload {
        let outcome_positive = session.report().is_some() && !self.rng.one_in(3);
        let positive = ["task.completed", "x.accepted", "approved", "selected", "task.done"];
        let negative = ["task.failed", "x.rejected", "declined", "task.done", "failed.task"];
        let mut payload = CommitmentPayload {
            commitment_id: "c1".into(),
            action: self.rng.of(if outcome_positive { &positive } else { &negative }).into(),
            authority_scope: "data".into(),
            reason: "delivered".into(),
            mode_version: "1.0.0".into(),
            configuration_version: "config.default".into(),
            policy_version: if self.rng.one_in(2) {
                String::new()
            } else {
                session.metadata().policy_version
            },
            outcome_positive,
            supersedes: None,
        };
        if self.rng.one_in(6) {
            let hash = format!("sha256:{}", "0123456789abcdef".repeat(4));
            let short = hash[..hash.len() - 1].to_owned();
            let reference = |session_id: &str, hash: &str| {
                Some(CommitmentRef { session_id: session_id.into(), commitment_hash: hash.into() })
            };
            match self.rng.below(14) {
                0 => payload.commitment_id = " ".into(),
                1 => payload.action.clear(),
                2 => payload.authority_scope = "\t".into(),
                3 => payload.reason.clear(),
                4 => payload.mode_version = self.rng.of(&["", "2.0.0"]).into(),
                5 => payload.configuration_version = self.rng.of(&["", "other"]).into(),
                6 => {
                    payload.policy_version = self.rng.of(&["nobody", " ", "policy.default"]).into()
                }
                7 => payload.outcome_positive = !outcome_positive,
                8..=9 => payload.supersedes = reference("s", &hash),
                10 => payload.supersedes = reference(" ", &hash),
                11 => payload.supersedes = reference("s", &short),
                12 => payload.supersedes = reference("s", &hash.to_uppercase()),
                _ => payload.supersedes = reference("s", ""),
            }
        }
        payload
    }
}

/// The id of a message by its number. Some are longer than what tenure-macp remembers as it is, and differ at their end
/// alone.
fn id_of(number: u64) -> String {
    match number % 5 {
        3 => format!("{number:m>128}"),
        4 => format!("{number:m>129}"),
        _ => format!("m{number}"),
    }
}
