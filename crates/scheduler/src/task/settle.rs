//! What the Task actor does when an append returns: it sends answers, grants, signals and offers (WAL-06). Step 7 of
//! the walk in docs/architecture.md.

use std::sync::Arc;
use std::time::Duration;

use ractor::ActorProcessingErr;
use tenure_core::command::Wait;
use tenure_core::event::{Body, LeaseEnd};
use tenure_core::id::{AgentId, AttemptId};
use tenure_core::status::{EndReason, Outcome as AttemptEnd};
use tenure_core::suspension::Went;
use tenure_core::table::Pos;
use tenure_core::view::{Known, RuntimeEvent, RuntimeName, write_summary};
use tenure_core::{Caller, Code, Rejection, RejectionKind};
use tenure_ports::bus::{Delivery, Holding};
use tenure_ports::journal::AppendError;
use tenure_ports::observer::LeaseCall;
use tenure_ports::{Journal, Leases};

use super::address::Address;
use super::open::log_away;
use super::waiters::no_place;
use super::{ActorTask, FailedCreation, Flight, Landed, Life, Msg, Waiting};
use crate::ask::{Decided, HeldAnswer, WriteAnswer};
use crate::count::InHand;
use crate::handle::{ambiguous, overloaded};
use crate::node::not_owner;
use crate::pool::{CreditPermit, Left, Msg as PoolMsg};

/// How long after a failed append the actor tries again.
const AGAIN: Duration = Duration::from_secs(1);

impl<J: Journal, L: Leases> ActorTask<J, L> {
    /// Takes in what became of the append in flight. Answers what is left to be done for a create that failed.
    pub(super) fn land(
        &mut self,
        myself: &Address,
        landed: Landed,
    ) -> Result<Option<FailedCreation>, ActorProcessingErr> {
        let Some(flight) = self.flight.take() else { return Ok(None) };
        self.node.note_append(&self.key, trouble(&landed.append));
        match landed.append {
            Ok(()) => {
                let leased = landed.leases;
                if let Err(error) = &leased {
                    self.node.note_leases(false);
                    // Claims that workers made stand, and need their leases.
                    self.node.note_leases_failed(LeaseCall::Acquire, error);
                }
                self.settle(myself, flight, leased.is_ok());
            }
            Err(error @ (AppendError::NotOwner | AppendError::Unsettled(_))) => {
                let refused = match error {
                    AppendError::Unsettled(why) => unsettled(&why),
                    _ => not_owner(&self.key),
                };
                self.refuse_all(flight, &refused);
                self.leave(myself);
                return Ok(None);
            }
            Err(error) if flight.creates => return Ok(Some(Box::new((flight, error)))),
            Err(AppendError::AtCapacity) => {
                if let Life::Known(task) = &mut self.life {
                    task.abort();
                }
                self.refuse_all(flight, &overloaded());
                self.offer(myself); // Steps that this append was to claim are ready again.
            }
            Err(AppendError::MustReread(error)) => {
                let rejection = storage_error(RejectionKind::Ambiguous, &error);
                self.refuse_all(flight, &rejection);
                self.withdraw(myself); // The next actor says what is ready then.
                // The state is no longer known: the supervisor has the log replayed.
                return Err(format!("append of unknown fate: {error}").into());
            }
            Err(error) => {
                let refused = match &error {
                    AppendError::Unavailable(why) => log_away(why),
                    _ => {
                        tracing::error!(task = %self.key, %error, "append failed");
                        storage_error(RejectionKind::AppendFailed, &error.to_string())
                    }
                };
                if let Life::Known(task) = &mut self.life {
                    task.abort();
                }
                let mut flight = flight;
                // The next scan finds ended leases again, unless their holders renewed them
                // meanwhile.
                flight.expired.retain(|(_, why)| why.outcome() != AttemptEnd::Lost);
                self.undone.append(&mut flight.expired);
                self.pause(myself);
                self.refuse_all(flight, &refused);
                if let AppendError::Fenced { .. } = error {
                    self.withdraw(myself);
                    return Err(error.to_string().into());
                }
            }
        }
        self.go_on(myself);
        Ok(None)
    }

    /// Begins what came while an append was in flight.
    pub(super) fn go_on(&mut self, myself: &Address) {
        if !self.is_owned() {
            return self.leave(myself);
        }
        self.set_timer(myself);
        self.flush_soon(myself);
    }

    /// Has the actor begin nothing by itself until it tries again. Callers may ask again. The actor
    /// does not try again at once: a disk that is full stays so for a while.
    pub(super) fn pause(&mut self, myself: &Address) {
        if std::mem::replace(&mut self.pauses, true) {
            return;
        }
        self.offer(myself);
        let (actor, after) = (myself.clone(), AGAIN * 2_u32.pow(self.failed_reads));
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let _ = actor.cast(Msg::Again); // The Task may have gone.
        });
    }

    pub(super) async fn try_again(&mut self, myself: &Address) {
        self.pauses = false;
        if let Life::Unreadable(_) = self.life {
            if !self.is_open {
                return self.open(myself, None).await;
            }
            self.read_log(myself, None).await;
            let Life::Known(_) = self.life else { return };
            self.answer_late(self.late.runs()); // What they wait for may be in the log.
        }
        let undone = std::mem::take(&mut self.undone);
        self.waiting.extend(undone.into_iter().map(|(ids, why)| Waiting::Expired(ids, why)));
        self.waiting.push_back(Waiting::Due);
        self.offer(myself);
        self.flush_soon(myself);
    }

    /// The commits are durable: now, and not before, others learn of them.
    fn settle(&mut self, myself: &Address, mut flight: Flight, leased: bool) {
        let Life::Known(task) = &mut self.life else { return };
        task.settle();
        if flight.creates {
            myself.shared().note_away(); // So the first heartbeat waits for it, and not in the mailbox (LEASE-14).
            self.is_open = true;
        }
        self.node.note_expired(&flight.commits, &mut self.over);
        self.node.publish_all(&self.key, task, &flight.commits);
        flight.told.drain(..).for_each(|event| self.node.tell(|| Some(event)));
        self.waits.tell(task.waits());
        self.count_live();
        let grants = std::mem::take(&mut flight.grants);
        if leased {
            self.hand_out(grants);
        } else {
            self.take_back(grants);
        }
        self.note_claimed(&flight.claimed);
        self.node.renew_leases(self.reported_leases(&flight));
        self.tell_children();
        if flight.creates {
            self.watch_parent(myself);
        }
        self.end_attempts(&flight);
        let ended_runs = self.runs_ended_by(&flight);
        if let Some((ask, result)) = flight.creation.map(|creation| *creation) {
            self.node.note_refusal(&result);
            let answer = self.as_of_now(result, &ask.envelope.caller, true);
            let _ = ask.reply_to.send(answer); // As below.
        }
        for held in flight.answers {
            self.answer(held);
        }
        self.return_credits(myself, flight.unused);
        self.signal();
        self.push_inputs();
        self.answer_late(ended_runs);
        self.offer(myself);
    }

    /// The Runs that an append may have ended, if anybody waits for the end of one.
    fn runs_ended_by(&self, flight: &Flight) -> Vec<Pos> {
        let Life::Known(task) = &self.life else { return Vec::new() };
        if self.late.is_empty() {
            return Vec::new();
        }
        if task.head().cancel_requested.is_some() {
            return self.late.runs(); // A Run may end then although no event says so (RUN-08).
        }
        let view = task.durable();
        let of_attempts = flight.ended.iter().filter_map(|id| Some(task.attempt(*id)?.run_id));
        let events = flight.commits.iter().flat_map(|commit| &commit.events);
        let ended = events.filter_map(|event| match &event.body {
            Body::RunEnded(ended) => Some(ended.run_id),
            _ => None,
        });
        of_attempts.chain(ended).filter_map(|run| view.find_run(run)).collect()
    }

    /// Sends grants to their workers.
    fn hand_out(&mut self, grants: Vec<(Pos, CreditPermit)>) {
        let Life::Known(task) = &self.life else { return };
        let view = task.durable();
        for (attempt, mut permit) in grants {
            let was_lost = task.step_at(view.attempt_at(attempt).step).state.was_lost();
            let lasts = task.was_lost_within(attempt).map_or(Duration::MAX, Duration::from_millis);
            let attempt_id = view.attempt_at(attempt).attempt_id;
            let Some(claim) = self.node.claim(&view, attempt_id) else { continue };
            let worker = Arc::clone(&permit.worker);
            let isolation = permit.hand_over_isolation();
            permit.spend(); // Spent also if the worker has left: no further Step goes there.
            if worker.inbox.unbounded_send(Delivery::Grant(Box::new(claim))).is_ok() {
                let isolation = isolation.map(|isolation| isolation.keep_for(lasts));
                let in_hand = InHand::new(Arc::clone(&worker.hand), was_lost, isolation);
                self.held.insert(attempt_id, in_hand);
            } else {
                // The worker has left: the Step is released at once (S26).
                self.waiting.push_back(Waiting::Expired(vec![attempt_id], LeaseEnd::Released));
            }
        }
    }

    /// Undoes claims whose leases could not be taken: a worker gets a Step only with its lease (law
    /// 5).
    fn take_back(&mut self, grants: Vec<(Pos, CreditPermit)>) {
        let Life::Known(task) = &self.life else { return };
        let attempts: Vec<AttemptId> =
            grants.iter().map(|(pos, _)| task.attempt_at(*pos).attempt_id).collect();
        if !attempts.is_empty() {
            self.waiting.push_back(Waiting::Expired(attempts, LeaseEnd::Released));
        }
    }

    /// Counts Attempts that workers claimed by themselves as in hand.
    fn note_claimed(&mut self, claimed: &[Pos]) {
        let Life::Known(task) = &self.life else { return };
        for &at in claimed {
            let attempt = task.attempt_at(at);
            if attempt.outcome.is_some() {
                continue;
            }
            let Some(worker) = self.node.worker(&attempt.worker_id) else { continue };
            let was_lost = task.step_at(attempt.step).state.was_lost();
            let in_hand = InHand::new(Arc::clone(&worker.hand), was_lost, None);
            self.held.insert(attempt.attempt_id, in_hand);
        }
    }

    /// Drops the leases of ended Attempts, and notifies workers of those that others ended.
    fn end_attempts(&mut self, flight: &Flight) {
        if flight.ended.is_empty() {
            return;
        }
        let Life::Known(task) = &self.life else { return };
        for id in &flight.ended {
            let Some(held) = self.held.remove(id) else { continue };
            held.note_end();
            let Some(attempt) = task.attempt(*id) else { continue };
            let handler = &task.step_at(attempt.step).spec.handler;
            // The Step may have moved to another pool since.
            let pool = &task.run_at(attempt.run).worker_pool_id;
            if let Some(pool) = self.node.pool_if_open(pool) {
                let now = self.node.clock.passed();
                pool.note_end(&attempt.worker_id, handler, Went::of(attempt), now);
            }
            let run = task.run(attempt.run_id);
            let is_reported = run.is_some_and(|run| run.end_reason == Some(EndReason::Completed));
            let (who, token) = (&attempt.worker_id, attempt.fencing_token);
            if !is_reported && !task.durable().may_go_on(who, *id, token) {
                self.node.signal(&attempt.worker_id, Delivery::Lost(*id));
            }
        }
        self.node.drop_leases(flight.ended.clone());
    }

    /// Asks holders to stop, once each: the link repeats the signal until the worker acknowledges
    /// it. Whoever claimed on behalf of a worker watches the Task: the worker has no link, or none for this.
    pub(super) fn signal(&mut self) {
        let Life::Known(task) = &self.life else { return };
        let view = task.durable();
        if !view.asks_some_to_stop() {
            self.told.clear();
            return;
        }
        for attempt in view.open_attempts().filter(|attempt| !attempt.on_behalf) {
            if view.is_asked_to_stop(attempt) && !self.told.contains(&attempt.attempt_id) {
                self.told.push(attempt.attempt_id);
                let (what, now) = (RuntimeName::CancelSignal, self.node.clock.now());
                self.node.tell(|| Some(RuntimeEvent::of(&view, what, attempt.run, now)));
                let stop =
                    Delivery::CancelRequested(attempt.attempt_id, view.time_to_stop(attempt, now));
                self.node.signal(&attempt.worker_id, stop);
            }
        }
    }

    /// Sends the holders of open Attempts what has come to the Task's `input_refs` since it was last called
    /// (CTRL-12), but for claims on behalf, as above. What the log shows as seen is not sent; after a change of owners
    /// some of the rest comes twice.
    pub(super) fn push_inputs(&mut self) {
        let Life::Known(task) = &self.life else { return };
        let view = task.durable();
        let count = view.pushed_inputs();
        let pushed = std::mem::replace(&mut self.inputs_pushed, count);
        if count <= pushed {
            return;
        }
        for attempt in view.open_attempts().filter(|attempt| !attempt.on_behalf) {
            let (after, refs) = view.inputs_for(attempt, pushed);
            self.node.send_input(&attempt.worker_id, attempt.attempt_id, after, refs);
        }
    }

    /// What a heartbeat says of how far the holders of Attempts have seen the Task's `input_refs`.
    pub(super) fn note_seen(&mut self, who: &AgentId, held: &[Holding]) {
        let Life::Known(task) = &mut self.life else { return };
        for Holding { attempt_id, fencing_token, input_seen, .. } in held {
            let is_theirs = task.durable().check_holder(who, *attempt_id, *fencing_token).is_ok();
            if let Some(seen) = input_seen.filter(|_| is_theirs) {
                task.note_input_seen(*attempt_id, seen);
            }
        }
    }

    /// Answers now, or once what the caller waits for has happened.
    pub(super) fn answer(&mut self, held: HeldAnswer) {
        self.node.note_refusal(&held.result);
        match held.waits {
            Some(wait) if !self.has_happened(wait) => {
                if let Err(held) = self.late.hold(held, wait, &self.node.waiters) {
                    let _ = held.reply_to.send(Err(no_place())); // As below.
                }
            }
            _ => {
                let result = self.as_of_now(held.result, &held.caller, held.is_summarised);
                let _ = held.reply_to.send(result); // The caller may have gone; the change stands.
            }
        }
    }

    fn as_of_now(
        &self,
        result: Result<Decided, Rejection>,
        caller: &Caller,
        is_summarised: bool,
    ) -> Result<WriteAnswer, Rejection> {
        let decided = result?;
        let task = match &self.life {
            Life::Known(task) => task,
            Life::Unreadable(why) => return Err(unread(why)),
            Life::New | Life::Stored(_) => return Err(ambiguous()),
        };
        let view = task.durable();
        let now = self.node.clock.now();
        let summary = is_summarised.then(|| {
            let known = |attempt| self.node.lease(attempt, now);
            let wal = self.node.wal_path(&view);
            let known = Known { wal_path: wal.as_deref(), ..Known::new(now, &known) };
            write_summary(&view, caller, &decided.reply, &known)
        });
        Ok(WriteAnswer::of(&view, caller, decided, summary, now))
    }

    /// Whether callers that wait can be answered: what they wait for has happened, or this node will never know. While
    /// the Task has to be read again, they go on waiting.
    fn has_happened(&self, wait: Wait) -> bool {
        let task = match &self.life {
            Life::Known(task) => task,
            Life::Stored(_) => return false,
            Life::Unreadable(_) if self.pauses => return false,
            Life::New | Life::Unreadable(_) => return true,
        };
        match wait {
            Wait::TaskEnd => task.durable().status().is_terminal(),
            Wait::RunEnd(run) => task.durable().run_has_ended(run),
        }
    }

    /// Answers those that waited for the end of the Task, or for the end of one of these Runs.
    pub(super) fn answer_late(&mut self, runs: impl IntoIterator<Item = Pos>) {
        if !self.late.is_empty() {
            if self.has_happened(Wait::TaskEnd) {
                self.late.take_all().into_iter().for_each(|held| self.answer(held));
            }
            for run in runs {
                self.late.take_of_run(run).into_iter().for_each(|held| self.answer(held));
            }
        }
        if !self.watchers.is_empty() && self.has_happened(Wait::TaskEnd) {
            let has_ended = matches!(self.life, Life::Known(_));
            for (watcher, _) in std::mem::take(&mut self.watchers) {
                if has_ended {
                    let _ = watcher.send(()); // The watcher may have gone. One that gets no hint asks again.
                }
            }
        }
    }

    /// Sends the pools how many ready Steps and Runs wait for a worker. These are absolute numbers,
    /// so that repeating them does no harm. A pool that was sent some before and has none now is
    /// sent zero. A Task that begins nothing for now says so: it still waits.
    pub(super) fn offer(&mut self, myself: &Address) {
        if self.flight.is_some() {
            return; // The numbers are sent when the append has returned.
        }
        let Life::Known(task) = &self.life else { return };
        let (withheld, ready) = (self.pauses, task.open_pools().filter(|_| !self.is_left));
        let ready: Vec<_> = ready.map(|(pool, n)| (pool.clone(), n)).collect();
        let told = ready.iter().map(|(pool, _)| pool.clone()).collect();
        let told_before = std::mem::replace(&mut self.offered, told);
        let none = told_before.into_iter().filter(|pool| !self.offered.contains(pool));
        for (pool, ready) in none.map(|pool| (pool, 0)).chain(ready) {
            let left = Left::of(task, myself, &pool, ready).withheld(withheld);
            self.node.tell_pool(&pool, PoolMsg::Ready(self.key.clone(), left));
        }
    }
}

/// What an append says of the storage. An error that means only that the log is another than
/// expected says nothing.
fn trouble(append: &Result<(), AppendError>) -> Option<String> {
    match append {
        Err(
            error @ (AppendError::Unavailable(_)
            | AppendError::Failed(_)
            | AppendError::MustReread(_)
            | AppendError::Unsettled(_)),
        ) => Some(error.to_string()),
        Ok(())
        | Err(
            AppendError::TaskExists
            | AppendError::NameTaken
            | AppendError::NotOwner
            | AppendError::AtCapacity
            | AppendError::Fenced { .. },
        ) => None,
    }
}

/// The answer to a command that is in the log, while the log cannot be read, so that nobody can say what it began.
fn unread(why: &Rejection) -> Rejection {
    Rejection::in_doubt(format!("the command stands; repeat it with the same id: {}", why.message))
}

/// WAL-09: the next owner will find whether it was written.
fn unsettled(message: &str) -> Rejection {
    Rejection::in_doubt(format!("what becomes of it is not known yet: {message}"))
}

pub(crate) fn storage_error(kind: RejectionKind, message: &str) -> Rejection {
    Rejection::new(Code::StorageError, message).of_kind(kind)
}
