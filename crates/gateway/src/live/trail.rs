//! [`AttemptTrail`]: finds an Attempt in the public events of its Task, and learns whether it has ended.

use tenure_core::Rejection;
use tenure_core::id::{AttemptId, StepId, TaskId};
use tenure_core::view::public::EventName;
use tenure_ports::ClientPort;
use tenure_sdk::client::Client;
use tenure_wire::bus::event::{ReadEvents, TaskEvent};

/// How a caller names an Attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AttemptName {
    /// By its id.
    Id(AttemptId),
    /// By its Step, and its number among the Attempts of that.
    Nth(StepId, u32),
}

/// What the events so far say of an Attempt.
#[derive(Debug, Default)]
struct KnownAttempt {
    id: Option<AttemptId>,
    has_ended: bool,
}

impl KnownAttempt {
    fn take(&mut self, event: &TaskEvent, name: &AttemptName) {
        let Some(id) = event.attempt_id else { return };
        match event.event {
            EventName::AttemptStarted if is_named(event, id, name) => self.id = Some(id),
            EventName::AttemptCompleted | EventName::AttemptFailed if self.id == Some(id) => {
                self.has_ended = true;
            }
            _ => {}
        }
    }
}

fn is_named(event: &TaskEvent, id: AttemptId, name: &AttemptName) -> bool {
    match name {
        AttemptName::Id(known) => *known == id,
        AttemptName::Nth(step_id, nth) => {
            let ordinal = event.data.get("ordinal").and_then(serde_json::Value::as_u64);
            event.step_id.as_ref() == Some(step_id) && ordinal == Some(u64::from(*nth))
        }
    }
}

/// Reads the events of a Task for one Attempt, each once.
pub(super) struct AttemptTrail<P> {
    client: Client<P>,
    task: TaskId,
    name: AttemptName,
    /// The last event of the log that was read.
    through: u64,
    known: KnownAttempt,
}

impl<P: ClientPort> AttemptTrail<P> {
    pub(super) fn new(client: Client<P>, task: TaskId, name: AttemptName) -> Self {
        Self { client, task, name, through: 0, known: KnownAttempt::default() }
    }

    /// The Attempt, if the Task has it.
    pub(super) const fn id(&self) -> Option<AttemptId> {
        self.known.id
    }

    /// Whether the Attempt had ended at the last look.
    pub(super) const fn has_ended(&self) -> bool {
        self.known.has_ended
    }

    /// Reads what is new.
    pub(super) async fn look(&mut self) -> Result<(), Rejection> {
        loop {
            let page = self.client.ask(&self.task, ReadEvents { after: self.through }).await?;
            page.events.iter().for_each(|event| self.known.take(event, &self.name));
            let is_last = page.through >= page.version || page.through <= self.through;
            self.through = self.through.max(page.through);
            if is_last {
                self.known.has_ended |= page.status.is_terminal();
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::writer::tests::event;
    use super::*;

    fn attempt(number: u8) -> AttemptId {
        format!("00000000-0000-0000-0000-0000000000{number:02}").parse().unwrap()
    }

    fn told(name: EventName, step: &str, number: u8) -> TaskEvent {
        TaskEvent {
            event: name,
            step_id: Some(step.parse().unwrap()),
            attempt_id: Some(attempt(number)),
            data: json!({ "ordinal": number }),
            ..event(1, "x")
        }
    }

    #[test]
    fn an_attempt_is_found_by_its_id_and_by_its_number() {
        let names = [AttemptName::Id(attempt(2)), AttemptName::Nth("a".parse().unwrap(), 2)];
        for name in names {
            let mut known = KnownAttempt::default();
            for event in [
                told(EventName::AttemptStarted, "a", 1),
                told(EventName::AttemptStarted, "b", 3),
                told(EventName::AttemptFailed, "a", 1),
            ] {
                known.take(&event, &name);
            }
            assert_eq!((known.id, known.has_ended), (None, false), "{name:?}");
            known.take(&told(EventName::AttemptStarted, "a", 2), &name);
            known.take(&told(EventName::AttemptCompleted, "b", 3), &name);
            assert_eq!((known.id, known.has_ended), (Some(attempt(2)), false), "{name:?}");
            known.take(&told(EventName::AttemptFailed, "a", 2), &name);
            assert!(known.has_ended, "{name:?}");
        }
    }
}
