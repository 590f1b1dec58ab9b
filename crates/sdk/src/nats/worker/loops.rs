//! The loops of a worker: one takes deliveries from nodes, one states capacity to them, one sends
//! reports.
//!
//! Step 9 of the walk in docs/architecture.md.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Message, Subscriber};
use futures::StreamExt as _;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::future::{BoxFuture, join_all};
use futures::stream::{SelectAll, select};
use serde::de::IgnoredAny;
use smol_str::SmolStr;
use tenure_core::features::Features;
use tenure_core::id::PoolId;
use tenure_core::record::WorkerOrigin;
use tenure_core::sessions::Abilities;
use tenure_core::{Code, Rejection};
use tenure_ports::bus::Delivery;
use tenure_ports::placement::{self, OtherPlacement};
use tenure_ports::supervise::guard;
use tenure_wire::bus::node::{Alive, Hungry};
use tenure_wire::bus::subject::WorkerName;
use tenure_wire::bus::worker::{Capacity, Deliveries, Hello, Reported, Reports};
use tenure_wire::bus::{Answer, V, decode, encode};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::Inner;
use super::links::{uses_capacity, was_lost};
use super::outbox::{Item, outcomes};
use crate::clock::Moment;
use crate::nats::connect::PendingRequest;
use crate::patience::{ambiguous, unavailable};

/// A statement of capacity, and an acknowledgement when many deliveries come, waits so long for
/// more, to go together.
const GATHER: Duration = Duration::from_millis(1);

/// How long sending an acknowledgement may take.
const ACKNOWLEDGED: Duration = Duration::from_millis(200);

/// How many messages of nodes to take together, if they are there.
const TOGETHER: usize = 64;

/// How often to check the links if nothing happens.
const TICK: Duration = Duration::from_millis(250);

/// Subscribes, then asks every node for a link, so that no answer is lost.
pub(super) fn start<'a>(
    inner: &'a Arc<Inner>,
    name: &'a WorkerName,
    gives_way: bool,
) -> BoxFuture<'a, Result<(AbortHandle, UnboundedReceiver<Delivery>), Rejection>> {
    Box::pin(started(inner, name, gives_way)) // A pointer: this crate has the code of the loops.
}

async fn started(
    inner: &Arc<Inner>,
    name: &WorkerName,
    gives_way: bool,
) -> Result<(AbortHandle, UnboundedReceiver<Delivery>), Rejection> {
    let connection = &inner.connection;
    let mut sent = SelectAll::new();
    sent.push(connection.subscribe(format!("{}.d.*", connection.inbox())).await?);
    if gives_way {
        sent.push(connection.subscribe(format!("{}.hello", inner.root)).await?);
    }
    let root = connection.cluster().root();
    let alive = connection.subscribe(format!("{root}.node.*.alive")).await?;
    let hungry = connection.subscribe(format!("{root}.node.*.hungry")).await?;
    let (to_pool, deliveries) = unbounded();
    let mut loops = JoinSet::new();
    loops.spawn(guard("deliveries", take_deliveries(Arc::clone(inner), sent, to_pool)));
    let news = take_news(Arc::clone(inner), alive, hungry, name.pool.clone());
    loops.spawn(guard("news of nodes", news));
    loops.spawn(guard("words to nodes", speak(Arc::clone(inner))));
    loops.spawn(guard("reports", send_reports(Arc::clone(inner))));
    Ok((tokio::spawn(supervise(loops)).abort_handle(), deliveries))
}

/// When one loop ends, ends all, and with them the channel to the pool: a worker with half of its
/// loops would hold leases and do nothing.
async fn supervise(mut loops: JoinSet<()>) {
    if let Some(ended) = loops.join_next().await {
        let error = ended.err().map(|error| error.to_string());
        tracing::error!(error, "a loop of the worker ended; it gets no more work");
    }
}

async fn take_deliveries(
    inner: Arc<Inner>,
    sent: SelectAll<Subscriber>,
    to_pool: UnboundedSender<Delivery>,
) {
    // Deliveries that have come meanwhile are acknowledged together.
    let mut sent = sent.ready_chunks(TOGETHER);
    let mut acknowledged = Instant::now();
    while let Some(messages) = sent.next().await {
        let (mut new, mut nodes) = (Vec::new(), BTreeSet::new());
        let (hellos, batches): (Vec<_>, Vec<_>) =
            messages.iter().partition(|it| inner.is_hello(it));
        if hellos.into_iter().any(|hello| inner.is_of_another(hello)) {
            inner.give_way(); // First, as what comes with it is for the other one.
        }
        for batch in batches.into_iter().filter_map(|message| read_batch(&inner, message)) {
            let node = batch.node.clone();
            let came = inner.links.lock().take(Moment::now(), batch);
            if came.iter().any(uses_capacity) {
                nodes.insert(node);
            }
            new.extend(came);
        }
        if new.iter().any(was_lost) {
            nodes.extend(inner.links.lock().linked()); // All learn of the lost Step at once (LEASE-19).
        }
        let is_acknowledged = !nodes.is_empty();
        join_all(nodes.iter().map(|node| inner.acknowledge(node))).await;
        for one in new {
            drop(to_pool.unbounded_send(one)); // The pool may have ended: then the nodes soon learn that.
        }
        inner.room.notify_one();
        if is_acknowledged {
            let last = std::mem::replace(&mut acknowledged, Instant::now());
            if last.elapsed() < GATHER {
                sleep(GATHER).await; // Many deliveries come: wait, so that more of them go together.
            }
        }
    }
}

/// Decodes the deliveries of a node. The message may be a refusal instead, or malformed.
fn read_batch(inner: &Inner, message: &Message) -> Option<Deliveries> {
    let bad = match decode(&message.payload) {
        Ok(batch) => return Some(batch),
        Err(bad) => bad,
    };
    match decode::<Answer<IgnoredAny>>(&message.payload) {
        Ok(Answer { error: Some(refused), .. }) => inner.take_refusal(refused),
        _ => tracing::warn!(subject = %message.subject, %bad, "deliveries were dropped"),
    }
    None
}

async fn take_news(inner: Arc<Inner>, alive: Subscriber, hungry: Subscriber, pool: PoolId) {
    let mut news = select(alive, hungry);
    while let Some(message) = news.next().await {
        let read = if message.subject.ends_with(".alive") {
            decode(&message.payload).map(|alive| inner.take_alive(alive))
        } else {
            decode(&message.payload).map(|hungry| inner.take_hungry(&hungry, &pool))
        };
        if let Err(bad) = read {
            tracing::warn!(subject = %message.subject, %bad, "a node's word was passed over");
        }
    }
}

/// States capacity to nodes when it is due, and asks for links where there are none.
async fn speak(inner: Arc<Inner>) {
    let mut connects = inner.connection.connects();
    connects.mark_unchanged();
    loop {
        tokio::select! {
            () = inner.room.notified() => sleep(GATHER).await,
            () = sleep(TICK) => {}
            // After a reconnect: messages sent meanwhile are lost, and some nodes may have dropped
            // this worker.
            () = changed(&mut connects) => inner.links.lock().want_hello(),
        }
        inner.warn_if_unanswered();
        let (hello, capacities) = inner.what_to_say();
        if hello {
            inner.say_hello().await;
        }
        for (node, room) in capacities {
            inner.state(&node, &room).await;
        }
    }
}

async fn changed(connects: &mut watch::Receiver<u64>) {
    if connects.changed().await.is_err() {
        std::future::pending::<()>().await; // The connection is closed for good.
    }
}

/// Sends reports in the order in which they were made, per partition.
async fn send_reports(inner: Arc<Inner>) {
    loop {
        inner.reports.notified().await;
        tokio::task::yield_now().await; // Reports that are made at the same time go together.
        while let Some((partition, items)) = inner.next_reports() {
            inner.send(partition, items).await;
        }
    }
}

/// Makes the refusal of the login retryable: the server may let the login in again while the
/// Attempt still counts, so its result waits.
fn let_in_later(refused: Rejection) -> Rejection {
    match refused.code {
        Code::Unauthenticated => unavailable(refused.message),
        _ => refused,
    }
}

impl Inner {
    /// Whether somebody says hello under this worker's name.
    fn is_hello(&self, message: &Message) -> bool {
        message.subject.strip_suffix(".hello") == Some(self.root.as_str())
    }

    /// Whether that is another process than this one.
    fn is_of_another(&self, hello: &Message) -> bool {
        let said = decode::<Hello>(&hello.payload);
        said.is_ok_and(|said| said.worker_build != self.origin.worker_build)
    }

    /// Takes nothing more, and says nothing more to nodes but reports: another process does so now.
    fn give_way(&self) {
        self.links.lock().leave();
        self.superseded.send_replace(true);
    }

    fn take_alive(&self, alive: Alive) {
        if let Err(other) = placement::check(alive.placement) {
            return self.turn_away(other);
        }
        let partitions = alive.partitions;
        if self.links.lock().take_unheeding(&alive) {
            tracing::warn!(
                node = alive.node.as_str(), sessions = %self.abilities.sessions,
                "this node would give any session's work to this worker, which takes nothing from it: it is older \
                 than sessions of workers"
            );
        }
        self.links.lock().alive(Moment::now(), alive);
        let is_new = self.partitions.send_if_modified(|known| {
            let is_new = known.is_none() && partitions > 0;
            if is_new {
                *known = Some(Ok(partitions));
            }
            is_new
        });
        if is_new {
            self.outbox.lock().place(partitions);
            self.reports.notify_one();
        }
        self.room.notify_one();
    }

    /// The cluster has another placement than this worker computes: the worker takes no more work.
    fn turn_away(&self, other: OtherPlacement) {
        tracing::error!(%other, advice = other.advice(), "this worker takes no work");
        self.links.lock().leave();
        self.partitions.send_replace(Some(Err(other)));
    }

    /// A node gives this worker no link. Repeating the same message does not help; but a node that
    /// has too many links may have capacity for another later.
    fn take_refusal(&self, refused: Rejection) {
        let is_news = |known: &mut Option<Rejection>| match known {
            Some(last) if !last.code.is_retryable() => false, // That refusal ends this worker.
            _ => known.replace(refused.clone()) != *known,
        };
        self.links.lock().note_answer();
        let is_news = self.refused.send_if_modified(is_news);
        if !refused.code.is_retryable() {
            self.links.lock().leave();
            tracing::error!(%refused, "this worker takes no work: a scheduler cannot take what it says");
        } else if is_news {
            tracing::warn!(%refused, "a scheduler has no link for this worker; it asks again");
        }
    }

    /// Logs once that no node has answered: otherwise such a worker would look like one without
    /// work.
    fn warn_if_unanswered(&self) {
        if self.links.lock().take_unanswered(Moment::now()) {
            tracing::warn!(
                pool = self.pool.as_str(),
                cluster = self.connection.cluster().as_str(),
                "no scheduler has answered yet: this worker waits. See that one runs (`tenure serve`), and that \
                 it uses the same NATS and the same name of the cluster"
            );
        }
    }

    fn take_hungry(&self, hungry: &Hungry, pool: &PoolId) {
        if hungry.pool == *pool {
            self.links.lock().hungry(Moment::now(), &hungry.node);
            self.room.notify_one();
        }
    }

    fn what_to_say(&self) -> (bool, Vec<(SmolStr, Capacity)>) {
        let now = Moment::now();
        // The worker states no capacity before it knows the partitions, because without them it
        // cannot report.
        let is_placed = matches!(*self.partitions.borrow(), Some(Ok(_)));
        let mut links = self.links.lock();
        links.sweep(now);
        (links.take_hello(now), if is_placed { links.capacities(now) } else { Vec::new() })
    }

    async fn say_hello(&self) {
        let WorkerOrigin { worker_host, worker_build } = self.origin.clone();
        let Abilities { handlers, sessions } = self.abilities.clone();
        let features = Features::of_program();
        let hello = Hello { v: V, handlers, sessions, worker_host, worker_build, features };
        if let Err(refused) = self.connection.tell(format!("{}.hello", self.root), &hello).await {
            tracing::debug!(%refused, "nobody was asked for a link");
            self.links.lock().want_hello();
        }
    }

    /// Acknowledges the deliveries of a node before any of their handlers begins. Otherwise the
    /// node would dispatch a Step whose handler ends or blocks the process again and again, as if
    /// no worker had received it.
    async fn acknowledge(&self, node: &str) {
        let room = self.links.lock().capacity_for(Moment::now(), node);
        if let Some(room) = room {
            // Waits until the message is sent, but not for long: the leases of these Attempts run,
            // with or without a connection.
            let left = async {
                self.state(node, &room).await;
                self.connection.flush().await
            };
            if timeout(ACKNOWLEDGED, left).await.is_err() {
                self.links.lock().unsaid(node);
            }
        }
    }

    async fn state(&self, node: &str, room: &Capacity) {
        let subject = format!("{}.node.{node}", self.root);
        if let Err(refused) = self.connection.tell(subject, room).await {
            tracing::debug!(node, %refused, "a node did not learn of room");
            self.links.lock().unsaid(node);
        }
    }

    fn next_reports(&self) -> Option<(u32, Vec<Item>)> {
        self.outbox.lock().next()
    }

    async fn send(self: &Arc<Self>, partition: u32, items: Vec<Item>) {
        let room = self.links.lock().capacity_for_owner(Moment::now(), partition);
        let (reports, senders): (Vec<_>, Vec<_>) = items
            .into_iter()
            .map(|Item { task, report, bytes, alone, waiter }| {
                (report, (task, bytes, alone, waiter))
            })
            .unzip();
        let message = Reports { v: V, room, reports };
        let asked = self.ask(partition, &message).await.map_err(let_in_later);
        let items = message.reports.into_iter().zip(senders);
        let items = items
            .map(|(report, (task, bytes, alone, waiter))| Item {
                task,
                report,
                bytes,
                alone,
                waiter,
            })
            .collect();
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            let answer = match asked {
                Ok(asked) => tokio::select! {
                    biased;
                    answer = asked.answer::<Reported>() => answer,
                    () = inner.connection.replaced() => Err(ambiguous("the connection was lost")),
                },
                Err(refused) => Err(refused),
            };
            inner.settle(partition, items, answer);
        });
    }

    async fn ask(&self, partition: u32, message: &Reports) -> Result<PendingRequest, Rejection> {
        let subject = format!("{}.report.{partition}", self.root);
        let within = self.connection.request_timeout();
        self.connection.ask(subject, encode(message)?.into(), within).await
    }

    /// Passes the outcome of each report to the caller that waits for it.
    fn settle(&self, partition: u32, items: Vec<Item>, answer: Result<Reported, Rejection>) {
        let mut outbox = self.outbox.lock();
        outbox.answered(partition);
        match answer {
            // One malformed report must not cost the others: send each alone.
            Err(refused) if items.len() > 1 && refused.code == Code::ValidationError => {
                items.into_iter().for_each(|item| outbox.push(Item { alone: true, ..item }));
            }
            answer => {
                let outcomes = outcomes(answer, items.len());
                for (item, outcome) in items.into_iter().zip(outcomes) {
                    drop(item.waiter.send(outcome)); // The caller may have stopped waiting.
                }
            }
        }
        drop(outbox);
        self.reports.notify_one();
    }
}
