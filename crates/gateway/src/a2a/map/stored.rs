//! Messages to a Task that is there, as references: `input_refs` (A2A-10, A2A-21).
//!
//! A short message stands in its reference, a `data:` URI (RFC 2397). A longer one is a blob of the Task,
//! and the reference names that.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tenure_core::id::{BlobHash, Ref};
use tenure_core::record::Blob;
use uuid::Uuid;

use super::BlobBytes;
use super::weights::read_json;
use crate::a2a::wire::{A2aMessage, A2aPart, A2aRole};

/// How the reference of a short message begins. What follows makes each one unique, because a Step stores
/// equal references only once.
const PREFIX: &str = "data:application/json;a2a-message=";

/// How the answer of a person begins that came in another way than A2A: behind it stand what makes it unique,
/// and the text.
const ANSWER: &str = "data:text/plain;charset=utf-8;answer=";

/// What stands in a reference as it is.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Where a message is to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoredMessage {
    /// In this reference.
    Inline(Ref),
    /// In a blob with these bytes, which its sender puts first.
    Large(Vec<u8>),
}

/// Where a message is to be kept.
pub(crate) fn stored(message: &A2aMessage) -> StoredMessage {
    // A message came as JSON, so it has a form in it.
    let json = serde_json::to_string(message).unwrap_or_default();
    let unique = Uuid::now_v7().simple();
    let reference = format!("{PREFIX}{unique},{}", utf8_percent_encode(&json, ESCAPED));
    match Ref::new(reference) {
        Ok(reference) => StoredMessage::Inline(reference),
        Err(_) => StoredMessage::Large(json.into_bytes()),
    }
}

/// The blob that a reference names, if it names one.
pub(super) fn blob_of(reference: &Ref) -> Option<BlobHash> {
    Blob::hash_in(reference.as_str())
}

/// The message behind a reference; none if it is a reference of another kind.
pub(super) fn message_of(reference: &Ref, blobs: &BlobBytes) -> Option<A2aMessage> {
    if let Some(hash) = blob_of(reference) {
        return read_json(blobs.get(&hash)?);
    }
    if let Some(answer) = reference.as_str().strip_prefix(ANSWER) {
        let (unique, escaped) = answer.split_once(',')?;
        let text = percent_decode_str(escaped).decode_utf8().ok()?;
        return Some(said_by_person(unique, &text));
    }
    let (_, escaped) = reference.as_str().strip_prefix(PREFIX)?.split_once(',')?;
    let json: Vec<u8> = percent_decode_str(escaped).collect();
    read_json(&json)
}

fn said_by_person(id: &str, text: &str) -> A2aMessage {
    A2aMessage {
        message_id: id.to_owned(),
        role: A2aRole::User,
        parts: vec![A2aPart::text(text)],
        ..A2aMessage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> A2aMessage {
        let parts = vec![A2aPart::text(text)];
        A2aMessage { message_id: "m".into(), parts, ..A2aMessage::default() }
    }

    /// A2A-10, A2A-21: a message comes back from the reference that is kept.
    #[test]
    fn a_short_message_stands_in_its_reference() {
        let given = message("yes, \"both\" – 50 %");
        let StoredMessage::Inline(reference) = stored(&given) else { panic!("it is short") };
        assert_eq!(message_of(&reference, &BlobBytes::new()), Some(given.clone()));
        assert_ne!(stored(&given), stored(&given), "each is another one");
    }

    #[test]
    fn a_long_message_is_a_blob() {
        let given = message(&"a".repeat(5_000));
        let StoredMessage::Large(bytes) = stored(&given) else { panic!("it is long") };
        let blob = Blob::of(&bytes);
        let blobs = BlobBytes::from([(blob.hash, bytes.into())]);
        assert_eq!(message_of(&blob.reference(), &blobs), Some(given));
        assert_eq!(message_of(&blob.reference(), &BlobBytes::new()), None);
    }

    /// Who answers by command is in the history of the task, too.
    #[test]
    fn the_answer_of_a_person_is_a_message() {
        let reference = "data:text/plain;charset=utf-8;answer=7,50%20%25".parse().unwrap();
        let message = message_of(&reference, &BlobBytes::new()).unwrap();
        assert_eq!((&*message.message_id, message.role), ("7", A2aRole::User));
        assert_eq!(message.text(), "50 %");
    }

    #[test]
    fn other_references_are_no_messages() {
        for other in ["artifact-1", "https://example.org", "data:text/plain,yes"] {
            assert_eq!(message_of(&other.parse().unwrap(), &BlobBytes::new()), None, "{other}");
        }
    }
}
