//! The collector by HTTP.

use std::io::Read as _;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use flate2::read::GzDecoder;
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
    let body = plain(&head.headers, body);
    if body.and_then(|body| take(head.uri.path(), &head.headers, body, &got)).is_none() {
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

/// The body as it was before it was compressed, if it was.
fn plain(headers: &HeaderMap, body: Bytes) -> Option<Bytes> {
    match headers.get("content-encoding").map(|it| it.as_bytes()) {
        None => Some(body),
        Some(b"gzip") => {
            let mut all = Vec::new();
            GzDecoder::new(&*body).read_to_end(&mut all).ok()?;
            Some(all.into())
        }
        Some(_) => None,
    }
}

fn decode<M: prost::Message + Default>(body: Bytes) -> Option<M> {
    M::decode(body).ok()
}
