//! The document of the API.

use std::collections::BTreeSet;

use hyper::{Method, StatusCode};

use crate::gateway::TestGateway;
use crate::http::send;

#[tokio::test]
async fn the_document_and_the_page_are_served() {
    let gateway = TestGateway::open().await;
    let document = gateway.get("/openapi.json").await;
    assert_eq!(document.json()["openapi"], "3.1.0");
    let catalog = gateway.get("/v1/operations").await.json();
    assert!(catalog["operations"].as_array().unwrap().len() > 30);
    let page = gateway.get("/docs").await;
    assert!(page.header("content-type").starts_with("text/html"));
    assert!(page.header("content-security-policy").contains("default-src 'none'"));
}

/// Whatever a problem says its type is, is there to be read.
#[tokio::test]
async fn the_type_of_a_problem_is_explained() {
    let gateway = TestGateway::open().await;
    let problem = send(gateway.ask(Method::GET, "/v1/sessions/main/tasks/none")).await.json();
    let (page, anchor) = problem["type"].as_str().unwrap().split_once('#').unwrap();
    let page = String::from_utf8(gateway.get(page).await.body.to_vec()).unwrap();
    assert!(page.contains(&format!("id=\"{anchor}\"")), "{anchor}");
}

/// Every path of the document is served: a method that it does not have is refused as such.
#[tokio::test]
async fn what_the_document_names_is_there() {
    let gateway = TestGateway::open().await;
    let document = gateway.get("/openapi.json").await.json();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let path = path.replace(['{', '}'], "");
        let answer = send(gateway.ask(Method::TRACE, &path)).await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        let allowed: BTreeSet<String> =
            answer.header("allow").split(',').map(|it| it.trim().to_ascii_lowercase()).collect();
        for method in methods.as_object().unwrap().keys() {
            assert!(allowed.contains(method), "{method} {path}: {allowed:?}");
        }
    }
}
