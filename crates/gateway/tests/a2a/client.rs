//! What our own client sends to agents of others.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use serde_json::{Value as Json, json};
use tenure_sdk::a2a::{A2aUpdate, PeerClient, PeerFollower, PeerSettings};
use tokio::time::timeout;

use crate::house::serve;

/// The versions that requests have named, in order.
type Versions = Arc<Mutex<Vec<Option<String>>>>;

/// An agent that has this card, in which `URL` stands for its address, and refuses everything.
async fn agent(card: Json) -> (SocketAddr, Versions) {
    let versions = Versions::default();
    let seen = Arc::clone(&versions);
    let show = move |headers: HeaderMap| {
        let url = format!("http://{}", headers["host"].to_str().unwrap());
        let text = card.to_string().replace("URL", &url);
        async move { text }
    };
    let refuse = move |headers: HeaderMap| {
        let version = headers.get("a2a-version").map(|it| it.to_str().unwrap().to_owned());
        seen.lock().unwrap().push(version);
        async { (StatusCode::NOT_FOUND, "{}") }
    };
    let routes = Router::new().route("/.well-known/agent-card.json", get(show)).fallback(refuse);
    (serve(routes).await, versions)
}

/// VER-CLIENT-001: our client says with every request which version it speaks.
#[tokio::test]
async fn a_client_says_its_version_with_every_request() {
    let interface = |binding: &str| {
        let interface = json!({"url": "URL", "protocolBinding": binding, "protocolVersion": "1.0"});
        json!({"name": "a", "supportedInterfaces": [interface]})
    };
    let old = json!({
        "name": "a", "protocolVersion": "0.3.0", "url": "URL", "preferredTransport": "JSONRPC",
    });
    for (version, card) in
        [("1.0", interface("JSONRPC")), ("1.0", interface("HTTP+JSON")), ("0.3", old)]
    {
        let (to, versions) = agent(card).await;
        let settings = PeerSettings::new(format!("http://{to}"));
        let client = PeerClient::connect(&settings).await.unwrap();
        client.get("t", None).await.unwrap_err();
        client.cancel("t").await.unwrap_err();
        client.subscribe("t", None).await.unwrap_err();
        let seen = versions.lock().unwrap().clone();
        assert!(seen.len() >= 3, "{seen:?}");
        assert!(seen.iter().all(|named| named.as_deref() == Some(version)), "{seen:?}");
    }
}

/// Each host is sent its own token, also where the card of one leads to another. A host without one is sent none.
#[tokio::test]
async fn a_token_goes_to_its_host_alone() {
    let seen = Arc::<Mutex<Vec<(String, String)>>>::default();
    let hears = Arc::clone(&seen);
    let answer = move |headers: HeaderMap| {
        let text = |name: &str| {
            headers.get(name).map_or(String::new(), |it| it.to_str().unwrap().to_owned())
        };
        let (host, port) =
            text("host").split_once(':').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        hears.lock().unwrap().push((host, text("authorization")));
        let interface = json!({
            "url": format!("http://localhost:{port}"), "protocolBinding": "JSONRPC",
            "protocolVersion": "1.0",
        });
        async move { json!({"name": "a", "supportedInterfaces": [interface]}).to_string() }
    };
    let to = serve(Router::new().fallback(answer)).await;
    let first = ("127.0.0.1".to_owned(), "one".to_owned());
    let second = ("localhost".to_owned(), "two".to_owned());
    for (tokens, expected) in [
        (vec![first.clone(), second], ["Bearer one", "Bearer two"]),
        (vec![first], ["Bearer one", ""]),
    ] {
        let hosts = vec!["localhost".to_owned()];
        let tokens = tokens.into_iter().collect();
        let settings =
            PeerSettings { hosts, tokens, ..PeerSettings::new(format!("http://{to}/a")) };
        assert!(!format!("{settings:?}").contains("one\""), "{settings:?}");
        let client = PeerClient::connect(&settings).await.unwrap();
        client.get("t", None).await.unwrap_err();
        let told = std::mem::take(&mut *seen.lock().unwrap());
        let told: Vec<_> = told.iter().map(|(host, token)| (&**host, &**token)).collect();
        assert_eq!(told, [("127.0.0.1", expected[0]), ("localhost", expected[1])]);
    }
}

/// An agent whose streams end as soon as they have begun is asked less and less often.
#[tokio::test]
async fn an_agent_without_lasting_streams_is_not_asked_all_the_time() {
    let asked = Arc::<AtomicUsize>::default();
    let counts = Arc::clone(&asked);
    let answer = move |request: Request| {
        let task = json!({"id": "t", "status": {"state": "TASK_STATE_WORKING"}});
        let streams = request.headers().get("accept").is_some_and(|it| it == "text/event-stream");
        if !streams {
            counts.fetch_add(1, Ordering::SeqCst);
        }
        async move {
            match streams {
                false => ([("content-type", "application/json")], task.to_string()),
                true => {
                    let frame = format!("data: {}\n\n", json!({"task": task}));
                    ([("content-type", "text/event-stream")], frame)
                }
            }
        }
    };
    let card = |headers: HeaderMap| async move {
        let url = format!("http://{}", headers["host"].to_str().unwrap());
        let interface =
            json!({"url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"});
        let card = json!({
            "name": "a", "supportedInterfaces": [interface], "capabilities": {"streaming": true},
        });
        card.to_string()
    };
    let routes = Router::new().route("/.well-known/agent-card.json", get(card)).fallback(answer);
    let settings = PeerSettings::new(format!("http://{}", serve(routes).await));
    let client = PeerClient::connect(&settings).await.unwrap();
    let mut follower = PeerFollower::new(client, "t");
    let follows = async {
        loop {
            assert!(matches!(follower.next().await.unwrap(), A2aUpdate::Task(_)));
        }
    };
    timeout(Duration::from_secs(3), follows).await.unwrap_err();
    let asked = asked.load(Ordering::SeqCst);
    assert!((1..=7).contains(&asked), "{asked}");
}
