//! Runtime events over NATS (EVENT-07).

use std::num::NonZeroUsize;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use tenure_core::command::Dispatch;
use tenure_core::status::{Policy, Role};
use tenure_core::view::{RuntimeEvent, RuntimeName};
use tenure_sdk::client::{Client, Step, Task};
use tenure_sdk::nats::{Connection, NatsClient, NatsSettings, NatsWorker};
use tenure_sdk::worker::{Handlers, Options, StepContext, WorkerPool};
use tenure_wire::bus::subject::{ClientName, Token, WorkerName, inbox};

use crate::common::Servers;

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

async fn client(servers: &Servers, role: Role, session: &str) -> Client<NatsClient> {
    let name = ClientName { role, session: session.parse().unwrap(), principal: token("bob") };
    let at = inbox(role, &name.principal, &token(session));
    let connection = Connection::open(&NatsSettings::new(servers.url()), at).await.unwrap();
    Client::new(NatsClient::join(connection, &name).await.unwrap())
}

async fn next(events: &mut BoxStream<'static, RuntimeEvent>) -> RuntimeEvent {
    let event = tokio::time::timeout(Duration::from_secs(30), events.next());
    event.await.expect("it is told").unwrap()
}

/// EVENT-07, DISP-12, DISP-13: orchestrators and observers of the session hear what happens to Runs, and
/// the log has nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn what_happens_to_runs_is_heard_over_nats() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let orchestrator = client(&servers, Role::Orchestrator, "s1").await;
    let observer = client(&servers, Role::Observer, "s1").await;
    let name =
        WorkerName { pool: "default".parse().unwrap(), principal: token("ant"), boot: token("b1") };
    let settings = NatsSettings::new(servers.url());
    let connection = Connection::open(&settings, name.inbox()).await.unwrap();
    let (worker, deliveries) = NatsWorker::join(connection, &name, None).await.unwrap();
    let says = |ctx: StepContext| async move {
        ctx.set_run_result("it went well")?;
        Ok(ctx.complete(None)?)
    };
    let handlers = Handlers::new().on("says", says).unwrap();
    let options = Options::new(NonZeroUsize::new(4).unwrap());
    let _workers = WorkerPool::start(worker, deliveries, handlers, options);

    let task = Task::new("t").id("t").with(|input| {
        (input.dispatch, input.completion) = (Some(Policy::Manual), Some(Policy::Manual));
    });
    let task = orchestrator.create(task.step(Step::new("a").handler("says"))).await.unwrap();
    let mut all = observer.runtime_events(None).await.unwrap();
    let mut of_task = orchestrator.runtime_events(Some(&task)).await.unwrap();
    let dispatch = async || {
        let dispatch = Dispatch {
            allowed_step_ids: None,
            bindings: None,
            instructions: None,
            on_behalf: None,
            ttl_ms: None,
            wait: Some(true),
            worker_pool_id: "default".parse().unwrap(),
        };
        orchestrator.dispatch(&task, dispatch).await.unwrap()
    };
    let (done, idle) = (dispatch().await, dispatch().await);
    assert!(idle.run_end.unwrap().no_step_claimed);
    let (done, idle) = (done.run_id.unwrap(), idle.run_id.unwrap());
    for events in [&mut all, &mut of_task] {
        for (name, run) in [
            (RuntimeName::RunTaken, done),
            (RuntimeName::RunResult, done),
            (RuntimeName::RunTaken, idle),
        ] {
            let event = next(events).await;
            assert_eq!((event.event, event.run_id, &event.task_id), (name, run, &task));
            assert_eq!(event.worker_id.unwrap().as_str(), "ant.b1");
            let said = (name == RuntimeName::RunResult).then_some("it went well");
            assert_eq!(event.result.as_deref(), said);
        }
    }
    orchestrator.cancel(&task, "enough").await.unwrap();
    orchestrator.wait_for_end(&task).await.unwrap();
    let log: Vec<_> = orchestrator.watch(&task, 0).map(Result::unwrap).collect().await;
    let log = format!("{log:?}");
    assert!(log.contains("RunDispatched") && !log.contains("it went well"), "{log}");
}
