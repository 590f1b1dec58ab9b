//! Pools of workers that come over HTTP.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_core::Code;
use tenure_core::status::{StepStatus, TaskStatus};
use tenure_gateway::identity::{Allowed, Identity};
use tenure_sdk::client::{Client, Step, Task};
use tenure_sdk::http::{HttpConnectError, HttpSettings, HttpWorker};
use tenure_sdk::worker::{Handlers, Options, StepContext, WorkerPool};
use tokio::time::{Instant, sleep, timeout};

use crate::SOON;
use crate::house::{House, Socket, connect, worker};

/// The Steps that a handler has run, in their order.
type Ran = Arc<Mutex<Vec<String>>>;

/// A handler that notes its Step and takes so long.
fn handlers(ran: &Ran, takes: Duration) -> Handlers {
    let ran = Arc::clone(ran);
    let work = move |step: StepContext| {
        let ran = Arc::clone(&ran);
        async move {
            ran.lock().push(step.step_id().to_string());
            sleep(takes).await;
            Ok(step.complete_json(&"done")?)
        }
    };
    Handlers::new().on("work", work).unwrap()
}

fn options(concurrency: usize) -> Options {
    Options::new(NonZeroUsize::new(concurrency).unwrap())
}

/// A Task of so many Steps that need not wait for each other.
fn task_of(steps: usize) -> Task {
    let steps = (0..steps).map(|number| Step::new(&format!("a{number}")).handler("work"));
    Task::new("a task").steps(steps)
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < SOON, "it does not come: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Each of so many Steps has run, and none of them twice.
fn check_ran_once(ran: &Ran, steps: usize) {
    let ran = ran.lock();
    assert_eq!(ran.iter().collect::<BTreeSet<_>>().len(), steps, "{ran:?}");
    assert_eq!(ran.len(), steps, "something ran twice: {ran:?}");
}

/// CTX-01, mechanisms 8: a pool over HTTP runs what a pool in process runs, also Steps so short that it prefetches.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_over_http_runs_steps() {
    let house = House::start().await;
    let socket = Socket::tcp("127.0.0.1:0", house.routes_for(worker("ant"))).await;
    let ran = Ran::default();
    let handlers = handlers(&ran, Duration::ZERO);
    let pool = WorkerPool::over_http(socket.settings(), "default", handlers, options(4));
    let pool = pool.await.unwrap();
    let client = Client::new(house.link());
    let task = client.create(task_of(100)).await.unwrap();
    let ended = timeout(SOON, client.wait_for_end(&task)).await.unwrap().unwrap();
    assert_eq!(ended.status, TaskStatus::Completed);
    check_ran_once(&ran, 100);
    timeout(SOON, pool.leave()).await.unwrap().unwrap();
}

/// VALUE-01: a handler knows nothing of blobs: it reads and answers bytes.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_value_comes_and_goes_over_http() {
    let house = House::start().await;
    let socket = Socket::tcp("127.0.0.1:0", house.routes_for(worker("ant"))).await;
    let twice = |step: StepContext| async move {
        let text: String = step.input_json()?;
        Ok(step.complete_json(&text.repeat(2))?)
    };
    let handlers = Handlers::new().on("twice", twice).unwrap();
    let pool = WorkerPool::over_http(socket.settings(), "default", handlers, options(1));
    let _pool = pool.await.unwrap();
    let client = Client::new(house.link());
    let text = "x".repeat(700_000);
    let step = Step::new("a").handler("twice").input_json(&text).unwrap();
    let task = client.create(Task::new("a task").step(step)).await.unwrap();
    let ended = timeout(SOON, client.wait_for_end(&task)).await.unwrap().unwrap();
    assert_eq!(ended.status, TaskStatus::Completed);
    let view = client.get(&task).await.unwrap();
    let output = view.steps[0].facts.as_ref().unwrap().output.clone().unwrap();
    assert_eq!(output.blob().map(|blob| blob.size_bytes), Some(1_400_002));
}

/// When a gateway dies, its workers and callers go on at the next one: what runs is not begun again, and each Step
/// has one result.
#[tokio::test(flavor = "multi_thread")]
async fn workers_and_callers_go_on_at_the_next_gateway() {
    const STEPS: usize = 16;
    let house = House::start().await;
    let first = Socket::tcp("127.0.0.1:0", house.routes_for(Identity::local())).await;
    let second = Socket::tcp("127.0.0.1:0", house.other_routes_for(Identity::local())).await;
    let both = HttpSettings { url: format!("{},{}", first.url, second.url), ..first.settings() };
    let ran = Ran::default();
    let handlers = handlers(&ran, Duration::from_millis(200));
    let pool = WorkerPool::over_http(both.clone(), "default", handlers, options(4)).await.unwrap();
    let client = Client::new(connect(&both, "main").await.unwrap());
    let task = client.create(task_of(STEPS)).await.unwrap();
    let (waiting, id) = (client.clone(), task.clone());
    let ended = tokio::spawn(async move { waiting.wait_for_end(&id).await });
    until("some steps run", || ran.lock().len() >= 4).await;
    drop(first);
    let ended = timeout(SOON, ended).await.unwrap().unwrap().unwrap();
    assert_eq!(ended.status, TaskStatus::Completed);
    check_ran_once(&ran, STEPS);
    let view = client.get(&task).await.unwrap();
    assert!(view.steps.iter().all(|step| step.status == StepStatus::Completed));
    timeout(SOON, pool.leave()).await.unwrap().unwrap();
}

/// A gateway that has forgotten a worker, as one that was started anew, gets it again under the same boot.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_its_gateway_has_forgotten_joins_again() {
    let house = House::start().await;
    let socket = Socket::tcp("127.0.0.1:0", house.routes_for(worker("ant"))).await;
    let ran = Ran::default();
    let handlers = handlers(&ran, Duration::from_millis(200));
    let pool = WorkerPool::over_http(socket.settings(), "default", handlers, options(2));
    let _pool = pool.await.unwrap();
    let client = Client::new(house.link());
    let task = client.create(task_of(6)).await.unwrap();
    until("some steps run", || ran.lock().len() >= 2).await;
    house.gateway.part_with_workers().await;
    let address = socket.url.trim_start_matches("http://").to_owned();
    drop(socket);
    let _anew = Socket::tcp(&address, house.other_routes_for(worker("ant"))).await;
    let ended = timeout(SOON, client.wait_for_end(&task)).await.unwrap().unwrap();
    assert_eq!(ended.status, TaskStatus::Completed);
    check_ran_once(&ran, 6);
}

/// PERM: a worker that may not work in the pool is told so when it joins.
#[tokio::test]
async fn a_worker_that_may_not_join_is_told() {
    let house = House::start().await;
    let nowhere = Identity { pools: Allowed::Only(Vec::new()), ..worker("ant") };
    let socket = Socket::tcp("127.0.0.1:0", house.routes_for(nowhere)).await;
    let handlers = handlers(&Ran::default(), Duration::ZERO);
    let refused = WorkerPool::over_http(socket.settings(), "default", handlers, options(1)).await;
    let Err(HttpConnectError::Refused(refused)) = refused else { panic!("it was let in") };
    assert_eq!(refused.code, Code::PermissionDenied);
}

/// A worker that no gateway lets in any more learns why, and does not ask for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_let_in_no_more_is_told() {
    let house = House::start().await;
    let first = Socket::tcp("127.0.0.1:0", house.routes_for(worker("ant"))).await;
    let nowhere = Identity { pools: Allowed::Only(Vec::new()), ..worker("ant") };
    let second = Socket::tcp("127.0.0.1:0", house.other_routes_for(nowhere)).await;
    let url = format!("{},{}", first.url, second.url);
    let both = HttpSettings { url, ..first.settings() };
    let (name, boot) = (crate::house::pool(), "b1".parse().unwrap());
    let (port, _deliveries) = HttpWorker::join(&both, &name, &boot, None).await.unwrap();
    assert!(timeout(Duration::from_millis(200), port.denied()).await.is_err(), "it works");
    drop(first);
    let refused = timeout(SOON, port.denied()).await.unwrap();
    assert_eq!(refused.code, Code::PermissionDenied);
}

/// A gateway that refuses a worker, as one with an old list of callers, costs it no work: the others are asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_one_gateway_refuses_goes_on_at_another() {
    let house = House::start().await;
    let nowhere = Identity { pools: Allowed::Only(Vec::new()), ..worker("ant") };
    let first = Socket::tcp("127.0.0.1:0", house.routes_for(worker("ant"))).await;
    let refuses = Socket::tcp("127.0.0.1:0", house.other_routes_for(nowhere)).await;
    let third = Socket::tcp("127.0.0.1:0", house.other_routes_for(worker("ant"))).await;
    let url = format!("{},{},{}", first.url, refuses.url, third.url);
    let all = HttpSettings { url, ..first.settings() };
    let ran = Ran::default();
    let handlers = handlers(&ran, Duration::ZERO);
    let _pool = WorkerPool::over_http(all, "default", handlers, options(2)).await.unwrap();
    house.gateway.part_with_workers().await;
    drop(first);
    let client = Client::new(house.link());
    let task = client.create(task_of(3)).await.unwrap();
    let ended = timeout(SOON, client.wait_for_end(&task)).await.unwrap().unwrap();
    assert_eq!(ended.status, TaskStatus::Completed);
    check_ran_once(&ran, 3);
}
