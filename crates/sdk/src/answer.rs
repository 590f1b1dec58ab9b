//! Encodes a person's answer to a Step as a reference: a `data:` URI (RFC 2397) with the text
//! inside. A parameter makes each answer unique, because a Step stores equal references only once.
//!
//! A caller of A2A answers with a whole message, which a gateway encodes in the same way, as JSON.

use serde::Deserialize;
use tenure_core::Rejection;
use tenure_core::id::Ref;
use uuid::Uuid;

const PREFIX: &str = "data:text/plain;charset=utf-8;answer=";

/// How the reference of a message of A2A begins.
const MESSAGE_PREFIX: &str = "data:application/json;a2a-message=";

/// What is read of a message of A2A.
#[derive(Deserialize)]
struct AnswerMessage {
    parts: Vec<AnswerPart>,
}

/// A part of it.
#[derive(Deserialize)]
struct AnswerPart {
    text: Option<String>,
}

/// Makes a reference that has the text inside.
///
/// # Errors
/// `validation_error`: it is longer than a reference may be.
pub(crate) fn to_ref(text: &str) -> Result<Ref, Rejection> {
    let mut uri = format!("{PREFIX}{},", Uuid::now_v7().simple());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                uri.push(char::from(byte));
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    Ref::new(uri).map_err(|_| {
        Rejection::invalid(
            "answer",
            "the answer is too long: put it somewhere, and answer with its address",
        )
    })
}

/// The text inside a reference, if it has one. Of a message of A2A these are its texts, one a line.
pub(crate) fn of_ref(reference: &Ref) -> Option<String> {
    let reference = reference.as_str();
    if let Some(message) = reference.strip_prefix(MESSAGE_PREFIX) {
        let (_, encoded) = message.split_once(',')?;
        let AnswerMessage { parts } = serde_json::from_slice(&decoded(encoded)?).ok()?;
        let texts: Vec<String> = parts.into_iter().filter_map(|part| part.text).collect();
        return (!texts.is_empty()).then(|| texts.join("\n"));
    }
    let (_, encoded) = reference.strip_prefix(PREFIX)?.split_once(',')?;
    String::from_utf8(decoded(encoded)?).ok()
}

/// The bytes that stand in a URI.
fn decoded(encoded: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let byte = digit(*high)? * 16 + digit(*low)?;
                bytes.push(u8::try_from(byte).ok()?);
                rest = after;
            }
            (b'%', _) => return None,
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_comes_back() {
        for text in ["", "yes", "50 % of it, please\nÜber 9000 €", "a%41"] {
            assert_eq!(of_ref(&to_ref(text).unwrap()).as_deref(), Some(text));
        }
    }

    #[test]
    fn the_same_answer_again_is_another_one() {
        assert_ne!(to_ref("yes").unwrap(), to_ref("yes").unwrap());
    }

    #[test]
    fn what_is_too_long_is_refused_at_the_limit() {
        let room = 4096 - PREFIX.len() - 33;
        assert!(to_ref(&"a".repeat(room)).is_ok());
        assert!(to_ref(&"a".repeat(room + 1)).unwrap_err().message.contains("too long"));
    }

    /// A2A-10: a caller of A2A answers with a message, of which a handler gets the texts.
    #[test]
    fn the_texts_of_a_message_are_an_answer() {
        let answer = |json: &str| {
            let escaped: String = json.bytes().map(|byte| format!("%{byte:02x}")).collect();
            of_ref(&Ref::new(format!("{MESSAGE_PREFIX}1,{escaped}")).unwrap())
        };
        let message = r#"{"messageId":"m","parts":[{"text":"yes"},{"url":"a:b"},{"text":"ü"}]}"#;
        assert_eq!(answer(message).as_deref(), Some("yes\nü"));
        assert_eq!(answer(r#"{"parts":[{"data":1}]}"#), None);
        assert_eq!(answer("{"), None);
    }

    #[test]
    fn what_is_no_text_is_none() {
        for other in [
            "artifact-1",
            "https://example.org",
            "data:text/plain,yes",
            "data:text/plain;charset=utf-8;answer=1,%F",
        ] {
            assert_eq!(of_ref(&Ref::new(other).unwrap()), None, "{other}");
        }
    }
}
