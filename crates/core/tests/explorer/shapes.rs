//! The Tasks from which the explorer starts.

use serde_json::{Value as Json, json};
use tenure_core::command::create::CreateTask;

/// A Task to start from, and its name for messages.
pub(crate) struct Shape {
    pub(crate) name: String,
    pub(crate) create: CreateTask,
}

/// The pool of every Step.
pub(crate) const POOL: &str = "pool";

/// How often a Step may fail, and how often it may be lost.
pub(crate) const TRIES_MAX: u32 = 2;

/// Which pairs of Steps may have an edge: a later Step waits for an earlier one.
const EDGES: [&[(usize, usize)]; 2] = [&[(0, 1)], &[(0, 1), (0, 2), (1, 2)]];

/// All DAGs of two and three Steps, with none, the last or all Steps optional, under each pair of policies.
pub(crate) fn all() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for (edges, count) in EDGES.iter().zip([2, 3]) {
        for drawn in 0..1_usize << edges.len() {
            for optional in [0, 1, count] {
                for dispatch in ["auto", "manual"] {
                    for completion in ["auto", "manual"] {
                        shapes.push(shape(edges, drawn, count, optional, dispatch, completion));
                    }
                }
            }
        }
    }
    shapes
}

fn shape(
    edges: &[(usize, usize)],
    drawn: usize,
    count: usize,
    optional: usize,
    dispatch: &str,
    completion: &str,
) -> Shape {
    let is_drawn = |at: usize| drawn >> at & 1 == 1;
    let step = |to: usize| {
        let on = edges.iter().enumerate().filter(|(at, edge)| is_drawn(*at) && edge.1 == to);
        let on: Vec<String> = on.map(|(_, edge)| step_id(edge.0)).collect();
        json!({"step_id": step_id(to), "title": "t", "depends_on_step_ids": on,
            "required": to + optional < count})
    };
    let steps: Vec<Json> = (0..count).map(step).collect();
    let optional_steps = match optional {
        0 => "no step optional",
        1 => "the last step optional",
        _ => "all steps optional",
    };
    let waits: Vec<String> = edges
        .iter()
        .enumerate()
        .filter(|(at, _)| is_drawn(*at))
        .map(|(_, (on, step))| format!("{} waits for {}", step_id(*step), step_id(*on)))
        .collect();
    let waits = if waits.is_empty() { "no edges".to_owned() } else { waits.join(", ") };
    let name = format!(
        "{count} steps, {waits}, {optional_steps}, dispatch {dispatch}, completion {completion}"
    );
    let create = json!({
        "task_id": "t", "title": "t", "steps": steps, "dispatch": dispatch, "completion": completion,
        "default_worker_pool_id": POOL,
        "retry_policy": {"max_attempts": TRIES_MAX, "max_lost": TRIES_MAX, "backoff": {"initial_ms": 10, "factor": 1.0,
            "max_ms": 10, "jitter": 0.0}},
    });
    Shape { name, create: serde_json::from_value(create).unwrap() }
}

/// The id of the Step at a position.
pub(crate) fn step_id(at: usize) -> String {
    format!("s{at}")
}
