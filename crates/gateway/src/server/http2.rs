//! HTTP/2 for gRPC: its limits, and the end of connections that ask for nothing.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::time::Duration;

use axum::http::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http2;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::connection::PeerService;
use super::limits::ServerLimits;

/// The most requests of a connection at a time. Callers with more wait, or open another connection.
const REQUESTS_MAX: u32 = 100;

/// How many bytes of bodies a connection may send before somebody reads them.
const WINDOW: u32 = 256 << 10;

/// How many bytes of an answer wait to be sent.
const SEND_BUFFER_MAX: usize = 64 << 10;

/// After how long without a sign of life a connection is asked for one, and how long it has to give it.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The parser of HTTP/2, with its limits.
#[derive(Debug)]
pub(super) struct Http2 {
    parser: http2::Builder<TokioExecutor>,
    /// How long a new connection may ask for nothing.
    patience: Duration,
}

impl Http2 {
    pub(super) fn new(limits: &ServerLimits) -> Self {
        let head_bytes_max = u32::try_from(limits.head_bytes_max).unwrap_or(u32::MAX);
        let mut parser = http2::Builder::new(TokioExecutor::new());
        parser
            .timer(TokioTimer::new())
            .max_concurrent_streams(REQUESTS_MAX)
            .max_header_list_size(head_bytes_max)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_send_buf_size(SEND_BUFFER_MAX)
            .keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE);
        Self { parser, patience: limits.head_timeout }
    }

    /// A connection, and what ends if it asks for nothing.
    pub(super) fn serve_connection<T>(
        &self,
        stream: T,
        service: PeerService,
    ) -> (impl GracefulConnection<Error = hyper::Error> + use<T>, impl Future<Output = ()> + use<T>)
    where
        T: Read + Write + Unpin + Send + 'static,
    {
        let (asked, patience) = (CancellationToken::new(), self.patience);
        let service = AskedService { inner: service, asked: asked.clone() };
        let silence = async move {
            if timeout(patience, asked.cancelled()).await.is_ok() {
                pending::<()>().await;
            }
        };
        (self.parser.serve_connection(stream, service), silence)
    }
}

/// A service that tells when it is asked for the first time.
struct AskedService {
    inner: PeerService,
    asked: CancellationToken,
}

impl Service<Request<Incoming>> for AskedService {
    type Response = Response;
    type Error = Infallible;
    type Future = <PeerService as Service<Request<Incoming>>>::Future;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.asked.cancel();
        self.inner.call(request)
    }
}
