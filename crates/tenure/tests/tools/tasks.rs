//! Tasks of a server: followed, answered, canceled, and taken up by another Attempt.

use serde_json::{Value as Json, json};

use crate::bench::{Bench, command};

fn completed(text: &str) -> Json {
    json!({"status": "completed", "result": {"content": [{"type": "text", "text": text}]}})
}

/// A task of the server is followed to its end: the Step shows it, and what it says.
#[tokio::test]
async fn a_task_is_followed_to_its_end() {
    for bench in [Bench::stdio(&[]).await, Bench::http(&[], "").await] {
        let task = bench.call("job", json!({"name": "load"})).await;
        let step = bench.until(&task, |step| step["progress"]["summary"] == "at work").await;
        let remote = &step["remote"];
        assert_eq!(
            (&remote["native_protocol"], &remote["remote_task_id"]),
            (&json!("mcp"), &json!("load"))
        );
        assert_eq!(
            (&remote["remote_agent_ref"], &remote["remote_status"]),
            (&json!("tools"), &json!("working"))
        );
        bench.end_job("load", &completed("loaded"));
        assert_eq!(bench.output(&task).await["text"], "loaded");
        let step = bench.when(&task, "completed").await;
        assert_eq!(step["remote"]["reconciled"], true);
        assert_eq!(bench.asked("tools/call").len(), 1);
    }
}

/// The ways in which a task of the server ends badly. Another try calls the tool anew.
#[tokio::test]
async fn a_task_that_fails_fails_the_step() {
    let bench = Bench::stdio(&[]).await;
    let failed = json!({"content": [{"type": "text", "text": "no room"}], "isError": true});
    for (name, end, code, says) in [
        ("one", json!({"status": "completed", "result": failed}), "mcp_tool_failed", "no room"),
        (
            "two",
            json!({"status": "failed", "error": {"code": -32602, "message": "bad"}}),
            "mcp_refused",
            "bad",
        ),
        ("three", json!({"status": "cancelled"}), "mcp_canceled", "at work"),
    ] {
        bench.end_job(name, &end);
        let task = bench.call("job", json!({"name": name})).await;
        let (found, message) = bench.failure(&task).await;
        assert_eq!(found, code);
        assert!(message.contains(says), "{message}");
    }
    let before = bench.asked("tools/call").len();
    bench.end_job("four", &json!({"status": "cancelled"}));
    let task = bench.call_up_to(2, "job", json!({"name": "four"})).await;
    bench.failure(&task).await;
    assert_eq!(bench.asked("tools/call").len() - before, 2);
}

/// A task that asks something blocks its Step, and goes on with the answer.
#[tokio::test]
async fn a_task_that_asks_waits_for_a_person() {
    for bench in [Bench::stdio(&[]).await, Bench::http(&[], "").await] {
        let task = bench.call("job", json!({"name": "trip", "asks": true})).await;
        let asks = bench.when(&task, "blocked").await;
        assert_eq!(
            (&asks["wait_kind"], &asks["status_reason"]["message"]),
            (&json!("input"), &json!("where to?"))
        );
        bench.answer(&task, "Turku").await;
        assert_eq!(bench.output(&task).await["text"], "off to Turku");
        assert_eq!((bench.asked("tools/call").len(), bench.asked("tasks/update").len()), (1, 1));
    }
}

/// CANCEL-08: a cancellation of the Step is one of the task of the server.
#[tokio::test]
async fn a_cancellation_is_one_of_the_task() {
    let bench = Bench::http(&[], "").await;
    let task = bench.call("job", json!({"name": "load"})).await;
    bench.until(&task, |step| step["remote"]["remote_task_id"] == "load").await;
    bench.client.cancel(&task, "no more").await.unwrap();
    let told = bench.logged(|it| it["method"] == "tasks/cancel").await;
    assert_eq!(told["params"]["taskId"], "load");
    bench.when(&task, "cancelled").await;
}

/// A2A-02: another worker goes on with the same task of the server, and calls nothing twice; a worker that leaves
/// cancels nothing.
#[tokio::test]
async fn another_worker_goes_on_with_the_same_task() {
    let mut bench = Bench::stdio(&[]).await;
    let task = bench.call("job", json!({"name": "load"})).await;
    bench.until(&task, |step| step["remote"]["remote_task_id"] == "load").await;
    bench.stop_workers().await;
    bench.end_job("load", &completed("loaded"));
    let words = json!(command(bench.dir.path(), &[]));
    bench.hire(&format!("[servers.tools]\ncommand = {words}"));
    assert_eq!(bench.output(&task).await["text"], "loaded");
    assert_eq!((bench.asked("tools/call").len(), bench.asked("tasks/cancel").len()), (1, 0));
    let pids: Vec<Json> =
        bench.log().into_iter().filter(|it| it.get("started").is_some()).collect();
    assert_eq!(pids.len(), 2, "another program has found the task");
}

/// A task that the server does not know any more fails the Attempt; another one calls the tool anew.
#[tokio::test]
async fn a_task_that_is_gone_is_begun_anew() {
    let bench = Bench::stdio(&[]).await;
    let task = bench.call_up_to(2, "job", json!({"name": "load"})).await;
    bench.until(&task, |step| step["remote"]["remote_task_id"] == "load").await;
    std::fs::remove_file(bench.dir.path().join("load.task")).unwrap();
    bench.logged(|it| it["method"] == "tools/call" && it["id"].as_u64() > Some(2)).await;
    bench.end_job("load", &completed("loaded"));
    assert_eq!(bench.output(&task).await["text"], "loaded");
    assert_eq!(bench.asked("tools/call").len(), 2);
}
