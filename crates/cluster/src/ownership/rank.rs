//! Decides which node should have which partition: rendezvous hashing.

/// The nodes in the order in which they should have a partition: the highest hash of both first.
pub(super) fn by_rank(nodes: &[String], partition: u32) -> Vec<&String> {
    let weight = |node: &String| {
        let bytes = node.bytes().chain([0]).chain(partition.to_le_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        // FNV leaves similar names with similar high bits, so the bits are mixed once more.
        let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^ (mixed >> 33)
    };
    let mut order: Vec<&String> = nodes.iter().collect();
    order.sort_by_key(|node| (std::cmp::Reverse(weight(node)), *node));
    order
}

/// The nodes that may have a partition, the best first.
pub(super) struct Ranking<'a> {
    all: Vec<&'a String>,
    /// How many of them did not fail to take it; the others come last.
    able: usize,
}

impl<'a> Ranking<'a> {
    /// `has_failed`: the node could not take the partition a while ago.
    pub(super) fn of(
        nodes: &'a [String],
        partition: u32,
        has_failed: impl Fn(&String) -> bool,
    ) -> Self {
        let (mut all, failed): (Vec<_>, Vec<_>) =
            by_rank(nodes, partition).into_iter().partition(|node| !has_failed(node));
        let able = all.len();
        all.extend(failed);
        Self { all, able }
    }

    /// How many nodes are better than this one.
    pub(super) fn rank(&self, me: &str) -> usize {
        self.all.iter().position(|node| *node == me).unwrap_or(self.all.len())
    }

    /// The best node, if it is another than this one.
    pub(super) fn better(&self, me: &str) -> Option<&'a String> {
        self.all.first().copied().filter(|node| *node != me)
    }

    /// The best node other than this one.
    pub(super) fn other(&self, me: &str) -> Option<&'a String> {
        self.all.iter().find(|node| **node != me).copied()
    }

    /// Whether another node would take the partition instead of this one.
    pub(super) fn replaces(&self, me: &str) -> bool {
        self.all[..self.able].iter().any(|node| *node != me)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mechanisms 3: a node is replaced only by one that did not fail to take the partition.
    #[test]
    fn who_cannot_take_a_partition_replaces_nobody() {
        let nodes = ["me", "one", "two"].map(str::to_owned);
        let none = |_: &String| false;
        let order = Ranking::of(&nodes, 0, none);
        assert!(order.replaces("me") && order.other("me").is_some());
        assert!(!Ranking::of(&nodes[..1], 0, none).replaces("me"));
        let failed = Ranking::of(&nodes, 0, |node| node != "me");
        assert!(!failed.replaces("me"), "they could not take it");
        assert_eq!((failed.rank("me"), failed.better("me")), (0, None));
        assert!(failed.other("me").is_some(), "it may be another time");
        assert!(Ranking::of(&nodes, 0, |node| node == "two").replaces("me"));
    }

    /// Every node gets a share, and when a node goes the partitions of the others stay.
    #[test]
    fn partitions_are_spread_and_stay() {
        let nodes: Vec<String> = (0..4).map(|n| format!("node-{n}")).collect();
        let first = |nodes: &[String]| -> Vec<String> {
            (0..64).map(|partition| by_rank(nodes, partition)[0].clone()).collect()
        };
        let all = first(&nodes);
        for node in &nodes {
            let share = all.iter().filter(|owner| *owner == node).count();
            assert!((6..=28).contains(&share), "{node} has {share} of 64");
        }
        let without = first(&nodes[..3]);
        for (before, after) in all.iter().zip(&without) {
            assert!(before == after || *before == nodes[3], "only what it had moves");
        }
    }
}
