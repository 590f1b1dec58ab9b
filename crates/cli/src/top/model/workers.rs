//! The workers of a cluster, including those that have just gone.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tenure_core::id::AgentId;
use tenure_sdk::nats::client::Gather;
use tenure_wire::bus::operate::NodeFacts;

use super::rates::ms;
use crate::top::snapshot::{WorkerRow, WorkerState};
use crate::worker::{self, WorkerSums};

/// A worker counts as silent after this, as it sends something every 2 s.
const SILENT: Duration = Duration::from_secs(3);

/// How long to show a worker that has gone although nobody sent it away.
const GONE_KEPT: Duration = Duration::from_secs(15);

/// The workers in the last answers.
#[derive(Debug, Default)]
pub(super) struct LastWorkers {
    all: BTreeMap<AgentId, SeenWorker>,
    /// When nodes last answered.
    last: Option<Instant>,
}

#[derive(Debug)]
struct SeenWorker {
    worker: WorkerSums,
    at: Instant,
}

impl LastWorkers {
    pub(super) fn note(&mut self, heard: &Gather<NodeFacts>, now: Instant) {
        for worker in worker::merged(heard) {
            let Ok(name) = AgentId::new(format!("{}.{}", worker.principal, worker.boot)) else {
                continue;
            };
            self.all.insert(name, SeenWorker { worker, at: now });
        }
        self.all.retain(|_, seen| {
            seen.at == now || (!seen.worker.draining && now - seen.at < GONE_KEPT)
        });
        self.last = Some(now);
    }

    /// The rows of workers, the worst first.
    pub(super) fn rows(&self, now: Instant) -> Vec<WorkerRow> {
        let mut rows: Vec<WorkerRow> =
            self.all.iter().map(|(name, seen)| self.row(name, seen, now)).collect();
        rows.sort_by_key(|row| {
            let is_well = row.state >= WorkerState::Suspended;
            (row.state, Reverse(if is_well { 0 } else { row.silent_ms }))
        });
        rows
    }

    fn row(&self, name: &AgentId, seen: &SeenWorker, now: Instant) -> WorkerRow {
        let SeenWorker { worker, at } = seen;
        let is_gone = Some(*at) != self.last;
        let state = if is_gone {
            WorkerState::Gone
        } else if worker.silent_ms >= ms(SILENT) {
            WorkerState::Silent
        } else if worker.suspended.is_some() {
            WorkerState::Suspended
        } else if worker.draining {
            WorkerState::Leaving
        } else {
            WorkerState::Here
        };
        WorkerRow {
            worker: name.clone(),
            pool: worker.pool.clone(),
            state,
            free: worker.free,
            running: worker.running,
            unheard: worker.unheard,
            silent_ms: worker.silent_ms + if is_gone { ms(now - *at) } else { 0 },
        }
    }
}
