//! Makes the streams of the log at the start of a node, or says why that fails and whether waiting
//! may help.

use async_nats::jetstream::context::{
    CreateStreamError, CreateStreamErrorKind as Kind, GetStreamErrorKind,
};
use async_nats::jetstream::{self, ErrorCode, stream};
use tokio::time::timeout;

use super::{LogSettings, OtherCluster, StreamOpenError, record};

/// Makes the stream of a partition, or checks the existing one.
pub(super) async fn stream(
    context: &jetstream::Context,
    settings: &LogSettings,
    partition: u32,
) -> Result<(), StreamOpenError> {
    let name = settings.stream(partition);
    if !settings.partitions.is_power_of_two() && !is_made(context, settings).await? {
        return Err(OtherCluster::Uneven { given: settings.partitions }.into());
    }
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
        metadata: record::write(settings.partitions),
        ..stream::Config::default()
    };
    let found = timeout(settings.timeout, context.get_or_create_stream(config)).await;
    let found = found.unwrap_or_else(|_| Err(CreateStreamError::new(Kind::TimedOut)));
    let found = found.map_err(|error| {
        let (stream, message) = (name.clone(), said(&error));
        match stays(&error.kind(), context.client().server_info().jetstream) {
            true => StreamOpenError::Refused { stream, message },
            false => StreamOpenError::Unavailable { stream, message },
        }
    })?;
    Ok(record::check(&found.cached_info().config.metadata, settings.partitions)?)
}

/// Whether there is any stream of the cluster: then it was made with its number of partitions.
async fn is_made(
    context: &jetstream::Context,
    settings: &LogSettings,
) -> Result<bool, StreamOpenError> {
    for partition in 0..settings.partitions {
        if exists(context, settings, &settings.stream(partition)).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a stream exists.
async fn exists(
    context: &jetstream::Context,
    settings: &LogSettings,
    name: &str,
) -> Result<bool, StreamOpenError> {
    let found = timeout(settings.timeout, context.get_stream(name)).await;
    let unavailable =
        |message: String| Err(StreamOpenError::Unavailable { stream: name.to_owned(), message });
    match found {
        Ok(Ok(_)) => Ok(true),
        Ok(Err(error)) => match error.kind() {
            GetStreamErrorKind::JetStream(why)
                if why.error_code() == ErrorCode::STREAM_NOT_FOUND =>
            {
                Ok(false)
            }
            _ => unavailable(error.to_string()),
        },
        Err(_) => unavailable("JetStream does not answer".into()),
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
