//! `tenure task link` and `unlink`.

use clap::Args;
use tenure_core::Command;
use tenure_core::command::{Link, Unlink};
use tenure_core::id::{EdgeId, Ref};
use tenure_core::status::EdgeKind;

use crate::answer::{Exit, Failure};
use crate::filter::named;
use crate::order::OnTask;

/// Relate a task to another.
#[derive(Debug, Args)]
pub(crate) struct LinkArgs {
    #[command(flatten)]
    on: OnTask,

    /// How they are related
    #[arg(value_name = "KIND", value_parser = |name: &str| named(name, EdgeKind::ALL))]
    kind: EdgeKind,

    /// Id of the other task, or the address of something elsewhere
    #[arg(value_name = "TO")]
    to: Ref,

    /// Why, for people and for the log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Take a relation back.
#[derive(Debug, Args)]
pub(crate) struct UnlinkArgs {
    #[command(flatten)]
    on: OnTask,

    /// Id of the relation, as `task get` has it
    #[arg(value_name = "EDGE_ID")]
    edge: EdgeId,

    /// Why, for people and for the log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Relates a Task to another.
pub(crate) fn link(args: &LinkArgs) -> Result<Exit, Failure> {
    let link = Link { kind: args.kind, reason: args.reason.clone(), to: args.to.clone() };
    args.on.order(Command::LinkTasks(link), false)
}

/// Removes a relation.
pub(crate) fn unlink(args: &UnlinkArgs) -> Result<Exit, Failure> {
    let unlink = Unlink { edge_id: args.edge.clone(), reason: args.reason.clone() };
    args.on.order(Command::UnlinkTasks(unlink), false)
}
