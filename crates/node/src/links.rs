//! The way to each worker, and what the node knows of its capacity.
//!
//! A link begins with any message of a worker that has none. It ends when the worker leaves, is silent for five
//! seconds, or does not acknowledge what it is sent. Its Attempts do not end with it: their leases say whether
//! somebody still runs them. Step 8 of the walk in docs/architecture.md.

mod facts;
mod gone;
mod leave;
mod outputs;
mod shares;

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use parking_lot::Mutex;
use serde::Serialize;
use smol_str::{SmolStr, format_smolstr};
use tenure_core::Rejection;
use tenure_core::command::StepReport;
use tenure_core::features::INPUT;
use tenure_core::patch::ReasonInput;
use tenure_core::status::StepStatus;
use tenure_core::view::ClaimResult;
use tenure_ports::bus::{Credit, Delivery as Sent, Holding, WorkerPort as _};
use tenure_ports::journal::TaskKey;
use tenure_ports::map::IdMap;
use tenure_ports::observer::LinkEnd;
use tenure_ports::supervise;
use tenure_wire::bus::subject::{Token, WorkerName};
use tenure_wire::bus::worker::{Capacity, Delivery, Hello};
use tenure_wire::bus::{V, encode};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::leave::Leave;
use self::shares::{HeldShare, LinkShares};
use crate::bus::send_or_hear;
use crate::heartbeats::WorkerBeats;
use crate::window::{Silence, Window};
use crate::{ClusterScheduler, NodeWorkerLink};

/// How late a check of the links may be before the node concludes that it stood still.
const LATE: Duration = Duration::from_secs(1);

/// How long a worker may be silent before the node sends it nothing more (mechanisms 8).
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// How long the node remembers that a worker without a link is to leave.
const LEAVING_KEPT: Duration = Duration::from_secs(60);

/// How many deliveries a message has at most.
const BATCH_MAX: usize = 256;

/// About how many bytes a message has at most.
const BATCH_BYTES: usize = 512 << 10;

/// How many Steps any worker may ask for at a time.
const CAPACITY_MAX: u64 = 1 << 20;

/// The largest integer that every language's numbers hold exactly.
const COUNT_MAX: u64 = 1 << 53;

/// All workers of a node.
pub(crate) struct Links {
    scheduler: ClusterScheduler,
    client: Client,
    node: Token,
    /// How many links there may be.
    most: usize,
    shares: Arc<LinkShares>,
    all: Mutex<All>,
}

#[derive(Default)]
struct All {
    links: IdMap<WorkerName, Arc<NodeLink>>,
    /// Workers that were asked to leave and whose link has ended, and when: they may not know of it.
    leaving: IdMap<WorkerName, (Instant, Leave)>,
    /// The worker of each link, by the id of the link.
    by_id: IdMap<SmolStr, WorkerName>,
    /// How many links there ever were.
    opened: u64,
    /// When all links were checked last.
    looked: Option<Instant>,
}

/// The way to a worker.
pub(crate) struct NodeLink {
    /// The worker as the scheduler knows it.
    pub(crate) port: NodeWorkerLink,
    id: SmolStr,
    inbox: String,
    /// The worker's hello. None before that: then it is sent no Steps.
    said: Option<Hello>,
    state: Mutex<LinkState>,
    /// Held while a message is sent, so that messages keep their order.
    sending: tokio::sync::Mutex<()>,
    /// Its heartbeats that are under way.
    pub(crate) beats: WorkerBeats,
    /// The link has ended.
    over: Notify,
    _share: HeldShare,
}

struct LinkState {
    window: Window,
    heard: Instant,
    /// The worker was asked to leave.
    leave: Option<Leave>,
}

#[derive(Serialize)]
struct Deliveries<'a> {
    v: V,
    node: &'a str,
    link: &'a str,
    first: u64,
    deliveries: &'a [&'a Delivery],
}

impl Links {
    pub(crate) fn new(
        scheduler: ClusterScheduler,
        client: Client,
        node: Token,
        most: usize,
    ) -> Arc<Self> {
        let shares = LinkShares::of(most);
        Arc::new(Self { scheduler, client, node, most, shares, all: Mutex::default() })
    }

    /// The link of a worker, opened if need be. A link that was opened without a hello gets no Steps.
    pub(crate) fn of(self: &Arc<Self>, name: &WorkerName) -> Result<Arc<NodeLink>, Rejection> {
        self.get_or_open(name, |_| true, (None, 0))
    }

    /// The link of a worker that says hello in so many bytes; a new link if it says something else than before.
    pub(crate) fn open(
        self: &Arc<Self>,
        name: &WorkerName,
        hello: Hello,
        bytes: usize,
    ) -> Result<Arc<NodeLink>, Rejection> {
        hello.check()?;
        let said = Some(hello);
        self.get_or_open(name, |link| link.said == said, (said.clone(), bytes))
    }

    fn get_or_open(
        self: &Arc<Self>,
        name: &WorkerName,
        fits: impl Fn(&NodeLink) -> bool,
        (said, bytes): (Option<Hello>, usize),
    ) -> Result<Arc<NodeLink>, Rejection> {
        let mut all = self.all.lock();
        let All { links, leaving, opened, by_id, .. } = &mut *all;
        let count = links.len();
        let mut leave = leaving.get(name).map(|(_, leave)| *leave);
        let place = match links.entry(name.clone()) {
            Entry::Occupied(there) if fits(there.get()) => {
                let link = Arc::clone(there.get());
                link.state.lock().heard = Instant::now();
                return Ok(link);
            }
            Entry::Occupied(there) => {
                let before = there.remove();
                by_id.remove(&before.id);
                let earlier = before.state.lock().leave;
                leave = leave.map(|leave| leave.or_sooner(earlier)).or(earlier);
                Self::end(&before);
                links.entry(name.clone())
            }
            Entry::Vacant(_) if count >= self.most => return Err(tenure_scheduler::overloaded()),
            vacant @ Entry::Vacant(_) => vacant,
        };
        let share = match self.shares.take(&name.principal, bytes) {
            Ok(share) => share,
            Err(full) => {
                // A worker that was asked to leave is asked again when it comes again.
                if let Some(leave) = leave {
                    leaving.insert(name.clone(), (Instant::now(), leave));
                }
                return Err(full);
            }
        };
        let abilities = said.as_ref().map(Hello::abilities).unwrap_or_default();
        let origin = said.as_ref().and_then(Hello::origin).map(Arc::new);
        let (id, pool) = (name.agent()?, name.pool.clone());
        let (port, inbox) = self.scheduler.join_from(id, pool, abilities, origin)?;
        *opened += 1;
        leaving.remove(name);
        let mut state = LinkState { window: Window::new(), heard: Instant::now(), leave: None };
        if let Some(leave) = leave {
            state.drain(leave);
        }
        let link = Arc::new(NodeLink {
            port,
            id: format_smolstr!("{}-{opened}", self.node),
            inbox: format!("{}.d.{}", name.inbox(), self.node),
            said,
            state: Mutex::new(state),
            sending: tokio::sync::Mutex::default(),
            beats: WorkerBeats::default(),
            over: Notify::new(),
            _share: share,
        });
        supervise::spawn("a link", deliver(Arc::clone(self), Arc::clone(&link), inbox));
        by_id.insert(link.id.clone(), name.clone());
        place.insert_entry(Arc::clone(&link));
        Ok(link)
    }

    /// Notes that a worker has sent a message, if it has a link.
    pub(crate) fn acknowledge(&self, name: &WorkerName) {
        if let Some(link) = self.all.lock().links.get(name) {
            link.state.lock().heard = Instant::now();
        }
    }

    /// Ends the link of a worker.
    pub(crate) fn close(&self, name: &WorkerName, why: LinkEnd) {
        let link = {
            let mut all = self.all.lock();
            let link = all.links.remove(name);
            if let Some(link) = &link {
                all.by_id.remove(&link.id);
            }
            link
        };
        if let Some(link) = link {
            self.part(&link, why);
        }
    }

    /// Ends a link that is no longer in the table, and reports it.
    fn part(&self, link: &NodeLink, why: LinkEnd) {
        Self::end(link);
        if let Some(observer) = self.scheduler.observer() {
            observer.parted(why);
        }
    }

    /// Ends a link: what the worker has not acknowledged goes back at once (S26).
    fn end(link: &NodeLink) {
        link.port.part();
        link.over.notify_one(); // The loop that sends gives it back.
    }

    /// Asks workers to take no more and to leave, and to stop what runs after a time, if one is said.
    /// Answers which.
    pub(crate) async fn drain(
        &self,
        within_ms: Option<u64>,
        wanted: impl Fn(&WorkerName) -> bool,
    ) -> Vec<WorkerName> {
        let leave = Leave::within(within_ms);
        let told: Vec<(WorkerName, Arc<NodeLink>)> = {
            let all = self.all.lock();
            let wanted = all.links.iter().filter(|(name, _)| wanted(name));
            // Marked all at once: a link that is replaced meanwhile hands the mark on to the new one.
            let told = wanted.inspect(|(_, link)| link.state.lock().drain(leave));
            told.map(|(name, link)| (name.clone(), Arc::clone(link))).collect()
        };
        for (_, link) in &told {
            link.flush(self).await;
        }
        told.into_iter().map(|(name, _)| name).collect()
    }

    /// Checks every link: sends again what was not acknowledged, and ends links of silent workers. `every`:
    /// the time between checks. While this node has no connection, it receives nothing and judges nobody.
    pub(crate) async fn sweep(self: &Arc<Self>, every: Duration, is_connected: bool) {
        let LinkReview { again, over } = self.judge(Instant::now(), every, is_connected);
        for (name, link, why) in over {
            tracing::warn!(worker = %name, pool = %name.pool, why = why.as_str(), "a worker gets nothing more");
            self.part(&link, why);
        }
        for link in again {
            link.flush(self).await;
        }
        self.all.lock().looked = Some(Instant::now()); // The check itself is no standstill.
    }

    fn judge(&self, now: Instant, every: Duration, is_connected: bool) -> LinkReview {
        let mut judged = LinkReview::default();
        let All { links, leaving, looked, by_id, .. } = &mut *self.all.lock();
        let has_stood_still = looked.replace(now).is_some_and(|last| now - last > every + LATE);
        if has_stood_still || !is_connected {
            // What workers sent meanwhile comes only now: the node was at fault for the silence.
            links.values().for_each(|link| link.state.lock().excuse(now));
            return judged;
        }
        leaving.retain(|_, (since, _)| now - *since < LEAVING_KEPT);
        // Judged and removed under one lock: the worker may say hello just then, and get another link.
        links.retain(|name, link| {
            let mut state = link.state.lock();
            let why = match now - state.heard >= SILENCE_MAX {
                true => LinkEnd::Silent,
                false => match state.window.judge(now) {
                    Silence::Bearable => return true,
                    Silence::SendAgain => {
                        judged.again.push(Arc::clone(link));
                        return true;
                    }
                    Silence::GiveUp => LinkEnd::Unacknowledged,
                },
            };
            if let Some(leave) = state.leave {
                leaving.insert(name.clone(), (now, leave));
            }
            by_id.remove(&link.id);
            judged.over.push((name.clone(), Arc::clone(link), why));
            false
        });
        judged
    }
}

/// The result of a check of all links.
#[derive(Default)]
struct LinkReview {
    again: Vec<Arc<NodeLink>>,
    over: Vec<(WorkerName, Arc<NodeLink>, LinkEnd)>,
}

impl LinkState {
    /// Counts silence from now on, as the node could receive nothing until now.
    fn excuse(&mut self, now: Instant) {
        self.heard = now;
        self.window.excuse(now);
    }

    /// Asks the worker to leave.
    fn drain(&mut self, leave: Leave) {
        let leave = leave.or_sooner(self.leave);
        self.leave = Some(leave);
        self.window.push([leave.delivery().into()]);
    }
}

impl NodeLink {
    /// Sends an empty list of deliveries, from which the worker learns of this link.
    pub(crate) async fn greet(&self, links: &Links) {
        self.publish(links, 1, &[]).await;
    }

    /// Notes the capacity that a worker states, if it speaks of this link. Answers it as credit for the
    /// scheduler.
    pub(crate) fn room(&self, room: &Capacity) -> Option<Credit> {
        if room.link != self.id {
            return None;
        }
        self.state.lock().window.heard(room.got, Instant::now());
        self.said.as_ref()?;
        // Absurd numbers are bounded before they are added up.
        let (free, seen) = (room.free.min(CAPACITY_MAX), room.seen.min(COUNT_MAX));
        Some(Credit { free, seen, lost: room.lost, number: room.number })
    }

    /// The same for a message that says nothing else. Answers whether it spoke of this link.
    pub(crate) fn note_capacity(&self, room: &Capacity) -> bool {
        if let Some(credit) = self.room(room) {
            self.port.credit(credit);
        }
        room.link == self.id
    }

    /// Sends the deliveries that are to be sent.
    async fn flush(&self, links: &Links) {
        let _alone = self.sending.lock().await;
        let unsent = {
            let mut state = self.state.lock();
            let unsent = state.window.unsent(Instant::now());
            unsent.map(|(first, all)| (first, all.cloned().collect::<Vec<_>>()))
        };
        let Some((first, all)) = unsent else { return };
        let all: Vec<&Delivery> = all.iter().collect();
        let mut number = first;
        for batch in all.chunks(BATCH_MAX) {
            self.publish(links, number, batch).await;
            number += batch.len() as u64;
        }
    }

    /// Sends deliveries, in several messages if they are too long for one.
    async fn publish(&self, links: &Links, first: u64, deliveries: &[&Delivery]) {
        let node = links.node.as_str();
        let message = Deliveries { v: V, node, link: &self.id, first, deliveries };
        match encode(&message) {
            Ok(bytes) if bytes.len() <= BATCH_BYTES || deliveries.len() <= 1 => {
                let nobody = format!("{}.{}", links.gone(), self.id);
                send_or_hear(&links.client, &self.inbox, &nobody, bytes.into()).await;
            }
            _ if deliveries.len() > 1 => {
                let (one, other) = deliveries.split_at(deliveries.len() / 2);
                Box::pin(self.publish(links, first, one)).await;
                Box::pin(self.publish(links, first + one.len() as u64, other)).await;
            }
            Ok(_) => {}
            Err(error) => {
                tracing::error!(inbox = self.inbox, %error, "a delivery cannot be sent");
                for delivery in deliveries {
                    if let Some(claim) = &delivery.grant {
                        self.fail(claim, &error.why);
                    }
                    if delivery.uses_capacity() {
                        self.port.unspent(); // The worker never counts it as seen.
                    }
                }
                // The worker counts the empty delivery as received and ignores it, also if it is sent
                // again.
                self.state.lock().window.blank(first);
                let nothing = Delivery::default();
                Box::pin(self.publish(links, first, &[&nothing])).await;
            }
        }
    }

    /// Fails a Step whose claim is too long to be sent: for the next worker it would be no shorter.
    pub(crate) fn fail(&self, claim: &ClaimResult, why: &str) {
        let reason = ReasonInput {
            code: Some("claim_too_long".into()),
            message: format!("the step, with what its dependencies hand on, cannot be sent: {why}"),
            details: None,
            retryable: Some(false),
        };
        let report = StepReport {
            attempt_id: Some(claim.attempt_id),
            fencing_token: Some(claim.fencing_token),
            status: Some(StepStatus::Failed),
            reason: Some(reason),
            ..StepReport::on(claim.step.step_id.clone())
        };
        // If this cannot be recorded now, the lease runs out, and the same happens again.
        tokio::spawn(self.port.report(&Holding::of(claim), report, None));
    }

    /// Whether the worker knows this kind of delivery (EVOLVE-02).
    fn takes(&self, sent: &Sent) -> bool {
        let has = |feature| self.said.as_ref().is_some_and(|hello| hello.features.has(feature));
        !matches!(sent, Sent::Input(_)) || has(INPUT)
    }

    /// Gives back a delivery that was not acknowledged. A signal goes to the worker's next link; a request
    /// to leave is known there already.
    fn give_back(&self, delivery: Delivery) {
        match Sent::of(delivery) {
            Some(Sent::Grant(claim)) => {
                let (session_id, task_id) = (claim.session_id, claim.task_id);
                self.port.undelivered(&TaskKey { session_id, task_id }, claim.attempt_id);
            }
            Some(signal @ (Sent::CancelRequested(..) | Sent::Lost(_) | Sent::Input(_))) => {
                self.port.unacknowledged(signal)
            }
            // Only a worker sends `Crossed`, to itself; no node does.
            Some(Sent::Run(_) | Sent::Drain(_) | Sent::Crossed(_) | Sent::ReadOutput(_)) | None => {
            }
        }
    }
}

/// Sends what the scheduler has for a worker, as much as there is at a time.
async fn deliver(links: Arc<Links>, link: Arc<NodeLink>, mut inbox: UnboundedReceiver<Sent>) {
    let mut batch = Vec::new();
    Box::pin(link.flush(&links)).await; // The worker may have to leave.
    loop {
        tokio::select! {
            biased;
            () = link.over.notified() => break,
            first = inbox.next() => batch.extend(first),
        }
        while batch.len() < BATCH_MAX
            && let Ok(next) = inbox.try_recv()
        {
            batch.push(next);
        }
        let taken = batch.drain(..).filter(|sent| link.takes(sent));
        link.state.lock().window.push(taken.map(Delivery::from));
        Box::pin(link.flush(&links)).await; // Boxed, as most links are idle.
    }
    // From here on the scheduler finds that the worker is not there.
    inbox.close();
    batch.extend(inbox.collect::<Vec<_>>().await);
    let unheard = link.state.lock().window.take_all();
    for delivery in unheard.into_iter().chain(batch.into_iter().map(Delivery::from)) {
        link.give_back(delivery);
    }
}
