//! Pools, nodes and leases.

use hyper::{Method, StatusCode};

use crate::gateway::{SESSION, TestGateway};
use crate::http::send;

#[tokio::test]
async fn an_autoscaler_sees_what_runs_and_what_waits() {
    let gateway = TestGateway::open().await;
    for at in 0..6 {
        gateway.create(&format!("t{at}"), "hold").await;
    }
    loop {
        let stats = gateway.get("/v1/stats/pools").await.json();
        let pool = &stats["pools"][0];
        assert_eq!((&pool["pool"], &pool["workers"]), (&"default".into(), &1.into()));
        if (&pool["running"], &pool["waiting"]) == (&4.into(), &2.into()) {
            assert_eq!(pool["wanted"], 6);
            break;
        }
        tokio::task::yield_now().await;
    }
    let leases = gateway.get(&format!("/v1/sessions/{SESSION}/leases")).await.json();
    assert_eq!(leases["leases"].as_array().unwrap().len(), 4);
    gateway.gate.add_permits(6);
}

#[tokio::test]
async fn pools_and_nodes_are_listed() {
    let gateway = TestGateway::open().await;
    gateway.create("t", "hold").await;
    let pools = gateway.get("/v1/pools").await.json();
    assert_eq!(pools["pools"][0]["pool"], "default");
    let pool = gateway.get("/v1/pools/default").await.json();
    assert_eq!((&pool["pool"], pool["members"].is_array()), (&"default".into(), true));
    assert_eq!(gateway.get("/v1/nodes").await.json()["nodes"][0]["node"], "local");
    assert!(gateway.get("/v1/workers?pool=default").await.json()["workers"].is_array());
    let absent = send(gateway.ask(Method::GET, "/v1/pools/none")).await;
    assert_eq!(absent.status, StatusCode::NOT_FOUND);
    let odd = send(gateway.ask(Method::GET, "/v1/pools?limit=3")).await;
    assert_eq!(odd.field(), "limit");
    gateway.gate.add_permits(1);
}
