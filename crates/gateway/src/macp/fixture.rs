//! A gateway before a scheduler in memory, for tests of what cannot be seen from outside.

use std::sync::Arc;

use tenure_core::id::SessionId;
use tenure_local::MemoryLeases;
use tenure_scheduler::{Config, Scheduler};
use tenure_testkit::{Faulty, MemoryJournal};

use super::MacpSettings;
use crate::{EmbeddedBackend, Gateway, GatewaySettings};

/// The gateway, which nobody serves yet.
pub(super) struct Fixture {
    pub(super) gateway: Arc<Gateway>,
    pub(super) settings: Arc<MacpSettings>,
}

impl Fixture {
    pub(super) async fn open() -> Self {
        let config = Config::embedded("default".parse().unwrap());
        let leases = Arc::new(MemoryLeases::default());
        let journal = Arc::<Faulty<MemoryJournal>>::default();
        let scheduler = Scheduler::start(journal, leases, config).await.unwrap();
        let settings = GatewaySettings::new(SessionId::new("main").unwrap());
        let gateway = Gateway::new(EmbeddedBackend::new(scheduler, None), settings);
        let settings = Arc::new(MacpSettings::new(SessionId::new("agents").unwrap()));
        Self { gateway, settings }
    }
}
