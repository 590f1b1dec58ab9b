//! `tenure worker drain`: asks workers to leave.

use clap::Args;
use serde::Serialize;
use smol_str::SmolStr;
use tenure_core::id::{AgentId, PoolId};
use tenure_wire::bus::V;
use tenure_wire::bus::operate::{Drain, Drained};
use tenure_wire::bus::subject::Token;

use crate::cli::answer::{Exit, Failure, Shape, output};
use crate::cli::place::{FleetArgs, exit_without};

/// Tell workers to leave.
#[derive(Debug, Clone, Args)]
pub(crate) struct DrainArgs {
    /// The worker's name, as PRINCIPAL (all that run under it) or PRINCIPAL.BOOT (one process)
    #[arg(value_name = "WORKER", required_unless_present = "pool")]
    worker: Option<String>,

    /// Every worker of this pool
    #[arg(long, value_name = "POOL")]
    pool: Option<PoolId>,

    #[command(flatten)]
    fleet: FleetArgs,
}

#[derive(Serialize)]
struct DrainAnswer {
    workers: Vec<AgentId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_partitions: Vec<u32>,
}

pub(super) fn run(args: &DrainArgs) -> Result<Exit, Failure> {
    let (principal, boot) = match &args.worker {
        Some(name) => {
            let (principal, boot) = match name.split_once('.') {
                Some((principal, boot)) => (principal, Some(boot)),
                None => (name.as_str(), None),
            };
            let token = |text: &str| Token::new(text).map_err(tenure_core::Rejection::from);
            let boot = boot.map(token).transpose()?;
            (Some(token(principal)?), boot)
        }
        None => (None, None),
    };
    let name = |token: Token| SmolStr::new(token.as_str());
    let (principal, boot) = (principal.map(name), boot.map(name));
    let which = Drain { v: V, pool: args.pool.clone(), principal, boot };
    let heard = args.fleet.ask(async |client| Ok(client.port().drain(&which).await?))?;
    let exit = exit_without(&heard.missing_partitions);
    let mut workers: Vec<AgentId> =
        heard.answers.into_iter().flat_map(|node: Drained| node.workers).collect();
    workers.sort_unstable();
    workers.dedup();
    if workers.is_empty() && exit == Exit::Ok {
        return Err(Failure::new(Exit::NotFound, "there is no such worker")
            .help("`tenure worker list` shows those that there are"));
    }
    let told = DrainAnswer { workers, missing_partitions: heard.missing_partitions };
    args.fleet.output.answer(&told, Shape::many("workers", "worker_id"), || {
        told.workers.iter().try_for_each(|worker| {
            output::print(format_args!("{worker} takes no more, and leaves when it is done\n"))
        })
    })?;
    Ok(exit)
}
