//! Tasks, what they have made, and what is told while they run.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tenure_core::view::gateway::A2aState;

use super::message::{A2aMessage, A2aPart};
use super::{A2aMetadata, is_off, or_default};

/// The names of states in A2A 1.0 (A2A-17).
const STATES: [(A2aState, &str); 8] = [
    (A2aState::Submitted, "TASK_STATE_SUBMITTED"),
    (A2aState::Working, "TASK_STATE_WORKING"),
    (A2aState::Completed, "TASK_STATE_COMPLETED"),
    (A2aState::Failed, "TASK_STATE_FAILED"),
    (A2aState::Canceled, "TASK_STATE_CANCELED"),
    (A2aState::InputRequired, "TASK_STATE_INPUT_REQUIRED"),
    (A2aState::Rejected, "TASK_STATE_REJECTED"),
    (A2aState::AuthRequired, "TASK_STATE_AUTH_REQUIRED"),
];

/// A state as A2A 1.0 spells it (A2A-17).
pub fn state_to_wire(state: A2aState) -> &'static str {
    let found = STATES.iter().find(|(known, _)| *known == state);
    found.map_or("TASK_STATE_UNSPECIFIED", |(_, name)| name)
}

/// The state that A2A 1.0 spells so.
pub fn state_from_wire(name: &str) -> Option<A2aState> {
    STATES.iter().find(|(_, known)| *known == name).map(|(state, _)| *state)
}

/// Whether an agent in this state waits for its caller.
pub const fn is_interrupted(state: A2aState) -> bool {
    matches!(state, A2aState::InputRequired | A2aState::AuthRequired)
}

/// Whether nothing more happens in this state unless the caller says something.
pub const fn is_settled(state: A2aState) -> bool {
    !matches!(state, A2aState::Submitted | A2aState::Working)
}

/// Whether a task in this state has ended.
pub const fn has_ended(state: A2aState) -> bool {
    is_settled(state) && !is_interrupted(state)
}

/// A task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aTask {
    /// Its id, which the server has made.
    pub id: String,
    /// Its context; empty: its server does not say.
    #[serde(default, deserialize_with = "or_default")]
    pub context_id: String,
    /// How it stands.
    pub status: A2aTaskStatus,
    /// What it has made.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<A2aArtifact>,
    /// What was said, oldest first.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<A2aMessage>,
    /// Anything beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<A2aMetadata>,
}

impl A2aTask {
    /// How many bytes it has, about.
    pub fn weight(&self) -> usize {
        let made = self.artifacts.iter().flat_map(|artifact| &artifact.parts);
        let said = self.history.iter().chain(&self.status.message).flat_map(|said| &said.parts);
        made.chain(said).map(A2aPart::weight).sum()
    }

    /// The same task with no more of its history than asked for: none named, all of it.
    pub fn with_history(mut self, most: Option<u32>) -> Self {
        if let Some(most) = most.and_then(|most| usize::try_from(most).ok()) {
            let left_out = self.history.len().saturating_sub(most);
            self.history.drain(..left_out);
        }
        self
    }
}

/// How a task stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aTaskStatus {
    /// Its state.
    #[serde(serialize_with = "write_state", deserialize_with = "read_state")]
    pub state: A2aState,
    /// What the agent says about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<A2aMessage>,
    /// Since when it is so; empty: its server does not say.
    #[serde(default, deserialize_with = "or_default")]
    pub timestamp: String,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The shape serde asks for.
fn write_state<S: Serializer>(state: &A2aState, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(state_to_wire(*state))
}

fn read_state<'de, D: Deserializer<'de>>(d: D) -> Result<A2aState, D::Error> {
    let name = String::deserialize(d)?;
    state_from_wire(&name).ok_or_else(|| D::Error::custom(format_args!("{name} is no state")))
}

/// Something that a task has made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aArtifact {
    /// Unique in its task.
    pub artifact_id: String,
    /// The same over all versions of it, in this task and others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// At least one.
    pub parts: Vec<A2aPart>,
    /// Anything beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<A2aMetadata>,
    /// Extensions that it uses.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
}

/// The status of a task has changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aStatusUpdate {
    /// The task.
    pub task_id: String,
    /// Its context.
    #[serde(default, deserialize_with = "or_default")]
    pub context_id: String,
    /// Its new status.
    pub status: A2aTaskStatus,
    /// Anything beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<A2aMetadata>,
}

/// A task has made an artifact, or more of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aArtifactUpdate {
    /// The task.
    pub task_id: String,
    /// Its context.
    #[serde(default, deserialize_with = "or_default")]
    pub context_id: String,
    /// The artifact, or its next parts.
    pub artifact: A2aArtifact,
    /// Whether the parts go behind those that are there, and do not replace them.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_off")]
    pub append: bool,
    /// Whether the artifact is whole now.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_off")]
    pub last_chunk: bool,
}

/// What a stream tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum A2aUpdate {
    /// The task as it stands.
    Task(A2aTask),
    /// An answer without a task.
    Message(A2aMessage),
    /// The status has changed.
    StatusUpdate(A2aStatusUpdate),
    /// There is an artifact.
    ArtifactUpdate(A2aArtifactUpdate),
}

/// The answer to a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum A2aReply {
    /// A task.
    Task(A2aTask),
    /// A message, and no task.
    Message(A2aMessage),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A2A-17: each state has its own name in A2A 1.0.
    #[test]
    fn every_state_has_a_name() {
        let names: Vec<_> = A2aState::ALL.iter().map(|state| state_to_wire(*state)).collect();
        let expected = [
            "TASK_STATE_SUBMITTED",
            "TASK_STATE_WORKING",
            "TASK_STATE_INPUT_REQUIRED",
            "TASK_STATE_AUTH_REQUIRED",
            "TASK_STATE_COMPLETED",
            "TASK_STATE_FAILED",
            "TASK_STATE_REJECTED",
            "TASK_STATE_CANCELED",
        ];
        assert_eq!(names, expected);
        for state in A2aState::ALL {
            assert_eq!(state_from_wire(state_to_wire(*state)), Some(*state));
        }
        assert_eq!(state_from_wire("TASK_STATE_UNSPECIFIED"), None);
    }

    /// Of a history comes its end, as long as was asked for; with 0 the field is left out.
    #[test]
    fn a_history_is_cut_at_its_beginning() {
        let said = |id: &str| A2aMessage { message_id: id.into(), ..A2aMessage::default() };
        let status = A2aTaskStatus {
            state: A2aState::Working,
            message: None,
            timestamp: "2026-03-12T08:30:00.250Z".into(),
        };
        let task = A2aTask {
            id: "t".into(),
            context_id: "c".into(),
            status,
            artifacts: Vec::new(),
            history: ["a", "b", "c"].map(said).into(),
            metadata: None,
        };
        for (most, left) in [(None, 3), (Some(9), 3), (Some(2), 2), (Some(0), 0)] {
            let cut = task.clone().with_history(most);
            assert_eq!(cut.history, task.history[3 - left..], "{most:?}");
        }
        let written = serde_json::to_value(A2aUpdate::Task(task.with_history(Some(0)))).unwrap();
        let status =
            json!({"state": "TASK_STATE_WORKING", "timestamp": "2026-03-12T08:30:00.250Z"});
        assert_eq!(written, json!({"task": {"id": "t", "contextId": "c", "status": status}}));
    }
}
