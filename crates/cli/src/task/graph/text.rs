//! Draws the DAG as lines of text: a line per Step, layer by layer.
//!
//! A large graph is abbreviated to some screens: of each layer it shows first the Steps that run or
//! have trouble, and counts the rest.

use std::collections::BTreeMap;
use std::io::{self, Write};

use tenure_core::status::StepStatus;
use tenure_core::view::Graph;
use tenure_core::view::graph::GraphNode;

use super::layers::Layers;
use crate::answer::{Paint, Stream, Tone, human, output, status};

/// A graph of at most so many Steps is drawn in full.
const FULL_MAX: usize = 200;
/// Steps drawn of a layer of a larger one.
const LAYER_MAX: usize = 8;
/// Layers drawn of a larger one, from its start and from its end.
const FIRST_LAYERS: usize = 20;
const LAST_LAYERS: usize = 5;
/// Dependencies named on a line.
const NAMED_MAX: usize = 4;
/// Longest id that others are lined up with.
const WIDTH_MAX: usize = 40;

pub(super) fn write(
    out: &mut dyn Write,
    graph: &Graph,
    layers: &Layers,
    is_full: bool,
) -> io::Result<()> {
    let is_full = is_full || graph.nodes.len() <= FULL_MAX;
    let widths = graph.nodes.iter().map(|node| node.step_id.as_str().len());
    let width = widths.max().unwrap_or(0).min(WIDTH_MAX);
    let picture = Picture { graph, layers, paint: Paint::of(Stream::Stdout), is_full, width };
    picture.title(out)?;
    let count = layers.rows.len();
    let skipped = match is_full || count <= FIRST_LAYERS + LAST_LAYERS {
        true => 0..0,
        false => FIRST_LAYERS..count - LAST_LAYERS,
    };
    for at in (0..count).filter(|at| !skipped.contains(at)) {
        if at == skipped.end && !skipped.is_empty() {
            picture.skipped(out, skipped.clone())?;
        }
        picture.layer(out, at)?;
    }
    if !is_full {
        output::say("abbreviated; --full draws every step, --dot is for Graphviz");
    }
    Ok(())
}

struct Picture<'a> {
    graph: &'a Graph,
    layers: &'a Layers,
    paint: Paint,
    is_full: bool,
    /// Width of the ids.
    width: usize,
}

impl Picture<'_> {
    fn title(&self, out: &mut dyn Write) -> io::Result<()> {
        let graph = self.graph;
        let all: Vec<usize> = (0..graph.nodes.len()).collect();
        let title = human::cut(&human::one_line(&graph.title), 60);
        let id = self.paint.text(Tone::Strong, &graph.task_id);
        let status = self.paint.text(status::tone(graph.status), graph.status);
        write!(out, "{id}  {status}")?;
        if !title.is_empty() {
            write!(out, "  {title}")?;
        }
        let steps = human::plural(all.len(), "step");
        let layers = human::plural(self.layers.rows.len(), "layer");
        writeln!(out, "\n{steps} in {layers}: {}\n", self.tally(&all))
    }

    /// `3 ✔ completed, 1 ▶ running`.
    fn tally(&self, steps: &[usize]) -> String {
        let mut counts: BTreeMap<StepStatus, usize> = BTreeMap::new();
        for &at in steps {
            *counts.entry(self.graph.nodes[at].status).or_default() += 1;
        }
        let one = |(status, n): (StepStatus, usize)| {
            let mark = self.paint.text(status::step_tone(status), status::mark(status));
            format!("{} {mark} {status}", human::len(n))
        };
        counts.into_iter().map(one).collect::<Vec<_>>().join(", ")
    }

    fn skipped(&self, out: &mut dyn Write, layers: std::ops::Range<usize>) -> io::Result<()> {
        let steps: Vec<usize> = self.layers.rows[layers.clone()].concat();
        writeln!(
            out,
            "   …  layers {} to {}: {}",
            human::len(layers.start + 1),
            human::len(layers.end),
            self.tally(&steps)
        )
    }

    fn layer(&self, out: &mut dyn Write, at: usize) -> io::Result<()> {
        let row = &self.layers.rows[at];
        let mut shown = row.clone();
        if !self.is_full && row.len() > LAYER_MAX {
            shown.sort_by_key(|&at| urgency(self.graph.nodes[at].status));
        }
        let limit = if self.is_full { row.len() } else { LAYER_MAX };
        let rest = shown.split_off(limit.min(shown.len()));
        shown.sort_unstable();
        for (line, &step) in shown.iter().enumerate() {
            let number = if line == 0 { human::len(at + 1) } else { String::new() };
            write!(out, "{number:>4}  ")?;
            self.step(out, step)?;
        }
        if !rest.is_empty() {
            writeln!(out, "      … and {}", self.tally(&rest))?;
        }
        Ok(())
    }

    fn step(&self, out: &mut dyn Write, at: usize) -> io::Result<()> {
        let node = &self.graph.nodes[at];
        let mark = self.paint.text(status::step_tone(node.status), status::mark(node.status));
        let (id, width) = (node.step_id.as_str(), self.width);
        let took = node.duration_ms.map(human::duration).unwrap_or_default();
        let line = format!("{mark} {id:<width$}  {took:>8}{}{}", remarks(node), self.waits(at));
        writeln!(out, "{}", line.trim_end())
    }

    fn waits(&self, at: usize) -> String {
        let all = &self.layers.dependencies[at];
        if all.is_empty() {
            return String::new();
        }
        let id = |&at: &usize| self.graph.nodes[at].step_id.as_str();
        let named: Vec<&str> = all.iter().take(NAMED_MAX).map(id).collect();
        let rest = match all.len() - named.len() {
            0 => String::new(),
            rest => format!(" and {} more", human::len(rest)),
        };
        let arrow = format!("← {}{rest}", named.join(", "));
        format!("  {}", self.paint.text(Tone::Faint, arrow))
    }
}

/// The rest of a line, after mark and time.
fn remarks(node: &GraphNode) -> String {
    let mut out = String::new();
    if node.attempts > 1 {
        out.push_str(&format!("  ×{}", node.attempts));
    }
    if let Some(kind) = node.wait_kind {
        out.push_str(&format!("  waits for {kind}"));
    } else if let Some(code) = node.code.as_ref().filter(|_| node.status.is_settled()) {
        out.push_str(&format!("  {}", human::one_line(code.as_str())));
    }
    if !node.required {
        out.push_str("  optional");
    }
    out
}

/// The order in which Steps of an abbreviated layer are shown.
fn urgency(status: StepStatus) -> u8 {
    match status {
        StepStatus::Failed => 0,
        StepStatus::Blocked => 1,
        StepStatus::Running | StepStatus::Claimed => 2,
        StepStatus::Ready => 3,
        StepStatus::Pending | StepStatus::Completed | StepStatus::Cancelled => 4,
    }
}
