//! The collector by HTTP.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::Got;

pub(super) async fn serve(listener: TcpListener, got: Arc<Mutex<Got>>) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let got = Arc::clone(&got);
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, Arc::clone(&got)));
            // The other end may leave at any time.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    got: Arc<Mutex<Got>>,
) -> Result<Response<Empty<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let mut response = Response::new(Empty::new());
    if take(head.uri.path(), &head.headers, body, &got).is_none() {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    Ok(response)
}

fn take(path: &str, headers: &HeaderMap, body: Bytes, got: &Mutex<Got>) -> Option<()> {
    let mut got = got.lock().unwrap_or_else(PoisonError::into_inner);
    let signal = match path {
        "/v1/traces" => {
            got.take_spans(decode(body)?);
            "traces"
        }
        "/v1/metrics" => {
            got.take_metrics(decode(body)?);
            "metrics"
        }
        "/v1/logs" => {
            got.take_logs(decode(body)?);
            "logs"
        }
        _ => return None,
    };
    got.note_headers(signal, headers);
    Some(())
}

fn decode<M: prost::Message + Default>(body: Bytes) -> Option<M> {
    M::decode(body).ok()
}
