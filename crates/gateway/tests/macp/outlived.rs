//! Work that goes from agents of MACP to workers of Tenure, and from Tenure to agents, on real servers, while a gateway
//! or a scheduler is killed: nothing is lost, and nothing is done twice.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use tenure_core::status::TaskStatus;
use tenure_macp::SessionState;
use tenure_sdk::nats::{NatsWorker, PoolMember};
use tenure_sdk::worker::{Handlers, Options, StepContext, WorkerPool};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::agent::{Agent, Wire, accept, commit, complete, request, start, update};
use crate::cluster::{client, gateway, gateway_with};
use crate::errands::{asked, found, of_ann, sessions_of};
use crate::killed::{MortalNode, RECOVERED, send, urls};
use crate::pools::{POOL, with_pools};
use crate::servers::{nats, redis};

/// All messages of a session that goes well.
const ALL: [&str; 6] =
    ["SessionStart", "TaskRequest", "TaskAccept", "TaskUpdate", "TaskComplete", "Commitment"];

/// A gateway with pools on a runtime of its own, which ends without a word when this is killed.
struct MortalGateway {
    runtime: Option<Runtime>,
    grpc: SocketAddr,
}

impl MortalGateway {
    async fn start(nats: &str) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let nats = nats.to_owned();
        let serving = runtime.spawn(async move {
            let served = gateway_with(&nats, with_pools()).await;
            let grpc = served.grpc;
            std::mem::forget(served); // It lives as long as the runtime.
            grpc
        });
        Self { grpc: serving.await.unwrap(), runtime: Some(runtime) }
    }

    async fn agent(&self, name: &str) -> Agent {
        Agent::new(Wire::to(self.grpc).await, name)
    }

    fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for MortalGateway {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A worker of the pool, which reports and completes when it is let to.
async fn worker(nats: &str, gate: &Arc<Semaphore>) -> WorkerPool<NatsWorker> {
    let gate = Arc::clone(gate);
    let works = move |step: StepContext| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await?.forget();
            step.send_status(Default::default()).await?;
            gate.acquire().await?.forget();
            Ok(step.complete_json(&1)?)
        }
    };
    let handlers = Handlers::new().on("default", works).unwrap();
    let member = PoolMember { pool: "sales", name: "ant", build: None };
    WorkerPool::connect(nats, member, handlers, Options::new(NonZeroUsize::MIN)).await.unwrap()
}

/// MACP-15, MACP-19: of two gateways the one is killed to which the planner speaks: with the request just acknowledged,
/// when the worker has begun, when it has reported, and while it completes. The other tells what the worker does, once.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_works_on_though_a_gateway_dies() {
    let (nats, redis) = (nats(), redis(&[]));
    let (url, store) = urls(&nats, &redis);
    let _node = MortalNode::start(&url, &store, "n0").await;
    let gate = Arc::new(Semaphore::new(0));
    let _worker = worker(&url, &gate).await;
    let stays = MortalGateway::start(&url).await;
    let client = client(&url).await;
    for moment in 0..4 {
        let mut dies = MortalGateway::start(&url).await;
        let planner = dies.agent("planner").await;
        let session = planner.starts(start(&[POOL])).await;
        planner.says(&session, "TaskRequest", &request(POOL)).await;
        let mut told = planner.follows(&session, 0).await;
        if moment > 0 {
            assert_eq!(told.kinds(3).await, ALL[..3], "{moment}");
        }
        if moment > 1 {
            gate.add_permits(1);
            assert_eq!(told.kinds(1).await, ALL[3..4], "{moment}");
        }
        if moment > 2 {
            gate.add_permits(1);
        }
        dies.kill();
        gate.add_permits([2, 2, 1, 0][moment]);

        let planner = stays.agent("planner").await;
        let mut told = planner.follows(&session, 0).await;
        assert_eq!(told.kinds(5).await, ALL[..5], "{moment}");
        let ack = planner.says(&session, "Commitment", &commit("task.completed", true)).await;
        assert_eq!(ack.session_state(), SessionState::Resolved);
        let task = session.parse().unwrap();
        let facts = client.facts(&task, Default::default()).await.unwrap().facts;
        assert_eq!(facts.len(), ALL.len(), "{moment}");
        let view = client.get(&task).await.unwrap();
        assert_eq!((view.task.native_status, view.attempts.len()), (TaskStatus::Completed, 1));
    }
}

/// MACP-20: the scheduler is killed when a Step for an agent was just made, while the agent accepts, and while it
/// completes. The Step has one session all the same, and ends with its result.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_does_a_step_though_a_scheduler_dies() {
    let (nats, redis) = (nats(), redis(&[]));
    let (url, store) = urls(&nats, &redis);
    let mut node = MortalNode::start(&url, &store, "n0").await;
    let gateway = gateway(&url).await;
    let (client, ann) = (client(&url).await, gateway.agent("ann").await);
    let at = Arc::new(Mutex::new(gateway.grpc));
    for moment in 0..3 {
        let task = asked(&client, of_ann()).await;
        if moment == 0 {
            node = node.replaced(&url, &store, "n1").await;
        }
        let session = found(&ann, moment).await.session_id;
        let messages = [
            ann.envelope(&session, "TaskAccept", &accept()),
            ann.envelope(&session, "TaskUpdate", &update(0.5)),
            ann.envelope(&session, "TaskComplete", &complete(b"{\"growth\": 12}")),
        ];
        for (place, message) in messages.into_iter().enumerate() {
            let message = tenure_macp::pb::Envelope { sender: "ann".into(), ..message };
            let sending = tokio::spawn(send(Arc::clone(&at), message));
            if [(1, 0), (2, 2)].contains(&(moment, place)) {
                node = node.replaced(&url, &store, &format!("n{}", moment + 1)).await;
            }
            sending.await.unwrap();
        }
        let ended = timeout(RECOVERED, client.wait_for_end(&task)).await.expect("it ends soon");
        assert_eq!(ended.unwrap().status, TaskStatus::Completed, "{moment}");
        let mut told = ann.follows(&session, 0).await;
        assert_eq!(told.kinds(6).await, ALL, "{moment}");
        let facts = client.facts(&session.parse().unwrap(), Default::default()).await.unwrap();
        assert_eq!(facts.facts.len(), ALL.len(), "{moment}");
        let view = client.get(&task).await.unwrap();
        assert_eq!(view.attempts.len(), 1, "{moment}: {:?}", view.attempts);
        let output = view.steps[0].facts.as_ref().and_then(|facts| facts.output.clone()).unwrap();
        assert_eq!(output.data(), Some(&b"{\"growth\": 12}"[..]));
        assert_eq!(sessions_of(&ann).await, moment + 1, "each step has one session");
    }
}
