//! The licences under which Steps are claimed.

use std::collections::BTreeMap;

use super::history::ids;
use super::line::Line;

/// Who gives out Runs that nobody dispatched.
const SYSTEM: &str = "system";

/// Every Run of a Task.
#[derive(Debug, Default)]
pub(super) struct Runs(BTreeMap<String, Run>);

#[derive(Debug)]
struct Run {
    licence: Licence,
    /// It has claimed, or ended without that.
    is_spent: bool,
}

/// What a Run may claim, and who said so.
#[derive(Debug, PartialEq, Eq)]
struct Licence {
    pool: String,
    /// Steps; all of the pool if there is no list.
    allowed: Option<Vec<String>>,
    by: String,
}

impl Licence {
    fn of(line: &Line) -> Self {
        let text = |key: &str| line.text(key).unwrap_or_default().to_owned();
        let allowed = line.payload.get("allowed_step_ids").filter(|list| !list.is_null());
        let allowed = allowed.map(|list| ids(Some(list)));
        Self { pool: text("worker_pool_id"), allowed, by: text("dispatched_by") }
    }
}

impl Runs {
    /// A Run is made, or ends without having claimed. Answers what is wrong with that.
    pub(super) fn see(&mut self, line: &Line) -> Option<&'static str> {
        let id = line.text("run_id").unwrap_or_default();
        if line.event_type == "task_run_dispatched" {
            let run = Run { licence: Licence::of(line), is_spent: false };
            return self.0.insert(id.to_owned(), run).map(|_| "has the id of another run");
        }
        match self.0.get_mut(id) {
            None => Some("ends a run that nobody dispatched"),
            Some(run) => {
                std::mem::replace(&mut run.is_spent, true).then_some("ends a run that is over")
            }
        }
    }

    /// A Step is claimed. Answers what is wrong with that: whoever claims has a Run that has not
    /// claimed, and the Step is in its scope.
    pub(super) fn claim(&mut self, line: &Line) -> Vec<&'static str> {
        let (licence, mut faults) = (Licence::of(line), Vec::new());
        let step = line.step_id.as_deref().unwrap_or_default();
        if licence.allowed.as_ref().is_some_and(|ids| !ids.iter().any(|id| id == step)) {
            faults.push("is outside the scope of its run");
        }
        let id = line.text("run_id").unwrap_or_default();
        match self.0.get_mut(id) {
            Some(run) => {
                if run.licence != licence {
                    faults.push("gives its run another scope");
                }
                if std::mem::replace(&mut run.is_spent, true) {
                    faults.push("is under a run that is over");
                }
            }
            None => {
                if licence.by != SYSTEM {
                    faults.push("is under a run that nobody dispatched");
                }
                self.0.insert(id.to_owned(), Run { licence, is_spent: true });
            }
        }
        faults
    }
}
