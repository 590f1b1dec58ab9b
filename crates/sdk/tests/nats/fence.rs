//! A worker that cannot renew what it holds, and is not even told so.

use std::future::pending;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::channel::mpsc::unbounded;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tenure_core::command::{GiveBack, RunOutcome, StepReport};
use tenure_core::id::{AgentId, CommandId, RunId, StepId};
use tenure_core::patch::ReasonInput;
use tenure_core::record::RetryPolicy;
use tenure_core::status::LeaseDoubt;
use tenure_core::view::{ClaimResult, Look, Looked, RunOffer, StepPage};
use tenure_core::{Code, Rejection};
use tenure_ports::bus::{Credit, Delivery, Holding, Pulse, Recorded, WorkerPort};
use tenure_ports::journal::TaskKey;
use tenure_sdk::worker::{Handlers, Options, StepContext, WorkerPool};
use tenure_wire::bus::blob::{BlobGet, BlobPart, BlobPut, BlobTaken};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::node::grant;

/// How the scheduler answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Not at all.
    Mute,
    /// What is said is not recorded: it may be said again.
    Away,
    /// What is said is recorded, and leases are renewed.
    There,
    /// As before, but the Attempts in heartbeats are lost.
    Elsewhere,
    /// What is said is not answered, and the Attempts in heartbeats are over.
    Behind,
    /// What is said does not count: the Attempts are lost.
    Refuses,
}

/// A way to a scheduler, which a test cuts off.
#[derive(Debug, Clone)]
pub(crate) struct Cut {
    id: AgentId,
    mood: Arc<Mutex<Mood>>,
    /// What was recorded.
    said: Arc<Mutex<Vec<String>>>,
    /// How many heartbeats were answered.
    beats: Arc<AtomicUsize>,
}

impl Cut {
    pub(crate) fn new(mood: Mood) -> Self {
        let id = AgentId::new("w").unwrap();
        Self { id, mood: Arc::new(Mutex::new(mood)), said: Arc::default(), beats: Arc::default() }
    }

    fn mood(&self) -> Mood {
        *self.mood.lock()
    }

    /// How many heartbeats were answered.
    pub(crate) fn beats(&self) -> usize {
        self.beats.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, mood: Mood) {
        *self.mood.lock() = mood;
    }

    fn said(&self) -> Vec<String> {
        self.said.lock().clone()
    }

    fn answer(&self, word: String) -> BoxFuture<'static, Result<Recorded, Rejection>> {
        let cut = self.clone();
        Box::pin(async move {
            sleep(TICK).await;
            match cut.mood() {
                Mood::Mute | Mood::Behind => pending().await,
                Mood::Refuses => Err(Rejection::new(Code::StaleAttempt, "another has it")),
                Mood::Away => Err(Rejection::new(Code::Unavailable, "nobody is there")),
                Mood::There | Mood::Elsewhere => {
                    cut.said.lock().push(word);
                    Ok(Recorded { version: 1, cancel_requested: false, time_left_ms: None })
                }
            }
        })
    }
}

impl WorkerPort for Cut {
    type Answer = BoxFuture<'static, Result<Recorded, Rejection>>;

    fn is_remote(&self) -> bool {
        true
    }

    fn id(&self) -> &AgentId {
        &self.id
    }

    fn credit(&self, _: Credit) {}

    fn query(
        &self,
        _: &RunOffer,
        _: usize,
    ) -> impl Future<Output = Result<StepPage, Rejection>> + Send + 'static {
        pending()
    }

    fn look(
        &self,
        _: &TaskKey,
        _: RunId,
        _: Look,
    ) -> impl Future<Output = Result<Looked, Rejection>> + Send + 'static {
        pending()
    }

    fn blob_get(
        &self,
        _: &Holding,
        _: BlobGet,
    ) -> impl Future<Output = Result<BlobPart, Rejection>> + Send + 'static {
        pending()
    }

    fn blob_put(
        &self,
        _: &Holding,
        _: BlobPut,
    ) -> impl Future<Output = Result<BlobTaken, Rejection>> + Send + 'static {
        pending()
    }

    fn claim(
        &self,
        _: &RunOffer,
        _: &StepId,
        _: &CommandId,
    ) -> impl Future<Output = Result<ClaimResult, Rejection>> + Send + 'static {
        pending()
    }

    fn leave(&self, _: &RunOffer, _: Option<ReasonInput>, _: Option<Credit>) -> Self::Answer {
        self.answer("leave".to_owned())
    }

    fn report(&self, _: &Holding, report: StepReport, _: Option<Credit>) -> Self::Answer {
        self.answer(report.status.map_or("progress", |status| status.as_str()).to_owned())
    }

    fn end_run(
        &self,
        _: &Holding,
        outcome: RunOutcome,
        _: Option<String>,
        _: Option<Credit>,
    ) -> Self::Answer {
        self.answer(format!("end_run {}", outcome.as_str()))
    }

    fn release(&self, _: &Holding, how: GiveBack, _: Option<Credit>) -> Self::Answer {
        self.answer(format!("release_step {}", how.reason))
    }

    async fn heartbeat(&self, held: &[Holding]) -> Vec<Pulse> {
        sleep(TICK).await;
        let pulse = match self.mood() {
            Mood::Mute => pending().await,
            Mood::Away => Pulse::Unknown,
            Mood::There | Mood::Refuses => {
                Pulse::Renewed { cancel_requested: false, time_left_ms: None }
            }
            Mood::Elsewhere | Mood::Behind => {
                Pulse::Lost(Rejection::new(Code::StaleAttempt, "another has it"))
            }
        };
        self.beats.fetch_add(1, Ordering::AcqRel);
        vec![pulse; held.len()]
    }
}

/// LEASE-05, CTX-11: a worker looks at its leases itself: it stops by itself before one ends, though its heartbeat
/// is still without an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_stops_by_itself_while_its_heartbeat_waits() {
    let (to_worker, deliveries) = unbounded();
    let handlers = Handlers::new().on("wait", |_| pending()).unwrap();
    let options = Options::new(NonZeroUsize::MIN);
    let cut = Cut::new(Mood::Mute);
    let pool = WorkerPool::start(cut, deliveries, handlers, options);
    let begun = Instant::now();
    let claim = grant("wait", 900).grant.unwrap();
    to_worker.unbounded_send(Delivery::Grant(claim)).unwrap();
    let until = async |is_held: bool| {
        while (pool.in_hand() > 0) != is_held {
            assert!(begun.elapsed() < Duration::from_secs(20), "held: {}", pool.in_hand());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    until(true).await;
    until(false).await;
    assert!(
        begun.elapsed() >= Duration::from_millis(270),
        "a third of it is certain, less a tenth"
    );
}

const TICK: Duration = Duration::from_millis(5);

/// Longer than the lease of a grant here.
const LONG: Duration = Duration::from_millis(1_500);

/// A worker with one Attempt, whose handler runs until it is let go, or dropped.
struct Scene {
    cut: Cut,
    pool: WorkerPool<Cut>,
    go: Arc<Notify>,
    /// Whether the handler runs.
    runs: Arc<AtomicBool>,
}

/// Notes when the future that has it ends.
struct Ends(Arc<AtomicBool>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Scene {
    /// The lease is renewed once, and then nobody answers.
    async fn cut_off(on_lease_doubt: Option<LeaseDoubt>) -> Self {
        let (cut, go, runs) = (Cut::new(Mood::There), Arc::<Notify>::default(), Arc::default());
        let (to_worker, deliveries) = unbounded();
        let (let_go, running) = (Arc::clone(&go), Arc::<AtomicBool>::clone(&runs));
        let handler = move |ctx: StepContext| {
            let (go, ends) = (Arc::clone(&let_go), Ends(Arc::clone(&running)));
            async move {
                ends.0.store(true, Ordering::Release);
                go.notified().await;
                drop(ends);
                Ok(ctx.complete(None)?)
            }
        };
        let handlers = Handlers::new().on("wait", handler).unwrap();
        let grace = Duration::from_millis(100);
        let options = Options { grace, ..Options::new(NonZeroUsize::MIN) };
        let pool = WorkerPool::start(cut.clone(), deliveries, handlers, options);
        let mut claim = grant("wait", 900).grant.unwrap();
        claim.retry_policy =
            Some(Arc::new(RetryPolicy { on_lease_doubt, ..RetryPolicy::default() }));
        to_worker.unbounded_send(Delivery::Grant(claim)).unwrap();
        let it = Self { cut, pool, go, runs };
        it.until(|it| it.runs()).await;
        sleep(Duration::from_millis(200)).await;
        it.cut.set(Mood::Away);
        // The channel stays open as long as the scene: a worker whose deliveries end goes on.
        std::mem::forget(to_worker);
        it
    }

    fn runs(&self) -> bool {
        self.runs.load(Ordering::Acquire)
    }

    async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", self.cut.said());
            sleep(TICK).await;
        }
    }
}

/// LEASE-17: a worker that cannot renew stops the handler before the lease ends, and gives the Step back as
/// soon as somebody answers: nobody has to wait for the lease, and nothing is counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_stopped_in_doubt_is_given_back_once_there_is_an_answer() {
    for doubt in [None, Some(LeaseDoubt::Stop)] {
        let it = Scene::cut_off(doubt).await;
        it.until(|it| !it.runs()).await;
        sleep(Duration::from_millis(300)).await;
        assert_eq!(it.cut.said(), [""; 0]);
        it.cut.set(Mood::There);
        it.until(|it| !it.cut.said().is_empty()).await;
        sleep(Duration::from_millis(300)).await;
        assert_eq!(it.cut.said(), ["release_step fenced"], "once");
        it.pool.drain().await;
    }
}

/// What was seen: nobody answered for 34 s, which killed a job of 70 s.
///
/// LEASE-17: with `finish` the handler goes on, and its result is reported when somebody answers again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_is_to_be_finished_goes_on_without_a_lease() {
    for is_done_meanwhile in [false, true] {
        let it = Scene::cut_off(Some(LeaseDoubt::Finish)).await;
        sleep(LONG).await;
        assert!(it.runs(), "it goes on");
        if is_done_meanwhile {
            it.go.notify_one();
            it.until(|it| !it.runs()).await;
            sleep(LONG).await;
        }
        it.cut.set(Mood::There);
        sleep(Duration::from_millis(100)).await;
        it.go.notify_one();
        it.until(|it| !it.cut.said().is_empty()).await;
        assert_eq!(it.cut.said(), ["completed"]);
        it.pool.drain().await;
    }
}

/// LEASE-17: but it stops when it learns that somebody else has the Step, and says nothing more of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_somebody_else_has_is_not_finished() {
    let it = Scene::cut_off(Some(LeaseDoubt::Finish)).await;
    sleep(LONG).await;
    assert!(it.runs());
    it.cut.set(Mood::Elsewhere);
    it.until(|it| !it.runs()).await;
    it.pool.drain().await;
    assert_eq!(it.cut.said(), [""; 0]);
}

/// LEASE-17, REPORT-14: a handler that has ended by itself runs nowhere twice, so its result is kept and said
/// when somebody answers, however late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_outlasts_the_lease() {
    let it = Scene::cut_off(None).await;
    it.go.notify_one();
    sleep(LONG).await;
    assert!(!it.runs());
    it.cut.set(Mood::Elsewhere); // A pulse says that it is lost; only the answer says whether it counts.
    it.until(|it| !it.cut.said().is_empty()).await;
    assert_eq!(it.cut.said(), ["completed"]);
    it.pool.drain().await;
}

/// LEASE-17, CTX-09: a worker that is interrupted waits for nobody for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_cut_off_can_be_interrupted() {
    for doubt in [LeaseDoubt::Stop, LeaseDoubt::Finish] {
        let it = Scene::cut_off(Some(doubt)).await;
        sleep(LONG).await;
        let interrupted = tokio::time::timeout(Duration::from_secs(15), it.pool.interrupt());
        interrupted.await.expect("it ends");
        assert!(!it.runs());
    }
}
