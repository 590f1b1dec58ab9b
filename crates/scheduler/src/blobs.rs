//! Blobs, through the owner of their Task (VALUE-01): it checks who asks, puts parts together, looks up
//! what a request names before the request is decided, and sweeps what no log names.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smol_str::SmolStr;
use tenure_core::command::blobs::{
    BlobHolder, blob_lost, blob_missing, check_blob, check_blob_size, no_blob_task,
};
use tenure_core::command::{Operator, check_session, check_tool};
use tenure_core::id::{AgentId, BlobHash, Millis};
use tenure_core::record::Blob;
use tenure_core::status::Role;
use tenure_core::{Caller, Code, Commit, Rejection};
use tenure_ports::blobs::{BlobStore, NEXT_OFFSET, StoredBlob, TaskFilter};
use tenure_ports::journal::TaskKey;
use tenure_ports::{Journal, Leases};
use tenure_wire::bus::blob::{BLOB_PART_MAX, BlobGet, BlobPart, BlobPut, BlobTaken, hash_in};
use tenure_wire::bus::request::RawBytes;
use tenure_wire::stored::encode;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::fair::principal;
use crate::handle::Scheduler;
use crate::node::NodeShared;
use crate::task::open::unreadable;

/// How many bytes the blobs may have in all that are being put here. Of these one principal has three times as many as
/// are left to others, at most, so that these always find some.
const TAKEN_BYTES_MAX: u64 = 128 << 20;

/// Each counts as so many at least: what is shorter need not come in parts.
const TAKEN_BYTES_MIN: u64 = BLOB_PART_MAX as u64;

/// How long the owner waits for the next part of a blob.
const TAKEN_FOR: Duration = Duration::from_secs(60);

/// How often the owner looks for blobs that nobody needs.
const SWEPT_EVERY: Duration = Duration::from_secs(60 * 60);

/// How long a blob stays that is of no Task, in milliseconds: the Task may be created yet.
const KEPT_MS: Millis = 24 * 60 * 60 * 1_000;

/// Blobs of which the first parts have come.
#[derive(Debug, Default)]
pub(crate) struct BlobsTaken(Mutex<HashMap<(TaskKey, Blob, AgentId), TakenParts>>);

#[derive(Debug)]
struct TakenParts {
    /// Whose they are, whichever boot of it puts them.
    principal: SmolStr,
    bytes: Vec<u8>,
    since: Instant,
}

impl BlobsTaken {
    /// Takes a part in. Answers the whole blob, or where the next part begins.
    fn take(
        &self,
        whose: (TaskKey, Blob, AgentId),
        principal: &str,
        part: BlobPut,
    ) -> Result<Result<Vec<u8>, u64>, Rejection> {
        let (offset, data, size) = (part.offset, part.data.0, part.size_bytes);
        let is_whole = offset == 0 && data.len() as u64 == size;
        let mut all = self.0.lock();
        all.retain(|_, taken| taken.since.elapsed() < TAKEN_FOR);
        let before = all.remove(&whose);
        let has_place = is_whole || before.is_some() || has_room(&all, &whose.1, principal);
        let mut taken = match before {
            Some(taken) if offset > 0 => taken.bytes,
            _ => Vec::new(),
        };
        let here = taken.len() as u64;
        if !has_place {
            return Err(crate::handle::overloaded());
        }
        let goes_on = offset == here;
        if goes_on {
            taken.extend(data);
        }
        let next = taken.len() as u64;
        if goes_on && next == size {
            return Ok(Ok(taken));
        }
        if next > 0 {
            let principal = principal.into();
            all.insert(whose, TakenParts { principal, bytes: taken, since: Instant::now() });
        }
        if goes_on {
            return Ok(Err(next));
        }
        let message = format!("{here} bytes are here, and the part begins at byte {offset}");
        Err(Rejection::invalid("offset", message).with(NEXT_OFFSET, here))
    }
}

/// Whether there is room for one more blob, whose principal must leave some to others.
fn has_room(
    all: &HashMap<(TaskKey, Blob, AgentId), TakenParts>,
    blob: &Blob,
    principal: &str,
) -> bool {
    let bytes = |blob: &Blob| blob.size_bytes.max(TAKEN_BYTES_MIN);
    let (mut taken, mut own) = (0_u64, 0_u64);
    for ((_, blob, _), parts) in all {
        taken += bytes(blob);
        own += if parts.principal == principal { bytes(blob) } else { 0 };
    }
    let left = TAKEN_BYTES_MAX.saturating_sub(taken).checked_sub(bytes(blob));
    left.is_some_and(|left| own == 0 || own + bytes(blob) <= 3 * left)
}

impl<J: Journal, L: Leases> Scheduler<J, L> {
    fn blobs(&self) -> Result<&Arc<dyn BlobStore>, Rejection> {
        self.node.config.blobs.as_ref().ok_or_else(|| {
            let message = "this scheduler stores no blobs, so values stay below the inline limit";
            Rejection::new(Code::ToolNotAvailable, message)
        })
    }

    /// A part of a blob of a Task.
    ///
    /// # Errors
    /// `blob_missing`, or the caller may not read it.
    pub(crate) async fn blob_part(
        &self,
        caller: &Caller,
        key: &TaskKey,
        holder: Option<BlobHolder>,
        asked: BlobGet,
    ) -> Result<BlobPart, Rejection> {
        check_tool(caller, Operator::BlobGet)?;
        check_session(caller, &key.session_id)?;
        let hash = hash_in(&asked.reference)?;
        let who = caller.clone();
        let judged = self.read(key, move |task| task.check_blob_get(&who, holder, hash)).await;
        judged.map_err(|refused| no_blob_task(caller, holder, refused))??;
        let place = (key.clone(), hash);
        let bytes = match self.node.read_blobs.take(&place) {
            Some(bytes) => bytes,
            None => self.blobs()?.get(key, hash).await?.ok_or_else(|| blob_lost(hash))?,
        };
        let size_bytes = bytes.len() as u64;
        let rest = usize::try_from(asked.offset).ok().and_then(|from| bytes.get(from..));
        let rest = rest.unwrap_or_default();
        let data = RawBytes(rest[..rest.len().min(BLOB_PART_MAX)].to_vec());
        let has_more = data.0.len() < rest.len();
        let next_offset = has_more.then_some(asked.offset + data.0.len() as u64);
        if has_more {
            self.node.read_blobs.put(place, bytes, 0, size_bytes); // For the next part.
        }
        Ok(BlobPart { data, size_bytes, next_offset })
    }

    /// Takes a part of a blob, and stores the blob when all parts have come.
    ///
    /// # Errors
    /// The caller may not put it, it is not what its ref says, or it cannot be stored.
    pub(crate) async fn take_blob_part(
        &self,
        caller: &Caller,
        key: &TaskKey,
        holder: Option<BlobHolder>,
        part: BlobPut,
    ) -> Result<BlobTaken, Rejection> {
        check_tool(caller, Operator::BlobPut)?;
        check_session(caller, &key.session_id)?;
        let limits = &self.node.config.limits;
        let blob = part.blob()?;
        check_blob_size(blob, limits)?;
        let store = self.blobs()?;
        let who = caller.clone();
        match self.read(key, move |task| task.check_blob_put(&who, holder)).await {
            Ok(judged) => judged?,
            // A publisher puts the blobs of a Task before it creates the Task.
            Err(no) if no.code == Code::TaskNotFound && caller.role == Role::Orchestrator => {}
            Err(refused) => return Err(no_blob_task(caller, holder, refused)),
        }
        let stored = BlobTaken { next_offset: None, reference: Some(blob.reference()) };
        let is_first = part.offset == 0 && (part.data.0.len() as u64) < blob.size_bytes;
        if is_first && store.get(key, blob.hash).await?.is_some() {
            return Ok(stored); // What is there, and is whole, need not come again.
        }
        let whose = (key.clone(), blob, caller.agent.clone());
        match self.node.taken_blobs.take(whose, principal(caller), part)? {
            Err(next) => Ok(BlobTaken { next_offset: Some(next), reference: None }),
            Ok(bytes) => {
                check_blob(blob, &bytes, limits)?;
                store.put(key, blob, bytes.into()).await?;
                Ok(stored)
            }
        }
    }

    /// VALUE-01: refuses what names a blob that is not there, before an event can name it.
    ///
    /// # Errors
    /// `blob_missing`; the store cannot be asked.
    pub async fn check_blobs(&self, key: &TaskKey, blobs: Vec<Blob>) -> Result<(), Rejection> {
        for blob in blobs {
            if check_blob_size(blob, &self.node.config.limits).is_err() {
                continue; // The core says so, with the name of the field.
            }
            if self.blobs()?.stat(key, blob.hash).await? != Some(blob.size_bytes) {
                return Err(blob_missing(blob));
            }
        }
        Ok(())
    }

    /// RETRY-12: a Task that is made again has its own copies of the blobs that it names.
    pub(crate) async fn copy_blobs(
        &self,
        from: &TaskKey,
        to: &TaskKey,
        blobs: Vec<Blob>,
    ) -> Result<(), Rejection> {
        for blob in blobs {
            let store = self.blobs()?;
            let bytes = store.get(from, blob.hash).await?.ok_or_else(|| blob_missing(blob))?;
            store.put(to, blob, bytes).await?;
        }
        Ok(())
    }

    /// Deletes the blobs of this node's Tasks that nobody needs: those that the log of an ended Task does
    /// not name, and those whose Task does not exist a day after they were put. Answers how many.
    ///
    /// # Errors
    /// The store or a log cannot be read; what was deleted until then stays so.
    pub async fn sweep_blobs(&self) -> Result<usize, Rejection> {
        sweep(&self.node, &mut HashMap::new()).await
    }
}

/// Sweeps from time to time, if the node stores blobs.
pub(crate) fn keep_sweeping<J: Journal, L: Leases>(
    node: &Arc<NodeShared<J, L>>,
) -> Option<JoinHandle<()>> {
    node.config.blobs.as_ref()?;
    let node = Arc::downgrade(node);
    Some(tokio::spawn(async move {
        let mut swept = HashMap::new();
        loop {
            tokio::time::sleep(SWEPT_EVERY).await;
            let Some(node) = node.upgrade() else { return };
            match sweep(&node, &mut swept).await {
                Ok(0) => {}
                Ok(count) => tracing::info!(count, "blobs that no task names were deleted"),
                Err(error) => tracing::warn!(%error, "blobs could not be swept; tried again later"),
            }
        }
    }))
}

/// `swept` has the ended Tasks whose logs were read before, with how many blobs each has: a log that has
/// ended names no others later.
async fn sweep<J: Journal, L: Leases>(
    node: &NodeShared<J, L>,
    swept: &mut HashMap<TaskKey, usize>,
) -> Result<usize, Rejection> {
    let Some(store) = &node.config.blobs else { return Ok(0) };
    let mut of_tasks: HashMap<TaskKey, Vec<StoredBlob>> = HashMap::new();
    let journal = Arc::clone(&node.journal);
    let is_own: TaskFilter = Box::new(move |task| journal.epoch(task).is_some());
    for stored in store.list(None, is_own).await? {
        of_tasks.entry(stored.task.clone()).or_default().push(stored);
    }
    swept.retain(|task, _| of_tasks.contains_key(task));
    let mut count = 0;
    for (task, mut blobs) in of_tasks {
        match node.journal.entry(&task).await.map_err(|error| unreadable(&error))? {
            None => {
                let now = node.clock.now();
                blobs.retain(|stored| now.saturating_sub(stored.put_at) > KEPT_MS);
            }
            Some(entry) if entry.ended.is_none() || entry.damaged => continue,
            Some(_) if swept.get(&task) == Some(&blobs.len()) => continue,
            Some(_) => {
                let named = named_by_log(&*node.journal, &task).await?;
                let all = blobs.len();
                blobs.retain(|stored| !named.contains(&stored.blob.hash));
                swept.insert(task.clone(), all - blobs.len());
            }
        }
        for stored in blobs {
            store.delete(&task, stored.blob.hash).await?;
            count += 1;
        }
    }
    Ok(count)
}

/// The hashes of all blobs that the log of a Task names.
///
/// # Errors
/// The log cannot be read.
pub async fn named_by_log<J: Journal>(
    journal: &J,
    key: &TaskKey,
) -> Result<BTreeSet<BlobHash>, Rejection> {
    let named: Arc<Mutex<Result<BTreeSet<BlobHash>, String>>> =
        Arc::new(Mutex::new(Ok(BTreeSet::new())));
    let into = Arc::clone(&named);
    let (session, task) = (key.session_id.clone(), key.task_id.clone());
    let each = move |commit: Commit| {
        let mut lines = Vec::new();
        let written = encode(&commit, &session, &task, &mut lines);
        let mut slot = into.lock();
        match (&mut *slot, written) {
            (Ok(named), Ok(())) => {
                named.extend(Blob::hashes_in(&lines));
                ControlFlow::Continue(())
            }
            (slot, Err(error)) => {
                *slot = Err(error.to_string());
                ControlFlow::Break(())
            }
            (Err(_), Ok(())) => ControlFlow::Break(()),
        }
    };
    journal.read(key, 0, each).await.map_err(|error| unreadable(&error))?;
    let named = std::mem::replace(&mut *named.lock(), Ok(BTreeSet::new()));
    named.map_err(|error| Rejection::new(Code::StorageError, error))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test that cannot go on has failed.
mod tests {
    use super::*;

    fn part(data: &[u8], offset: u64, size_bytes: u64) -> BlobPut {
        BlobPut { data: RawBytes(data.to_vec()), digest: "".into(), offset, size_bytes }
    }

    fn begun(all: &BlobsTaken, who: &str, size: u64) -> Result<(), Code> {
        let task_id = format!("t{}", all.0.lock().len()).parse().unwrap();
        let key = TaskKey { session_id: who.parse().unwrap(), task_id };
        let blob = Blob { hash: BlobHash([7; 32]), size_bytes: size };
        let whose = (key, blob, who.parse().unwrap());
        all.take(whose, who, part(&[1], 0, size))
            .map(|taken| assert_eq!(taken, Err(1)))
            .map_err(|no| no.code)
    }

    /// VALUE-01, mechanisms 15: who begins blobs and goes on with none leaves room to others, and what is short counts
    /// as much as a part. A blob that comes in one part needs no room.
    #[test]
    fn nobody_takes_the_room_of_others_for_blobs() {
        for size in [16 << 20, 2] {
            let all = BlobsTaken::default();
            let most = TAKEN_BYTES_MAX / size.max(TAKEN_BYTES_MIN);
            let taken = (0..most + 9).filter(|_| begun(&all, "eve", size).is_ok()).count() as u64;
            assert_eq!(taken, most * 3 / 4);
            assert_eq!(begun(&all, "eve", size), Err(Code::Unavailable));
            begun(&all, "bob", 16 << 20).unwrap();
            assert!(begun(&all, "ann", 8 << 20).is_ok() && begun(&all, "bob", 16 << 20).is_err());
        }
    }

    /// A blob that was begun goes on, whatever others begin meanwhile.
    #[test]
    fn what_was_begun_goes_on() {
        let all = BlobsTaken::default();
        let bytes = [b"ab".repeat(8), b"cd".repeat(8)];
        let put = |bytes: &[u8], from: usize, to: usize| {
            let (session_id, task_id) = ("bob".parse().unwrap(), "t".parse().unwrap());
            let blob = Blob { hash: BlobHash([bytes[0]; 32]), size_bytes: bytes.len() as u64 };
            let whose = (TaskKey { session_id, task_id }, blob, "bob".parse().unwrap());
            all.take(whose, "bob", part(&bytes[from..to], from as u64, blob.size_bytes))
        };
        bytes.iter().for_each(|bytes| assert_eq!(put(bytes, 0, 3).unwrap(), Err(3)));
        for who in (0..20).map(|n| format!("p{n}")) {
            while begun(&all, &who, 16 << 20).is_ok() {}
            while begun(&all, &who, 2).is_ok() {}
        }
        assert_eq!(put(b"more of it", 0, 3).unwrap_err().code, Code::Unavailable);
        assert_eq!(put(b"at once", 0, 7).unwrap(), Ok(b"at once".to_vec()));
        bytes.iter().for_each(|bytes| assert_eq!(put(bytes, 3, 16).unwrap(), Ok(bytes.clone())));
    }
}
