//! Builders for the Tasks and Steps that a program creates.

use std::sync::Arc;

use serde::Serialize;
use tenure_core::Rejection;
use tenure_core::command::create::CreateTask;
use tenure_core::id::{BadId, HandlerName, PoolId, SessionId, StepId, TaskId};
use tenure_core::patch::StepInput;
use tenure_core::record::{RetryPolicy, Value};
use uuid::Uuid;

/// A Task to create. A malformed id is an error when the Task is created, not before.
#[derive(Debug, Clone)]
pub struct Task {
    input: CreateTask,
    bad: Option<Rejection>,
}

impl Task {
    /// A Task without Steps.
    pub fn new(title: &str) -> Self {
        let input = CreateTask { title: title.into(), ..CreateTask::default() };
        Self { input, bad: None }
    }

    /// Its id in the session. Without one, the client makes the id from the key, or a new UUID.
    #[must_use]
    pub fn id(mut self, id: &str) -> Self {
        self.input.task_id = taken(&mut self.bad, TaskId::new(id));
        self
    }

    /// A short description, for people.
    #[must_use]
    pub fn summary(mut self, summary: &str) -> Self {
        self.input.summary = summary.into();
        self
    }

    /// The goal of the Task.
    #[must_use]
    pub fn objective(mut self, objective: &str) -> Self {
        self.input.objective = Some(objective.into());
        self
    }

    /// The pool of Steps that name none.
    #[must_use]
    pub fn pool(mut self, pool: &str) -> Self {
        self.input.default_worker_pool_id = taken(&mut self.bad, PoolId::new(pool));
        self
    }

    /// The priority: a Task goes before Tasks with a lower one.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.input.priority = Some(priority);
        self
    }

    /// The retry policy of its Steps.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.input.retry_policy = Some(Arc::new(policy));
        self
    }

    /// The parent: the Task that makes this one.
    #[must_use]
    pub fn parent(mut self, parent: &TaskId) -> Self {
        self.input.parent_task_id = Some(parent.clone());
        self
    }

    /// A label, by which listings find it (LABEL-01).
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.input.labels.insert(key.into(), value.into());
        self
    }

    /// The idempotency key: a repetition with the same key and content gets the first Task as its answer,
    /// whoever sends it (IDEM-03). The key makes the id, so the Task has no other.
    #[must_use]
    pub fn idempotency_key(mut self, key: &str) -> Self {
        self.input.idempotency_key = Some(key.into());
        self
    }

    /// Creates the Task as an agent's tool does: with manual dispatch and completion by default.
    /// Its orchestrator gives its Steps to workers with [`dispatch`](super::Client::dispatch), and
    /// ends it (POL-01).
    #[must_use]
    pub fn by_agent(mut self) -> Self {
        self.input = self.input.by_agent();
        self
    }

    /// Makes it a draft, which waits until it is submitted.
    #[must_use]
    pub fn draft(mut self) -> Self {
        self.input.draft = Some(true);
        self
    }

    /// Adds a Step.
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        match step.build() {
            Ok(step) => self.input.steps.push(step),
            Err(bad) => self.bad = self.bad.or(Some(bad)),
        }
        self
    }

    /// Adds Steps.
    #[must_use]
    pub fn steps(self, steps: impl IntoIterator<Item = Step>) -> Self {
        steps.into_iter().fold(self, Self::step)
    }

    /// Changes fields that have no method here.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut CreateTask)) -> Self {
        change(&mut self.input);
        self
    }

    /// The input of the command in a session, its id included.
    ///
    /// # Errors
    /// The first malformed id.
    pub fn build(self, session: &SessionId) -> Result<CreateTask, Rejection> {
        match self.bad {
            Some(bad) => Err(bad),
            None => named(self.input, session),
        }
    }
}

/// Gives the input an id, as the scheduler never makes one (U15): from its key, if it has one.
pub(super) fn named(mut input: CreateTask, session: &SessionId) -> Result<CreateTask, Rejection> {
    if input.task_id.is_none() {
        input.task_id = Some(match &input.idempotency_key {
            Some(key) => TaskId::of_key(session, key),
            None => TaskId::new(Uuid::now_v7().to_string())?,
        });
    }
    Ok(input)
}

/// A Step of a Task to create.
#[derive(Debug, Clone)]
pub struct Step(Result<StepInput, Rejection>);

impl Step {
    /// A Step with an id that is unique in its Task, and is its title too.
    pub fn new(id: &str) -> Self {
        let step = StepId::new(id).map(StepInput::bare);
        Self(step.map_err(Rejection::from))
    }

    /// For people.
    #[must_use]
    pub fn title(self, title: &str) -> Self {
        self.with(|step| step.title = title.into())
    }

    /// For people.
    #[must_use]
    pub fn summary(self, summary: &str) -> Self {
        self.with(|step| step.summary = summary.into())
    }

    /// Adds a dependency: the Step begins when that one is completed.
    #[must_use]
    pub fn after(self, step: &str) -> Self {
        self.try_with(|input| {
            input.depends_on_step_ids.push(StepId::new(step)?);
            Ok(())
        })
    }

    /// Adds dependencies: the Step begins when all of these are completed.
    #[must_use]
    pub fn after_all<'a>(self, steps: impl IntoIterator<Item = &'a str>) -> Self {
        steps.into_iter().fold(self, Self::after)
    }

    /// Adds a Step whose result this one gets, instead of those of its dependencies. It waits for that
    /// Step, directly or through others.
    #[must_use]
    pub fn input_from(self, step: &str) -> Self {
        self.try_with(|input| {
            input.inputs_from.get_or_insert_default().push(StepId::new(step)?);
            Ok(())
        })
    }

    /// The handler that runs it.
    #[must_use]
    pub fn handler(self, handler: &str) -> Self {
        self.try_with(|input| {
            input.handler = Some(HandlerName::new(handler)?);
            Ok(())
        })
    }

    /// The pool whose workers may claim it.
    #[must_use]
    pub fn pool(self, pool: &str) -> Self {
        self.try_with(|input| {
            input.worker_pool_id = Some(PoolId::new(pool)?);
            Ok(())
        })
    }

    /// The input of the handler.
    #[must_use]
    pub fn input(self, value: Value) -> Self {
        self.with(|step| step.input = Some(value))
    }

    /// The input of the handler, as JSON.
    ///
    /// # Errors
    /// The value has no form in JSON.
    pub fn input_json<T: Serialize + ?Sized>(self, value: &T) -> Result<Self, serde_json::Error> {
        Ok(self.input(Value::json(serde_json::to_vec(value)?)))
    }

    /// Makes the Step optional: the Task can complete without it.
    #[must_use]
    pub fn optional(self) -> Self {
        self.with(|step| step.required = Some(false))
    }

    /// Its own retry policy, instead of the Task's.
    #[must_use]
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.with(|step| step.retry_policy = Some(Arc::new(policy)))
    }

    /// The Step as commands take it.
    ///
    /// # Errors
    /// The first malformed id.
    pub fn build(self) -> Result<StepInput, Rejection> {
        self.0
    }

    fn with(self, change: impl FnOnce(&mut StepInput)) -> Self {
        self.try_with(|step| {
            change(step);
            Ok(())
        })
    }

    fn try_with(self, change: impl FnOnce(&mut StepInput) -> Result<(), BadId>) -> Self {
        Self(self.0.and_then(|mut step| match change(&mut step) {
            Ok(()) => Ok(step),
            Err(bad) => Err(bad.into()),
        }))
    }
}

/// Returns a valid id, and otherwise stores the first error in `bad`.
fn taken<T>(bad: &mut Option<Rejection>, id: Result<T, BadId>) -> Option<T> {
    match id {
        Ok(id) => Some(id),
        Err(error) => {
            bad.get_or_insert_with(|| error.into());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(task: Task) -> Result<CreateTask, Rejection> {
        task.build(&"main".parse().unwrap())
    }

    #[test]
    fn a_dag_is_written_down_step_by_step() {
        let task = Task::new("report")
            .id("t")
            .pool("gpu")
            .step(Step::new("a").handler("noop").input_json(&[1, 2]).unwrap())
            .step(Step::new("b").after("a").optional());
        let input = build(task).unwrap();
        assert_eq!(input.task_id().unwrap().as_str(), "t");
        assert_eq!(input.steps.len(), 2);
        let [a, b] = &input.steps[..] else { panic!("{input:?}") };
        assert_eq!(a.input.as_ref().and_then(Value::data).unwrap(), b"[1,2]");
        assert_eq!(a.handler.as_ref().unwrap().as_str(), "noop");
        assert_eq!(b.depends_on_step_ids, [StepId::new("a").unwrap()]);
        assert_eq!(b.required, Some(false));
    }

    #[test]
    fn the_first_bad_id_is_told_when_it_is_built() {
        let task = Task::new("t").step(Step::new("").after("x")).pool("also bad\0");
        let refused = build(task).unwrap_err();
        assert_eq!(refused.details["field"], "step_id");
    }

    #[test]
    fn each_task_gets_an_id_of_its_own() {
        let id = || build(Task::new("t")).unwrap().task_id.unwrap();
        assert_ne!(id(), id());
    }

    /// IDEM-03, U15
    #[test]
    fn a_task_with_a_key_gets_the_id_of_its_key() {
        let id = |task: Task| build(task).unwrap().task_id.unwrap().to_string();
        let keyed = || Task::new("t").idempotency_key("k");
        assert_eq!(id(keyed()), "42493452-782b-57af-a041-9bb933be9549");
        assert_eq!(id(keyed().id("mine")), "mine");
    }
}
