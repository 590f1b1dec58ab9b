//! The way of a request for what a command wrote, to the worker that has it (ART-09).

use std::sync::Arc;

use tenure_core::features::OUTPUT;
use tenure_core::id::AgentId;
use tenure_wire::bus::output::OutputRequest;
use tenure_wire::bus::subject::WorkerName;
use tenure_wire::bus::worker::{Delivery, Hello};

use super::{Links, NodeLink};

impl Links {
    /// The link of the worker that the log calls so: `<principal>.<boot>`.
    pub(crate) fn called(&self, id: &AgentId) -> Option<(WorkerName, Arc<NodeLink>)> {
        let (principal, boot) = id.as_str().split_once('.')?;
        let all = self.all.lock();
        let is_it =
            |name: &WorkerName| name.principal.as_str() == principal && name.boot.as_str() == boot;
        let (name, link) = all.links.iter().find(|(name, _)| is_it(name))?;
        Some((name.clone(), Arc::clone(link)))
    }

    /// Whether this is still the link of the worker.
    pub(crate) fn has(&self, name: &WorkerName, link: &Arc<NodeLink>) -> bool {
        self.all.lock().links.get(name).is_some_and(|now| Arc::ptr_eq(now, link))
    }
}

impl NodeLink {
    /// Whether the worker says that it serves what its commands wrote.
    pub(crate) fn serves_output(&self) -> bool {
        self.said.as_ref().is_some_and(|Hello { features, .. }| features.has(OUTPUT))
    }

    /// Asks the worker for a page of what a command wrote.
    pub(crate) async fn ask_for_output(&self, links: &Links, asked: OutputRequest) {
        let delivery = Delivery { read_output: Some(Box::new(asked)), ..Delivery::default() };
        self.state.lock().window.push([delivery]);
        self.flush(links).await;
    }
}
