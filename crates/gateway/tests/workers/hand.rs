//! A worker that a test leads by the hand.

use std::net::SocketAddr;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde_json::{Map, Value as Json, json};

use crate::http::{Answer, Exchange, send};

/// Where workers join.
pub(crate) const WORKERS: &str = "/v1/pools/default/workers";

/// A worker over HTTP.
pub(crate) struct Hand {
    to: SocketAddr,
    pub(crate) link: String,
    pub(crate) after: u64,
}

impl Hand {
    /// Joins with this body.
    pub(crate) async fn join(to: SocketAddr, body: Json) -> Self {
        let answer = send(Exchange::new(to, Method::POST, WORKERS).json(&body)).await;
        assert!(answer.status.is_success(), "{:?}", answer.body);
        let joined = answer.json();
        let link = joined["link"].as_str().unwrap().to_owned();
        Self { to, link, after: joined["after"].as_u64().unwrap() }
    }

    /// A worker of one Step at a time.
    pub(crate) async fn of_one(to: SocketAddr) -> Self {
        Self::join(to, json!({ "concurrency": 1 })).await
    }

    /// A request below the link.
    pub(crate) fn ask(&self, method: Method, path: &str) -> Exchange {
        Exchange::new(self.to, method, &format!("{WORKERS}/{}{path}", self.link))
    }

    /// Sends JSON below the link.
    pub(crate) async fn post(&self, path: &str, body: &Json) -> Answer {
        send(self.ask(Method::POST, path).json(body)).await
    }

    /// Asks for deliveries behind a number.
    pub(crate) async fn fetch_after(&self, after: u64, wait: &str) -> Vec<Json> {
        let path = format!("/deliveries?wait={wait}&after={after}");
        let answer = send(self.ask(Method::GET, &path)).await;
        assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
        answer.json()["deliveries"].as_array().unwrap().clone()
    }

    /// Waits for deliveries, and acknowledges them with the next request.
    pub(crate) async fn fetch(&mut self) -> Vec<Json> {
        loop {
            let came = self.fetch_after(self.after, "20s").await;
            if let Some(last) = came.last() {
                self.after = last["number"].as_u64().unwrap();
                return came;
            }
        }
    }

    /// Waits for one delivery of this kind, and passes over others.
    pub(crate) async fn next(&mut self, kind: &str) -> Json {
        loop {
            let mut came = self.fetch().await;
            if let Some(at) = came.iter().position(|it| it.get(kind).is_some()) {
                return came.swap_remove(at)[kind].take();
            }
        }
    }

    pub(crate) async fn granted(&mut self) -> Json {
        self.next("grant").await
    }

    pub(crate) async fn heartbeat(&self, claims: &[&Json]) -> Vec<Json> {
        let answer = self.post("/heartbeat", &json!({ "holdings": claims })).await;
        assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
        answer.json()["pulses"].as_array().unwrap().clone()
    }

    /// Says something of an Attempt: `report`, `end` or `release`.
    pub(crate) async fn say(&self, claim: &Json, what: &str, said: Json) -> Answer {
        let attempt = claim["attempt_id"].as_str().unwrap();
        self.post(&format!("/attempts/{attempt}/{what}"), &beside(&ids(claim), said)).await
    }

    pub(crate) async fn completes(&self, claim: &Json, output: &str) -> Answer {
        let said = json!({ "status": "completed", "output": { "data": output } });
        self.say(claim, "report", said).await
    }

    /// The path of a blob for an Attempt.
    pub(crate) fn blob(claim: &Json, digest: &str) -> String {
        let text = |name: &str| claim[name].as_str().unwrap().to_owned();
        format!(
            "/attempts/{}/blobs/{digest}?session_id={}&task_id={}&run_id={}&fencing_token={}",
            text("attempt_id"),
            text("session_id"),
            text("task_id"),
            text("run_id"),
            claim["fencing_token"],
        )
    }

    pub(crate) async fn put(&self, path: &str, bytes: impl Into<Bytes>) -> Answer {
        send(self.ask(Method::PUT, path).body("application/octet-stream", bytes)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        send(self.ask(Method::GET, path)).await
    }

    pub(crate) async fn leave(self) -> Answer {
        let path = format!("?after={}", self.after);
        send(self.ask(Method::DELETE, &path)).await
    }
}

/// What a worker keeps of a claim for its reports.
pub(crate) fn ids(claim: &Json) -> Json {
    let names = ["session_id", "task_id", "run_id", "fencing_token", "lease_ms"];
    let fields = names.map(|name| (name.to_owned(), claim[name].clone()));
    beside(&Json::from_iter(fields), json!({ "step_id": claim["step"]["step_id"] }))
}

/// The fields of both.
pub(crate) fn beside(one: &Json, other: Json) -> Json {
    let mut all: Map<String, Json> = one.as_object().unwrap().clone();
    all.extend(other.as_object().unwrap().clone());
    all.into()
}
