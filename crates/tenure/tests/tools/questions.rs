//! Questions of a server: the Step waits for a person, and the answer goes back.

use serde_json::json;

use crate::bench::Bench;

/// A question blocks the Step; the call is repeated with the answer, and with what the server wanted to see again.
#[tokio::test]
async fn a_question_waits_for_a_person() {
    for bench in [Bench::stdio(&[]).await, Bench::http(&[], "").await] {
        let task = bench.call("where", json!({})).await;
        let asks = bench.when(&task, "blocked").await;
        assert_eq!(
            (&asks["wait_kind"], &asks["status_reason"]["message"]),
            (&json!("input"), &json!("where to?"))
        );
        bench.answer(&task, "Turku").await;
        assert_eq!(bench.output(&task).await["text"], "off to Turku, first");
        let calls = bench.asked("tools/call");
        assert_eq!(calls.len(), 2);
        let answer = json!({"city": {"action": "accept", "content": {"city": "Turku"}}});
        assert_eq!(calls[1]["params"]["inputResponses"], answer);
        assert_eq!(calls[1]["params"]["requestState"], "first");
        assert_eq!(calls[1]["params"]["name"], "where");
    }
}

/// A server may ask one thing after another: each answer goes back with what came with its question.
#[tokio::test]
async fn one_question_may_follow_another() {
    let bench = Bench::http(&[], "").await;
    let task = bench.call("where", json!({"twice": true})).await;
    bench.when(&task, "blocked").await;
    bench.answer(&task, "Turku").await;
    let asks_again = |step: &serde_json::Value| {
        let message = step["status_reason"]["message"].as_str().unwrap_or_default();
        step["status"] == "blocked" && message.contains("to Turku, sure?")
    };
    bench.until(&task, asks_again).await;
    bench.answer(&task, "yes").await;
    assert_eq!(bench.output(&task).await["text"], "off to Turku, accept");
    assert_eq!(bench.asked("tools/call").len(), 3, "no round is repeated");
}

/// What is no answer is asked for again, with what is wrong; the server learns nothing of it.
#[tokio::test]
async fn what_is_no_answer_is_asked_for_again() {
    let bench = Bench::stdio(&[]).await;
    let task = bench.call("sure", json!({})).await;
    bench.when(&task, "blocked").await;
    bench.answer(&task, "who knows").await;
    let says = |step: &serde_json::Value| {
        let message = step["status_reason"]["message"].as_str().unwrap_or_default();
        step["status"] == "blocked" && message.contains("neither yes nor no")
    };
    bench.until(&task, says).await;
    assert_eq!(bench.asked("tools/call").len(), 1, "the server is not asked for that");
    bench.answer(&task, "no").await;
    assert_eq!(bench.output(&task).await["text"], "decline, s");
}

/// VALUE-01: an answer that is too long for a reference is a blob, which comes to the server all the same.
#[tokio::test]
async fn a_long_answer_comes_to_the_server() {
    let bench = Bench::stdio(&[]).await;
    let task = bench.call("where", json!({})).await;
    bench.when(&task, "blocked").await;
    let long = "Turku ".repeat(2_000);
    bench.answer_by_blob(&task, &long).await;
    let said = bench.output(&task).await["text"].as_str().unwrap().to_owned();
    assert_eq!(said, format!("off to {}, first", long.trim()));
    assert_eq!(bench.asked("tools/call").len(), 2);
}

/// A server that has no capacity now is called again at once; what was not offered fails the Step for good.
#[tokio::test]
async fn what_is_no_question_for_people_does_not_come_to_them() {
    let bench = Bench::stdio(&[]).await;
    let task = bench.call("busy", json!({})).await;
    assert_eq!(bench.output(&task).await["text"], "now");
    let task = bench.call_up_to(3, "samples", json!({})).await;
    let (code, message) = bench.failure(&task).await;
    assert_eq!(code, "mcp_malformed");
    assert!(message.contains("sampling/createMessage"), "{message}");
}
