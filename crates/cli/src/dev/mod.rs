//! `tenure dev`: one command for a scheduler, a worker and the HTTP API, to try things out and to develop.
//!
//! It needs no server: the scheduler is on a directory ([`directory`]). With `--nats` the gateway and the worker
//! are those of a cluster ([`cluster`]).

mod cluster;
mod directory;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::Args;
use tenure_core::id::PoolId;
use tenure_embedded::DEFAULT_POOL;
use tenure_gateway::server::{ServerLimits, ServerSettings};
use tenure_telemetry::Telemetry;

pub(crate) use self::directory::hire;
use crate::answer::{Exit, Failure, output};
use crate::gateway::{HttpArgs, HttpHost};
use crate::place::{NatsArgs, is_of_environment};
use crate::run::concurrency;
use crate::runtime::{StopSignals, one_thread};
use crate::tools::ToolArgs;

/// Run a scheduler, a worker and the HTTP API.
#[derive(Debug, Clone, Args)]
pub(crate) struct DevArgs {
    /// Directory that keeps the tasks [default: .tenure, unless --nats names a cluster]
    #[arg(long, value_name = "DIR", env = "TENURE_DATA")]
    data: Option<PathBuf>,

    #[command(flatten)]
    nats: NatsArgs,

    #[command(flatten)]
    http: HttpArgs,

    /// Pool whose steps are run here
    #[arg(long, value_name = "POOL", env = "TENURE_POOL", default_value = DEFAULT_POOL)]
    pool: PoolId,

    #[command(flatten)]
    tools: ToolArgs,

    /// Steps that run at a time [default: two per processor, at least 4]
    #[arg(long, short = 'j', value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    workers: Option<u16>,

    /// When told to stop: how many seconds steps may go on before they are asked to stop too
    #[arg(long, value_name = "SECONDS", env = "TENURE_DRAIN", default_value = "5")]
    drain: u64,
}

/// The most connections. So few need no more files than processes may open by default: commands of Steps inherit
/// the limit of this process, and some work badly with a high one.
const CONNECTIONS_MAX: usize = 256;

/// Runs all of it until a signal stops it. It uses a runtime of one thread, because Steps are other processes or
/// wait; the HTTP API has another.
pub(crate) fn run(args: &DevArgs, telemetry: Option<&Telemetry>) -> Result<Exit, Failure> {
    let runtime = one_thread()?;
    let ended = runtime.block_on(async {
        let mut stop = StopSignals::listen()?;
        match args.is_cluster() {
            true => cluster::run(args, telemetry, &mut stop).await,
            false => directory::run(args, telemetry, &mut stop).await,
        }
    });
    runtime.shutdown_background(); // Do not wait for a DNS look-up that hangs.
    ended
}

impl DevArgs {
    /// Whether to use a cluster and no directory. What is typed goes before what the environment says.
    fn is_cluster(&self) -> bool {
        match &self.data {
            Some(data) => is_of_environment(data) && self.nats.is_typed(),
            None => self.nats.is_given(),
        }
    }

    /// The directory; of a cluster, the one in which commands leave what they print.
    fn dir(&self) -> &Path {
        self.data.as_deref().unwrap_or(Path::new(".tenure"))
    }

    fn concurrency(&self) -> NonZeroUsize {
        NonZeroUsize::new(concurrency(self.workers)).unwrap_or(NonZeroUsize::MIN)
    }

    /// The settings of the server.
    fn server(&self) -> Result<ServerSettings, Failure> {
        let limits = ServerLimits { connections_max: CONNECTIONS_MAX, ..ServerLimits::default() };
        Ok(ServerSettings { limits, ..self.http.settings()? })
    }

    /// Says where it is, and what to type next.
    fn greet(&self, http: &HttpHost, place: &str) {
        let url = http.url().unwrap_or_default();
        let (pool, most) = (&self.pool, self.concurrency());
        output::say(format_args!(
            "HTTP API at {url}, tasks in {place}; pool {pool}, {most} steps at a time"
        ));
        let token = match self.http.http_callers {
            Some(_) => " -H \"Authorization: Bearer $TENURE_TOKEN\"",
            None => "",
        };
        output::say(format_args!("in another terminal, make a task, watch it, and list all:\n"));
        for line in next_commands(&url, token) {
            output::say(format_args!("  {line}"));
        }
        output::say("");
    }
}

/// Three commands with which to begin.
fn next_commands(url: &str, token: &str) -> [String; 3] {
    let step = r#"{"step_id": "greet", "title": "Greet", "handler": "exec", "input": {"data": {"run": "echo hello"}}}"#;
    let task = format!(r#"{{"task_id": "hello", "title": "Say hello", "steps": [{step}]}}"#);
    let tasks = format!("{url}/v1/sessions/default/tasks");
    [
        format!("curl -sS{token} {tasks} --json '{task}'"),
        format!("curl -sSN{token} -H 'Accept: text/event-stream' {tasks}/hello/events"),
        format!("tenure task list --all --http {url}"),
    ]
}
