//! Who may put and get the blobs of a Task (VALUE-01).

use alloc::format;

use super::claim::{ClaimResult, claim_result};
use crate::command::blobs::{BlobHolder, no_holder};
use crate::command::report::stale;
use crate::command::{Caller, Operator, check_tool};
use crate::id::{AttemptId, BlobHash};
use crate::read::View;
use crate::record::{Blob, Value};
use crate::reject::{Code, Rejection};
use crate::status::Role;
use crate::task::Attempt;

impl ClaimResult {
    /// Whether the claim hands this blob on to its worker.
    fn carries(&self, hash: BlobHash) -> bool {
        let outputs = self.dependencies.iter().filter_map(|it| it.output.as_ref());
        let mut values = outputs.chain(&self.step.input).filter_map(Value::blob);
        let mut refs = self.input_refs.iter().chain(&self.checkpoint_refs);
        values.any(|blob| blob.hash == hash)
            || refs.any(|it| Blob::hash_in(it.as_str()) == Some(hash))
    }
}

impl View<'_> {
    /// Whether the caller may read this blob of the Task (VALUE-01): whoever may read the Task, and a
    /// worker for a Step that it holds, if the claim carries the ref.
    ///
    /// # Errors
    /// Why not.
    pub fn check_blob_get(
        &self,
        caller: &Caller,
        holder: Option<BlobHolder>,
        hash: BlobHash,
    ) -> Result<(), Rejection> {
        check_tool(caller, Operator::BlobGet)?;
        if caller.role != Role::Worker {
            return Ok(());
        }
        let attempt = self.held_by(caller, holder)?;
        let carries = claim_result(self, attempt).is_some_and(|claim| claim.carries(hash));
        if carries {
            return Ok(());
        }
        let message = "a worker gets the blobs that its claim carries, and no others";
        Err(Rejection::new(Code::PermissionDenied, message)
            .with("ref", Blob::reference_to(hash).as_str()))
    }

    /// Whether the caller may put blobs of the Task: an orchestrator while the Task is live, and a worker
    /// for a Step that it holds, or that it lost and may still complete (REPORT-14).
    ///
    /// # Errors
    /// Why not.
    pub fn check_blob_put(
        &self,
        caller: &Caller,
        holder: Option<BlobHolder>,
    ) -> Result<(), Rejection> {
        check_tool(caller, Operator::BlobPut)?;
        if caller.role == Role::Worker {
            let held = self.held_by(caller, holder).map(drop);
            return held.or_else(|no| if self.is_late(caller, holder) { Ok(()) } else { Err(no) });
        }
        if self.status().is_terminal() {
            let message = format!("the task is {}", self.status());
            return Err(Rejection::new(Code::TaskTerminal, message)
                .with("native_status", self.status().as_str()));
        }
        Ok(())
    }

    /// Whether the Attempt was lost, and its late result would still count.
    fn is_late(&self, caller: &Caller, holder: Option<BlobHolder>) -> bool {
        holder.is_some_and(|BlobHolder { attempt_id, fencing_token }| {
            let is_its_run = |it: &&Attempt| caller.run_id == Some(it.run_id);
            self.attempt(attempt_id).filter(is_its_run).is_some()
                && self.may_complete_late(&caller.agent, attempt_id, fencing_token)
        })
    }

    fn held_by(&self, caller: &Caller, holder: Option<BlobHolder>) -> Result<AttemptId, Rejection> {
        let BlobHolder { attempt_id, fencing_token } = holder.ok_or_else(no_holder)?;
        self.check_holder(&caller.agent, attempt_id, fencing_token)?;
        let is_of_run = self.attempt(attempt_id).is_some_and(|it| caller.run_id == Some(it.run_id));
        if is_of_run { Ok(attempt_id) } else { Err(stale()) }
    }
}
