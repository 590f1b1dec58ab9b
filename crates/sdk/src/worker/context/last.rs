//! Holds the final report on a Step until its handler returns (CTX-10).

use std::time::Duration;

use tenure_core::command::{GiveBack, StepReport};
use tenure_core::event::ReleaseReason;
use tenure_core::status::StepStatus;
use tenure_core::{Code, Rejection};

use super::super::words::{cut, reason};
use super::{Refused, StepContext};

/// The final report on a Step.
pub(in crate::worker) enum Final {
    /// The Step is completed, failed or blocked.
    Report(Box<StepReport>),
    /// The Step goes back to other workers.
    GiveBack(GiveBack),
}

impl StepContext {
    /// LEASE-18: gives the Step back, because this worker itself lacks something that the Step
    /// needs, such as disk space. The fault is not the Step's: no failure is counted, and the Step
    /// goes to other workers, after this time at the earliest (an hour at most).
    ///
    /// # Errors
    /// `stale_attempt` after a final word.
    pub fn give_back(&self, retry_after: Option<Duration>) -> Result<(), Refused> {
        let ms = |after: Duration| u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        let ms = retry_after.map(|after| ms(after).min(GiveBack::RETRY_AFTER_MS_MAX));
        let how = GiveBack { retry_after_ms: ms, ..GiveBack::because(ReleaseReason::Unfit) };
        self.end_with(|_| Final::GiveBack(how))
    }

    pub(super) fn speak(&self, say: impl FnOnce(&mut StepReport)) -> Result<(), Refused> {
        self.end_with(|mut report| {
            say(&mut report);
            Final::Report(Box::new(report))
        })
    }

    fn end_with(&self, word: impl FnOnce(StepReport) -> Final) -> Result<(), Refused> {
        let mut spoken = self.shared.spoken.lock();
        if spoken.is_some() {
            return Err(said_already());
        }
        *spoken = Some(word(self.report()));
        Ok(())
    }

    /// The final report with everything attached; none if the handler made none.
    pub(in crate::worker) fn take_final(&self) -> Option<Final> {
        let mut last = self.shared.spoken.lock().take()?;
        if let Final::Report(report) = &mut last {
            report.artifacts.append(&mut self.shared.artifacts.lock());
            report.run_result = self.run_result();
        }
        Some(last)
    }

    /// The result of the Run itself, with or without a final report.
    pub(in crate::worker) fn run_result(&self) -> Option<String> {
        self.shared.run_result.lock().clone()
    }

    /// Makes the final report for a handler that broke (CTX-03), unless it has made one before.
    pub(in crate::worker) fn fail_if_silent(&self, message: &str) {
        let _ = self.fail("unhandled_exception", &cut(message), None); // Refused if there is one.
    }

    /// The final report to send if the handler's own can never be recorded. The Step is not
    /// retried, because it would report the same.
    pub(in crate::worker) fn failed_by(&self, refused: &Rejection) -> StepReport {
        let mut report = self.report();
        report.status = Some(StepStatus::Failed);
        let message = cut(&format!("the result was refused: {}", refused.message));
        report.reason = Some(reason(refused.code.as_str(), &message, None, Some(false)));
        report
    }
}

pub(super) fn said_already() -> Rejection {
    Rejection::new(Code::StaleAttempt, "the final word on this step has been said")
}
