//! A Task as its log tells it: maps and words, sharing nothing with what wrote it. Every event has to be
//! lawful where it stands.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Step {
    pub(super) status: String,
    pub(super) deps: Vec<String>,
    pub(super) required: bool,
    pub(super) pool: String,
    pub(super) attempt: Option<String>,
    /// It waits for a time.
    pub(super) later: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Run {
    pub(super) pool: String,
    pub(super) scope: Option<Vec<String>>,
    pub(super) attempt: Option<String>,
    pub(super) over: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Attempt {
    pub(super) step: String,
    pub(super) run: String,
    pub(super) token: u64,
    pub(super) over: bool,
}

/// A Task at one version.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Model {
    pub(super) version: u64,
    pub(super) status: String,
    pub(super) intent: Option<String>,
    pub(super) archived: bool,
    pub(super) manual: bool,
    pub(super) steps: BTreeMap<String, Step>,
    /// Creation order of the Steps that there are.
    pub(super) order: Vec<String>,
    pub(super) gone: BTreeSet<String>,
    pub(super) runs: BTreeMap<String, Run>,
    pub(super) attempts: BTreeMap<String, Attempt>,
}

/// One commit: what the lines of it share, and its lines.
#[derive(Debug, Clone)]
pub(super) struct Commit {
    pub(super) id: String,
    pub(super) command: Option<String>,
    pub(super) lines: Vec<Json>,
}

impl Commit {
    /// The commits of a log, one event a line.
    pub(super) fn all(log: &[u8]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for line in log.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let line: Json = serde_json::from_slice(line).expect("a line of a log");
            match all.last_mut().filter(|commit| commit.id == line["commit_id"]) {
                Some(commit) => commit.lines.push(line),
                None => all.push(Self {
                    id: text(&line["commit_id"]),
                    command: line["command_id"].as_str().map(str::to_owned),
                    lines: vec![line],
                }),
            }
        }
        all
    }

    pub(super) fn types(&self) -> Vec<&str> {
        self.lines.iter().filter_map(|line| line["event_type"].as_str()).collect()
    }

    pub(super) fn event_ids(&self) -> Vec<String> {
        self.lines.iter().map(|line| text(&line["event_id"])).collect()
    }
}

pub(super) fn text(value: &Json) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn words(value: &Json) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

pub(super) fn is_held(status: &str) -> bool {
    matches!(status, "claimed" | "running")
}

impl Model {
    /// The Task after each commit of its log; the first is nothing.
    pub(super) fn all(commits: &[Commit]) -> Vec<Self> {
        let mut all = vec![Self::default()];
        for commit in commits {
            let mut next = all[all.len() - 1].clone();
            for line in &commit.lines {
                next.see(line);
            }
            next.is_lawful(commit);
            all.push(next);
        }
        all
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self.status.as_str(), "completed" | "failed" | "cancelled")
    }

    pub(super) fn gives_out(&self) -> bool {
        matches!(self.status.as_str(), "pending" | "running")
    }

    pub(super) fn holds(&self) -> bool {
        self.steps.values().any(|step| is_held(&step.status))
    }

    /// Whether the Task is failing, and gives out nothing more until its last holder has ended (POL-05): surely,
    /// not at all, or (`None`) by what the model does not know of a failure.
    pub(super) fn is_draining(&self) -> Option<bool> {
        let required = || self.order.iter().filter(|id| self.steps[*id].required);
        if self.manual || !self.gives_out() {
            return Some(false);
        }
        if required().any(|id| self.steps[id].status == "cancelled") {
            return Some(true);
        }
        let is_in_doubt = required().any(|id| self.has_ended_badly(id));
        (!is_in_doubt).then_some(false)
    }

    /// Whether a Step, or one that it waits for, has failed or was cancelled.
    fn has_ended_badly(&self, id: &str) -> bool {
        let Some(step) = self.steps.get(id) else { return false };
        match step.status.as_str() {
            "failed" | "cancelled" => true,
            "completed" => false,
            _ => step.deps.iter().any(|dep| self.has_ended_badly(dep)),
        }
    }

    pub(super) fn is_done(&self, id: &str) -> bool {
        self.steps.get(id).is_some_and(|step| step.status == "completed")
    }

    /// Whether a Run sees a Step: pool and scope, or it holds it.
    pub(super) fn sees(&self, run: &str, id: &str) -> bool {
        let (Some(run), Some(step)) = (self.runs.get(run), self.steps.get(id)) else {
            return false;
        };
        let holds = step.attempt.is_some() && step.attempt == run.attempt;
        let named = run.scope.as_ref().is_none_or(|scope| scope.iter().any(|one| one == id));
        holds || (run.pool == step.pool && named)
    }

    /// Ready Steps that a Run may claim, oldest first.
    fn ready_for(&self, run: &str) -> Vec<String> {
        // The offer may have come late: since then the Run has claimed or ended, or the Task gives nothing out.
        let is_used = self.runs.get(run).is_none_or(|run| run.over || run.attempt.is_some());
        if is_used || self.intent.is_some() || !self.gives_out() || self.is_draining() == Some(true)
        {
            return Vec::new();
        }
        let ready = self.order.iter().filter(|id| self.steps[*id].status == "ready");
        ready.filter(|id| self.sees(run, id)).cloned().collect()
    }

    /// Whether a worker that looks for work under a Run is to be shown these Steps (VIEW-16).
    pub(super) fn shows(&self, run: &str, shown: &[String]) -> bool {
        let all = self.ready_for(run);
        let is_all = *shown == all[..all.len().min(5)];
        is_all || (shown.is_empty() && self.is_draining().is_none())
    }

    fn see(&mut self, line: &Json) {
        let (kind, payload) = (text(&line["event_type"]), &line["payload"]);
        let (seq, id) = (line["wal_seq"].as_u64().unwrap(), text(&line["step_id"]));
        assert_eq!(seq, self.version + 1, "{line}");
        self.version = seq;
        let late = matches!(kind.as_str(), "task_archived" | "task_delivery_updated");
        assert!(!self.is_terminal() || late, "after the end: {line}");
        match kind.as_str() {
            "task_created" => self.created(&payload["task"]),
            "task_submitted" => self.task(&["draft"], "pending", line),
            "task_running" => self.task(&["pending"], "running", line),
            "task_blocked" => self.task(&["pending", "running"], "blocked", line),
            "task_paused" => self.task(&["pending", "running"], "paused", line),
            "task_reopened" => self.task(&["blocked"], "pending", line),
            "task_resumed" => self.task(&["paused"], "pending", line),
            "task_completed" | "task_failed" | "task_cancelled" => self.ended(&kind[5..], line),
            "task_cancel_requested" => {
                assert!(self.intent.is_none() && self.holds(), "{line}");
                self.intent = Some(text(&payload["intent"]));
            }
            "task_archived" => self.archived = true,
            "task_updated" => {
                let operations = payload["operations"].as_array().expect("operations");
                operations.iter().for_each(|operation| self.patched(operation));
                for id in words(&payload["demoted_step_ids"]) {
                    self.step(&id, &["ready"], "pending", line);
                }
            }
            "task_run_dispatched" => {
                let scope = payload["allowed_step_ids"].is_array();
                let scope = scope.then(|| words(&payload["allowed_step_ids"]));
                let pool = text(&payload["worker_pool_id"]);
                self.runs.insert(text(&payload["run_id"]), Run { pool, scope, ..Run::default() });
            }
            "task_run_ended" => self.run(&text(&payload["run_id"])).over = true,
            "task_step_claimed" => self.claimed(&id, line),
            "task_step_ready" => self.step(&id, &["pending"], "ready", line),
            "task_step_started" => self.step(&id, &["claimed"], "running", line),
            "task_step_updated" => assert!(self.steps.contains_key(&id), "{line}"),
            "task_step_blocked" => {
                self.step(&id, &["pending", "ready", "claimed", "running"], "blocked", line);
            }
            "task_step_completed" => {
                // A pending one was blocked or failed, and its orchestrator completed it.
                let is_done = self.steps[&id].deps.iter().all(|dep| self.is_done(dep));
                let from = ["ready", "claimed", "running", "pending"];
                self.step(&id, &from[..if is_done { 4 } else { 3 }], "completed", line);
            }
            "task_step_failed" | "task_step_cancelled" => {
                let unfinished = ["pending", "ready", "claimed", "running", "blocked"];
                self.step(&id, &unfinished, &kind[10..], line);
            }
            "task_step_reopened" => {
                self.step(&id, &["blocked", "failed"], "pending", line);
                self.steps.get_mut(&id).unwrap().later = payload["not_before"].is_number();
            }
            "task_step_lease_expired" => {
                self.step(&id, &["claimed", "running"], "pending", line);
                self.steps.get_mut(&id).unwrap().later = payload["not_before"].is_number();
            }
            "task_progress"
            | "task_fact"
            | "task_linked"
            | "task_unlinked"
            | "task_delivery_updated" => {}
            _ => panic!("an unknown event: {line}"),
        }
    }

    fn created(&mut self, task: &Json) {
        self.status = text(&task["status"]);
        self.manual = task["completion"] == "manual";
        task["steps"].as_array().into_iter().flatten().for_each(|step| self.add(step));
    }

    fn add(&mut self, step: &Json) {
        let id = text(&step["step_id"]);
        assert!(!self.steps.contains_key(&id) && !self.gone.contains(&id), "{id} is taken");
        let pool = step["worker_pool_id"].as_str().unwrap_or("default").to_owned();
        let required = step["required"].as_bool().unwrap_or(true);
        let (status, deps) = ("pending".to_owned(), words(&step["depends_on_step_ids"]));
        self.order.push(id.clone());
        self.steps.insert(id, Step { status, deps, required, pool, ..Step::default() });
    }

    /// What an operation of a patch does by itself; moves have events of their own.
    fn patched(&mut self, operation: &Json) {
        let (id, on) = (text(&operation["step_id"]), text(&operation["depends_on_step_id"]));
        match text(&operation["op"]).as_str() {
            "add_step" => self.add(&operation["step"]),
            "delete_step" => {
                let step = self.steps.remove(&id).expect("a step that there is");
                assert!(matches!(step.status.as_str(), "pending" | "ready" | "cancelled"));
                self.order.retain(|one| *one != id);
                self.gone.insert(id);
            }
            "add_dependency" => {
                let deps = &mut self.steps.get_mut(&id).expect("a step that there is").deps;
                if !deps.contains(&on) {
                    deps.push(on);
                }
            }
            _ => {}
        }
    }

    fn task(&mut self, from: &[&str], to: &str, line: &Json) {
        assert!(from.contains(&self.status.as_str()), "{} cannot become {to}: {line}", self.status);
        assert_eq!(self.intent, None, "while it closes: {line}");
        self.status = to.to_owned();
    }

    fn ended(&mut self, to: &str, line: &Json) {
        let by_system = line["actor_agent_id"] == "system";
        assert!(
            !(self.manual && by_system),
            "a manual task ends by its orchestrator alone: {line}"
        );
        if to == "completed" {
            let done = self.steps.values().filter(|step| step.required);
            assert!(done.clone().all(|step| step.status == "completed"), "{line} {self:?}");
            assert!(self.gives_out() || !by_system, "{line}");
        }
        let unfinished = |step: &Step| match step.status.as_str() {
            "completed" | "failed" | "cancelled" => false,
            "blocked" => to != "completed" || step.required,
            _ => true,
        };
        assert!(!self.steps.values().any(unfinished), "steps are open: {line} {self:?}");
        self.status = to.to_owned();
        self.intent = None;
        self.runs.values_mut().for_each(|run| run.over = true);
    }

    fn run(&mut self, id: &str) -> &mut Run {
        self.runs.get_mut(id).unwrap_or_else(|| panic!("a run that there is: {id}"))
    }

    /// A Step moves; a move that names an Attempt ends it and its Run.
    fn step(&mut self, id: &str, from: &[&str], to: &str, line: &Json) {
        let step = self.steps.get_mut(id).unwrap_or_else(|| panic!("no step {id}: {line}"));
        assert!(from.contains(&step.status.as_str()), "{} cannot become {to}: {line}", step.status);
        let named = line["payload"]["attempt_id"].as_str();
        if is_held(&step.status) {
            assert_eq!(named, step.attempt.as_deref(), "of another attempt: {line}");
        }
        step.status = to.to_owned();
        step.later = false;
        if !is_held(to)
            && let Some(attempt) = step.attempt.take()
        {
            let attempt = self.attempts.get_mut(&attempt).unwrap();
            attempt.over = true;
            let run = attempt.run.clone();
            self.run(&run).over = true;
        }
    }

    fn claimed(&mut self, id: &str, line: &Json) {
        let payload = &line["payload"];
        assert!(self.gives_out() && self.intent.is_none(), "nothing is given out: {line}");
        let (run, attempt) = (text(&payload["run_id"]), text(&payload["attempt_id"]));
        if payload["dispatched_by"] == "system" {
            let pool = text(&payload["worker_pool_id"]);
            let scope = Some(words(&payload["allowed_step_ids"]));
            self.runs.insert(run.clone(), Run { pool, scope, ..Run::default() });
        }
        assert!(self.sees(&run, id), "out of the scope: {line}");
        let step = &self.steps[id];
        assert!(step.deps.iter().all(|dep| self.is_done(dep)), "before its dependencies: {line}");
        let its_run = self.run(&run);
        assert!(!its_run.over && its_run.attempt.is_none(), "a run claims once: {line}");
        its_run.attempt = Some(attempt.clone());
        self.step(id, &["ready"], "claimed", line);
        self.steps.get_mut(id).unwrap().attempt = Some(attempt.clone());
        assert_eq!(payload["fencing_token"], self.version, "{line}");
        let (step, token) = (id.to_owned(), self.version);
        let record = Attempt { step, run, token, over: false };
        assert!(self.attempts.insert(attempt, record).is_none(), "an attempt of its own: {line}");
    }

    /// What holds after every commit: nothing that ought to be ready waits, and nothing else is.
    fn is_lawful(&self, commit: &Commit) {
        let free = |step: &Step| step.deps.iter().all(|dep| self.is_done(dep));
        for (id, step) in &self.steps {
            let known = step.deps.iter().all(|dep| self.steps.contains_key(dep));
            assert!(known, "{id} waits for nothing that there is: {commit:?}");
            let waits = step.status == "pending" && free(step) && !step.later;
            let judged = self.status == "draft" || self.intent.is_some() || self.is_terminal();
            assert!(judged || !waits, "{id} is to be ready: {commit:?}");
            assert!(step.status != "ready" || free(step), "{id} is ready too early: {commit:?}");
            assert_eq!(is_held(&step.status), step.attempt.is_some(), "{id}: {commit:?}");
        }
        let works = |step: &Step| step.status == "ready" || is_held(&step.status);
        let runs = self.steps.values().any(works) && self.intent.is_none();
        assert!(!(self.status == "pending" && runs), "it is to be running: {commit:?}");
    }
}
