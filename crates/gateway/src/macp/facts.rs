//! Records of sessions as facts of their Tasks.

use sha2::{Digest as _, Sha256};
use tenure_core::command::KeepFact;
use tenure_core::event::Body;
use tenure_core::id::{CommandId, TaskId};
use tenure_core::record::{Value, ValueBody};
use tenure_core::status::FactKind;
use tenure_core::view::FactsInput;
use tenure_core::{Code, Command, Commit, Context, Limits, Rejection};
use tenure_macp::{MacpChange, MacpRecord, MacpReplayError};
use tenure_ports::ClientPort;
use tenure_sdk::client::{Client, get_blob, put_blob};
use uuid::Uuid;

use super::status::MacpResult;

/// The media type of a record.
const MEDIA_TYPE: &str = "application/x-protobuf";

/// How many facts are read at a time.
const PAGE: usize = 200;

/// The longest message id that is the key of its fact, in bytes. Of a longer one the key has the hash.
const KEY_BYTES_MAX: usize = 128;

/// Records behind those that are known.
pub(super) struct RecordPage {
    /// The records, each with its place in the log.
    pub(super) records: Vec<(u64, MacpRecord)>,
    /// The version of the Task that was read.
    pub(super) version: u64,
    /// Whether there are more.
    pub(super) more: bool,
}

/// The records of a Task behind a place of its log; none if there is no such Task.
pub(super) async fn read<P: ClientPort>(
    client: &Client<P>,
    task: &TaskId,
    after: u64,
) -> MacpResult<Option<RecordPage>> {
    let input = FactsInput {
        after: Some(after),
        kind: Some(FactKind::MacpEnvelope),
        limit: Some(PAGE),
        ..FactsInput::default()
    };
    let page = match client.facts(task, input).await {
        Err(refused) if refused.code == Code::TaskNotFound => return Ok(None),
        page => page?,
    };
    let mut records = Vec::with_capacity(page.facts.len());
    for fact in &page.facts {
        records.push((fact.wal_seq, record(client, task, &fact.payload).await?));
    }
    Ok(Some(RecordPage { records, version: page.version, more: page.truncated }))
}

/// The records that a commit keeps.
pub(super) async fn of_commit<P: ClientPort>(
    client: &Client<P>,
    task: &TaskId,
    commit: &Commit,
) -> MacpResult<Vec<MacpRecord>> {
    let mut records = Vec::new();
    for event in &commit.events {
        if let Body::TaskFact(fact) = &event.body
            && fact.kind == FactKind::MacpEnvelope
        {
            records.push(record(client, task, &fact.payload).await?);
        }
    }
    Ok(records)
}

async fn record<P: ClientPort>(
    client: &Client<P>,
    task: &TaskId,
    payload: &Value,
) -> MacpResult<MacpRecord> {
    Ok(match &payload.body {
        ValueBody::Blob(blob) => {
            MacpRecord::from_bytes(&get_blob(client.port(), task, blob.hash).await?)?
        }
        _ => {
            let none = || MacpReplayError::Unreadable("it has no bytes".to_owned());
            MacpRecord::from_bytes(payload.data().ok_or_else(none)?)?
        }
    })
}

/// A record as a fact.
pub(super) async fn fact<P: ClientPort>(
    client: &Client<P>,
    task: &TaskId,
    record: &MacpRecord,
) -> MacpResult<KeepFact> {
    let bytes = record.to_bytes();
    let payload = match bytes.len() <= Limits::default().fact_bytes_max {
        true => Value::inline(MEDIA_TYPE, bytes),
        false => {
            let blob = put_blob(client.port(), task, &bytes).await?;
            Value::of(MEDIA_TYPE, ValueBody::Blob(blob))
        }
    };
    Ok(KeepFact::alone(FactKind::MacpEnvelope, key(record)?.into(), payload))
}

/// Keeps a record if the Task is still at this version, with what it means for the Task (FACT-02). Answers the version
/// that the Task then has; none if the Task has changed meanwhile.
pub(super) async fn keep<P: ClientPort>(
    client: &Client<P>,
    task: &TaskId,
    version: u64,
    record: &MacpRecord,
    then: Vec<Command>,
) -> MacpResult<Option<u64>> {
    let fact = KeepFact { then, ..fact(client, task, record).await? };
    let command_id = CommandId::new(Uuid::now_v7().to_string()).map_err(Rejection::from)?;
    let context = Context { expected_version: Some(version), ..Context::new(command_id) };
    match client.command_as(task, context, Command::TaskFact(fact)).await {
        Ok(kept) => Ok(Some(kept.version)),
        Err(refused) if refused.code == Code::VersionConflict => Ok(None),
        Err(refused) => Err(refused.into()),
    }
}

/// The key of a record: the id of its message, or what was done to the session.
fn key(record: &MacpRecord) -> Result<String, MacpReplayError> {
    if let Some(envelope) = record.envelope()? {
        let id = envelope.message_id;
        return Ok(if id.len() <= KEY_BYTES_MAX { id } else { hash(&id) });
    }
    Ok(match record.change {
        Some(MacpChange::Suspended(_)) => "session suspended",
        Some(MacpChange::Resumed(_)) => "session resumed",
        Some(MacpChange::Cancelled(_)) => "session cancelled",
        _ => "session expired",
    }
    .to_owned())
}

fn hash(text: &str) -> String {
    let digest = Sha256::digest(text);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
