//! [`HttpHost`]: the HTTP API on threads and a runtime of its own.
//!
//! A scheduler or a worker of the same process has one thread, and what HTTP costs (JSON, TLS, thousands of
//! connections) must not take its turns.

use std::future::pending;
use std::net::SocketAddr;
use std::thread;

use tenure_core::Rejection;
use tenure_core::id::SessionId;
use tenure_gateway::server::{HttpServer, ServerError, ServerFiles, ServerSettings};
use tenure_gateway::{ErasedBackend, Gateway, GatewaySettings};
use tenure_ports::supervise::guard;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

#[cfg(feature = "grpc")]
use super::grpc::PoliciesOnFile;
use super::grpc::SpokenHere;
use crate::agent::AgentsOnFile;
use crate::answer::{Exit, Failure, output};
use crate::runtime::{CommandRuntime, START, StopSignals, one_thread};

/// The session whose longest waits an answer names if the request names no session.
const SESSION: &str = "default";

/// A running HTTP API. It ends when this is dropped, and [`stop`](Self::stop) waits for that.
#[derive(Debug)]
pub(crate) struct HttpHost {
    listening: Listening,
    stop: DropGuard,
    /// Closed when it has ended.
    ended: oneshot::Receiver<()>,
}

/// What a server says once it listens.
#[derive(Debug)]
struct Listening {
    addresses: Vec<SocketAddr>,
    /// Those that can be read again, if it has any.
    files: Option<HostFiles>,
    is_tls: bool,
}

/// What a running HTTP API reads again when it is told to.
#[derive(Debug)]
struct HostFiles {
    server: ServerFiles,
    agents: AgentsOnFile,
    #[cfg(feature = "grpc")]
    policies: Option<PoliciesOnFile>,
}

impl HostFiles {
    /// Reads everything again. What is wrong stays as it was, and does not hinder the rest.
    fn reload(&self) {
        say_if_wrong("callers and certificates", self.server.reload().map_err(Failure::from));
        if self.agents.has_file() {
            say_if_wrong("agents", self.agents.reload());
        }
        #[cfg(feature = "grpc")]
        if let Some(policies) = &self.policies {
            say_if_wrong("policies of MACP", policies.reload());
        }
    }
}

/// Says in the log what became of files that were to be read again.
pub(crate) fn say_if_wrong(what: &str, read: Result<(), Failure>) {
    match read {
        Ok(()) => tracing::info!("{what} were read again"),
        Err(failure) => {
            tracing::warn!(error = failure.message, "{what} that were read before count on");
        }
    }
}

impl HttpHost {
    /// Listens, and serves this backend with so many threads.
    pub(crate) async fn start(
        backend: ErasedBackend,
        settings: ServerSettings,
        spoken: SpokenHere,
        threads: usize,
    ) -> Result<Self, Failure> {
        let session = SessionId::new(SESSION).map_err(Rejection::from)?;
        let stop = CancellationToken::new();
        let shutdown = stop.clone().cancelled_owned();
        let stop = stop.drop_guard();
        let (tell, told) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let serve = move || {
            let _end: oneshot::Sender<()> = end;
            let runtime = match runtime(threads) {
                Ok(runtime) => runtime,
                Err(failure) => return drop(tell.send(Err(failure))), // Who asked may have gone.
            };
            runtime.block_on(async {
                let is_tls = settings.tls.is_some();
                let asks_for_login = settings.identities.is_some();
                let has_files =
                    is_tls || asks_for_login || spoken.agents.has_file() || spoken.has_policies();
                let server = match bind(settings).await {
                    Ok(server) => server,
                    Err(error) => return drop(tell.send(Err(error.into()))),
                };
                #[cfg(feature = "grpc")]
                let policies = spoken.policies();
                let usual = spoken.settings(GatewaySettings::new(session));
                let agents = spoken.agents;
                let files = has_files.then(|| HostFiles {
                    server: server.files(),
                    agents,
                    #[cfg(feature = "grpc")]
                    policies,
                });
                let addresses = server.addresses();
                if let Some(address) = server.grpc_address() {
                    output::say(format_args!("gRPC is spoken at {address}"));
                }
                let _ = tell.send(Ok(Listening { addresses, files, is_tls }));
                let grpc_port = server.grpc_address().map(|address| address.port());
                let settings = GatewaySettings { grpc_port, asks_for_login, ..usual };
                let gateway = Gateway::new(backend, settings);
                guard("the HTTP API", server.serve(gateway, shutdown)).await;
            });
            runtime.shutdown_background(); // Do not wait for a DNS look-up that hangs.
        };
        let thread = thread::Builder::new().name("http".into()).spawn(serve);
        thread.map_err(Failure::cannot("start a thread"))?;
        let gone = |_| Failure::new(Exit::Unavailable, "the HTTP API has not started");
        let listening = told.await.map_err(gone)??;
        Ok(Self { listening, stop, ended })
    }

    /// Its address, as a client gives it; none without a port.
    pub(crate) fn url(&self) -> Option<String> {
        let scheme = if self.listening.is_tls { "https" } else { "http" };
        Some(format!("{scheme}://{}", self.listening.addresses.first()?))
    }

    /// Waits until a signal asks to stop. Meanwhile SIGHUP has its [files read again](Self::reads_again).
    pub(crate) async fn until_stopped(&self, stop: &mut StopSignals) -> Result<(), Failure> {
        tokio::select! {
            () = stop.asked() => Ok(()),
            failure = self.reads_again() => Err(failure),
        }
    }

    /// Reads callers, certificates, agents and policies again at each SIGHUP, and ends only if it cannot listen for
    /// that signal. Without such files SIGHUP ends the process, as it does when a terminal is closed.
    pub(crate) async fn reads_again(&self) -> Failure {
        let Some(files) = &self.listening.files else { return pending().await };
        let mut again = match signal(SignalKind::hangup()) {
            Ok(again) => again,
            Err(error) => return Failure::cannot("listen for signals")(error),
        };
        while again.recv().await.is_some() {
            files.reload();
        }
        pending().await
    }

    /// Takes no more requests, and waits for the answers that are on their way, as long as the limits of the
    /// server say.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        let _ = self.ended.await; // It is closed and never says anything.
    }
}

/// Binds all sockets. A Unix socket is a convenience: without it the rest is served.
async fn bind(settings: ServerSettings) -> Result<HttpServer, ServerError> {
    match HttpServer::bind(settings.clone()).await {
        Err(error @ ServerError::Unix { .. }) if !settings.tcp.is_empty() => {
            tracing::warn!(%error, "commands with --data do not reach this process");
            HttpServer::bind(ServerSettings { unix: Vec::new(), ..settings }).await
        }
        bound => bound,
    }
}

fn runtime(threads: usize) -> Result<CommandRuntime, Failure> {
    match threads {
        0 | 1 => one_thread(),
        _ => {
            let mut runtime = Builder::new_multi_thread();
            let runtime = runtime.worker_threads(threads).thread_name("http").enable_all().build();
            runtime.map(CommandRuntime::from).map_err(Failure::cannot(START))
        }
    }
}
