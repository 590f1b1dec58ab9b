//! The filters of lists: by name or status, and a part of a long answer.

use std::fmt::Display;

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

/// A status given by name: the native one of the log, or the one that tables show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StatusFilter<S> {
    native: Option<S>,
    normal: Option<Normal>,
}

impl<S: Copy + PartialEq + Display> StatusFilter<S> {
    /// The status of this name; the error names them all.
    fn named(text: &str, natives: &[S], normals: &[Normal]) -> Result<Self, String> {
        let native = natives.iter().copied().find(|native| native.to_string() == text);
        let normal = normals.iter().copied().find(|normal| normal.as_str() == text);
        if native.is_none() && normal.is_none() {
            let mut names: Vec<String> = natives.iter().map(S::to_string).collect();
            let shown = normals.iter().map(Normal::to_string);
            let shown: Vec<String> = shown.filter(|name| !names.contains(name)).collect();
            names.extend(shown);
            return Err(one_of(&names));
        }
        Ok(Self { native, normal })
    }

    fn fits(self, native: S, normal: Normal) -> bool {
        self.native == Some(native) || self.normal == Some(normal)
    }

    /// Whether one of these matches.
    pub(crate) fn any(asked: &[Self], native: S, normal: Normal) -> bool {
        asked.iter().any(|one| one.fits(native, normal))
    }

    /// Whether one of these is this status of tables.
    pub(crate) fn name(asked: &[Self], normal: Normal) -> bool {
        asked.iter().any(|one| one.normal == Some(normal))
    }

    /// Whether one of these is a status that only what has ended has. To ask for one is to ask for what has
    /// ended.
    pub(crate) fn name_ended(asked: &[Self]) -> bool {
        let ended = [
            Normal::Completed,
            Normal::Cancelled,
            Normal::TimedOut,
            Normal::Failed,
            Normal::Archived,
        ];
        ended.into_iter().any(|normal| Self::name(asked, normal))
    }

    /// The native statuses that select exactly these. None if no native statuses do: what is
    /// `running` or `blocked` in a table may have another status in the log, and some names are
    /// only those of tables.
    pub(crate) fn natives(asked: &[Self]) -> Option<Vec<S>> {
        let told = asked.iter().map(|one| match one.normal {
            Some(Normal::Running | Normal::Blocked) => None,
            _ => one.native,
        });
        told.collect::<Option<Vec<S>>>().filter(|told| !told.is_empty())
    }
}

/// A status of a Task.
pub(crate) fn task_status(text: &str) -> Result<StatusFilter<TaskStatus>, String> {
    StatusFilter::named(text, TaskStatus::ALL, Normal::OF_TASKS)
}

/// A status of a Step.
pub(crate) fn step_status(text: &str) -> Result<StatusFilter<StepStatus>, String> {
    StatusFilter::named(text, StepStatus::ALL, Normal::OF_TASKS)
}

/// A status of an Attempt.
pub(crate) fn attempt_status(text: &str) -> Result<StatusFilter<AttemptStatus>, String> {
    StatusFilter::named(text, AttemptStatus::ALL, Normal::ALL)
}

/// The value of this name; the error names them all.
pub(crate) fn named<T: Copy + Display>(text: &str, all: &[T]) -> Result<T, String> {
    let found = all.iter().copied().find(|one| one.to_string() == text);
    found.ok_or_else(|| one_of(&all.iter().map(T::to_string).collect::<Vec<_>>()))
}

fn one_of(names: &[String]) -> String {
    format!("one of: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// VIEW-08, LEASE-18: an Attempt can be asked for as `released`, a Task or Step cannot.
    #[test]
    fn only_attempts_are_released() {
        assert!(
            attempt_status("released")
                .is_ok_and(|it| it.fits(AttemptStatus::Ended, Normal::Released))
        );
        for refused in [task_status("released").err(), step_status("released").err()] {
            assert!(refused.is_some_and(|names| !names.contains("released")));
        }
    }
}
