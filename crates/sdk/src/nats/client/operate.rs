//! The requests of operators: those to every node at once, the leases of each partition, the import of a log, and
//! what commands wrote.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use serde::de::DeserializeOwned;
use tenure_core::id::{AttemptId, TaskId};
use tenure_core::{Code, Rejection};
use tenure_ports::journal::TaskKey;
use tenure_wire::bus::operate::{
    Drain, Drained, ImportLog, Imported, LeasePage, LeaseRow, ListLeases, NodeFacts, Nodes,
    NodesAfter, WorkerFacts,
};
use tenure_wire::bus::output::{OutputPage, ReadOutput};
use tenure_wire::bus::request::{RawBytes, Request};
use tenure_wire::bus::{V, encode};
use tokio::time::timeout;

use super::{LISTED_AT_ONCE, NatsClient};
use crate::patience::unavailable;

/// How long to wait for answers as long as the owners of some partitions have not answered.
const ANSWERS: Duration = Duration::from_secs(2);

/// How long to wait for nodes that may own no partition, once the owners of all partitions have
/// answered.
const STRAGGLERS: Duration = Duration::from_millis(250);

/// A part of a log in one message.
const PART: usize = 512 << 10;

/// How often an import begins again because the owner has changed.
const BEGUN_MAX: u32 = 5;

/// The answers of all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gather<T> {
    /// One answer for each node.
    pub answers: Vec<T>,
    /// Partitions whose owner has not answered.
    pub missing_partitions: Vec<u32>,
}

/// The answer of one node.
trait OfNode: DeserializeOwned {
    fn partitions(&self) -> u32;
    fn owned(&self) -> &[u32];
}

impl OfNode for NodeFacts {
    fn partitions(&self) -> u32 {
        self.partitions
    }

    fn owned(&self) -> &[u32] {
        &self.owned
    }
}

impl OfNode for Drained {
    fn partitions(&self) -> u32 {
        self.partitions
    }

    fn owned(&self) -> &[u32] {
        &self.owned
    }
}

impl NatsClient {
    /// The facts of every node about itself, its workers and its pools.
    ///
    /// # Errors
    /// `unavailable` if no node answers.
    pub async fn nodes(&self) -> Result<Gather<NodeFacts>, Rejection> {
        self.all_pages(false).await
    }

    /// The same, and what each node holds in memory for work under way.
    ///
    /// # Errors
    /// As [`nodes`](Self::nodes).
    pub async fn audit(&self) -> Result<Gather<NodeFacts>, Rejection> {
        self.all_pages(true).await
    }

    /// Asks every node for one page of workers and pools after another.
    async fn all_pages(&self, audit: bool) -> Result<Gather<NodeFacts>, Rejection> {
        let page = async |after| {
            self.ask_nodes("nodes", encode(&Nodes { v: V, audit, after })?.into()).await
        };
        let mut all: Gather<NodeFacts> = page(None).await?;
        for _ in 0..PAGES_MAX {
            let Some(after) = first_next(&all.answers) else { break };
            join_pages(&mut all.answers, page(Some(after)).await?.answers);
        }
        Ok(all)
    }

    /// How long to ask again when there is no answer.
    pub fn patience(&self) -> Duration {
        self.0.connection.patience()
    }

    /// Asks workers to take no more Steps, to finish those that they have, and to leave.
    ///
    /// # Errors
    /// `unavailable` if no node answers; `tool_not_available` for an observer; `unauthenticated` if
    /// the server refuses the subject to this login.
    pub async fn drain(&self, which: &Drain) -> Result<Gather<Drained>, Rejection> {
        self.ask_nodes("drain", encode(which)?.into()).await
    }

    /// Asks every node, and waits until the owners of all partitions have answered.
    async fn ask_nodes<T: OfNode>(&self, verb: &str, body: Bytes) -> Result<Gather<T>, Rejection> {
        let subject = format!("{}.{verb}", self.0.root);
        let mut asked = self.0.connection.ask_all(subject.clone(), body, ANSWERS).await?;
        let mut answers: Vec<T> = Vec::new();
        let mut missing: BTreeSet<u32> = (0..self.0.partitions).collect();
        loop {
            let wait = if missing.is_empty() { STRAGGLERS } else { ANSWERS };
            let Ok(Some(answer)) = timeout(wait, asked.next::<T>()).await else { break };
            let answer = answer?;
            missing.extend(self.0.partitions..answer.partitions());
            answer.owned().iter().for_each(|owned| {
                missing.remove(owned);
            });
            answers.push(answer);
        }
        if answers.is_empty() {
            let denied = self.0.connection.denial_of(&subject);
            return Err(denied.unwrap_or_else(|| unavailable("no node answers")));
        }
        Ok(Gather { answers, missing_partitions: missing.into_iter().collect() })
    }

    /// Leases and open Attempts of the session, in the order of the Attempts.
    ///
    /// # Errors
    /// `unavailable` if the owner of a partition does not answer for as long as patience lasts.
    pub async fn leases(&self) -> Result<Vec<LeaseRow>, Rejection> {
        let mut all = Vec::new();
        for partition in 0..self.0.partitions {
            let mut after: Option<AttemptId> = None;
            loop {
                let which = ListLeases { after, ..ListLeases::default() };
                let request = Request::new(None, None, which);
                let (verb, body) = (format!("cmd.{partition}"), request.write()?.into());
                let page: LeasePage = self.0.ask(verb, body, self.0.connection.patience()).await?;
                after = page.leases.last().map(|row| row.attempt_id);
                all.extend(page.leases);
                if !page.more || after.is_none() {
                    break;
                }
            }
        }
        all.sort_by_key(|row| row.attempt_id);
        Ok(all)
    }

    /// A page of what the command of an Attempt wrote, as its worker reads it now (ART-09).
    ///
    /// # Errors
    /// `worker_gone` if that worker is not connected; `unavailable` with `details.feature` if it cannot be asked.
    pub async fn read_output(
        &self,
        task: &TaskId,
        asked: ReadOutput,
    ) -> Result<OutputPage, Rejection> {
        self.0.ask_on(task, asked).await
    }

    /// The Attempts with leases that were claimed first, as far as the owners know, at most so many
    /// of each partition.
    ///
    /// # Errors
    /// A final refusal: another try would get it too.
    pub async fn oldest_leases(&self, most: usize) -> Result<Gather<LeaseRow>, Rejection> {
        let asked = stream::iter(0..self.0.partitions);
        let asked =
            asked.map(async |partition| (partition, self.oldest_leases_of(partition, most).await));
        let mut asked = std::pin::pin!(asked.buffer_unordered(LISTED_AT_ONCE));
        let (mut answers, mut missing_partitions) = (Vec::new(), Vec::new());
        while let Some((partition, answer)) = asked.next().await {
            match answer {
                Ok(leases) => answers.extend(leases),
                Err(refused) if refused.code.is_retryable() => missing_partitions.push(partition),
                Err(refused) => return Err(refused),
            }
        }
        answers.sort_by_key(|row| row.attempt_id);
        missing_partitions.sort_unstable();
        Ok(Gather { answers, missing_partitions })
    }

    /// The oldest leases of one partition, read page by page.
    async fn oldest_leases_of(
        &self,
        partition: u32,
        most: usize,
    ) -> Result<Vec<LeaseRow>, Rejection> {
        let mut all: Vec<LeaseRow> = Vec::new();
        loop {
            let after = all.last().map(|row| row.attempt_id);
            let which = ListLeases { after, oldest: Some(most - all.len()) };
            let body = Request::new(None, None, which).write()?.into();
            let page: LeasePage = self.0.ask(format!("cmd.{partition}"), body, ANSWERS).await?;
            let count = all.len();
            // An older node has no pages, and begins again.
            let is_behind = |row: &LeaseRow| after.is_none_or(|after| row.attempt_id > after);
            all.extend(page.leases.into_iter().filter(is_behind).take(most - count));
            if !page.more || all.len() == count || all.len() >= most {
                return Ok(all);
            }
        }
    }

    /// Imports the whole log of a Task into the cluster, and returns the Task's version. The owner
    /// answers the last part once it has read and written the whole log: the client waits two
    /// seconds for each mebibyte.
    ///
    /// # Errors
    /// `task_id_conflict` if the Task exists: perhaps this very call made it, and its answer was
    /// lost. `validation_error` if the lines are not the history of this Task, or too many.
    pub async fn import(&self, task: &TaskId, lines: &[u8]) -> Result<u64, Rejection> {
        let key = TaskKey { session_id: self.0.session.clone(), task_id: task.clone() };
        let verb = format!("import.{}", key.partition(self.0.partitions));
        let (len, mut from, mut begun) = (lines.len() as u64, 0_usize, 0);
        loop {
            let part = &lines[from..lines.len().min(from + PART)];
            let is_last = from + part.len() == lines.len();
            let (task_id, lines) = (task.clone(), RawBytes(part.to_vec()));
            let part = ImportLog { v: V, task_id, len, from: from as u64, lines };
            let body = Bytes::from(encode(&part)?);
            let writes = Duration::from_secs(if is_last { (len >> 20) * 2 } else { 0 });
            let within = self.0.connection.request_timeout() + writes;
            let patience = self.0.connection.patience() + writes;
            let imported: Imported =
                self.0.ask_within(within, verb.clone(), body, patience).await?;
            if let Some(version) = imported.version {
                return Ok(version);
            }
            let received = usize::try_from(imported.received).unwrap_or(usize::MAX);
            begun += u32::from(received <= from);
            if begun > BEGUN_MAX || received > part_end(len) {
                return Err(Rejection::new(
                    Code::Unavailable,
                    "the owner of the task keeps changing",
                ));
            }
            from = received;
        }
    }
}

fn part_end(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

/// How many pages of workers and pools are asked for at most: some 25,000 pools, and 150,000 workers.
const PAGES_MAX: usize = 64;

/// Where the next page begins, if some node has one. Each node has named workers and pools up to some name; the page
/// begins behind the first of these names.
fn first_next(answers: &[NodeFacts]) -> Option<NodesAfter> {
    let next = || answers.iter().filter_map(|node| node.next.clone());
    let worker = next().filter_map(|next| next.worker).min();
    let pool = next().filter_map(|next| next.pool).min();
    (worker.is_some() || pool.is_some()).then_some(NodesAfter { worker, pool })
}

/// Adds a page to the answers of the same nodes. A node that was ahead of others names some again, and one that does
/// not answer any more has no further page.
fn join_pages(answers: &mut [NodeFacts], page: Vec<NodeFacts>) {
    for known in answers.iter_mut().filter(|known| known.next.is_some()) {
        let Some(more) = page.iter().find(|more| more.node == known.node) else {
            known.next = None; // `more` still says that some are missing.
            continue;
        };
        let last = known.workers.last().map(WorkerFacts::place);
        let new = more.workers.iter().filter(|it| Some(it.place()) > last).cloned();
        known.workers.extend(new);
        let last = known.pools.last().map(|it| it.pool.clone());
        let new = more.pools.iter().filter(|it| last.as_ref().is_none_or(|last| it.pool > *last));
        known.pools.extend(new.cloned());
        // A node that is behind the page that was asked for keeps its place.
        let next = more.next.clone().unwrap_or_default();
        let before = known.next.take().unwrap_or_default();
        let next = NodesAfter {
            worker: next.worker.zip(before.worker).map(|(next, before)| next.max(before)),
            pool: next.pool.zip(before.pool).map(|(next, before)| next.max(before)),
        };
        (known.more, known.next) = match next {
            NodesAfter { worker: None, pool: None } => (false, None),
            next => (true, Some(next)),
        };
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::id::PoolId;
    use tenure_wire::bus::operate::PoolFacts;

    use super::*;

    /// A page of a node's pools, cut behind three.
    fn page(node: &str, pools: &[&str], after: Option<&NodesAfter>) -> NodeFacts {
        let facts = |name: &&str| PoolFacts {
            pool: name.parse().unwrap(),
            workers: 0,
            free: 0,
            waiting: 0,
            oldest_ms: None,
            running: None,
            ended: None,
            longest: None,
            sessions: None,
        };
        let from = after.map(|after| after.pool.clone());
        let behind = |it: &PoolFacts| match &from {
            None => true,
            Some(after) => after.as_ref().is_some_and(|after| it.pool > *after),
        };
        let all: Vec<PoolFacts> = pools.iter().map(facts).filter(behind).collect();
        let first: Vec<PoolFacts> = all.iter().take(3).cloned().collect();
        let last = first.last().filter(|_| first.len() < all.len()).map(|it| it.pool.clone());
        let next = last.map(|last| NodesAfter { worker: None, pool: Some(last) });
        NodeFacts {
            node: node.into(),
            more: next.is_some(),
            next,
            pools: first,
            ..NodeFacts::default()
        }
    }

    /// The pages of all nodes are asked for together, and each pool of a node is there once in the end; a node that
    /// goes silent leaves a mark.
    #[test]
    fn pages_of_all_nodes_are_joined() {
        let one = ["a", "b", "c", "d", "e", "f", "g"];
        let other = ["b", "x", "y", "z"];
        let ask =
            |after: Option<&NodesAfter>| vec![page("n1", &one, after), page("n2", &other, after)];
        let mut all = ask(None);
        let mut pages = 1;
        while let Some(after) = first_next(&all) {
            join_pages(&mut all, ask(Some(&after)));
            pages += 1;
        }
        let names = |node: &NodeFacts| -> Vec<PoolId> {
            node.pools.iter().map(|it| it.pool.clone()).collect()
        };
        assert_eq!(names(&all[0]), one.map(|name| name.parse().unwrap()));
        assert_eq!(names(&all[1]), other.map(|name| name.parse().unwrap()));
        assert!(pages <= 4 && all.iter().all(|node| !node.more), "{pages}");
        let mut silent = ask(None);
        join_pages(&mut silent, Vec::new());
        assert!(first_next(&silent).is_none() && silent[0].more);
    }
}
