//! Artifacts of a Task as artifacts of A2A, whole or in chunks.

use serde::Deserialize;
use tenure_core::record::ArtifactInput;
use tenure_core::status::{ArtifactKind, ArtifactState};

use super::parts::parts_of_bytes;
use crate::a2a::wire::{A2aArtifact, A2aContent, A2aMetadata, A2aPart};

/// The media type of an artifact whose data is a [`ChunkData`]: how a worker says exactly what to show, and
/// sends an artifact in chunks.
const ARTIFACT: &str = "application/vnd.tenure.a2a-artifact+json";

/// An artifact, or its next parts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ArtifactChunk {
    /// The artifact.
    pub(super) artifact: A2aArtifact,
    /// Whether the parts go behind those that are there.
    pub(super) append: bool,
    /// Whether the artifact is whole now.
    pub(super) last_chunk: bool,
}

/// What a worker writes into an artifact of the media type [`ARTIFACT`]: the fields of `Artifact` and of
/// `TaskArtifactUpdateEvent` of A2A 1.0. Name and description stand beside it, and so does the id of an
/// artifact that has one chunk.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChunkData {
    artifact_id: Option<String>,
    parts: Vec<A2aPart>,
    #[serde(default)]
    metadata: Option<A2aMetadata>,
    #[serde(default)]
    extensions: Vec<String>,
    #[serde(default)]
    append: bool,
    #[serde(default)]
    last_chunk: bool,
}

/// What an artifact of a Task shows. What a command printed, evidence, and what cannot be read from outside
/// is not shown.
pub(super) fn chunk_of(given: &ArtifactInput) -> Option<ArtifactChunk> {
    let is_inner =
        matches!(given.kind, ArtifactKind::Stdout | ArtifactKind::Stderr | ArtifactKind::Evidence);
    if is_inner || given.state != ArtifactState::Available {
        return None;
    }
    let about = A2aArtifact {
        artifact_id: given.artifact_id.to_string(),
        name: Some(given.name.clone()).filter(|name| !name.is_empty()),
        description: given.description.clone(),
        ..A2aArtifact::default()
    };
    exactly(given, &about).or_else(|| plainly(given, about))
}

/// What the worker says exactly.
fn exactly(given: &ArtifactInput, about: &A2aArtifact) -> Option<ArtifactChunk> {
    let data = given.data.as_ref().filter(|_| given.media_type.as_deref() == Some(ARTIFACT))?;
    let said: ChunkData = serde_json::from_str(data).ok()?;
    let ChunkData { artifact_id, parts, metadata, extensions, append, last_chunk } = said;
    if parts.is_empty() {
        return None;
    }
    let artifact_id = artifact_id.unwrap_or_else(|| about.artifact_id.clone());
    let artifact = A2aArtifact { artifact_id, parts, metadata, extensions, ..about.clone() };
    Some(ArtifactChunk { artifact, append, last_chunk })
}

/// One part with the data or the address.
fn plainly(given: &ArtifactInput, about: A2aArtifact) -> Option<ArtifactChunk> {
    let parts = match (&given.data, &given.uri) {
        (Some(data), _) => parts_of_bytes(data.as_bytes(), media_type(given)),
        (None, Some(uri)) if is_reachable(uri) => vec![A2aPart {
            filename: about.name.clone(),
            media_type: given.media_type.as_ref().map(ToString::to_string),
            ..A2aPart::of(A2aContent::Url(uri.clone()))
        }],
        (None, _) => Vec::new(),
    };
    let artifact = A2aArtifact { parts, ..about };
    let has_parts = !artifact.parts.is_empty();
    has_parts.then_some(ArtifactChunk { artifact, append: false, last_chunk: true })
}

fn media_type(given: &ArtifactInput) -> &str {
    match (&given.media_type, given.kind) {
        (Some(media_type), _) => media_type,
        (None, ArtifactKind::Data) => "application/json",
        (None, _) => "text/plain",
    }
}

/// Whether somebody outside may read what is there: not a file of a worker's machine, nor a blob.
fn is_reachable(uri: &str) -> bool {
    let scheme = uri.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    scheme.is_some_and(|scheme| !matches!(&*scheme, "file" | "blob" | "data"))
}

/// Adds a chunk to the artifacts that are there: one of the same id grows or is replaced. Returns its place.
pub(super) fn add_chunk(all: &mut Vec<A2aArtifact>, chunk: &ArtifactChunk) -> usize {
    let ArtifactChunk { artifact, append, .. } = chunk;
    let known = all.iter().position(|known| known.artifact_id == artifact.artifact_id);
    let place = known.unwrap_or(all.len());
    match all.get_mut(place) {
        None => all.push(artifact.clone()),
        Some(known) if *append => known.parts.extend(artifact.parts.iter().cloned()),
        Some(known) => known.clone_from(artifact),
    }
    place
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn given(fields: Json) -> ArtifactInput {
        let mut all =
            json!({"artifact_id": "a1", "name": "n", "kind": "file", "state": "available"});
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    fn parts(fields: Json) -> Option<Json> {
        let chunk = chunk_of(&given(fields))?;
        assert!(chunk.last_chunk && !chunk.append);
        assert_eq!(
            (&*chunk.artifact.artifact_id, chunk.artifact.name.as_deref()),
            ("a1", Some("n"))
        );
        Some(serde_json::to_value(chunk.artifact.parts).unwrap())
    }

    /// A2A-03: data and addresses are shown, and what only the worker can read is not.
    #[test]
    fn an_artifact_shows_its_data_or_its_address() {
        for (fields, expected) in [
            (
                json!({"data": "hi", "kind": "text"}),
                json!([{"text": "hi", "mediaType": "text/plain"}]),
            ),
            (
                json!({"data": "{}", "kind": "data"}),
                json!([{"data": {}, "mediaType": "application/json"}]),
            ),
            (
                json!({"uri": "https://example.org/o.txt", "media_type": "text/plain"}),
                json!([{"url": "https://example.org/o.txt", "filename": "n", "mediaType": "text/plain"}]),
            ),
        ] {
            assert_eq!(parts(fields.clone()), Some(expected), "{fields}");
        }
        for fields in [
            json!({"data": "x", "kind": "stdout"}),
            json!({"data": "x", "kind": "evidence"}),
            json!({"data": "x", "state": "pending"}),
            json!({"uri": "file:///tmp/x"}),
            json!({"uri": "blob:sha256:00"}),
            json!({}),
        ] {
            assert_eq!(parts(fields.clone()), None, "{fields}");
        }
    }

    /// A worker may send an artifact in chunks, each with its own parts.
    #[test]
    fn chunks_grow_one_artifact_or_replace_it() {
        let chunk = |said: Json| {
            let data = said.to_string();
            chunk_of(&given(json!({"data": data, "media_type": ARTIFACT}))).unwrap()
        };
        let mut all = Vec::new();
        let first = chunk(json!({"artifactId": "x", "parts": [{"text": "chunk-1 "}]}));
        assert!(!first.append && !first.last_chunk);
        add_chunk(&mut all, &first);
        let next = json!({"artifactId": "x", "parts": [{"text": "chunk-2"}], "append": true, "lastChunk": true});
        let next = chunk(next);
        assert!(next.append && next.last_chunk);
        add_chunk(&mut all, &next);
        add_chunk(&mut all, &chunk(json!({"parts": [{"raw": "aGk="}], "metadata": {"a": 1}})));
        let texts = |all: &[A2aArtifact]| -> Vec<(String, usize)> {
            all.iter().map(|it| (it.artifact_id.clone(), it.parts.len())).collect()
        };
        assert_eq!(texts(&all), [("x".into(), 2), ("a1".into(), 1)]);
        add_chunk(&mut all, &first);
        assert_eq!(texts(&all), [("x".into(), 1), ("a1".into(), 1)]);
    }

    /// What does not have the form is shown as it is, so that nothing gets lost.
    #[test]
    fn a_chunk_without_form_is_shown_as_data() {
        let data = json!({"parts": "none"}).to_string();
        let chunk = chunk_of(&given(json!({"data": data, "media_type": ARTIFACT}))).unwrap();
        assert!(matches!(chunk.artifact.parts[0].content, A2aContent::Data(_)));
    }
}
