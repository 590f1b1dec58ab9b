//! Blobs on the bus (VALUE-01): their bytes go in parts, through the owner of the Task's partition.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use tenure_core::command::Operator;
use tenure_core::command::blobs::BlobHolder;
use tenure_core::id::{AttemptId, Ref, RunId, SessionId, TaskId};
use tenure_core::record::Blob;
use tenure_core::{Code, Query, Rejection};

use super::V;
use super::request::RawBytes;

/// The most bytes of a blob that a message carries.
pub const BLOB_PART_MAX: usize = 512 << 10;

/// Reads a part of a blob of the Task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlobGet {
    /// The ref of the blob.
    #[serde(rename = "ref")]
    pub reference: Ref,
    /// The part begins at this byte.
    #[serde(default)]
    pub offset: u64,
}

/// A part of a blob, of at most 512 KiB.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlobPart {
    /// The bytes of the part.
    pub data: RawBytes,
    /// How many bytes the whole blob has.
    pub size_bytes: u64,
    /// Where the next part begins, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<u64>,
}

/// Brings a part of a blob of the Task. The blob is stored when its last part has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlobPut {
    /// The bytes of the part, at most 512 KiB.
    pub data: RawBytes,
    /// The digest of the whole blob: `sha256:<hex>`.
    pub digest: SmolStr,
    /// The part begins at this byte.
    #[serde(default)]
    pub offset: u64,
    /// How many bytes the whole blob has.
    pub size_bytes: u64,
}

/// What the owner has of a blob that is being put.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlobTaken {
    /// Where the next part begins, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<u64>,
    /// The ref of the blob, if it is stored.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<Ref>,
}

/// The requests for blobs of a worker, to the owner of a partition (`blob.<partition>`): for an Attempt
/// that it holds, it gets what its claim carries, and puts what its report is to name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeldBlob {
    /// The version.
    pub v: V,
    /// The session.
    pub session_id: SessionId,
    /// The Task.
    pub task_id: TaskId,
    /// The Run.
    pub run_id: RunId,
    /// The Attempt.
    pub attempt_id: AttemptId,
    /// Its token.
    pub fencing_token: u64,
    /// What it asks.
    pub ask: BlobAsk,
}

/// A request for a blob.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "operation", content = "input", rename_all = "snake_case")]
pub enum BlobAsk {
    /// The answer is a [`BlobPart`].
    BlobGet(BlobGet),
    /// The answer is [`BlobTaken`].
    BlobPut(BlobPut),
}

/// The answer to a worker's request for a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum BlobAnswer {
    /// A part.
    Part(BlobPart),
    /// What the owner has.
    Taken(BlobTaken),
}

impl HeldBlob {
    /// The Attempt, as the owner checks it.
    pub fn holder(&self) -> BlobHolder {
        BlobHolder { attempt_id: self.attempt_id, fencing_token: self.fencing_token }
    }
}

impl BlobPut {
    /// The blob of which this is a part.
    ///
    /// # Errors
    /// `validation_error`: the digest has another form, or the part is too long or not inside the blob.
    pub fn blob(&self) -> Result<Blob, Rejection> {
        let hash = Blob::hash_of_digest(&self.digest).ok_or_else(|| {
            Rejection::invalid("digest", "a digest is `sha256:` and 64 hex digits")
        })?;
        let blob = Blob { hash, size_bytes: self.size_bytes };
        let length = self.data.0.len();
        if length > BLOB_PART_MAX {
            let message = format!("a part has {length} bytes; at most {BLOB_PART_MAX}");
            return Err(Rejection::invalid("data", message).with("limit", BLOB_PART_MAX));
        }
        if self.offset.checked_add(length as u64).is_none_or(|end| end > self.size_bytes) {
            let message = format!("the part goes beyond the {} bytes of the blob", self.size_bytes);
            return Err(Rejection::invalid("data", message));
        }
        Ok(blob)
    }
}

/// The hash in the ref of a blob.
///
/// # Errors
/// `validation_error`
pub fn hash_in(reference: &Ref) -> Result<tenure_core::id::BlobHash, Rejection> {
    Blob::hash_in(reference.as_str()).ok_or_else(|| {
        let message =
            format!("{} and 64 hex digits in lower case are the ref of a blob", Blob::PREFIX);
        Rejection::invalid("ref", message)
    })
}

impl Query for BlobGet {
    const NAME: &'static str = "blob_get";
    const TOOL: Operator = Operator::BlobGet;
    const REFUSALS: &'static [Code] = Operator::BlobGet.own_refusals();
    type Output = BlobPart;
}

/// It changes no Task, and may be repeated: the same bytes are the same blob.
impl Query for BlobPut {
    const NAME: &'static str = "blob_put";
    const TOOL: Operator = Operator::BlobPut;
    const REFUSALS: &'static [Code] = Operator::BlobPut.own_refusals();
    type Output = BlobTaken;
}
