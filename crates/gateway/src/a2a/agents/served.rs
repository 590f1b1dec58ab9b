//! [`ServedAgents`]: the agents of a gateway that is running, which may become others.

use std::sync::Arc;

use tokio::sync::watch;

use super::Agents;
use crate::a2a::push::PushRules;

/// The agents that a gateway serves now. Clones share them.
#[derive(Debug, Clone)]
pub struct ServedAgents(Arc<watch::Sender<Agents>>);

impl ServedAgents {
    /// Those that it serves now. A request goes by the ones that were there when it came.
    pub fn now(&self) -> Agents {
        self.0.borrow().clone()
    }

    /// Serves others from now on.
    pub fn replace(&self, agents: Agents) {
        self.0.send_replace(agents);
    }

    /// To where updates may be sent now; none: they are not.
    pub(crate) fn push(&self) -> Option<PushRules> {
        self.0.borrow().push().cloned()
    }

    /// Waits until updates may be sent.
    pub(crate) async fn until_push(&self) {
        // The sender is this very one, so the channel does not close meanwhile.
        let _ = self.0.subscribe().wait_for(|agents| agents.push().is_some()).await;
    }
}

impl From<Agents> for ServedAgents {
    fn from(agents: Agents) -> Self {
        Self(Arc::new(watch::Sender::new(agents)))
    }
}

/// None.
impl Default for ServedAgents {
    fn default() -> Self {
        Agents::default().into()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tenure_mcp::file::AgentsFile;

    use super::*;

    fn agents(text: &str) -> Agents {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agents.toml");
        std::fs::write(&path, text).unwrap();
        Agents::read(&AgentsFile::read(&path).unwrap(), &|_| Err("there is none".into())).unwrap()
    }

    /// Whoever holds the agents sees the new ones, and what was begun with the old ones goes on with these.
    #[test]
    fn agents_become_others_for_all_who_hold_them() {
        let served = ServedAgents::default();
        let (before, other) = (served.now(), served.clone());
        served.replace(agents("[[agents]]\nname = \"echo\"\ndescription = \"Echo.\"\n"));
        assert!(other.now().find("echo").is_some() && before.find("echo").is_none());
    }

    /// Couriers begin when a file first allows that updates are sent.
    #[test]
    fn who_waits_for_push_learns_of_it() {
        let served = ServedAgents::default();
        let mut waits = Box::pin(served.until_push());
        assert!(waits.as_mut().now_or_never().is_none() && served.push().is_none());
        served.replace(agents("[push]\n"));
        assert!(waits.as_mut().now_or_never().is_some() && served.push().is_some());
    }
}
