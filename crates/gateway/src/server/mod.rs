//! The server: it listens, accepts connections within its limits, and stops without breaking off what
//! it is in the middle of.
//!
//! A connection speaks HTTP/1.1, over TCP, TLS or a Unix socket. At the address for gRPC, if there is one, it
//! speaks HTTP/2. Whatever comes goes through the [guard](crate::guard) first. A Unix socket asks for no token:
//! the file has mode 0600, so whoever opens it is the user of this process, or an administrator.

mod connection;
mod descriptors;
#[cfg(feature = "grpc")]
mod http2;
mod limits;
mod listen;
mod stall;
mod tls;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures::future::{BoxFuture, join_all};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::connection::{ConnectionParts, SpokenHttp};
use self::limits::OpenConnections;
pub use self::limits::ServerLimits;
pub(crate) use self::limits::line_of;
use self::listen::ServerListener;
use self::tls::ServerTls;
pub use self::tls::{TlsError, TlsFiles};
use crate::Gateway;
pub use crate::guard::{BindRefused, check_bind};
use crate::guard::{GuardSettings, RequestGuard};
use crate::identity::{Authenticator, IdentityError};
use crate::metrics::Counters;

/// How long a server that stops takes at most to end the links of its workers.
const PARTING: Duration = Duration::from_secs(2);

/// Where a server listens, and for whom.
#[derive(Debug, Clone, Default)]
pub struct ServerSettings {
    /// Addresses; port 0 lets the system choose one.
    pub tcp: Vec<SocketAddr>,
    /// An address at which agents speak A2A over gRPC, and at which MACP is spoken.
    #[cfg(feature = "grpc")]
    pub grpc: Option<SocketAddr>,
    /// Files of Unix sockets.
    pub unix: Vec<PathBuf>,
    /// The files for TLS on all addresses; `None`: they speak plain HTTP.
    pub tls: Option<TlsFiles>,
    /// The file that says who is who; `None`: every caller is the local user.
    pub identities: Option<PathBuf>,
    /// Further names under which the gateway is reached, as those of a proxy, with a port if browsers
    /// show one.
    pub names: Vec<String>,
    /// What connections and requests may take.
    pub limits: ServerLimits,
}

/// Why a server does not start, or does not read its files again.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// It would be open to everybody.
    #[error(transparent)]
    Open(#[from] BindRefused),
    /// It cannot listen at an address.
    #[error("cannot listen on {address}")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// It cannot listen on a Unix socket.
    #[error("cannot listen on {}", path.display())]
    Unix {
        /// The file of the socket.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The file that says who is who cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The files for TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A server that listens and does not answer yet.
#[derive(Debug)]
pub struct HttpServer {
    listeners: Vec<ServerListener>,
    #[cfg(feature = "grpc")]
    grpc: Option<ServerListener>,
    files: ServerFiles,
    names: Vec<String>,
    limits: ServerLimits,
}

/// The files of a server that it reads again when it is told to. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ServerFiles {
    authenticator: Option<Arc<Authenticator>>,
    tls: Option<Arc<ServerTls>>,
}

impl ServerFiles {
    fn load(settings: &ServerSettings) -> Result<Self, ServerError> {
        let authenticator = settings.identities.as_ref().map(Authenticator::load).transpose()?;
        let tls = settings.tls.clone().map(ServerTls::load).transpose()?;
        Ok(Self { authenticator: authenticator.map(Arc::new), tls: tls.map(Arc::new) })
    }

    /// Reads the files again: who is who, and certificate and key. What is wrong stays as it was.
    ///
    /// # Errors
    /// What is wrong, the first of it if both are.
    pub fn reload(&self) -> Result<(), ServerError> {
        let who = self.authenticator.as_ref().map_or(Ok(()), |by| by.reload());
        let tls = self.tls.as_ref().map_or(Ok(()), |tls| tls.reload());
        who.map_err(ServerError::from).and(tls.map_err(ServerError::from))
    }
}

impl HttpServer {
    /// Reads the files and listens. From now on callers can connect, and wait.
    ///
    /// # Errors
    /// A file cannot be used, a socket cannot be bound, or the server would be open to everybody.
    pub async fn bind(settings: ServerSettings) -> Result<Self, ServerError> {
        let files = ServerFiles::load(&settings)?;
        let mut listeners = Vec::new();
        for &address in &settings.tcp {
            listeners.push(listen(address, &files).await?);
        }
        #[cfg(feature = "grpc")]
        let grpc = match settings.grpc {
            Some(address) => Some(listen(address, &files).await?),
            None => None,
        };
        for path in settings.unix {
            let listener = ServerListener::unix(&path);
            listeners.push(listener.map_err(|source| ServerError::Unix { path, source })?);
        }
        Ok(Self {
            listeners,
            #[cfg(feature = "grpc")]
            grpc,
            files,
            names: settings.names,
            limits: settings.limits,
        })
    }

    /// The addresses at which it listens, with the ports that were chosen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(ServerListener::address).collect()
    }

    /// The address at which gRPC is spoken, with the port that was chosen.
    pub fn grpc_address(&self) -> Option<SocketAddr> {
        #[cfg(feature = "grpc")]
        let listener = self.grpc.as_ref();
        #[cfg(not(feature = "grpc"))]
        let listener: Option<&ServerListener> = None;
        listener.and_then(ServerListener::address)
    }

    /// Its files, to have them read again.
    pub fn files(&self) -> ServerFiles {
        self.files.clone()
    }

    /// Serves a gateway until `shutdown` is ready, and a little longer: see
    /// [`serve_routes`](Self::serve_routes). Meanwhile it ends the links of workers.
    pub fn serve<'a>(
        self,
        gateway: Arc<Gateway>,
        shutdown: impl Future + Send + 'a,
    ) -> BoxFuture<'a, ()> {
        let shutdown = async {
            shutdown.await;
        };
        self.serve_until(gateway, Box::pin(shutdown))
    }

    /// The same. Its future is boxed, so that this crate contains the code of the gateway, and not each crate that
    /// polls it.
    fn serve_until<'a>(
        self,
        gateway: Arc<Gateway>,
        shutdown: BoxFuture<'a, ()>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(self.serve_gateway(gateway, shutdown))
    }

    async fn serve_gateway(mut self, gateway: Arc<Gateway>, shutdown: BoxFuture<'_, ()>) {
        let (counters, stopping) = (gateway.counters(), CancellationToken::new());
        provide(&mut self.limits);
        gateway.live.fit(self.limits.connections_max);
        let routes = ServedRoutes {
            http: crate::routes(Arc::clone(&gateway)),
            #[cfg(feature = "grpc")]
            grpc: crate::a2a::grpc_routes(Arc::clone(&gateway))
                .merge(crate::macp::routes(&gateway)),
        };
        let shutdown = async {
            shutdown.await;
            stopping.cancel();
        };
        let serving = async {
            let served = self.serve_all(routes, counters, shutdown);
            tokio::select! {
                () = served => {}
                () = gateway.call_back() => {} // It never ends.
                () = Arc::clone(&gateway).tend_sessions() => {} // As above.
            }
            stopping.cancel();
        };
        let parting = async {
            stopping.cancelled().await;
            // Steps that do not go back in time are lost when their leases end.
            let _ = timeout(PARTING, gateway.part_with_workers()).await;
        };
        tokio::join!(serving, parting);
    }

    /// Serves these routes until `shutdown` is ready. Then it listens no more, ends streams and long
    /// polls, and waits for the other answers, for [`ServerLimits::grace`] at most.
    pub async fn serve_routes(mut self, routes: Router, counters: Counters, shutdown: impl Future) {
        provide(&mut self.limits);
        let routes = ServedRoutes {
            http: routes,
            #[cfg(feature = "grpc")]
            grpc: Router::new(),
        };
        self.serve_all(routes, counters, shutdown).await;
    }

    async fn serve_all(self, routes: ServedRoutes, counters: Counters, shutdown: impl Future) {
        let Self { listeners, files, names, limits, .. } = self;
        let (stop, abort) = (CancellationToken::new(), CancellationToken::new());
        let guard = RequestGuard::new(
            guard_settings(files.authenticator, names, &limits),
            counters.clone(),
            stop.clone(),
        );
        let grace = limits.grace;
        let open = OpenConnections::bounded(limits.connections_max, limits.connections_of_one_max);
        let accepting = Accepting { stop, abort, open, counters, all: TaskTracker::new() };
        let parts = |routes, http| {
            let (limits, tls) = (limits.clone(), files.tls.clone());
            let (stop, abort) = (accepting.stop.clone(), accepting.abort.clone());
            Arc::new(ConnectionParts { routes, limits, tls, http, stop, abort })
        };
        let http = SpokenHttp::One(connection::http1(&limits));
        let http = parts(Arc::clone(&guard).before(routes.http), http);
        #[cfg(not(feature = "grpc"))]
        let doors = listeners.into_iter().map(|listener| (listener, Arc::clone(&http)));
        #[cfg(feature = "grpc")]
        let doors = {
            let spoken = SpokenHttp::Two(http2::Http2::new(&limits));
            let grpc = crate::a2a::with_grpc_refusals(guard.before(routes.grpc));
            let grpc = parts(crate::macp::with_credentials(grpc), spoken);
            let doors = listeners.into_iter().map(|listener| (listener, Arc::clone(&http)));
            doors.chain(self.grpc.map(|listener| (listener, grpc)))
        };
        let doors: Vec<_> = doors.collect();
        tokio::select! {
            _ = shutdown => {}
            // It never ends.
            _ = join_all(doors.iter().map(|(listener, parts)| accepting.accept(listener, parts))) => {}
        }
        drop(doors);
        accepting.end(grace).await;
    }
}

/// Has as many connections as the process may have files open.
fn provide(limits: &mut ServerLimits) {
    let provided = descriptors::provide(limits.connections_max);
    if provided < limits.connections_max {
        // One address still leaves a quarter to the others.
        let most_of_one = (provided * 3).div_ceil(4);
        limits.connections_of_one_max = limits.connections_of_one_max.min(most_of_one);
        limits.connections_max = provided;
    }
}

/// Listens at an address, if the server may.
async fn listen(address: SocketAddr, files: &ServerFiles) -> Result<ServerListener, ServerError> {
    check_bind(address, files.authenticator.is_some())?;
    let listener = ServerListener::tcp(address).await;
    let listener = listener.map_err(|source| ServerError::Tcp { address, source })?;
    if files.tls.is_none() && !address.ip().to_canonical().is_loopback() {
        tracing::warn!(%address, "tokens and answers cross the network unencrypted there");
    }
    Ok(listener)
}

/// What a server serves at its addresses.
struct ServedRoutes {
    http: Router,
    /// At the address for gRPC.
    #[cfg(feature = "grpc")]
    grpc: Router,
}

fn guard_settings(
    authenticator: Option<Arc<Authenticator>>,
    names: Vec<String>,
    limits: &ServerLimits,
) -> GuardSettings {
    GuardSettings {
        authenticator,
        names,
        body_bytes_max: limits.body_bytes_max,
        bodies_bytes_max: limits.bodies_bytes_max,
        answers_bytes_max: limits.answers_bytes_max,
        answer_timeout: limits.answer_timeout,
        request_timeout: limits.request_timeout,
    }
}

/// The server while it accepts connections.
#[derive(Debug)]
struct Accepting {
    stop: CancellationToken,
    abort: CancellationToken,
    open: Arc<OpenConnections>,
    counters: Counters,
    all: TaskTracker,
}

impl Accepting {
    /// Accepts connections for ever. One that is too many is closed at once, so that its caller need
    /// not wait to learn it.
    async fn accept(&self, listener: &ServerListener, parts: &Arc<ConnectionParts>) {
        loop {
            let accepted = listener.accept().await;
            let Some(counted) = self.open.add(accepted.address()) else {
                self.counters.connection_refused();
                connection::refuse(accepted, parts);
                continue;
            };
            let (parts, connection) = (Arc::clone(parts), self.counters.connection());
            self.all.spawn(async move {
                connection::serve(accepted, parts).await;
                drop((counted, connection));
            });
        }
    }

    /// Waits for the connections to end, and breaks off those that take too long.
    async fn end(self, grace: Duration) {
        self.stop.cancel();
        self.all.close();
        if timeout(grace, self.all.wait()).await.is_err() {
            tracing::info!(connections = self.all.len(), "connections are broken off");
            self.abort.cancel();
            self.all.wait().await;
        }
    }
}
