//! JSON that others wrote, read within a bound: a text of few bytes may become values that take a hundred times as much
//! memory.

use std::fmt;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor,
};
use serde_json::Error;

/// How many values a text may hold that is read whole. Each takes some 640 bytes at most, as an object of one field
/// does.
pub const VALUES_MAX: usize = 250_000;

/// Reads JSON.
///
/// # Errors
/// It is none, or none of this type, or it holds more than [`VALUES_MAX`] values.
pub fn read_bounded<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    match may_hold(text) > VALUES_MAX {
        true => Err(Error::custom(format_args!("it holds more than {VALUES_MAX} values"))),
        false => serde_json::from_slice(text),
    }
}

/// How many values a text holds at most.
fn may_hold(text: &[u8]) -> usize {
    let (mut count, mut in_string, mut is_escaped) = (1, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => count += 1,
            _ => {}
        }
    }
    count
}

/// Checks that a text is one JSON value, no deeper than others read it, and holds nothing of it in memory.
///
/// # Errors
/// It is none.
pub fn check(text: &[u8]) -> Result<(), Error> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    AnyValue.deserialize(&mut reader)?;
    reader.end()
}

/// Any value, which is not kept.
#[derive(Clone, Copy)]
struct AnyValue;

impl<'de> DeserializeSeed<'de> for AnyValue {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AnyValue {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        while values.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while fields.next_entry_seed(self, self)?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::*;

    /// What counts is what would take memory, and nothing in a text does.
    #[test]
    fn the_values_of_a_text_have_a_bound() {
        let of = |count: usize| format!("[{}]", vec!["{}"; count].join(","));
        assert_eq!(may_hold(br#"{"a,[{\"": [1, "\\", {}]}"#), 6, "one more than there are");
        let count = |text: &str| read_bounded::<Vec<Json>>(text.as_bytes()).map(|it| it.len());
        let most = VALUES_MAX / 2 - 1;
        assert_eq!(count(&of(most)).unwrap(), most);
        let refused = count(&of(most + 1)).unwrap_err();
        assert!(refused.to_string().contains("more than 250000 values"), "{refused}");
        let long = format!("[\"{}\"]", "[,{".repeat(VALUES_MAX));
        assert_eq!(count(&long).unwrap(), 1);
        assert!(read_bounded::<Json>(b"[").is_err());
    }

    /// What is checked can be read, and what cannot be read is refused.
    #[test]
    fn a_check_takes_what_is_read() {
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        for text in [
            "null",
            " {\"a\": [1, -2.5, 1e3, \"\\u00e9\\n\", true, {}], \"a\": 1} ",
            "1e999",
            "1 2",
            "[1,]",
            "{\"a\"}",
            "\"\\ud800\"",
            "01",
            "",
            &deep(127),
            &deep(128),
            &deep(1_000),
            "18446744073709551616",
        ] {
            let read = serde_json::from_str::<Json>(text).is_ok();
            assert_eq!(check(text.as_bytes()).is_ok(), read, "{text:.80}");
        }
        assert!(check(b"\"\xff\"").is_err());
    }
}
