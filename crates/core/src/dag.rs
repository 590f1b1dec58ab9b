//! Finds cycles in a graph without recursion, because chains may be as long as a Task is large.

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
