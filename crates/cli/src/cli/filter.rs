//! Which items of a list are asked for: those in a status, and a part of a long answer.

use clap::Args;
use tenure_core::status::{AttemptStatus, StepStatus, TaskStatus};
use tenure_core::view::Normal;

/// Which part of a long answer.
#[derive(Debug, Clone, Args)]
pub(crate) struct Cut {
    /// At most so many
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,

    /// From this one on
    #[arg(long, value_name = "N", default_value_t)]
    pub(crate) offset: usize,
}

/// A status that is asked for by its name: that of the log, or that which tables show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked<S> {
    native: Option<S>,
    normal: Option<Normal>,
}

impl<S: Copy + PartialEq> Asked<S> {
    /// The status of this name; the error names them all.
    fn named(text: &str, native: Option<S>, natives: &[&'static str]) -> Result<Self, String> {
        let normal = Normal::from_name(text);
        if native.is_none() && normal.is_none() {
            let shown = Normal::ALL.iter().map(|s| s.as_str()).filter(|s| !natives.contains(s));
            return Err(one_of(natives.iter().copied().chain(shown)));
        }
        Ok(Self { native, normal })
    }

    fn fits(self, native: S, normal: Normal) -> bool {
        self.native == Some(native) || self.normal == Some(normal)
    }

    /// Whether one of these fits.
    pub(crate) fn any(asked: &[Self], native: S, normal: Normal) -> bool {
        asked.iter().any(|one| one.fits(native, normal))
    }

    /// The native statuses, if they tell all of these: what is `running` or `blocked` to a table may be
    /// something else in the log, and what has another name there as well.
    pub(crate) fn natives(asked: &[Self]) -> Option<Vec<S>> {
        let told = asked.iter().map(|one| match one.normal {
            Some(Normal::Running | Normal::Blocked) => None,
            _ => one.native,
        });
        told.collect::<Option<Vec<S>>>().filter(|told| !told.is_empty())
    }
}

/// A status of a Task.
pub(crate) fn task_status(text: &str) -> Result<Asked<TaskStatus>, String> {
    let names: Vec<&str> = TaskStatus::ALL.iter().map(|status| status.as_str()).collect();
    Asked::named(text, TaskStatus::from_name(text), &names)
}

/// A status of a Step.
pub(crate) fn step_status(text: &str) -> Result<Asked<StepStatus>, String> {
    let names: Vec<&str> = StepStatus::ALL.iter().map(|status| status.as_str()).collect();
    Asked::named(text, StepStatus::from_name(text), &names)
}

/// A status of an Attempt.
pub(crate) fn attempt_status(text: &str) -> Result<Asked<AttemptStatus>, String> {
    let names: Vec<&str> = AttemptStatus::ALL.iter().map(|status| status.as_str()).collect();
    Asked::named(text, AttemptStatus::from_name(text), &names)
}

pub(crate) fn one_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    format!("one of: {}", names.collect::<Vec<_>>().join(", "))
}
