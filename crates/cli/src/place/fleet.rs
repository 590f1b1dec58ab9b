//! Asks all nodes of a cluster at once.

use clap::Args;
use tenure_core::id::SessionId;
use tenure_sdk::nats::NatsClient;
use tenure_sdk::nats::client::Gather;
use tenure_wire::bus::operate::NodeFacts;

use super::any::AnyClient;
use super::cluster::LookArgs;
use crate::answer::{Exit, Failure, Format, output};
use crate::runtime::one_thread;

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
        ask: impl AsyncFnOnce(AnyClient) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let runtime = one_thread()?;
        runtime.block_on(async {
            let client = self.cluster.caller().await?.client(&self.session).await?;
            ask(client).await
        })
    }

    /// The same for what gateways do not offer.
    pub(crate) fn ask_nats<T>(
        &self,
        ask: impl AsyncFnOnce(NatsClient) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let runtime = one_thread()?;
        runtime.block_on(async {
            let client = self.cluster.caller().await?.nats(&self.session).await?;
            ask(client).await
        })
    }

    /// The answers of all nodes about themselves, and the exit code. Warns if something is left out.
    pub(crate) fn nodes(&self) -> Result<(Gather<NodeFacts>, Exit), Failure> {
        let heard = self.ask(async |client| Ok(client.nodes().await?))?;
        let exit = exit_without(&heard.missing_partitions);
        if heard.answers.iter().any(|node| node.more) {
            output::warn("there are more workers or pools than a node can name in an answer");
        }
        Ok((heard, exit))
    }
}

/// The message about partitions for which no node answers.
pub(crate) fn nobody_answers(partitions: &[impl ToString]) -> String {
    let partitions: Vec<String> = partitions.iter().map(ToString::to_string).collect();
    format!("nobody answers for partitions {}", partitions.join(", "))
}

/// The exit code of an answer without these partitions. Warns which they are: the answer may be incomplete.
pub(crate) fn exit_without(partitions: &[impl ToString]) -> Exit {
    if partitions.is_empty() {
        return Exit::Ok;
    }
    output::warn(format_args!("{}: there may be more; try again", nobody_answers(partitions)));
    Exit::Unavailable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_some_partitions_is_no_success() {
        assert_eq!(exit_without(&[] as &[u32]), Exit::Ok);
        assert_eq!(exit_without(&[0, 3]), Exit::Unavailable);
    }
}
