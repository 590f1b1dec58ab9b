//! Makes the streams of the log at the start of a node, or says why that fails and whether waiting
//! may help; and finds out which store they are of.

use std::collections::HashMap;

use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind as Kind};
use async_nats::jetstream::response::Response;
use async_nats::jetstream::{self, ErrorCode, stream};
use tokio::time::timeout;

use super::{LogSettings, OtherCluster, StreamOpenError, record};

/// Finds out which store the streams are of, by the first record that names one. If no record does, an older
/// version made the streams; if there is no stream, the store is a new one.
pub(super) async fn store(
    context: &jetstream::Context,
    settings: &LogSettings,
) -> Result<String, StreamOpenError> {
    let mut is_made = false;
    for partition in 0..settings.partitions {
        let Some(metadata) = metadata(context, settings, &settings.stream(partition)).await? else {
            continue;
        };
        // What cannot be used is refused before anything is made.
        record::check(&metadata, settings.partitions)?;
        if let Some(store) = record::store(&metadata) {
            return Ok(store.to_owned());
        }
        is_made = true;
    }
    if is_made {
        return Ok(record::older_store(&settings.name));
    }
    if !settings.partitions.is_power_of_two() {
        return Err(OtherCluster::Uneven { given: settings.partitions }.into());
    }
    Ok(record::new_store(&settings.name))
}

/// Makes the stream of a partition in a store, or checks the existing one. Answers which store its record
/// names: another node may have just made the stream, in another store or without a name.
pub(super) async fn stream(
    context: &jetstream::Context,
    settings: &LogSettings,
    partition: u32,
    store: &str,
) -> Result<Option<String>, StreamOpenError> {
    let name = settings.stream(partition);
    let config = stream::Config {
        name: name.clone(),
        subjects: vec![settings.subject(partition)],
        storage: stream::StorageType::File,
        num_replicas: settings.replicas,
        retention: stream::RetentionPolicy::Limits,
        // A full stream refuses appends: it must never drop history to gain space.
        discard: stream::DiscardPolicy::New,
        max_bytes: settings.max_bytes.map_or(-1, |max| i64::try_from(max).unwrap_or(i64::MAX)),
        allow_direct: true,
        allow_atomic_publish: true,
        deny_delete: true,
        deny_purge: true,
        metadata: record::write(settings.partitions, store),
        ..stream::Config::default()
    };
    let make = || timeout(settings.timeout, context.get_or_create_stream(config.clone()));
    let mut found = make().await;
    if matches!(&found, Ok(Err(error)) if is_just_made(&error.kind())) {
        found = make().await;
    }
    let found = found.unwrap_or_else(|_| Err(CreateStreamError::new(Kind::TimedOut)));
    let found = found.map_err(|error| not_open(context, &name, &error))?;
    let metadata = &found.cached_info().config.metadata;
    record::check(metadata, settings.partitions)?;
    Ok(record::store(metadata).map(str::to_owned))
}

/// Whether another node has made the stream meanwhile, as of another store.
fn is_just_made(kind: &Kind) -> bool {
    matches!(kind, Kind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NAME_EXIST)
}

/// The metadata of a stream, if it exists.
async fn metadata(
    context: &jetstream::Context,
    settings: &LogSettings,
    name: &str,
) -> Result<Option<HashMap<String, String>>, StreamOpenError> {
    let asked = context.request::<_, _, Response<stream::Info>>(format!("STREAM.INFO.{name}"), &());
    let error = match timeout(settings.timeout, asked).await {
        Ok(Ok(Response::Ok(found))) => return Ok(Some(found.config.metadata)),
        Ok(Ok(Response::Err { error })) => CreateStreamError::from(error),
        Ok(Err(error)) => CreateStreamError::from(error),
        Err(_) => CreateStreamError::new(Kind::TimedOut),
    };
    match error.kind() {
        Kind::NotFound => Ok(None),
        _ => Err(not_open(context, name, &error)),
    }
}

fn not_open(
    context: &jetstream::Context,
    stream: &str,
    error: &CreateStreamError,
) -> StreamOpenError {
    let (stream, message) = (stream.to_owned(), said(error));
    match stays(&error.kind(), context.client().server_info().jetstream) {
        true => StreamOpenError::Refused { stream, message },
        false => StreamOpenError::Unavailable { stream, message },
    }
}

fn said(error: &CreateStreamError) -> String {
    match error.kind() {
        Kind::TimedOut => "JetStream does not answer".into(),
        Kind::JetStreamUnavailable => "nobody answers for JetStream".into(),
        _ => error.to_string(),
    }
}

/// Whether an error stays until somebody changes something: JetStream is off, or there is no space.
/// Any other error may come from servers that are not there yet, or elect their leader. `is_on`:
/// the server says of itself that it has JetStream; if JetStream does not answer all the same, the
/// server is just ending.
fn stays(kind: &Kind, is_on: bool) -> bool {
    const STAY: [ErrorCode; 10] = [
        ErrorCode::JETSTREAM_NOT_ENABLED,
        ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT,
        ErrorCode::STREAM_SUBJECT_OVERLAP,
        ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED,
        ErrorCode::STREAM_MAX_STREAM_BYTES_EXCEEDED,
        ErrorCode::ACCOUNT_RESOURCES_EXCEEDED,
        ErrorCode::STORAGE_RESOURCES_EXCEEDED,
        ErrorCode::MAXIMUM_STREAMS_LIMIT,
        ErrorCode::STREAM_MAX_BYTES_REQUIRED,
        ErrorCode::STREAM_INVALID_CONFIG,
    ];
    match kind {
        Kind::JetStreamUnavailable => !is_on,
        Kind::JetStream(error) => STAY.contains(&error.error_code()),
        Kind::EmptyStreamName | Kind::InvalidStreamName | Kind::DomainAndExternalSet => true,
        Kind::TimedOut | Kind::Response | Kind::NotFound | Kind::ResponseParse => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    /// The errors of a server without JetStream or without space stay. Those of a server whose
    /// cluster is not complete yet, or elects a leader, pass.
    #[test]
    fn what_passes_is_told_from_what_stays() {
        let said = |code: u64| {
            Kind::JetStream(from_value(json!({"code": 503, "err_code": code})).unwrap())
        };
        for code in [10_076, 10_039, 10_065, 10_074, 10_122, 10_002, 10_047, 10_027] {
            assert!(stays(&said(code), true), "{code}");
        }
        // The errors here: temporarily unavailable, no peers for a stream, another has just made
        // it, too few resources.
        for code in [10_008, 10_005, 10_058, 10_023] {
            assert!(!stays(&said(code), true), "{code}");
        }
        assert!(!stays(&Kind::TimedOut, true) && !stays(&Kind::TimedOut, false));
        assert!(stays(&Kind::JetStreamUnavailable, false));
        assert!(!stays(&Kind::JetStreamUnavailable, true));
    }
}
