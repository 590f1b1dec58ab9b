//! Checks how a bus carries blobs (VALUE-01).

use std::sync::Arc;

use tenure_core::command::create::CreateTask;
use tenure_core::id::TaskId;
use tenure_core::record::{Blob, Value, ValueBody};
use tenure_core::status::{Role, StepStatus};
use tenure_core::view::ClaimResult;
use tenure_core::{Code, Rejection};
use tenure_ports::ClientPort;
use tenure_ports::blobs::{get_whole, put_whole};
use tenure_ports::bus::{Holding, WorkerPort};

use super::{Bus, Caller, Hand, context, step, task_id};

/// A blob of so many bytes, none of which is like the next.
fn made(bytes: usize) -> (Blob, Arc<[u8]>) {
    let bytes: Arc<[u8]> =
        (0..bytes).map(|at| at * 7 / 5).map(|n| (n % 256).try_into().unwrap_or(0)).collect();
    (Blob::of(&bytes), bytes)
}

fn value(blob: Blob) -> Value {
    Value::of("application/octet-stream", ValueBody::Blob(blob))
}

async fn put<C: ClientPort>(
    client: &C,
    task: &TaskId,
    (blob, bytes): &(Blob, Arc<[u8]>),
) -> Result<(), Rejection> {
    put_whole(*blob, bytes, |part| client.ask(task, part)).await
}

async fn get<C: ClientPort>(client: &C, task: &TaskId, blob: Blob) -> Result<Arc<[u8]>, Rejection> {
    get_whole(blob.hash, |asked| client.ask(task, asked)).await
}

async fn put_for<W: WorkerPort>(
    port: &W,
    claim: &ClaimResult,
    (blob, bytes): &(Blob, Arc<[u8]>),
) -> Result<(), Rejection> {
    let held = Holding::of(claim);
    put_whole(*blob, bytes, |part| port.blob_put(&held, part)).await
}

async fn get_for<W: WorkerPort>(
    port: &W,
    claim: &ClaimResult,
    blob: Blob,
) -> Result<Arc<[u8]>, Rejection> {
    let held = Holding::of(claim);
    get_whole(blob.hash, |asked| port.blob_get(&held, asked)).await
}

fn code<T: std::fmt::Debug>(refused: Result<T, Rejection>) -> Code {
    refused.unwrap_err().code
}

/// VALUE-01: a publisher puts a value in parts before it creates the Task; the worker gets it, and puts
/// its output before its report; the next worker and every reader of the Task get that. Whoever names
/// what was not put is refused.
pub(super) async fn a_large_value_goes_as_a_blob<B: Bus>(bus: &B) {
    let caller = Caller::of(bus, "s").await;
    let (client, observer) = (&caller.client, bus.client(Role::Observer, "s").await);
    let task = task_id("t");
    let (input, output) = (made(1_300_000), made(70_000));
    let mut first = step("a");
    first.input = Some(value(input.0));
    let mut next = step("b");
    next.depends_on_step_ids = vec![first.step_id.clone()];
    let steps = vec![first, next];
    let create = CreateTask { steps, ..caller.task(&task, &[]) };
    let refused = client.write(&task, context("c"), create.clone()).await.unwrap_err();
    assert_eq!(refused.code, Code::BlobMissing);
    assert_eq!(refused.details["ref"], input.0.reference().as_str());
    assert_eq!(code(put(&observer, &task, &input).await), Code::ToolNotAvailable);
    put(client, &task, &input).await.unwrap();
    client.write(&task, context("c"), create).await.unwrap();
    assert_eq!(get(&observer, &task, input.0).await.unwrap(), input.1);
    assert_eq!(code(get(client, &task, output.0).await), Code::BlobMissing);

    let mut hand = Hand::join(bus, "ant", "b1").await;
    let other = Hand::join(bus, "bee", "b1").await;
    hand.room(1);
    let claim = hand.granted().await;
    assert_eq!(claim.step.input, Some(value(input.0)));
    assert_eq!(get_for(&hand.port, &claim, input.0).await.unwrap(), input.1);
    assert_eq!(code(get_for(&other.port, &claim, input.0).await), Code::StaleAttempt);
    assert_eq!(code(put_for(&other.port, &claim, &output).await), Code::StaleAttempt);
    let complete = async || {
        let report = hand.report(&claim, |report| {
            report.status = Some(StepStatus::Completed);
            report.output = Some(value(output.0));
        });
        report.await
    };
    assert_eq!(code(complete().await), Code::BlobMissing);
    put_for(&hand.port, &claim, &output).await.unwrap();
    complete().await.unwrap();
    assert_eq!(get(client, &task, output.0).await.unwrap(), output.1);

    hand.room(1);
    let claim = hand.granted().await;
    assert_eq!(claim.dependencies[0].output, Some(value(output.0)));
    assert_eq!(get_for(&hand.port, &claim, output.0).await.unwrap(), output.1);
    assert_eq!(code(get_for(&hand.port, &claim, input.0).await), Code::PermissionDenied);
    hand.complete(&claim).await;
}
