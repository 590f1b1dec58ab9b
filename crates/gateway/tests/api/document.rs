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

/// The document bounds what a list is asked for as the scheduler does: 16 labels, of 63 and 128 characters (LABEL-01).
#[tokio::test]
async fn labels_that_are_listed_have_their_bounds_in_the_document() {
    let gateway = TestGateway::open().await;
    let document = gateway.get("/openapi.json").await.json();
    let parameters = &document["paths"]["/v1/sessions/{session}/tasks"]["get"]["parameters"];
    let labels = parameters.as_array().unwrap().iter().find(|it| it["name"] == "labels").unwrap();
    assert_eq!(labels["schema"]["maxItems"], 16);
    assert_eq!(labels["schema"]["items"]["pattern"], "^[^=]{1,63}=[\\s\\S]{0,128}$");
    let list = |count: usize| {
        let query: Vec<String> = (0..count).map(|n| format!("labels=k{n}=v")).collect();
        format!("/v1/sessions/main/tasks?{}", query.join("&"))
    };
    assert_eq!(gateway.get(&list(16)).await.status, StatusCode::OK);
    let refused = send(gateway.ask(Method::GET, &list(17))).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(refused.json()["details"]["field"], "labels");
}
