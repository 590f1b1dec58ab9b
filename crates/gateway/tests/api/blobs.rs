//! Blobs as bytes.

use hyper::{Method, StatusCode};
use serde_json::json;
use tenure_core::record::Blob;

use crate::gateway::{TestGateway, tasks};
use crate::http::send;

/// VALUE-01: bytes go in and come out in parts.
#[tokio::test]
async fn a_blob_comes_back_as_it_went() {
    let gateway = TestGateway::open().await;
    gateway.create("t", "hold").await;
    for length in [1, 512 << 10, (512 << 10) + 1, 3 << 20] {
        let bytes: Vec<u8> = (0..=250).cycle().take(length).collect();
        let path = tasks(&format!("/t/blobs/{}", Blob::of(&bytes).digest()));
        let put = gateway.ask(Method::PUT, &path).body("application/octet-stream", bytes.clone());
        let stored = send(put).await;
        assert_eq!(stored.status, StatusCode::OK, "{length}: {:?}", stored.body);
        assert_eq!(stored.json()["size_bytes"], length);
        let got = send(gateway.ask(Method::GET, &path)).await;
        assert_eq!(got.header("content-disposition"), "attachment", "no browser shows it");
        assert_eq!((got.status, got.body == bytes), (StatusCode::OK, true), "{length}");
    }
}

/// A Task need not exist yet when what it is to name is stored.
#[tokio::test]
async fn a_task_names_what_was_stored_before() {
    let gateway = TestGateway::open().await;
    let bytes = vec![b'7'; 100_000];
    let path = tasks(&format!("/t/blobs/{}", Blob::of(&bytes).digest()));
    let put = gateway.ask(Method::PUT, &path).body("application/octet-stream", bytes);
    let input = send(put).await.json();
    let step = json!({ "step_id": "a", "title": "A", "handler": "hold", "input": input });
    let body = json!({ "task_id": "t", "title": "t", "steps": [step] });
    let made = gateway.post(&tasks(""), &body).await;
    assert_eq!(made.status, StatusCode::CREATED, "{:?}", made.body);
}

#[tokio::test]
async fn bytes_that_are_not_the_blob_are_refused() {
    let gateway = TestGateway::open().await;
    gateway.create("t", "hold").await;
    let path = tasks(&format!("/t/blobs/{}", Blob::of(b"right").digest()));
    let wrong =
        send(gateway.ask(Method::PUT, &path).body("application/octet-stream", "wrong")).await;
    assert_eq!((wrong.status, wrong.field().as_str()), (StatusCode::UNPROCESSABLE_ENTITY, "data"));
    let absent = send(gateway.ask(Method::GET, &path)).await;
    assert_eq!((absent.status, absent.code().as_str()), (StatusCode::NOT_FOUND, "blob_missing"));
    let odd = send(gateway.ask(Method::GET, &tasks("/t/blobs/md5:0"))).await;
    assert_eq!(odd.field(), "digest");
}
