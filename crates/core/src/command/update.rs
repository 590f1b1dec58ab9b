//! `agent.task_update`: patches (PATCH).

use super::Tx;
use super::tx::Did;
use crate::event::TaskUpdated;
use crate::patch::Operation;
use crate::reject::{Code, Rejection};
use crate::task::Task;
use crate::task::apply::At;

impl Tx<'_, '_> {
    pub(super) fn update(&mut self, _operations: &[Operation]) -> Result<Did, Rejection> {
        Err(Rejection::new(Code::ValidationError, "not built yet"))
    }
}

impl Task {
    pub(crate) fn apply_patch(&mut self, _: &TaskUpdated, _: At) -> Result<(), alloc::string::String> {
        Err("not built yet".into())
    }
}
