//! The options of a worker that say to which agents it hands steps, and as whom.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use tenure_mcp::unquoted::read_toml;
use tenure_sdk::worker::DelegationSettings;

use crate::answer::{Exit, Failure};

/// Which agents steps may be handed to.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DelegationArgs {
    /// Hosts of agents to which steps may be handed, with commas between them; by default all
    #[arg(long, value_name = "HOSTS", env = "TENURE_A2A_HOSTS", value_delimiter = ',')]
    a2a_hosts: Vec<String>,

    /// File with the tokens for agents, in TOML: a line "HOST" = "TOKEN" for each host
    #[arg(long, value_name = "FILE", env = "TENURE_A2A_TOKENS")]
    a2a_tokens: Option<PathBuf>,

    /// The certificate of the authority that signed the agents' own, in PEM
    #[arg(long, value_name = "FILE", env = "TENURE_A2A_CA")]
    a2a_ca: Option<PathBuf>,
}

impl DelegationArgs {
    /// The settings of the handler.
    pub(crate) fn settings(&self) -> Result<DelegationSettings, Failure> {
        let tokens = self.a2a_tokens.as_deref().map(read_tokens).transpose()?;
        let hosts = (!self.a2a_hosts.is_empty()).then(|| self.a2a_hosts.clone());
        Ok(DelegationSettings {
            hosts,
            tokens: tokens.unwrap_or_default(),
            ca: self.a2a_ca.clone(),
            ..DelegationSettings::default()
        })
    }
}

/// Reads a file of tokens. Nothing of what stands in it is shown.
fn read_tokens(path: &Path) -> Result<BTreeMap<String, String>, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(Failure::cannot(format_args!("read {}", path.display())))?;
    let tokens: BTreeMap<String, String> = read_toml(&text).map_err(|why| {
        let message = format!("{} is no file of tokens: {why}", path.display());
        Failure::new(Exit::Usage, message).help("a line for each host: \"HOST\" = \"TOKEN\"")
    })?;
    Ok(tokens.into_iter().map(|(host, token)| (host.to_ascii_lowercase(), token)).collect())
}
