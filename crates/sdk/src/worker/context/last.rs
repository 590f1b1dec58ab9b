//! The last word on a Step, kept until its handler returns (CTX-10).

use std::time::Duration;

use tenure_core::command::{GiveBack, StepReport};
use tenure_core::event::ReleaseReason;
use tenure_core::status::StepStatus;
use tenure_core::{Code, Rejection};

use super::super::words::{cut, reason};
use super::{Refused, StepContext};

/// The last word on a Step.
pub(in crate::worker) enum Final {
    /// It is completed, failed, or waits.
    Report(Box<StepReport>),
    /// It goes back.
    GiveBack(GiveBack),
}

impl StepContext {
    /// LEASE-18: this worker cannot run the Step for what it lacks itself, such as room on its disk, and not
    /// for what the Step asks. The Step goes to others, after this time at the earliest (an hour at most),
    /// and no failure is counted.
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

    /// The final word with everything attached; none if the handler said none.
    pub(in crate::worker) fn take_final(&self) -> Option<Final> {
        let mut last = self.shared.spoken.lock().take()?;
        if let Final::Report(report) = &mut last {
            report.artifacts.append(&mut self.shared.artifacts.lock());
            report.run_result = self.run_result();
        }
        Some(last)
    }

    /// What the Run says in the end, whether there is a final word or not.
    pub(in crate::worker) fn run_result(&self) -> Option<String> {
        self.shared.run_result.lock().clone()
    }

    /// The final word of a handler that broke (CTX-03). What it had said before stands.
    pub(in crate::worker) fn fail_if_silent(&self, message: &str) {
        let _ = self.fail("unhandled_exception", &cut(message), None); // Refused if it had spoken.
    }

    /// The final word where the handler's own can never be recorded. Trying again would say the same.
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
