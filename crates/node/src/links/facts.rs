//! What a node tells of its links.

use tenure_wire::bus::operate::{SuspendedFacts, WorkerFacts};
use tenure_wire::bus::subject::WorkerName;

use super::NodeLink;

impl NodeLink {
    pub(super) fn facts(&self, name: WorkerName, is_audit: bool) -> WorkerFacts {
        let free = self.port.free();
        let (sent, seen) = is_audit.then(|| self.port.sent_and_seen()).unzip();
        let suspended = self.port.suspension();
        let suspended = suspended.map(|(handler, again_ms)| SuspendedFacts { handler, again_ms });
        let state = self.state.lock();
        let silent = state.heard.elapsed().as_millis();
        WorkerFacts {
            pool: name.pool,
            principal: name.principal.as_str().into(),
            boot: name.boot.as_str().into(),
            free,
            unheard: state.window.unheard(),
            silent_ms: u64::try_from(silent).unwrap_or(u64::MAX),
            draining: state.leave.is_some(),
            suspended,
            holds: Some(self.port.holds()),
            sent,
            seen,
        }
    }
}
