//! A data directory or a cluster, read only: finding Tasks by name and folding their logs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenure_core::command::blobs::blob_lost;
use tenure_core::id::{AttemptId, BlobHash, Millis, SessionId, WalName};
use tenure_core::record::{Value, ValueBody};
use tenure_core::view::{Known, LeaseFact, ListInput, Snapshot, TaskPage, View, ViewsInput};
use tenure_core::{Caller, Code, Limits, Rejection, Task};
use tenure_embedded::orchestrator;
use tenure_local::{FileBlobs, JsonlReader};
use tenure_ports::blobs::{BlobStore as _, SESSION_QUOTA};
use tenure_ports::client::Listing;
use tenure_ports::journal::{Entry, Overview, TaskKey};
use tenure_sdk::client::get_blob;

use super::any::AnyClient;
use super::args::{OfTask, PlaceArgs, files_of, resume, run_from_text};
use super::fetch::{Cluster, Stand};
use super::host::Host;
use super::index::{self, Indexed};
use super::names;
use super::scan::{self, Broken, LogFile};
use super::socket;
use crate::answer::{Exit, Failure, did_you_mean, human, output};
use crate::runtime::{CommandRuntime, one_thread};

/// Reads Tasks, and changes nothing.
pub(crate) struct TaskReader {
    path: PathBuf,
    reader: JsonlReader,
    /// The cluster whose logs are read, if it is one: they are fetched as they are needed.
    cluster: Option<Cluster>,
    pub(crate) runtime: CommandRuntime,
    /// What runs the Tasks here.
    pub(crate) host: Host,
    /// The time of the command.
    pub(crate) now: Millis,
}

/// A Task that was folded from its log.
pub(crate) struct Loaded {
    pub(crate) key: TaskKey,
    pub(crate) task: Task,
    /// The place of its log (2.1).
    pub(crate) wal_path: Option<String>,
}

impl TaskReader {
    /// Opens the named directory, or else the named cluster, or else `.tenure`.
    pub(crate) fn open(place: &PlaceArgs) -> Result<Self, Failure> {
        Self::open_as(place, place.is_cluster())
    }

    /// Opens the named cluster, or that of this machine.
    pub(crate) fn far(place: &PlaceArgs) -> Result<Self, Failure> {
        Self::open_as(place, true)
    }

    fn open_as(place: &PlaceArgs, is_cluster: bool) -> Result<Self, Failure> {
        let runtime = one_thread()?;
        let cluster = match is_cluster {
            true => {
                let caller = runtime.block_on(place.cluster.caller())?;
                Some(Cluster::new(caller, place.session.clone())?)
            }
            false => None,
        };
        let path = cluster.as_ref().map_or_else(|| place.dir(), Cluster::dir).to_owned();
        let host = match &cluster {
            Some(cluster) => Host::Cluster(cluster.place()),
            None => Host::of(&path),
        };
        let reader = JsonlReader::open(&path)?;
        Ok(Self { path, reader, cluster, runtime, host, now: human::now() })
    }

    /// The cluster, if it is one.
    pub(crate) const fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// The place of the Tasks, for people.
    pub(crate) fn place(&self) -> String {
        match &self.cluster {
            Some(cluster) => format!("the {}", cluster.place()),
            None => self.path.display().to_string(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where commands leave what they print, unless workers of a cluster run them. If that is a link, the user is told.
    pub(crate) fn files(&self) -> Option<PathBuf> {
        if self.cluster.is_some() {
            return None;
        }
        let files =
            files_of(&self.path).inspect_err(|failure| output::warn(&failure.message)).ok()?;
        Some(std::path::absolute(&files).unwrap_or(files))
    }

    /// Where the logs of a session are (STORE-04).
    pub(crate) fn session_dir(&self, session: &SessionId) -> PathBuf {
        scan::session_dir(&self.path, session)
    }

    /// The log of this name.
    pub(crate) fn wal(&self, session: &SessionId, name: &WalName) -> PathBuf {
        self.session_dir(session).join(format!("{name}{}", scan::SUFFIX))
    }

    /// All Tasks of a session, or of all, as the ends of their logs and the index have them. A
    /// cluster is asked for one session.
    pub(crate) fn entries(&self, session: Option<&SessionId>) -> Result<Vec<Entry>, Failure> {
        Ok(self.listing(session, true)?.entries)
    }

    /// The same, with the partitions that did not answer; of a cluster, perhaps live Tasks alone.
    pub(crate) fn listing(
        &self,
        session: Option<&SessionId>,
        include_terminal: bool,
    ) -> Result<Listing, Failure> {
        match &self.cluster {
            Some(cluster) => self.runtime.block_on(cluster.listing(session, include_terminal)),
            None => {
                let entries = self.runtime.block_on(self.reader.entries(session))?;
                Ok(Listing { entries, missing_partitions: Vec::new() })
            }
        }
    }

    /// A page of the Tasks of a session as their owners in a cluster know them.
    pub(crate) fn tasks(
        &self,
        cluster: &Cluster,
        session: &SessionId,
        input: ListInput,
    ) -> Result<TaskPage, Failure> {
        self.runtime.block_on(cluster.tasks(session, input))
    }

    /// The log of a Task.
    ///
    /// The error for an unknown Task has the nearest names; for a Task whose log was removed, the
    /// missing file.
    pub(crate) fn find(&self, key: &TaskKey) -> Result<LogFile, Failure> {
        if let Some(log) = self.find_exactly(key)? {
            return Ok(log);
        }
        let is_gone =
            |row: &Indexed| (&row.session_id, &row.task_id) == (&key.session_id, &key.task_id);
        if self.indexed().iter().any(is_gone) {
            return Err(self.unknown(key));
        }
        let meant = names::meant(key, &self.listing(Some(&key.session_id), true)?)?;
        let log = meant.map(|key| self.find_exactly(&key)).transpose()?.flatten();
        log.ok_or_else(|| self.unknown(key))
    }

    /// The log of a Task by its full name.
    pub(crate) fn find_named(&self, key: &TaskKey) -> Result<LogFile, Failure> {
        self.find_exactly(key)?.ok_or_else(|| self.unknown(key))
    }

    fn find_exactly(&self, key: &TaskKey) -> Result<Option<LogFile>, Failure> {
        if let Some(cluster) = &self.cluster {
            return self.runtime.block_on(cluster.log(key));
        }
        let entry = self.runtime.block_on(self.reader.entry(key))?;
        Ok(entry.map(|entry| self.log(&entry)))
    }

    /// Views of a session, and the partitions that did not answer.
    pub(crate) fn snapshot(
        &self,
        session: &SessionId,
        asked: ViewsInput,
    ) -> Result<(Snapshot, Vec<u32>), Failure> {
        if let Some(cluster) = &self.cluster {
            return self
                .runtime
                .block_on(async { Ok(cluster.client(session).await?.views_of(asked).await?) });
        }
        let overview = Overview::of(self.entries(Some(session))?);
        let mut all = overview.begin(&asked);
        for entry in overview.to_read(asked.shows_ended()) {
            match self.fold(self.log(entry)) {
                Ok(task) => self.look(&task, |view, known| {
                    all.merge(asked.of_task(view, known, entry.ended.is_some()));
                }),
                Err(_) => all.note_unreadable(&entry.key.task_id),
            }
        }
        Ok((all.finish(), Vec::new()))
    }

    /// The log of an entry; in a cluster, the place where it was or will be fetched.
    pub(crate) fn log(&self, entry: &Entry) -> LogFile {
        LogFile::of(&self.path, entry)
    }

    /// Finds a Task and folds its log.
    pub(crate) fn load(&self, key: &TaskKey) -> Result<Loaded, Failure> {
        Ok(self.fold(self.find(key)?)?)
    }

    /// Folds a log.
    pub(crate) fn fold(&self, log: LogFile) -> Result<Loaded, Broken> {
        self.fold_until(log, u64::MAX)
    }

    /// Folds a log up to the commit that contains `seq`, or to its end.
    pub(crate) fn fold_until(&self, log: LogFile, seq: u64) -> Result<Loaded, Broken> {
        let task = scan::replay(&log, seq)?;
        let wal_path = match &self.cluster {
            Some(cluster) => cluster.stand(&log.key).and_then(|stand| stand.wal_path),
            None => Some(log.path.display().to_string()),
        };
        Ok(Loaded { key: log.key, task, wal_path })
    }

    /// Reads a Task in its present state.
    pub(crate) fn look<T>(
        &self,
        loaded: &Loaded,
        look: impl FnOnce(&View<'_>, &Known<'_>) -> T,
    ) -> T {
        let stand = self.cluster.as_ref().and_then(|cluster| cluster.stand(&loaded.key));
        let lease = |id: AttemptId| {
            if let Some(stand) = &stand {
                return stand.lease(id);
            }
            let expires_at = loaded.task.attempt(id)?.lease_expires_at;
            Some(LeaseFact { expires_at, valid: self.host.vouches(expires_at, self.now) })
        };
        let now = stand.as_ref().map_or(self.now, |Stand { now, .. }| *now);
        let (wal_path, means) = (loaded.wal_path.as_deref(), self.host.means());
        let known = Known { wal_path, means, ..Known::new(now, &lease) };
        look(&loaded.task.durable(), &known)
    }

    /// Replaces a blob of a Task by its bytes (VALUE-01). One that cannot be read stays as it is, and the
    /// user is told why.
    pub(crate) fn fill(&self, key: &TaskKey, value: &mut Value) {
        let Some(blob) = value.blob() else { return };
        match self.blob(key, blob.hash) {
            Ok(bytes) => value.body = ValueBody::Data(bytes),
            Err(failure) => output::warn(format_args!("{}: {}", blob.reference(), failure.message)),
        }
    }

    /// The bytes of a blob of a Task.
    pub(crate) fn blob(&self, key: &TaskKey, hash: BlobHash) -> Result<Arc<[u8]>, Failure> {
        self.runtime.block_on(self.read_blob(key, hash))
    }

    async fn read_blob(&self, key: &TaskKey, hash: BlobHash) -> Result<Arc<[u8]>, Failure> {
        match &self.cluster {
            Some(cluster) => {
                let client = cluster.client(&key.session_id).await?;
                Ok(get_blob(client.port(), &key.task_id, hash).await?)
            }
            None => {
                let read = FileBlobs::open(&self.path, SESSION_QUOTA).get(key, hash).await;
                Ok(read.map_err(Rejection::from)?.ok_or_else(|| blob_lost(hash))?)
            }
        }
    }

    /// A client of whoever runs a Task and knows more of it than the log says, with the name that stands for the
    /// Task there: an owner in a cluster, or the process at work on the directory, if it answers.
    pub(crate) fn owner_of(&self, key: &TaskKey) -> Result<Option<(AnyClient, TaskKey)>, Failure> {
        self.runtime.block_on(async {
            if let Some(cluster) = &self.cluster {
                return cluster.find(key.clone()).await.map(Some);
            }
            if !matches!(self.host, Host::AtWork(_)) {
                return Ok(None);
            }
            let client = socket::at_work(&self.path, &key.session_id).await;
            let Some(client) = client else { return Ok(None) };
            // If the process does not know it, the directory says what it has instead.
            let found = names::find(&client, key.clone()).await.ok();
            Ok(found.map(|key| (client, key)))
        })
    }

    /// The limits for changes of a Task; in a cluster, those of its owner.
    pub(crate) fn limits(&self, key: &TaskKey) -> Limits {
        let mut limits = Limits::default();
        let told = self.cluster.as_ref().and_then(|cluster| cluster.stand(key)?.steps_max);
        limits.steps_max = told.unwrap_or(limits.steps_max);
        limits
    }

    /// The command that goes on with a Task on which no process is at work.
    pub(crate) fn resume(&self, key: &TaskKey) -> String {
        resume(&self.path, key)
    }

    /// The command that says why a Task does not go on.
    pub(crate) fn explain(&self, key: &TaskKey) -> String {
        let at = run_from_text(&self.path, &key.session_id);
        format!("tenure task explain {}{at}", key.task_id)
    }

    /// The Tasks in the index. As the index is derived and disposable, it serves only for what the
    /// logs cannot say: that one of them is gone.
    pub(crate) fn indexed(&self) -> Vec<Indexed> {
        index::indexed(&self.path)
    }

    /// The failure for a Task that does not exist.
    pub(crate) fn unknown(&self, key: &TaskKey) -> Failure {
        let indexed = self.indexed();
        let gone = indexed
            .iter()
            .find(|row| row.session_id == key.session_id && row.task_id == key.task_id);
        if let Some(row) = gone {
            let file = self.wal(&row.session_id, &row.wal_name);
            let message = format!("the log of task {key} is gone: {}", file.display());
            return Failure::new(Exit::Unavailable, message).help("put the file back");
        }
        let (task, session, place) = (&key.task_id, &key.session_id, self.place());
        let message = format!("no task `{task}` in session {session} of {place}");
        let refusal = Rejection::new(Code::TaskNotFound, message).with("task_id", task.as_str());
        let failure = Failure::absent(refusal);
        let session = self.cluster.is_some().then_some(&key.session_id);
        let entries = self.entries(session).unwrap_or_default();
        match self.meant(key, &entries) {
            Some(help) => failure.help(help),
            None => failure,
        }
    }

    /// The failure for a session that has no Task.
    pub(crate) fn no_session(&self, session: &SessionId) -> Failure {
        let message = format!("no session `{session}` in {}: it has no task", self.place());
        let failure = Failure::new(Exit::NotFound, message);
        match &self.cluster {
            Some(_) => failure.help("--session names one; the cluster has no list of its sessions"),
            None => failure.help("`tenure session list` shows what there is"),
        }
    }

    /// A suggestion: the Task of this id in another session, or one with a similar id in this
    /// session.
    fn meant(&self, key: &TaskKey, entries: &[Entry]) -> Option<String> {
        let same_id = entries.iter().filter(|entry| entry.key.task_id == key.task_id);
        if let Some(entry) = same_id.min_by_key(|entry| &entry.key) {
            return Some(format!("session {} has one: {}", entry.key.session_id, entry.key));
        }
        let of_session = entries.iter().filter(|entry| entry.key.session_id == key.session_id);
        let names = of_session.map(|entry| entry.key.task_id.as_str());
        did_you_mean(key.task_id.as_str(), names).or_else(|| {
            (!entries.is_empty()).then(|| "`tenure task list --all` shows what there is".to_owned())
        })
    }
}

impl OfTask {
    /// Opens the place of the Task, and folds its log.
    pub(crate) fn load(&self) -> Result<(TaskReader, Loaded), Failure> {
        let data = TaskReader::open(&self.look.at)?;
        let loaded = data.load(&self.key()?)?;
        Ok((data, loaded))
    }
}

/// Whether this is the session of commands that name none, which may be without a Task.
pub(crate) fn is_default(session: &SessionId) -> bool {
    session.as_str() == "default"
}

/// The local caller in a session.
pub(crate) fn me(session: &SessionId) -> Result<Caller, Failure> {
    orchestrator(session.clone()).map_err(|error| Failure::caused(Exit::Usage, &error))
}

impl Loaded {
    /// The failure for a Step that does not exist.
    pub(crate) fn unknown_step(&self, id: &str) -> Failure {
        let message = format!("no step `{id}` in task {}", self.key);
        let refusal = Rejection::new(Code::StepNotFound, message).with("step_id", id);
        let failure = Failure::absent(refusal);
        let view = self.task.durable();
        match did_you_mean(id, view.steps().map(|step| step.id().as_str())) {
            Some(help) => failure.help(help),
            None => failure.help(format!("`tenure step list {}` shows its steps", self.key)),
        }
    }
}
