//! Asks all nodes of a cluster at once.

use clap::Args;
use tenure_core::id::SessionId;
use tenure_sdk::client::Client;
use tenure_sdk::nats::NatsClient;
use tenure_sdk::nats::client::Gather;
use tenure_wire::bus::operate::NodeFacts;

use super::cluster::LookArgs;
use crate::cli::answer::{Failure, Format, output};
use crate::cli::runtime::one_thread;

/// A cluster, and how to answer.
#[derive(Debug, Clone, Args)]
pub(crate) struct FleetArgs {
    #[command(flatten)]
    cluster: LookArgs,

    /// Session to ask in
    #[arg(long, value_name = "NAME", env = "TENURE_SESSION", default_value = "default")]
    pub(crate) session: SessionId,

    /// How to write the answer
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) output: Format,
}

impl FleetArgs {
    /// Connects to the named cluster, or to that of this machine, and asks it.
    pub(crate) fn ask<T>(
        &self,
        ask: impl AsyncFnOnce(Client<NatsClient>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let runtime = one_thread()?;
        runtime.block_on(async {
            let client = self.cluster.caller().await?.client(&self.session).await?;
            ask(client).await
        })
    }

    /// The answers of all nodes about themselves. Warns if something is left out.
    pub(crate) fn nodes(&self) -> Result<Gather<NodeFacts>, Failure> {
        let heard = self.ask(async |client| Ok(client.port().nodes().await?))?;
        warn_of_missing(&heard.missing_partitions);
        if heard.answers.iter().any(|node| node.more) {
            output::warn("there are more workers or pools than a node can name in an answer");
        }
        Ok(heard)
    }
}

/// The message about partitions for which no node answers.
pub(crate) fn nobody_answers(partitions: &[impl ToString]) -> String {
    let partitions: Vec<String> = partitions.iter().map(ToString::to_string).collect();
    format!("nobody answers for partitions {}", partitions.join(", "))
}

/// Warns which partitions have not answered: the output may be incomplete.
pub(crate) fn warn_of_missing(partitions: &[u32]) {
    if !partitions.is_empty() {
        output::warn(format_args!("{}: there may be more", nobody_answers(partitions)));
    }
}
