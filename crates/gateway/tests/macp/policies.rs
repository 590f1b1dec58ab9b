//! Policies that are exchanged while a gateway runs.

use tenure_macp::MacpPolicies;
use tenure_macp::pb::{ListPoliciesRequest, SessionStartPayload};

use crate::agent::{accept, code, commit, complete, request, start};
use crate::site::{Site, settings};

/// S-07: other policies count for sessions that begin from then on. A session keeps the policy under which it began.
#[tokio::test(flavor = "multi_thread")]
async fn policies_are_exchanged_for_new_sessions() {
    let (site, macp) = (Site::open().await, settings());
    let policies = macp.policies.clone();
    let gateway = site.served(macp, None).await;
    let (planner, ann) = (gateway.agent("planner").await, gateway.agent("ann").await);
    let strict = SessionStartPayload { policy_version: "output".into(), ..start(&["ann"]) };
    let session = planner.starts(strict.clone()).await;
    planner.says(&session, "TaskRequest", &request("ann")).await;
    ann.says(&session, "TaskAccept", &accept()).await;

    let other = r#"[{"policy_id": "other", "mode": "*", "schema_version": 1, "rules": {}}]"#;
    policies.replace(MacpPolicies::parse(other).unwrap());
    let asked = planner.request(ListPoliciesRequest { mode: String::new() });
    let listed = planner.wire.0.clone().list_policies(asked).await.unwrap().into_inner();
    let names: Vec<_> = listed.descriptors.iter().map(|it| it.policy_id.as_str()).collect();
    assert_eq!(names, ["other", "policy.default"]);
    let other = uuid::Uuid::new_v4().to_string();
    let begins = planner.envelope(&other, "SessionStart", &strict);
    assert_eq!(code(&planner.send(begins).await), "UNKNOWN_POLICY_VERSION");

    ann.says(&session, "TaskComplete", &complete(b"")).await;
    let refused = planner.refused(&session, "Commitment", &commit("task.completed", true)).await;
    assert_eq!(refused, "POLICY_DENIED");
}
