//! Where a caller wants to be called back.

use serde::{Deserialize, Serialize};

use super::or_default;

/// Where a caller wants to be told of changes of a task (`TaskPushNotificationConfig`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct A2aPushConfig {
    /// Its id, which the server makes if the caller does not.
    #[serde(deserialize_with = "or_default")]
    pub id: String,
    /// The task.
    #[serde(alias = "task_id")]
    pub task_id: String,
    /// The address to which updates are sent.
    #[serde(deserialize_with = "or_default")]
    pub url: String,
    /// What goes with each update, so that the receiver knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// How the server proves who it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authentication: Option<A2aAuthentication>,
}

/// How the server proves who it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct A2aAuthentication {
    /// The scheme of HTTP, such as `Bearer`.
    pub scheme: String,
    /// What follows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
}

/// Which configuration is meant.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aPushName {
    /// The task.
    #[serde(alias = "task_id")]
    pub task_id: String,
    /// The configuration.
    pub id: String,
}

/// Of which task the configurations are meant.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aPushList {
    /// The task.
    #[serde(alias = "task_id")]
    pub task_id: String,
}

/// The configurations of a task, all at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aPushPage {
    /// The configurations.
    pub configs: Vec<A2aPushConfig>,
    /// Where to go on: always empty.
    pub next_page_token: String,
}
