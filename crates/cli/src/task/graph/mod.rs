//! `tenure task graph`: draws the DAG of a Task.

mod dot;
mod layers;
mod mermaid;
mod text;

use clap::Args;
use tenure_core::view::{Graph, graph};

use crate::answer::output::stream;
use crate::answer::{Exit, Failure, Shape};
use crate::place::OfTask;

/// Draw a task.
#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    #[command(flatten)]
    of: OfTask,

    /// For Graphviz: tenure task graph TASK_ID --dot | dot -Tsvg
    #[arg(long, conflicts_with = "mermaid")]
    dot: bool,

    /// For Mermaid, as Markdown pages show it
    #[arg(long)]
    mermaid: bool,

    /// Every step, however many there are
    #[arg(long, conflicts_with_all = ["dot", "mermaid"])]
    full: bool,
}

pub(super) fn run(args: &GraphArgs) -> Result<Exit, Failure> {
    let (data, loaded) = args.of.load()?;
    let drawn = data.look(&loaded, graph);
    if args.dot {
        stream(|out| dot::write(out, &drawn))?;
    } else if args.mermaid {
        mermaid::warn_if_large(&drawn);
        stream(|out| mermaid::write(out, &drawn))?;
    } else {
        let shape = Shape::many("nodes", "step_id");
        args.of.look.output.answer(&drawn, shape, || print(&drawn, args.full))?;
    }
    Ok(Exit::Ok)
}

/// Draws the DAG for people; with `full`, every Step.
pub(crate) fn print(drawn: &Graph, full: bool) -> Result<(), Failure> {
    let layers = layers::Layers::of(drawn);
    stream(|out| text::write(out, drawn, &layers, full))
}
