//! What the lines of a log say together.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use serde_json::Value;

use super::line::Line;
use super::runs::Runs;

/// Faults that are written out; more say nothing new.
const FAULTS_SHOWN: usize = 20;

/// What a sound log says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events.
    pub events: u64,
    /// How the Task ended, as the last event is called.
    pub ended: Option<String>,
    /// Steps, and how many Attempts each had.
    pub attempts: BTreeMap<String, u64>,
    /// Steps that completed, by event.
    pub completed: BTreeSet<String>,
    /// Bytes up to the end of the last whole commit.
    pub whole_bytes: usize,
    /// In which pools each worker has claimed.
    pub pools: BTreeMap<String, BTreeSet<String>>,
    /// Attempts that ended because their process died.
    pub host_restarted: u64,
    /// Epoch of the last commit: zero where there is one owner for ever.
    pub epoch: u64,
}

/// What is known after some lines.
#[derive(Debug, Default)]
pub(super) struct History {
    seq: u64,
    time: i64,
    /// Commit that is not whole yet: its id, how many events it has, how many came.
    open: Option<(String, u32, u32)>,
    commits: BTreeSet<String>,
    name: Option<(String, String)>,
    steps: BTreeMap<String, Step>,
    /// Ids of Steps that were deleted.
    gone: BTreeSet<String>,
    /// Pool of Steps that name none.
    pool: String,
    runs: Runs,
    token: u64,
    summary: Summary,
    faults: Vec<String>,
}

#[derive(Debug, Default)]
struct Step {
    parents: Vec<String>,
    pool: String,
    ordinal: u64,
    /// The Attempt that is not over.
    attempt: Option<String>,
    /// The last Attempt, if it was lost: its late result may be taken over.
    lost: Option<String>,
    past: BTreeSet<String>,
    completed: u32,
}

impl History {
    pub(super) fn fault(&mut self, number: u64, what: &str) {
        self.faults.push(format!("line {number}: {what}"));
    }

    fn wrong(&mut self, line: &Line, what: &str) {
        self.fault(
            line.wal_seq,
            &format!("{} {}: {what}", line.event_type, line.step_id.as_deref().unwrap_or("")),
        );
    }

    /// Takes in a line that ends at this byte.
    pub(super) fn see(&mut self, line: &Line, end: usize) {
        self.see_envelope(line);
        self.see_commit(line);
        if let Some(end) = &self.summary.ended
            && !matches!(line.event_type.as_str(), "task_archived" | "task_delivery_updated")
        {
            let what = format!("follows {end}");
            self.wrong(line, &what);
        }
        self.see_event(line);
        self.summary.events += 1;
        if self.open.is_none() {
            self.summary.whole_bytes = end;
        }
    }

    fn see_envelope(&mut self, line: &Line) {
        if line.wal_seq != self.seq + 1 {
            let what = format!("has number {} after {}", line.wal_seq, self.seq);
            self.wrong(line, &what);
        }
        if line.created_at < self.time {
            self.wrong(line, "is older than the event before it");
        }
        if line.epoch < self.summary.epoch {
            self.wrong(line, "is of an owner before the one before it");
        }
        self.summary.epoch = line.epoch;
        let name = (line.session_id.clone(), line.task_id.clone());
        if *self.name.get_or_insert_with(|| name.clone()) != name {
            self.wrong(line, "belongs to another task");
        }
        if line.actor_agent_id.is_empty() {
            self.wrong(line, "has no actor");
        }
        (self.seq, self.time) = (line.wal_seq, line.created_at);
    }

    fn see_commit(&mut self, line: &Line) {
        let (index, count) = (line.commit_index, line.commit_count);
        let fits = match &self.open {
            None => index == 0 && self.commits.insert(line.commit_id.clone()),
            Some((id, all, seen)) => *id == line.commit_id && *all == count && *seen == index,
        };
        if !fits {
            self.wrong(line, "does not continue its commit");
        }
        let is_whole = index + 1 == count;
        self.open = (!is_whole).then(|| (line.commit_id.clone(), count, index + 1));
    }

    fn see_event(&mut self, line: &Line) {
        self.see_attempt(line);
        match line.event_type.as_str() {
            "task_created" => self.see_created(line),
            "task_updated" => self.see_patch(line),
            "task_run_dispatched" | "task_run_ended" => {
                if let Some(what) = self.runs.see(line) {
                    self.wrong(line, what);
                }
            }
            "task_step_claimed" => self.see_claim(line),
            "task_step_completed" => self.see_end(line, true),
            "task_step_taken_over" => {
                if self.step(line).is_some_and(|(_, is_free)| !is_free) {
                    self.wrong(line, "comes before a parent has completed");
                }
                self.see_end(line, true);
            }
            "task_step_failed" | "task_step_cancelled" | "task_step_blocked" => {
                self.see_end(line, false)
            }
            "task_step_lease_expired" => {
                let reason = line.text("reason");
                if reason == Some("host_restarted") {
                    self.summary.host_restarted += 1;
                }
                self.see_end(line, false);
                let lost = line.text("attempt_id").map(str::to_owned);
                if let Some((step, _)) = self.step(line) {
                    step.lost = lost.filter(|_| matches!(reason, Some("lease_expired" | "outage")));
                }
            }
            "task_step_ready" => self.see_ready(line),
            "task_completed" | "task_failed" | "task_cancelled" => {
                self.summary.ended = Some(line.event_type.clone());
                self.see_task_end(line);
            }
            _ => {}
        }
    }

    /// What names an Attempt comes while that is the open one of its Step: a report of one that is
    /// over leaves nothing, but for the late result of one that was lost, if nobody has had the Step since.
    fn see_attempt(&mut self, line: &Line) {
        let is_claim = line.event_type == "task_step_claimed";
        let Some(attempt) = line.text("attempt_id").filter(|_| !is_claim) else { return };
        let is_adopted = line.payload.get("adopted") == Some(&Value::Bool(true));
        let its = self.step(line).and_then(|(step, _)| match is_adopted {
            true => step.lost.as_deref().filter(|_| step.attempt.is_none()),
            false => step.attempt.as_deref(),
        });
        if its != Some(attempt) {
            self.wrong(line, "is of an attempt that is not open");
        }
    }

    fn see_created(&mut self, line: &Line) {
        if line.wal_seq != 1 {
            self.wrong(line, "is not the first");
        }
        let task = line.payload.get("task").unwrap_or(&Value::Null);
        self.pool = task["default_worker_pool_id"].as_str().unwrap_or_default().to_owned();
        for step in task["steps"].as_array().into_iter().flatten() {
            self.add_step(line, step);
        }
    }

    fn add_step(&mut self, line: &Line, step: &Value) {
        let id = step.get("step_id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let parents = ids(step.get("depends_on_step_ids"));
        let pool = step.get("worker_pool_id").and_then(Value::as_str).unwrap_or(&self.pool);
        let new = Step { parents, pool: pool.to_owned(), ..Step::default() };
        let is_old = self.gone.contains(&id);
        if is_old || self.steps.insert(id, new).is_some() {
            self.wrong(line, "takes the id of another step");
        }
    }

    /// What a patch makes of the Steps and of what they wait for.
    fn see_patch(&mut self, line: &Line) {
        let operations = line.payload.get("operations").and_then(Value::as_array);
        for operation in operations.into_iter().flatten() {
            let text = |key: &str| operation.get(key).and_then(Value::as_str).unwrap_or_default();
            let (op, on) = (text("op"), text("depends_on_step_id"));
            if let Some(step) = operation.get("step").filter(|_| op == "add_step") {
                self.add_step(line, step);
                continue;
            }
            let Some(step) = self.steps.get_mut(text("step_id")) else {
                if op != "update_task" && op != "block_task" && op != "reopen_task" {
                    self.wrong(line, "names no step");
                }
                continue;
            };
            let before = step.parents.clone();
            match op {
                "add_dependency" if !before.iter().any(|id| id == on) => {
                    step.parents.push(on.to_owned());
                }
                "remove_dependency" => step.parents.retain(|id| id != on),
                "update_step" => {
                    let fields = operation.get("fields").unwrap_or(&Value::Null);
                    let parents = fields.get("depends_on_step_ids");
                    step.parents = parents.map_or(before.clone(), |new| ids(Some(new)));
                    if let Some(pool) = fields["worker_pool_id"].as_str() {
                        pool.clone_into(&mut step.pool);
                    }
                }
                "delete_step" => self.delete_step(line, text("step_id")),
                _ => {}
            }
            let is_fixed = self.summary.completed.contains(text("step_id"));
            let after = self.steps.get(text("step_id")).map(|step| &step.parents);
            if is_fixed && after != Some(&before) {
                self.wrong(line, "changes what a completed step waited for");
            }
        }
    }

    fn delete_step(&mut self, line: &Line, id: &str) {
        if self.steps.remove(id).is_some_and(|step| step.attempt.is_some()) {
            self.wrong(line, "deletes a step that is held");
        }
        self.gone.insert(id.to_owned());
    }

    /// The named Step, and whether all before it have completed.
    fn step(&mut self, line: &Line) -> Option<(&mut Step, bool)> {
        let id = line.step_id.as_deref().unwrap_or_default();
        let completed = &self.summary.completed;
        let step = self.steps.get_mut(id)?;
        let is_free = step.parents.iter().all(|parent| completed.contains(parent));
        Some((step, is_free))
    }

    fn see_ready(&mut self, line: &Line) {
        match self.step(line) {
            None => self.wrong(line, "names no step"),
            Some((_, false)) => self.wrong(line, "comes before a parent has completed"),
            Some((step, true)) if step.completed > 0 => self.wrong(line, "comes after completion"),
            Some(_) => {}
        }
    }

    fn see_claim(&mut self, line: &Line) {
        let token = line.number("fencing_token").unwrap_or_default();
        if token != line.wal_seq || token <= self.token {
            self.wrong(line, "has a token that does not rise");
        }
        self.token = token;
        let attempt = line.text("attempt_id").unwrap_or_default().to_owned();
        let ordinal = line.number("ordinal").unwrap_or_default();
        let mut faults = self.runs.claim(line);
        let Some((step, is_free)) = self.step(line) else {
            return self.wrong(line, "names no step");
        };
        if line.text("worker_pool_id") != Some(step.pool.as_str()) {
            faults.push("is in another pool than its step");
        }
        if !is_free {
            faults.push("comes before a parent has completed");
        }
        if step.completed > 0 {
            faults.push("comes after completion");
        }
        if step.attempt.replace(attempt.clone()).is_some() {
            faults.push("comes while another attempt is open");
        }
        if !step.past.insert(attempt) {
            faults.push("has the id of an earlier attempt");
        }
        if ordinal != step.ordinal + 1 {
            faults.push("leaves a gap between attempts");
        }
        (step.ordinal, step.lost) = (ordinal, None);
        faults.into_iter().for_each(|what| self.wrong(line, what));
        *self.summary.attempts.entry(line.step_id.clone().unwrap_or_default()).or_default() += 1;
        let text = |key: &str| line.text(key).unwrap_or_default().to_owned();
        self.summary.pools.entry(text("worker_id")).or_default().insert(text("worker_pool_id"));
    }

    /// The end of a Step, and of its Attempt if one is open.
    fn see_end(&mut self, line: &Line, completes: bool) {
        let Some((step, _)) = self.step(line) else {
            return self.wrong(line, "names no step");
        };
        let mut faults = Vec::new();
        if step.attempt.take().is_some() && line.text("attempt_id").is_none() {
            faults.push("says nothing of the attempt that it ends");
        }
        step.completed += u32::from(completes);
        if step.completed > u32::from(completes) {
            faults.push("comes after completion");
        }
        faults.into_iter().for_each(|what| self.wrong(line, what));
        if completes {
            self.summary.completed.extend(line.step_id.clone());
        }
    }

    fn see_task_end(&mut self, line: &Line) {
        if self.steps.values().any(|step| step.attempt.is_some()) {
            self.wrong(line, "leaves an attempt open");
        }
    }

    pub(super) fn finish(mut self, may_be_torn: bool) -> Result<Summary> {
        if self.open.is_some() && !may_be_torn {
            self.faults.push("the last commit is not whole".into());
        }
        if self.seq == 0 && !may_be_torn {
            self.faults.push("the log is empty".into());
        }
        if self.faults.is_empty() {
            return Ok(self.summary);
        }
        let shown = self.faults.len().min(FAULTS_SHOWN);
        bail!("{} faults:\n{}", self.faults.len(), self.faults[..shown].join("\n"))
    }
}

/// The texts of a list.
pub(super) fn ids(list: Option<&Value>) -> Vec<String> {
    let ids = list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    ids.map(str::to_owned).collect()
}
