//! Answers the requests of operators: who the workers are, that some of them leave, and which
//! leases there are.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tenure_core::id::{AgentId, AttemptId, Millis, SessionId};
use tenure_core::status::Role;
use tenure_core::task::Attempt;
use tenure_core::view::View;
use tenure_core::{Code, Rejection};
use tenure_ports::journal::TaskKey;
use tenure_ports::leases::Lease;
use tenure_ports::observer::LiveSample;
use tenure_scheduler::WaitingStep;
use tenure_wire::bus::operate::{
    Drain, Drained, LeasePage, LeaseRow, ListLeases, LiveFacts, NodeFacts, Nodes, NodesAfter,
    OpenAttempt, PoolFacts, RetainedWork, SilentFacts, WaitFacts, WorkerFacts,
};
use tenure_wire::bus::subject::{ClientName, WorkerName};
use tenure_wire::bus::{Answer, decode};
use tokio::sync::Semaphore;

use super::calls::first_of;
use super::{Gate, SETTLES, say_answer};
use crate::lanes::LaneKey;

/// How many workers an answer has at most.
const WORKERS_MAX: usize = 4_000;

/// How many pools an answer has besides, at most.
const POOLS_MAX: usize = 400;

/// How many leases an answer has at most.
const LEASES_MAX: usize = 2_000;

impl Gate {
    /// Answers what this node knows of workers and of what waits for them, when it is the turn of the caller. Names
    /// only Tasks of the caller's session.
    pub(super) fn nodes(self: &Arc<Self>, name: ClientName, bytes: &[u8], reply: String) {
        // Counted before this read takes its own permit.
        let reads = in_use(self.reads_max, &self.reads);
        let asked = decode::<Nodes>(bytes).map_err(Rejection::from).and_then(|asked| {
            // To count what the node keeps is a read like any other.
            let leave = asked.audit.then(|| self.leave_to_read()).transpose()?;
            Ok((asked, leave))
        });
        let gate = Arc::clone(self);
        self.read_threads.spawn(async move {
            let facts = match asked {
                Ok((asked, _leave)) => gate.facts_in_turn(&name, asked, reads).await,
                Err(refused) => Err(refused),
            };
            say_answer(&gate.intake, &reply, &Answer::from(facts)).await;
        });
    }

    async fn facts_in_turn(
        &self,
        name: &ClientName,
        Nodes { audit, after, .. }: Nodes,
        reads: u64,
    ) -> Result<NodeFacts, Rejection> {
        let who = LaneKey::of(name.role, name.principal.as_str());
        let turn = self.parts.turn(who, SETTLES).await?;
        let read = async {
            NodeFacts {
                kept: audit.then(|| self.kept(reads)),
                ..self.facts(&name.session, audit, after)
            }
        };
        Ok(turn.metered(read).await)
    }

    /// What this node holds for work that is under way.
    fn kept(&self, reads: u64) -> RetainedWork {
        RetainedWork {
            live: self.fence.journal.live_count() as u64,
            leases: self.scheduler.leases().known() as u64,
            reads,
            heartbeats: self.heartbeats.in_use() as u64,
            ..self.scheduler.kept()
        }
    }

    fn facts(&self, session: &SessionId, is_audit: bool, after: Option<NodesAfter>) -> NodeFacts {
        let (sample, mut longest) = self.waits.of(
            session,
            || self.scheduler.sample(),
            || self.scheduler.longest_waits(session),
        );
        let now = self.scheduler.now();
        let pools = sample.pools.into_iter().map(|pool| {
            let longest = longest.remove(&pool.pool);
            let longest = longest.map(|step| wait_facts(step, now));
            PoolFacts { longest, ..pool.into() }
        });
        let waits = sample.waits.into_iter().filter(|(_, count)| *count > 0);
        let (workers, pools, next) = cut(self.links.facts(is_audit), pools.collect(), after);
        NodeFacts {
            node: self.node.as_str().into(),
            partitions: self.partitions,
            owned: self.served_now(),
            features: self.features.clone(),
            lacks: self.fence.keeper.lacking(),
            workers,
            refused: self.refused.facts(),
            silent: silent_facts(self.fence.keeper.silent()),
            more: next.is_some(),
            next,
            pools,
            at: Some(now),
            tasks: Some(sample.tasks),
            counts: Some(sample.counts),
            waits: Some(waits.map(|(why, count)| (why.as_str().into(), count)).collect()),
            live: Some(live_facts(sample.live, self.over_rate())),
            kept: None,
        }
    }

    fn served_now(&self) -> Vec<u32> {
        self.served.lock().iter().copied().collect()
    }

    /// Asks workers to leave.
    pub(super) async fn drain(self: &Arc<Self>, name: &ClientName, bytes: &[u8], reply: &str) {
        let drained = match wanted(name, bytes) {
            Ok(which) => {
                let within_ms = which.within_ms;
                let told = self.links.drain(within_ms, |worker| fits(&which, worker)).await;
                let workers: Vec<AgentId> = told.iter().filter_map(|w| w.agent().ok()).collect();
                if !workers.is_empty() {
                    let by = &name.principal;
                    let workers = workers.iter().map(AgentId::as_str).collect::<Vec<_>>().join(" ");
                    tracing::info!(%by, workers, within_ms, "workers are told to leave");
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

    /// Leases and open Attempts of a session in a partition. The two are read one after the other,
    /// so an Attempt that begins or ends meanwhile may show only one of them.
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
        Ok(page_of(rows, which.after))
    }

    /// The leases that this node knows of, the oldest first. It reads only their Attempts.
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
                those.filter(|attempt| attempt.outcome.is_none()).map(with_id).collect()
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

    /// What `look` finds in a Task; nothing if the Task has gone.
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
        // Ended Tasks have no open Attempts, and may be many: they are not read.
        let known = self.fence.journal.overview_in(partition, session);
        let live = known.map_err(|error| tenure_scheduler::unreadable(&error))?.live;
        let mut found = Vec::new();
        for entry in live.into_iter().filter(|entry| entry.ended.is_none()) {
            let look = |task: &View<'_>| task.open_attempts().map(with_id).collect();
            let open = self.look_at(&entry.key, look).await?;
            found.extend(open.into_iter().map(|(id, open)| (entry.key.clone(), id, open)));
        }
        Ok(found)
    }
}

/// How many of so many permits are taken.
fn in_use(most: usize, permits: &Semaphore) -> u64 {
    most.saturating_sub(permits.available_permits()) as u64
}

/// As many rows as fit, of those behind an Attempt.
fn page_of(rows: BTreeMap<AttemptId, LeaseRow>, after: Option<AttemptId>) -> LeasePage {
    let is_behind = |row: &LeaseRow| after.is_none_or(|after| row.attempt_id > after);
    let rows: Vec<LeaseRow> = rows.into_values().filter(is_behind).collect();
    let count = rows.len();
    let leases = first_of(rows.into_iter(), LEASES_MAX);
    LeasePage { more: leases.len() < count, leases }
}

fn silent_facts(silent: Vec<(String, u64)>) -> Vec<SilentFacts> {
    let facts = |(node, silent_ms): (String, u64)| SilentFacts { node: node.into(), silent_ms };
    silent.into_iter().map(facts).collect()
}

fn live_facts(live: LiveSample, over_rate: u64) -> LiveFacts {
    let LiveSample { tasks, tasks_max, bytes, bytes_max, memory, memory_max, unplaced, .. } = live;
    LiveFacts { tasks, tasks_max, bytes, bytes_max, memory, memory_max, unplaced, over_rate }
}

/// As many workers and pools as fit into an answer, in the order of their names, and where the others begin.
fn cut(
    mut workers: Vec<WorkerFacts>,
    mut pools: Vec<PoolFacts>,
    after: Option<NodesAfter>,
) -> (Vec<WorkerFacts>, Vec<PoolFacts>, Option<NodesAfter>) {
    workers.sort_by_key(WorkerFacts::place);
    pools.sort_by(|one, other| one.pool.cmp(&other.pool));
    if let Some(NodesAfter { worker, pool }) = after {
        workers.retain(|it| worker.as_ref().is_some_and(|after| it.place() > *after));
        pools.retain(|it| pool.as_ref().is_some_and(|after| it.pool > *after));
    }
    let counts = (workers.len(), pools.len());
    let workers = first_of(workers.into_iter(), WORKERS_MAX);
    let pools = first_of(pools.into_iter(), POOLS_MAX);
    let worker = workers.last().filter(|_| workers.len() < counts.0).map(WorkerFacts::place);
    let pool = pools.last().filter(|_| pools.len() < counts.1).map(|it| it.pool.clone());
    let more = worker.is_some() || pool.is_some();
    (workers, pools, more.then_some(NodesAfter { worker, pool }))
}

fn row_of(lease: Lease) -> LeaseRow {
    let (task_id, attempt_id) = (lease.task.task_id, lease.attempt_id);
    LeaseRow { task_id, attempt_id, left_ms: Some(lease.duration_ms), open: None }
}

fn wait_facts(step: WaitingStep, now: Millis) -> WaitFacts {
    let WaitingStep { task_id, step_id, since } = step;
    let ready_ms = u64::try_from(now.saturating_sub(since)).unwrap_or_default();
    WaitFacts { task_id, step_id, ready_ms }
}

fn with_id(attempt: &Attempt) -> (AttemptId, OpenAttempt) {
    (attempt.attempt_id, attempt.into())
}

/// Which workers are to leave, and within which time. Only an orchestrator may say so, and it must
/// name a pool or a principal.
fn wanted(name: &ClientName, bytes: &[u8]) -> Result<Drain, Rejection> {
    if name.role != Role::Orchestrator {
        let message = "an observer looks and never commands";
        return Err(Rejection::new(Code::ToolNotAvailable, message));
    }
    let which: Drain = decode(bytes)?;
    if which.pool.is_none() && which.principal.is_none() {
        return Err(Rejection::invalid("principal", "a pool or a principal is to be named"));
    }
    if which.within_ms.is_some_and(|ms| ms > Drain::WITHIN_MS_MAX) {
        let message = format!("at most 30 days, {} milliseconds", Drain::WITHIN_MS_MAX);
        return Err(Rejection::invalid("within_ms", message));
    }
    Ok(which)
}

fn fits(which: &Drain, worker: &WorkerName) -> bool {
    which.pool.as_ref().is_none_or(|pool| *pool == worker.pool)
        && which.principal.as_ref().is_none_or(|name| name == worker.principal.as_str())
        && which.boot.as_ref().is_none_or(|boot| boot == worker.boot.as_str())
}

#[cfg(test)]
mod tests {
    use tenure_core::sessions::WorkerSessions;
    use tenure_wire::bus::subject::Token;
    use tenure_wire::bus::{MESSAGE_MAX, V, encode};
    use uuid::Uuid;

    use super::*;

    /// docs/protocol.md, `drain`: the time goes from 0 to 30 days.
    #[test]
    fn a_worker_leaves_within_thirty_days_at_most() {
        let session = "s".parse().unwrap();
        let principal = Token::new("bob").unwrap();
        let bob = ClientName { role: Role::Orchestrator, session, principal };
        let refused = |within_ms| {
            let (pool, principal, boot) = (Some("p".parse().unwrap()), None, None);
            let which = Drain { v: V, pool, principal, boot, within_ms };
            wanted(&bob, &encode(&which).unwrap()).err()
        };
        let fine = [None, Some(0), Some(1), Some(Drain::WITHIN_MS_MAX)];
        assert_eq!(fine.map(refused), [None, None, None, None]);
        let refused = refused(Some(Drain::WITHIN_MS_MAX + 1)).unwrap();
        assert_eq!(
            (refused.code, &refused.details["field"]),
            (Code::ValidationError, &"within_ms".into())
        );
    }

    fn attempt(number: u128) -> AttemptId {
        AttemptId(Uuid::from_u128(number))
    }

    /// A lease whose names have the greatest length.
    fn row(number: u128) -> LeaseRow {
        let open = OpenAttempt {
            step_id: format!("s{:0>63}", number).parse().unwrap(),
            ordinal: 1,
            worker_id: format!("{:w>60}.b{number}", "w").parse().unwrap(),
            started_at: 0,
        };
        let task_id = format!("t{:0>63}", number).parse().unwrap();
        LeaseRow { task_id, attempt_id: attempt(number), left_ms: Some(1), open: Some(open) }
    }

    /// Pages are cut by the number and the bytes of their rows. A caller that goes on behind the
    /// last row gets each lease once.
    #[test]
    fn a_page_of_leases_goes_on_where_the_last_one_was_cut() {
        let all: BTreeMap<AttemptId, LeaseRow> =
            (1..=5_000).map(|n| (attempt(n), row(n))).collect();
        let (mut told, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = page_of(all.clone(), after);
            assert!(encode(&page).unwrap().len() < MESSAGE_MAX * 3 / 4);
            (after, pages) = (page.leases.last().map(|row| row.attempt_id), pages + 1);
            told.extend(page.leases);
            if !page.more {
                break;
            }
        }
        assert!(pages >= 5_000_usize.div_ceil(LEASES_MAX), "{pages}");
        assert!(told.iter().eq(all.values()));
        assert_eq!(page_of(all, after), LeasePage { leases: Vec::new(), more: false });
    }

    /// An answer about workers and pools is short enough to be sent, and says where the next page begins; all pages
    /// together have each worker and each pool once.
    #[test]
    fn workers_and_pools_come_page_by_page() {
        let worker = |n: usize| WorkerFacts {
            pool: format!("p{n:0>62}").parse().unwrap(),
            principal: format!("w{n:0>62}").into(),
            boot: format!("b{n:0>62}").into(),
            free: 1,
            unheard: 0,
            silent_ms: 0,
            draining: false,
            sessions: WorkerSessions::ALL,
            commands: false,
            suspended: None,
            holds: Some(0),
            sent: None,
            seen: None,
        };
        let pool = |n: usize| PoolFacts {
            pool: format!("p{n:0>62}").parse().unwrap(),
            workers: 1,
            free: 1,
            waiting: 1,
            oldest_ms: Some(1),
            running: Some(0),
            ended: Some(0),
            longest: Some(WaitFacts {
                task_id: format!("t{n:0>62}").parse().unwrap(),
                step_id: format!("s{n:0>62}").parse().unwrap(),
                ready_ms: 1,
            }),
            sessions: None,
        };
        let of = |workers, pools, after| {
            let (workers, pools, next) = cut(
                (0..workers).rev().map(worker).collect(),
                (0..pools).map(pool).collect(),
                after,
            );
            let bytes = encode(&workers).unwrap().len() + encode(&pools).unwrap().len();
            assert!(bytes < MESSAGE_MAX * 3 / 4, "{bytes}");
            (workers, pools, next)
        };
        let count = |workers, pools| {
            let (workers, pools, next) = of(workers, pools, None);
            (workers.len(), pools.len(), next.is_some())
        };
        assert_eq!(count(100, POOLS_MAX), (100, POOLS_MAX, false));
        assert_eq!(count(100, POOLS_MAX + 1), (100, POOLS_MAX, true));
        let (workers, pools, more) = count(WORKERS_MAX, 1);
        assert!(workers < WORKERS_MAX && pools == 1 && more, "{workers}: by bytes");
        let (mut workers, mut pools, mut after) = (Vec::new(), Vec::new(), None);
        loop {
            let (some_workers, some_pools, next) = of(9_000, 1_000, after);
            workers.extend(some_workers.iter().map(WorkerFacts::place));
            pools.extend(some_pools.into_iter().map(|it| it.pool));
            let Some(next) = next else { break };
            after = Some(next);
        }
        assert_eq!((workers.len(), pools.len()), (9_000, 1_000));
        assert!(workers.is_sorted() && pools.is_sorted());
    }
}
