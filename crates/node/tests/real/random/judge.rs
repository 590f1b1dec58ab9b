//! What a command has to be answered, by the state that it meets.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::model::{Model, Step, is_held, text};

/// What is asked, by whoever asks.
#[derive(Debug, Clone)]
pub(super) enum Ask {
    Pause,
    Resume,
    Block,
    Reopen,
    Submit,
    Complete,
    Fail,
    Cancel,
    Archive,
    Retry,
    Dispatch {
        scope: Option<Vec<String>>,
    },
    Write {
        step: String,
        status: String,
    },
    Patch(Vec<Json>),
    CancelRun {
        run: String,
    },
    Claim {
        run: String,
        step: String,
    },
    /// A holder's report; the same final one again is answered as the first time.
    Report {
        attempt: String,
        status: Option<String>,
        again: bool,
    },
    EndRun,
    Decline {
        run: String,
    },
    Release {
        attempt: String,
    },
}

/// What the answer has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A commit with one of these events.
    Writes(&'static [&'static str]),
    /// Yes, and nothing is written.
    Nothing,
    /// One of these codes.
    Refused(Vec<&'static str>),
    /// The log does not say: memory has a part in it.
    Any,
}

fn no(code: &'static str) -> Verdict {
    Verdict::Refused(vec![code])
}

use Verdict::{Any, Nothing, Writes};

impl Ask {
    /// Holders' words are judged while the Task closes, and at any version.
    const fn is_holders(&self) -> bool {
        matches!(self, Self::Report { .. } | Self::Release { .. } | Self::EndRun)
    }
}

impl Model {
    /// The checks of 5.1 in their order, then the command's own.
    pub(super) fn judge(&self, ask: &Ask, expected: Option<u64>) -> Verdict {
        if matches!(ask, Ask::CancelRun { run } if !self.runs.contains_key(run)) {
            return no("run_not_found");
        }
        let another = expected.is_some_and(|version| version != self.version) && !ask.is_holders();
        if self.is_terminal() {
            return match self.judge_ended(ask) {
                // Whether the Task has ended is a check of its own (K8).
                _ if another && matches!(ask, Ask::Retry) => no("version_conflict"),
                Nothing | Writes(_) if another => no("version_conflict"),
                verdict => verdict,
            };
        }
        if let (Some(intent), false) = (&self.intent, ask.is_holders()) {
            return match ask {
                Ask::Cancel | Ask::Fail if another => no("version_conflict"),
                Ask::Cancel | Ask::Fail => {
                    let same = (intent == "cancel") == matches!(ask, Ask::Cancel);
                    if same { Nothing } else { no("task_cancelling") }
                }
                Ask::CancelRun { .. } | Ask::Decline { .. } => Any,
                _ => no("task_cancelling"),
            };
        }
        if another {
            return no("version_conflict");
        }
        self.judge_own(ask)
    }

    fn judge_ended(&self, ask: &Ask) -> Verdict {
        match ask {
            Ask::Archive if self.archived => Nothing,
            Ask::Archive => Writes(&["task_archived"]),
            Ask::CancelRun { .. } | Ask::Decline { .. } | Ask::EndRun => Nothing,
            Ask::Report { again: true, .. } => Any,
            _ => no("task_terminal"),
        }
    }

    fn judge_own(&self, ask: &Ask) -> Verdict {
        let from = |statuses: &[&str], event: &'static [&'static str]| {
            let may = statuses.contains(&self.status.as_str());
            if may { Writes(event) } else { no("invalid_transition") }
        };
        match ask {
            Ask::Pause => from(&["pending", "running"], &["task_paused"]),
            Ask::Resume => from(&["paused"], &["task_resumed"]),
            Ask::Block => from(&["pending", "running"], &["task_blocked"]),
            Ask::Reopen => from(&["blocked"], &["task_reopened"]),
            Ask::Submit if self.status == "draft" && self.steps.is_empty() => {
                no("validation_error")
            }
            Ask::Submit => from(&["draft"], &["task_submitted"]),
            Ask::Archive => no("invalid_transition"),
            Ask::Complete => self.judge_complete(),
            Ask::Fail if self.status == "draft" => no("invalid_transition"),
            Ask::Fail => Writes(&["task_failed", "task_cancel_requested"]),
            Ask::Cancel => Writes(&["task_cancelled", "task_cancel_requested"]),
            Ask::Retry if self.steps.values().any(|step| step.status == "failed") => {
                Writes(&["task_step_reopened"])
            }
            Ask::Retry => no("validation_error"),
            Ask::Dispatch { scope } => self.judge_dispatch(scope.as_deref()),
            Ask::Write { step, status } => self.judge_write(step, status),
            Ask::Patch(operations) => self.judge_patch(operations),
            Ask::CancelRun { run } => match self.runs.get(run) {
                None => no("run_not_found"),
                Some(run) if run.over => Nothing,
                Some(_) => Any, // Whether an unused Run was left is known in memory alone.
            },
            Ask::Claim { run, step } => self.judge_claim(run, step),
            Ask::Report { attempt, status, again } => {
                self.judge_report(attempt, status.as_deref(), *again)
            }
            // While it closes the end of a Run is all that counts.
            Ask::Release { attempt } if self.is_open(attempt) && self.intent.is_some() => Any,
            Ask::Release { attempt } if self.is_open(attempt) => {
                Writes(&["task_step_lease_expired"])
            }
            Ask::Release { .. } => no("stale_attempt"),
            Ask::Decline { run } => match self.runs.get(run) {
                None => no("run_not_found"),
                Some(run) if run.over => Nothing,
                Some(_) => Writes(&["task_run_ended"]),
            },
            Ask::EndRun => Any,
        }
    }

    fn judge_complete(&self) -> Verdict {
        let open = |step: &Step| step.required && step.status != "completed";
        if self.status == "draft" {
            no("invalid_transition")
        } else if self.holds() {
            no("steps_in_progress")
        } else if self.steps.values().any(open) {
            no("required_steps_incomplete")
        } else {
            Writes(&["task_completed"])
        }
    }

    fn judge_dispatch(&self, scope: Option<&[String]>) -> Verdict {
        let known = scope.is_none_or(|ids| ids.iter().all(|id| self.steps.contains_key(id)));
        match self.is_draining() {
            _ if !self.gives_out() => no("task_not_dispatchable"),
            Some(true) => no("task_not_dispatchable"),
            None => Any,
            Some(false) if !known => no("step_not_found"),
            Some(false) => Writes(&["task_run_dispatched"]),
        }
    }

    /// The orchestrator's column of the matrix of 3.2.
    fn judge_write(&self, id: &str, to: &str) -> Verdict {
        let Some(step) = self.steps.get(id) else { return no("step_not_found") };
        if self.status == "draft" {
            return no("invalid_transition");
        }
        let may: &[&str] = match step.status.as_str() {
            "pending" => &["blocked", "failed", "cancelled"],
            "ready" => &["blocked", "completed", "failed", "cancelled"],
            "claimed" | "running" => &["blocked", "completed", "failed"],
            "blocked" => &["pending", "failed", "completed"],
            "failed" => &["pending", "completed"],
            _ => &[],
        };
        let waits = step.deps.iter().any(|dep| !self.is_done(dep));
        match (step.status.as_str(), to) {
            ("blocked" | "failed", "completed") if waits => no("step_not_ready"),
            (_, to) if may.contains(&to) => Writes(match to {
                "pending" => &["task_step_reopened"],
                "blocked" => &["task_step_blocked"],
                "completed" => &["task_step_completed"],
                "failed" => &["task_step_failed"],
                _ => &["task_step_cancelled"],
            }),
            ("completed", _) => no("step_history_immutable"),
            ("pending", "completed") => no("step_not_ready"),
            ("claimed" | "running", "cancelled") => no("step_in_progress"),
            _ => no("invalid_transition"),
        }
    }

    fn judge_claim(&self, run: &str, id: &str) -> Verdict {
        let Some(its_run) = self.runs.get(run) else { return no("run_not_found") };
        if its_run.attempt.is_some() {
            return no("step_already_claimed_by_run");
        }
        // Whether the Run was given to another since, or left, is known in memory alone.
        let or_lost = |code| Verdict::Refused(vec![code, "permission_denied", "run_ended"]);
        if its_run.over {
            return or_lost("run_ended");
        }
        match self.is_draining() {
            _ if !self.gives_out() => return or_lost("task_not_dispatchable"),
            Some(true) => return or_lost("task_not_dispatchable"),
            None => return Any,
            Some(false) => {}
        }
        if !self.sees(run, id) {
            return or_lost("step_out_of_scope");
        }
        match self.steps[id].status.as_str() {
            "claimed" | "running" => or_lost("step_already_claimed"),
            "ready" => Writes(&["task_step_claimed"]),
            _ => or_lost("step_not_ready"),
        }
    }

    fn is_open(&self, attempt: &str) -> bool {
        self.attempts.get(attempt).is_some_and(|attempt| !attempt.over)
    }

    fn judge_report(&self, attempt: &str, status: Option<&str>, again: bool) -> Verdict {
        if !self.is_open(attempt) {
            return if again { Any } else { no("stale_attempt") };
        }
        let is_running = self.steps[&self.attempts[attempt].step].status == "running";
        Writes(match status {
            None => &["task_step_updated"],
            Some("running") if is_running => &["task_step_updated"],
            Some("running") => &["task_step_started"],
            Some("blocked") => &["task_step_blocked"],
            Some("completed") => &["task_step_completed"],
            Some("failed") => &["task_step_failed"],
            Some(_) => &["task_step_cancelled"],
        })
    }

    /// Operations on a copy in their order (PATCH-14), then the copy as a whole (PATCH-15).
    fn judge_patch(&self, operations: &[Json]) -> Verdict {
        let mut scratch = Scratch { steps: self.steps.clone(), draft: self.status == "draft" };
        let mut later = Vec::new();
        for operation in operations {
            match scratch.apply(operation, self) {
                Ok(code) => later.extend(code),
                Err(code) => {
                    // What is wrong with the whole may be said first where an id is taken.
                    later.insert(0, code);
                    return Verdict::Refused(later);
                }
            }
        }
        later.extend(scratch.wrong(operations));
        if later.is_empty() { Writes(&["task_updated"]) } else { Verdict::Refused(later) }
    }
}

/// What a patch makes of the Steps.
struct Scratch {
    steps: BTreeMap<String, Step>,
    draft: bool,
}

impl Scratch {
    /// Wrong at its turn; or what will be wrong in the end.
    fn apply(
        &mut self,
        operation: &Json,
        model: &Model,
    ) -> Result<Option<&'static str>, &'static str> {
        let (op, id) = (text(&operation["op"]), text(&operation["step_id"]));
        if op == "add_step" {
            return Ok(self.add(&operation["step"], model));
        }
        let draft = self.draft;
        let step = self.steps.get_mut(&id).ok_or("step_not_found")?;
        let status = step.status.clone();
        match (op.as_str(), status.as_str()) {
            ("update_step", _) => {}
            ("cancel_step" | "reopen_step", _) if draft => return Err("invalid_transition"),
            ("cancel_step", "pending" | "ready") => step.status = "cancelled".into(),
            ("cancel_step" | "delete_step", "completed") => return Err("step_history_immutable"),
            ("cancel_step" | "delete_step", held) if is_held(held) => {
                return Err("step_in_progress");
            }
            ("reopen_step", "blocked" | "failed") => step.status = "pending".into(),
            ("delete_step", "pending" | "ready" | "cancelled") => drop(self.steps.remove(&id)),
            ("add_dependency", "completed") => return Err("step_history_immutable"),
            ("add_dependency", "cancelled") => return Err("invalid_transition"),
            ("add_dependency", _) => {
                let on = text(&operation["depends_on_step_id"]);
                if !step.deps.contains(&on) {
                    step.deps.push(on);
                }
            }
            _ => return Err("invalid_transition"),
        }
        Ok(None)
    }

    fn add(&mut self, step: &Json, model: &Model) -> Option<&'static str> {
        let id = text(&step["step_id"]);
        if self.steps.contains_key(&id) || model.steps.contains_key(&id) || model.gone.contains(&id)
        {
            return Some("validation_error");
        }
        let deps = step["depends_on_step_ids"].as_array().into_iter().flatten().map(text).collect();
        self.steps.insert(id, Step { status: "pending".into(), deps, ..Step::default() });
        None
    }

    fn wrong(&self, operations: &[Json]) -> Vec<&'static str> {
        let mut wrong = Vec::new();
        let deleted = |id: &String| {
            operations.iter().any(|op| op["op"] == "delete_step" && op["step_id"] == id.as_str())
        };
        let missing = || {
            let deps = self.steps.values().flat_map(|step| &step.deps);
            deps.filter(|id| !self.steps.contains_key(*id))
        };
        if missing().any(deleted) {
            wrong.push("step_has_dependents");
        }
        if missing().next().is_some() {
            wrong.push("validation_error");
        }
        if self.has_cycle() {
            wrong.push("dependency_cycle");
        }
        if self.steps.is_empty() && !self.draft {
            wrong.push("validation_error");
        }
        wrong
    }

    /// Takes away what waits for nothing until nothing is left, or a circle.
    fn has_cycle(&self) -> bool {
        let mut left: Vec<&String> = self.steps.keys().collect();
        loop {
            let before = left.len();
            let waits = |id: &&String| self.steps[*id].deps.iter().any(|dep| left.contains(&dep));
            let still: Vec<&String> = left.iter().copied().filter(waits).collect();
            left = still;
            if left.is_empty() || left.len() == before {
                return !left.is_empty();
            }
        }
    }
}
