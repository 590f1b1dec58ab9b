//! Public events of a Task, in the form in which nodes send them (EVENT, contract 7.1).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use smol_str::{SmolStr, ToSmolStr as _};
use tenure_core::Rejection;
use tenure_core::id::{AgentId, AttemptId, Millis, RunId, SessionId, StepId, TaskId};
use tenure_core::status::TaskStatus;
use tenure_core::view::public::{EventName, PublicEvent};
use tenure_core::view::{Normal, RuntimeEvent};

use super::{BadMessage, V, encode};

/// A public event with all the fields that a reader needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskEvent {
    /// The same event has the same id whenever it is sent (EVENT-04).
    pub event_id: SmolStr,
    /// What happened: one of the 23 names.
    pub event: EventName,
    /// The type of the event in the log that it comes from (EVENT-09).
    pub native_event: SmolStr,
    /// The session.
    pub session_id: SessionId,
    /// The Task.
    pub task_id: TaskId,
    /// The Step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<StepId>,
    /// The Run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The Attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<AttemptId>,
    /// The place of that event in the log. Up to three public events share it.
    pub wal_seq: u64,
    /// Normalized status of the Task after it.
    pub status: Normal,
    /// Native status of the Task after it.
    pub native_status: TaskStatus,
    /// Whether it ended the Task (EVENT-05).
    pub terminal: bool,
    /// Who caused it.
    pub actor: AgentId,
    /// When.
    pub created_at: Millis,
    /// Further facts: reason, outcome, progress, phase and the like.
    pub data: Value,
}

impl TaskEvent {
    /// The form in which a node sends it.
    ///
    /// # Errors
    /// The data cannot be serialized.
    pub fn of(event: &PublicEvent<'_>) -> Result<Self, BadMessage> {
        let data = serde_json::to_value(&event.data);
        Ok(Self {
            event_id: event.event_id.to_smolstr(),
            event: event.event,
            native_event: SmolStr::new_static(event.native_event),
            session_id: event.session_id.clone(),
            task_id: event.task_id.clone(),
            step_id: event.step_id.cloned(),
            run_id: event.run_id,
            attempt_id: event.attempt_id,
            wal_seq: event.wal_seq,
            status: event.status,
            native_status: event.native_status,
            terminal: event.terminal,
            actor: event.actor.clone(),
            created_at: event.created_at,
            data: data.map_err(|error| BadMessage { why: error.to_string(), field: None })?,
        })
    }
}

/// Which events of a Task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReadEvents {
    /// Events after this event of the log.
    pub after: u64,
}

/// Public events of a Task, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventPage {
    /// All public events after the requested one, up to and including that at `through`.
    pub events: Vec<TaskEvent>,
    /// The event of the log up to which they were read.
    pub through: u64,
    /// Version of the Task: events above `through` are still to be read.
    pub version: u64,
    /// Its native status.
    pub status: TaskStatus,
}

impl EventPage {
    /// Removes events at the end until the page, as a message, has at most `most` bytes. Events
    /// that share a place in the log stay together.
    ///
    /// # Errors
    /// The page cannot be serialized, or the events of one place are too long.
    pub fn within(mut self, most: usize) -> Result<Self, Rejection> {
        while encode(&self).map_or(true, |bytes| bytes.len() > most) {
            let half = self.events.get(self.events.len() / 2).map_or(0, |event| event.wal_seq);
            let first = self.events.first().map_or(0, |event| event.wal_seq);
            let last = if half > first { half - 1 } else { first };
            if self.events.last().is_none_or(|event| event.wal_seq <= last) {
                return Err(Rejection::invalid("answer", "the events of one commit are too long"));
            }
            self.events.retain(|event| event.wal_seq <= last);
            self.through = last;
        }
        Ok(self)
    }
}

/// Public events of a Task that the owner follows, as they happen. Without events, and with `after`
/// equal to `through`, it says that a reader has asked for them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Published {
    /// The version.
    pub v: V,
    /// The event of the log that they follow: a reader that has not got so far reads the missing ones.
    pub after: u64,
    /// The events.
    #[serde(flatten)]
    pub page: EventPage,
}

/// A runtime event, in the form in which nodes send it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Runtime {
    /// The version.
    pub v: V,
    /// What happened.
    #[serde(flatten)]
    pub event: RuntimeEvent,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> EventPage {
        let event = serde_json::json!({
            "event_id": "c.0.0", "event": "task.started", "native_event": "task_step_claimed",
            "session_id": "s", "task_id": "t", "wal_seq": 1, "status": "running",
            "native_status": "running", "terminal": false, "actor": "ann", "created_at": 1, "data": {},
        });
        let event = serde_json::from_value(event).unwrap();
        EventPage { events: vec![event], through: 1, version: 1, status: TaskStatus::Running }
    }

    /// A page loses its last events until it fits, and events of one place stay together.
    #[test]
    fn a_page_of_events_is_cut_between_places_in_the_log() {
        let mut page = page();
        let one = page.events[0].clone();
        let at = |wal_seq| TaskEvent { wal_seq, ..one.clone() };
        page.events = [1, 2, 2, 3, 3, 3, 4].map(at).to_vec();
        (page.through, page.version) = (4, 4);
        let whole = encode(&page).unwrap().len();
        assert_eq!(page.clone().within(whole).unwrap(), page);
        for most in (encode(&self::page()).unwrap().len()..whole).rev() {
            let cut = page.clone().within(most).unwrap();
            assert!(encode(&cut).unwrap().len() <= most);
            assert!(cut.through < 4 && cut.through == cut.events.last().unwrap().wal_seq);
            let kept = page.events.iter().filter(|event| event.wal_seq <= cut.through).count();
            assert_eq!(cut.events[..], page.events[..kept], "{most}");
        }
        assert!(page.within(10).is_err());
    }
}
