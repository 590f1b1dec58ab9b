//! Answers that need nothing but what this server is.

use std::collections::BTreeMap;

use crate::pb::{
    Ack, AgentManifest, CancellationCapability, Capabilities, Envelope, InitializeRequest,
    InitializeResponse, MacpError, ManifestCapability, ModeDescriptor, ModeRegistryCapability,
    PolicyRegistryCapability, ProgressCapability, RootsCapability, RuntimeInfo, SessionsCapability,
    TransportEndpoint,
};
use crate::{
    MacpCode, MacpRefusal, PROTOCOL_VERSION, SessionState, TASK_MODE, TASK_MODE_VERSION,
    is_session_id,
};

/// Sessions on a page of `ListSessions` if the caller does not say how many, and at most.
const PAGE_MAX: usize = 100;

/// What a server says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacpRuntime {
    /// Its version.
    pub version: String,
    /// Where it is reached, as `http://host:port`. Empty: it does not say.
    pub address: String,
}

impl MacpRuntime {
    /// Answers `Initialize`.
    ///
    /// # Errors
    ///
    /// INVALID_REQUEST or UNSUPPORTED_PROTOCOL_VERSION.
    pub fn initialize(
        &self,
        request: &InitializeRequest,
    ) -> Result<InitializeResponse, MacpRefusal> {
        let versions = &request.supported_protocol_versions;
        if versions.is_empty() {
            let message = "supported_protocol_versions must not be empty";
            return Err(MacpRefusal::new(MacpCode::InvalidRequest, message));
        }
        if !versions.iter().any(|it| it == PROTOCOL_VERSION) {
            let message = format!("supported_protocol_versions must have {PROTOCOL_VERSION:?}");
            return Err(MacpRefusal::new(MacpCode::UnsupportedProtocolVersion, message));
        }
        Ok(InitializeResponse {
            selected_protocol_version: PROTOCOL_VERSION.to_owned(),
            runtime_info: Some(RuntimeInfo {
                name: "tenure".to_owned(),
                title: "Tenure".to_owned(),
                version: self.version.clone(),
                description: "Sessions of MACP's Task mode as durable Tasks".to_owned(),
                website_url: String::new(),
            }),
            capabilities: Some(capabilities()),
            supported_modes: vec![TASK_MODE.to_owned()],
            instructions: "Send authorization: Bearer <token> with each request. The principal of the token is the \
                           sender."
                .to_owned(),
        })
    }

    /// Answers `GetManifest`. An empty id asks for this server.
    ///
    /// # Errors
    ///
    /// AGENT_NOT_FOUND for every other id: agents are not hosted here.
    pub fn manifest(&self, agent_id: &str) -> Result<AgentManifest, MacpRefusal> {
        if !agent_id.is_empty() && agent_id != "tenure" {
            let message = "no agents are hosted here; an empty agent_id asks for the server itself";
            return Err(MacpRefusal::new(MacpCode::AgentNotFound, message));
        }
        let endpoint = TransportEndpoint {
            transport: "grpc".to_owned(),
            uri: self.address.clone(),
            content_types: vec!["application/grpc".to_owned()],
            metadata: BTreeMap::new(),
        };
        Ok(AgentManifest {
            agent_id: "tenure".to_owned(),
            title: "Tenure".to_owned(),
            description: "Sessions of MACP's Task mode as durable Tasks".to_owned(),
            supported_modes: vec![TASK_MODE.to_owned()],
            input_content_types: vec!["application/macp-envelope+proto".to_owned()],
            output_content_types: vec!["application/macp-envelope+proto".to_owned()],
            metadata: BTreeMap::new(),
            transport_endpoints: if self.address.is_empty() { Vec::new() } else { vec![endpoint] },
        })
    }
}

/// What clients may use. What is not there, they do not ask for.
fn capabilities() -> Capabilities {
    Capabilities {
        sessions: Some(SessionsCapability {
            stream: true,
            list_sessions: true,
            watch_sessions: true,
        }),
        cancellation: Some(CancellationCapability { cancel_session: true }),
        progress: Some(ProgressCapability { progress: true }),
        manifest: Some(ManifestCapability { get_manifest: true }),
        mode_registry: Some(ModeRegistryCapability { list_modes: true, list_changed: false }),
        roots: Some(RootsCapability { list_roots: true, list_changed: false }),
        policy_registry: Some(PolicyRegistryCapability {
            list_policies: true,
            ..Default::default()
        }),
        decision_receipt: None,
        experimental: None,
    }
}

/// Task mode, as `ListModes` shows it (MACP-01).
pub fn task_mode() -> ModeDescriptor {
    let types = [
        "SessionStart",
        "TaskRequest",
        "TaskAccept",
        "TaskReject",
        "TaskUpdate",
        "TaskComplete",
        "TaskFail",
        "Commitment",
    ];
    ModeDescriptor {
        mode: TASK_MODE.to_owned(),
        mode_version: TASK_MODE_VERSION.to_owned(),
        title: "Task Mode".to_owned(),
        description: "One task that a requester delegates to an assignee, who accepts or rejects it, reports progress \
                      and its end; the requester commits the outcome."
            .to_owned(),
        determinism_class: "structural-only".to_owned(),
        participant_model: "orchestrated".to_owned(),
        message_types: types.map(str::to_owned).to_vec(),
        terminal_message_types: vec!["Commitment".to_owned()],
        schema_uris: BTreeMap::new(),
    }
}

/// The Ack of a message that was accepted now or before.
pub fn acknowledge(envelope: &Envelope, state: SessionState, duplicate: bool, now_ms: i64) -> Ack {
    Ack {
        ok: true,
        duplicate,
        message_id: envelope.message_id.clone(),
        session_id: envelope.session_id.clone(),
        accepted_at_unix_ms: now_ms,
        session_state: state.into(),
        error: None,
    }
}

/// The Ack of a message that is refused.
pub fn refuse(envelope: &Envelope, refusal: &MacpRefusal, now_ms: i64) -> Ack {
    refused(&envelope.session_id, &envelope.message_id, refusal, now_ms)
}

/// The Ack of what was asked for a session as a whole. It has no message id.
pub fn acknowledge_steer(
    session_id: &str,
    answer: &Result<SessionState, MacpRefusal>,
    now_ms: i64,
) -> Ack {
    match answer {
        Ok(state) => Ack {
            ok: true,
            session_id: session_id.to_owned(),
            accepted_at_unix_ms: now_ms,
            session_state: (*state).into(),
            ..Ack::default()
        },
        Err(refusal) => refused(session_id, "", refusal, now_ms),
    }
}

fn refused(session_id: &str, message_id: &str, refusal: &MacpRefusal, now_ms: i64) -> Ack {
    Ack {
        ok: false,
        duplicate: false,
        message_id: message_id.to_owned(),
        session_id: session_id.to_owned(),
        accepted_at_unix_ms: now_ms,
        session_state: SessionState::Unspecified.into(),
        error: Some(refusal.error(session_id, message_id)),
    }
}

impl MacpRefusal {
    /// The refusal as it stands in an Ack or on a stream.
    pub fn error(&self, session_id: &str, message_id: &str) -> MacpError {
        MacpError {
            code: self.code.as_str().to_owned(),
            message: self.message.clone(),
            session_id: session_id.to_owned(),
            message_id: message_id.to_owned(),
            details: self.details(),
        }
    }
}

/// Which sessions a page of `ListSessions` has: those after `after`, at most `most`, in the order of their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacpPage {
    /// The last session of the page before.
    pub after: Option<String>,
    /// How many.
    pub most: usize,
}

/// Reads the page that a caller asks for.
///
/// # Errors
///
/// INVALID_REQUEST.
pub fn page_of_sessions(page_size: i32, page_token: &str) -> Result<MacpPage, MacpRefusal> {
    let bad = |message: &str| Err(MacpRefusal::new(MacpCode::InvalidRequest, message));
    let Ok(size) = usize::try_from(page_size) else { return bad("page_size must not be negative") };
    let after = match page_token.strip_prefix(PAGE_TOKEN) {
        Some(id) if is_session_id(id) => Some(id.to_owned()),
        None if page_token.is_empty() => None,
        _ => return bad("page_token must be the next_page_token of an answer, or empty"),
    };
    Ok(MacpPage { after, most: if size == 0 { PAGE_MAX } else { size.min(PAGE_MAX) } })
}

/// What a token of a page begins with.
const PAGE_TOKEN: &str = "1.";

impl MacpPage {
    /// The token of the page after the session with this id.
    pub fn token(last_session_id: &str) -> String {
        format!("{PAGE_TOKEN}{last_session_id}")
    }
}
