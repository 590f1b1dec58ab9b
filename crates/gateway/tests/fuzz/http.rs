//! The HTTP API: every route of `/openapi.json`, with bodies, paths and query strings made of it.

use serde_json::{Value as Json, json};
use tenure_testkit::fuzz::{Corpus, Draw, InputForm, fuzz, instance};

use crate::site::{Site, request};

/// A document of a fresh gateway.
fn document(site: &Site) -> Json {
    let asked = request("GET", "/openapi.json", &[], &Json::Null);
    assert!(site.takes(&asked));
    site.json("/openapi.json")
}

/// Requests for an operation: parameters in the path and the query, and a body.
fn samples(draw: &mut Draw, document: &Json) -> Vec<Vec<u8>> {
    let mut samples = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            if !["get", "put", "post", "delete", "patch"].contains(&method.as_str()) {
                continue;
            }
            for _ in 0..3 {
                samples.push(sample(draw, document, path, method, operation));
            }
        }
    }
    samples
}

fn sample(draw: &mut Draw, document: &Json, path: &str, method: &str, operation: &Json) -> Vec<u8> {
    let (mut at, mut query) = (path.to_owned(), Vec::new());
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let parameter = match parameter["$ref"].as_str() {
            Some(there) => document.pointer(there.trim_start_matches('#')).unwrap(),
            None => parameter,
        };
        let name = parameter["name"].as_str().unwrap();
        let value = match instance(draw, &parameter["schema"], document) {
            Json::String(text) => text,
            other => other.to_string(),
        };
        match parameter["in"].as_str() {
            Some("path") => at = at.replace(&format!("{{{name}}}"), known(name, &value)),
            Some("query") if draw.once_in(2) => query.push(format!("{name}={value}")),
            _ => {}
        }
    }
    for name in ["session", "pool", "task_id", "step_id", "worker", "link"] {
        at = at.replace(&format!("{{{name}}}"), known(name, "a"));
    }
    if !query.is_empty() {
        at = format!("{at}?{}", query.join("&"));
    }
    let content = operation["requestBody"]["content"].as_object();
    let (media_type, body) = match content.and_then(|all| all.iter().next()) {
        Some((media_type, of)) => (media_type.as_str(), instance(draw, &of["schema"], document)),
        None => ("application/json", Json::Null),
    };
    let headers = [("content-type", media_type), ("idempotency-key", "k1")];
    request(&method.to_uppercase(), &at, &headers, &body)
}

/// Names that are there, so that requests come as far as possible.
fn known<'a>(name: &str, otherwise: &'a str) -> &'a str {
    match name {
        "session" => "main",
        "pool" => "default",
        "task_id" => "t",
        _ => otherwise,
    }
}

#[test]
fn fuzz_http_requests() {
    let site = Site::open();
    let body = json!({
        "task_id": "t", "title": "a task", "steps": [{ "step_id": "a", "title": "A", "handler": "x" }],
    });
    let create =
        request("POST", "/v1/sessions/main/tasks", &[("content-type", "application/json")], &body);
    assert!(site.takes(&create));
    let document = document(&site);
    let samples = samples(&mut Draw::new(1), &document);
    assert!(samples.len() > 100, "{}", samples.len());
    let corpus = Corpus::new(InputForm::Json, samples).and([create]).with_tokens(&[
        "?",
        "&",
        "=",
        "%",
        "%00",
        "%2F",
        "%ff",
        "+",
        "..",
        "wait=20s",
        "since=",
        "limit=",
        "after=",
        "fields=",
        "\"if-match\":\"\\\"1\\\"\",",
        "\"last-event-id\":\"1\",",
        "\"accept\":\"text/event-stream\",",
        "\"prefer\":\"wait=1\",",
        "\"range\":\"bytes=0-\",",
    ]);
    fuzz("HTTP requests", &corpus, |bytes| site.takes(bytes));
}
