//! The DAG in the language of Graphviz. Ids need no escaping: they are of `a-z0-9-_` (ID-05).

use std::io::{self, Write};

use tenure_core::status::StepStatus;
use tenure_core::view::Graph;

use crate::answer::human;

pub(super) fn write(out: &mut dyn Write, graph: &Graph) -> io::Result<()> {
    writeln!(out, "digraph \"{}\" {{", graph.task_id)?;
    writeln!(out, "  rankdir=LR;")?;
    writeln!(out, "  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];")?;
    for node in &graph.nodes {
        let took = node.duration_ms.map(human::duration).unwrap_or_default();
        let said = format!("{} {took}", node.status);
        let border = if node.required { "" } else { ", style=\"rounded,filled,dashed\"" };
        writeln!(
            out,
            "  \"{}\" [label=\"{}\\n{}\", fillcolor=\"{}\"{border}];",
            node.step_id,
            node.step_id,
            said.trim_end(),
            colour(node.status)
        )?;
    }
    for edge in &graph.edges {
        let style = if edge.satisfied { "" } else { " [style=dashed]" };
        writeln!(out, "  \"{}\" -> \"{}\"{style};", edge.from, edge.to)?;
    }
    writeln!(out, "}}")
}

/// A background that black text is readable on.
pub(super) fn colour(status: StepStatus) -> &'static str {
    match status {
        StepStatus::Pending => "#f2f2f2",
        StepStatus::Ready => "#e6eefc",
        StepStatus::Claimed | StepStatus::Running => "#bfe3f7",
        StepStatus::Blocked => "#fdeab5",
        StepStatus::Completed => "#cdeccd",
        StepStatus::Failed => "#f7c6c5",
        StepStatus::Cancelled => "#dddddd",
    }
}
