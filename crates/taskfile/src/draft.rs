//! The steps of a file between reading their fields and looking up their dependencies.

use std::ops::Range;

use super::limits::STEPS_MAX;
use super::plan::PlanStep;
use super::report::{FileFinding, FindingReport};

/// The steps of a file before the names in their dependencies are looked up.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) steps: Vec<DraftStep>,
    /// Base ids of repeated Steps, with the Steps that each one produced.
    pub(super) groups: Vec<DraftGroup>,
}

/// A Step, with the places in the file that messages about its dependencies point at.
#[derive(Debug, Clone)]
pub(super) struct DraftStep {
    /// Without its dependencies.
    pub(super) step: PlanStep,
    pub(super) at: usize,
    pub(super) needs: Vec<Need>,
    /// The steps whose results it gets, if it names them.
    pub(super) inputs: Option<Vec<Need>>,
}

/// A dependency as written.
#[derive(Debug, Clone)]
pub(super) struct Need {
    pub(super) name: String,
    pub(super) at: usize,
}

#[derive(Debug)]
pub(super) struct DraftGroup {
    pub(super) id: String,
    pub(super) at: usize,
    pub(super) steps: Range<usize>,
}

impl Draft {
    /// Whether `more` steps still fit; if not, reports it.
    pub(super) fn has_room(&self, more: usize, at: usize, report: &FindingReport<'_>) -> bool {
        let fits = self.steps.len() + more <= STEPS_MAX;
        if !fits {
            report.add(|| too_many_steps(at));
        }
        fits
    }
}

/// The mistake of a file that asks for more Steps than a Task may have.
pub(super) fn too_many_steps(at: usize) -> FileFinding {
    FileFinding::at(at, format!("a task has at most {STEPS_MAX} steps"))
        .field("steps")
        .hint("split the work into several tasks, or let one step do several pieces of it")
}
