//! A create of a Task that exists: the same as the first, or another one that replaces an
//! unfinished creation. And the key that makes creates the same.

use alloc::format;
use alloc::vec::Vec;

use super::create::{CreateTask, Defaults, Parent, created, task_id_conflict};
use super::tx::Did;
use super::{Cx, Operator, Outcome, Reply, Tx, check_principal, check_tool};
use crate::event::Body;
use crate::id::{SessionId, TaskId};
use crate::reject::{Code, Rejection};
use crate::task::{Made, Task};

impl Task {
    /// Decides a create whose `task_id` exists: it gets the first answer, replaces an unfinished
    /// creation, or conflicts (IDEM-01, IDEM-03, IDEM-10, ID-03).
    pub fn recreated(
        &mut self,
        cx: &Cx<'_>,
        given: &CreateTask,
        defaults: &Defaults,
        parent: Option<&Parent>,
    ) -> Result<Outcome, Rejection> {
        let decided = self.judge_again(cx, given, defaults, parent);
        Operator::TaskCreate.check_refusal(&decided);
        decided
    }

    fn judge_again(
        &mut self,
        cx: &Cx<'_>,
        given: &CreateTask,
        defaults: &Defaults,
        parent: Option<&Parent>,
    ) -> Result<Outcome, Rejection> {
        check_principal(cx.caller)?;
        check_tool(cx.caller, Operator::TaskCreate)?;
        given.validate(cx.limits)?;
        super::edition::check_create(cx, given, &defaults.worker_pool_id)?;
        if let Some(reply) = self.replayed(cx)? {
            return Ok(Outcome::unchanged(reply));
        }
        let created_seq = self.head.created_seq;
        let first = self.commands.get(0).filter(|record| record.written.first_seq == created_seq);
        let same_key = given.idempotency_key == self.head.idempotency_key;
        // The digest of a Task that is made again leaves its reason out: only a key makes it the same.
        let is_told = given.idempotency_key.is_some() || given.retry_of.is_none();
        let same_content = |digest| is_told && cx.digest.is_some() && digest == cx.digest;
        match first {
            Some(record) if same_key && same_content(record.digest) => {
                Ok(Outcome::unchanged(Reply {
                    written: Some(record.written),
                    version: record.written.version(),
                    spec_version: None,
                    made: Made::Nothing,
                    changed: Vec::new(),
                    waits: None,
                }))
            }
            // After the repetition of what was created before the key and the id went together (K6).
            _ if let Err(no) = given.check_key(&cx.caller.session_id) => Err(no),
            _ if self.unfinished().is_some() => self.replaced(cx, given, defaults, parent),
            _ if same_key && given.idempotency_key.is_some() => {
                let message = "this idempotency_key was used for a different task";
                Err(Rejection::new(Code::IdempotencyConflict, message))
            }
            _ => Err(task_id_conflict(self.task_id())),
        }
    }

    /// IDEM-10: the Task begins anew in its log, with the new input. The name of the log, the parent and
    /// the labels stay, as others and indexes rely on them.
    fn replaced(
        &mut self,
        cx: &Cx<'_>,
        given: &CreateTask,
        defaults: &Defaults,
        parent: Option<&Parent>,
    ) -> Result<Outcome, Rejection> {
        let created = created(cx, given, defaults, parent)?;
        let bound = |field, message| Err(Rejection::invalid(field, message));
        if created.task.wal_name != self.head.spec.wal_name {
            return bound("wal_name", "the log of the unfinished creation has another name");
        }
        if created.task.parent_task_id != self.head.spec.parent_task_id {
            return bound("parent_task_id", "the unfinished creation has another parent");
        }
        if created.task.labels != self.head.spec.labels {
            return bound("labels", "the unfinished creation has other labels");
        }
        let point = self.savepoint();
        let mut tx = Tx::begin(self, cx);
        let written = tx
            .emit(tx.caller(), Body::TaskCreated(created))
            .and_then(|()| tx.take_over(&given.taken_over))
            .and_then(|()| tx.task.check_first_references())
            .and_then(|()| tx.finish(Did::DONE));
        if written.is_err() {
            self.rollback(point);
        }
        written
    }
}

impl CreateTask {
    /// IDEM-03: with a key, the id is the one that is made from it, so that one key means one Task.
    pub(super) fn check_key(&self, session: &SessionId) -> Result<(), Rejection> {
        let Some(key) = &self.idempotency_key else { return Ok(()) };
        let derived = TaskId::of_key(session, key);
        if *self.task_id()? == derived {
            return Ok(());
        }
        let message =
            format!("with this idempotency_key the task_id is {derived}: leave one of them out");
        Err(Rejection::invalid("task_id", message).with("task_id", derived.as_str()))
    }
}
