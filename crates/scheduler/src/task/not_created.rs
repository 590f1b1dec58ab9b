//! What the Task actor does when the append that was to create its Task has failed.

use tenure_core::{Code, Rejection, RejectionKind};
use tenure_ports::journal::AppendError;
use tenure_ports::{Journal, Leases};

use super::address::Address;
use super::open::log_away;
use super::settle::storage_error;
use super::{ActorTask, FailedCreation, Flight, Life, Waiting};
use crate::handle::overloaded;
use crate::node::stopped;

impl<J: Journal, L: Leases> ActorTask<J, L> {
    /// The Task was not created: refuses its creation, or lets the Task that has its id judge it.
    pub(super) async fn not_created(&mut self, myself: &Address, failed: FailedCreation) {
        let (flight, error) = *failed;
        self.life = Life::New;
        let rejection = match error {
            AppendError::TaskExists => {
                self.created_before(myself, flight).await;
                return self.go_on(myself);
            }
            AppendError::NameTaken => Rejection::new(
                Code::PathConflict,
                "a task with this wal_name exists in the session",
            )
            .with("field", "wal_name"),
            AppendError::AtCapacity => overloaded(),
            AppendError::MustReread(error) => storage_error(RejectionKind::Ambiguous, &error),
            AppendError::Unavailable(why) => log_away(&why),
            other => storage_error(RejectionKind::AppendFailed, &other.to_string()),
        };
        self.refuse_all(flight, &rejection);
        self.go_on(myself);
    }

    /// The id exists: reads the Task, which judges whether the create is a repetition or a
    /// conflict.
    async fn created_before(&mut self, myself: &Address, mut flight: Flight) {
        let again = flight.creation.take().map(|creation| creation.0);
        let conflict = tenure_core::command::create::task_id_conflict(&self.key.task_id);
        self.refuse_all(flight, &conflict);
        self.open(myself, None).await;
        if let Life::New = self.life {
            // Its creation broke off before anybody could read it: only a restart can tell what
            // became of it.
            if let Some(ask) = again {
                let _ = ask.reply_to.send(Err(stopped("the creation of this task"))); // The caller may have gone.
            }
            return;
        }
        self.waiting.extend(again.map(|ask| Waiting::Ask(Box::new(ask))));
    }
}
