//! Blobs of a Task as bytes: `PUT` and `GET …/blobs/{digest}`. They pass through in parts, so that a request
//! costs the gateway two parts of memory at most, however long the blob is. An answer takes them of what all
//! answers may have.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts as _, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::get;
use bytes::{Buf as _, Bytes, BytesMut};
use futures::stream;
use http_body_util::BodyExt as _;
use schemars::JsonSchema;
use serde::Serialize;
use smol_str::SmolStr;
use tenure_core::id::{Ref, TaskId};
use tenure_core::record::Blob;
use tenure_core::{Code, Rejection};
use tenure_ports::ClientPort;
use tenure_ports::blobs::NEXT_OFFSET;
use tenure_sdk::client::Client;
use tenure_wire::bus::blob::{BLOB_PART_MAX, BlobGet, BlobPart, BlobPut};
use tenure_wire::bus::request::RawBytes;

use super::json_reply;
use super::read::{Inquiry, Place, announced};
use super::routes::SESSION;
use crate::described::{Content, DescribedRoute, json_of};
use crate::problem::HttpProblem;
use crate::{Backend, Gateway};

/// What a blob is to a browser: bytes to store, and nothing to show.
const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/octet-stream");
const TO_STORE: HeaderValue = HeaderValue::from_static("attachment");

/// The same digest is always the same bytes.
const FOR_EVER: HeaderValue = HeaderValue::from_static("private, max-age=31536000, immutable");

/// How many bytes of a blob an answer has at a time: those of a part, and of the next one.
const HELD_BYTES: usize = 2 * BLOB_PART_MAX;

/// The routes.
pub(super) fn routes<B: Backend>() -> Router<Arc<Gateway<B>>> {
    let path = format!("{SESSION}/tasks/{{task_id}}/blobs/{{digest}}");
    Router::new().route(&path, get(get_blob).put(put_blob))
}

/// These resources, for the document.
pub(super) const DESCRIBED: [DescribedRoute; 2] = [
    DescribedRoute::read(
        "/v1/sessions/{session}/tasks/{task_id}/blobs/{digest}",
        "get_blob",
        "Reads a blob of a Task as bytes.",
        &[],
        &[(200, Some(Content::Other("application/octet-stream")))],
    ),
    DescribedRoute {
        method: "put",
        path: "/v1/sessions/{session}/tasks/{task_id}/blobs/{digest}",
        id: "put_blob",
        summary: "Stores a blob of a Task, which need not exist yet.",
        parameters: &[],
        body: Some(Content::Other("application/octet-stream")),
        answers: &[(200, Some(json_of::<BlobStored>()))],
        refusals: &[409, 411, 413],
    },
];

/// A blob that is stored, as a value names it.
#[derive(Serialize, JsonSchema)]
struct BlobStored {
    r#ref: Ref,
    size_bytes: u64,
    digest: SmolStr,
}

async fn get_blob<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    asked: Inquiry,
) -> Result<Response, HttpProblem> {
    asked.query.end()?;
    let place = Place::read(&asked.path)?;
    let reference = reference(place.named("digest")?)?;
    let client = place.client(&gateway, &asked.who).await?;
    let task = place.task()?.clone();
    let taken = asked.answers.take(HELD_BYTES)?;
    let first = part(&client, &task, reference.clone(), 0).await.map_err(absent)?;
    let size = first.size_bytes;
    if first.next_offset.is_none() {
        taken.shrink(first.data.0.len());
    }
    let body = Body::from_stream(rest(client, task, reference, first));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, MEDIA_TYPE);
    headers.insert(CONTENT_LENGTH, size.into());
    headers.insert(CONTENT_DISPOSITION, TO_STORE);
    headers.insert(CACHE_CONTROL, FOR_EVER);
    response.extensions_mut().insert(taken);
    Ok(response)
}

/// The bytes of a blob, part by part. A part that cannot be read breaks the connection: its reader sees
/// that bytes are missing.
fn rest<P: ClientPort>(
    client: Client<P>,
    task: TaskId,
    reference: Ref,
    first: BlobPart,
) -> impl futures::Stream<Item = Result<Bytes, Rejection>> + Send + 'static {
    let begin = (client, task, reference, Some((0, first)));
    stream::try_unfold(begin, async |(client, task, reference, at)| {
        let Some((offset, BlobPart { data, next_offset, .. })) = at else { return Ok(None) };
        let end = offset + data.0.len() as u64;
        // A place that does not go on would never end.
        let next = match next_offset.filter(|next| *next == end && end > offset) {
            Some(next) => Some((next, part(&client, &task, reference.clone(), next).await?)),
            None => None,
        };
        Ok(Some((Bytes::from(data.0), (client, task, reference, next))))
    })
}

async fn part<P: ClientPort>(
    client: &Client<P>,
    task: &TaskId,
    reference: Ref,
    offset: u64,
) -> Result<BlobPart, Rejection> {
    client.ask(task, BlobGet { reference, offset }).await
}

/// A blob that is not there is no conflict of a read.
fn absent(refused: Rejection) -> HttpProblem {
    match refused.code {
        Code::BlobMissing => HttpProblem::new(StatusCode::NOT_FOUND, refused),
        _ => refused.into(),
    }
}

async fn put_blob<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    request: Request,
) -> Result<Response, HttpProblem> {
    let (mut parts, body) = request.into_parts();
    let asked = Inquiry::from_request_parts(&mut parts, &()).await?;
    asked.query.end()?;
    let place = Place::read(&asked.path)?;
    let digest = SmolStr::from(place.named("digest")?);
    reference(&digest)?;
    let size_bytes = announced(&asked.headers).ok_or_else(|| {
        let message = "a blob is sent with its Content-Length";
        HttpProblem::of_http(StatusCode::LENGTH_REQUIRED, message)
    })?;
    let client = place.client(&gateway, &asked.who).await?;
    let upload = BlobUpload { client, task: place.task()?.clone(), digest, size_bytes };
    let stored = upload.send(body).await?;
    Ok(json_reply(StatusCode::OK, &stored))
}

/// A blob on its way to the owner of its Task.
struct BlobUpload<P> {
    client: Client<P>,
    task: TaskId,
    digest: SmolStr,
    size_bytes: u64,
}

impl<P: ClientPort> BlobUpload<P> {
    async fn send(self, mut body: Body) -> Result<BlobStored, HttpProblem> {
        let (mut buffer, mut offset) = (BytesMut::new(), 0);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                HttpProblem::malformed(format!("the body cannot be read: {error}"))
            })?;
            let Ok(data) = frame.into_data() else { continue };
            buffer.extend_from_slice(&data);
            while buffer.len() > BLOB_PART_MAX {
                let part = buffer.split_to(BLOB_PART_MAX);
                let end = offset + part.len() as u64;
                if self.put(offset, &part).await?.is_some() {
                    return Err(unfinished().into());
                }
                offset = end;
            }
        }
        let reference = self.put(offset, buffer.chunk()).await?;
        let reference = reference.ok_or_else(unfinished)?;
        let Self { digest, size_bytes, .. } = self;
        Ok(BlobStored { r#ref: reference, size_bytes, digest })
    }

    /// Sends a part. Answers the ref of the blob if it was the last.
    async fn put(&self, offset: u64, data: &[u8]) -> Result<Option<Ref>, Rejection> {
        let (digest, size_bytes) = (self.digest.clone(), self.size_bytes);
        let data = RawBytes(data.to_vec());
        let end = offset + data.0.len() as u64;
        let part = BlobPut { data, digest, offset, size_bytes };
        let taken = match self.client.ask(&self.task, part).await {
            // Another node took the partition over, and has none of the parts before.
            Err(refused) if refused.details.contains_key(NEXT_OFFSET) => return Err(unfinished()),
            answer => answer?,
        };
        match (taken.reference, taken.next_offset) {
            (Some(reference), _) => Ok(Some(reference)),
            (None, Some(next)) if next == end => Ok(None),
            (None, _) => Err(unfinished()),
        }
    }
}

/// The parts did not come together: the caller sends the blob again.
fn unfinished() -> Rejection {
    Rejection::new(Code::Unavailable, "the parts of the blob did not come together; send it again")
}

/// The ref of the blob with this digest.
fn reference(digest: &str) -> Result<Ref, Rejection> {
    let hash = Blob::hash_of_digest(digest)
        .ok_or_else(|| Rejection::invalid("digest", "a digest is `sha256:` and 64 hex digits"))?;
    Ok(Blob::reference_to(hash))
}
