//! Holds the final report on a Step until its handler returns (CTX-10).

use std::path::Path;
use std::time::Duration;

use smol_str::SmolStr;
use tenure_core::command::{GiveBack, StepReport};
use tenure_core::event::ReleaseReason;
use tenure_core::id::Ref;
use tenure_core::record::Object;
use tenure_core::status::{StepStatus, WaitKind};
use tenure_core::{Code, Rejection};
use tenure_ports::observer::HandlerEnd;

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
        self.give_back_because(ReleaseReason::Unfit, retry_after)
    }

    /// LEASE-18: gives the Step back, because this worker has no room for it now. That is no fault of the worker
    /// either: it stays as fit for other Steps. The Step goes to any worker, after this time at the earliest (an hour
    /// at most).
    ///
    /// # Errors
    /// `stale_attempt` after a final word.
    pub fn give_back_for_room(&self, retry_after: Duration) -> Result<(), Refused> {
        self.give_back_because(ReleaseReason::Surplus, Some(retry_after))
    }

    fn give_back_because(
        &self,
        reason: ReleaseReason,
        retry_after: Option<Duration>,
    ) -> Result<(), Refused> {
        let ms = |after: Duration| u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        let ms = retry_after.map(|after| ms(after).min(GiveBack::RETRY_AFTER_MS_MAX));
        let how = GiveBack { retry_after_ms: ms, ..GiveBack::because(reason) };
        self.end_with(Final::GiveBack(how))
    }

    /// As [`give_back`](Self::give_back), for what the worker lacks with so many Steps at a time: it
    /// runs fewer from now on.
    pub(in crate::worker) fn give_back_lacking(&self, what: String) -> Result<(), Refused> {
        *self.shared.lacked.lock() = Some(what);
        self.give_back(None)
    }

    /// What the worker lacked for the Step, if that is why it goes back.
    pub(in crate::worker) fn take_lacked(&self) -> Option<String> {
        self.shared.lacked.lock().take()
    }

    pub(super) fn speak(&self, say: impl FnOnce(&mut StepReport)) -> Result<(), Refused> {
        let mut report = self.report();
        say(&mut report);
        if report.status == Some(StepStatus::Completed) {
            self.check_peer()?;
        }
        self.end_with(Final::Report(Box::new(report)))
    }

    /// REPORT-19: the scheduler would refuse the report, but only when the handler has returned.
    fn check_peer(&self) -> Result<(), Refused> {
        match &*self.shared.peer.lock() {
            Some(peer) if !peer.reconciled => {
                let message = format!("the facts of {} are not stored here", peer.remote_task_id);
                Err(Rejection::new(Code::FactsUnreconciled, message))
            }
            _ => Ok(()),
        }
    }

    fn end_with(&self, word: Final) -> Result<(), Refused> {
        let mut spoken = self.shared.spoken.lock();
        if spoken.is_some() {
            return Err(said_already());
        }
        *spoken = Some(word);
        Ok(())
    }

    /// ATT-09: adds a checkpoint to the final report: the next Attempt finds it if, and only if, that was recorded.
    ///
    /// # Errors
    /// `stale_attempt` before a final report; `validation_error` for what is no reference.
    pub fn checkpoint_with_end(&self, at: &str) -> Result<(), Refused> {
        let at = Ref::new(at)?;
        match &mut *self.shared.spoken.lock() {
            Some(Final::Report(report)) => {
                report.checkpoint_refs.push(at);
                Ok(())
            }
            _ => Err(Rejection::new(Code::StaleAttempt, "say a final word first")),
        }
    }

    /// How the handler has ended, by its final report so far, with the code of its error.
    pub(in crate::worker) fn end(&self, is_stopped: bool) -> (HandlerEnd, Option<SmolStr>) {
        match &*self.shared.spoken.lock() {
            Some(Final::GiveBack(_)) => (HandlerEnd::GivenBack, None),
            Some(Final::Report(report)) => {
                let code = report.reason.as_ref().and_then(|reason| reason.code.clone());
                match report.status {
                    Some(StepStatus::Failed) => (HandlerEnd::Failed, code),
                    Some(StepStatus::Blocked) => (HandlerEnd::Blocked, None),
                    _ => (HandlerEnd::Completed, None),
                }
            }
            None if is_stopped => (HandlerEnd::Stopped, None),
            None => (HandlerEnd::Silent, None),
        }
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

    /// CTX-02: fails the Step for good: another try would fail alike.
    pub(in crate::worker) fn fail_for_good(
        &self,
        code: &str,
        message: &str,
        details: Option<Object>,
    ) -> Result<(), Refused> {
        self.speak(|report| {
            report.status = Some(StepStatus::Failed);
            report.reason = Some(reason(code, message, details, Some(false)));
        })
    }

    /// VALUE-01: fails the Step, as its input cannot be read. It is not retried: another try would not
    /// read it either.
    pub(in crate::worker) fn fail_for_input(&self, refused: &Rejection) {
        let message = cut(&format!("an input cannot be read: {}", refused.message));
        let _ = self.speak(|report| {
            report.status = Some(StepStatus::Failed);
            report.reason = Some(reason(refused.code.as_str(), &message, None, Some(false)));
        }); // The handler has not begun, so there is no report yet.
    }

    /// VALUE-02: fails the Step, as its output is larger than any value may be. A copy of it is here.
    pub(in crate::worker) fn fail_too_large(
        &self,
        message: &str,
        copy: &Path,
    ) -> Result<(), Refused> {
        let copy = copy.display().to_string().into();
        let details = Some(Object::from_iter([("copy".to_owned(), copy)]));
        self.speak(|report| {
            report.status = Some(StepStatus::Failed);
            let code = Code::ValueTooLarge.as_str();
            report.reason = Some(reason(code, message, details, Some(false)));
        })
    }

    /// VALUE-02: the final report instead of one whose output cannot be put.
    pub(in crate::worker) fn output_failed(
        &self,
        refused: &Rejection,
        details: Option<Object>,
    ) -> StepReport {
        let mut report = self.report();
        report.status = Some(StepStatus::Failed);
        let message = cut(&refused.message);
        let retryable = Some(refused.code.is_retryable());
        report.reason = Some(reason(refused.code.as_str(), &message, details, retryable));
        report.run_result = self.run_result();
        report
    }

    /// The final report to send if the handler's own can never be recorded. The Step is not
    /// retried, because it would report the same. If only the facts of its peer are not stored here yet,
    /// the Step waits for them and keeps what it has made (REPORT-19).
    pub(in crate::worker) fn ended_by(&self, refused: &Rejection, word: &Final) -> StepReport {
        let message = cut(&format!("the result was refused: {}", refused.message));
        let why = |retryable| Some(reason(refused.code.as_str(), &message, None, retryable));
        match word {
            Final::Report(said) if refused.code == Code::FactsUnreconciled => StepReport {
                status: Some(StepStatus::Blocked),
                wait_kind: Some(WaitKind::Dependency),
                reason: why(None),
                output: None,
                reply: None,
                ..(**said).clone()
            },
            _ => StepReport {
                status: Some(StepStatus::Failed),
                reason: why(Some(false)),
                ..self.report()
            },
        }
    }
}

pub(super) fn said_already() -> Rejection {
    Rejection::new(Code::StaleAttempt, "the final word on this step has been said")
}
