//! What operators ask: who the workers are, that some of them leave, and which leases there are.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tenure_core::id::{AgentId, AttemptId, Millis, PoolId, SessionId};
use tenure_core::status::Role;
use tenure_core::task::Attempt;
use tenure_core::view::View;
use tenure_core::{Code, Rejection};
use tenure_ports::Journal as _;
use tenure_ports::journal::TaskKey;
use tenure_ports::leases::Lease;
use tenure_ports::observer::PoolSample;
use tenure_scheduler::WaitingStep;
use tenure_wire::bus::operate::{
    Drain, Drained, Kept, LeasePage, LeaseRow, ListLeases, NodeFacts, Nodes, OpenAttempt,
    PoolFacts, WaitFacts,
};
use tenure_wire::bus::subject::{ClientName, WorkerName};
use tenure_wire::bus::{Answer, decode};
use tokio::sync::Semaphore;

use super::calls::first_of;
use super::{Gate, say_answer};
use crate::node::HEARTBEATS_MAX;

/// Workers in an answer.
const WORKERS_MAX: usize = 4_000;

/// Pools in an answer, beside them.
const POOLS_MAX: usize = 400;

/// Leases in an answer.
const LEASES_MAX: usize = 2_000;

impl Gate {
    /// Says what this node knows of workers, and what waits for them: by name only what is of the
    /// session of whoever asks.
    pub(super) async fn nodes(&self, name: &ClientName, bytes: &[u8], reply: &str) {
        let facts = match decode::<Nodes>(bytes) {
            Ok(Nodes { audit: false, .. }) => Ok(self.facts(&name.session, false)),
            Ok(Nodes { audit: true, .. }) => {
                let kept = self.kept().await;
                kept.map(|kept| NodeFacts { kept: Some(kept), ..self.facts(&name.session, true) })
            }
            Err(bad) => Err(bad.into()),
        };
        say_answer(&self.intake, reply, &Answer::from(facts)).await;
    }

    /// What this node keeps for work that is under way.
    async fn kept(&self) -> Result<Kept, Rejection> {
        let live = self.fence.journal.live().await;
        let live = live.map_err(|error| tenure_scheduler::unreadable(&error))?;
        let in_use = |most: usize, permits: &Semaphore| (most - permits.available_permits()) as u64;
        Ok(Kept {
            live: live.len() as u64,
            leases: self.scheduler.leases().known() as u64,
            reads: in_use(self.reads_max, &self.reads),
            heartbeats: in_use(HEARTBEATS_MAX, &self.heartbeats),
            ..self.scheduler.kept()
        })
    }

    fn facts(&self, session: &SessionId, is_audit: bool) -> NodeFacts {
        let all = self.links.facts(is_audit);
        let count = all.len();
        let workers = first_of(all.into_iter(), WORKERS_MAX);
        let (sample, now) = (self.scheduler.sample(), self.scheduler.now());
        let mut longest: BTreeMap<PoolId, WaitingStep> =
            self.scheduler.longest_waits(session).into_iter().collect();
        let pools = sample.pools.into_iter().map(|pool| {
            let longest = longest.remove(&pool.pool);
            pool_facts(pool, longest.map(|step| wait_facts(step, now)))
        });
        let waits = sample.waits.into_iter().filter(|(_, count)| *count > 0);
        let pools: Vec<PoolFacts> = pools.collect();
        let (pools_count, pools) = (pools.len(), first_of(pools.into_iter(), POOLS_MAX));
        let more = workers.len() < count || pools.len() < pools_count;
        NodeFacts {
            node: self.node.as_str().into(),
            partitions: self.partitions,
            owned: self.served_now(),
            workers,
            more,
            pools,
            at: Some(now),
            tasks: Some(sample.tasks),
            counts: Some(sample.counts),
            waits: Some(waits.map(|(why, count)| (why.as_str().into(), count)).collect()),
            kept: None,
        }
    }

    fn served_now(&self) -> Vec<u32> {
        self.served.lock().iter().copied().collect()
    }

    /// Tells workers to leave.
    pub(super) async fn drain(self: &Arc<Self>, name: &ClientName, bytes: &[u8], reply: &str) {
        let drained = match wanted(name, bytes) {
            Ok(which) => {
                let told = self.links.drain(|worker| fits(&which, worker)).await;
                let workers: Vec<AgentId> = told.iter().filter_map(|w| w.agent().ok()).collect();
                if !workers.is_empty() {
                    tracing::info!(by = %name.principal, ?workers, "workers are told to leave");
                }
                Ok(Drained {
                    node: self.node.as_str().into(),
                    partitions: self.partitions,
                    owned: self.served_now(),
                    workers,
                })
            }
            Err(refused) => Err(refused),
        };
        say_answer(&self.intake, reply, &Answer::from(drained)).await;
    }

    /// Leases and open Attempts of a session in a partition. The two are read one after the other:
    /// an Attempt that begins or ends meanwhile may show one without the other.
    pub(super) async fn leases(
        &self,
        session: &SessionId,
        partition: u32,
        which: ListLeases,
    ) -> Result<LeasePage, Rejection> {
        if let Some(most) = which.oldest {
            let most = most.min(LEASES_MAX);
            return self.oldest_leases(session, partition, which.after, most).await;
        }
        let kept = self.scheduler.leases().of_partition(partition).await;
        let kept = kept.map_err(|error| Rejection::new(Code::Unavailable, error.to_string()))?;
        let kept = kept.into_iter().filter(|lease| lease.task.session_id == *session);
        let rows = kept.map(|lease| (lease.attempt_id, row_of(lease)));
        let mut rows: BTreeMap<AttemptId, LeaseRow> = rows.collect();
        for (key, attempt_id, open) in self.open_attempts(session, partition).await? {
            let (task_id, left_ms) = (key.task_id, None);
            let row = || LeaseRow { task_id, attempt_id, left_ms, open: None };
            rows.entry(attempt_id).or_insert_with(row).open = Some(open);
        }
        let is_behind = |row: &LeaseRow| which.after.is_none_or(|after| row.attempt_id > after);
        let rows: Vec<LeaseRow> = rows.into_values().filter(is_behind).collect();
        let count = rows.len();
        let leases = first_of(rows.into_iter(), LEASES_MAX);
        Ok(LeasePage { more: leases.len() < count, leases })
    }

    /// The leases that this node knows of. No Attempt is looked at but theirs.
    async fn oldest_leases(
        &self,
        session: &SessionId,
        partition: u32,
        after: Option<AttemptId>,
        most: usize,
    ) -> Result<LeasePage, Rejection> {
        let mut kept = self.scheduler.leases().oldest(partition, session, after, most + 1);
        let more = kept.len() > most;
        kept.truncate(most);
        let mut of_tasks: BTreeMap<TaskKey, Vec<AttemptId>> = BTreeMap::new();
        for lease in &kept {
            of_tasks.entry(lease.task.clone()).or_default().push(lease.attempt_id);
        }
        let mut open = HashMap::new();
        for (key, attempts) in of_tasks {
            let look = move |task: &View<'_>| {
                let those = attempts.iter().filter_map(|id| task.attempt(*id));
                those.filter(|attempt| attempt.outcome.is_none()).map(open_attempt).collect()
            };
            open.extend(self.look_at(&key, look).await?);
        }
        let row = |lease| {
            let row = row_of(lease);
            LeaseRow { open: open.remove(&row.attempt_id), ..row }
        };
        let (count, leases) = (kept.len(), first_of(kept.into_iter().map(row), most));
        Ok(LeasePage { more: more || leases.len() < count, leases })
    }

    /// Some Attempts of a Task, which may have gone.
    async fn look_at(
        &self,
        key: &TaskKey,
        look: impl FnOnce(&View<'_>) -> Vec<(AttemptId, OpenAttempt)> + Send + 'static,
    ) -> Result<Vec<(AttemptId, OpenAttempt)>, Rejection> {
        match self.scheduler.read(key, look).await {
            Err(refused) if refused.code == Code::TaskNotFound => Ok(Vec::new()),
            read => read,
        }
    }

    async fn open_attempts(
        &self,
        session: &SessionId,
        partition: u32,
    ) -> Result<Vec<(TaskKey, AttemptId, OpenAttempt)>, Rejection> {
        // Those that have ended have none, and may be many: they are not looked up.
        let known = self.fence.journal.overview_in(partition, session);
        let live = known.map_err(|error| tenure_scheduler::unreadable(&error))?.live;
        let mut found = Vec::new();
        for entry in live.into_iter().filter(|entry| entry.ended.is_none()) {
            let look = |task: &View<'_>| task.open_attempts().map(open_attempt).collect();
            let open = self.look_at(&entry.key, look).await?;
            found.extend(open.into_iter().map(|(id, open)| (entry.key.clone(), id, open)));
        }
        Ok(found)
    }
}

fn row_of(lease: Lease) -> LeaseRow {
    let (task_id, attempt_id) = (lease.task.task_id, lease.attempt_id);
    LeaseRow { task_id, attempt_id, left_ms: Some(lease.duration_ms), open: None }
}

fn pool_facts(pool: PoolSample, longest: Option<WaitFacts>) -> PoolFacts {
    let oldest = u64::try_from(pool.oldest.as_millis()).unwrap_or(u64::MAX);
    PoolFacts {
        pool: pool.pool,
        workers: pool.workers,
        free: pool.free,
        waiting: pool.waiting,
        oldest_ms: Some(oldest).filter(|ms| *ms > 0),
        running: Some(pool.running),
        ended: Some(pool.ended),
        longest,
    }
}

fn wait_facts(step: WaitingStep, now: Millis) -> WaitFacts {
    let WaitingStep { task_id, step_id, since } = step;
    let ready_ms = u64::try_from(now.saturating_sub(since)).unwrap_or_default();
    WaitFacts { task_id, step_id, ready_ms }
}

fn open_attempt(attempt: &Attempt) -> (AttemptId, OpenAttempt) {
    let open = OpenAttempt {
        step_id: attempt.step_id.clone(),
        ordinal: attempt.ordinal,
        worker_id: attempt.worker_id.clone(),
        started_at: attempt.started_at,
    };
    (attempt.attempt_id, open)
}

/// Which workers are to leave; only an orchestrator may say so, and not of all.
fn wanted(name: &ClientName, bytes: &[u8]) -> Result<Drain, Rejection> {
    if name.role != Role::Orchestrator {
        let message = "an observer looks and never commands";
        return Err(Rejection::new(Code::ToolNotAvailable, message));
    }
    let which: Drain = decode(bytes)?;
    if which.pool.is_none() && which.principal.is_none() {
        return Err(Rejection::invalid("principal", "a pool or a principal is to be named"));
    }
    Ok(which)
}

fn fits(which: &Drain, worker: &WorkerName) -> bool {
    which.pool.as_ref().is_none_or(|pool| *pool == worker.pool)
        && which.principal.as_ref().is_none_or(|name| name == worker.principal.as_str())
        && which.boot.as_ref().is_none_or(|boot| boot == worker.boot.as_str())
}
