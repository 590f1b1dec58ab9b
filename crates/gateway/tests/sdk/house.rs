//! A scheduler in memory, and sockets on which a gateway to it answers.

use std::io::ErrorKind;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::{Extension, Router};
use futures::{Stream, StreamExt as _, stream};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use tenure_core::id::{AgentId, PoolId, SessionId};
use tenure_core::status::Role;
use tenure_gateway::identity::{Allowed, Identity};
use tenure_gateway::{EmbeddedBackend, Gateway, GatewaySettings};
use tenure_local::MemoryLeases;
use tenure_scheduler::{ClientLink, Config, Scheduler, WorkerLink};
use tenure_sdk::http::{HttpClient, HttpConnectError, HttpSettings};
use tenure_sdk::worker::{Handlers, Options, StepContext, WorkerPool};
use tenure_testkit::{MemoryBlobs, MemoryJournal};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// A scheduler, and a gateway to it.
pub(crate) struct House {
    pub(crate) scheduler: Scheduler<MemoryJournal, MemoryLeases>,
    pub(crate) gateway: Arc<Gateway>,
}

impl House {
    pub(crate) async fn start() -> Self {
        let mut config = Config::embedded(pool());
        config.limits.lease_ms = 120_000;
        config.blobs = Some(Arc::new(MemoryBlobs::of_quota(1 << 30)));
        let (journal, leases) = (Arc::default(), Arc::new(MemoryLeases::default()));
        let scheduler = Scheduler::start(journal, leases, config).await.unwrap();
        let gateway = gateway_to(&scheduler);
        Self { scheduler, gateway }
    }

    /// The routes for a caller.
    pub(crate) fn routes_for(&self, who: Identity) -> Router {
        routes(Arc::clone(&self.gateway), who)
    }

    /// The routes of another gateway to the same scheduler.
    pub(crate) fn other_routes_for(&self, who: Identity) -> Router {
        routes(gateway_to(&self.scheduler), who)
    }

    /// A client of the local user in the session `main`, and the socket that it uses.
    pub(crate) async fn client(&self) -> (HttpClient, Socket) {
        self.client_at("127.0.0.1:0").await
    }

    /// The same at this address.
    pub(crate) async fn client_at(&self, at: &str) -> (HttpClient, Socket) {
        let socket = Socket::tcp(at, self.routes_for(Identity::local())).await;
        (connect(&socket.settings(), "main").await.unwrap(), socket)
    }

    /// The same caller in process.
    pub(crate) fn link(&self) -> ClientLink<MemoryJournal, MemoryLeases> {
        self.scheduler.client(Role::Orchestrator, AgentId::new("local").unwrap(), session("main"))
    }

    /// Workers that complete every Step.
    pub(crate) fn work(&self) -> WorkerPool<WorkerLink<MemoryJournal, MemoryLeases>> {
        let echo = |ctx: StepContext| async move { Ok(ctx.complete_json(&"done")?) };
        let handlers = Handlers::new().on("echo", echo).unwrap();
        let id = AgentId::new("ant.b1").unwrap();
        let (link, deliveries) = self.scheduler.join(id, pool(), None).unwrap();
        WorkerPool::start(link, deliveries, handlers, Options::new(NonZeroUsize::new(4).unwrap()))
    }
}

fn gateway_to(scheduler: &Scheduler<MemoryJournal, MemoryLeases>) -> Arc<Gateway> {
    let backend = EmbeddedBackend::new(scheduler.clone(), None);
    Gateway::new(backend, GatewaySettings::new(session("main")))
}

fn routes(gateway: Arc<Gateway>, who: Identity) -> Router {
    tenure_gateway::routes(gateway).layer(Extension(who))
}

/// A worker with this name, for the one pool.
pub(crate) fn worker(principal: &str) -> Identity {
    let (principal, pools) = (principal.parse().unwrap(), Allowed::Only(vec![pool()]));
    Identity { principal, role: Role::Worker, sessions: Allowed::Only(Vec::new()), pools }
}

pub(crate) fn pool() -> PoolId {
    PoolId::new("default").unwrap()
}

pub(crate) fn session(name: &str) -> SessionId {
    name.parse().unwrap()
}

pub(crate) async fn connect(
    settings: &HttpSettings,
    to: &str,
) -> Result<HttpClient, HttpConnectError> {
    HttpClient::connect(settings, session(to)).await
}

/// A socket on which a gateway answers, until this is dropped: then its connections break, too.
pub(crate) struct Socket {
    pub(crate) url: String,
    /// Connections so far.
    pub(crate) count: Arc<AtomicUsize>,
    accepting: AbortHandle,
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Socket {
    pub(crate) async fn tcp(at: &str, routes: Router) -> Self {
        let listener = loop {
            match TcpListener::bind(at).await {
                Ok(listener) => break listener,
                // The socket that was dropped there is closed in a moment.
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(error) => panic!("{error}"),
            }
        };
        let url = format!("http://{}", listener.local_addr().unwrap());
        let callers = stream::unfold(listener, |listener| async {
            let (stream, _) = listener.accept().await.ok()?;
            Some((stream, listener))
        });
        Self::serve(url, callers, routes)
    }

    pub(crate) fn unix(path: &Path, routes: Router) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let callers = stream::unfold(listener, |listener| async {
            let (stream, _) = listener.accept().await.ok()?;
            Some((stream, listener))
        });
        Self::serve(format!("unix:{}", path.display()), callers, routes)
    }

    /// A socket with a certificate of its own, which it writes to this file.
    pub(crate) async fn tls(ca: &Path, routes: Router) -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        std::fs::write(ca, cert.pem()).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let callers = stream::unfold((listener, acceptor), |(listener, acceptor)| async {
            loop {
                let (stream, _) = listener.accept().await.ok()?;
                if let Ok(stream) = acceptor.accept(stream).await {
                    return Some((stream, (listener, acceptor)));
                }
            }
        });
        Self::serve(url, callers, routes)
    }

    fn serve<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
        url: String,
        callers: impl Stream<Item = S> + Send + 'static,
        routes: Router,
    ) -> Self {
        let count = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&count);
        let accepting = tokio::spawn(async move {
            let (mut callers, mut connections) = (std::pin::pin!(callers), JoinSet::new());
            while let Some(stream) = callers.next().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let service = TowerToHyperService::new(routes.clone());
                let stream = TokioIo::new(stream);
                connections.spawn(http1::Builder::new().serve_connection(stream, service));
            }
        });
        Self { url, count, accepting: accepting.abort_handle() }
    }

    pub(crate) fn settings(&self) -> HttpSettings {
        let first_wait = Duration::from_secs(30);
        HttpSettings { first_wait, ..HttpSettings::new(&*self.url) }
    }
}
