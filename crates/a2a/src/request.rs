//! What callers ask for.

use serde::{Deserialize, Serialize};

use super::message::A2aMessage;
use super::push::A2aPushConfig;
use super::task::A2aTask;
use super::{A2aMetadata, is_off, or_default};

/// `SendMessage` and `SendStreamingMessage`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct A2aSend {
    /// The message.
    pub message: A2aMessage,
    /// How it is to be answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<A2aSendConfiguration>,
    /// Anything beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<A2aMetadata>,
}

/// How a message is to be answered.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct A2aSendConfiguration {
    /// Media types that the caller takes.
    #[serde(
        alias = "accepted_output_modes",
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub accepted_output_modes: Vec<String>,
    /// How much of the history to give.
    #[serde(alias = "history_length", skip_serializing_if = "Option::is_none")]
    pub history_length: Option<u32>,
    /// Where to send updates of the task.
    #[serde(alias = "task_push_notification_config", skip_serializing_if = "Option::is_none")]
    pub task_push_notification_config: Option<A2aPushConfig>,
    /// Whether to answer before the task has ended or asks for something.
    #[serde(
        alias = "return_immediately",
        deserialize_with = "or_default",
        skip_serializing_if = "is_off"
    )]
    pub return_immediately: bool,
}

/// `GetTask`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aGet {
    /// The task.
    pub id: String,
    /// How much of its history to give.
    #[serde(alias = "history_length", default, skip_serializing_if = "Option::is_none")]
    pub history_length: Option<u32>,
}

/// `CancelTask`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct A2aCancel {
    /// The task.
    pub id: String,
}

/// `SubscribeToTask`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct A2aSubscribe {
    /// The task.
    pub id: String,
}

/// `ListTasks`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct A2aList {
    /// Only tasks of this context.
    #[serde(alias = "context_id", skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
    /// Only tasks in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// How many at most.
    #[serde(alias = "page_size", skip_serializing_if = "Option::is_none")]
    pub page_size: Option<u32>,
    /// Where to go on.
    #[serde(alias = "page_token", skip_serializing_if = "Option::is_none")]
    pub page_token: Option<String>,
    /// How much of their history to give.
    #[serde(alias = "history_length", skip_serializing_if = "Option::is_none")]
    pub history_length: Option<u32>,
    /// Only tasks whose status is later.
    #[serde(alias = "status_timestamp_after", skip_serializing_if = "Option::is_none")]
    pub status_timestamp_after: Option<String>,
    /// Whether to give what they have made.
    #[serde(
        alias = "include_artifacts",
        deserialize_with = "or_default",
        skip_serializing_if = "is_off"
    )]
    pub include_artifacts: bool,
}

/// The answer to `ListTasks`. All fields are always there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aTaskPage {
    /// The tasks, the newest first.
    pub tasks: Vec<A2aTask>,
    /// Where to go on; empty at the end.
    #[serde(default)]
    pub next_page_token: String,
    /// How many tasks the page may have.
    #[serde(default)]
    pub page_size: u32,
    /// How many tasks there are on all pages.
    #[serde(default)]
    pub total_size: usize,
}
