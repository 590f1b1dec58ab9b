//! `tenure gateway`: a process that lets programs reach a cluster over HTTP.
//!
//! [`args`] has the options of the HTTP API and [`host`] runs it; `tenure serve`, `tenure dev` and
//! `tenure run` use both.

mod args;
mod grpc;
mod host;

use std::thread::available_parallelism;

use clap::Args;
use tenure_core::Rejection;
use tenure_core::id::SessionId;
use tenure_gateway::{Backend as _, NatsBackend};
use tenure_sdk::nats::NatsSettings;
use tenure_wire::bus::subject::Token;

pub(crate) use self::args::HttpArgs;
pub(crate) use self::grpc::{GrpcArgs, SpokenHere};
pub(crate) use self::host::{HttpHost, say_if_wrong};
use crate::answer::{Exit, Failure, output};
use crate::place::NatsArgs;
use crate::runtime::{StopSignals, one_thread, take_small_pages};
use crate::telemetry::LogArgs;

/// The failure of options that do not go together.
fn usage(message: &str) -> Failure {
    Failure::new(Exit::Usage, message)
}

/// Let programs reach a cluster over HTTP.
#[derive(Debug, Clone, Args)]
pub(crate) struct GatewayRunArgs {
    #[command(flatten)]
    nats: NatsArgs,

    #[command(flatten)]
    http: HttpArgs,

    /// As whom the gateway itself asks whether the cluster is there
    #[arg(long, value_name = "NAME", env = "TENURE_PRINCIPAL", default_value = GATEWAY)]
    name: Token,

    /// Session in which it asks that
    #[arg(long, value_name = "NAME", env = "TENURE_SESSION", default_value = "default")]
    session: SessionId,

    #[command(flatten)]
    pub(crate) log: LogArgs,
}

impl GatewayRunArgs {
    /// The name that the user gave this process, if any.
    pub(crate) fn given_name(&self) -> Option<String> {
        let name = self.name.to_string();
        (name != GATEWAY).then_some(name)
    }
}

/// As whom a gateway asks for itself, if nobody says it.
const GATEWAY: &str = "gateway";

/// The way to a cluster for a gateway that says nothing of itself.
pub(crate) fn cluster(settings: NatsSettings) -> Result<NatsBackend, Failure> {
    let name = Token::new(GATEWAY).map_err(Rejection::from)?;
    let session = SessionId::new("default").map_err(Rejection::from)?;
    Ok(NatsBackend::new(settings, name, session)?)
}

/// Runs a gateway until a signal stops it.
pub(crate) fn run(args: &GatewayRunArgs) -> Result<Exit, Failure> {
    let settings = args.nats.settings(&format!("tenure-{}", args.name));
    let backend = NatsBackend::new(settings, args.name.clone(), args.session.clone())?;
    let (server, spoken) = (args.http.settings()?, args.http.spoken()?);
    let threads = available_parallelism().map_or(1, usize::from);
    let runtime = one_thread()?;
    take_small_pages();
    let ended = runtime.block_on(async {
        let mut stop = StopSignals::listen()?;
        let http = HttpHost::start(backend.clone().erased(), server, spoken, threads).await?;
        let url = http.url().unwrap_or_default();
        output::say(format_args!("the gateway listens at {url}"));
        tokio::select! {
            stopped = http.until_stopped(&mut stop) => stopped?,
            () = say_if_unready(&backend) => {} // It never ends.
        }
        output::say("the gateway takes no more requests");
        tokio::select! {
            () = http.stop() => Ok(Exit::Ok),
            // A second signal ends the process at once.
            () = stop.asked() => Ok(Exit::Interrupted),
        }
    });
    runtime.shutdown_background(); // Do not wait for a DNS look-up that hangs.
    ended
}

/// Says at the beginning if the cluster does not answer. The gateway serves all the same, and requests wait for it.
async fn say_if_unready(backend: &NatsBackend) {
    if let Err(refused) = backend.ready().await {
        tracing::warn!(%refused, "the cluster does not answer yet");
    }
    std::future::pending().await
}
