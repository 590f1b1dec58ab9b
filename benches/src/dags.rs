//! DAGs to measure with: every Step is a `noop`.

use anyhow::Result;
use smol_str::SmolStr;
use tenure_core::command::create::CreateTask;
use tenure_core::id::{HandlerName, StepId, TaskId};
use tenure_core::patch::StepInput;

/// A `noop` Step.
fn step(id: String, on: Vec<StepId>) -> Result<StepInput> {
    Ok(StepInput {
        assignee: None,
        claim_only_by: None,
        ext: None,
        depends_on_step_ids: on,
        handler: Some(HandlerName::new("noop")?),
        input: None,
        inputs_from: None,
        required: None,
        retry_policy: None,
        step_id: StepId::new(&id)?,
        summary: SmolStr::new(&id),
        title: SmolStr::new(&id),
        worker_pool_id: None,
    })
}

fn task(id: &str, steps: Vec<StepInput>) -> Result<CreateTask> {
    Ok(CreateTask {
        task_id: Some(TaskId::new(id)?),
        title: SmolStr::new(id),
        summary: SmolStr::new(id),
        steps,
        ..CreateTask::default()
    })
}

/// `n` independent Steps.
pub(crate) fn flat(id: &str, n: usize) -> Result<CreateTask> {
    let steps = (0..n).map(|i| step(format!("s{i}"), Vec::new())).collect::<Result<_>>()?;
    task(id, steps)
}

/// `n` Steps, each after the one before.
pub(crate) fn chain(id: &str, n: usize) -> Result<CreateTask> {
    let mut steps = Vec::new();
    for i in 0..n {
        let on = i.checked_sub(1).map(|j| StepId::new(format!("s{j}"))).transpose()?;
        steps.push(step(format!("s{i}"), on.into_iter().collect())?);
    }
    task(id, steps)
}

/// One Step, `n` after it, one after those.
pub(crate) fn fan(id: &str, n: usize) -> Result<CreateTask> {
    let root = StepId::new("root")?;
    let mut steps = vec![step("root".into(), Vec::new())?];
    for i in 0..n {
        steps.push(step(format!("s{i}"), vec![root.clone()])?);
    }
    let all = (0..n).map(|i| StepId::new(format!("s{i}"))).collect::<Result<_, _>>()?;
    steps.push(step("join".into(), all)?);
    task(id, steps)
}

/// `n` Steps with two edges each, as far as there are Steps before them.
pub(crate) fn woven(id: &str, n: usize) -> Result<CreateTask> {
    let mut steps = Vec::new();
    for i in 0..n {
        let before = [i.checked_sub(1), i.checked_sub(n / 2 + 1)];
        let on = before.into_iter().flatten().map(|j| StepId::new(format!("s{j}")));
        steps.push(step(format!("s{i}"), on.collect::<Result<_, _>>()?)?);
    }
    task(id, steps)
}
