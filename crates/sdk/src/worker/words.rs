//! Builds the reports of workers.

use smol_str::SmolStr;
use tenure_core::Rejection;
use tenure_core::id::ArtifactId;
use tenure_core::patch::ReasonInput;
use tenure_core::record::{ArtifactInput, Object};
use tenure_core::status::{ArtifactKind, ArtifactState};
use uuid::Uuid;

/// The longest message that a report keeps, because handlers' messages have no limit and reasons
/// do.
const MESSAGE_MAX: usize = 4_096;

pub(super) fn cut(message: &str) -> String {
    let end = message.floor_char_boundary(MESSAGE_MAX);
    if end == message.len() { message.to_owned() } else { format!("{}…", &message[..end]) }
}

pub(super) fn reason(
    code: &str,
    message: &str,
    details: Option<Object>,
    retryable: Option<bool>,
) -> ReasonInput {
    ReasonInput { code: Some(SmolStr::new(code)), details, message: message.into(), retryable }
}

pub(super) fn inline(
    name: &str,
    kind: ArtifactKind,
    media: &str,
    text: &str,
) -> Result<ArtifactInput, Rejection> {
    Ok(ArtifactInput {
        artifact_id: ArtifactId::new(Uuid::now_v7().to_string())?,
        name: name.into(),
        description: None,
        media_type: Some(SmolStr::new(media)),
        kind,
        uri: None,
        data: Some(text.into()),
        size_bytes: Some(text.len() as u64),
        digest: None,
        state: ArtifactState::Available,
    })
}
