//! Queries: operations that change nothing. Each is a type, which is its own input.
//!
//! Names, rights and how an answer gets shorter stand here once, for everybody who carries queries and answers:
//! the bus, the process of a scheduler, gateways. A query stands in the file of what it tells, with what it
//! takes and what it is answered with.
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
    /// What a query reads, and so whom it is asked of.
    Reads {
        /// The Task that it names: its owner.
        Task = "task",
        /// The Tasks of a partition: the owner of each partition, as whoever asks wants all.
        Partition = "partition",
        /// Nothing: whoever is there.
        Nothing = "nothing",
    }
}

/// An operation that changes nothing, as it is asked for: its fields are its input.
pub trait Query: Serialize + DeserializeOwned + JsonSchema + Clone + Send + Sync + 'static {
    /// Its name.
    const NAME: &'static str;

    /// The tool that whoever asks must have (PERM).
    const TOOL: Operator;

    /// What it reads.
    const READS: Reads = Reads::Task;

    /// What it may be refused with, beside [`Code::COMMON`].
    const REFUSALS: &'static [Code] = &[];

    /// What it is answered with.
    type Output: Serialize + DeserializeOwned + JsonSchema + Send + 'static;

    /// A node shortens an answer to the length of a page rather than to that of a message, as whoever asks goes on
    /// behind it. Of queries about what a Task was; those that a node answers each in its own way cut by themselves.
    const IN_PARTS: bool = false;

    /// Gives up a part of an answer that is too long (CTRL-06). Answers whether there was something to give up.
    fn shorten(&self, _: &mut Self::Output) -> bool {
        false
    }
}

/// A query that reads one Task as it stands, and nothing else.
pub trait TaskQuery: Query {
    /// Whether it can be answered, whatever the Task is.
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
}
