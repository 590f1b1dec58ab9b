//! Answers that need no session, and the table of codes.

use tenure_macp::pb::InitializeRequest;
use tenure_macp::{MacpCode, MacpPage, MacpRuntime, TASK_MODE, page_of_sessions, task_mode};

use crate::common::*;

fn runtime() -> MacpRuntime {
    MacpRuntime { version: "1.2.3".into(), address: "http://host:1".into() }
}

/// MACP-01: Initialize selects 1.0, names Task mode, and offers only what there is.
#[test]
fn initialize_offers_what_there_is() {
    let of = |versions: &[&str]| {
        let versions = versions.iter().map(|it| (*it).to_owned()).collect();
        let request =
            InitializeRequest { supported_protocol_versions: versions, ..Default::default() };
        runtime().initialize(&request)
    };
    let answer = of(&["0.9", "1.0"]).unwrap();
    assert_eq!(answer.selected_protocol_version, "1.0");
    assert_eq!(answer.supported_modes, [TASK_MODE]);
    let info = answer.runtime_info.unwrap();
    assert_eq!((info.name.as_str(), info.version.as_str()), ("tenure", "1.2.3"));
    let can = answer.capabilities.unwrap();
    let sessions = can.sessions.unwrap();
    assert!(sessions.stream && sessions.list_sessions && sessions.watch_sessions);
    assert!(can.cancellation.unwrap().cancel_session && can.progress.unwrap().progress);
    assert!(can.manifest.unwrap().get_manifest);
    let (modes, roots) = (can.mode_registry.unwrap(), can.roots.unwrap());
    assert!(modes.list_modes && !modes.list_changed && roots.list_roots && !roots.list_changed);
    let policies = can.policy_registry.unwrap();
    assert!(policies.list_policies && !policies.register_policy && !policies.what_if_replay);
    assert!(can.decision_receipt.is_none() && can.experimental.is_none());
    assert_eq!(of(&[]).unwrap_err().code, MacpCode::InvalidRequest);
    assert_eq!(of(&["2.0", ""]).unwrap_err().code, MacpCode::UnsupportedProtocolVersion);
}

/// MACP-01: Task mode and its messages, as ListModes shows them.
#[test]
fn the_mode_is_described() {
    let mode = task_mode();
    assert_eq!((mode.mode.as_str(), mode.mode_version.as_str()), ("macp.mode.task.v1", "1.0.0"));
    assert_eq!(mode.determinism_class, "structural-only");
    assert_eq!(mode.participant_model, "orchestrated");
    assert_eq!(mode.message_types.len(), 8);
    assert_eq!(mode.terminal_message_types, ["Commitment"]);
}

/// MACP-01: the manifest is that of the server alone.
#[test]
fn no_agents_are_hosted() {
    let manifest = runtime().manifest("").unwrap();
    assert_eq!(manifest.supported_modes, [TASK_MODE]);
    assert_eq!(manifest.transport_endpoints[0].uri, "http://host:1");
    assert_eq!(runtime().manifest("tenure").unwrap(), manifest);
    let silent = MacpRuntime { address: String::new(), ..runtime() };
    assert!(silent.manifest("").unwrap().transport_endpoints.is_empty());
    assert_eq!(runtime().manifest("ann").unwrap_err().code, MacpCode::AgentNotFound);
}

/// L-06: a page of sessions has a token that leads to the next. A wrong token and a negative size are refused.
#[test]
fn pages_of_sessions_follow_each_other() {
    let page = |size: i32, token: &str| page_of_sessions(size, token).map_err(|it| it.code);
    assert_eq!(page(0, ""), Ok(MacpPage { after: None, most: 100 }));
    assert_eq!(page(7, ""), Ok(MacpPage { after: None, most: 7 }));
    assert_eq!(page(i32::MAX, "").unwrap().most, 100);
    let token = MacpPage::token(SESSION);
    assert_eq!(page(1, &token), Ok(MacpPage { after: Some(SESSION.into()), most: 1 }));
    let long = "a".repeat(1000);
    for (size, token) in [(-1, ""), (i32::MIN, ""), (1, "x"), (1, "1."), (1, SESSION), (1, &long)] {
        assert_eq!(page(size, token), Err(MacpCode::InvalidRequest), "{size} {token}");
    }
}

/// G-04, G-06: every code has its number of gRPC, and its text once.
#[test]
fn codes_have_their_status() {
    let numbers: [(i32, &[&str]); 7] = [
        (16, &["UNAUTHENTICATED"]),
        (7, &["FORBIDDEN", "POLICY_DENIED"]),
        (5, &["SESSION_NOT_FOUND", "UNKNOWN_POLICY_VERSION", "AGENT_NOT_FOUND"]),
        (
            9,
            &[
                "SESSION_NOT_OPEN",
                "REGISTRY_READ_ONLY",
                "HISTORY_UNAVAILABLE",
                "RECEIPT_UNAVAILABLE",
            ],
        ),
        (6, &["SESSION_ALREADY_EXISTS", "DUPLICATE_MESSAGE"]),
        (
            3,
            &[
                "INVALID_ENVELOPE",
                "UNSUPPORTED_PROTOCOL_VERSION",
                "MODE_NOT_SUPPORTED",
                "INVALID_SESSION_ID",
                "INVALID_POLICY_DEFINITION",
                "INVALID_REQUEST",
            ],
        ),
        (8, &["PAYLOAD_TOO_LARGE", "RATE_LIMITED", "STREAM_LAGGED"]),
    ];
    let expected: Vec<(i32, &str)> = numbers
        .iter()
        .flat_map(|(number, codes)| codes.iter().map(|code| (*number, *code)))
        .collect();
    let mut found: Vec<(i32, &str)> =
        MacpCode::ALL.iter().map(|it| (it.grpc(), it.as_str())).collect();
    found.retain(|it| *it != (13, "INTERNAL_ERROR"));
    assert_eq!(found, expected);
}
