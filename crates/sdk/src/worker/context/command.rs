//! What the command of a Step says through its worker ([`run_tools`](super::super::run_tools)).

use std::sync::Arc;

use tenure_core::command::StepReport;
use tenure_core::id::TaskId;
use tenure_core::view::ClaimResult;
use tenure_ports::bus::Recorded;

use super::super::reporter::Reporter;
use super::last::said_already;
use super::{Refused, StepContext};

impl StepContext {
    pub(in crate::worker) fn reporter(&self) -> &dyn Reporter {
        &*self.shared.reporter
    }

    /// The claim, with this Task in place of its own: a command may name any Task, and the scheduler judges that.
    pub(in crate::worker) fn on(&self, task: &TaskId) -> ClaimResult {
        ClaimResult { task_id: task.clone(), ..self.claim().clone() }
    }

    /// Whether there is a final report.
    pub(in crate::worker) fn has_said(&self) -> bool {
        self.shared.spoken.lock().is_some()
    }

    /// Holds the final report of a command.
    ///
    /// # Errors
    /// As those of [`complete`](Self::complete).
    pub(in crate::worker) fn say_for_command(&self, said: StepReport) -> Result<(), Refused> {
        if let Some(result) = &said.run_result {
            self.set_run_result(result)?;
        }
        self.speak(|report| {
            let input_seen = report.input_seen;
            *report = StepReport { input_seen, ..said };
        })
    }

    /// Sends a report of a command that is not final, or is to be refused.
    ///
    /// # Errors
    /// As those of [`send_status`](Self::send_status).
    pub(in crate::worker) async fn send_for_command(
        &self,
        task: &TaskId,
        said: StepReport,
    ) -> Result<Recorded, Refused> {
        if self.has_said() {
            return Err(said_already());
        }
        let input_seen = self.report().input_seen;
        let remote = said.remote.clone().filter(|_| said.step_id == *self.step_id());
        let report = StepReport { input_seen, ..said };
        let recorded = Arc::clone(&self.shared.reporter).send(&self.on(task), report).await?;
        if let Some(peer) = remote {
            *self.shared.peer.lock() = Some(peer); // REPORT-19 looks at it.
        }
        Ok(recorded)
    }

    /// Adds the end of what a command printed to the final report, unless that has a summary of its own.
    pub(in crate::worker) fn summarise_output(&self, tail: &str) -> Result<(), Refused> {
        let has_own = match &*self.shared.spoken.lock() {
            Some(super::Final::Report(report)) => report.result_summary.is_some(),
            _ => false,
        };
        if has_own { Ok(()) } else { self.summarise(tail) }
    }
}
