//! The pool of a worker: it takes grants, runs handlers, sends heartbeats, and repeats reports
//! until they are recorded.
//!
//! Step 9 of the walk in docs/architecture.md.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use parking_lot::Mutex;
use tenure_core::id::{AttemptId, HandlerName};
use tenure_core::status::LeaseDoubt;
use tenure_core::view::ClaimResult;
use tenure_ports::bus::{Credit, Delivery, Holding, Recorded, WorkerPort};
use tenure_ports::erased::ErasedWorker;
use tenure_ports::map::IdMap;
use tenure_ports::supervise::spawn;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::capacity::WorkerCapacity;
use super::context::StepContext;
use super::ending::carry_out;
use super::handler::{Handler, Handlers};
use super::late_input::LateInputs;
use super::options::Options;
use super::past::PastAttempts;
use super::pulse::{heartbeat, watch_leases};
use super::reporter::{PortReporter, Reporter};
use super::runs::{Early, EarlySignal};
use super::stop::StopRequest;
use crate::clock::Moment;
use crate::pauses::Pauses;

/// How many Attempts that were given up are remembered. Attempts are given up when a worker cannot renew their
/// leases, few at a time.
const PAST_MAX: usize = 16_384;

/// The pauses before a report is sent again.
pub(super) fn resend() -> Pauses {
    Pauses::between(Duration::from_millis(20), Duration::from_secs(1))
}

/// A running pool.
#[derive(Debug)]
pub struct WorkerPool<P: WorkerPort> {
    port: Arc<P>,
    pub(super) shared: Arc<PoolShared>,
    loops: [JoinHandle<()>; 3],
}

#[derive(Debug)]
pub(super) struct PoolShared {
    pub(super) port: ErasedWorker,
    handlers: Handlers,
    pub(super) options: Options,
    pub(super) slots: Arc<Semaphore>,
    pub(super) capacity: Mutex<WorkerCapacity>,
    pub(super) open: Mutex<IdMap<AttemptId, HeldAttempt>>,
    pub(super) early: Mutex<Early>,
    pub(super) past: Mutex<PastAttempts<PAST_MAX>>,
    /// Shortest lease among those in hand when heartbeats were last planned, and since; in
    /// milliseconds.
    pub(super) shortest: AtomicU64,
    /// Notified when an Attempt came whose heartbeat may be due earlier than planned.
    pub(super) sooner: Notify,
    /// The same, for the loop that watches leases.
    pub(super) shorter: Notify,
    /// Notified when an Attempt came whose lease is to be renewed early.
    pub(super) fresh: Notify,
    /// The number of Attempts that came so far.
    came: AtomicU64,
    pub(super) running: TaskTracker,
    /// Held while a page of an output is read and sent.
    pub(super) showing: tokio::sync::Mutex<()>,
    /// Whether an operator wants the worker to leave.
    pub(super) dismissed: watch::Sender<bool>,
}

#[derive(Debug)]
pub(super) struct HeldAttempt {
    pub(super) holding: Holding,
    pub(super) renewed: Moment,
    /// When it came.
    pub(super) since: Instant,
    /// Whether a node has answered a heartbeat for it.
    pub(super) heard: bool,
    /// Whether its handler goes on though its lease may be over (LEASE-17).
    goes_on: bool,
    /// Its place in the order in which they came.
    pub(super) number: u64,
    /// Its stage.
    pub(super) stage: AttemptStage,
    pub(super) stop: StopRequest,
    /// The input that came to its Task after the claim.
    pub(super) inputs: LateInputs,
    /// Set when the Attempt is over: then the worker reports nothing about its Step.
    pub(super) lost: Option<Loss>,
    /// Whether the worker has begun to say how the Attempt ends, or that it goes back.
    pub(super) is_reported: bool,
}

impl HeldAttempt {
    /// Whether it ends once the worker could not renew its lease. One whose handler goes on, or has
    /// ended with a final word, does so only when it was to end by force.
    pub(super) fn is_fenced(&self) -> bool {
        let goes_on = match self.stage {
            AttemptStage::Waits | AttemptStage::Surplus => false,
            AttemptStage::Kept => self.goes_on,
            AttemptStage::Said => true,
        };
        !goes_on || self.stop.forced.is_cancelled()
    }
}

/// How a worker learned that an Attempt is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// The scheduler said so: the Task has ended, or somebody else has ended the Attempt.
    Told,
    /// The worker could not renew its lease.
    Fenced,
}

/// The stage of an Attempt in hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptStage {
    /// It came as a grant, and waits for a slot: the worker may give it back to others.
    Waits,
    /// Its handler has begun, or this worker claimed it under a Run: the worker keeps it.
    Kept,
    /// Its handler has ended with a final word, which is said until there is an answer: nothing else
    /// tells whether it counts (REPORT-14).
    Said,
    /// The worker has no capacity for it, or it must not run beside another (LEASE-19): it goes
    /// back.
    Surplus,
}

impl<P: WorkerPort> WorkerPool<P> {
    /// Starts taking work.
    pub fn start(
        port: P,
        deliveries: UnboundedReceiver<Delivery>,
        handlers: Handlers,
        options: Options,
    ) -> Self {
        let port = Arc::new(port);
        let (shared, loops) = started(Arc::clone(&port).erased(), deliveries, handlers, options);
        Self { port, shared, loops }
    }

    /// The connection to the scheduler.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The number of Attempts in hand.
    pub fn in_hand(&self) -> usize {
        self.shared.capacity.lock().in_hand
    }

    /// Takes no more work, and returns when all Attempts in hand are done and recorded.
    pub async fn drain(&self) {
        self.shared.stop_taking();
        self.shared.running.close();
        self.shared.running.wait().await;
    }

    /// Takes no more work, asks handlers to stop, ends them by force after the grace time, and
    /// gives their Steps back (`release_step`). Returns how many it gave back.
    pub async fn interrupt(&self) -> usize {
        self.shared.stop_taking();
        let asked = self.shared.stop_handlers(self.shared.options.grace).await;
        self.shared.running.wait().await;
        asked
    }

    /// Waits until an operator wants the worker to leave. The pool takes no more Steps from then
    /// on, and gives back by itself what still runs after the time that the operator said; its owner
    /// should drain it.
    pub async fn dismissed(&self) {
        let mut dismissed = self.shared.dismissed.subscribe();
        if dismissed.wait_for(|is| *is).await.is_err() {
            std::future::pending::<()>().await; // The sender lives as long as the pool.
        }
    }
}

/// Starts the work of a pool. The code is the same for all pools, whichever port they have.
fn started(
    port: ErasedWorker,
    deliveries: UnboundedReceiver<Delivery>,
    handlers: Handlers,
    options: Options,
) -> (Arc<PoolShared>, [JoinHandle<()>; 3]) {
    let concurrency = options.concurrency.get();
    let mut capacity = WorkerCapacity::of(concurrency);
    capacity.prefetches = options.run_command.is_none();
    let shared = Arc::new(PoolShared {
        port,
        handlers,
        slots: Arc::new(Semaphore::new(concurrency)),
        capacity: Mutex::new(capacity),
        open: Mutex::default(),
        early: Mutex::default(),
        past: Mutex::default(),
        shortest: AtomicU64::new(u64::MAX),
        sooner: Notify::new(),
        shorter: Notify::new(),
        fresh: Notify::new(),
        came: AtomicU64::new(0),
        running: TaskTracker::new(),
        showing: tokio::sync::Mutex::default(),
        dismissed: watch::Sender::new(false),
        options,
    });
    shared.port.credit(shared.capacity.lock().credit());
    let loops = [
        spawn("what comes to a worker", take_deliveries(Arc::clone(&shared), deliveries)),
        spawn("heartbeats", heartbeat(Arc::clone(&shared))),
        spawn("the watch on leases", watch_leases(Arc::clone(&shared))),
    ];
    (shared, loops)
}

/// LEASE-17: whether the handler of a claim goes on though the worker cannot renew its lease.
fn goes_on(claim: &ClaimResult) -> bool {
    let said = claim.retry_policy.as_ref().and_then(|policy| policy.on_lease_doubt);
    said == Some(LeaseDoubt::Finish)
}

impl<P: WorkerPort> Drop for WorkerPool<P> {
    fn drop(&mut self) {
        self.loops.iter().for_each(JoinHandle::abort);
    }
}

async fn take_deliveries(shared: Arc<PoolShared>, mut deliveries: UnboundedReceiver<Delivery>) {
    while let Some(delivery) = deliveries.next().await {
        match delivery {
            Delivery::Grant(claim) => {
                shared.capacity.lock().take_grant(claim.was_lost);
                shared.begin(*claim, AttemptStage::Waits, None);
            }
            Delivery::Crossed(claim) => {
                shared.capacity.lock().take_grant(claim.was_lost);
                shared.begin(*claim, AttemptStage::Surplus, None);
            }
            Delivery::Run(run) => {
                shared.capacity.lock().take();
                shared.running.spawn(Arc::clone(&shared).work_under(*run));
            }
            Delivery::CancelRequested(attempt, left) => shared.ask_to_stop(attempt, left),
            Delivery::Lost(attempt) => drop(shared.lose(attempt, Loss::Told)),
            Delivery::Input(input) => {
                let open = shared.open.lock();
                if let Some(one) = open.get(&input.attempt_id) {
                    one.inputs.arrive(*input);
                }
            }
            Delivery::Drain(time_left_ms) => shared.dismiss(time_left_ms),
            Delivery::ReadOutput(asked) => {
                tokio::spawn(Arc::clone(&shared).show_output(*asked));
            }
        }
    }
}

impl PoolShared {
    /// Takes an Attempt in hand: it begins, waits for a slot, or goes back. It is done by this handler, if one is
    /// given, else by that of its Step.
    pub(super) fn begin(
        self: &Arc<Self>,
        claim: ClaimResult,
        stage: AttemptStage,
        handler: Option<Handler>,
    ) {
        if let Some(observer) = &self.options.observer {
            observer.granted(&claim);
        }
        let open = HeldAttempt {
            holding: Holding::of(&claim),
            renewed: Moment::now(),
            since: Instant::now(),
            heard: false,
            goes_on: goes_on(&claim),
            number: self.came.fetch_add(1, Ordering::Relaxed),
            stage,
            stop: StopRequest::default(),
            inputs: LateInputs::after(claim.input_seen),
            lost: None,
            is_reported: false,
        };
        let (stop, inputs) = (open.stop.clone(), open.inputs.clone());
        // `take_in` has released its lock here: freeing capacity takes another one.
        if !self.take_in(open) {
            if stage != AttemptStage::Kept {
                self.capacity.lock().lost -= u64::from(claim.was_lost);
            }
            return self.free_capacity(); // A grant that came twice runs once.
        }
        let lease_ms = claim.lease_ms;
        if lease_ms < self.shortest.fetch_min(lease_ms, Ordering::AcqRel) {
            self.sooner.notify_one();
            self.shorter.notify_one();
        }
        if self.port.is_remote() {
            self.fresh.notify_one();
        }
        if claim.was_lost {
            let credit = {
                let mut capacity = self.capacity.lock();
                capacity.lost += u64::from(stage == AttemptStage::Kept); // Else counted as it came.
                capacity.credit()
            };
            self.port.credit(credit); // No node may send another such Step (LEASE-19).
        }
        if stage == AttemptStage::Surplus {
            self.capacity.lock().give_back();
            stop.cancelled.cancel();
        } else if !self.capacity.lock().accepting {
            stop.cancelled.cancel(); // The grant crossed our statement that we take no more.
        }
        let early = self.early.lock().take(claim.attempt_id);
        match early {
            Some(EarlySignal::Stop) => self.ask_to_stop(claim.attempt_id, None),
            Some(EarlySignal::Lost) => drop(self.lose(claim.attempt_id, Loss::Told)),
            None => {}
        }
        // If a slot is free, take it here: so Attempts begin in the order in which they came, not
        // in that of the runtime.
        let free = Arc::clone(&self.slots).try_acquire_owned().ok();
        // Boxed, as the runtime moves a future several times, and this one is large.
        let handler = handler.or_else(|| self.handler_of(&claim.step.handler));
        self.running.spawn(Box::pin(Arc::clone(self).run((claim, handler), stop, inputs, free)));
        self.give_back_surplus();
    }

    /// Adds an Attempt to those in hand, unless it is among them, or the worker has given it up
    /// before. A given-up Attempt is noted in `past` before it is removed from `open`, so that a
    /// repeated grant finds it in one of them.
    fn take_in(&self, one: HeldAttempt) -> bool {
        let mut open = self.open.lock();
        let attempt = one.holding.attempt_id;
        match open.entry(attempt) {
            Entry::Vacant(place) if !self.past.lock().has(attempt) => {
                place.insert(one);
                true
            }
            Entry::Vacant(_) | Entry::Occupied(_) => false,
        }
    }

    /// Notes a recorded report that is not final: it has renewed the lease (LEASE-04), and its
    /// answer says whether the handler should stop (CANCEL-07).
    pub(super) fn note_recorded(
        self: &Arc<Self>,
        attempt: AttemptId,
        asked: Moment,
        said: Recorded,
    ) {
        if let Some(open) = self.open.lock().get_mut(&attempt) {
            if !asked.since(&open.renewed).is_zero() {
                open.renewed = asked;
            }
            open.heard = true;
        }
        if said.cancel_requested {
            self.ask_to_stop(attempt, said.time_left_ms);
        }
    }

    /// Frees the capacity of a Step or Run that will not use it.
    pub(super) fn free_capacity(&self) {
        self.port.credit(self.freed());
    }

    pub(super) fn freed(&self) -> Credit {
        self.capacity.lock().free_up(None)
    }

    pub(super) fn is_accepting(&self) -> bool {
        self.capacity.lock().accepting
    }

    pub(super) fn port(&self) -> &ErasedWorker {
        &self.port
    }

    /// What runs a Step with this handler: the command of the worker if it has one, else its handler of this name.
    fn handler_of(&self, name: &HandlerName) -> Option<Handler> {
        match &self.options.run_command {
            Some(command) => Some(command.handler()),
            None => self.handlers.get(name).cloned(),
        }
    }

    /// Whether there is a handler of this name.
    pub(super) fn runs(&self, handler: &HandlerName) -> bool {
        self.handlers.get(handler).is_some()
    }

    /// CTX-09: asks a handler to stop. It may stop by itself; after the time that it has left, as the
    /// scheduler told it (POL-12), it is ended by force.
    pub(super) fn ask_to_stop(&self, attempt: AttemptId, time_left_ms: Option<u64>) {
        let stop = self.open.lock().get(&attempt).map(|one| one.stop.clone());
        match stop {
            Some(stop) => {
                stop.ask(time_left_ms.map(Duration::from_millis), self.options.grace);
            }
            None => self.early.lock().note(attempt, EarlySignal::Stop),
        }
    }

    async fn run(
        self: Arc<Self>,
        (claim, handler): (ClaimResult, Option<Handler>),
        stop: StopRequest,
        inputs: LateInputs,
        free: Option<OwnedSemaphorePermit>,
    ) {
        let holding = Holding::of(&claim);
        let reporter: Arc<dyn Reporter> = Arc::new(PortReporter(Arc::clone(&self)));
        let StopRequest { cancelled, forced, .. } = stop.clone();
        // A prefetched Step waits here for its slot; a cancelled one does not start.
        let slot = async {
            match free {
                Some(free) => Some(free),
                None => self.slot().await,
            }
        };
        let slot = tokio::select! {
            biased;
            () = cancelled.cancelled() => None,
            slot = slot => slot,
        };
        let slot = slot.filter(|_| self.begins(holding.attempt_id));
        let mut claim = claim;
        let whole = match slot {
            Some(_) => self.with_blobs(&holding, &mut claim, &cancelled).await,
            None => Ok(()),
        };
        let ctx = StepContext::new(claim, stop, inputs, reporter);
        let (begun, started) = (SystemTime::now(), Instant::now());
        if slot.is_some() {
            match handler {
                _ if cancelled.is_cancelled() && whole.is_err() => {}
                _ if let Err(refused) = &whole => ctx.fail_for_input(refused),
                Some(handler) => {
                    if ctx.claim().host_died {
                        let _ = ctx.start().await; // If it is over, its handler learns that soon.
                    }
                    // The handler is called inside the future, because the call itself may panic.
                    let run = async { handler(ctx.clone()).await };
                    carry_out(run, &ctx, &forced).await;
                }
                None => {
                    let message =
                        format!("this worker has no handler {}", ctx.claim().step.handler);
                    let _ = ctx.fail("unknown_handler", &message, None); // The first report, so accepted.
                }
            }
        }
        if let Some(slot) = slot {
            self.note_run(&ctx, (begun, started), cancelled.is_cancelled());
            self.take_back(slot, ctx.take_lacked());
        }
        let took = (!cancelled.is_cancelled()).then(|| started.elapsed());
        self.finish(&holding, &ctx, &cancelled, took).await;
    }
}
