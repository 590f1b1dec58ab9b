//! A worker's state of all nodes: its links with them, which partitions they own, which have
//! waiting work, and what the worker must tell each.
//!
//! Step 9 of the walk in docs/architecture.md.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use smol_str::SmolStr;
use tenure_core::features::SESSIONS;
use tenure_core::id::{AttemptId, SessionId, StepId, TaskId};
use tenure_core::view::ClaimResult;
use tenure_ports::bus::{Credit, Delivery};
use tenure_wire::bus::node::Alive;
use tenure_wire::bus::worker::{Capacity, Deliveries, Delivery as Sent};

use super::link::{Came, LinkCounts};
use super::share::shares;
use crate::clock::Moment;

/// A node that sends nothing for so long gets no part of the capacity.
const SILENT: Duration = Duration::from_secs(10);

/// A node drops the link of a worker that sends nothing for 5 s.
const MUTE: Duration = Duration::from_millis(4_500);

/// The worker states its capacity at least so often.
const RESTATED: Duration = Duration::from_secs(2);

/// A node counts as hungry for so long after it said so.
const HUNGER: Duration = Duration::from_secs(1);

/// A worker that no node has answered for so long logs a warning.
const UNANSWERED: Duration = Duration::from_secs(2);

/// The worker forgets a node that has sent nothing for so long, with its counts.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// The shortest time between two hellos, and the time between them while there is no link.
const HELLOS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(2));

/// If two nodes each give a Step that was lost before within this time, neither may know of the
/// other's yet.
const UNAWARE: Duration = Duration::from_millis(500);

/// How many of the last Steps that were lost before the worker remembers, and whether it gave them
/// back.
const JUDGED_KEPT: usize = 16;

/// How many names of earlier links the worker remembers: a delivery on one of them is late.
const LINKS_KEPT: usize = 8;

/// The worker's side of all its links.
#[derive(Debug)]
pub(super) struct WorkerLinks {
    nodes: BTreeMap<SmolStr, KnownNode>,
    /// The capacity that the pool last stated.
    credit: Credit,
    /// How many grants and Runs were handed to the pool.
    handed: u64,
    /// Which of them, counted from 1, are on Steps that were lost before, and are not yet counted
    /// by the pool.
    lost: VecDeque<u64>,
    /// Which nodes lately gave a Step that was lost before, and when: other nodes may not know of
    /// these yet.
    lost_from: Vec<(SmolStr, Moment)>,
    /// The Attempts for which this was decided, the latest last.
    judged: VecDeque<Judged>,
    owners: BTreeMap<u32, SmolStr>,
    began: Moment,
    last_hello: Option<Moment>,
    wants_hello: bool,
    has_left: bool,
    /// A node has opened a link, or the warning that none has was logged.
    is_answered: bool,
    /// The worker serves only some sessions, so it takes nothing from nodes that ignore which ones (DISP-20).
    is_restricted: bool,
}

/// An Attempt of a Step that was lost before.
#[derive(Debug)]
struct Judged {
    attempt_id: AttemptId,
    step: (SessionId, TaskId, StepId),
    /// It goes back, because the worker has another such Step. If the Step comes again, the worker
    /// keeps it.
    is_crossed: bool,
}

#[derive(Debug)]
struct KnownNode {
    /// Held while the node is silent, as it may continue with the same link.
    link: Option<LinkCounts>,
    /// Whether the link is in use.
    is_linked: bool,
    past: VecDeque<SmolStr>,
    /// Whether the node gives a worker only Steps of the sessions that it serves; none before the node has said what
    /// it can do.
    heeds_sessions: Option<bool>,
    heard: Moment,
    spoken: Moment,
    hungry: Option<Moment>,
}

impl WorkerLinks {
    pub(super) fn new(now: Moment, is_restricted: bool) -> Self {
        Self {
            nodes: BTreeMap::new(),
            credit: Credit { free: 0, seen: 0, lost: 0, number: 0 },
            handed: 0,
            lost: VecDeque::new(),
            lost_from: Vec::new(),
            judged: VecDeque::new(),
            owners: BTreeMap::new(),
            began: now,
            last_hello: None,
            wants_hello: true,
            has_left: false,
            is_answered: false,
            is_restricted,
        }
    }

    /// Sends nothing more to any node.
    pub(super) fn leave(&mut self) {
        self.has_left = true;
        self.nodes.values_mut().for_each(|node| node.is_linked = false);
    }

    /// A node has answered, though not with a link.
    pub(super) fn note_answer(&mut self) {
        self.is_answered = true;
    }

    /// Takes the pool's statement of its capacity; ignores one that is older than the last.
    pub(super) fn note(&mut self, credit: Credit) {
        if credit.number > self.credit.number {
            self.credit = credit;
            self.lost.retain(|number| *number > credit.seen); // The pool counts the others now.
        }
    }

    /// The nodes with which there is a link.
    pub(super) fn linked(&self) -> impl Iterator<Item = SmolStr> {
        let linked = self.nodes.iter().filter(|(_, node)| node.is_linked);
        linked.map(|(name, _)| name.clone())
    }

    /// Attempts in hand on Steps that were lost before.
    fn lost(&self) -> u64 {
        self.credit.lost + self.lost.len() as u64
    }

    /// Takes a batch from a node, and answers with what is new in it.
    pub(super) fn take(&mut self, now: Moment, batch: Deliveries) -> Vec<Delivery> {
        if self.has_left {
            return Vec::new(); // Not acknowledged, its content goes to another worker.
        }
        self.is_answered = true;
        let from = batch.node.clone();
        let node = self.nodes.entry(batch.node).or_insert_with(|| KnownNode::new(now));
        // On a link that another message than a hello opened, the node sends no work: it does not
        // know the handlers. If a hello did open it, another one changes nothing.
        self.wants_hello |= node.link.as_ref().is_none_or(|link| *link.name() != batch.link);
        let Some(link) = node.link_named(batch.link, now) else { return Vec::new() };
        let Came::After(known) = link.came(batch.first, batch.deliveries.len()) else {
            return Vec::new();
        };
        let new = batch.deliveries.into_iter().skip(known);
        let new: Vec<Delivery> = new.filter_map(delivery).collect();
        new.iter().filter(|one| uses_capacity(one)).for_each(|_| link.used_capacity());
        new.into_iter().map(|one| self.hand_over(now, &from, one)).collect()
    }

    fn hand_over(&mut self, now: Moment, from: &SmolStr, one: Delivery) -> Delivery {
        self.handed += u64::from(uses_capacity(&one));
        match one {
            Delivery::Grant(claim) if claim.was_lost => {
                let is_crossed = self.judge_lost(now, from, &claim);
                self.lost.push_back(self.handed);
                if is_crossed { Delivery::Crossed(claim) } else { Delivery::Grant(claim) }
            }
            other => other,
        }
    }

    /// Whether a Step that was lost before goes back: another node gave such a Step so lately that
    /// neither node may know of the other's, and one of both Steps may end this worker (LEASE-19).
    /// A Step that comes again stays. For an Attempt that a node repeats the decision stays the
    /// same.
    fn judge_lost(&mut self, now: Moment, from: &SmolStr, claim: &ClaimResult) -> bool {
        let known = self.judged.iter().find(|it| it.attempt_id == claim.attempt_id);
        if let Some(known) = known {
            return known.is_crossed;
        }
        if self.lost() == 0 {
            self.lost_from.clear(); // The earlier ones have ended.
        }
        self.lost_from.retain(|(_, since)| now.since(since) < UNAWARE);
        let step = (claim.session_id.clone(), claim.task_id.clone(), claim.step.step_id.clone());
        let has_come = self.judged.iter().position(|it| it.is_crossed && it.step == step);
        let is_crossed = has_come.is_none() && self.lost_from.iter().any(|(node, _)| node != from);
        has_come.map(|at| self.judged.remove(at));
        if !is_crossed {
            self.lost_from.retain(|(node, _)| node != from);
            self.lost_from.push((from.clone(), now));
        }
        self.judged.push_back(Judged { attempt_id: claim.attempt_id, step, is_crossed });
        if self.judged.len() > JUDGED_KEPT {
            // Those that stayed first: a Step that went back is to be known when it comes again.
            let kept = self.judged.iter().position(|it| !it.is_crossed).unwrap_or(0);
            self.judged.remove(kept);
        }
        is_crossed
    }

    /// Takes the announcement of a node.
    pub(super) fn alive(&mut self, now: Moment, alive: Alive) {
        self.owners.retain(|_, owner| *owner != alive.node);
        self.owners.extend(alive.owned.into_iter().map(|one| (one, alive.node.clone())));
        let node = self.nodes.entry(alive.node).or_insert_with(|| KnownNode::new(now));
        node.heard = now;
        node.heeds_sessions = Some(alive.features.has(SESSIONS));
        self.wants_hello |= !node.is_linked;
    }

    /// Whether this announcement shows that the worker takes nothing from the node, and no earlier one did.
    pub(super) fn take_unheeding(&self, alive: &Alive) -> bool {
        let known = self.nodes.get(&alive.node).and_then(|node| node.heeds_sessions);
        self.is_restricted && !alive.features.has(SESSIONS) && known != Some(false)
    }

    /// Notes that a node has work that waits for capacity.
    pub(super) fn hungry(&mut self, now: Moment, node: &str) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.hungry = Some(now);
        }
    }

    /// Makes the worker send another hello to every node.
    pub(super) fn want_hello(&mut self) {
        self.wants_hello = true;
    }

    /// A message to a node could not be sent: the node may have dropped this worker meanwhile.
    pub(super) fn unsaid(&mut self, node: &str) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.is_linked = false;
        }
        self.wants_hello = true;
    }

    /// Whether to send a hello now; if so, counts it as sent.
    pub(super) fn take_hello(&mut self, now: Moment) -> bool {
        let none = !self.nodes.values().any(|node| node.is_linked);
        let since = self.last_hello.map(|last| now.since(&last));
        let due = match since {
            _ if self.has_left => false,
            None => true,
            Some(since) => (self.wants_hello && since >= HELLOS.0) || (none && since >= HELLOS.1),
        };
        if due {
            self.last_hello = Some(now);
            self.wants_hello = false;
        }
        due
    }

    /// Whether no node has answered for longer than that should take; true only once.
    pub(super) fn take_unanswered(&mut self, now: Moment) -> bool {
        let is_news = !self.is_answered && !self.has_left && now.since(&self.began) >= UNANSWERED;
        self.is_answered |= is_news;
        is_news
    }

    /// Ends links on which one side has been silent for too long.
    pub(super) fn sweep(&mut self, now: Moment) {
        for node in self.nodes.values_mut().filter(|node| node.is_linked) {
            let silent = now.since(&node.heard) >= SILENT;
            let mute = now.since(&node.spoken) >= MUTE;
            if silent || mute {
                node.is_linked = false;
                self.wants_hello |= mute;
            }
        }
        self.nodes.retain(|_, node| node.is_linked || now.since(&node.heard) < FORGOTTEN);
    }

    /// The statements of capacity that are due now, by node.
    pub(super) fn capacities(&mut self, now: Moment) -> Vec<(SmolStr, Capacity)> {
        let (parts, lost) = (self.parts(now), self.lost());
        let linked = self.nodes.iter_mut().filter(|(_, node)| node.is_linked);
        let mut capacities = Vec::new();
        for ((name, node), free) in linked.zip(parts) {
            let due = now.since(&node.spoken) >= RESTATED;
            if let Some(room) = node.room(now, (free, lost), due) {
                capacities.push((name.clone(), room));
            }
        }
        capacities
    }

    /// The statement of capacity that goes with reports to the owner of a partition.
    pub(super) fn capacity_for_owner(&mut self, now: Moment, partition: u32) -> Option<Capacity> {
        let owner = self.owners.get(&partition)?.clone();
        self.capacity_for(now, &owner)
    }

    /// The statement of capacity for one node, which also acknowledges its deliveries.
    pub(super) fn capacity_for(&mut self, now: Moment, node: &str) -> Option<Capacity> {
        let (parts, lost) = (self.parts(now), self.lost());
        let linked = self.nodes.iter_mut().filter(|(_, node)| node.is_linked);
        let mut mine = linked.zip(parts).filter(|((name, _), _)| *name == node);
        let ((_, node), free) = mine.next()?;
        node.room(now, (free, lost), true)
    }

    /// The part of the capacity for each linked node, in their order.
    fn parts(&self, now: Moment) -> Vec<u64> {
        // The pool still counts as free the capacity for Steps that were handed over and that it
        // has not taken yet.
        let untaken = self.handed.saturating_sub(self.credit.seen);
        let free = self.credit.free.saturating_sub(untaken);
        let linked = || self.nodes.values().filter(|node| node.is_linked);
        let gives = |node: &&KnownNode| !self.is_restricted || node.heeds_sessions == Some(true);
        let hungry: Vec<bool> = linked().filter(gives).map(|node| node.is_hungry(now)).collect();
        let turn = now.since(&self.began).as_secs() / RESTATED.as_secs();
        let mut parts = shares(free, &hungry, turn).into_iter();
        let part = |node: &KnownNode| if gives(&node) { parts.next().unwrap_or(0) } else { 0 };
        linked().map(part).collect()
    }
}

impl KnownNode {
    fn new(now: Moment) -> Self {
        let past = VecDeque::new();
        Self {
            link: None,
            is_linked: false,
            past,
            heeds_sessions: None,
            heard: now,
            spoken: now,
            hungry: None,
        }
    }

    /// The counts of the link of this name, which is in use from now on; none if a later link has
    /// replaced it.
    fn link_named(&mut self, name: SmolStr, now: Moment) -> Option<&mut LinkCounts> {
        if self.past.contains(&name) {
            return None;
        }
        self.heard = now;
        let was_linked = std::mem::replace(&mut self.is_linked, true);
        if !was_linked {
            self.spoken = now;
        }
        let is_another = self.link.as_ref().is_none_or(|link| *link.name() != name);
        if is_another && let Some(old) = self.link.replace(LinkCounts::new(name)) {
            self.past.push_back(old.name().clone());
            if self.past.len() > LINKS_KEPT {
                self.past.pop_front();
            }
        }
        let link = self.link.as_mut()?;
        if !was_linked {
            link.owe();
        }
        Some(link)
    }

    fn is_hungry(&self, now: Moment) -> bool {
        self.hungry.is_some_and(|said| now.since(&said) < HUNGER)
    }

    fn room(&mut self, now: Moment, (free, lost): (u64, u64), anyway: bool) -> Option<Capacity> {
        let link = self.link.as_mut()?;
        if !anyway && !link.has_news(free, lost) {
            return None;
        }
        self.spoken = now;
        Some(link.room(free, lost))
    }
}

pub(super) fn uses_capacity(delivery: &Delivery) -> bool {
    matches!(delivery, Delivery::Grant(_) | Delivery::Crossed(_) | Delivery::Run(_))
}

/// Whether it is on a Step that was lost before.
pub(super) fn was_lost(delivery: &Delivery) -> bool {
    matches!(delivery, Delivery::Grant(claim) | Delivery::Crossed(claim) if claim.was_lost)
}

/// Converts a delivery to the port's type; none if its kind is unknown.
fn delivery(sent: Sent) -> Option<Delivery> {
    let known = Delivery::of(sent);
    if known.is_none() {
        tracing::debug!("a delivery that says nothing known was passed over");
    }
    known
}

#[cfg(test)]
mod tests;
