//! A gateway before a scheduler in memory, for tests of what cannot be seen from outside.

use std::sync::Arc;

use tenure_core::id::{AgentId, SessionId};
use tenure_core::status::Role;
use tenure_local::MemoryLeases;
use tenure_scheduler::{ClientLink, Config, Scheduler};
use tenure_sdk::client::Client;
use tenure_testkit::{Faulty, MemoryJournal};

use super::MacpSettings;
use crate::{EmbeddedBackend, Gateway, GatewaySettings};

type LocalClient = Client<ClientLink<Faulty<MemoryJournal>, MemoryLeases>>;

/// The gateway, which nobody serves yet.
pub(super) struct Fixture {
    scheduler: Scheduler<Faulty<MemoryJournal>, MemoryLeases>,
    pub(super) gateway: Arc<Gateway>,
    pub(super) settings: Arc<MacpSettings>,
}

impl Fixture {
    pub(super) async fn open() -> Self {
        let config = Config::embedded("default".parse().unwrap());
        let leases = Arc::new(MemoryLeases::default());
        let scheduler = Scheduler::start(Arc::default(), leases, config).await.unwrap();
        let settings = GatewaySettings::new(SessionId::new("main").unwrap());
        let gateway = Gateway::new(EmbeddedBackend::new(scheduler.clone(), None), settings);
        let settings = Arc::new(MacpSettings::new(SessionId::new("agents").unwrap()));
        Self { scheduler, gateway, settings }
    }

    /// An orchestrator in a session of Tenure.
    pub(super) fn client(&self, session: &str) -> LocalClient {
        let agent = AgentId::new("planner").unwrap();
        let session = SessionId::new(session).unwrap();
        Client::new(self.scheduler.client(Role::Orchestrator, agent, session))
    }
}
