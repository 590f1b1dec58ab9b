//! For tests: a scheduler in memory.

use std::sync::Arc;

use tenure_core::id::TaskId;
use tenure_core::status::Role;
use tenure_local::MemoryLeases;
use tenure_scheduler::{ClientLink, Config, Scheduler};
use tenure_sdk::client::{Client, Step, Task};
use tenure_testkit::MemoryJournal;

/// A client in this process.
pub(crate) type TestClient = Client<ClientLink<MemoryJournal, MemoryLeases>>;

/// A Task that waits for workers, of which there are none, and its version.
pub(crate) async fn waiting_task() -> (TestClient, TaskId, u64) {
    let (journal, leases) = (Arc::<MemoryJournal>::default(), Arc::default());
    let config = Config::embedded("default".parse().unwrap());
    let scheduler = Scheduler::start(journal, leases, config).await.unwrap();
    let session = "main".parse().unwrap();
    let port = scheduler.client(Role::Orchestrator, "ann".parse().unwrap(), session);
    let client = Client::new(port);
    let task = client.create(Task::new("t").step(Step::new("a"))).await.unwrap();
    let version = client.get(&task).await.unwrap().task.version;
    (client, task, version)
}
