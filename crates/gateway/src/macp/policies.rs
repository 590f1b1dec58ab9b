//! [`ServedPolicies`]: the policies that sessions may name. They may be replaced while a gateway runs.

use std::sync::Arc;

use parking_lot::RwLock;
use tenure_macp::MacpPolicies;

/// The policies that sessions may name now, shared by all who hold this. A session keeps the policy under which it
/// began.
#[derive(Debug, Clone, Default)]
pub struct ServedPolicies(Arc<RwLock<Arc<MacpPolicies>>>);

impl From<MacpPolicies> for ServedPolicies {
    fn from(policies: MacpPolicies) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(policies))))
    }
}

impl ServedPolicies {
    /// The present policies.
    pub fn now(&self) -> Arc<MacpPolicies> {
        Arc::clone(&self.0.read())
    }

    /// Replaces the policies for sessions that begin from now on. The pools stay.
    pub fn replace(&self, policies: MacpPolicies) {
        let mut now = self.0.write();
        *now = Arc::new(policies.with_pools(now.pools().to_vec()));
    }
}
