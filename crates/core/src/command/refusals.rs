//! The codes with which each operation may be refused (5.1 to 5.4). With debug assertions, and so
//! in every test, [`Task::decide`](crate::Task::decide) and
//! [`Task::create`](crate::Task::create) check their refusals against this list.

use super::Operator;
use crate::reject::{Code, Rejection};

/// The codes that every command may be refused with, beside [`Code::COMMON`]: those of K6 and K10.
const OF_COMMANDS: &[Code] = &[Code::VersionConflict, Code::IdempotencyConflict];

impl Operator {
    /// Whether a command of this operation may be refused with this code.
    pub fn may_refuse(self, code: Code) -> bool {
        Code::COMMON.contains(&code) || self.refusals().any(|one| one == code)
    }

    /// The codes that a command of this operation may be refused with, beside [`Code::COMMON`].
    pub fn refusals(self) -> impl Iterator<Item = Code> {
        OF_COMMANDS.iter().chain(self.own_refusals()).copied()
    }

    /// Asserts, with debug assertions, that a decision keeps to that.
    pub(super) fn check_refusal<T>(self, decided: &Result<T, Rejection>) {
        let is_told = |refused: &Rejection| self.may_refuse(refused.code);
        debug_assert!(
            decided.as_ref().err().is_none_or(is_told),
            "{self}: {:?}",
            decided.as_ref().err()
        );
    }

    /// The codes of the operation itself: what a worker reports is refused with no others beside
    /// [`Code::COMMON`], as it carries neither an id nor a version.
    pub const fn own_refusals(self) -> &'static [Code] {
        use Code as C;
        match self {
            Self::TaskCreate => &[
                C::TaskIdConflict,
                C::PathConflict,
                C::DependencyCycle,
                C::TaskTerminal,
                C::TaskCancelling,
                C::BlobMissing,
                C::ValueTooLarge,
                C::StorageUnavailable,
                C::QuotaExceeded,
            ],
            Self::TaskUpdate => &[
                C::TaskTerminal,
                C::TaskCancelling,
                C::CreationUnfinished,
                C::StepNotFound,
                C::StepInProgress,
                C::StepHistoryImmutable,
                C::InvalidTransition,
                C::DependencyCycle,
                C::StepHasDependents,
                C::BlobMissing,
                C::ValueTooLarge,
                C::StorageUnavailable,
                C::QuotaExceeded,
            ],
            Self::TaskClaimStep => &[
                C::TaskTerminal,
                C::TaskCancelling,
                C::CreationUnfinished,
                C::RunNotFound,
                C::StepAlreadyClaimedByRun,
                C::RunEnded,
                C::TaskNotDispatchable,
                C::StepOutOfScope,
                C::StepAlreadyClaimed,
                C::StepNotReady,
            ],
            Self::TaskUpdateStep => &[
                C::TaskTerminal,
                C::TaskCancelling,
                C::StepNotFound,
                C::StaleAttempt,
                C::StepNotReady,
                C::FactsUnreconciled,
                C::StepInProgress,
                C::StepHistoryImmutable,
                C::InvalidTransition,
                C::BlobMissing,
                C::ValueTooLarge,
                C::StorageUnavailable,
                C::QuotaExceeded,
            ],
            Self::TaskComplete => &[
                C::TaskTerminal,
                C::TaskCancelling,
                C::InvalidTransition,
                C::StepsInProgress,
                C::RequiredStepsIncomplete,
                C::FactsUnreconciled,
                C::AcceptanceUnmet,
                C::BlobMissing,
                C::ValueTooLarge,
                C::StorageUnavailable,
            ],
            Self::DispatchWorker => &[
                C::TaskTerminal,
                C::TaskCancelling,
                C::CreationUnfinished,
                C::TaskNotDispatchable,
                C::StepNotFound,
                C::StepOutOfScope,
                C::StepAlreadyClaimed,
                C::StepNotReady,
                C::QuotaExceeded,
            ],
            Self::SubmitTask => &[
                C::TaskTerminal,
                C::TaskCancelling,
                C::CreationUnfinished,
                C::InvalidTransition,
                C::DependencyCycle,
            ],
            // For an ended Task it creates another: these are also the codes of a creation.
            Self::RetryTask => &[
                C::TaskTerminal,
                C::TaskCancelling,
                C::StepNotFound,
                C::InvalidTransition,
                C::TaskIdConflict,
                C::PathConflict,
                C::BlobMissing,
                C::StorageUnavailable,
                C::QuotaExceeded,
            ],
            Self::TaskFail
            | Self::PauseTask
            | Self::ResumeTask
            | Self::BlockTask
            | Self::ReopenTask
            | Self::ArchiveTask => &[C::TaskTerminal, C::TaskCancelling, C::InvalidTransition],
            Self::TaskFact => &[
                C::TaskTerminal,
                C::TaskCancelling,
                C::BlobMissing,
                C::ValueTooLarge,
                C::StorageUnavailable,
                C::QuotaExceeded,
            ],
            Self::LinkTasks => &[C::TaskTerminal, C::TaskCancelling, C::DependencyCycle],
            Self::TaskCancel
            | Self::AppendTaskProgress
            | Self::UnlinkTasks
            | Self::GrantStep
            | Self::ExpireLeases
            | Self::Due => &[C::TaskTerminal, C::TaskCancelling],
            Self::ReleaseStep | Self::Heartbeat => &[C::TaskTerminal, C::StaleAttempt],
            Self::DeclineRun => &[C::RunNotFound, C::InvalidTransition],
            Self::EndRun | Self::CancelRun | Self::TakeRun => &[C::RunNotFound],
            Self::BlobPut => &[
                C::TaskTerminal,
                C::StaleAttempt,
                C::ValueTooLarge,
                C::StorageUnavailable,
                C::QuotaExceeded,
            ],
            Self::BlobGet => {
                &[C::TaskTerminal, C::StaleAttempt, C::BlobMissing, C::StorageUnavailable]
            }
            Self::TaskGet
            | Self::TaskList
            | Self::TaskQuerySteps
            | Self::InspectTask
            | Self::TaskViews
            | Self::TaskBoardSummary
            | Self::TaskTemplate => &[],
        }
    }
}
