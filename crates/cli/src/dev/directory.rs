//! `tenure dev` on a directory: scheduler and worker in this process.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure_core::Rejection;
use tenure_core::id::{PoolId, SessionId, TaskId};
use tenure_core::view::View;
use tenure_embedded::{Embedded, LocalWorkers};
use tenure_gateway::server::ServerSettings;
use tenure_ports::journal::TaskKey;
use tenure_sdk::mcp::ToolServers;
use tenure_sdk::secrets::SecretSources;
use tenure_sdk::worker::{DelegationSettings, ExecSettings, Handlers, Options, StepContext};
use tenure_telemetry::Telemetry;

use super::DevArgs;
use crate::answer::{Exit, Failure, human, output};
use crate::gateway::HttpHost;
use crate::place::{files_of, open_here, socket_of};
use crate::runtime::{NO_CWD, StopSignals};
use crate::tools::with_tools;
use crate::worker::wind_down;

/// Runs until a signal stops it. Tasks that an earlier process left go on.
pub(super) async fn run(
    args: &DevArgs,
    telemetry: Option<&Telemetry>,
    stop: &mut StopSignals,
) -> Result<Exit, Failure> {
    // Absolute, because commands may run in other directories.
    let data = std::path::absolute(args.dir()).map_err(Failure::cannot(NO_CWD))?;
    let server = ServerSettings { unix: vec![socket_of(&data)], ..args.server()? };
    let (spoken, servers) = (args.http.spoken()?, args.tools.servers()?);
    let tenure = open_here(&data, telemetry).await?;
    let files = files_of(&data)?;
    let backend = tenure_embedded::backend(tenure.scheduler().clone(), files.clone());
    let http = HttpHost::start(backend, server, spoken, 1).await?;
    let workers = hire(
        &tenure,
        args.pool.clone(),
        args.concurrency(),
        (files, servers, args.tools.secrets()),
        telemetry,
    )?;
    if let Some(telemetry) = telemetry {
        telemetry.sample_worker_from(workers.sampler(args.pool.clone()));
    }
    let left = tenure.scheduler().resume_all().await?;
    args.greet(&http, &shown(args.dir()));
    if left > 0 {
        output::say(format_args!(
            "{} from before: on with it",
            human::plural(left, "unfinished task")
        ));
    }
    tokio::select! {
        stopped = http.until_stopped(stop) => stopped?,
        () = say_trouble(&tenure) => {} // It never ends.
    }
    wind_down(&workers, stop, Duration::from_secs(args.drain)).await;
    tokio::select! {
        () = http.stop() => {}
        () = stop.asked() => {}
    }
    drop(workers);
    tenure.scheduler().stop().await;
    Ok(Exit::Ok)
}

/// A worker that leaves Steps with other handlers to others, who may come over HTTP.
pub(crate) fn hire(
    tenure: &Embedded,
    pool: PoolId,
    concurrency: NonZeroUsize,
    (files, servers, secrets): (PathBuf, Option<ToolServers>, SecretSources),
    telemetry: Option<&Telemetry>,
) -> Result<LocalWorkers, Failure> {
    let scheduler = tenure.scheduler().clone();
    // STORE-17: a Task that was made from a file goes on where that was.
    let cwd = move |step: StepContext| {
        let scheduler = scheduler.clone();
        async move {
            let key = key_of(&step)?;
            let made_in = |task: &View<'_>| task.head().spec.cwd.clone();
            scheduler.read(&key, made_in).await.ok().flatten().map(String::from)
        }
    };
    let exec = ExecSettings { secrets: secrets.clone(), ..files.into() };
    let handlers = Handlers::new().with_builtins_where(cwd, exec).map_err(Rejection::from)?;
    let delegation = DelegationSettings { secrets, ..DelegationSettings::default() };
    let handlers = handlers.with_a2a(delegation).map_err(Rejection::from)?;
    let handlers = with_tools(handlers, servers)?;
    let observer = telemetry.map(Telemetry::worker_observer);
    let options = Options { observer, ..Options::new(concurrency) };
    Ok(tenure.work_beside_others(pool, handlers, options)?)
}

fn key_of(step: &StepContext) -> Option<TaskKey> {
    let session_id = SessionId::new(step.session_id()).ok()?;
    Some(TaskKey { session_id, task_id: TaskId::new(step.task_id()).ok()? })
}

/// Warns each time the log cannot be written. Callers are refused meanwhile, and nothing is lost.
async fn say_trouble(tenure: &Embedded) {
    let mut trouble = tenure.scheduler().trouble();
    loop {
        let why = trouble.borrow_and_update().clone();
        if let Some(why) = why {
            output::warn(format_args!("the log cannot be written: {why}"));
        }
        if trouble.changed().await.is_err() {
            return std::future::pending().await; // The scheduler has ended.
        }
    }
}

fn shown(dir: &Path) -> String {
    human::one_line(&dir.display().to_string())
}
