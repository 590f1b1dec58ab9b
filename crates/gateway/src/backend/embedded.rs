//! [`EmbeddedBackend`]: a scheduler in this process.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenure_core::id::{AgentId, PoolId, SessionId, TaskId};
use tenure_core::sessions::Abilities;
use tenure_core::task::Attempt;
use tenure_core::view::View;
use tenure_core::{Code, Rejection};
use tenure_ports::journal::TaskKey;
use tenure_ports::{ClientPort as _, Journal, Leases};
use tenure_scheduler::{ClientLink, Scheduler, WorkerLink};
use tenure_sdk::client::Client;
use tenure_sdk::worker::{AttemptDir, read_output_page};
use tenure_wire::bus::operate::{LeaseRow, NodeFacts, PoolFacts};
use tenure_wire::bus::output::{OutputPage, OutputStream, ReadOutput};
use tenure_wire::bus::request::RawBytes;
use tenure_wire::bus::subject::{Token, WorkerName};

use super::{Backend, Joined, NodeAnswers, check_client};
use crate::identity::Identity;

/// What the only node calls itself.
const NODE: &str = "local";

/// A scheduler in this process, and the directory in which its commands leave what they write.
pub struct EmbeddedBackend<J: Journal, L: Leases> {
    scheduler: Scheduler<J, L>,
    files: Option<Arc<PathBuf>>,
}

impl<J: Journal, L: Leases> EmbeddedBackend<J, L> {
    /// On this scheduler. Without a directory nobody can read what commands wrote.
    pub fn new(scheduler: Scheduler<J, L>, files: Option<PathBuf>) -> Self {
        Self { scheduler, files: files.map(Arc::new) }
    }

    fn link(&self, who: &Identity, session: &SessionId) -> Result<ClientLink<J, L>, Rejection> {
        check_client(who)?;
        let agent = AgentId::new(who.principal.as_str())?;
        Ok(self.scheduler.client(who.role, agent, session.clone()))
    }

    fn facts(&self) -> NodeFacts {
        let sample = self.scheduler.sample();
        let waits = sample.waits.into_iter().filter(|(_, count)| *count > 0);
        NodeFacts {
            node: NODE.into(),
            partitions: 1,
            owned: vec![0],
            pools: sample.pools.into_iter().map(PoolFacts::from).collect(),
            at: Some(self.scheduler.now()),
            tasks: Some(sample.tasks),
            counts: Some(sample.counts),
            waits: Some(waits.map(|(why, count)| (why.as_str().into(), count)).collect()),
            ..NodeFacts::default()
        }
    }

    /// The open Attempts of a Task with their leases.
    async fn leases_of(&self, key: &TaskKey) -> Result<Vec<LeaseRow>, Rejection> {
        let open: Vec<Attempt> = self
            .scheduler
            .read(key, |task: &View<'_>| task.open_attempts().cloned().collect())
            .await?;
        let row = |attempt: Attempt| LeaseRow {
            task_id: key.task_id.clone(),
            attempt_id: attempt.attempt_id,
            left_ms: self.scheduler.lease_left_ms(attempt.attempt_id),
            open: Some((&attempt).into()),
        };
        Ok(open.into_iter().map(row).collect())
    }
}

impl<J: Journal, L: Leases> Clone for EmbeddedBackend<J, L> {
    fn clone(&self) -> Self {
        Self { scheduler: self.scheduler.clone(), files: self.files.clone() }
    }
}

impl<J: Journal, L: Leases> fmt::Debug for EmbeddedBackend<J, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedBackend").field("files", &self.files).finish_non_exhaustive()
    }
}

impl<J: Journal, L: Leases> Backend for EmbeddedBackend<J, L> {
    type Client = ClientLink<J, L>;
    type Worker = WorkerLink<J, L>;

    async fn client(
        &self,
        who: &Identity,
        session: &SessionId,
    ) -> Result<Client<Self::Client>, Rejection> {
        self.link(who, session).map(Client::new)
    }

    /// The one node. It knows its pools, and not the names of the workers in them.
    async fn nodes(&self, who: &Identity, _: &SessionId) -> Result<NodeAnswers, Rejection> {
        check_client(who)?;
        Ok(NodeAnswers { nodes: vec![self.facts()], missing_partitions: Vec::new() })
    }

    async fn read_output(
        &self,
        who: &Identity,
        session: &SessionId,
        task: &TaskId,
        asked: ReadOutput,
    ) -> Result<OutputPage, Rejection> {
        let attempt = self.link(who, session)?.attempt(task, asked.attempt_id).await?;
        let Some(files) = self.files.clone() else { return Ok(no_output()) };
        let key = TaskKey { session_id: session.clone(), task_id: task.clone() };
        let read = move || read_page(&files, &key, &attempt, asked.stream, asked.from);
        let read = tokio::task::spawn_blocking(read).await;
        read.map_err(io::Error::other).flatten().map_err(|error| {
            let message = format!("what the command wrote cannot be read: {error}");
            Rejection::new(Code::StorageError, message)
        })
    }

    async fn leases(
        &self,
        who: &Identity,
        session: &SessionId,
    ) -> Result<Vec<LeaseRow>, Rejection> {
        let live = self.link(who, session)?.list(false).await?.entries;
        let mut all = Vec::new();
        for entry in live {
            match self.leases_of(&entry.key).await {
                Ok(leases) => all.extend(leases),
                Err(gone) if gone.code == Code::TaskNotFound => {}
                Err(refused) => return Err(refused),
            }
        }
        all.sort_by_key(|row| row.attempt_id);
        Ok(all)
    }

    async fn join(
        &self,
        who: &Identity,
        pool: PoolId,
        boot: Token,
        abilities: Abilities,
    ) -> Result<Joined<Self::Worker>, Rejection> {
        let name = WorkerName { pool, principal: who.principal.clone(), boot };
        self.scheduler.join(name.agent()?, name.pool, abilities)
    }

    async fn ready(&self) -> Result<(), Rejection> {
        if self.scheduler.has_stopped() {
            return Err(Rejection::new(Code::Unavailable, "the scheduler has stopped"));
        }
        match self.scheduler.trouble().borrow().as_deref() {
            Some(why) => {
                let message = format!("the log cannot be written: {why}");
                Err(Rejection::new(Code::StorageError, message))
            }
            None => Ok(()),
        }
    }
}

/// The page of a command that has written nothing.
fn no_output() -> OutputPage {
    OutputPage { data: RawBytes(Vec::new()), size_bytes: None }
}

/// Reads a page of what an Attempt wrote. The directory of all files is made by the first command.
fn read_page(
    files: &Path,
    task: &TaskKey,
    attempt: &Attempt,
    stream: OutputStream,
    from: u64,
) -> io::Result<OutputPage> {
    let root = match std::fs::canonicalize(files) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(no_output()),
        found => found?,
    };
    let dir = AttemptDir::new(&root, task, &attempt.step_id, attempt.ordinal);
    read_output_page(&dir, stream, from)
}
