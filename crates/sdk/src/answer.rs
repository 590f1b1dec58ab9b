//! Encodes a person's answer to a Step as a reference: a `data:` URI (RFC 2397) with the text
//! inside. A parameter makes each answer unique, because a Step stores equal references only once.

use tenure_core::Rejection;
use tenure_core::id::Ref;
use uuid::Uuid;

const PREFIX: &str = "data:text/plain;charset=utf-8;answer=";

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

/// The text inside a reference, if it has one.
pub(crate) fn of_ref(reference: &Ref) -> Option<String> {
    let (_, encoded) = reference.as_str().strip_prefix(PREFIX)?.split_once(',')?;
    let encoded = encoded.as_bytes();
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded;
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
    String::from_utf8(bytes).ok()
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
