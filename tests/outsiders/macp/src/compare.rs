//! Both state machines, side by side.

use std::collections::BTreeMap;

use macp_core::error::MacpError;
use macp_core::policy::PolicyDefinition;
use macp_core::session::{Session, SessionState as TheirState, validate_session_id_for_acceptance};
use macp_modes::replay::ReplayEvent;
use macp_modes::step::StepOutcome;
use macp_policy::registry::PolicyRegistry;
use prost::Message;
use tenure_macp::pb::Envelope;
use tenure_macp::{
    MacpChange, MacpCode, MacpDecision, MacpEffect, MacpOpening, MacpPolicies, MacpRecord,
    MacpRefusal, MacpReport, MacpSession, MacpSteer, PAYLOAD_BYTES_MAX, SessionState, TASK_MODE,
    check_shape, is_session_id, open,
};

use crate::Counts;
use crate::draw::{POLICIES, is_finite};
use crate::reference::{self, Opened};

fn note(counts: &mut Counts, what: impl Into<String>) {
    *counts.entry(what.into()).or_default() += 1;
}

/// Ids of sessions are the same.
pub fn session_id(id: &str, counts: &mut Counts) -> Result<(), String> {
    let theirs = validate_session_id_for_acceptance(id).is_ok();
    note(counts, if theirs { "session id accepted" } else { "session id refused" });
    if theirs == is_session_id(id) {
        Ok(())
    } else {
        Err(format!("session id {id:?}: the reference says {theirs}"))
    }
}

/// The same policies for Task mode are well formed.
pub fn policy(rules: &serde_json::Value, counts: &mut Counts) -> Result<(), String> {
    let definition = serde_json::json!({
        "policy_id": "p", "mode": TASK_MODE, "description": "", "rules": rules, "schema_version": 1,
    });
    let ours = MacpPolicies::parse(&format!("[{definition}]"));
    let theirs: PolicyDefinition = serde_json::from_value(definition).expect("a definition");
    let theirs = PolicyRegistry::new().register(theirs);
    note(counts, if theirs.is_ok() { "policy accepted" } else { "policy refused" });
    if ours.is_ok() == theirs.is_ok() {
        return Ok(());
    }
    Err(format!("policy {rules}:\n  here: {:?}\n  reference: {theirs:?}", ours.map(drop)))
}

/// A session here and in the reference.
pub struct Pair {
    policies: MacpPolicies,
    registry: PolicyRegistry,
    ours: Option<MacpSession>,
    theirs: Option<Session>,
    records: Vec<MacpRecord>,
    pub now_ms: i64,
    story: Vec<String>,
}

impl Pair {
    pub fn new() -> Self {
        Self {
            policies: MacpPolicies::parse(POLICIES).expect("policies"),
            registry: reference::policies(),
            ours: None,
            theirs: None,
            records: Vec::new(),
            now_ms: crate::draw::START,
            story: Vec::new(),
        }
    }

    pub fn session(&self) -> Option<&MacpSession> {
        self.ours.as_ref()
    }

    fn differ(&self, ours: &dyn std::fmt::Debug, theirs: &dyn std::fmt::Debug) -> String {
        format!("{}\n\nhere:      {ours:?}\nreference: {theirs:?}", self.story.join("\n"))
    }

    fn tell(&mut self, envelope: &Envelope) {
        let Envelope { message_type, message_id, sender, mode, payload, .. } = envelope;
        let line = format!(
            "{} {message_type} {message_id} by {sender:?} in {mode} {payload:02x?}",
            self.now_ms
        );
        self.story.push(line);
    }

    pub fn start(
        &mut self,
        start: &Envelope,
        now_ms: i64,
        counts: &mut Counts,
    ) -> Result<(), String> {
        self.now_ms = now_ms;
        self.tell(start);
        // A start is about the session that has its id.
        let is_same = |it: &&MacpSession| it.bound().session_id == start.session_id;
        let existing = self.ours.as_ref().filter(is_same);
        let theirs = reference::open(
            &converted(start),
            existing.and(self.theirs.as_ref()),
            &self.registry,
            now_ms,
        );
        let ours = check_shape(start, PAYLOAD_BYTES_MAX)
            .and_then(|_| open(start, existing, &self.policies, now_ms));
        match (ours, theirs) {
            (Ok(MacpOpening::Duplicate(state)), Ok(Opened::Duplicate)) => {
                note(counts, "start duplicate");
                self.same_state(state)
            }
            (Ok(MacpOpening::Accept(record)), Ok(Opened::Session(session))) => {
                note(counts, "start accepted");
                if existing.is_none() && self.ours.is_none() {
                    let began =
                        MacpSession::begin(&record).map_err(|e| format!("{e}: {record:?}"))?;
                    (self.ours, self.theirs) = (Some(began), Some(*session));
                    self.records = vec![*record];
                    return self.same();
                }
                Ok(())
            }
            (Err(ours), Err(theirs)) if ours.code.as_str() == theirs.error_code() => {
                note(counts, format!("start {}", theirs.error_code()));
                Ok(())
            }
            (Err(ours), Ok(Opened::Duplicate))
                if ours.code == MacpCode::SessionAlreadyExists
                    && existing.is_some_and(|it| !it.is_member(&start.sender)) =>
            {
                note(counts, "on purpose: duplicate of a stranger");
                Ok(())
            }
            (ours, theirs) => Err(self.differ(&ours, &theirs)),
        }
    }

    pub fn send(&mut self, envelope: &Envelope, counts: &mut Counts) -> Result<(), String> {
        self.tell(envelope);
        let (Some(ours), Some(theirs)) = (&mut self.ours, &mut self.theirs) else { return Ok(()) };
        let before = ours.clone();
        let decision = check_shape(envelope, PAYLOAD_BYTES_MAX)
            .and_then(|_| ours.decide(envelope, self.now_ms));
        let mut after = theirs.clone();
        let outcome = reference::send(&mut after, &converted(envelope), self.now_ms);
        match (decision, outcome) {
            (Ok(MacpDecision::Duplicate(state)), Ok(StepOutcome::Duplicate)) => {
                note(counts, "duplicate");
                if envelope.message_id.len() > 128 {
                    note(counts, "duplicate of a long id");
                }
                self.same_state(state)?;
            }
            (Ok(MacpDecision::Accept(accepted)), Ok(StepOutcome::Accepted { state, .. })) => {
                note(counts, format!("accepted {}", envelope.message_type));
                count_effect(&before, &accepted.effect, counts);
                let effect = ours
                    .apply(&accepted.record)
                    .map_err(|e| format!("{e}: {:?}", accepted.record))?;
                *theirs = after;
                let same = effect.as_ref() == Some(&accepted.effect)
                    && name(accepted.state) == format!("{state:?}");
                self.records.push(accepted.record.clone());
                if !same {
                    return Err(self.differ(&accepted, &state));
                }
            }
            (Ok(MacpDecision::Expire { record, refusal }), Err(MacpError::TtlExpired)) => {
                note(counts, format!("refused {}", refusal.code.as_str()));
                note(counts, "expired by a message");
                ours.apply(&record).map_err(|e| format!("{e}: {record:?}"))?;
                *theirs = after;
                self.records.push(*record);
            }
            (Err(refusal), Err(error)) if same_refusal(&refusal, &error) => {
                note(counts, format!("refused {}", error.error_code()));
            }
            (Err(refusal), Ok(StepOutcome::Duplicate))
                if refusal.code == MacpCode::Forbidden && !before.is_member(&envelope.sender) =>
            {
                note(counts, "on purpose: duplicate of a stranger");
            }
            (Err(refusal), Ok(StepOutcome::Accepted { .. }))
                if refusal.code == MacpCode::InvalidEnvelope && !is_finite(envelope) =>
            {
                note(counts, "on purpose: progress");
            }
            (decision, outcome) => return Err(self.differ(&decision, &outcome)),
        }
        self.same()
    }

    pub fn steer(
        &mut self,
        steer: MacpSteer,
        sender: &str,
        counts: &mut Counts,
    ) -> Result<(), String> {
        self.story.push(format!("{} {steer:?} by {sender}", self.now_ms));
        let (Some(ours), Some(theirs)) = (&mut self.ours, &mut self.theirs) else { return Ok(()) };
        let steered = ours.steer(steer, sender, "why", self.now_ms);
        let answer = reference::steer(theirs, steer, sender, self.now_ms);
        match (steered, answer) {
            (Ok(steered), Ok(answer)) => {
                if let Some(record) = steered.record {
                    ours.apply(&record).map_err(|e| format!("{e}: {record:?}"))?;
                    self.records.push(record);
                }
                match (steered.answer, answer) {
                    (Ok(state), Ok(their)) if name(state) == format!("{their:?}") => {
                        note(counts, format!("steer {steer:?} ok"));
                    }
                    (Err(refusal), Err(error)) if same_refusal(&refusal, &error) => {
                        note(counts, format!("steer {steer:?} {}", error.error_code()));
                    }
                    (answer, their) => return Err(self.differ(&answer, &their)),
                }
            }
            (Err(refusal), Err(error)) if same_refusal(&refusal, &error) => {
                note(counts, format!("steer {steer:?} {}", error.error_code()));
                // The reference ends an overdue session also for somebody who may not steer it. Here the gateway does
                // so when it looks the session up.
                if let Some(record) = ours.expire(self.now_ms) {
                    ours.apply(&record).map_err(|e| format!("{e}: {record:?}"))?;
                    self.records.push(record);
                }
            }
            (steered, answer) => return Err(self.differ(&steered, &answer)),
        }
        self.same()
    }

    fn same_state(&self, state: SessionState) -> Result<(), String> {
        let theirs = self.theirs.as_ref().map(|it| format!("{:?}", it.state)).unwrap_or_default();
        if name(state) == theirs { Ok(()) } else { Err(self.differ(&state, &theirs)) }
    }

    /// Both sessions say the same about themselves.
    fn same(&self) -> Result<(), String> {
        let (Some(ours), Some(theirs)) = (&self.ours, &self.theirs) else { return Ok(()) };
        let (ours, theirs) = (facts_here(ours), facts_there(theirs));
        if ours == theirs { Ok(()) } else { Err(self.differ(&ours, &theirs)) }
    }

    /// Both build the same session again from what was recorded.
    pub fn replay(&self) -> Result<(), String> {
        let (Some(ours), Some(theirs)) = (&self.ours, &self.theirs) else { return Ok(()) };
        let bytes = self.records.iter().map(MacpRecord::to_bytes);
        let records: Result<Vec<MacpRecord>, _> =
            bytes.map(|it| MacpRecord::from_bytes(&it)).collect();
        let again = records.and_then(|records| tenure_macp::replay(&records));
        if again.as_ref() != Ok(&Some(ours.clone())) {
            return Err(self.differ(ours, &again));
        }
        let mut start = None;
        let mut events = Vec::new();
        for record in &self.records {
            let envelope = record.envelope().map_err(|e| e.to_string())?.map(|it| converted(&it));
            let (envelope, at_ms) = (envelope.unwrap_or_default(), record.accepted_at_ms);
            match &record.change {
                Some(MacpChange::Started(_)) => start = Some(envelope),
                Some(MacpChange::Sent(_)) => events.push(message(envelope, at_ms)?),
                Some(MacpChange::Suspended(_)) => events.push(ReplayEvent::Suspended { at_ms }),
                Some(MacpChange::Resumed(_)) => events.push(ReplayEvent::Resumed { at_ms }),
                Some(MacpChange::Cancelled(_)) => events.push(ReplayEvent::Cancelled),
                Some(MacpChange::Expired(_)) => events.push(ReplayEvent::Expired),
                None => return Err("a record says nothing".to_owned()),
            }
        }
        let again = reference::built_again(&start.unwrap_or_default(), theirs, events);
        let again = again.map(|it| facts_there(&it));
        let facts = facts_here(ours);
        if again.as_ref().ok() == Some(&facts) { Ok(()) } else { Err(self.differ(&facts, &again)) }
    }

    pub fn count_end(&self, counts: &mut Counts) {
        if let Some(session) = &self.ours {
            note(counts, format!("end {}", name(session.state())));
            note(counts, format!("phase {:?}", session.phase()));
        }
    }
}

#[allow(clippy::unnecessary_wraps)]
fn message(envelope: macp_pb::pb::Envelope, accepted_at_ms: i64) -> Result<ReplayEvent, String> {
    Ok(ReplayEvent::Message { envelope, accepted_at_ms })
}

fn count_effect(before: &MacpSession, effect: &MacpEffect, counts: &mut Counts) {
    let effect = match effect {
        MacpEffect::Request(_) => "Request",
        MacpEffect::Accept(_) => "Accept",
        MacpEffect::Decline(_) => "Decline",
        MacpEffect::Return(_) => "Return",
        MacpEffect::Progress(_) => "Progress",
        MacpEffect::Report(_) => "Report",
        MacpEffect::Noted => "Noted",
        MacpEffect::Commit(commitment) => {
            if !commitment.outcome_positive {
                note(counts, "committed negatively");
            }
            if before.report().is_none() {
                note(counts, "committed without a report");
            }
            "Commit"
        }
    };
    note(counts, format!("effect {effect}"));
}

/// The same code, and for a policy the same reasons.
fn same_refusal(ours: &MacpRefusal, theirs: &MacpError) -> bool {
    let reasons = theirs.deny_reasons().iter().map(|it| it.code.as_str());
    ours.code.as_str() == theirs.error_code() && ours.denials.iter().map(|it| it.code).eq(reasons)
}

fn name(state: SessionState) -> String {
    format!("{state:?}")
}

/// An envelope of the reference with the same bytes.
pub fn converted(envelope: &Envelope) -> macp_pb::pb::Envelope {
    macp_pb::pb::Envelope::decode(envelope.encode_to_vec().as_slice()).expect("the same definition")
}

/// What a session says about itself.
#[derive(Debug, PartialEq)]
struct Facts {
    state: String,
    expires_at_ms: i64,
    started_at_ms: i64,
    policy: String,
    rules: (bool, bool),
    initiator: String,
    context_id: String,
    extensions: BTreeMap<String, Vec<u8>>,
    activity: BTreeMap<String, (u32, i64)>,
    accepted: u64,
    task_id: Option<String>,
    assignee: Option<String>,
    declines: Vec<(String, bool)>,
    updates: u64,
    /// The last progress that is a number, as its bits.
    progress: Option<u64>,
    report: Option<bool>,
    resolution: Option<Vec<u8>>,
}

fn facts_here(session: &MacpSession) -> Facts {
    let (bound, metadata) = (session.bound(), session.metadata());
    let activity = session.activity().iter();
    let rules = bound.policy.rules();
    Facts {
        state: name(session.state()),
        expires_at_ms: metadata.expires_at_unix_ms,
        started_at_ms: metadata.started_at_unix_ms,
        policy: metadata.policy_version,
        rules: (rules.allow_reassignment_on_reject, rules.require_output),
        initiator: metadata.initiator,
        context_id: metadata.context_id,
        extensions: bound.start.extensions.clone(),
        activity: activity.map(|(name, it)| (name.clone(), (it.messages, it.last_at_ms))).collect(),
        accepted: session.ordinal(),
        task_id: session.request().map(|it| it.task_id.clone()),
        assignee: session.assignee().map(str::to_owned),
        declines: session
            .declines()
            .iter()
            .map(|it| (it.participant.clone(), it.while_assigned))
            .collect(),
        updates: session.updates(),
        progress: session.latest_update().map(|it| it.progress.to_bits()),
        report: session.report().map(|it| matches!(it, MacpReport::Complete(_))),
        resolution: session.commitment().map(Message::encode_to_vec),
    }
}

fn facts_there(session: &Session) -> Facts {
    let task = reference::task_state(session);
    let last = |name: &String| session.participant_last_seen.get(name).copied().unwrap_or_default();
    let counts = session.participant_message_counts.iter();
    let rules = session.policy_definition.as_ref().map(|it| it.rules.clone()).unwrap_or_default();
    let is_set = |group: &str, rule: &str| rules[group][rule].as_bool().unwrap_or_default();
    Facts {
        state: match session.state {
            TheirState::Open => "Open".to_owned(),
            ref other => format!("{other:?}"),
        },
        expires_at_ms: session.ttl_expiry,
        started_at_ms: session.started_at_unix_ms,
        policy: session.policy_version.clone(),
        rules: (
            is_set("assignment", "allow_reassignment_on_reject"),
            is_set("completion", "require_output"),
        ),
        initiator: session.initiator_sender.clone(),
        context_id: session.context_id.clone(),
        extensions: session.extensions.clone().into_iter().collect(),
        activity: counts.map(|(name, count)| (name.clone(), (*count, last(name)))).collect(),
        accepted: session.seen_message_ids.len() as u64,
        task_id: task.task.as_ref().map(|it| it.task_id.clone()),
        assignee: task.active_assignee.clone(),
        declines: task
            .rejections
            .iter()
            .map(|it| (it.assignee.clone(), it.while_assigned))
            .collect(),
        updates: task.updates.len() as u64,
        progress: task.updates.last().map(|it| it.progress.to_bits()),
        report: reference::report(&task),
        resolution: session.resolution.as_deref().map(|bytes| {
            let read = macp_pb::pb::CommitmentPayload::decode(bytes);
            read.expect("a commitment").encode_to_vec()
        }),
    }
}
