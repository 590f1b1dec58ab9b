//! A journal in memory: the port's contract and nothing else.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use tenure_core::event::{Body, Commit, Event};
use tenure_core::id::{SessionId, WalName};
use tenure_core::record::ValueBody;
use tenure_ports::journal::{
    AppendError, EncodedSnapshot, EndedLog, Entry, Journal, ReadError, TaskKey,
};

/// How many bytes an event counts as, in a journal that encodes none.
const EVENT_BYTES: u64 = 256;

/// A [`Journal`] in memory. Clones share the logs, so a test can start a second scheduler on what
/// the first one left.
#[derive(Debug, Clone, Default)]
pub struct MemoryJournal {
    logs: Arc<Mutex<Logs>>,
}

#[derive(Debug, Default)]
struct Logs {
    logs: HashMap<TaskKey, Log>,
    /// Names in use: a name is taken once, as where it is the name of a file (STORE-14).
    names: HashSet<(SessionId, WalName)>,
}

#[derive(Debug)]
struct Log {
    commits: Vec<Arc<Commit>>,
    bytes: u64,
    entry: Entry,
    kept: Option<EncodedSnapshot>,
}

impl Log {
    fn last_seq(&self) -> u64 {
        self.commits.last().map_or(0, |commit| commit.last_seq())
    }

    fn take(&mut self, commits: Vec<Arc<Commit>>) {
        for commit in &commits {
            self.entry.updated_at = commit.created_at;
            for event in &commit.events {
                self.entry.ended = self.entry.ended.or_else(|| event.body.end());
                self.entry.archived |= matches!(event.body, Body::TaskArchived(_));
            }
        }
        self.bytes += commits.iter().map(|commit| bytes_of(commit)).sum::<u64>();
        self.commits.extend(commits);
    }
}

/// About how many bytes a commit has: those of the inputs that it brings, and some for each event.
fn bytes_of(commit: &Commit) -> u64 {
    let inputs = |event: &Event| match &event.body {
        Body::TaskCreated(created) => {
            let inputs = created.task.steps.iter().filter_map(|step| step.input.as_ref());
            let data = inputs.filter_map(|input| match &input.body {
                ValueBody::Data(data) => Some(data.len() as u64),
                ValueBody::Blob(_) | ValueBody::Ref(_) => None,
            });
            data.sum()
        }
        _ => 0,
    };
    commit.events.iter().map(|event| EVENT_BYTES + inputs(event)).sum()
}

/// Refuses commits that do not follow event `after` and each other.
fn check_order(after: u64, commits: &[Arc<Commit>]) -> Result<(), AppendError> {
    let mut last = after;
    for commit in commits {
        if commit.events.is_empty() || commit.first_seq != last + 1 {
            let message = format!("event {} cannot follow event {last}", commit.first_seq);
            return Err(AppendError::Failed(message));
        }
        last = commit.last_seq();
    }
    Ok(())
}

/// The index entry of a Task that is being created.
fn first_entry(
    key: &TaskKey,
    wal_name: &WalName,
    commits: &[Arc<Commit>],
) -> Result<Entry, AppendError> {
    let body = commits.first().and_then(|commit| Some((commit, &commit.events.first()?.body)));
    let Some((commit, Body::TaskCreated(created))) = body else {
        return Err(AppendError::Failed("a log starts with task_created".into()));
    };
    Ok(Entry {
        key: key.clone(),
        wal_name: wal_name.clone(),
        title: created.task.title.to_string(),
        labels: created.task.labels.clone(),
        created_at: commit.created_at,
        updated_at: commit.created_at,
        ended: None,
        archived: false,
        damaged: false,
    })
}

impl Journal for MemoryJournal {
    async fn create(
        &self,
        key: &TaskKey,
        wal_name: &WalName,
        commits: Vec<Arc<Commit>>,
    ) -> Result<(), AppendError> {
        let entry = first_entry(key, wal_name, &commits)?;
        check_order(0, &commits)?;
        let mut logs = self.logs.lock();
        if logs.logs.contains_key(key) {
            return Err(AppendError::TaskExists);
        }
        if !logs.names.insert((key.session_id.clone(), wal_name.clone())) {
            return Err(AppendError::NameTaken);
        }
        let mut log = Log { commits: Vec::new(), bytes: 0, entry, kept: None };
        log.take(commits);
        logs.logs.insert(key.clone(), log);
        Ok(())
    }

    async fn append(
        &self,
        key: &TaskKey,
        after: u64,
        commits: Vec<Arc<Commit>>,
    ) -> Result<(), AppendError> {
        let mut logs = self.logs.lock();
        let log = logs
            .logs
            .get_mut(key)
            .ok_or_else(|| AppendError::Failed(format!("task {key} does not exist")))?;
        let last = log.last_seq();
        if last != after {
            return Err(AppendError::Fenced { expected: after, last });
        }
        check_order(after, &commits)?;
        log.take(commits);
        Ok(())
    }

    async fn read<F>(&self, key: &TaskKey, after: u64, mut each: F) -> Result<(), ReadError>
    where
        F: FnMut(Commit) -> ControlFlow<()> + Send + 'static,
    {
        let commits = self.logs.lock().logs.get(key).map(|log| log.commits.clone());
        let commits = commits.ok_or(ReadError::NotFound)?;
        let from = commits.partition_point(|commit| commit.last_seq() <= after);
        for commit in &commits[from..] {
            if each(Commit::clone(commit)).is_break() {
                break;
            }
        }
        Ok(())
    }

    async fn entry(&self, key: &TaskKey) -> Result<Option<Entry>, ReadError> {
        Ok(self.logs.lock().logs.get(key).map(|log| log.entry.clone()))
    }

    async fn ended(&self, key: &TaskKey) -> Option<EndedLog> {
        let logs = self.logs.lock();
        let log = logs.logs.get(key).filter(|log| !log.entry.damaged)?;
        let (version, wal_name) = (log.last_seq(), log.entry.wal_name.clone());
        Some(EndedLog { version, end: log.entry.ended?, wal_name, bytes: log.bytes })
    }

    fn log_bytes(&self, key: &TaskKey) -> Option<u64> {
        self.logs.lock().logs.get(key).filter(|log| log.entry.ended.is_none()).map(|log| log.bytes)
    }

    async fn entries(&self, session: Option<&SessionId>) -> Result<Vec<Entry>, ReadError> {
        let logs = self.logs.lock();
        let of_session = |log: &&Log| session.is_none_or(|id| log.entry.key.session_id == *id);
        Ok(logs.logs.values().filter(of_session).map(|log| log.entry.clone()).collect())
    }

    async fn keep(&self, key: &TaskKey, folded: EncodedSnapshot) {
        if let Some(log) = self.logs.lock().logs.get_mut(key) {
            log.kept = Some(folded);
        }
    }

    async fn kept(&self, key: &TaskKey, until: u64) -> Option<EncodedSnapshot> {
        self.logs.lock().logs.get(key)?.kept.clone().filter(|kept| kept.version <= until)
    }

    fn forget_snapshot(&self, key: &TaskKey) {
        if let Some(log) = self.logs.lock().logs.get_mut(key) {
            log.kept = None;
        }
    }

    fn release(&self, _: &TaskKey) {}

    fn epoch(&self, _: &TaskKey) -> Option<u64> {
        Some(0)
    }
}
