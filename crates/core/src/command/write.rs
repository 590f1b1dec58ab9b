//! The requests that create or change a Task, and the context that a caller gives with each.

use alloc::boxed::Box;

use smol_str::SmolStr;

use super::create::CreateTask;
use super::{Command, RetryEnded};
use crate::id::CommandId;

/// What a caller gives with a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// The caller's id for the command: a repeated command gets the first answer (IDEM-01).
    pub command_id: CommandId,
    /// Carry the command out only at this version (OCC-02).
    pub expected_version: Option<u64>,
    /// Carry the command out only at this version of what orchestrators have specified (OCC-07).
    pub expected_spec_version: Option<u64>,
    /// W3C traceparent.
    pub trace: Option<SmolStr>,
}

impl Context {
    /// A command with this id.
    pub const fn new(command_id: CommandId) -> Self {
        Self { command_id, expected_version: None, expected_spec_version: None, trace: None }
    }
}

/// A request that creates or changes a Task.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// `task_create`: the input names the Task (U15).
    Create(Box<CreateTask>),
    /// `retry_task` of a Task that has ended: creates it again as another Task (RETRY-12).
    RetryEnded(Box<RetryEnded>),
    /// A command on a Task that exists.
    Command(Box<Command>),
}

impl From<CreateTask> for Write {
    fn from(input: CreateTask) -> Self {
        Self::Create(Box::new(input))
    }
}

impl From<RetryEnded> for Write {
    fn from(input: RetryEnded) -> Self {
        Self::RetryEnded(Box::new(input))
    }
}

impl From<Command> for Write {
    fn from(command: Command) -> Self {
        Self::Command(Box::new(command))
    }
}
