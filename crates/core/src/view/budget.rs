//! Answers within the caller's budget (CTRL-06).

use serde::{Deserialize, Serialize};

use super::read::View;
use crate::id::TaskId;

/// Where an answer can be had that did not fit: `agent.task_get` resolves it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// The operation that answers in full.
    pub operation: smol_str::SmolStr,
    /// The Task.
    pub task_id: TaskId,
    /// The version that was read.
    pub version: u64,
}

impl Reference {
    /// A reference to a view.
    pub fn to(view: &View<'_>) -> Self {
        Self {
            operation: smol_str::SmolStr::new_static("agent.task_get"),
            task_id: view.task_id().clone(),
            version: view.version(),
        }
    }
}

/// The first of several forms of an answer, from full to short, that fits `max_bytes`; the last one
/// if none does. `size` says how large a form is as it will be sent.
///
/// Forms are made one after another, so a short one costs nothing while the full one fits.
pub fn first_that_fits<T>(
    max_bytes: usize,
    forms: impl IntoIterator<Item = T>,
    size: impl Fn(&T) -> usize,
) -> Option<T> {
    let mut last = None;
    for form in forms {
        let fits = size(&form) <= max_bytes;
        last = Some(form);
        if fits {
            break;
        }
    }
    last
}
