//! One server for all versions of the protocol, from 2025-06-18 to 2026-07-28.

use serde_json::json;
use tenure_core::status::Role;
use tenure_mcp::McpSettings;

use crate::host::Era;
use crate::house::House;

#[tokio::test]
async fn a_host_of_any_version_works() {
    let house = House::open().await;
    for era in [Era::Modern, Era::Legacy("2025-11-25"), Era::Legacy("2025-06-18")] {
        let mut host = house.host_of(Role::Orchestrator, McpSettings::default(), era).await;
        match era {
            Era::Modern => {
                let versions = json!(["2025-06-18", "2025-11-25", "2026-07-28"]);
                assert_eq!(host.server["supportedVersions"], versions, "{}", host.server);
            }
            Era::Legacy(version) => assert_eq!(host.server["protocolVersion"], version),
        }
        assert!(host.server["capabilities"]["tools"].is_object());
        assert!(
            host.server["capabilities"].get("tasks").is_none(),
            "nothing of the first edition of tasks"
        );
        assert!(host.server["instructions"].as_str().unwrap().contains("task_template"));
        let list = host.done("task_list", json!({})).await;
        assert_eq!(list["tasks"], json!([]));
        host.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_host_of_an_unknown_version_is_offered_a_known_one() {
    let house = House::open().await;
    let era = Era::Legacy("2024-11-05");
    let host = house.host_of(Role::Orchestrator, McpSettings::default(), era).await;
    assert_eq!(host.server["protocolVersion"], "2025-11-25");
    let mut host = house.host().await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2031-01-01",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    host.send(
        json!({ "jsonrpc": "2.0", "id": 99, "method": "tools/list", "params": { "_meta": meta } }),
    )
    .await;
    let answer = host.answer(99).await;
    assert_eq!(answer["error"]["code"], -32022, "{answer}");
    assert_eq!(answer["error"]["data"]["supported"].as_array().unwrap().len(), 3);
}

/// What is no message of MCP ends nothing.
#[tokio::test]
async fn nonsense_on_the_line_is_passed_over() {
    let mut host = House::open().await.host().await;
    for line in [json!("text"), json!([]), json!({ "jsonrpc": "2.0" }), json!({ "id": [] })] {
        host.send(line).await;
    }
    let list = host.request("tools/list", json!({})).await;
    loop {
        let message = host.next().await;
        if message["id"] == list {
            break;
        }
        assert_eq!(message["error"]["code"], -32600, "{message}");
    }
}
