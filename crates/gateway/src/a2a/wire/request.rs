//! What callers ask for.

use serde::{Deserialize, Serialize};

use super::A2aMetadata;
use super::message::A2aMessage;
use super::push::A2aPushConfig;
use super::task::A2aTask;

/// `SendMessage` and `SendStreamingMessage`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct A2aSend {
    /// The message.
    pub(crate) message: A2aMessage,
    /// How it is to be answered.
    #[serde(default)]
    pub(crate) configuration: Option<A2aSendConfiguration>,
    /// Anything beside it.
    #[serde(default)]
    pub(crate) metadata: Option<A2aMetadata>,
}

/// How a message is to be answered.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct A2aSendConfiguration {
    /// Media types that the caller takes.
    pub(crate) accepted_output_modes: Vec<String>,
    /// How much of the history to give.
    pub(crate) history_length: Option<u32>,
    /// Where to send updates of the task.
    pub(crate) task_push_notification_config: Option<A2aPushConfig>,
    /// Whether to answer before the task has ended or asks for something.
    pub(crate) return_immediately: bool,
}

/// `GetTask`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct A2aGet {
    /// The task.
    pub(crate) id: String,
    /// How much of its history to give.
    #[serde(default)]
    pub(crate) history_length: Option<u32>,
}

/// `CancelTask`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct A2aCancel {
    /// The task.
    pub(crate) id: String,
}

/// `SubscribeToTask`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct A2aSubscribe {
    /// The task.
    pub(crate) id: String,
}

/// `ListTasks`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct A2aList {
    /// Only tasks of this context.
    pub(crate) context_id: Option<String>,
    /// Only tasks in this state.
    pub(crate) status: Option<String>,
    /// How many at most.
    pub(crate) page_size: Option<u32>,
    /// Where to go on.
    pub(crate) page_token: Option<String>,
    /// How much of their history to give.
    pub(crate) history_length: Option<u32>,
    /// Only tasks whose status is later.
    pub(crate) status_timestamp_after: Option<String>,
    /// Whether to give what they have made.
    pub(crate) include_artifacts: bool,
}

/// The answer to `ListTasks`. All fields are always there.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct A2aTaskPage {
    /// The tasks, the newest first.
    pub(crate) tasks: Vec<A2aTask>,
    /// Where to go on; empty at the end.
    pub(crate) next_page_token: String,
    /// How many tasks the page may have.
    pub(crate) page_size: u32,
    /// How many tasks there are on all pages.
    pub(crate) total_size: usize,
}
