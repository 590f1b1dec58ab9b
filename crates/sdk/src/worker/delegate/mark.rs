//! What an Attempt leaves in checkpoints for the next one: which task of the agent is its own, and which answers were
//! sent.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tenure_core::id::Ref;

/// How such a checkpoint begins; JSON follows.
const PREFIX: &str = "tenure-a2a:";

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WorkMark {
    /// The agent has begun a task.
    Begun {
        /// How often the work has begun before.
        round: u32,
        /// The task.
        task: String,
    },
    /// These answers have come to the agent.
    Sent(Vec<String>),
    /// The task of this round has failed: another try begins anew.
    Ended(u32),
}

impl WorkMark {
    /// The checkpoint as a reference.
    pub(super) fn to_text(&self) -> String {
        let json = serde_json::to_string(self).unwrap_or_default(); // It has texts as keys, and so a form.
        format!("{PREFIX}{json}")
    }

    fn of(reference: &Ref) -> Option<Self> {
        serde_json::from_str(reference.as_str().strip_prefix(PREFIX)?).ok()
    }
}

/// What is known of the work of earlier Attempts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PriorWork {
    /// How often the work has ended with a failure.
    pub(super) round: u32,
    /// The task that goes on.
    pub(super) task: Option<String>,
    /// The answers that were sent.
    pub(super) sent: BTreeSet<String>,
}

impl PriorWork {
    /// What the checkpoints say, in any order.
    pub(super) fn of(checkpoints: &[Ref]) -> Self {
        let marks: Vec<WorkMark> = checkpoints.iter().filter_map(WorkMark::of).collect();
        let ended = |mark: &WorkMark| {
            if let WorkMark::Ended(round) = mark { Some(round + 1) } else { None }
        };
        let mut work =
            Self { round: marks.iter().filter_map(ended).max().unwrap_or(0), ..Self::default() };
        for mark in marks {
            match mark {
                WorkMark::Begun { round, task } if round == work.round => work.task = Some(task),
                WorkMark::Sent(answers) => work.sent.extend(answers),
                WorkMark::Begun { .. } | WorkMark::Ended(_) => {}
            }
        }
        work
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(marks: &[WorkMark]) -> PriorWork {
        let refs: Vec<Ref> = marks.iter().map(|mark| Ref::new(mark.to_text()).unwrap()).collect();
        let mut backwards = refs.clone();
        backwards.reverse();
        let work = PriorWork::of(&refs);
        assert_eq!(PriorWork::of(&backwards), work, "their order says nothing");
        work
    }

    /// Another Attempt goes on with the task of the one before, and begins another one only after a failure.
    #[test]
    fn work_goes_on_with_its_task_until_that_has_failed() {
        let begun = |round, task: &str| WorkMark::Begun { round, task: task.into() };
        assert_eq!(work(&[]), PriorWork::default());
        let sent = WorkMark::Sent(vec!["a".into()]);
        let goes_on = work(&[begun(0, "t"), sent.clone()]);
        assert_eq!((goes_on.task.as_deref(), goes_on.sent.len()), (Some("t"), 1));
        let anew = work(&[begun(0, "t"), sent.clone(), WorkMark::Ended(0)]);
        assert_eq!((anew.round, anew.task, anew.sent.len()), (1, None, 1));
        let second = work(&[begun(0, "t"), WorkMark::Ended(0), begun(1, "u")]);
        assert_eq!((second.round, second.task.as_deref()), (1, Some("u")));
    }

    #[test]
    fn checkpoints_of_others_are_passed_over() {
        let others = ["file:///a", "tenure-a2a:", "tenure-a2a:{}", "tenure-a2a:{\"other\":1}"];
        let refs: Vec<Ref> = others.iter().map(|it| Ref::new(it).unwrap()).collect();
        assert_eq!(PriorWork::of(&refs), PriorWork::default());
    }
}
