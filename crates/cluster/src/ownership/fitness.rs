//! Whether a node should have partitions: Redis answers it in time, the log answers it, its clock
//! is right, it can read what logs may hold, and it does not lose again and again what it takes.

use std::time::Duration;

use tokio::time::Instant;

/// How long a node rests that has lost partitions twice, and the longest rest: each loss doubles
/// it.
const REST: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));

/// After how long behind its rest the losses of a node no longer count.
const FORGOTTEN: Duration = Duration::from_secs(300);

/// What this node knows of its own fitness.
#[derive(Debug, Default)]
pub(super) struct NodeFitness {
    /// Redis answered its last poll in time. What it sent before that does not show it alive: Redis
    /// may receive from a node to which its answers do not come.
    pub(super) hears: bool,
    /// Its clock differed from Redis' at the last answer.
    pub(super) is_off: bool,
    /// The log has not answered it for some leases' time.
    pub(super) is_cut_off: bool,
    /// Logs of the cluster may hold what this node cannot read (EVOLVE-02).
    pub(super) lacks_features: bool,
    losses: Losses,
}

impl NodeFitness {
    /// Whether the node may be given partitions, or take them before others.
    pub(super) fn is_candidate(&self) -> bool {
        self.can_take() && !self.rests()
    }

    /// Whether the node may take what nobody else would.
    pub(super) fn can_take(&self) -> bool {
        self.hears && !self.is_off && !self.is_cut_off && !self.lacks_features
    }

    /// Whether the node takes nothing for a while, and keeps what it has.
    pub(super) fn rests(&self) -> bool {
        self.losses.rests()
    }

    /// Notes that the node has lost partitions that it did not give away. Answers how long it
    /// rests.
    pub(super) fn note_loss(&mut self) -> Duration {
        self.losses.note()
    }
}

/// Losses of partitions in a short time: each of them costs their Tasks a moment.
#[derive(Debug, Default)]
struct Losses {
    often: u32,
    /// The end of its rest.
    until: Option<Instant>,
}

impl Losses {
    fn note(&mut self) -> Duration {
        let now = Instant::now();
        if self.until.is_some_and(|until| now >= until + FORGOTTEN) {
            self.often = 0;
        }
        let doublings = self.often.saturating_sub(1).min(10);
        // One loss may happen to any node: the machine was busy, the process was stopped.
        let rest = match self.often {
            0 => Duration::ZERO,
            _ => REST.0.saturating_mul(1 << doublings).min(REST.1),
        };
        self.often += 1;
        self.until = Some(now + rest);
        rest
    }

    fn rests(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitness() -> NodeFitness {
        NodeFitness { hears: true, ..NodeFitness::default() }
    }

    /// Mechanisms 3, EVOLVE-02: a node that gets no answers from Redis or from the log, has a wrong clock, or
    /// cannot read what logs may hold is no candidate.
    #[test]
    fn each_fault_is_enough() {
        assert!(fitness().is_candidate() && fitness().can_take());
        for faulty in [
            NodeFitness { hears: false, ..fitness() },
            NodeFitness { is_off: true, ..fitness() },
            NodeFitness { is_cut_off: true, ..fitness() },
            NodeFitness { lacks_features: true, ..fitness() },
        ] {
            assert!(!faulty.is_candidate() && !faulty.can_take(), "{faulty:?}");
        }
    }

    /// Mechanisms 3: a node that loses its partitions again and again takes none for a while, each
    /// time for longer, unless there is no other node.
    #[tokio::test(start_paused = true)]
    async fn a_node_that_loses_often_rests() {
        let mut fitness = fitness();
        let rests: Vec<u64> = (0..8).map(|_| fitness.note_loss().as_secs()).collect();
        assert_eq!(rests, [0, 10, 20, 40, 80, 160, 300, 300]);
        tokio::time::advance(Duration::from_secs(299)).await;
        assert!(!fitness.is_candidate() && fitness.can_take());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(fitness.is_candidate());
        assert_eq!(fitness.note_loss().as_secs(), 300, "it is soon again");
        tokio::time::advance(Duration::from_secs(600)).await;
        assert_eq!(fitness.note_loss(), Duration::ZERO, "what is long past is forgotten");
        assert!(fitness.is_candidate());
    }
}
