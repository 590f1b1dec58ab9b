//! Puts the Steps of a graph into layers, by the length of the longest path to each.

use std::collections::HashMap;

use tenure_core::id::StepId;
use tenure_core::view::Graph;

/// A graph in layers: a Step stands below everything that it depends on. Steps are numbered by
/// their place in the graph.
pub(super) struct Layers {
    /// First layer first, Steps in creation order.
    pub(super) rows: Vec<Vec<usize>>,
    /// The dependencies of each Step.
    pub(super) dependencies: Vec<Vec<usize>>,
}

impl Layers {
    pub(super) fn of(graph: &Graph) -> Self {
        let places: HashMap<&StepId, usize> =
            graph.nodes.iter().enumerate().map(|(at, node)| (&node.step_id, at)).collect();
        let mut dependencies = vec![Vec::new(); graph.nodes.len()];
        let mut dependents = vec![Vec::new(); graph.nodes.len()];
        for edge in &graph.edges {
            if let (Some(&from), Some(&to)) = (places.get(&edge.from), places.get(&edge.to)) {
                dependencies[to].push(from);
                dependents[from].push(to);
            }
        }
        let rows = rows(&dependencies, &dependents);
        Self { rows, dependencies }
    }
}

/// Layer by layer: the next one holds the Steps whose last dependency is in this one.
fn rows(dependencies: &[Vec<usize>], dependents: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut unmet: Vec<usize> = dependencies.iter().map(Vec::len).collect();
    let mut layer: Vec<usize> = (0..unmet.len()).filter(|&at| unmet[at] == 0).collect();
    let mut rows = Vec::new();
    while !layer.is_empty() {
        let mut next = Vec::new();
        for &at in &layer {
            for &dependent in &dependents[at] {
                unmet[dependent] -= 1;
                if unmet[dependent] == 0 {
                    next.push(dependent);
                }
            }
        }
        next.sort_unstable();
        rows.push(std::mem::replace(&mut layer, next));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of a graph, given by the dependencies of each Step.
    fn of(dependencies: &[&[usize]]) -> Vec<Vec<usize>> {
        let dependencies: Vec<Vec<usize>> = dependencies.iter().map(|d| d.to_vec()).collect();
        let mut dependents = vec![Vec::new(); dependencies.len()];
        for (at, waits_for) in dependencies.iter().enumerate() {
            for &dependency in waits_for {
                dependents[dependency].push(at);
            }
        }
        rows(&dependencies, &dependents)
    }

    #[test]
    fn a_step_stands_below_everything_it_waits_for() {
        let diamond: [&[usize]; 5] = [&[], &[0], &[0], &[1, 2], &[0, 3]];
        assert_eq!(of(&diamond), [vec![0], vec![1, 2], vec![3], vec![4]]);
        assert!(of(&[]).is_empty());
    }

    #[test]
    fn a_chain_of_100_000_steps_is_no_deeper_than_the_stack() {
        let ids: Vec<usize> = (0..100_000).collect();
        let chain: Vec<&[usize]> =
            (0..100_000).map(|at| if at == 0 { &ids[..0] } else { &ids[at - 1..at] }).collect();
        assert_eq!(of(&chain).len(), 100_000);
    }
}
