//! A scheduler in memory, a worker, and servers for several callers.

use std::future::pending;
use std::num::NonZeroUsize;
use std::sync::Arc;

use tenure_core::id::{AgentId, PoolId, SessionId, TaskId};
use tenure_core::status::Role;
use tenure_local::MemoryLeases;
use tenure_mcp::{McpCaller, McpServer, McpSettings, OneCaller, ToolFilter, serve_streams};
use tenure_scheduler::{ClientLink, Config, Scheduler};
use tenure_sdk::client::{Client, Step, Task};
use tenure_sdk::worker::{Handlers, Options, StepContext, WorkerPool};
use tenure_testkit::MemoryJournal;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::host::{Era, ModelHost};

/// The session of all tests.
pub(crate) const SESSION: &str = "main";

/// A client in this process.
pub(crate) type HouseClient = Client<ClientLink<MemoryJournal, MemoryLeases>>;

/// Everything in one process.
pub(crate) struct House {
    scheduler: Scheduler<MemoryJournal, MemoryLeases>,
    pub(crate) client: HouseClient,
    /// Lets as many Steps with the handler `hold` end as it has permits.
    pub(crate) gate: Arc<Semaphore>,
}

impl House {
    pub(crate) async fn open() -> Self {
        let pool: PoolId = "default".parse().unwrap();
        let (journal, leases) = (Arc::default(), Arc::new(MemoryLeases::default()));
        let config = Config::embedded(pool.clone());
        let scheduler = Scheduler::start(journal, leases, config).await.unwrap();
        let gate = Arc::new(Semaphore::new(0));
        let (link, deliveries) = scheduler.join(AgentId::new("ant").unwrap(), pool, None).unwrap();
        let options = Options::new(NonZeroUsize::new(4).unwrap());
        let workers = WorkerPool::start(link, deliveries, handlers(&gate), options);
        tokio::spawn(async move {
            let _works_on = workers;
            pending::<()>().await;
        });
        let client = Client::new(port(&scheduler, Role::Orchestrator));
        Self { scheduler, client, gate }
    }

    /// A host that speaks the newest version, with all tools.
    pub(crate) async fn host(&self) -> ModelHost {
        self.host_of(Role::Orchestrator, McpSettings::default(), Era::Modern).await
    }

    /// The same for those whose server has some tools only.
    pub(crate) async fn host_with(&self, role: Role, tools: ToolFilter) -> ModelHost {
        self.host_of(role, McpSettings { tools, ..McpSettings::default() }, Era::Modern).await
    }

    pub(crate) async fn host_of(&self, role: Role, settings: McpSettings, era: Era) -> ModelHost {
        let caller = McpCaller {
            client: Client::new(port(&self.scheduler, role)),
            agent: AgentId::new("model").unwrap(),
            role,
        };
        let server = McpServer::new(OneCaller(caller), Arc::new(settings));
        let (near, far) = tokio::io::duplex(1 << 20);
        let (input, output) = tokio::io::split(far);
        let stop = CancellationToken::new();
        let (token, served) =
            (stop.clone(), async move { serve_streams(server, input, output, &stop).await });
        ModelHost::begin(near, tokio::spawn(served), token, era).await
    }

    /// Makes a Task that runs by itself, with one Step.
    pub(crate) async fn create(&self, handler: &str) -> TaskId {
        let task = Task::new("a task").step(Step::new("a").handler(handler));
        self.client.create(task).await.unwrap()
    }

    /// The version of a Task.
    pub(crate) async fn version(&self, task: &TaskId) -> u64 {
        self.client.get(task).await.unwrap().task.version
    }
}

fn port(
    scheduler: &Scheduler<MemoryJournal, MemoryLeases>,
    role: Role,
) -> ClientLink<MemoryJournal, MemoryLeases> {
    let session: SessionId = SESSION.parse().unwrap();
    scheduler.client(role, AgentId::new("model").unwrap(), session)
}

fn handlers(gate: &Arc<Semaphore>) -> Handlers {
    let gate = Arc::clone(gate);
    let hold = move |ctx: StepContext| {
        let gate = Arc::clone(&gate);
        async move {
            tokio::select! {
                permit = gate.acquire() => permit?.forget(),
                () = ctx.cancellation().cancelled() => return Ok(()),
            }
            Ok(ctx.complete_json(&"held")?)
        }
    };
    let echo = |ctx: StepContext| async move { Ok(ctx.complete_json(&"done")?) };
    let ask = |ctx: StepContext| async move {
        match ctx.answers().first() {
            Some(answer) => Ok(ctx.complete_json(answer)?),
            None => Ok(ctx.request_input("Which colour?")?),
        }
    };
    let handlers = Handlers::new().on("echo", echo).unwrap();
    handlers.on("hold", hold).unwrap().on("ask", ask).unwrap()
}
