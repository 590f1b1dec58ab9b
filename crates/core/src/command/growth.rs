//! Which commands add to a Task (LIVE-01).

use super::Command;
use crate::status::StepStatus;

impl Command {
    /// Whether the command adds to the Task. Such a command is refused while there are too many bytes of Tasks
    /// (LIVE-01).
    pub fn grows(&self) -> bool {
        match self {
            Self::TaskUpdate { .. }
            | Self::DispatchWorker(_)
            | Self::AppendTaskProgress(_)
            | Self::TaskFact(_) => true,
            Self::TaskUpdateStep(report) => {
                matches!(report.status, None | Some(StepStatus::Running))
            }
            _ => false,
        }
    }
}
