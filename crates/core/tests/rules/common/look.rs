//! How a test reads the Task and its log.

use serde_json::Value as Json;
use tenure_core::Commit;
use tenure_core::event::Body;
use tenure_core::id::RunId;
use tenure_core::status::{StepStatus, TaskStatus};
use tenure_core::task::{Attempt, Run, Step};

use super::input::id;
use super::{Fixture, Held};

impl Fixture {
    /// Status of the Task.
    pub fn task_status(&self) -> TaskStatus {
        self.task.head().status
    }

    /// A Step that exists.
    pub fn step(&self, step: &str) -> &Step {
        self.task.step(&id(step)).unwrap_or_else(|| panic!("step {step} exists"))
    }

    /// Status of a Step.
    pub fn status(&self, step: &str) -> StepStatus {
        self.step(step).state.status
    }

    /// Statuses of these Steps, as one line: `a:ready b:pending`.
    pub fn statuses(&self, steps: &str) -> String {
        let one = |step: &str| format!("{step}:{}", self.status(step));
        steps.split_whitespace().map(one).collect::<Vec<_>>().join(" ")
    }

    /// A Run that exists.
    pub fn run_of(&self, run_id: RunId) -> &Run {
        self.task.run(run_id).expect("the run exists")
    }

    /// An Attempt that exists.
    pub fn attempt_of(&self, held: &Held) -> &Attempt {
        self.task.attempt(held.attempt_id).expect("the attempt exists")
    }

    /// The last commit.
    pub fn last(&self) -> &Commit {
        self.log.last().expect("there is a commit")
    }

    /// Events of the last commit, as `type` or `type step_id`.
    pub fn events(&self) -> Vec<String> {
        names(self.last())
    }

    /// The payload of the only event of this type in the last commit, as JSON.
    pub fn payload(&self, event_type: &str) -> Json {
        let of_type = |e: &&tenure_core::Event| e.body.event_type() == event_type;
        let found: Vec<_> = self.last().events.iter().filter(of_type).collect();
        assert_eq!(found.len(), 1, "one {event_type} in {:?}", self.events());
        serde_json::to_value(&found[0].body).expect("payloads are JSON")
    }

    /// The body of the first event of this type in the last commit.
    pub fn body(&self, event_type: &str) -> &Body {
        let found = self.last().events.iter().find(|e| e.body.event_type() == event_type);
        &found.unwrap_or_else(|| panic!("{event_type} is in {:?}", self.events())).body
    }

    /// Every commit with its events, for messages of failed tests.
    pub fn history(&self) -> String {
        let lines = self.log.iter().map(|c| format!("{:>4} {}", c.first_seq, names(c).join(", ")));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Events of a commit, as `type` or `type step_id`.
pub fn names(commit: &Commit) -> Vec<String> {
    let name = |e: &tenure_core::Event| match &e.step_id {
        Some(step) => format!("{} {step}", e.body.event_type()),
        None => e.body.event_type().to_owned(),
    };
    commit.events.iter().map(name).collect()
}
