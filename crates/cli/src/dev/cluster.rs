//! `tenure dev --nats`: a gateway and a worker of a cluster in this process.

use tenure_gateway::Backend as _;
use tenure_telemetry::Telemetry;

use super::DevArgs;
use crate::answer::{Exit, Failure};
use crate::gateway::{self, HttpHost};
use crate::place::files_of;
use crate::runtime::StopSignals;
use crate::worker::{RunArgs, RunningWorker};

/// Runs until a signal stops it, or the worker is sent away.
pub(super) async fn run(
    args: &DevArgs,
    telemetry: Option<&Telemetry>,
    stop: &mut StopSignals,
) -> Result<Exit, Failure> {
    let backend = gateway::cluster(args.nats.settings("tenure-dev"))?;
    let (pool, files) = ((args.pool.clone(), args.concurrency()), files_of(args.dir())?);
    let worker =
        RunArgs::beside_gateway(args.nats.clone(), pool, (files, args.tools.clone()), args.drain)?;
    let (server, spoken) = (args.server()?, args.http.spoken()?);
    // Steps come as soon as there is a worker, and they would be lost if the process could not listen and ended.
    let http = HttpHost::start(backend.erased(), server, spoken, 1).await?;
    let worker = tokio::select! {
        begun = RunningWorker::begin(&worker, telemetry) => begun?,
        () = stop.asked() => return Ok(Exit::Interrupted),
    };
    args.greet(&http, "the cluster");
    let ended = tokio::select! {
        ended = worker.work(stop) => ended,
        failure = http.reads_again() => Err(failure),
    };
    tokio::select! {
        () = http.stop() => {}
        () = stop.asked() => {}
    }
    ended
}
