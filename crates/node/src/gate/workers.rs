//! Handles the messages of workers: hellos, capacity, heartbeats, reports, queries, looks and
//! claims.
//!
//! Step 10 of the walk in docs/architecture.md.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use futures::future::join_all;
use serde::Serialize;
use tenure_core::Rejection;
use tenure_core::command::{GiveBack, StepReport};
use tenure_core::id::{RunId, SessionId, TaskId};
use tenure_core::status::Role;
use tenure_core::view::RunOffer;
use tenure_ports::bus::{Credit, Holding, Recorded, WorkerPort as _};
use tenure_ports::journal::TaskKey;
use tenure_scheduler::WriteAnswer as Done;
use tenure_wire::bus::blob::{BlobAnswer, BlobAsk, HeldBlob};
use tenure_wire::bus::subject::{Misnamed, WorkerName, inbox, misnamed};
use tenure_wire::bus::worker::{
    Capacity, Claim, Heartbeat, Hello, Looking, Pulse, Pulses, QuerySteps, Report, Reported,
    Reports, Word,
};
use tenure_wire::bus::{Answer, BadMessage, decode, encode};
use tokio::sync::OwnedSemaphorePermit;

use super::{Gate, PartitionCall, READ_MAX, SETTLES, in_time, not_sure, read_in_turn, say_answer};
use crate::lanes::LaneKey;
use crate::links::NodeLink;
use crate::refused::{Speaker, in_short};

impl Gate {
    /// Opens a link for a worker.
    pub(super) async fn hello(self: &Arc<Self>, name: &WorkerName, bytes: &[u8]) {
        let opened = decode::<Hello>(bytes)
            .map_err(Rejection::from)
            .and_then(|hello| self.links.open(name, hello, bytes.len()));
        match opened {
            Ok(link) => {
                self.refused.forget(name.into());
                self.announces.notify_one();
                link.greet(&self.links).await;
            }
            Err(refused) => self.turn_away(name.into(), refused).await,
        }
    }

    /// Tells a worker whose subject names no possible pool or principal why it gets no work.
    pub(super) async fn answer_misnamed(&self, subject: &str) {
        if let Some(Misnamed { pool, principal, boot, why }) = misnamed(&self.cluster, subject) {
            let who = Speaker { pool, principal: &principal, boot: &boot };
            self.turn_away(who, why.into()).await;
        }
    }

    /// Tells a worker why its message, for which it awaits no answer, cannot be accepted: otherwise
    /// it would wait for work for ever. Logs this once.
    pub(super) async fn turn_away(&self, who: Speaker<'_>, refused: Rejection) {
        let refused = in_short(refused);
        let inbox = format!("{}.d.{}", inbox(Role::Worker, who.principal, who.boot), self.node);
        // That a node is full is no fault of the worker's.
        if !refused.code.is_retryable() && self.refused.note(who, refused.clone()) {
            let worker = format_args!("{}.{}", who.principal, who.boot);
            tracing::warn!(%worker, pool = who.pool, %refused, "a worker gets no work");
        }
        say_answer(&self.control, &inbox, &Answer::<()>::from(Err(refused))).await;
    }

    /// Notes the capacity that a worker states. A worker that speaks of another link is sent this
    /// one.
    pub(super) async fn room(self: &Arc<Self>, name: &WorkerName, bytes: &[u8]) {
        let said = decode::<Capacity>(bytes).map_err(Rejection::from);
        match said.and_then(|room| Ok((room, self.links.of(name)?))) {
            Ok((room, link)) if link.note_capacity(&room) => {}
            Ok((_, link)) => link.greet(&self.links).await,
            Err(refused) => self.turn_away(name.into(), refused).await,
        }
    }

    pub(super) fn heartbeat(
        self: &Arc<Self>,
        name: &WorkerName,
        bytes: &[u8],
        reply: Option<String>,
    ) {
        let Some(reply) = reply else { return };
        let heartbeat = match decode::<Heartbeat>(bytes) {
            Ok(heartbeat) => heartbeat,
            Err(bad) => return self.refuse(reply, bad.into()),
        };
        let owned = self.fence.journal.owned();
        let mut mine: Vec<(u32, Holding)> = Vec::new();
        for held in heartbeat.holdings.into_iter().map(Holding::from) {
            let partition = held.task.partition(self.partitions);
            if owned.epoch(partition).is_some() {
                mine.push((partition, held));
            }
        }
        if mine.is_empty() {
            return self.links.acknowledge(name); // The owners of these Attempts answer.
        }
        let Ok(link) = self.links.of(name) else { return }; // A worker repeats what was not answered.
        let Some(leave) = self.heartbeats.take(name.principal.as_str(), &link.beats) else {
            if self.rates.may_tell(Role::Worker, &name.principal) {
                self.refuse(reply, tenure_scheduler::overloaded());
            }
            return;
        };
        let gate = Arc::clone(self);
        tokio::spawn(async move {
            let _leave = leave;
            let pulses = gate.pulses(&link, mine).await;
            let answer = Answer::from(Ok(Pulses { pulses }));
            say_answer(&gate.control, &reply, &answer).await;
        });
    }

    /// What this node can say of Attempts. It says nothing of Attempts in a partition that it may
    /// have lost.
    async fn pulses(&self, link: &NodeLink, held: Vec<(u32, Holding)>) -> Vec<Pulse> {
        let holdings: Vec<Holding> = held.iter().map(|(_, held)| held.clone()).collect();
        let beats = link.port.pulses(&holdings).await;
        let mut pulses = Vec::new();
        let mut holds: BTreeMap<u32, bool> = BTreeMap::new();
        for (partition, _) in &held {
            if !holds.contains_key(partition) {
                holds.insert(*partition, self.fence.holds(*partition).await);
            }
        }
        for ((partition, held), (beat, lease_ms)) in held.into_iter().zip(beats) {
            if holds.get(&partition) == Some(&true) {
                pulses.extend(beat.said(held.attempt_id, lease_ms));
            }
        }
        pulses
    }

    /// Sends reports to their Tasks in the order in which they came, and answers them together.
    pub(super) fn report(
        self: &Arc<Self>,
        name: &WorkerName,
        partition: u32,
        bytes: &[u8],
        reply: Option<String>,
    ) {
        let since = Instant::now();
        let link = self.links.of(name);
        let (reports, link) = match (decode::<Reports>(bytes), link) {
            (Ok(reports), Ok(link)) => (reports, link),
            (Err(bad), _) => return self.refuse_if_asked(reply, bad.into()),
            (_, Err(refused)) => return self.refuse_if_asked(reply, refused),
        };
        let mut room = reports.room.and_then(|room| link.room(&room));
        let mut answers = Vec::with_capacity(reports.reports.len());
        let bytes_each = bytes.len() / reports.reports.len().max(1);
        for report in reports.reports {
            let key =
                TaskKey { session_id: report.session_id.clone(), task_id: report.task_id.clone() };
            let counted = self.rates.report(&name.principal, &report, bytes_each);
            let checked = self.check_partition(&key, partition);
            let checked = checked.and(counted.map_err(Rejection::from));
            answers.push(checked.map(|()| send_report(&link, key, report, room.take())));
        }
        if let Some(room) = room {
            link.port.credit(room); // There was no report to send the capacity with.
        }
        let gate = Arc::clone(self);
        // Boxed: a runtime moves a future several times, and this one is large.
        tokio::spawn(Box::pin(async move {
            let results = answers.into_iter().map(async |sent| in_time(sent?.in_full()).await);
            let results = join_all(results).await;
            let Some(reply) = reply else { return };
            let is_written = results.iter().all(|it| it.as_ref().is_ok_and(|it| it.is_written));
            // A worker that learns that its Attempt is over throws its work away. A node that is
            // behind must not say so of an Attempt that the next owner made (mechanisms 4).
            let ends_one = |result: &Result<_, Rejection>| {
                result.as_ref().is_err_and(|refused| refused.code.ends_attempt())
            };
            let ends_any = results.iter().any(ends_one);
            if ends_any && !gate.fence.is_owner(partition).await {
                return say_answer(&gate.control, &reply, &Answer::<()>::from(Err(not_sure())))
                    .await;
            }
            let said = |it: Result<Done, _>| Recorded::said(it.map(|it| it.recorded()));
            let results = results.into_iter().map(said).collect();
            let reported = Ok(Reported { results });
            let asked = gate.of_worker("report", &reply, partition, since);
            // If nothing was written, `is_owner` has checked the ownership.
            gate.answer(&asked, is_written || ends_any, reported).await;
        }));
    }

    pub(super) fn query(
        self: &Arc<Self>,
        name: &WorkerName,
        partition: u32,
        bytes: &[u8],
        reply: Option<String>,
    ) {
        let Some(reply) = reply else { return };
        let since = Instant::now();
        let asked = decode::<QuerySteps>(bytes).map_err(Rejection::from).and_then(|query| {
            let offer = offer_of(name, query.session_id, query.task_id, query.run_id);
            self.check_partition(&key_of(&offer), partition)?;
            Ok((self.links.of(name)?, self.leave_to_read()?, offer, query.offset))
        });
        let (link, leave, offer, offset) = match asked {
            Ok(asked) => asked,
            Err(refused) => return self.refuse(reply, refused),
        };
        let came = LookupInput { leave, name, reply, partition, since };
        self.look_up("query", came, async move { link.port.query(&offer, offset).await });
    }

    pub(super) fn look(
        self: &Arc<Self>,
        name: &WorkerName,
        partition: u32,
        bytes: &[u8],
        reply: Option<String>,
    ) {
        let Some(reply) = reply else { return };
        let since = Instant::now();
        let asked = Looking::read(bytes).and_then(|looking| {
            let Looking { session_id, task_id, run_id, look, .. } = looking;
            let key = TaskKey { session_id, task_id };
            self.check_partition(&key, partition)?;
            Ok((self.links.of(name)?, self.leave_to_read()?, key, run_id, look))
        });
        let (link, leave, key, run_id, look) = match asked {
            Ok(asked) => asked,
            Err(refused) => return self.refuse(reply, refused),
        };
        let came = LookupInput { leave, name, reply, partition, since };
        self.look_up("look", came, async move { link.port.look(&key, run_id, look).await });
    }

    pub(super) fn blob(
        self: &Arc<Self>,
        name: &WorkerName,
        partition: u32,
        bytes: &[u8],
        reply: Option<String>,
    ) {
        let Some(reply) = reply else { return };
        let since = Instant::now();
        let asked = decode::<HeldBlob>(bytes).map_err(Rejection::from).and_then(|asked| {
            let task =
                TaskKey { session_id: asked.session_id.clone(), task_id: asked.task_id.clone() };
            self.check_partition(&task, partition)?;
            let HeldBlob { run_id, attempt_id, fencing_token, ask, .. } = asked;
            let held =
                Holding { task, run_id, attempt_id, fencing_token, lease_ms: 0, input_seen: None };
            Ok((self.links.of(name)?, self.leave_to_read()?, held, ask))
        });
        let (link, leave, held, ask) = match asked {
            Ok(asked) => asked,
            Err(refused) => return self.refuse(reply, refused),
        };
        let came = LookupInput { leave, name, reply, partition, since };
        self.look_up("blob", came, async move {
            match ask {
                BlobAsk::BlobGet(asked) => {
                    link.port.blob_get(&held, asked).await.map(BlobAnswer::Part)
                }
                BlobAsk::BlobPut(part) => {
                    link.port.blob_put(&held, part).await.map(BlobAnswer::Taken)
                }
            }
        });
    }

    pub(super) fn claim(
        self: &Arc<Self>,
        name: &WorkerName,
        partition: u32,
        bytes: &[u8],
        reply: Option<String>,
    ) {
        let Some(reply) = reply else { return };
        let since = Instant::now();
        let asked = decode::<Claim>(bytes).map_err(Rejection::from).and_then(|claim| {
            let Claim { session_id, task_id, run_id, step_id, command_id, .. } = claim;
            let offer = offer_of(name, session_id, task_id, run_id);
            self.check_partition(&key_of(&offer), partition)?;
            Ok((self.links.of(name)?, offer, step_id, command_id))
        });
        let (link, offer, step_id, command_id) = match asked {
            Ok(asked) => asked,
            Err(refused) => return self.refuse(reply, refused),
        };
        let gate = Arc::clone(self);
        tokio::spawn(async move {
            let claimed = in_time(link.port.claim_anew(&offer, &step_id, &command_id)).await;
            let is_written = claimed.as_ref().is_ok_and(|(_, is_written)| *is_written);
            if let Ok((claim, _)) = &claimed
                && let Err(BadMessage { why, .. }) = encode(&Answer::from(Ok(claim)))
            {
                // The worker cannot get this claim; the answer says that it is too long.
                link.fail(claim, &why);
            }
            let asked = gate.of_worker("claim", &reply, partition, since);
            gate.answer(&asked, is_written, claimed.map(|(claim, _)| claim)).await;
        });
    }

    /// Answers a read of a worker when it is the turn of its principal.
    fn look_up<T: Serialize + Send + 'static>(
        self: &Arc<Self>,
        operation: &'static str,
        LookupInput { leave, name, reply, partition, since }: LookupInput<'_>,
        read: impl Future<Output = Result<T, Rejection>> + Send + 'static,
    ) {
        let who = LaneKey::of(Role::Worker, name.principal.as_str());
        let gate = Arc::clone(self);
        self.read_threads.spawn(async move {
            let _leave = leave;
            let client = &gate.lookups;
            let asked =
                PartitionCall { client, ..gate.of_worker(operation, &reply, partition, since) };
            let refused = match gate.parts.turn(who, SETTLES).await {
                Ok(turn) => {
                    let read = async { gate.answer(&asked, false, read.await).await };
                    match read_in_turn(turn, &asked, READ_MAX, Box::pin(read)).await {
                        Some(()) => return,
                        None => tenure_scheduler::overloaded(),
                    }
                }
                Err(refused) => refused,
            };
            gate.answer(&asked, true, Err::<(), _>(refused)).await;
        });
    }

    /// The request of a worker, as a call on a partition.
    fn of_worker<'a>(
        &'a self,
        operation: &'static str,
        reply: &'a str,
        partition: u32,
        since: Instant,
    ) -> PartitionCall<'a> {
        let client = &self.control;
        let sent = AtomicUsize::new(0);
        PartitionCall { client, reply, partition, operation, may_wait: false, since, sent }
    }

    fn refuse_if_asked(self: &Arc<Self>, reply: Option<String>, refused: Rejection) {
        if let Some(reply) = reply {
            self.refuse(reply, refused);
        }
    }

    /// Refuses a request with an answer that says nothing about any Task.
    fn refuse(self: &Arc<Self>, reply: String, refused: Rejection) {
        let gate = Arc::clone(self);
        tokio::spawn(async move {
            say_answer(&gate.control, &reply, &Answer::<()>::from(Err(refused))).await;
        });
    }
}

/// A read of a worker as it came, with its permit.
struct LookupInput<'a> {
    leave: OwnedSemaphorePermit,
    name: &'a WorkerName,
    reply: String,
    partition: u32,
    since: Instant,
}

fn send_report(
    link: &NodeLink,
    task: TaskKey,
    report: Report,
    room: Option<Credit>,
) -> tenure_scheduler::Answering {
    let run_id = report.run_id;
    let held = |attempt_id, fencing_token| Holding {
        task: task.clone(),
        run_id,
        attempt_id,
        fencing_token,
        lease_ms: 0,
        input_seen: None,
    };
    let nobody = tenure_core::id::AttemptId(uuid::Uuid::nil());
    match report.word {
        Word::TaskUpdateStep(word) => {
            let (attempt, token) = (word.attempt_id, word.fencing_token);
            let held = held(attempt.unwrap_or(nobody), token.unwrap_or_default());
            link.port.report(&held, StepReport { ..word }, room)
        }
        Word::EndRun { outcome, result } => {
            link.port.end_run(&held(nobody, 0), outcome, result, room)
        }
        Word::DeclineRun { reason } => link.port.decline(&task, run_id, reason, room),
        Word::ReleaseStep { attempt_id, fencing_token, reason, retry_after_ms } => {
            let how = GiveBack { reason, retry_after_ms };
            link.port.release(&held(attempt_id, fencing_token), how, room)
        }
    }
}

/// A Run of which only the ids are known, and the pool of the worker's link.
fn offer_of(name: &WorkerName, session_id: SessionId, task_id: TaskId, run_id: RunId) -> RunOffer {
    RunOffer {
        session_id,
        task_id,
        run_id,
        worker_pool_id: name.pool.clone(),
        allowed_step_ids: None,
        instructions: None,
        bindings: None,
        expires_at: None,
    }
}

fn key_of(offer: &RunOffer) -> TaskKey {
    TaskKey { session_id: offer.session_id.clone(), task_id: offer.task_id.clone() }
}
