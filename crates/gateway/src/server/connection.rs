//! One connection: the handshake of TLS if there is one, then requests until it ends.

use std::convert::Infallible;
use std::io::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::http::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use hyper_util::service::{TowerToHyperService, TowerToHyperServiceFuture};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::limits::ServerLimits;
use super::listen::Accepted;
use super::stall::StallGuard;
use super::tls::ServerTls;
use crate::guard::Peer;
use crate::identity::ClientCertificate;

/// The most bytes of a connection that wait to be understood or sent. A head fits into it.
const BUFFER_MAX: usize = 64 << 10;

/// What is said on a connection that is one too many, before it is closed. Its caller may not have
/// asked anything yet.
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/problem+json\r\ncontent-length: 133\r\n\
    retry-after: 1\r\nconnection: close\r\n\r\n\
    {\"type\":\"/docs#unavailable\",\"title\":\"unavailable\",\"status\":503,\"detail\":\
    \"too many connections\",\"code\":\"unavailable\",\"retryable\":true}";

/// What all connections of a server have in common.
#[derive(Debug)]
pub(super) struct ConnectionParts {
    pub(super) routes: Router,
    pub(super) limits: ServerLimits,
    pub(super) tls: Option<Arc<ServerTls>>,
    pub(super) http: SpokenHttp,
    /// Connections take no more requests.
    pub(super) stop: CancellationToken,
    /// Connections end, whatever they are in the middle of.
    pub(super) abort: CancellationToken,
}

/// What connections speak, with the limits of its parser.
#[derive(Debug)]
pub(super) enum SpokenHttp {
    /// HTTP/1.1.
    One(http1::Builder),
    /// HTTP/2, which gRPC needs.
    #[cfg(feature = "grpc")]
    Two(super::http2::Http2),
}

impl SpokenHttp {
    fn acceptor(&self, tls: &ServerTls) -> (TlsAcceptor, CancellationToken) {
        match self {
            Self::One(_) => tls.acceptor(),
            #[cfg(feature = "grpc")]
            Self::Two(_) => tls.acceptor_h2(),
        }
    }
}

/// The parser of HTTP/1.1, with its limits.
pub(super) fn http1(limits: &ServerLimits) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_header_size(limits.head_bytes_max)
        .max_buf_size(BUFFER_MAX.max(2 * limits.head_bytes_max));
    http
}

/// Serves a connection until it ends.
pub(super) async fn serve(accepted: Accepted, parts: Arc<ConnectionParts>) {
    let address = accepted.address();
    let peer = Peer { address, ..Peer::default() };
    match accepted {
        Accepted::Unix(stream) => drive(stream, peer, &parts).await,
        Accepted::Tcp(stream, _) => match &parts.tls {
            // A handshake takes several times the memory of a connection, which keeps its place for it.
            Some(tls) => Box::pin(serve_tls(stream, peer, tls, &parts)).await,
            None => drive(stream, peer, &parts).await,
        },
    }
}

async fn serve_tls(stream: TcpStream, peer: Peer, tls: &ServerTls, parts: &ConnectionParts) {
    let (acceptor, outdated) = parts.http.acceptor(tls);
    let handshake = timeout(parts.limits.handshake_timeout, acceptor.accept(stream));
    let shaken = tokio::select! {
        shaken = handshake => shaken,
        () = parts.stop.cancelled() => return,
    };
    let Ok(Ok(stream)) = shaken else {
        return tracing::debug!(?peer, "a connection came to no agreement on TLS");
    };
    let certificates = stream.get_ref().1.peer_certificates();
    let certificate = certificates.and_then(<[_]>::first);
    let certificate = certificate.map(|first| ClientCertificate::read(first));
    let peer = Peer { is_tls: true, certificate, ..peer };
    let peer = if peer.certificate.is_some() { Peer { outdated, ..peer } } else { peer };
    drive(stream, peer, parts).await;
}

async fn drive<T>(stream: T, peer: Peer, parts: &ConnectionParts)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = TokioIo::new(StallGuard::new(stream, parts.limits.write_stall));
    let outdated = peer.outdated.clone();
    let service = PeerService {
        routes: TowerToHyperService::new(parts.routes.clone()),
        peer: Arc::new(peer),
    };
    match &parts.http {
        SpokenHttp::One(http) => {
            finish(http.serve_connection(stream, service), outdated, parts).await
        }
        #[cfg(feature = "grpc")]
        SpokenHttp::Two(http) => {
            let (connection, silence) = http.serve_connection(stream, service);
            tokio::select! {
                () = finish(connection, outdated, parts) => {}
                () = silence => tracing::debug!("a connection has asked for nothing"),
            }
        }
    }
}

/// Serves requests until the connection ends, or until it is to take no more.
async fn finish<C>(connection: C, outdated: CancellationToken, parts: &ConnectionParts)
where
    C: GracefulConnection<Error = hyper::Error>,
{
    let last_request = async {
        tokio::select! {
            () = parts.stop.cancelled() => {}
            () = outdated.cancelled() => {}
        }
    };
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = last_request => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = parts.abort.cancelled() => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended with an error");
    }
}

/// Tells a caller that there are too many connections, as far as that goes without waiting for it.
pub(super) fn refuse(accepted: Accepted, parts: &ConnectionParts) {
    let is_plain = parts.tls.is_none() && matches!(parts.http, SpokenHttp::One(_));
    // The system buffers what is written first. If not, the caller sees the connection end.
    let _ = match accepted {
        // An answer in plain HTTP/1.1 would not be understood by who expects something else.
        Accepted::Tcp(..) if !is_plain => return,
        Accepted::Tcp(stream, _) => stream.into_std().and_then(|mut it| it.write_all(TOO_MANY)),
        Accepted::Unix(stream) => stream.into_std().and_then(|mut it| it.write_all(TOO_MANY)),
    };
}

/// The routes for the requests of one connection, each of which says where it comes from.
pub(super) struct PeerService {
    routes: TowerToHyperService<Router>,
    peer: Arc<Peer>,
}

impl Service<Request<Incoming>> for PeerService {
    type Response = Response;
    type Error = Infallible;
    type Future = TowerToHyperServiceFuture<Router, Request<Incoming>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(Arc::clone(&self.peer));
        self.routes.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_on_one_connection_too_many_is_whole() {
        let text = std::str::from_utf8(TOO_MANY).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{}", body.len());
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!((&body["status"], &body["code"]), (&503.into(), &"unavailable".into()));
    }
}
