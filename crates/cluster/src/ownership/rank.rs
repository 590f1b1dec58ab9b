//! Which node should have which partition: rendezvous hashing.

/// Nodes in the order in which they should have a partition: the highest hash of both first.
pub(super) fn by_rank(nodes: &[String], partition: u32) -> Vec<&String> {
    let weight = |node: &String| {
        let bytes = node.bytes().chain([0]).chain(partition.to_le_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        // FNV leaves neighbours alike in their high bits: mixed once more, every bit counts.
        let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^ (mixed >> 33)
    };
    let mut order: Vec<&String> = nodes.iter().collect();
    order.sort_by_key(|node| (std::cmp::Reverse(weight(node)), *node));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every node gets a share, and a node that goes leaves the others where they are.
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
