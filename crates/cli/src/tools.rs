//! The options of a worker that say which servers of tools its steps may call, and where its secrets are.

use std::path::PathBuf;

use clap::Args;
use tenure_core::Rejection;
use tenure_mcp::unquoted::read_toml;
use tenure_sdk::mcp::ToolServers;
use tenure_sdk::secrets::SecretSources;
use tenure_sdk::worker::Handlers;

use crate::answer::{Exit, Failure};
use crate::secrets::SecretArgs;

/// Which servers of tools may be called, and which secrets named.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ToolArgs {
    /// File with the servers of tools that steps may call over MCP, in TOML: a table [servers.NAME] for each
    #[arg(long, value_name = "FILE", env = "TENURE_MCP_SERVERS")]
    mcp_servers: Option<PathBuf>,

    #[command(flatten)]
    secrets: SecretArgs,
}

impl ToolArgs {
    /// The servers, if a file names some. Only then is there a handler that calls them.
    pub(crate) fn servers(&self) -> Result<Option<ToolServers>, Failure> {
        let Some(path) = &self.mcp_servers else { return Ok(None) };
        let text = std::fs::read_to_string(path)
            .map_err(Failure::cannot(format_args!("read {}", path.display())))?;
        let servers = read_toml(&text).map_err(|why| {
            let message = format!("{} is no file of servers: {why}", path.display());
            Failure::new(Exit::Usage, message)
                .help("a table [servers.NAME] for each, with command = [\"PROGRAM\", \"ARG\"] or url = \"URL\"")
        })?;
        let servers: ToolServers = servers;
        Ok(Some(servers.with_secrets(&self.secrets())))
    }

    /// Where the secrets are that steps and servers of tools may name.
    pub(crate) fn secrets(&self) -> SecretSources {
        self.secrets.sources()
    }

    /// The file, if there is one.
    pub(crate) fn file(&self) -> Option<&PathBuf> {
        self.mcp_servers.as_ref()
    }
}

/// Adds the handler that calls tools, if there are servers of them.
pub(crate) fn with_tools(
    handlers: Handlers,
    servers: Option<ToolServers>,
) -> Result<Handlers, Failure> {
    match servers {
        Some(servers) => Ok(handlers.with_mcp(servers).map_err(Rejection::from)?),
        None => Ok(handlers),
    }
}
