//! `tenure serve`: runs a scheduler node of a cluster until a signal stops it.

mod http;
mod settings;

use futures::future::OptionFuture;
use tenure_node::{Fault, Node, StartError};
use tenure_telemetry::Telemetry;

use self::http::GatewayOfNode;
pub(crate) use self::settings::{ExposedSettings, NodeArgs, ServeArgs};
use crate::answer::{Exit, Failure, output};
use crate::gateway::HttpHost;
use crate::metrics::{MetricsHost, ProcessReadiness};
use crate::runtime::{StopSignals, one_thread, take_small_pages};

/// Runs a node.
///
/// It uses a runtime of one thread: requests that wait meanwhile gather and then go together, which
/// more threads would undo. Ownership has a thread of its own.
pub(crate) fn run(args: ServeArgs, telemetry: Option<&Telemetry>) -> Result<Exit, Failure> {
    take_small_pages();
    let http = args.node.http()?;
    let metrics = args.node.metrics();
    let mut settings = args.node.into_settings()?;
    let http = http.map(|http| http.of(&settings));
    settings.scheduler.observer = telemetry.map(Telemetry::observer);
    let runtime = one_thread()?;
    let ended = runtime.block_on(async {
        let mut stop = StopSignals::listen()?;
        let ready = ProcessReadiness::default();
        let _pages = MetricsHost::start(&metrics, telemetry, &ready).await?;
        let node = tokio::select! {
            started = Node::start(settings) => started.map_err(not_started)?,
            () = stop.asked() => return Ok(Exit::Interrupted),
        };
        if let Some(telemetry) = telemetry {
            telemetry.sample_from(node.sampler());
        }
        ready.begin(node.readiness());
        let served = serve(&node, http, &mut stop).await;
        output::say(format_args!("node {} hands its partitions over", node.name()));
        let (http, exit) = match served {
            Ok(http) => (http, Ok(Exit::Ok)),
            Err(failure) => (None, Err(failure)),
        };
        // Callers over HTTP are answered by the nodes that take over.
        let handed_over =
            async { tokio::join!(node.stop(), OptionFuture::from(http.map(HttpHost::stop))) };
        tokio::select! {
            _ = handed_over => exit,
            // A second signal ends the process at once: leases run out by themselves.
            () = stop.asked() => Ok(Exit::Interrupted),
        }
    });
    runtime.shutdown_background(); // Do not wait for a DNS look-up that hangs.
    ended
}

/// Serves until a signal asks to stop. Answers with the HTTP API, if the node has one.
async fn serve(
    node: &Node,
    http: Option<GatewayOfNode>,
    stop: &mut StopSignals,
) -> Result<Option<HttpHost>, Failure> {
    let http = match http {
        Some(http) => Some(http.start().await?),
        None => None,
    };
    if let Some(url) = http.as_ref().and_then(HttpHost::url) {
        output::say(format_args!("node {} listens at {url} too", node.name()));
    }
    output::say(format_args!("node {} serves", node.name()));
    match &http {
        Some(http) => http.until_stopped(stop).await?,
        None => stop.asked().await,
    }
    Ok(http)
}

fn not_started(error: StartError) -> Failure {
    let exit = match &error {
        StartError::Nats { fault: Fault::Denied, .. } => Exit::NotAllowed,
        StartError::Nats { fault: Fault::Settings, .. } => Exit::Usage,
        error if error.is_of_another_cluster() => Exit::Conflict,
        _ => Exit::Unavailable,
    };
    let help = error.advice();
    Failure::caused(exit, &error).help(help)
}
