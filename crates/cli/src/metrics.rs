//! The pages of a process for Prometheus and for probes: `/metrics`, `/livez` and `/readyz`, on a thread of their own.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread;

use clap::Args;
use tenure_core::{Code, Rejection};
use tenure_gateway::process_pages;
use tenure_gateway::server::{HttpServer, ServerError, ServerFiles, ServerLimits, ServerSettings};
use tenure_ports::supervise::guard;
use tenure_telemetry::Telemetry;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::answer::{Exit, Failure, output};
use crate::gateway::say_if_wrong;
use crate::runtime::one_thread;

/// How many connections there may be: scrapers and probes are few.
const CONNECTIONS_MAX: usize = 64;

/// Where a process serves its pages, and for whom.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct MetricsArgs {
    /// Address and port at which /metrics is served for Prometheus, with /livez and /readyz [default: none]
    #[arg(long, value_name = "ADDR", env = "TENURE_METRICS")]
    pub(crate) metrics: Option<SocketAddr>,

    /// File that says who may read /metrics (docs/http.md); without it only this machine is served
    #[arg(long, value_name = "FILE", env = "TENURE_METRICS_CALLERS")]
    pub(crate) metrics_callers: Option<PathBuf>,
}

/// Says whether a process does its work, and why not otherwise.
type ReadyCheck = Box<dyn Fn() -> Result<(), Rejection> + Send + Sync>;

/// Holds the function that says whether a process does its work, once the process has begun. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct ProcessReadiness(Arc<OnceLock<ReadyCheck>>);

impl ProcessReadiness {
    /// Notes that the process has begun, and the function that says whether it does its work.
    pub(crate) fn begin(&self, ready: impl Fn() -> Result<(), Rejection> + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(ready)); // It begins once.
    }

    fn now(&self) -> Result<(), Rejection> {
        let begins = || Err(Rejection::new(Code::Unavailable, "it has not begun its work yet"));
        self.0.get().map_or_else(begins, |ready| ready())
    }
}

/// Serves the pages of this process. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct MetricsHost {
    _stop: DropGuard,
}

impl MetricsHost {
    /// Listens, if the options or the variables of OpenTelemetry say so. A wrong option stops the process; a wrong
    /// variable does not.
    pub(crate) async fn start(
        args: &MetricsArgs,
        telemetry: Option<&Telemetry>,
        ready: &ProcessReadiness,
    ) -> Result<Option<Self>, Failure> {
        let Some(telemetry) = telemetry else { return Ok(None) };
        let Some(address) = telemetry.served_at() else { return Ok(None) };
        let settings = ServerSettings {
            tcp: vec![address],
            identities: args.metrics_callers.clone(),
            limits: ServerLimits {
                connections_max: CONNECTIONS_MAX,
                connections_of_one_max: CONNECTIONS_MAX,
                ..ServerLimits::default()
            },
            ..ServerSettings::default()
        };
        match Self::listen(settings, telemetry, ready.clone()).await {
            Ok(host) => Ok(Some(host)),
            Err(failure) if args.metrics.is_some() => Err(failure),
            Err(failure) => {
                output::warn(format_args!("metrics are not served: {}", failure.message));
                Ok(None)
            }
        }
    }

    async fn listen(
        settings: ServerSettings,
        telemetry: &Telemetry,
        ready: ProcessReadiness,
    ) -> Result<Self, Failure> {
        let stop = CancellationToken::new();
        let shutdown = stop.clone().cancelled_owned();
        let page = telemetry.metrics_page();
        let metrics = move |accepts: Option<&str>| {
            page.as_ref().map(|page| page.answer(accepts)).unwrap_or_default()
        };
        let (tell, told) = oneshot::channel();
        let serve = move || {
            let runtime = match one_thread() {
                Ok(runtime) => runtime,
                Err(failure) => return drop(tell.send(Err(failure))), // Who asked may have gone.
            };
            runtime.block_on(async {
                let has_file = settings.identities.is_some();
                let server = match HttpServer::bind(settings).await {
                    Ok(server) => server,
                    Err(error) => return drop(tell.send(Err(not_served(&error)))),
                };
                let _ = tell.send(Ok(server.addresses()));
                let routes = process_pages(move || ready.now(), metrics);
                let counters = tenure_gateway::Counters::default();
                let files = has_file.then(|| server.files());
                let serve = server.serve_routes(routes, counters, shutdown);
                tokio::select! {
                    () = guard("the pages of metrics", serve) => {}
                    never = read_again(files) => match never {},
                }
            });
        };
        let thread = thread::Builder::new().name("metrics".into()).spawn(serve);
        thread.map_err(Failure::cannot("start a thread"))?;
        let gone = |_| Failure::new(Exit::Unavailable, "the pages of metrics have not started");
        for address in told.await.map_err(gone)?? {
            output::say(format_args!("metrics are served at http://{address}/metrics"));
        }
        Ok(Self { _stop: stop.drop_guard() })
    }
}

/// Reads the file of callers again at each SIGHUP. Without one SIGHUP ends the process, unless that reads other files.
async fn read_again(files: Option<ServerFiles>) -> Infallible {
    let Some(files) = files else { return pending().await };
    match signal(SignalKind::hangup()) {
        Ok(mut again) => {
            while again.recv().await.is_some() {
                say_if_wrong("callers of metrics", files.reload().map_err(|it| not_served(&it)));
            }
        }
        Err(error) => {
            tracing::warn!(%error, "SIGHUP is not heard: callers of metrics are read once")
        }
    }
    pending().await
}

fn not_served(error: &ServerError) -> Failure {
    let (exit, help) = match error {
        ServerError::Open(_) | ServerError::Identity(_) => {
            (Exit::Usage, "--metrics-callers FILE names the file; docs/http.md says what is in it")
        }
        _ => (
            Exit::Unavailable,
            "another process may listen there: --metrics names another address, and port 0 is one that is free",
        ),
    };
    Failure::caused(exit, error).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_once_it_has_begun_and_says_so() {
        let ready = ProcessReadiness::default();
        assert_eq!(ready.now().unwrap_err().code, Code::Unavailable);
        ready.begin(|| Ok(()));
        assert!(ready.now().is_ok());
    }
}
