//! Searches in a graph without recursion, because chains may be as long as a Task is large.

use alloc::borrow::Cow;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use crate::table::{Pos, next_pos};

/// A cycle as the nodes along it, each depending on the next and the last on the first; `None` if
/// there is none.
///
/// `depends_on` lists the nodes that each node waits for. Cost: nodes plus edges.
pub fn find_cycle(depends_on: &[Vec<Pos>]) -> Option<Vec<Pos>> {
    #[derive(Clone, Copy, PartialEq)]
    enum VisitState {
        New,
        OnPath,
        Done,
    }
    let mut marks = vec![VisitState::New; depends_on.len()];
    for start in 0..depends_on.len() {
        if marks[start] != VisitState::New {
            continue;
        }
        let mut path = vec![(start, 0)];
        marks[start] = VisitState::OnPath;
        while let Some((node, tried)) = path.last_mut() {
            let Some(&next) = depends_on[*node].get(*tried) else {
                marks[*node] = VisitState::Done;
                path.pop();
                continue;
            };
            *tried += 1;
            let next = next as usize;
            match marks[next] {
                VisitState::Done => {}
                VisitState::New => {
                    marks[next] = VisitState::OnPath;
                    path.push((next, 0));
                }
                VisitState::OnPath => {
                    let from = path.iter().position(|&(n, _)| n == next).unwrap_or(0);
                    return Some(path[from..].iter().map(|&(n, _)| next_pos(n)).collect());
                }
            }
        }
    }
    None
}

/// What a search upwards has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Above {
    /// All that was wanted.
    All,
    /// Not the wanted node at this place in the list: it is not above.
    Not(usize),
    /// Not all of it as far as the search may go.
    TooFar,
}

/// Looks for the `wanted` nodes among `parents`, the nodes that these depend on, and so on, the nearest
/// first; it ends as soon as it has met all. `left` counts down the nodes and edges that it may follow.
pub fn look_above<'a>(
    parents: &[Pos],
    wanted: &[Pos],
    left: &mut usize,
    depends_on: impl Fn(Pos) -> Cow<'a, [Pos]>,
) -> Above {
    let mut missing: BTreeSet<Pos> = wanted.iter().copied().collect();
    let (mut seen, mut next) = (BTreeSet::new(), VecDeque::from_iter(parents.iter().copied()));
    while !missing.is_empty() {
        let Some(node) = next.pop_front() else { break };
        if !seen.insert(node) {
            continue;
        }
        missing.remove(&node);
        let above = depends_on(node);
        let Some(rest) = left.checked_sub(1 + above.len()) else { return Above::TooFar };
        *left = rest;
        next.extend(above.iter());
    }
    wanted.iter().position(|node| missing.contains(node)).map_or(Above::All, Above::Not)
}
