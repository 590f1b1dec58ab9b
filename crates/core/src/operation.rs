//! Queries: operations that change nothing. Each is a type, whose fields are its input.
//!
//! Names, rights, and how an answer gets shorter are defined here once, for everything that carries
//! queries and answers: the bus, the process of a scheduler, gateways. Each query is in the file of
//! what it returns, together with its input and its answer.
//!
//! Operations that change a Task are commands: [`Command`](crate::Command).

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::command::{Caller, Operator};
use crate::limits::Limits;
use crate::reject::{Code, Rejection};
use crate::status::names;
use crate::view::{Known, View};

names! {
    /// What a query reads, and so which node answers it.
    Reads {
        /// The Task that it names: its owner answers.
        Task = "task",
        /// The Tasks of a partition: the owner of each partition answers, as callers want all.
        Partition = "partition",
        /// Nothing: any node answers.
        Nothing = "nothing",
    }
}

/// An operation that changes nothing, as a request: its fields are its input.
pub trait Query: Serialize + DeserializeOwned + JsonSchema + Clone + Send + Sync + 'static {
    /// Its name.
    const NAME: &'static str;

    /// The tool that the caller must have (PERM).
    const TOOL: Operator;

    /// What it reads.
    const READS: Reads = Reads::Task;

    /// The codes with which it may be refused, beside [`Code::COMMON`].
    const REFUSALS: &'static [Code] = &[];

    /// The answer.
    type Output: Serialize + DeserializeOwned + JsonSchema + Send + 'static;

    /// Whether a node shortens an answer to the length of a page, rather than to that of a message,
    /// because the caller then asks for the next page. True for queries about a Task's past;
    /// queries that a node answers in ways of their own cut by themselves.
    const IN_PARTS: bool = false;

    /// Removes a part of an answer that is too long (CTRL-06). Returns whether there was something
    /// to remove.
    fn shorten(&self, _: &mut Self::Output) -> bool {
        false
    }
}

/// A query that reads one Task as it stands, and nothing else.
pub trait TaskQuery: Query {
    /// Checks the input, before any Task is read.
    ///
    /// # Errors
    /// `validation_error` for the input.
    fn check(&self, _: &Limits) -> Result<(), Rejection> {
        Ok(())
    }

    /// Reads the Task.
    ///
    /// # Errors
    /// The Task, the caller or the input does not allow it.
    fn read(
        &self,
        task: &View<'_>,
        caller: &Caller,
        known: &Known<'_>,
        limits: &Limits,
    ) -> Result<Self::Output, Rejection>;

    /// As [`read`](Self::read), for a caller to whom at most so many bytes can be sent. A query whose
    /// answer may be far longer gives the shortened one at once: to make all of it would cost as much as the Task
    /// is long, only to leave it out (CTRL-06).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_within(
        &self,
        task: &View<'_>,
        caller: &Caller,
        known: &Known<'_>,
        limits: &Limits,
        _max_bytes: usize,
    ) -> Result<Self::Output, Rejection> {
        self.read(task, caller, known, limits)
    }
}
