//! [`Ask`], the operation in a request to the owner of a partition. The core lists the queries; the bus adds some.

use serde::Serialize;
use smol_str::SmolStr;
use tenure_core::command::create::{CreateTask, Parent};
use tenure_core::command::{Operator, RetryEnded, Write};
use tenure_core::id::{CommandId, TaskId};
use tenure_core::{Command, Query, Reads};

use super::event::{EventPage, ReadEvents};
use super::operate::{LeasePage, ListLeases};
use super::request::{Entries, List, LogPage, ReadLog, ReadParent, RequestHead, ViewPage, Views};
use super::{BadMessage, V, encode_within, operation};

/// Queries that only the bus has, each with its answer.
macro_rules! queries_of_the_bus {
    ($($query:ty = $name:literal, $tool:expr, $reads:expr, $output:ty;)*) => {$(
        impl Query for $query {
            const NAME: &'static str = $name;
            const TOOL: Operator = $tool;
            const READS: Reads = $reads;
            type Output = $output;
        }
    )*};
}

queries_of_the_bus! {
    Views = "task_views", Operator::TaskViews, Reads::Partition, ViewPage;
    ReadLog = "read_log", Operator::InspectTask, Reads::Task, LogPage;
    ReadEvents = "read_events", Operator::InspectTask, Reads::Task, EventPage;
    ReadParent = "read_parent", Operator::Due, Reads::Task, Parent;
    List = "list_index", Operator::TaskList, Reads::Partition, Entries;
    ListLeases = "list_leases", Operator::InspectTask, Reads::Partition, LeasePage;
}

/// Passes every query to a macro: the queries of the core ([`tenure_core::queries`]), and those that only the bus has.
#[macro_export]
macro_rules! queries {
    ($then:ident) => {
        $crate::tenure_core::queries! {
            $then
            parts {
                ReadEvents($crate::bus::event::ReadEvents)
                BlobGet($crate::bus::blob::BlobGet)
                BlobPut($crate::bus::blob::BlobPut)
            }
            other {
                Views($crate::bus::request::Views)
                ReadLog($crate::bus::request::ReadLog)
                ReadParent($crate::bus::request::ReadParent)
                List($crate::bus::request::List)
                Leases($crate::bus::operate::ListLeases)
                ReadOutput($crate::bus::output::ReadOutput)
            }
        }
    };
}

macro_rules! asks {
    ($($group:ident { $($ask:ident($query:ty))* })*) => {
        /// The operation of a request, with its input.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Ask {
            /// `task_create`. The answer is a `WriteSummary`.
            Create(Box<CreateTask>),
            /// `retry_task` with `retry_of`, on the new Task. The answer is a `WriteSummary`.
            RetryEnded(Box<RetryEnded>),
            /// A command on a Task. The answer is a `WriteSummary`.
            Command(Box<Command>),
            $($(
                #[doc = concat!("The query `", stringify!($ask), "`, of which its type says the rest.")]
                $ask($query),
            )*)*
        }

        impl Ask {
            /// The request that creates or changes a Task; `None` for a query.
            pub fn into_write(self) -> Option<Write> {
                match self {
                    Self::Create(input) => Some(Write::Create(input)),
                    Self::RetryEnded(input) => Some(Write::RetryEnded(input)),
                    Self::Command(command) => Some(Write::Command(command)),
                    _ => None,
                }
            }

            /// The query of this name, if there is one.
            pub(super) fn read_query(name: &str, bytes: &[u8]) -> Option<Result<Self, BadMessage>> {
                $($(
                    if name == <$query>::NAME {
                        return Some(operation::input(bytes).map(Self::$ask));
                    }
                )*)*
                None
            }

            /// The operation's name.
            pub fn operation(&self) -> &'static str {
                match self {
                    Self::Create(_) => Operator::TaskCreate.as_str(),
                    Self::RetryEnded(_) => Operator::RetryTask.as_str(),
                    Self::Command(command) => command.operation().as_str(),
                    $($(Self::$ask(_) => <$query>::NAME,)*)*
                }
            }

            /// The request as at most so many bytes.
            pub(super) fn write(
                &self,
                most: usize,
                head: &RequestHead,
            ) -> Result<Vec<u8>, BadMessage> {
                match self {
                    Self::Create(input) => write(most, head, input),
                    Self::RetryEnded(input) => write(most, head, input),
                    Self::Command(command) => write_command(most, head, command),
                    $($(Self::$ask(input) => write(most, head, input),)*)*
                }
            }
        }

        impl From<Write> for Ask {
            fn from(write: Write) -> Self {
                match write {
                    Write::Create(input) => Self::Create(input),
                    Write::RetryEnded(input) => Self::RetryEnded(input),
                    Write::Command(command) => Self::Command(command),
                }
            }
        }

        $($(
            impl From<$query> for Ask {
                fn from(query: $query) -> Self {
                    Self::$ask(query)
                }
            }
        )*)*
    };
}

queries!(asks);

/// A request with its input; an input without fields is left out.
fn write<T: Serialize>(most: usize, head: &RequestHead, input: &T) -> Result<Vec<u8>, BadMessage> {
    #[derive(Serialize)]
    struct With<'a, T> {
        #[serde(flatten)]
        head: &'a RequestHead,
        input: &'a T,
    }
    match size_of::<T>() {
        0 => encode_within(most, head),
        _ => encode_within(most, &With { head, input }),
    }
}

/// A request with a command, which serializes to its name and its input.
fn write_command(
    most: usize,
    head: &RequestHead,
    command: &Command,
) -> Result<Vec<u8>, BadMessage> {
    #[derive(Serialize)]
    struct CommandMessage<'a> {
        v: V,
        #[serde(flatten)] // As `operation` and `input`.
        command: &'a Command,
        #[serde(skip_serializing_if = "Option::is_none")]
        task_id: Option<&'a TaskId>,
        #[serde(skip_serializing_if = "Option::is_none")]
        command_id: Option<&'a CommandId>,
        #[serde(skip_serializing_if = "Option::is_none")]
        expected_version: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        expected_spec_version: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        max_bytes: Option<usize>,
        #[serde(skip_serializing_if = "Option::is_none")]
        trace: Option<&'a SmolStr>,
    }
    let message = CommandMessage {
        v: head.v,
        command,
        task_id: head.task_id.as_ref(),
        command_id: head.command_id.as_ref(),
        expected_version: head.expected_version,
        expected_spec_version: head.expected_spec_version,
        max_bytes: head.max_bytes,
        trace: head.trace.as_ref(),
    };
    encode_within(most, &message)
}
