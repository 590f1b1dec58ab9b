//! [`FileBlobs`], the blobs of an embedded scheduler: `<data>/blobs/<session>/<task>/<hash>`, never in a
//! session's folder of logs.
//!
//! A blob is written under another name, made durable, and only then gets its name, so that a file with
//! the name of a blob is whole, unless the disk has damaged it.
//!
//! Nothing is read, written or deleted through a link at any of these levels: a data directory may come from
//! elsewhere, and a link in it could name any directory of the user.

use std::collections::HashMap;
use std::fs::{self, DirEntry, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tenure_core::Limits;
use tenure_core::id::{BlobHash, Millis, SessionId, TaskId};
use tenure_core::record::Blob;
use tenure_ports::blobs::{BlobError, BlobStore, StoredBlob, TaskFilter, every_task, quota_bytes};
use tenure_ports::journal::TaskKey;

use crate::regular::{OWN_FILE, bytes_of, check_real_dir, make_real_dir};
use tokio::task::spawn_blocking;

/// What follows the name of a blob while it is written.
const DRAFT: &str = ".new";

/// How long a draft may be written.
const DRAFT_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Blobs in the files of a data directory.
#[derive(Debug, Clone)]
pub struct FileBlobs(Arc<Files>);

#[derive(Debug)]
struct Files {
    root: PathBuf,
    /// How many bytes the blobs of a session may have, as [`quota_bytes`] counts them.
    quota: u64,
    /// How many they have, of the sessions that somebody has put blobs in.
    used: Mutex<HashMap<SessionId, u64>>,
    /// Numbers the drafts of this process.
    drafts: AtomicU64,
}

impl FileBlobs {
    /// The blobs in a data directory, of which each session may have so many bytes. No file is touched
    /// before the first call, and the directory must be there before the first blob is put.
    pub fn open(data: &Path, quota: u64) -> Self {
        let (root, used, drafts) = (data.join("blobs"), Mutex::default(), AtomicU64::new(0));
        Self(Arc::new(Files { root, quota, used, drafts }))
    }

    /// Runs file calls on a thread that may block.
    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Files) -> Result<T, BlobError> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, BlobError>> {
        let files = Arc::clone(&self.0);
        Box::pin(async move {
            let done = spawn_blocking(move || work(&files)).await;
            done.unwrap_or_else(|error| Err(BlobError::Failed(error.to_string())))
        })
    }
}

impl BlobStore for FileBlobs {
    fn put(
        &self,
        task: &TaskKey,
        blob: Blob,
        bytes: Arc<[u8]>,
    ) -> BoxFuture<'_, Result<(), BlobError>> {
        let task = task.clone();
        self.call(move |files| files.put(&task, blob, &bytes))
    }

    fn get(
        &self,
        task: &TaskKey,
        hash: BlobHash,
    ) -> BoxFuture<'_, Result<Option<Arc<[u8]>>, BlobError>> {
        let task = task.clone();
        self.call(move |files| files.get(&task, hash))
    }

    fn stat(
        &self,
        task: &TaskKey,
        hash: BlobHash,
    ) -> BoxFuture<'_, Result<Option<u64>, BlobError>> {
        let task = task.clone();
        self.call(move |files| files.size_of(&task, hash))
    }

    fn list(
        &self,
        session: Option<&SessionId>,
        is_asked: TaskFilter,
    ) -> BoxFuture<'_, Result<Vec<StoredBlob>, BlobError>> {
        let session = session.cloned();
        self.call(move |files| files.list(session.as_ref(), &is_asked))
    }

    fn delete(&self, task: &TaskKey, hash: BlobHash) -> BoxFuture<'_, Result<(), BlobError>> {
        let task = task.clone();
        self.call(move |files| files.delete(&task, hash))
    }
}

impl Files {
    /// The directories that a blob of a Task is in, from the outermost one.
    fn dirs(&self, task: &TaskKey) -> [PathBuf; 3] {
        let session = self.root.join(task.session_id.as_str());
        let dir = session.join(task.task_id.as_str());
        [self.root.clone(), session, dir]
    }

    fn dir(&self, task: &TaskKey) -> PathBuf {
        let [_, _, dir] = self.dirs(task);
        dir
    }

    /// Makes sure that no link leads away from the place of the blobs of a Task. The error is `NotFound` if they
    /// have none yet.
    fn check_dirs(&self, task: &TaskKey) -> io::Result<()> {
        self.dirs(task).iter().try_for_each(|dir| check_real_dir(dir))
    }

    /// Makes the directories for the blobs of a Task, and makes their names durable.
    fn make_dirs(&self, task: &TaskKey) -> io::Result<()> {
        for dir in self.dirs(task) {
            if make_real_dir(&dir)? {
                dir.parent().map_or(Ok(()), sync_dir)?;
            }
        }
        Ok(())
    }

    /// The size of a blob, if it is there.
    fn size_of(&self, task: &TaskKey, hash: BlobHash) -> Result<Option<u64>, BlobError> {
        let path = self.path(task, hash);
        match self.check_dirs(task).and_then(|()| fs::symlink_metadata(&path)) {
            Ok(found) => Ok(Some(found.len())),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(failed("read", &path, &error)),
        }
    }

    fn path(&self, task: &TaskKey, hash: BlobHash) -> PathBuf {
        self.dir(task).join(hash.to_string())
    }

    fn get(&self, task: &TaskKey, hash: BlobHash) -> Result<Option<Arc<[u8]>>, BlobError> {
        let (path, most) = (self.path(task, hash), Limits::default().blob_bytes_max);
        let fault = match self.check_dirs(task).and_then(|()| bytes_of(&path, most)) {
            Ok(bytes) if Blob::of(&bytes).hash == hash => return Ok(Some(bytes.into())),
            Ok(_) => "it has another hash".to_owned(),
            Err(error) if error.kind() == ErrorKind::FileTooLarge => error.to_string(),
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(failed("read", &path, &error)),
        };
        tracing::error!(path = %path.display(), "a blob is damaged: {fault}");
        Ok(None)
    }

    fn put(&self, task: &TaskKey, blob: Blob, bytes: &[u8]) -> Result<(), BlobError> {
        BlobError::check(blob, bytes)?;
        let path = self.path(task, blob.hash);
        let there = self.size_of(task, blob.hash)?.map_or(0, quota_bytes);
        let grows = quota_bytes(blob.size_bytes).saturating_sub(there);
        self.reserve(&task.session_id, grows)?;
        let written = self.write(task, &path, bytes);
        written.map_err(|error| {
            self.free(&task.session_id, grows);
            failed("write", &path, &error)
        })
    }

    fn write(&self, task: &TaskKey, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.make_dirs(task)?;
        let number = self.drafts.fetch_add(1, Ordering::Relaxed);
        let draft = path.with_extension(format!("{}-{number}{DRAFT}", std::process::id()));
        let written = write_durably(&draft, bytes).and_then(|()| fs::rename(&draft, path));
        if let Err(error) = written {
            let _ = fs::remove_file(&draft); // One that stays goes with the next list.
            return Err(error);
        }
        sync_dir(&self.dir(task))
    }

    /// Counts bytes that come, unless they are too many.
    fn reserve(&self, session: &SessionId, bytes: u64) -> Result<(), BlobError> {
        let mut used = self.used.lock();
        let known = match used.get(session) {
            Some(known) => *known,
            None => {
                let stored = self.list(Some(session), &every_task())?;
                stored.iter().map(|one| quota_bytes(one.blob.size_bytes)).sum()
            }
        };
        let would_be = known.saturating_add(bytes);
        let is_over = bytes > 0 && would_be > self.quota;
        used.insert(session.clone(), if is_over { known } else { would_be });
        match is_over {
            true => {
                let (session, most) = (session.clone(), self.quota);
                Err(BlobError::Quota { session, used: known, most })
            }
            false => Ok(()),
        }
    }

    fn free(&self, session: &SessionId, bytes: u64) {
        if let Some(used) = self.used.lock().get_mut(session) {
            *used = used.saturating_sub(bytes);
        }
    }

    fn list(
        &self,
        session: Option<&SessionId>,
        is_asked: &TaskFilter,
    ) -> Result<Vec<StoredBlob>, BlobError> {
        let is_of = |id: &SessionId| session.is_none_or(|session| session == id);
        let sessions = dir_names(&self.root, |name| SessionId::new(name).ok().filter(is_of))?;
        let mut all = Vec::new();
        for session_id in sessions {
            let dir = self.root.join(session_id.as_str());
            for task_id in dir_names(&dir, |name| TaskId::new(name).ok())? {
                let task = TaskKey { session_id: session_id.clone(), task_id };
                if !is_asked(&task) {
                    continue;
                }
                let dir = self.dir(&task);
                drop_drafts(&dir)?;
                for hash in names(&dir, BlobHash::from_hex)? {
                    let path = self.path(&task, hash);
                    let (size_bytes, put_at) = match fs::symlink_metadata(&path) {
                        Ok(found) => (found.len(), put_at(&found)),
                        Err(error) if is_absent(&error) => continue, // It was deleted just now.
                        Err(error) => return Err(failed("read", &path, &error)),
                    };
                    let blob = Blob { hash, size_bytes };
                    all.push(StoredBlob { task: task.clone(), blob, put_at });
                }
            }
        }
        Ok(all)
    }

    fn delete(&self, task: &TaskKey, hash: BlobHash) -> Result<(), BlobError> {
        let path = self.path(task, hash);
        let Some(size) = self.size_of(task, hash)? else { return Ok(()) };
        match fs::remove_file(&path) {
            Ok(()) => self.free(&task.session_id, quota_bytes(size)),
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(failed("remove", &path, &error)),
        }
        // The last blob takes the directory along; a put that comes just now makes it again.
        let _ = fs::remove_dir(self.dir(task));
        Ok(())
    }
}

/// Removes drafts that a process left when it died: nobody writes one for so long.
fn drop_drafts(dir: &Path) -> Result<(), BlobError> {
    let draft = |name: &str| name.ends_with(DRAFT).then(|| dir.join(name));
    for path in names(dir, draft)? {
        let modified = fs::symlink_metadata(&path).and_then(|found| found.modified());
        if modified.is_ok_and(|at| at.elapsed().is_ok_and(|since| since > DRAFT_KEPT)) {
            let _ = fs::remove_file(&path); // The next list tries again.
        }
    }
    Ok(())
}

fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(OWN_FILE).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn put_at(found: &fs::Metadata) -> Millis {
    let since = found.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| Millis::try_from(since.as_millis()).ok()).unwrap_or(0)
}

/// The directories in a directory whose names have a form. Links to directories are left out.
fn dir_names<T>(dir: &Path, read: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, BlobError> {
    names(dir, |name| read(name).filter(|_| check_real_dir(&dir.join(name)).is_ok()))
}

/// The entries of a directory whose names have a form.
fn names<T>(dir: &Path, read: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, BlobError> {
    let entries = match check_real_dir(dir).and_then(|()| fs::read_dir(dir)) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(failed("read", dir, &error)),
    };
    let name = |entry: io::Result<DirEntry>| match entry {
        Ok(entry) => entry.file_name().to_str().and_then(&read).map(Ok),
        Err(error) => Some(Err(failed("read", dir, &error))),
    };
    entries.filter_map(name).collect()
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

fn failed(action: &str, path: &Path, error: &io::Error) -> BlobError {
    BlobError::Failed(format!("cannot {action} {}: {error}", path.display()))
}
