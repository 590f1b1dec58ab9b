//! `tenure mcp`: MCP on the standard streams, for hosts that start their servers themselves.
//!
//! On a directory it is also the scheduler and a worker there, unless another process already is ([`directory`]). For
//! a cluster, or behind a gateway, it is one more client. Standard output carries the protocol and nothing else.

mod directory;

use std::io::IsTerminal as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use tenure_core::Rejection;
use tenure_core::id::{AgentId, PoolId};
use tenure_embedded::DEFAULT_POOL;
use tenure_mcp::rmcp::transport::io::stdio_pipes;
use tenure_mcp::{
    McpCaller, McpServer, McpSettings, OneCaller, RunServer, StreamsError, ToolFilter,
    run_tool_names, serve_run_streams, serve_streams, tool_names,
};
use tenure_sdk::worker::{RUN_SOCKET_ENV, RunToolsClient};
use tenure_telemetry::Telemetry;
use tokio_util::sync::CancellationToken;

use crate::agent::AgentsOnFile;
use crate::answer::{Exit, Failure, did_you_mean, output};
use crate::place::{AnyClient, PlaceArgs};
use crate::run::concurrency;
use crate::runtime::{StopSignals, one_thread};

/// The name under which the log has who acts, where nothing else says it.
const PRINCIPAL: &str = "mcp";

/// Serve MCP on the standard streams.
#[derive(Debug, Clone, Args)]
pub(crate) struct McpArgs {
    #[command(flatten)]
    at: PlaceArgs,

    /// Socket of the worker for whose step this runs: then there are the tools of a worker, and where tasks are does
    /// not matter
    #[arg(long, value_name = "PATH", env = RUN_SOCKET_ENV)]
    run_socket: Option<PathBuf>,

    /// Tools to offer: `read-only`, or names separated by commas [default: all]
    #[arg(long, value_name = "TOOLS", env = "TENURE_MCP_ALLOW", value_parser = allowed)]
    allow: Option<ToolFilter>,

    /// File of agents, whose tools are offered too (docs/mcp.md)
    #[arg(long, value_name = "FILE", env = "TENURE_AGENTS")]
    agents: Option<PathBuf>,

    /// Pool whose steps are run here, if this process runs the directory
    #[arg(long, value_name = "POOL", env = "TENURE_POOL", default_value = DEFAULT_POOL)]
    pool: PoolId,

    /// Steps that then run at a time [default: two per processor, at least 4]
    #[arg(long, short = 'j', value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    workers: Option<u16>,
}

/// Reads which tools there are to be.
fn allowed(text: &str) -> Result<ToolFilter, String> {
    match text {
        "all" => return Ok(ToolFilter::All),
        "read-only" => return Ok(ToolFilter::ReadOnly),
        _ => {}
    }
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    let known = || tool_names().chain(run_tool_names());
    match names.iter().find(|name| !known().any(|known| known == name.as_str())) {
        None => Ok(ToolFilter::Only(names)),
        Some(wrong) => {
            let meant = did_you_mean(wrong, known().chain(["read-only"]));
            Err(format!(
                "there is no tool `{wrong}`; {}",
                meant.unwrap_or_else(|| "docs/mcp.md lists them".into())
            ))
        }
    }
}

/// Serves until the input ends or a signal stops it.
pub(crate) fn run(args: &McpArgs, telemetry: Option<&Telemetry>) -> Result<Exit, Failure> {
    let runtime = one_thread()?;
    let ended = runtime.block_on(async {
        let mut stop = StopSignals::listen()?;
        if let Some(socket) = &args.run_socket {
            return under_run(args, socket, &mut stop).await;
        }
        match args.at.is_cluster() {
            true => cluster(args, &mut stop).await,
            false => directory::run(args, telemetry, &mut stop).await,
        }
    });
    runtime.shutdown_background(); // A read of standard input may not end.
    ended
}

/// Serves the command of a Step: asks its worker and nobody else, whatever else the options name.
async fn under_run(args: &McpArgs, socket: &Path, stop: &mut StopSignals) -> Result<Exit, Failure> {
    let tools = args.allow.clone().unwrap_or_default();
    let server = RunServer::new(RunToolsClient::new(socket), tools);
    let (input, output) = stdio_pipes();
    let token = CancellationToken::new();
    let serving = serve_run_streams(server, input, output, &token);
    until_stopped(serving, &token, stop).await
}

/// As a client of a cluster.
async fn cluster(args: &McpArgs, stop: &mut StopSignals) -> Result<Exit, Failure> {
    let client = tokio::select! {
        client = async { args.at.cluster.caller().await?.client(&args.at.session).await } => client?,
        () = stop.asked() => return Ok(Exit::Interrupted),
    };
    args.serve(client, stop).await
}

impl McpArgs {
    fn concurrency(&self) -> NonZeroUsize {
        NonZeroUsize::new(concurrency(self.workers)).unwrap_or(NonZeroUsize::MIN)
    }

    /// Serves the standard streams.
    async fn serve(&self, client: AnyClient, stop: &mut StopSignals) -> Result<Exit, Failure> {
        let agent = AgentId::new(PRINCIPAL).map_err(Rejection::from)?;
        let client = client.erased();
        let caller = McpCaller { client, agent, role: self.at.cluster.role() };
        let tools = self.allow.clone().unwrap_or_default();
        let offers = AgentsOnFile::read(self.agents.clone())?.offers();
        let settings = McpSettings { tools, offers, ..McpSettings::default() };
        let server = McpServer::new(OneCaller(caller), Arc::new(settings));
        if std::io::stdin().is_terminal() {
            output::say(
                "MCP on the standard streams: a host of models starts this (docs/mcp.md); Ctrl-C ends it",
            );
        }
        let (input, output) = stdio_pipes();
        let token = CancellationToken::new();
        let serving = serve_streams(server, input, output, &token);
        until_stopped(serving, &token, stop).await
    }
}

/// Serves until the input ends, or a signal stops it.
async fn until_stopped(
    serving: impl Future<Output = Result<(), StreamsError>>,
    token: &CancellationToken,
    stop: &mut StopSignals,
) -> Result<Exit, Failure> {
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        served = &mut serving => served.map(|()| Exit::Ok).map_err(|error| Failure::caused(Exit::Usage, &error)),
        () = stop.asked() => {
            token.cancel();
            let _ = serving.await; // The answers that are there are written first.
            Ok(Exit::Interrupted)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tools_to_offer_are_named_or_all_that_only_read() {
        assert_eq!(allowed("read-only"), Ok(ToolFilter::ReadOnly));
        assert_eq!(allowed("all"), Ok(ToolFilter::All));
        let both = vec!["wait".to_owned(), "board".to_owned()];
        assert_eq!(allowed("wait, board"), Ok(ToolFilter::Only(both)));
        assert!(allowed("task_creat").unwrap_err().contains("task_create"));
        assert!(allowed("").is_err());
    }
}
