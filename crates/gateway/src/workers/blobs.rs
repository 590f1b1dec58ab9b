//! Large values of workers: the bytes of blobs, for an Attempt that the worker holds (VALUE-01).
//!
//! On the bus blobs go in parts. Here they go whole, and the gateway has one part of each in memory; or
//! in parts as well, from a worker that has them so.

use std::sync::Arc;

use axum::body::{Body, BodyDataStream};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures::stream::{self, Stream, StreamExt as _};
use smol_str::SmolStr;
use tenure_core::id::Ref;
use tenure_core::record::Blob;
use tenure_core::{Code, Limits, Rejection};
use tenure_ports::blobs::NEXT_OFFSET;
use tenure_ports::bus::{Holding, WorkerPort};
use tenure_ports::journal::TaskKey;
use tenure_wire::bus::blob::{BLOB_PART_MAX, BlobGet, BlobPart, BlobPut, BlobTaken};
use tenure_wire::bus::request::RawBytes;

use super::asked::{AtLink, needed};
use super::link::{HttpLink, in_time};
use crate::api::{bytes_reply, json_reply};
use crate::backend::Backend;
use crate::problem::HttpProblem;

/// How many bytes of a blob an answer has at a time at most: those of the part that is sent, and of the next one.
const HELD_BYTES: usize = 2 * BLOB_PART_MAX;

/// The Attempt for which a blob goes: its ids stand in the query string.
fn holder<B: Backend>(at: &mut AtLink<B>) -> Result<Holding, HttpProblem> {
    let attempt_id = at.attempt_id()?;
    let query = at.query();
    let (session_id, task_id) = (needed(query, "session_id")?, needed(query, "task_id")?);
    let (run_id, fencing_token) = (needed(query, "run_id")?, needed(query, "fencing_token")?);
    query.end()?;
    let task = TaskKey { session_id, task_id };
    Ok(Holding { task, run_id, attempt_id, fencing_token, lease_ms: 0, input_seen: None })
}

fn reference<B: Backend>(at: &AtLink<B>) -> Result<Ref, Rejection> {
    let hash = Blob::hash_of_digest(at.digest());
    let form = || Rejection::invalid("digest", "a digest is `sha256:` and 64 hex digits");
    Ok(Blob::reference_to(hash.ok_or_else(form)?))
}

/// `GET …/attempts/{attempt_id}/blobs/{digest}`
pub(super) async fn get<B: Backend>(mut at: AtLink<B>) -> Result<Response, HttpProblem> {
    let (held, reference) = (holder(&mut at)?, reference(&at)?);
    at.link.touch();
    let taken = at.answers().take(HELD_BYTES)?;
    let first = part(&at.link, &held, &reference, 0).await?;
    let size = first.size_bytes;
    if first.next_offset.is_none() {
        taken.shrink(first.data.0.len());
    }
    let parts = parts(Arc::clone(&at.link), held, reference, first);
    let media_type = HeaderValue::from_static("application/octet-stream");
    let mut response = bytes_reply(StatusCode::OK, media_type, Body::from_stream(parts));
    response.headers_mut().insert(CONTENT_LENGTH, size.into());
    response.extensions_mut().insert(taken);
    Ok(response)
}

async fn part<W: WorkerPort>(
    link: &HttpLink<W>,
    held: &Holding,
    reference: &Ref,
    offset: u64,
) -> Result<BlobPart, Rejection> {
    let asked = BlobGet { reference: reference.clone(), offset };
    in_time(link.port().blob_get(held, asked)).await
}

/// The bytes of a blob, part by part. The client compares the hash: the answer ends early if a part
/// cannot be read.
fn parts<W: WorkerPort>(
    link: Arc<HttpLink<W>>,
    held: Holding,
    reference: Ref,
    first: BlobPart,
) -> impl Stream<Item = Result<Bytes, Rejection>> {
    let next = first.next_offset;
    let rest = stream::try_unfold(next, move |offset| {
        let (link, held, reference) = (Arc::clone(&link), held.clone(), reference.clone());
        async move {
            let Some(offset) = offset else { return Ok(None) };
            let part = part(&link, &held, &reference, offset).await?;
            let next = part.next_offset.filter(|next| *next > offset);
            Ok(Some((Bytes::from(part.data.0), next)))
        }
    });
    stream::iter([Ok(Bytes::from(first.data.0))]).chain(rest)
}

/// `PUT …/attempts/{attempt_id}/blobs/{digest}`
pub(super) async fn put<B: Backend>(
    mut at: AtLink<B>,
    body: Body,
) -> Result<Response, HttpProblem> {
    let part = part_of(&mut at)?;
    let held = holder(&mut at)?;
    reference(&at)?; // Its form is checked before any byte is read.
    let most = if part.is_some() { BLOB_PART_MAX as u64 } else { Limits::default().blob_bytes_max };
    let length = length_of(at.headers(), most)?;
    at.link.touch();
    let digest = SmolStr::new(at.digest());
    let (offset, size_bytes) = part.unwrap_or((0, length));
    let mut upload = BlobUpload { link: &at.link, held, digest, size_bytes, offset };
    let taken = match part {
        Some(_) => upload.take_part(body).await?,
        None => upload.take(body.into_data_stream()).await?,
    };
    Ok(json_reply(StatusCode::OK, &taken))
}

/// Where a part begins, and how many bytes the whole blob has. `None`: the blob comes whole.
fn part_of<B: Backend>(at: &mut AtLink<B>) -> Result<Option<(u64, u64)>, HttpProblem> {
    let Some(offset) = at.query().take_number("offset")? else { return Ok(None) };
    Ok(Some((offset, needed(at.query(), "size_bytes")?)))
}

/// How many bytes come, as the request says before.
fn length_of(headers: &HeaderMap, most: u64) -> Result<u64, HttpProblem> {
    let said = headers.get(CONTENT_LENGTH).and_then(|said| said.to_str().ok()?.parse().ok());
    match said {
        Some(length) if length <= most => Ok(length),
        Some(_) => {
            let message = format!("a blob, or a part of one, has at most {most} bytes");
            Err(Rejection::new(Code::ValueTooLarge, message).with("limit", most).into())
        }
        None => {
            let message = "the request needs the header Content-Length";
            Err(HttpProblem::of_http(StatusCode::LENGTH_REQUIRED, message))
        }
    }
}

/// A blob that is being put.
struct BlobUpload<'a, W> {
    link: &'a HttpLink<W>,
    held: Holding,
    digest: SmolStr,
    size_bytes: u64,
    offset: u64,
}

impl<W: WorkerPort> BlobUpload<'_, W> {
    /// Puts the bytes of a body, and answers where they are.
    async fn take(&mut self, mut body: BodyDataStream) -> Result<BlobTaken, HttpProblem> {
        let mut waiting = BytesMut::new();
        while let Some(more) = body.next().await {
            let more = more.map_err(|_| HttpProblem::malformed("the body does not come whole"))?;
            waiting.extend_from_slice(&more);
            while waiting.len() > BLOB_PART_MAX {
                let part = waiting.split_to(BLOB_PART_MAX);
                self.put(part.to_vec()).await?;
            }
        }
        if self.offset + waiting.len() as u64 != self.size_bytes {
            return Err(HttpProblem::malformed("the body is shorter than its Content-Length"));
        }
        Ok(self.put(waiting.to_vec()).await?)
    }

    /// Puts a part, and answers what is there so far. Its client knows which part is the next.
    async fn take_part(&mut self, body: Body) -> Result<BlobTaken, HttpProblem> {
        let cut_off = |_| HttpProblem::malformed("the body does not come whole");
        let bytes = axum::body::to_bytes(body, BLOB_PART_MAX).await.map_err(cut_off)?;
        let (digest, offset, size_bytes) = (self.digest.clone(), self.offset, self.size_bytes);
        let part = BlobPut { data: RawBytes(bytes.to_vec()), digest, offset, size_bytes };
        Ok(in_time(self.link.port().blob_put(&self.held, part)).await?)
    }

    async fn put(&mut self, part: Vec<u8>) -> Result<BlobTaken, Rejection> {
        let end = self.offset + part.len() as u64;
        let (digest, offset, size_bytes) = (self.digest.clone(), self.offset, self.size_bytes);
        let part = BlobPut { data: RawBytes(part), digest, offset, size_bytes };
        let taken = in_time(self.link.port().blob_put(&self.held, part)).await.map_err(restarts)?;
        self.offset = end;
        match taken.next_offset {
            Some(next) if next != end => Err(anew()),
            _ => Ok(taken),
        }
    }
}

/// Another node has taken the partition over, and begins anew: the bytes that came are gone here, and
/// the client sends them again.
fn restarts(refused: Rejection) -> Rejection {
    if refused.details.contains_key(NEXT_OFFSET) { anew() } else { refused }
}

fn anew() -> Rejection {
    Rejection::new(Code::Unavailable, "another node has taken over: send the bytes again")
}
