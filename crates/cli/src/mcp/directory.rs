//! `tenure mcp` on a directory. Several hosts may start it on the same one: the first runs the Tasks there, and all
//! of them reach it on the socket in the directory. When it leaves, another takes over.

use std::path::Path;
use std::time::Duration;

use tenure_embedded::{Embedded, LocalWorkers};
use tenure_gateway::server::{ServerLimits, ServerSettings};
use tenure_sdk::secrets::SecretSources;
use tenure_telemetry::Telemetry;
use tokio::time::sleep;

use super::McpArgs;
use crate::answer::{Exit, Failure};
use crate::dev::hire;
use crate::gateway::{HttpHost, SpokenHere};
use crate::place::{Host, files_of, open_here, socket_of, soon_at_work};
use crate::runtime::{NO_CWD, StopSignals};
use crate::worker::wind_down;

/// The most connections to the socket: other commands, and other hosts.
const CONNECTIONS_MAX: usize = 64;

/// How long a process that ends waits for the last answers on the socket.
const LAST_ANSWERS: Duration = Duration::from_millis(200);

/// How often to look whether the process at work has left.
const LOOK: Duration = Duration::from_millis(500);

/// What runs the Tasks of the directory in this process.
struct RunningDirectory {
    tenure: Embedded,
    workers: LocalWorkers,
    socket: HttpHost,
}

impl RunningDirectory {
    /// Begins to run the Tasks; those that an earlier process left go on.
    async fn begin(
        data: &Path,
        args: &McpArgs,
        telemetry: Option<&Telemetry>,
    ) -> Result<Self, Failure> {
        let tenure = open_here(data, telemetry).await?;
        let files = files_of(data)?;
        let backend = tenure_embedded::backend(tenure.scheduler().clone(), files.clone());
        let limits = ServerLimits {
            connections_max: CONNECTIONS_MAX,
            grace: LAST_ANSWERS,
            ..ServerLimits::default()
        };
        let settings =
            ServerSettings { unix: vec![socket_of(data)], limits, ..ServerSettings::default() };
        let socket = HttpHost::start(backend, settings, SpokenHere::default(), 1).await?;
        let workers = hire(
            &tenure,
            args.pool.clone(),
            args.concurrency(),
            (files, None, SecretSources::default()),
            telemetry,
        )?;
        tenure.scheduler().resume_all().await?;
        Ok(Self { tenure, workers, socket })
    }

    /// Ends it. Steps that run are asked to stop and given back: they go on when a process runs the directory again.
    async fn end(self, stop: &mut StopSignals) {
        if self.workers.in_hand() > 0 {
            wind_down(&self.workers, stop, Duration::ZERO).await;
        }
        self.socket.stop().await;
        drop(self.workers);
        self.tenure.scheduler().stop().await;
    }
}

/// Serves until the input ends or a signal stops it.
pub(super) async fn run(
    args: &McpArgs,
    telemetry: Option<&Telemetry>,
    stop: &mut StopSignals,
) -> Result<Exit, Failure> {
    // Absolute, because commands may run in other directories.
    let data = std::path::absolute(args.at.dir()).map_err(Failure::cannot(NO_CWD))?;
    let mut running = None;
    let session = &args.at.session;
    let client = match RunningDirectory::begin(&data, args, telemetry).await {
        Ok(begun) => {
            running = Some(begun);
            soon_at_work(&data, session).await
        }
        Err(failure) => match soon_at_work(&data, session).await {
            Some(client) => Some(client),
            None => return Err(failure),
        },
    };
    let Some(client) = client else {
        let message = format!("the socket in {} does not answer", data.display());
        return Err(Failure::new(Exit::Unavailable, message));
    };
    let served = {
        let take_over = take_over(&data, args, telemetry, &mut running);
        tokio::select! {
            served = args.serve(client, stop) => served,
            () = take_over => Ok(Exit::Ok), // It never ends.
        }
    };
    if let Some(running) = running {
        running.end(stop).await;
    }
    served
}

/// Runs the Tasks here once no other process does.
async fn take_over(
    data: &Path,
    args: &McpArgs,
    telemetry: Option<&Telemetry>,
    running: &mut Option<RunningDirectory>,
) {
    let mut is_told = false;
    while running.is_none() {
        sleep(LOOK).await;
        if Host::of(data) != Host::Nobody {
            continue;
        }
        match RunningDirectory::begin(data, args, telemetry).await {
            Ok(begun) => *running = Some(begun),
            // Another process may have been faster. If there is none, nobody runs the Tasks.
            Err(failure) if is_told || Host::of(data) != Host::Nobody => {
                tracing::debug!(why = failure.message, "the directory is not taken over");
            }
            Err(failure) => {
                is_told = true;
                tracing::warn!(why = failure.message, "the directory cannot be taken over now");
            }
        }
    }
    std::future::pending().await
}
