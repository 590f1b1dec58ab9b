//! [`BlobStore`], the port to the store of blobs: the bytes of values that are too large for a log
//! (VALUE-01).

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures::future::BoxFuture;
use smol_str::SmolStr;
use tenure_core::command::blobs::{blob_lost, check_blob_size};
use tenure_core::id::{BlobHash, Millis, SessionId};
use tenure_core::record::Blob;
use tenure_core::{Code, Limits, Rejection};
use tenure_wire::bus::blob::{BLOB_PART_MAX, BlobGet, BlobPart, BlobPut, BlobTaken};
use tenure_wire::bus::request::RawBytes;

use crate::journal::TaskKey;

/// How many bytes the blobs of a session may have unless a setting says otherwise: 10 GiB.
pub const SESSION_QUOTA: u64 = 10 << 30;

/// How many bytes of the quota a blob takes at least, as each costs its store an entry, however short it is.
pub const QUOTA_BYTES_MIN: u64 = 64 << 10;

/// The detail of a refusal that says where the next part of a blob begins.
pub const NEXT_OFFSET: &str = "next_offset";

/// A blob in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBlob {
    /// Its Task, which may not exist.
    pub task: TaskKey,
    /// The blob.
    pub blob: Blob,
    /// When it was put last.
    pub put_at: Millis,
}

/// Whether the blobs of a Task are asked for.
pub type TaskFilter = Box<dyn Fn(&TaskKey) -> bool + Send + Sync>;

/// Asks for the blobs of all Tasks.
pub fn every_task() -> TaskFilter {
    Box::new(|_| true)
}

/// How many bytes of the quota a blob of this size takes, so that the quota also bounds how many there are.
pub fn quota_bytes(size_bytes: u64) -> u64 {
    size_bytes.max(QUOTA_BYTES_MIN)
}

/// Why a call to a store of blobs failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// It has more bytes than a blob may have (VALUE-02).
    #[error("{}", .0.message)]
    TooLarge(Box<Rejection>),
    /// The bytes are not those of the blob that they were to be.
    #[error("the bytes are not those of {}", .0.reference())]
    OtherBytes(Blob),
    /// The blobs of the session would have more bytes than they may, as [`quota_bytes`] counts them.
    #[error("the blobs of session {session} have {used} bytes, and may have {most}")]
    Quota {
        /// The session.
        session: SessionId,
        /// How many bytes they have.
        used: u64,
        /// How many they may have.
        most: u64,
    },
    /// The store did not do it, and may do it another time.
    #[error("the blobs cannot be reached: {0}")]
    Failed(String),
}

impl BlobError {
    /// What every store checks before it writes a blob.
    ///
    /// # Errors
    /// The blob has more bytes than one may have, or these are not its bytes.
    pub fn check(blob: Blob, bytes: &[u8]) -> Result<(), Self> {
        check_blob_size(blob, &Limits::default()).map_err(|no| Self::TooLarge(Box::new(no)))?;
        if Blob::of(bytes) == blob { Ok(()) } else { Err(Self::OtherBytes(blob)) }
    }
}

impl From<BlobError> for Rejection {
    fn from(error: BlobError) -> Self {
        let message = error.to_string();
        match error {
            BlobError::TooLarge(refused) => *refused,
            BlobError::OtherBytes(blob) => {
                Self::invalid("data", message).with("ref", blob.reference().as_str())
            }
            BlobError::Quota { used, most, .. } => {
                Self::new(Code::QuotaExceeded, message).with("used", used).with("limit", most)
            }
            BlobError::Failed(_) => {
                Self::new(Code::StorageUnavailable, message).with("retry_after_ms", 1_000)
            }
        }
    }
}

/// A store of blobs. A blob belongs to one Task, and its key is the Task and its hash.
///
/// Every call may be repeated. The methods return boxed futures, so that a scheduler can hold any
/// store: a call moves far more than a box.
pub trait BlobStore: fmt::Debug + Send + Sync + 'static {
    /// Stores a blob. After `Ok` a crash cannot lose it; after an error it may be there or not, but never
    /// a part of it. A blob that is there is written anew, so that one that was damaged is whole again,
    /// and its `put_at` is now. Writes nothing if [`BlobError::check`] fails.
    fn put(
        &self,
        task: &TaskKey,
        blob: Blob,
        bytes: Arc<[u8]>,
    ) -> BoxFuture<'_, Result<(), BlobError>>;

    /// Reads a blob. `None` if it is not there, or what is there has another hash.
    fn get(
        &self,
        task: &TaskKey,
        hash: BlobHash,
    ) -> BoxFuture<'_, Result<Option<Arc<[u8]>>, BlobError>>;

    /// How many bytes a blob has; `None` if it is not there. What was put before the call is found.
    fn stat(&self, task: &TaskKey, hash: BlobHash)
    -> BoxFuture<'_, Result<Option<u64>, BlobError>>;

    /// The blobs of the Tasks that are asked for, of all sessions or of one, in any order. Of other Tasks no
    /// more is read than their names.
    fn list(
        &self,
        session: Option<&SessionId>,
        is_asked: TaskFilter,
    ) -> BoxFuture<'_, Result<Vec<StoredBlob>, BlobError>>;

    /// Removes a blob, if it is there.
    fn delete(&self, task: &TaskKey, hash: BlobHash) -> BoxFuture<'_, Result<(), BlobError>>;
}

/// Reads a whole blob from whoever gives parts of it.
///
/// # Errors
/// Those of the parts; `blob_missing` if together they are not the blob.
pub async fn get_whole<F: Future<Output = Result<BlobPart, Rejection>>>(
    hash: BlobHash,
    part: impl Fn(BlobGet) -> F,
) -> Result<Arc<[u8]>, Rejection> {
    let mut bytes = Vec::new();
    loop {
        let offset = bytes.len() as u64;
        let BlobPart { data, next_offset, .. } =
            part(BlobGet { reference: Blob::reference_to(hash), offset }).await?;
        bytes.extend(data.0);
        let reached = bytes.len() as u64;
        if next_offset != Some(reached) || reached == offset {
            break;
        }
    }
    if Blob::of(&bytes).hash == hash { Ok(bytes.into()) } else { Err(blob_lost(hash)) }
}

/// Brings a whole blob to whoever takes parts of it.
///
/// # Errors
/// Those of the parts; `unavailable` if the parts get lost on the way again and again.
pub async fn put_whole<F: Future<Output = Result<BlobTaken, Rejection>>>(
    blob: Blob,
    bytes: &[u8],
    part: impl Fn(BlobPut) -> F,
) -> Result<(), Rejection> {
    let (mut from, digest) = (0_usize, SmolStr::from(blob.digest()));
    // Another node that takes the partition begins anew with the first part.
    let most = 4 * (bytes.len() / BLOB_PART_MAX + 1);
    for _ in 0..most {
        let rest = bytes.get(from..).unwrap_or_default();
        let data = RawBytes(rest[..rest.len().min(BLOB_PART_MAX)].to_vec());
        let (digest, offset, size_bytes) = (digest.clone(), from as u64, blob.size_bytes);
        let next = match part(BlobPut { data, digest, offset, size_bytes }).await {
            Ok(BlobTaken { reference: Some(_), .. }) => return Ok(()),
            Ok(BlobTaken { next_offset, .. }) => next_offset,
            Err(refused) => match refused.details.get(NEXT_OFFSET).and_then(|it| it.as_u64()) {
                Some(next) => Some(next),
                None => return Err(refused),
            },
        };
        from = next.and_then(|next| usize::try_from(next).ok()).unwrap_or(0);
    }
    Err(Rejection::new(Code::Unavailable, "the parts of a blob do not come together"))
}
