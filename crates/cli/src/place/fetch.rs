//! Reads a cluster: fetches logs as they are needed into a temporary directory with the layout of a
//! data directory, which is removed when the command ends.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use tempfile::{NamedTempFile, TempDir};
use tenure_core::Code;
use tenure_core::id::{AttemptId, Millis, SessionId, WalName};
use tenure_core::record::Blob;
use tenure_core::status::TaskStatus;
use tenure_core::view::{LeaseFact, ListInput, TaskPage};
use tenure_local::make_real_dir;
use tenure_ports::ClientPort as _;
use tenure_ports::client::Listing;
use tenure_ports::erased::ErasedClient;
use tenure_ports::journal::TaskKey;
use tenure_sdk::client::Client;
use tenure_sdk::nats::NatsClient;
use tenure_wire::stored::encode;

use super::any::AnyClient;
use super::cluster::ClusterUser;
use super::names;
use super::scan::{LogFile, SUFFIX, session_dir};
use crate::answer::{Exit, Failure};

/// A cluster that is read.
pub(crate) struct Cluster {
    caller: ClusterUser,
    session: SessionId,
    dir: TempDir,
    clients: RefCell<HashMap<SessionId, AnyClient>>,
    stands: RefCell<HashMap<TaskKey, Stand>>,
}

/// What the owner said about a Task when its log was read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stand {
    /// The owner's clock.
    pub(crate) now: Millis,
    leases: HashMap<AttemptId, u64>,
    /// The place of its log.
    pub(crate) wal_path: Option<String>,
    /// How many Steps its owner lets it have, if the owner says so.
    pub(crate) steps_max: Option<usize>,
}

impl Stand {
    /// What the owner said about the lease of an open Attempt.
    pub(crate) fn lease(&self, attempt: AttemptId) -> Option<LeaseFact> {
        let left = *self.leases.get(&attempt)?;
        Some(LeaseFact { expires_at: self.now.saturating_add_unsigned(left), valid: left > 0 })
    }
}

/// A fetched log: a whole file without a name yet.
pub(crate) struct Fetched {
    pub(crate) file: NamedTempFile,
    pub(crate) bytes: u64,
    pub(crate) events: u64,
    pub(crate) status: TaskStatus,
    /// The blobs that it names.
    pub(crate) blobs: BTreeSet<Blob>,
    stand: Stand,
}

impl Cluster {
    /// A cluster with this session for Tasks that are named without one.
    pub(crate) fn new(caller: ClusterUser, session: SessionId) -> Result<Self, Failure> {
        let dir = TempDir::with_prefix("tenure-")
            .map_err(Failure::cannot("make a temporary directory"))?;
        let (clients, stands) = Default::default();
        Ok(Self { caller, session, dir, clients, stands })
    }

    /// What is at its address, for people.
    pub(crate) fn place(&self) -> String {
        self.caller.place()
    }

    /// The temporary directory with the logs.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// What the owner said about a Task.
    pub(crate) fn stand(&self, key: &TaskKey) -> Option<Stand> {
        self.stands.borrow().get(key).cloned()
    }

    /// A client in a session.
    pub(crate) async fn client(&self, session: &SessionId) -> Result<AnyClient, Failure> {
        if let Some(client) = self.clients.borrow().get(session) {
            return Ok(client.clone());
        }
        let client = self.caller.client(session).await?;
        self.clients.borrow_mut().insert(session.clone(), client.clone());
        Ok(client)
    }

    /// A client in a session, for what gateways do not offer.
    pub(crate) async fn nats(&self, session: &SessionId) -> Result<NatsClient, Failure> {
        self.caller.nats(session).await
    }

    /// Finds a Task, and the client of its session.
    pub(crate) async fn find(&self, name: TaskKey) -> Result<(AnyClient, TaskKey), Failure> {
        let client = self.client(&name.session_id).await?;
        let key = names::find(&client, name).await?;
        Ok((client, key))
    }

    /// The Tasks of a session; without one, of the session of the options.
    pub(crate) async fn listing(
        &self,
        session: Option<&SessionId>,
        include_terminal: bool,
    ) -> Result<Listing, Failure> {
        let client = self.client(session.unwrap_or(&self.session)).await?;
        Ok(client.list(include_terminal).await?)
    }

    /// A page of the Tasks of a session, from their owners; this fetches no log.
    pub(crate) async fn tasks(
        &self,
        session: &SessionId,
        input: ListInput,
    ) -> Result<TaskPage, Failure> {
        Ok(self.client(session).await?.tasks(input).await?)
    }

    /// Fetches the log of a Task; none if there is no such Task.
    pub(crate) async fn log(&self, key: &TaskKey) -> Result<Option<LogFile>, Failure> {
        let client = self.client(&key.session_id).await?;
        let fetched = match fetch(&client, key, self.dir(), |_, _| ()).await {
            Ok(fetched) => fetched,
            Err(failure) if failure.exit == Exit::NotFound => return Ok(None),
            Err(failure) => return Err(failure),
        };
        self.stands.borrow_mut().insert(key.clone(), fetched.stand.clone());
        let (path, wal_name) = fetched.keep(key, self.dir())?;
        Ok(Some(LogFile { path, key: key.clone(), wal_name }))
    }
}

impl Fetched {
    /// Moves the file to its name in a data directory.
    pub(crate) fn keep(
        self,
        key: &TaskKey,
        data: &Path,
    ) -> Result<(std::path::PathBuf, WalName), Failure> {
        let path = file_of(data, key);
        let kept = self.file.persist(&path).map_err(|error| error.error);
        kept.map_err(unwritten(&path))?;
        Ok((path, WalName::from(&key.task_id)))
    }
}

/// For `map_err`: the failure of a write to this file or directory.
pub(crate) fn unwritten(path: &Path) -> impl FnOnce(io::Error) -> Failure {
    Failure::cannot(format!("write {}", path.display()))
}

/// Where the log of a Task of a cluster is kept in a data directory: its name is that of the Task, which no
/// other Task of the session has (STORE-14).
pub(crate) fn file_of(data: &Path, key: &TaskKey) -> std::path::PathBuf {
    session_dir(data, &key.session_id).join(format!("{}{SUFFIX}", key.task_id))
}

/// Makes a data directory, and in it the directories for the logs of a session, none of which is a link: it may come
/// from elsewhere.
fn make_dirs(data: &Path, session: &Path) -> io::Result<()> {
    fs::create_dir_all(data)?;
    if let Some(tasks) = session.parent() {
        make_real_dir(tasks)?;
    }
    make_real_dir(session).map(drop)
}

/// Fetches the log of a Task page by page, as the lines of a log file, into a temporary file beside
/// its place. `each` gets the number of events so far and of all.
pub(crate) async fn fetch(
    client: &Client<ErasedClient>,
    key: &TaskKey,
    data: &Path,
    mut each: impl FnMut(u64, u64),
) -> Result<Fetched, Failure> {
    let dir = session_dir(data, &key.session_id);
    let mut file = None;
    let (mut lines, mut bytes, mut after) = (Vec::new(), 0, 0);
    let mut blobs = BTreeSet::new();
    loop {
        let page = client.port().log(&key.task_id, after).await?;
        let out = match &mut file {
            Some(out) => out,
            None => {
                make_dirs(data, &dir).map_err(unwritten(&dir))?;
                let new = NamedTempFile::new_in(&dir).map_err(unwritten(&dir))?;
                file.insert(BufWriter::new(new))
            }
        };
        for commit in &page.commits {
            lines.clear();
            encode(commit, &key.session_id, &key.task_id, &mut lines)
                .map_err(|error| Failure::caused(Exit::Unavailable, &error))?;
            out.write_all(&lines).map_err(unwritten(&dir))?;
            bytes += lines.len() as u64;
            blobs.extend(commit.events.iter().flat_map(|event| event.body.blobs()));
            after = commit.last_seq();
        }
        each(after, page.version);
        if page.more && !page.commits.is_empty() {
            continue;
        }
        let file = file.take().map(BufWriter::into_inner).transpose();
        let file = file.map_err(io::IntoInnerError::into_error).map_err(unwritten(&dir))?;
        let Some(file) = file.filter(|_| after > 0) else {
            let message = format!("the log of task {key} has nothing in it");
            return Err(tenure_core::Rejection::new(Code::StorageError, message).into());
        };
        let (status, leases) = (page.status, page.leases.into_iter().collect());
        let (wal_path, steps_max) = (page.wal_path, page.steps_max);
        let stand = Stand { now: page.now, leases, wal_path, steps_max };
        return Ok(Fetched { file, bytes, events: after, status, blobs, stand });
    }
}
