//! What somebody sends who wants to do harm, to a whole gateway.

use serde_json::{Value as Json, json};
use tenure_core::record::Blob;

use crate::raw::Raw;
use crate::site::{request, tokens_in};
use crate::whole::{TASKS, WORKERS, Whole};

/// A page of another site can have a browser send a text without asking first.
#[tokio::test]
async fn a_form_of_another_site_makes_no_task() {
    let whole = Whole::open().await;
    let task = r#"{"task_id": "forged", "title": "forged", "draft": true}"#;
    let text = ("content-type", "text/plain");
    let json = ("content-type", "application/json");
    let form = ("content-type", "application/x-www-form-urlencoded");
    for (headers, status) in [
        (vec![text, ("origin", "https://evil.example")], 403),
        (vec![text, ("origin", "null")], 403),
        (vec![text, ("sec-fetch-site", "cross-site")], 403),
        (vec![json, ("sec-fetch-site", "same-site")], 403),
        (vec![text], 415),
        (vec![form], 415),
        (vec![], 415),
    ] {
        let answer = whole.ask(&format!("POST {TASKS}"), &headers, task).await;
        assert_eq!(answer.status, status, "{headers:?}: {}", answer.body);
    }
    let listed = whole.ask(&format!("GET {TASKS}?include_terminal=true"), &[], "").await;
    let listed: Json = serde_json::from_str(&listed.body).unwrap();
    assert_eq!(listed["tasks"], json!([]));
}

/// PERM-16: a token lets its worker into the pools that stand beside it.
#[tokio::test]
async fn the_token_of_another_pool_lets_nobody_in() {
    let whole = Whole::with(|settings, dir| {
        let path = tokens_in(dir, &[("bee-token", "bee", "worker")]);
        let text = std::fs::read_to_string(&path).unwrap() + "pools = [\"build\"]\n";
        std::fs::write(&path, text).unwrap();
        settings.identities = Some(path);
    })
    .await;
    let headers = [("authorization", "Bearer bee-token"), ("content-type", "application/json")];
    let post = async |path: &str| whole.ask(&format!("POST {path}"), &headers, "{}").await;
    let refused = post(WORKERS).await;
    assert_eq!((refused.status, refused.code()), (403, "permission_denied".into()));
    let joined = post("/v1/pools/build/workers").await;
    assert_eq!(joined.status, 201);
    let elsewhere = joined.header("location").replace("/build/", "/default/");
    let refused = whole.ask(&format!("GET {elsewhere}/deliveries"), &headers, "").await;
    assert_eq!(refused.status, 403);
}

/// A short text of JSON may take a hundred times as much memory once it is read.
#[tokio::test]
async fn json_counts_for_what_it_takes() {
    let whole = Whole::with(|settings, _| settings.limits.bodies_bytes_max = 100_000).await;
    let maps = format!("[{}0]", "{\"\":0},".repeat(1_000));
    let refused = whole.post(WORKERS, &maps).await;
    assert_eq!((refused.status, refused.code()), (503, "unavailable".into()));
    let text = format!("\"{}\"", "x".repeat(maps.len() - 2));
    assert_eq!(whole.post(WORKERS, &text).await.status, 422, "it is read, and is no object");
}

/// Each download of a blob has two parts of it in memory for as long as its reader likes.
#[tokio::test]
async fn downloads_of_blobs_are_bounded() {
    let whole = Whole::with(|settings, _| settings.limits.answers_bytes_max = 2 << 20).await;
    let task = whole.create("long").await;
    let bytes = "x".repeat(16 << 20);
    let path = format!("{TASKS}/{task}/blobs/{}", Blob::of(bytes.as_bytes()).digest());
    let octets = [("content-type", "application/octet-stream")];
    assert_eq!(whole.ask(&format!("PUT {path}"), &octets, &bytes).await.status, 200);
    let line = format!("GET {path}");
    let mut first = whole.connect().await;
    first.send(request(&line, &[])).await;
    first.until("xxxx").await;
    let refused = whole.ask(&line, &[], "").await;
    assert_eq!((refused.status, refused.code()), (503, "unavailable".into()));
    assert_eq!(first.answer().await.unwrap().body.len(), bytes.len());
    assert_eq!(whole.ask(&line, &[], "").await.body.len(), bytes.len());
}

const HARMFUL: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}<script>alert(1)</script>";

/// A title is a text of somebody else: a terminal obeys none of it, and a browser runs none of it.
#[tokio::test]
async fn a_title_is_text_wherever_it_is_shown() {
    let whole = Whole::open().await;
    let task = whole.create(HARMFUL).await;
    whole.client.cancel(&task, HARMFUL).await.unwrap();
    let queries =
        ["", "/history?from_seq=1&to_seq=3", "/board?token_budget=500", "/events", "/log"];
    for rest in queries {
        let answer = whole.read(&format!("GET {TASKS}/{task}{rest}"), &[]).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{rest}: {answer}");
        assert!(!answer.contains('\u{1b}') && !answer.contains("text/html"), "{rest}: {answer}");
        assert!(answer.contains("x-content-type-options: nosniff\r\n"), "{rest}: {answer}");
    }
    let shown = whole.ask(&format!("GET {TASKS}/{task}"), &[], "").await;
    let shown: Json = serde_json::from_str(&shown.body).unwrap();
    assert_eq!(shown["title"], HARMFUL, "it is what it is");
    let accept = [("accept", "text/event-stream")];
    let events = whole.read(&format!("GET {TASKS}/{task}/events"), &accept).await;
    assert!(events.contains("event: end") && !events.contains('\u{1b}'), "{events}");
    let docs = whole.ask("GET /docs", &[], "").await;
    assert!(docs.header("content-type").starts_with("text/html"));
    assert!(!docs.body.contains("<script") && !docs.body.contains('\u{1b}'));
    let absent = whole.ask("GET /v1/%1b%3Cscript%3E", &[], "").await;
    assert_eq!(absent.header("content-type"), "application/problem+json");
    assert!(!absent.body.contains('\u{1b}'), "{}", absent.body);
}

/// How many readers there are: 1,000, or as many as `TENURE_SSE_READERS` says.
fn readers() -> usize {
    std::env::var("TENURE_SSE_READERS").map_or(1_000, |count| count.parse().unwrap())
}

/// Readers to whom there is nothing to tell keep nobody from an answer, and all learn of the end. Their connections
/// are more than a process may have by default.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_idle_readers_disturb_nobody() {
    let whole = Whole::open().await;
    let task = whole.create("long").await;
    let mut open: Vec<Raw<_>> = Vec::new();
    for _ in 0..readers() {
        let mut reader = whole.connect().await;
        let accept = [("accept", "text/event-stream")];
        reader.send(request(&format!("GET {TASKS}/{task}/events"), &accept)).await;
        reader.until("task.created").await;
        open.push(reader);
    }
    let metrics = whole.ask("GET /metrics", &[], "").await.body;
    let line = format!("\ntenure_gateway_streams {}\n", readers());
    assert!(metrics.contains(&line), "{metrics}");
    whole.client.cancel(&task, "enough").await.unwrap();
    for mut reader in open {
        reader.until("event: end").await;
    }
}
