//! The bus in process keeps what the ports promise.
#![allow(clippy::unwrap_used, missing_docs)] // A test that cannot go on has failed.

use std::sync::Arc;

use futures::channel::mpsc::UnboundedReceiver;
use tenure_core::Code;
use tenure_core::Context;
use tenure_core::id::{AgentId, CommandId, PoolId, SessionId, TaskId};
use tenure_core::status::Role;
use tenure_local::MemoryLeases;
use tenure_ports::ClientPort as _;
use tenure_ports::bus::Delivery;
use tenure_scheduler::{ClientLink, Config, Scheduler, WorkerLink};
use tenure_testkit::conformance::{Bus, absence_suite, bus_suite};
use tenure_testkit::{MemoryBlobs, MemoryJournal, wired};

use crate::common::dag;

/// A scheduler in the process of those who speak to it.
struct InProcess(Scheduler<MemoryJournal, MemoryLeases>);

impl InProcess {
    async fn start() -> Self {
        let mut config = Config::embedded(PoolId::new("default").unwrap());
        config.limits.lease_ms = 120_000;
        config.blobs = Some(Arc::new(MemoryBlobs::of_quota(1 << 30)));
        let (journal, leases) = (Arc::default(), Arc::new(MemoryLeases::default()));
        Self(Scheduler::start(journal, leases, config).await.unwrap())
    }
}

impl Bus for InProcess {
    type Worker = WorkerLink<MemoryJournal, MemoryLeases>;
    type Client = ClientLink<MemoryJournal, MemoryLeases>;

    fn pool(&self) -> PoolId {
        PoolId::new("default").unwrap()
    }

    async fn worker(
        &self,
        principal: &str,
        boot: &str,
    ) -> (Self::Worker, UnboundedReceiver<Delivery>) {
        let id = AgentId::new(format!("{principal}.{boot}")).unwrap();
        self.0.join(id, self.pool(), None).unwrap()
    }

    async fn client(&self, role: Role, session: &str) -> Self::Client {
        let session = SessionId::new(session).unwrap();
        self.0.client(role, AgentId::new("bob").unwrap(), session)
    }

    async fn stop(&self) {
        self.0.stop().await;
    }
}

/// The same, where everything is bytes on its way.
struct Wired(InProcess);

impl Bus for Wired {
    type Worker = wired::Worker<<InProcess as Bus>::Worker>;
    type Client = wired::Client<<InProcess as Bus>::Client>;

    fn pool(&self) -> PoolId {
        self.0.pool()
    }

    async fn worker(
        &self,
        principal: &str,
        boot: &str,
    ) -> (Self::Worker, UnboundedReceiver<Delivery>) {
        let (worker, deliveries) = self.0.worker(principal, boot).await;
        wired::Worker::new(worker, deliveries)
    }

    async fn client(&self, role: Role, session: &str) -> Self::Client {
        wired::Client::new(self.0.client(role, session).await)
    }

    async fn stop(&self) {
        self.0.stop().await;
    }
}

/// CTRL-11: a caller in the process of a scheduler is told that it has stopped: nobody will answer.
#[tokio::test(start_paused = true)]
async fn a_scheduler_that_has_stopped_is_over() {
    let bus = Wired(InProcess::start().await);
    let client = bus.client(Role::Orchestrator, "s").await;
    let around = Context::new(CommandId::new("c").unwrap());
    client.write(&TaskId::new("t").unwrap(), around, dag("t", "a")).await.unwrap();
    assert!(!client.is_over());
    bus.stop().await;
    let refused = client.log(&TaskId::new("t").unwrap(), u64::MAX).await.unwrap_err();
    assert_eq!((refused.code, client.is_over()), (Code::Unavailable, true));
}

/// Mechanisms 7, 8, 11 and 15, without a server between.
#[tokio::test(start_paused = true)]
async fn a_scheduler_in_process_is_a_bus() {
    bus_suite(|| async { (InProcess::start().await, ()) }).await;
}

/// Mechanisms 18: nothing that matters is lost by being written down.
#[tokio::test(start_paused = true)]
async fn a_scheduler_in_process_is_a_bus_that_carries_bytes() {
    bus_suite(|| async { (Wired(InProcess::start().await), ()) }).await;
}

/// Mechanisms 7: a scheduler that has stopped is told from one that is slow.
#[tokio::test(start_paused = true)]
async fn a_scheduler_in_process_that_has_stopped_is_told_of() {
    absence_suite(|| async { (InProcess::start().await, ()) }).await;
    absence_suite(|| async { (Wired(InProcess::start().await), ()) }).await;
}
