//! Public events of a Task, as they are sent (EVENT, contract 7.1).

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

/// A public event that stands for itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskEvent {
    /// Same event, same id (EVENT-04).
    pub event_id: SmolStr,
    /// What happened: one of the 23 names.
    pub event: EventName,
    /// The type of the event in the log behind it (EVENT-09).
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
    /// Where the event in the log stands. Up to three public events share it.
    pub wal_seq: u64,
    /// Normalized status of the Task after it.
    pub status: Normal,
    /// Native status of the Task after it.
    pub native_status: TaskStatus,
    /// It ended the Task (EVENT-05).
    pub terminal: bool,
    /// Who caused it.
    pub actor: AgentId,
    /// When.
    pub created_at: Millis,
    /// What else is known: reason, outcome, progress, phase and the like.
    pub data: Value,
}

impl TaskEvent {
    /// As it is sent.
    ///
    /// # Errors
    /// It cannot be written down.
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
    /// Those behind this event of the log.
    pub after: u64,
}

/// Public events of a Task, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventPage {
    /// All public events behind the one that was named, up to and with that at `through`.
    pub events: Vec<TaskEvent>,
    /// The event of the log up to which they were read.
    pub through: u64,
    /// Version of the Task: what is above `through` is still to be read.
    pub version: u64,
    /// Its native status.
    pub status: TaskStatus,
}

impl EventPage {
    /// Leaves the last events out until the page, as a message, has at most `most` bytes. Events that
    /// share their place in the log are not parted.
    ///
    /// # Errors
    /// It cannot be written down, or the events of one place are too long.
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

/// Public events of a Task that is followed, as they happen; or, without events and with `after` equal
/// to `through`, that somebody has asked for them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Published {
    /// The version.
    pub v: V,
    /// They follow this event of the log: whoever has not got that far reads what is missing.
    pub after: u64,
    /// With them.
    #[serde(flatten)]
    pub page: EventPage,
}

/// A runtime event, as it is sent.
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

    /// A page leaves its last events out until it fits, and never parts those of one place.
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
