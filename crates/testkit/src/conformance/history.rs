//! Histories of small Tasks, in which every commit fits the ones before it.

use std::sync::Arc;

use tenure_core::event::{
    Archived, Body, Commit, DeliveryUpdated, Ended, Event, Moved, Nothing, TaskCreated, TaskFact,
    TaskProgress,
};
use tenure_core::id::{
    AgentId, CommandId, CommitId, HandlerName, Millis, PoolId, SessionId, StepId, TaskId, WalName,
};
use tenure_core::record::{Labels, Progress, Reason, StepSpec, TaskSpec, Value};
use tenure_core::rules::Rules;
use tenure_core::status::{DeliveryState, FactKind, Policy, TaskStatus, Visibility};
use tenure_ports::Journal;
use tenure_ports::journal::TaskKey;
use uuid::Uuid;

/// The life of a Task with one Step, as commits made one after another.
#[derive(Debug, Clone)]
pub struct History {
    /// The Task.
    pub key: TaskKey,
    /// The name of its log.
    pub wal_name: WalName,
    /// All commits so far.
    pub commits: Vec<Arc<Commit>>,
    /// The epoch of later commits.
    pub epoch: u64,
}

/// The time of the first commit; each later one is a millisecond later.
const START: Millis = 1_700_000_000_000;

impl History {
    /// The history of a Task that is not created yet.
    pub fn of(session: &str, task: &str) -> Self {
        Self::named(session, task, task)
    }

    /// The same, with a name for the log.
    pub fn named(session: &str, task: &str, wal_name: &str) -> Self {
        let session_id = SessionId::new(session).unwrap();
        let key = TaskKey { session_id, task_id: TaskId::new(task).unwrap() };
        Self { key, wal_name: WalName::new(wal_name).unwrap(), commits: Vec::new(), epoch: 0 }
    }

    /// Has later commits made in the epoch in which a journal owns the Task.
    pub fn on<J: Journal>(mut self, journal: &J) -> Self {
        self.epoch = journal.epoch(&self.key).unwrap_or(0);
        self
    }

    /// `wal_seq` of the last event.
    pub fn last_seq(&self) -> u64 {
        self.commits.last().map_or(0, |commit| commit.last_seq())
    }

    /// Time of the last commit.
    pub fn updated_at(&self) -> Millis {
        self.commits.last().map_or(START, |commit| commit.created_at)
    }

    /// Adds a commit of these events.
    pub fn commit(&mut self, bodies: impl IntoIterator<Item = Body>) -> Arc<Commit> {
        let events = bodies.into_iter().map(|body| event(body, "orchestrator")).collect();
        let first_seq = self.last_seq() + 1;
        let created_at = START + Millis::try_from(self.commits.len()).unwrap();
        let command_id = Some(CommandId::new(format!("command \"{first_seq}\"")).unwrap());
        let commit = Arc::new(Commit {
            commit_id: self.commit_id(first_seq),
            first_seq,
            created_at,
            command_id,
            command_digest: None,
            epoch: self.epoch,
            trace: None,
            events,
        });
        self.commits.push(commit.clone());
        commit
    }

    fn commit_id(&self, first_seq: u64) -> CommitId {
        let name = format!("{}/{first_seq}", self.key);
        CommitId(Uuid::new_v5(&Uuid::NAMESPACE_URL, name.as_bytes()))
    }

    /// Adds the commit that creates the Task and has it run.
    pub fn create(&mut self) -> Arc<Commit> {
        let task = Arc::new(self.spec());
        let created = Body::TaskCreated(TaskCreated {
            task,
            creation: None,
            idempotency_key: None,
            rules: Rules::First,
        });
        let ready = Body::StepReady(Nothing {});
        let running = Body::TaskRunning(Moved { from: TaskStatus::Pending, reason: None });
        self.commit([created, ready, running])
    }

    /// Adds a commit of progress reports, in so many events.
    pub fn work(&mut self, events: usize) -> Arc<Commit> {
        let text = format!("{} events, \"line one\"\nline two, ünïcode \u{1f980}", events);
        let progress = Some(Progress { summary: Some(text), ..Progress::default() });
        let report = TaskProgress { progress, ..TaskProgress::default() };
        self.commit((0..events).map(|_| Body::TaskProgress(Box::new(report.clone()))))
    }

    /// Adds the commit that completes the Task.
    pub fn complete(&mut self) -> Arc<Commit> {
        self.commit([Body::TaskCompleted(Box::<Ended>::default())])
    }

    /// Adds the commit with which the Task counts as lost.
    pub fn lose(&mut self) -> Arc<Commit> {
        let reason = Some(Reason::new("lost", "nobody is left"));
        self.commit([Body::TaskFailed(Box::new(Ended { reason, ..Ended::default() }))])
    }

    /// Adds the commit that the Task's result is delivered.
    pub fn deliver(&mut self) -> Arc<Commit> {
        let delivery_state = DeliveryState::Delivered;
        self.commit([Body::TaskDeliveryUpdated(DeliveryUpdated {
            delivery_state,
            target_ref: None,
        })])
    }

    /// Adds the commit of a fact that an ended Task takes.
    pub fn note(&mut self) -> Arc<Commit> {
        let (kind, payload) = (FactKind::A2aPushConfig, Value::json(*b"1"));
        self.commit([Body::TaskFact(Box::new(TaskFact { kind, key: "a".into(), payload }))])
    }

    /// Adds the commit that archives the Task.
    pub fn archive(&mut self) -> Arc<Commit> {
        self.commit([Body::TaskArchived(Archived::default())])
    }

    fn spec(&self) -> TaskSpec {
        let pool = PoolId::new("default").unwrap();
        let step = StepSpec {
            step_id: step_id(),
            title: "a step".into(),
            summary: "does something".into(),
            depends_on_step_ids: Vec::new(),
            required: true,
            worker_pool_id: pool.clone(),
            handler: HandlerName::default_handler(),
            input: None,
            inputs_from: None,
            retry_policy: None,
            assignee: None,
            claim_only_by: None,
            ext: None,
        };
        TaskSpec {
            task_id: self.key.task_id.clone(),
            session_id: self.key.session_id.clone(),
            wal_name: self.wal_name.clone(),
            title: title(&self.key.task_id).as_str().into(),
            summary: "a task".into(),
            dispatch: Policy::Auto,
            completion: Policy::Auto,
            default_worker_pool_id: pool,
            root_task_id: self.key.task_id.clone(),
            delivery_state: DeliveryState::Pending,
            visibility: Visibility::Internal,
            thread_id: None,
            turn_id: None,
            parent_task_id: None,
            parent_close: tenure_core::status::ParentClose::Abandon,
            output_from: None,
            objective: None,
            requested_by: None,
            owner: None,
            assignee: None,
            claim_only_by: None,
            ext: None,
            retry_policy: None,
            on_failure: None,
            optional_wait_ms: None,
            task_kind: None,
            task_family: None,
            priority: 0,
            scope: None,
            constraints: None,
            task_profile: None,
            acceptance: Vec::new(),
            retry_of: None,
            job_id: None,
            metadata: None,
            native_protocol: None,
            labels: labels(),
            cwd: None,
            status: TaskStatus::Pending,
            relationships: Vec::new(),
            steps: [Arc::new(step)].into(),
        }
    }
}

/// The title of a Task of a history.
pub fn title(task: &TaskId) -> String {
    format!("the \"{task}\" task")
}

/// The labels of a Task of a history (LABEL-01).
pub fn labels() -> Labels {
    [("team".into(), "blue".into())].into()
}

fn step_id() -> StepId {
    StepId::new("a").unwrap()
}

fn event(body: Body, actor: &str) -> Event {
    let step_id = body.event_type().starts_with("task_step_").then(step_id);
    Event { actor: AgentId::new(actor).unwrap(), run: None, step_id, body }
}
