//! Task files drawn at random.

use serde_json::{Value, json};

use crate::random::Random;

/// What the Steps of a drawn file do, in percent; the rest does nothing.
#[derive(Debug, Clone, Copy)]
pub struct Mix {
    /// Steps that wait a moment.
    pub sleep: u64,
    /// Steps that run a command.
    pub exec: u64,
}

/// A task file in JSON of so many Steps. Each depends on up to three of the twenty before it, so
/// that there are chains and fan-outs of every kind.
///
/// Commands append a line to the file `$TRACE`, which thus tells how often each really ran.
pub fn draw(random: &mut Random, task_id: &str, steps: usize, mix: Mix) -> Value {
    let steps: Vec<Value> = (0..steps).map(|at| step(random, at, mix)).collect();
    // Being killed is no fault of a Step.
    let retry = json!({ "max_attempts": 3, "max_lost": null });
    json!({ "task_id": task_id, "defaults": { "retry": retry }, "steps": steps })
}

fn step(random: &mut Random, at: usize, mix: Mix) -> Value {
    let mut step = json!({ "id": id(at), "depends_on": parents(random, at) });
    let dice = random.below(100);
    if dice < mix.exec {
        step["run"] = json!("echo $TENURE_STEP_ID.$TENURE_ATTEMPT >> $TRACE");
    } else if dice < mix.exec + mix.sleep {
        step["sleep"] = json!(format!("{}ms", 1 + random.below(20)));
    } else {
        step["noop"] = json!(true);
    }
    step
}

#[allow(clippy::cast_possible_truncation)] // Below twenty.
fn parents(random: &mut Random, at: usize) -> Vec<String> {
    let nearest = at.saturating_sub(20);
    let mut parents: Vec<usize> = (0..random.below(4))
        .filter(|_| at > 0)
        .map(|_| nearest + random.below((at - nearest) as u64) as usize)
        .collect();
    parents.sort_unstable();
    parents.dedup();
    parents.into_iter().map(id).collect()
}

fn id(at: usize) -> String {
    format!("s{at:05}")
}
