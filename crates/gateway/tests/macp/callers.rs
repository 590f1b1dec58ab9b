//! Who is let in, and as whom.

use tenure_macp::SessionState;
use tenure_macp::pb::{
    GetManifestRequest, GetPolicyRequest, InitializeRequest, ListExtModesRequest, ListModesRequest,
    ListPoliciesRequest, ListRootsRequest, RegisterPolicyRequest,
};
use tonic::Code as GrpcCode;
use uuid::Uuid;

use crate::agent::{accept, code, request, start, status_code};
use crate::site::Site;

/// MACP-16: the sender is the principal of the token: `Send` refuses in its Ack who has none, and all other methods by
/// a status; some methods are for everybody.
#[tokio::test(flavor = "multi_thread")]
async fn a_sender_is_the_principal_of_its_token() {
    let site = Site::open().await;
    let gateway = site.gateway_for(&[("planner", "orchestrator"), ("ann", "worker")]).await;
    let planner = gateway.agent("planner").await;
    let session = planner.starts(start(&["ann"])).await;
    assert_eq!(planner.metadata(&session).await.initiator, "planner");
    for nobody in [
        gateway.agent("nobody").await,
        gateway.agent("planner").await.with_header("authorization", ""),
        gateway.agent("planner").await.with_header("authorization", "Basic planner"),
    ] {
        let begins = nobody.envelope(&Uuid::new_v4().to_string(), "SessionStart", &start(&["ann"]));
        assert_eq!(code(&nobody.send(begins).await), "UNAUTHENTICATED");
        let status = nobody.try_metadata(&session).await.unwrap_err();
        let expected = (GrpcCode::Unauthenticated, "UNAUTHENTICATED".to_owned());
        assert_eq!(status_code(&status), expected);
        assert!(nobody.stream().await.is_err());
        let supported_protocol_versions = vec!["1.0".to_owned()];
        let asked = InitializeRequest { supported_protocol_versions, ..Default::default() };
        let answer = nobody.wire.0.clone().initialize(nobody.request(asked)).await.unwrap();
        assert_eq!(answer.into_inner().selected_protocol_version, "1.0");
    }
    let other = gateway.agent("planner").await.with_header("x-macp-token", "planner");
    assert_eq!(other.state(&session).await, SessionState::Open);
    let mut forged = planner.envelope(&session, "TaskRequest", &request("ann"));
    forged.sender = "ann".into();
    assert_eq!(code(&planner.send(forged).await), "UNAUTHENTICATED");
}

/// A worker of the pool `macp` takes part, an observer looks on, and nobody else is let in.
#[tokio::test(flavor = "multi_thread")]
async fn roles_say_who_may_do_what() {
    let site = Site::open().await;
    let gateway = site
        .gateway_for(&[
            ("planner", "orchestrator"),
            ("ann", "worker"),
            ("eye", "observer"),
            ("far", "elsewhere"),
        ])
        .await;
    let (planner, ann) = (gateway.agent("planner").await, gateway.agent("ann").await);
    let (eye, far) = (gateway.agent("eye").await, gateway.agent("far").await);
    let session = planner.starts(start(&["ann", "eye", "far"])).await;
    planner.says(&session, "TaskRequest", &request("")).await;
    let begins = ann.envelope(&Uuid::new_v4().to_string(), "SessionStart", &start(&["planner"]));
    assert_eq!(code(&ann.send(begins).await), "FORBIDDEN");
    for refused in [&eye, &far] {
        assert_eq!(refused.refused(&session, "TaskAccept", &accept()).await, "FORBIDDEN");
    }
    ann.says(&session, "TaskAccept", &accept()).await;
    assert_eq!(eye.state(&session).await, SessionState::Open);
    let expected = (GrpcCode::PermissionDenied, "FORBIDDEN".to_owned());
    assert_eq!(status_code(&far.try_metadata(&session).await.unwrap_err()), expected);
    assert_eq!(status_code(&eye.cancel(&session).await.unwrap_err()), expected);
    let elsewhere = planner.starts(start(&["far"])).await;
    assert_eq!(status_code(&ann.try_metadata(&elsewhere).await.unwrap_err()), expected);
    assert_eq!(eye.state(&elsewhere).await, SessionState::Open);
}

/// MACP-01: what the server says of itself; what it does not do is UNIMPLEMENTED.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_says_what_it_does() {
    let site = Site::open().await;
    let gateway = site.gateway().await;
    let planner = gateway.agent("planner").await;
    let mut wire = planner.wire.0.clone();
    let modes = wire.list_modes(ListModesRequest {}).await.unwrap().into_inner().modes;
    assert_eq!((modes.len(), modes[0].mode.as_str()), (1, "macp.mode.task.v1"));
    assert!(wire.list_roots(ListRootsRequest {}).await.unwrap().into_inner().roots.is_empty());
    let none = wire.list_ext_modes(ListExtModesRequest {}).await.unwrap().into_inner();
    assert!(none.modes.is_empty());
    let manifest = wire.get_manifest(GetManifestRequest::default()).await.unwrap().into_inner();
    assert_eq!(manifest.manifest.unwrap().agent_id, "tenure");
    let agent_id = "somebody".into();
    let status = wire.get_manifest(GetManifestRequest { agent_id }).await.unwrap_err();
    assert_eq!(status_code(&status), (GrpcCode::NotFound, "AGENT_NOT_FOUND".into()));
    let status = wire.initialize(InitializeRequest::default()).await.unwrap_err();
    assert_eq!(status_code(&status), (GrpcCode::InvalidArgument, "INVALID_REQUEST".into()));

    let asked = planner.request(ListPoliciesRequest::default());
    let policies = wire.list_policies(asked).await.unwrap().into_inner().descriptors;
    let names: Vec<_> = policies.iter().map(|it| it.policy_id.as_str()).collect();
    assert_eq!(names, ["output", "policy.default", "reassign"]);
    let get = |policy_id: &str| planner.request(GetPolicyRequest { policy_id: policy_id.into() });
    let policy = wire.get_policy(get("output")).await.unwrap().into_inner();
    assert!(policy.policy_descriptor.unwrap().rules.contains("require_output"));
    let status = wire.get_policy(get("none")).await.unwrap_err();
    assert_eq!(status_code(&status), (GrpcCode::NotFound, "UNKNOWN_POLICY_VERSION".into()));
    let asked = planner.request(RegisterPolicyRequest::default());
    let status = wire.register_policy(asked).await.unwrap_err();
    assert_eq!(status.code(), GrpcCode::Unimplemented);
}
