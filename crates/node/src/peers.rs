//! Asks other nodes for what this one must know of their Tasks.

use std::time::Duration;

use async_nats::{Client, Request as Ask_, Subscriber};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use tenure_core::command::create::Parent;
use tenure_core::id::TaskId;
use tenure_core::{Code, Commit, Rejection, RejectionKind, Task};
use tenure_ports::journal::TaskKey;
use tenure_scheduler::{FamilyNotice, Peers};
use tenure_wire::bus::node::FamilyMessage as Told;
use tenure_wire::bus::request::{Ask, LogPage, ReadLog, ReadParent, Request};
use tenure_wire::bus::subject::{ClusterName, Token};
use tenure_wire::bus::{Answer, V, decode};
use tenure_wire::stored::{Assembler, LineError, decode_line};
use uuid::Uuid;

use crate::ClusterScheduler;
use crate::bus::say;

/// How long a node may take to answer another.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How often a request is sent at most.
const TRIES: u32 = 5;

/// The other nodes of a cluster, over NATS.
#[derive(Debug, Clone)]
pub(crate) struct NatsPeers {
    pub(crate) client: Client,
    pub(crate) cluster: ClusterName,
    pub(crate) node: Token,
    pub(crate) partitions: u32,
}

impl Peers for NatsPeers {
    fn read(&self, key: &TaskKey) -> BoxFuture<'static, Result<Box<Task>, Rejection>> {
        let (peers, key) = (self.clone(), key.clone());
        Box::pin(async move { peers.fold(&key).await })
    }

    fn parent(
        &self,
        key: &TaskKey,
        child: &TaskId,
    ) -> BoxFuture<'static, Result<Parent, Rejection>> {
        let (peers, key, child) = (self.clone(), key.clone(), child.clone());
        Box::pin(async move {
            let ask = ReadParent { child: child.clone(), record: false };
            match peers.ask(&key, Ask::ReadParent(ask)).await {
                // A node of the previous release does not know this request: the parent's log is
                // read instead.
                Err(unknown) if unknown.code == Code::ValidationError => {
                    Ok(Parent::of(&peers.fold(&key).await?.durable(), &child))
                }
                answered => answered,
            }
        })
    }

    fn record(
        &self,
        key: &TaskKey,
        child: &TaskId,
    ) -> BoxFuture<'static, Result<Parent, Rejection>> {
        let (peers, key) = (self.clone(), key.clone());
        let ask = Ask::ReadParent(ReadParent { child: child.clone(), record: true });
        Box::pin(async move { peers.ask(&key, ask).await })
    }

    fn tell(&self, key: &TaskKey, word: FamilyNotice) {
        let child = match word {
            FamilyNotice::ParentCloses => None,
            FamilyNotice::Adopt(child) => Some(child),
        };
        let (session_id, task_id) = (key.session_id.clone(), key.task_id.clone());
        let told = Told { v: V, session_id, task_id, child };
        let client = self.client.clone();
        let subject = format!("{}.system.kin.{}", self.cluster.root(), self.node);
        tokio::spawn(async move { say(&client, &subject, &told).await });
    }
}

impl NatsPeers {
    /// Folds the log of a Task, which its owner sends in pages.
    async fn fold(&self, key: &TaskKey) -> Result<Box<Task>, Rejection> {
        let mut log = Assembler::new(key.session_id.clone(), key.task_id.clone());
        let (mut task, mut rest): (Option<Box<Task>>, Vec<u8>) = Default::default();
        let (mut after, mut from) = (0, 0);
        loop {
            let page: LogPage =
                self.ask(key, Ask::ReadLog(ReadLog { from, ..after.into() })).await?;
            for lines in page.commits {
                rest.extend_from_slice(&lines.0);
            }
            from = page.cut.unwrap_or(0);
            if page.cut.is_some() {
                continue;
            }
            for commit in commits(&mut log, &std::mem::take(&mut rest)).map_err(|e| damaged(&e))? {
                after = commit.last_seq();
                fold_onto(&mut task, &commit)?;
            }
            if !page.more {
                return task.ok_or_else(|| damaged(&"it is empty"));
            }
        }
    }

    async fn ask<T: DeserializeOwned>(&self, key: &TaskKey, what: Ask) -> Result<T, Rejection> {
        let request = Request::new(Some(key.task_id.clone()), None, what).write()?;
        let partition = key.partition(self.partitions);
        let (root, session) = (self.cluster.root(), &key.session_id);
        let subject = format!("{root}.system.{session}.{}.cmd.{partition}", self.node);
        let mut refused = unanswered();
        for again in 0..TRIES {
            tokio::time::sleep(Duration::from_millis(50) * again).await;
            // It has an inbox of its own, as the library would hold an unanswered request in its
            // shared inbox for ever.
            let inbox = format!("_INBOX.system.{}.{}", self.node, Uuid::now_v7().simple());
            let asked = Ask_::new().payload(request.clone().into()).inbox(inbox);
            let asked = self.client.send_request(subject.clone(), asked.timeout(Some(TIMEOUT)));
            let Ok(Ok(answer)) = tokio::time::timeout(2 * TIMEOUT, asked).await else { continue };
            match decode::<Answer<T>>(&answer.payload)?.into_result() {
                Err(error) if error.code.is_retryable() => refused = error,
                answered => return answered,
            }
        }
        Err(refused)
    }
}

fn commits(log: &mut Assembler, lines: &[u8]) -> Result<Vec<Commit>, LineError> {
    let mut found = Vec::new();
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        found.extend(log.push(decode_line(line)?)?);
    }
    Ok(found)
}

fn fold_onto(task: &mut Option<Box<Task>>, commit: &Commit) -> Result<(), Rejection> {
    match task {
        Some(task) => task.replay(commit).map_err(|error| damaged(&error)),
        None => {
            *task = Some(Box::new(Task::restore(commit).map_err(|error| damaged(&error))?));
            Ok(())
        }
    }
}

fn damaged(why: &dyn std::fmt::Display) -> Rejection {
    Rejection::new(Code::StorageError, format!("the log that another node sent: {why}"))
        .of_kind(RejectionKind::ReplayFailed)
}

fn unanswered() -> Rejection {
    Rejection::new(Code::Unavailable, "the node that has the other task does not answer")
        .with("retry_after_ms", 200)
}

/// Receives other nodes' notices about families.
pub(crate) async fn hear(scheduler: ClusterScheduler, mut told: Subscriber) {
    while let Some(message) = told.next().await {
        let Ok(kin) = decode::<Told>(&message.payload) else { continue };
        let Told { session_id, task_id, child, .. } = kin;
        let word =
            child.map_or(FamilyNotice::ParentCloses, |child: TaskId| FamilyNotice::Adopt(child));
        scheduler.hear_of_family(&TaskKey { session_id, task_id }, word);
    }
}
