//! Tasks to hand in: every Step that runs leaves a line `<task>.<step>.<attempt>`.

use serde_json::{Value as Json, json};

use super::client::partition_of;

/// A line in the trace, before what follows.
pub const TRACE: &str = "echo $TENURE_TASK_ID.$TENURE_STEP_ID.$TENURE_ATTEMPT >> $TRACE";

/// A Step that leaves its line and then runs a line of shell.
pub fn exec(id: &str, parents: &[&str], then: &str) -> Json {
    step(id, parents, "exec", Some(&json!({"run": format!("{TRACE}; {then}")})))
}

/// A Step that waits.
pub fn sleep(id: &str, parents: &[&str], ms: u64) -> Json {
    step(id, parents, "sleep", Some(&json!({"ms": ms})))
}

/// A Step that does nothing.
pub fn noop(id: &str, parents: &[&str]) -> Json {
    step(id, parents, "noop", None)
}

fn step(id: &str, parents: &[&str], handler: &str, input: Option<&Json>) -> Json {
    let mut step = json!({
        "step_id": id, "title": id, "summary": id, "depends_on_step_ids": parents,
        "handler": handler,
    });
    if let Some(input) = input {
        step["input"] = json!({"data": input.to_string()});
    }
    step
}

/// A Task. Losing a worker is no fault of a Step, however often it happens.
pub fn task(id: &str, steps: &[Json]) -> Json {
    let backoff = json!({"initial_ms": 100, "factor": 1.0, "max_ms": 100, "jitter": 0.0});
    let retry = json!({"max_attempts": 3, "max_lost": "unlimited", "backoff": backoff});
    json!({"task_id": id, "title": id, "summary": id, "steps": steps, "retry_policy": retry})
}

/// An id that begins like this and lies in a partition.
pub fn id_in(partition: u32, partitions: u32, prefix: &str) -> String {
    let ids = (0..).map(|number| format!("{prefix}-{number}"));
    let mut ids = ids.filter(|id| partition_of(id, partitions) == partition);
    ids.next().unwrap_or_default()
}
