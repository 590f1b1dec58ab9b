//! The DAG in the language of Mermaid.

use std::collections::HashMap;
use std::io::{self, Write};

use tenure_core::id::StepId;
use tenure_core::status::StepStatus;
use tenure_core::view::Graph;

use super::dot::colour;
use crate::answer::{human, output};

/// Edges that Mermaid draws unless told otherwise (`maxEdges`).
const EDGES_MAX: usize = 500;

/// Warns if Mermaid will refuse the graph.
pub(super) fn warn_if_large(graph: &Graph) {
    if graph.edges.len() > EDGES_MAX {
        let edges = human::plural(graph.edges.len(), "edge");
        output::warn(format_args!("{edges}: Mermaid draws {EDGES_MAX}; --dot has no such limit"));
    }
}

pub(super) fn write(out: &mut dyn Write, graph: &Graph) -> io::Result<()> {
    // Mermaid has words of its own (`end`, `default`), so nodes go by number.
    let places: HashMap<&StepId, usize> =
        graph.nodes.iter().enumerate().map(|(at, node)| (&node.step_id, at)).collect();
    writeln!(out, "flowchart LR")?;
    for (at, node) in graph.nodes.iter().enumerate() {
        let took = node.duration_ms.map(|ms| format!("<br/>{}", human::duration(ms)));
        let took = took.unwrap_or_default();
        writeln!(out, "  s{at}[\"{}{took}\"]:::{}", node.step_id, node.status)?;
    }
    for edge in &graph.edges {
        if let (Some(from), Some(to)) = (places.get(&edge.from), places.get(&edge.to)) {
            let arrow = if edge.satisfied { "-->" } else { "-.->" };
            writeln!(out, "  s{from} {arrow} s{to}")?;
        }
    }
    for status in StepStatus::ALL {
        writeln!(out, "  classDef {status} fill:{},stroke:#666,color:#000", colour(*status))?;
    }
    Ok(())
}
