//! The reference: the steps of the kernel of macp-runtime 0.13.0 around its state machine, without its storage. Each
//! function says which of the kernel's it follows.

use macp_core::error::MacpError;
use macp_core::policy::PolicyDefinition;
use macp_core::session::{Session, SessionState, validate_session_id_for_acceptance};
use macp_modes::mode::task::{TaskMode, TaskState, TaskTerminalReport};
use macp_modes::mode::util::check_commitment_authority;
use macp_modes::replay::{RecordedStart, ReplayEvent, ReplayOptions, replay};
use macp_modes::step::{StartOptions, StepOutcome, step, validate_session_start};
use macp_pb::pb::Envelope;
use macp_policy::DefaultPolicyEvaluator;
use macp_policy::defaults::default_policy;
use macp_policy::registry::PolicyRegistry;
use std::sync::Arc;
use tenure_macp::MacpSteer;

pub fn mode() -> TaskMode {
    TaskMode::new(Arc::new(DefaultPolicyEvaluator))
}

/// The policies of [`crate::draw::POLICIES`] in the registry of the reference.
pub fn policies() -> PolicyRegistry {
    let registry = PolicyRegistry::new();
    let definitions: Vec<PolicyDefinition> =
        serde_json::from_str(crate::draw::POLICIES).expect("definitions");
    for definition in definitions {
        registry.register(definition).expect("a policy that the reference takes");
    }
    registry
}

/// What came of a start.
#[derive(Debug)]
pub enum Opened {
    Duplicate,
    Session(Box<Session>),
}

/// `Runtime::process_session_start`.
pub fn open(
    env: &Envelope,
    existing: Option<&Session>,
    policies: &PolicyRegistry,
    now_ms: i64,
) -> Result<Opened, MacpError> {
    check_shape(env)?;
    validate_session_id_for_acceptance(&env.session_id)?;
    if env.mode != tenure_macp::TASK_MODE {
        return Err(MacpError::UnknownMode);
    }
    let options = StartOptions::default().with_strict(true).with_descriptor_mode_version("1.0.0");
    let validated = validate_session_start(env, now_ms, &options)?;
    if let Some(existing) = existing {
        if existing.seen_message_ids.contains(&env.message_id) {
            return Ok(Opened::Duplicate);
        }
        return Err(MacpError::SessionAlreadyExists);
    }
    let version = match validated.requested_policy_version() {
        "" => default_policy().policy_id,
        version => version.to_owned(),
    };
    let policy = policies.resolve(&version).map_err(|_| MacpError::UnknownPolicyVersion)?;
    Ok(Opened::Session(Box::new(validated.accept(env, &mode(), Some(policy))?)))
}

/// `validate_envelope_shape` of the server, which looks at every message first.
fn check_shape(env: &Envelope) -> Result<(), MacpError> {
    macp_modes::step::check_envelope_shape(env)?;
    if env.session_id.is_empty() || env.mode.trim().is_empty() {
        return Err(MacpError::InvalidEnvelope);
    }
    Ok(())
}

/// `Runtime::process_message`.
pub fn send(session: &mut Session, env: &Envelope, now_ms: i64) -> Result<StepOutcome, MacpError> {
    check_shape(env)?;
    step(session, env, &mode(), now_ms)
}

/// The handlers of the server and `Runtime::{suspend,resume,cancel}_session`. The outer error is that of the status.
pub fn steer(
    session: &mut Session,
    steer: MacpSteer,
    sender: &str,
    now_ms: i64,
) -> Result<Result<SessionState, MacpError>, MacpError> {
    // `get_session_checked` of the handlers ends an overdue session before anything else.
    if session.deadline_passed(now_ms) {
        session.expire()?;
    }
    if sender != session.initiator_sender {
        check_commitment_authority(session, sender)?;
    }
    let done = match steer {
        MacpSteer::Suspend => session.suspend(now_ms),
        MacpSteer::Resume => session.resume(now_ms),
        MacpSteer::Cancel if session.state.is_terminal() => Ok(()),
        MacpSteer::Cancel => session.cancel(),
    };
    Ok(done.map(|()| session.state.clone()))
}

/// `macp_modes::replay` over a history.
pub fn built_again(
    start: &Envelope,
    live: &Session,
    events: Vec<ReplayEvent>,
) -> Result<Session, MacpError> {
    let start = RecordedStart::from_session(start.clone(), live, None);
    replay(&start, events, &mode(), &ReplayOptions::default())
}

/// The state of Task mode, as the reference keeps it.
pub fn task_state(session: &Session) -> TaskState {
    serde_json::from_slice(&session.mode_state).expect("the state of Task mode")
}

/// Whether there is a report, and whether it is a good one.
pub fn report(state: &TaskState) -> Option<bool> {
    state.terminal_report.as_ref().map(|it| matches!(it, TaskTerminalReport::Complete(_)))
}
