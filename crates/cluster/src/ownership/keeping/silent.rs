//! Which nodes give no sign of life although they have not left: they are frozen, cut off, or were killed.

use tenure_core::id::Millis;
use tokio::time::Instant;

use super::Keeping;

/// The name of the key that has them.
pub(crate) const SILENT: &str = "silent";

/// The nodes that were silent at an answer of Redis, each with how long it had been.
#[derive(Debug, Default)]
pub(in super::super) struct SilentNodes {
    nodes: Vec<(String, Millis)>,
    at: Option<Instant>,
}

impl SilentNodes {
    /// For how many milliseconds each has been silent by now.
    pub(in super::super) fn now(&self) -> Vec<(String, u64)> {
        let since = self.at.map(|at| at.elapsed().as_millis()).unwrap_or_default();
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        let ago = |ms: Millis| u64::try_from(ms).unwrap_or(0).saturating_add(since);
        self.nodes.iter().map(|(node, ms)| (node.clone(), ago(*ms))).collect()
    }

    fn has(&self, node: &str) -> bool {
        self.nodes.iter().any(|(known, _)| known == node)
    }
}

/// The name of a node that its user gave no name. Many nodes may have it.
const NO_NAME: &str = "node";

/// Whether a node was started again under the name that its user gave it: another boot of it lives.
pub(crate) fn is_replaced<'a>(node: &str, live: impl IntoIterator<Item = &'a String>) -> bool {
    fn name(boot: &str) -> &str {
        boot.rsplit_once('-').map_or(boot, |(name, _)| name)
    }
    let is_named = name(node) != NO_NAME;
    is_named && live.into_iter().any(|other| other != node && name(other) == name(node))
}

impl Keeping {
    /// Notes who was given up and had not left, as Redis says it: each name is followed by the time. Logs each
    /// once.
    pub(super) fn note_silent(&self, live: &[String], told: &[String], now: Millis) {
        let ago = |given_up: &str| given_up.parse().map_or(0, |at: Millis| now.saturating_sub(at));
        // A node that was cut off for long is listed itself, until its next sign of life.
        let others = told.chunks_exact(2).filter(|pair| pair[0] != self.options.node);
        let silent = others.filter(|pair| !is_replaced(&pair[0], live));
        let nodes: Vec<_> = silent.map(|pair| (pair[0].clone(), ago(&pair[1]))).collect();
        let mut known = self.shared.silent.lock();
        for (node, _) in nodes.iter().filter(|(node, _)| !known.has(node)) {
            tracing::warn!(
                silent = node,
                "a scheduler gives no sign of life and has not left: it stands still, is cut off, or was killed"
            );
        }
        *known = SilentNodes { nodes, at: Some(Instant::now()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_was_started_again_is_not_missed() {
        let live = ["n1-b2".to_owned(), "eu-n2-c3".to_owned(), "node-d4".to_owned()];
        assert!(is_replaced("n1-a1", &live));
        assert!(is_replaced("eu-n2-a1", &live));
        assert!(!is_replaced("n1-b2", &live), "it is no other boot");
        assert!(!is_replaced("n2-a1", &live));
        assert!(!is_replaced("node-a1", &live), "it is another node without a name");
    }
}
