//! The Task actor decides here what has gathered in its queue, and sends the commits to the log as one append. Step 5
//! of the walk in docs/architecture.md.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::command::pools::PoolField;
use tenure_core::command::{Caller, Cx, Grant as GrantCommand, Stamp};
use tenure_core::event::{Body, LeaseEnd};
use tenure_core::id::{AttemptId, Millis, PoolId};
use tenure_core::status::Role;
use tenure_core::task::Made;
use tenure_core::{Command, Limits, Outcome, Rejection, Reply, Task};
use tenure_ports::leases::Lease;
use tenure_ports::observer::LeaseCall;
use tenure_ports::{Journal, Leases};
use tokio::time::Instant;

use super::address::Address;
use super::{ActorTask, Flight, Landed, Life, Msg, Waiting};
use crate::ask::{Decided, HeldAnswer, TaskOrder, TaskRequest};
use crate::config::{ANSWERED_AT_ONCE, BATCH_MAX, BATCH_SOON, HOLDS_UP};
use crate::handle::Lane;
use crate::pool::{CreditPermit, Credits, Left, Msg as PoolMsg, Worker};

impl Flight {
    fn new() -> Self {
        Self {
            creates: false,
            is_urgent: false,
            creation: None,
            commits: Vec::new(),
            answers: Vec::new(),
            grants: Vec::new(),
            claimed: Vec::new(),
            ended: Vec::new(),
            expired: Vec::new(),
            unused: Vec::new(),
            told: Vec::new(),
            append: None,
            _under_way: None,
        }
    }
}

impl<J: Journal, L: Leases> ActorTask<J, L> {
    /// Decides what waits, in order, and appends it together.
    pub(super) fn flush(&mut self, myself: &Address) {
        if self.flight.is_some() {
            return;
        }
        if !self.is_owned() {
            return self.leave(myself);
        }
        let mut flight = Flight::new();
        let after = self.version();
        // The rest is decided when this append is durable, and written while workers are busy with
        // the Steps of this one. With everything in one append, workers and disk would wait for
        // each other.
        let half = (self.waiting.len() / 2).max(BATCH_SOON);
        for _ in 0..half {
            let without_commit = flight.answers.len().saturating_sub(flight.commits.len());
            if flight.commits.len() >= BATCH_MAX
                || flight.creates
                || without_commit >= ANSWERED_AT_ONCE
            {
                break;
            }
            let Some(waiting) = self.waiting.pop_front() else { break };
            self.decide(&mut flight, waiting);
        }
        self.claim_at_once(&mut flight);
        if flight.commits.is_empty() {
            if let Life::Known(task) = &mut self.life {
                task.settle(); // Changes that exist only in memory need no append.
            }
            self.answer_refusals(myself, flight);
            self.set_timer(myself);
            self.flush_soon(myself);
            return;
        }
        self.append(myself, flight, after);
    }

    fn version(&self) -> u64 {
        self.task().map_or(0, Task::version)
    }

    fn task(&self) -> Option<&Task> {
        match &self.life {
            Life::Known(task) => Some(task),
            Life::New | Life::Stored(_) | Life::Unreadable(_) => None,
        }
    }

    fn decide(&mut self, flight: &mut Flight, waiting: Waiting) {
        flight.is_urgent |= waiting.is_urgent();
        match waiting {
            Waiting::Ask(ask) => self.decide_ask(flight, *ask),
            Waiting::Credits(credits) => {
                for permit in credits {
                    self.grant(flight, permit);
                }
            }
            Waiting::Expired(attempt_ids, reason) => self.end_leases(flight, attempt_ids, reason),
            Waiting::Unacknowledged(attempt_id) => {
                let mut attempt_ids = vec![attempt_id];
                flight.ended.extend(self.take_those_over(&mut attempt_ids));
                let told = attempt_ids.clone();
                if self.decide_alone(flight, &Command::Unacknowledged { attempt_ids }) {
                    flight.expired.push((told, LeaseEnd::Released));
                }
            }
            Waiting::ParentCloses(end) => {
                let command = self.task().and_then(|task| task.follows_parent(end));
                command.map(|command| self.decide_alone(flight, &command));
            }
            Waiting::Adopt(child) => {
                let command = self.task().and_then(|task| task.adopts(&child));
                command.map(|command| self.decide_alone(flight, &command));
            }
            Waiting::Due => {
                self.spare_steps(self.node.look_at_gaps());
                while self.decide_alone(flight, &Command::Due) {
                    if flight.commits.len() >= BATCH_MAX {
                        self.waiting.push_front(Waiting::Due);
                        break;
                    }
                }
            }
        }
    }

    fn decide_ask(&mut self, flight: &mut Flight, ask: TaskRequest) {
        let TaskRequest { what, envelope, digest, reply_to, lane, permit } = ask;
        let cx = Cx {
            caller: &envelope.caller,
            stamp: self.node.clock.stamp(self.lead),
            command_id: envelope.command_id(),
            digest,
            expected_version: envelope.expected_version(),
            expected_spec_version: envelope.expected_spec_version(),
            trace: envelope.trace(),
            epoch: self.epoch,
            limits: self.node.limits(self.holds_edition_2),
        };
        let compared = |task: &Task| {
            let digest = crate::edge::digest_for(task, &envelope, &what, digest)?;
            Ok::<_, Rejection>(Cx { digest, ..cx })
        };
        let admitted = self.admit(&envelope, &what);
        let decided = match (&mut self.life, &what) {
            (Life::Known(task), TaskOrder::Command(command)) => {
                let named = command.pools();
                let checked = admitted.and_then(|()| compared(task));
                let checked = checked.and_then(|cx| self.pools.check(&named).map(|()| cx));
                let decided = checked.and_then(|cx| task.decide(&cx, command));
                if decided.is_ok() && !named.is_empty() {
                    self.pools.add(named.into_keys());
                }
                decided
            }
            (Life::Known(task), TaskOrder::Create(create)) => {
                let (input, defaults, parent) = &**create;
                compared(task).and_then(|cx| task.recreated(&cx, input, defaults, parent.as_ref()))
            }
            (Life::Unreadable(rejection), _) => Err(rejection.clone()),
            (Life::Stored(_), _) => Err(crate::handle::overloaded()), // It was to be read before.
            (Life::New, TaskOrder::Command(command)) => Err(match cx.caller.role {
                Role::Worker => command.refused_without_task(&cx),
                _ => crate::node::not_found(&self.key),
            }),
            (life @ Life::New, TaskOrder::Create(create)) => {
                let (input, defaults, parent) = &**create;
                let mut named = input.pools();
                if input.default_worker_pool_id.is_none() {
                    named.entry(&defaults.worker_pool_id).or_insert(PoolField::Default);
                }
                let checked = self.pools.check(&named);
                let created =
                    checked.and_then(|()| Task::create(&cx, input, defaults, parent.as_ref()));
                created.map(|(task, outcome)| {
                    self.pools.add(named.into_keys());
                    *life = Life::Known(Box::new(task));
                    flight.creates = true;
                    outcome
                })
            }
        };
        if let (Err(refused), Life::Known(task), TaskOrder::Command(command)) =
            (&decided, &self.life, &what)
        {
            flight.told.extend(task.lost_claim(&cx, command, refused));
        }
        let waits = decided.as_ref().ok().and_then(|outcome| outcome.reply.waits);
        let result = decided.map(|outcome| Self::keep(flight, outcome));
        if let Ok(Decided { reply: Reply { made: Made::Attempt(attempt), .. }, .. }) = &result {
            flight.claimed.push(*attempt);
        }
        if flight.creates && flight.creation.is_none() {
            // The id may turn out to exist: then the Task that has it decides this request.
            let ask = TaskRequest { what, envelope, digest, reply_to, lane, permit };
            flight.creation = Some(Box::new((ask, result)));
        } else {
            let (caller, is_summarised) = (envelope.caller, lane != Lane::Reports);
            let held =
                HeldAnswer { result, waits, reply_to, caller, is_summarised, _permit: permit };
            flight.answers.push(held);
        }
    }

    /// Decides a command of the scheduler itself. Answers whether it wrote anything.
    pub(super) fn decide_alone(&mut self, flight: &mut Flight, command: &Command) -> bool {
        let Life::Known(task) = &mut self.life else { return false };
        let limits = self.node.limits(self.holds_edition_2);
        let cx = own_cx(&self.system, self.node.clock.stamp(self.lead), self.epoch, limits);
        match task.decide(&cx, command) {
            Ok(outcome) => {
                let did = outcome.commit.is_some();
                Self::keep(flight, outcome);
                did
            }
            Err(rejection) => {
                tracing::debug!(task = %self.key, %rejection, "nothing to do");
                false
            }
        }
    }

    /// Takes a decision into the batch.
    fn keep(flight: &mut Flight, outcome: Outcome) -> Decided {
        let decided = Decided { reply: outcome.reply, is_written: outcome.commit.is_some() };
        flight.told.extend(outcome.told);
        if let Some(commit) = outcome.commit {
            flight.ended.extend(commit.events.iter().filter_map(|event| ended(&event.body)));
            flight.commits.push(Arc::new(commit));
        }
        decided
    }

    /// Claims ready Steps for a worker that has capacity. Credits for which there is no Step go
    /// back to the pool.
    fn grant(&mut self, flight: &mut Flight, mut permit: CreditPermit) {
        while permit.credits() > 0 && self.may_claim() {
            let Some(mut one) = self.place(&mut permit) else { break };
            let command = Command::GrantStep(grant_to(&one.worker, one.is_isolated()));
            let Some(attempt) = self.claim(flight, &command) else {
                drop(one.hand_over_isolation());
                flight.unused.push(one);
                break;
            };
            flight.grants.push((attempt, one));
        }
        if permit.credits() > 0 {
            flight.unused.push(permit);
        }
    }

    /// A credit for the next Step: of this worker, or of another that suits the Step better
    /// (DISP-18, LEASE-19).
    fn place(&self, permit: &mut CreditPermit) -> Option<CreditPermit> {
        let Life::Known(task) = &self.life else { return None };
        let Worker { id, pool, handlers, .. } = &*permit.worker;
        let has_lost = permit.worker.hand.has_lost();
        let Some(next_step_needs) = task.next_step_needs(id, pool, handlers.as_deref(), has_lost)
        else {
            return permit.take_one();
        };
        if let Some(other) = permit.instead(&next_step_needs, &self.key.session_id) {
            return Some(other);
        }
        let mut one = permit.take_one()?;
        if next_step_needs.was_lost {
            // Without a place, a Step that was lost twice waits, and the worker gets another.
            one.take_isolation();
            permit.wants_place_as(&one);
        }
        Some(one)
    }

    /// Whether the scheduler claims by itself just now: not after an append that failed, and not
    /// while the store of leases does not answer.
    fn may_claim(&self) -> bool {
        !self.pauses && self.node.keeps_leases()
    }

    fn claim(&mut self, flight: &mut Flight, command: &Command) -> Option<tenure_core::table::Pos> {
        let Life::Known(task) = &mut self.life else { return None };
        let limits = self.node.limits(self.holds_edition_2);
        let cx = own_cx(&self.system, self.node.clock.stamp(self.lead), self.epoch, limits);
        let outcome = task.decide(&cx, command).ok()?;
        let Made::Attempt(attempt) = outcome.reply.made else { return None };
        Self::keep(flight, outcome);
        Some(attempt)
    }

    /// Claims in the same append that made Steps ready, where credits wait and no other Task has
    /// the turn. The answers of that append then wait for the leases too, so it does not claim
    /// where leases are slow (mechanisms 9).
    fn claim_at_once(&mut self, flight: &mut Flight) {
        let Life::Known(task) = &self.life else { return };
        if flight.commits.is_empty() || !self.may_claim() || self.node.are_leases_slow() {
            return;
        }
        let pools: Vec<(PoolId, usize)> = task.open_pools().map(|(p, n)| (p.clone(), n)).collect();
        for (pool, ready) in pools {
            let Some(pool) = self.node.pool_if_open(&pool) else { continue };
            for permit in pool.try_reserve(&self.key, ready) {
                self.grant(flight, permit);
            }
        }
    }

    /// Nothing was written: answers refusals, repetitions and commands that change nothing.
    fn answer_refusals(&mut self, myself: &Address, flight: Flight) {
        self.node.drop_leases(flight.ended);
        flight.told.into_iter().for_each(|event| self.node.tell(|| Some(event)));
        self.return_credits(myself, flight.unused);
        for held in flight.answers {
            self.answer(held);
        }
        self.signal(); // Asking a Run to stop writes nothing.
        if !self.late.is_empty() {
            self.answer_late(self.late.runs()); // Nor does the end of a Run while its Task is being closed.
        }
    }

    /// Sends the commits to the log, and takes the leases of new Attempts at the same time.
    fn append(&mut self, myself: &Address, flight: Flight, after: u64) {
        let node = Arc::clone(&self.node);
        let under_way = Some(node.rounds.begin());
        let (key, actor) = (self.key.clone(), myself.clone());
        let leases = self.new_leases(&flight);
        let commits = flight.commits.clone();
        let creates = flight.creates.then(|| self.wal_name()).flatten();
        let is_urgent = flight.is_urgent;
        // Boxed: a runtime moves a future several times, and this one is large.
        let append = tokio::spawn(Box::pin(async move {
            let (begun, count) = (Instant::now(), commits.len());
            let append = pin!(async {
                match creates {
                    Some(name) => node.journal.create(&key, &name, commits).await,
                    None if is_urgent => node.journal.append(&key, after, commits).await,
                    None => node.journal.append_within_capacity(&key, after, commits).await,
                }
            });
            let take = pin!(async {
                if leases.is_empty() {
                    return (Ok(()), Duration::ZERO);
                }
                let (count, acquire) = (leases.len(), node.leases.acquire(leases));
                let taken = node.watch_leases(LeaseCall::Acquire, count, acquire).await;
                (taken, begun.elapsed())
            });
            let append = node.watch_append(&key, count, begun, append);
            let ((append, appended), (leases, taken)) = tokio::join!(append, take);
            if taken > appended + HOLDS_UP {
                node.note_slow_leases();
            }
            let landed = Landed { append, leases };
            let _ = actor.cast(Msg::Landed(landed)); // A stopped actor is replaced by replay.
        }));
        self.flight = Some(Flight { append: Some(append), _under_way: under_way, ..flight });
    }

    fn wal_name(&self) -> Option<tenure_core::id::WalName> {
        match &self.life {
            Life::Known(task) => Some(task.head().spec.wal_name.clone()),
            Life::New | Life::Stored(_) | Life::Unreadable(_) => None,
        }
    }

    fn new_leases(&self, flight: &Flight) -> Vec<Lease> {
        self.leases_by(flight, |body| match body {
            Body::StepClaimed(claim) => Some((claim.attempt_id, claim.lease_expires_at)),
            _ => None,
        })
    }

    /// LEASE-04: leases that reports renew, of Attempts that this append does not end.
    pub(super) fn reported_leases(&self, flight: &Flight) -> Vec<Lease> {
        let mut leases = self.leases_by(flight, |body| match body {
            Body::StepStarted(started) => Some((started.attempt_id, started.lease_expires_at)),
            Body::StepUpdated(updated) => updated.attempt_id.zip(updated.lease_expires_at),
            _ => None,
        });
        leases.retain(|lease| !flight.ended.contains(&lease.attempt_id));
        leases
    }

    /// The leases that events state, with their durations.
    fn leases_by(
        &self,
        flight: &Flight,
        says: impl Fn(&Body) -> Option<(AttemptId, Millis)>,
    ) -> Vec<Lease> {
        let mut leases = Vec::new();
        for commit in &flight.commits {
            for (attempt_id, until) in commit.events.iter().filter_map(|event| says(&event.body)) {
                let duration_ms = until.abs_diff(commit.created_at);
                leases.push(Lease { task: self.key.clone(), attempt_id, duration_ms });
            }
        }
        leases
    }

    /// Offers Runs for credits that found no Step, and gives the rest back. The pool sends this
    /// Task no such credit again before it has new ready Steps.
    pub(super) fn return_credits(&mut self, myself: &Address, unused: Credits) {
        if !unused.is_empty() && !self.node.keeps_leases() {
            self.pause(myself); // So the Task asks the pool again later.
        }
        for mut permit in unused {
            self.offer_runs(myself, &mut permit);
            if permit.credits() == 0 {
                continue;
            }
            let pool = permit.worker.pool.clone();
            let left = match &self.life {
                Life::Known(task) => {
                    let ready = Self::ready_for(task, &pool);
                    Left::of(task, myself, &pool, ready).withheld(self.pauses)
                }
                _ => Left::nothing(myself),
            };
            if left.ready > 0 && !self.offered.contains(&pool) {
                self.offered.push(pool.clone());
            }
            self.node.tell_pool(&pool, PoolMsg::Unfit(self.key.clone(), left, permit));
        }
    }

    fn ready_for(task: &Task, pool: &PoolId) -> usize {
        let mine = task.open_pools().find(|(id, _)| *id == pool);
        mine.map_or(0, |(_, ready)| ready)
    }

    /// Answers every request of an append with a rejection that is not of the domain.
    pub(super) fn refuse_all(&self, mut flight: Flight, rejection: &Rejection) {
        self.node.note_refused(rejection);
        let creation = flight.creation.take().map(|creation| creation.0.reply_to);
        let answers = std::mem::take(&mut flight.answers);
        for reply_to in creation.into_iter().chain(answers.into_iter().map(|h| h.reply_to)) {
            let _ = reply_to.send(Err(rejection.clone()));
        }
        if self.is_owned() {
            let made = self.new_leases(&flight).into_iter().map(|lease| lease.attempt_id);
            // If another node owns the Task, that one drops them.
            self.node.drop_leases(made.collect());
        }
    }
}

/// The Attempt that an event ends.
fn ended(body: &Body) -> Option<AttemptId> {
    match body {
        Body::StepBlocked(p) => p.attempt_id,
        Body::StepCompleted(p) => p.attempt_id,
        Body::StepFailed(p) => p.attempt_id,
        Body::StepCancelled(p) => p.attempt_id,
        Body::StepLeaseExpired(p) => Some(p.attempt_id),
        _ => None,
    }
}

/// The command with which the core claims a Step for a worker that has capacity.
fn grant_to(worker: &Worker, may_be_suspect: bool) -> GrantCommand {
    GrantCommand {
        worker_id: worker.id.clone(),
        worker_pool_id: worker.pool.clone(),
        origin: worker.origin.clone(),
        handlers: worker.handlers.clone(),
        may_be_suspect,
    }
}

/// What a command of the scheduler itself is decided with. No caller repeats such a command, so it has no id.
fn own_cx<'a>(system: &'a Caller, stamp: Stamp, epoch: u64, limits: &'a Limits) -> Cx<'a> {
    Cx {
        caller: system,
        stamp,
        command_id: None,
        digest: None,
        expected_version: None,
        expected_spec_version: None,
        trace: None,
        epoch,
        limits,
    }
}
