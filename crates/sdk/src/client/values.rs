//! Values of requests that are too large for a log: the client puts them as blobs of the Task, and the
//! request names those (VALUE-01).

use std::sync::Arc;

use tenure_core::command::Write;
use tenure_core::id::{BlobHash, TaskId};
use tenure_core::record::Blob;
use tenure_core::view::WriteSummary;
use tenure_core::{Code, Context, Limits, Rejection};
use tenure_ports::ClientPort;
use tenure_ports::blobs::{get_whole, put_whole};

/// Sends a request. Values over the inline limit go as blobs, before the request that names them.
///
/// # Errors
/// Why a blob or the request is refused.
pub fn write_with_blobs<P: ClientPort>(
    port: &P,
    task: &TaskId,
    context: Context,
    what: impl Into<Write>,
) -> impl Future<Output = Result<WriteSummary, Rejection>> {
    // It is boxed before there is a future: a future is moved as a whole, and callers hold many.
    write(port, task, context, what.into())
}

async fn write<P: ClientPort>(
    port: &P,
    task: &TaskId,
    context: Context,
    mut what: Write,
) -> Result<WriteSummary, Rejection> {
    let large = what.take_large(Limits::default().value_bytes_max);
    match large.is_empty() {
        true => port.write(task, context, what).await,
        false => Box::pin(write_large(port, task, context, what, large)).await,
    }
}

async fn write_large<P: ClientPort>(
    port: &P,
    task: &TaskId,
    context: Context,
    what: Write,
    large: Vec<(Blob, Arc<[u8]>)>,
) -> Result<WriteSummary, Rejection> {
    match put_all(port, task, &large).await {
        // A repetition still gets the first answer (IDEM-01).
        Err(refused) if refused.code != Code::TaskTerminal => return Err(refused),
        _ => {}
    }
    match port.write(task, context.clone(), what.clone()).await {
        // Somebody has swept them meanwhile, or the store has lost one.
        Err(refused) if refused.code == Code::BlobMissing => {
            put_all(port, task, &large).await?;
            port.write(task, context, what).await
        }
        written => written,
    }
}

async fn put_all<P: ClientPort>(
    port: &P,
    task: &TaskId,
    large: &[(Blob, Arc<[u8]>)],
) -> Result<(), Rejection> {
    for (blob, bytes) in large {
        put_whole(*blob, bytes, |part| port.ask(task, part)).await?;
    }
    Ok(())
}

/// Puts a blob of a Task, which need not exist yet.
///
/// # Errors
/// Why it is refused.
pub async fn put_blob<P: ClientPort>(
    port: &P,
    task: &TaskId,
    bytes: &[u8],
) -> Result<Blob, Rejection> {
    let blob = Blob::of(bytes);
    put_whole(blob, bytes, |part| port.ask(task, part)).await?;
    Ok(blob)
}

/// Reads a blob of a Task.
///
/// # Errors
/// `blob_missing`, or the caller may not read it.
pub async fn get_blob<P: ClientPort>(
    port: &P,
    task: &TaskId,
    hash: BlobHash,
) -> Result<Arc<[u8]>, Rejection> {
    get_whole(hash, |asked| port.ask(task, asked)).await
}
