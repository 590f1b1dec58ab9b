//! [`PackedRequest`]: writes JSON as MessagePack, the form in which the bus reads requests.
//!
//! A request that comes in JSON becomes the message that a client of the bus would send, and is read
//! by the same code: so every refusal names its field as on the bus, and a field that is misspelt or
//! given twice is refused here as there.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;
use smol_str::SmolStr;

/// MessagePack, as far as it is written.
#[derive(Debug, Default)]
pub(super) struct PackedRequest(Vec<u8>);

/// A list or a map whose entries are being counted.
#[derive(Debug)]
pub(super) struct OpenEntries {
    at: usize,
    count: u32,
}

/// Fields of an input that do not come in the body, in their order.
pub(super) type Fields = Vec<(SmolStr, Json)>;

impl PackedRequest {
    /// Begins a map. Each entry is a key and a value, and is counted with [`OpenEntries::add`].
    pub(super) fn map(&mut self) -> OpenEntries {
        self.open(0xdf)
    }

    fn list(&mut self) -> OpenEntries {
        self.open(0xdd)
    }

    fn open(&mut self, marker: u8) -> OpenEntries {
        self.0.push(marker);
        let at = self.0.len();
        self.0.extend([0; 4]); // The count, which is known at the end.
        OpenEntries { at, count: 0 }
    }

    /// Ends a list or a map.
    pub(super) fn close(&mut self, open: &OpenEntries) {
        self.0[open.at..open.at + 4].copy_from_slice(&open.count.to_be_bytes());
    }

    /// Writes a text.
    pub(super) fn text(&mut self, text: &str) {
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX); // A body is far shorter.
        let [.., high, low] = length.to_be_bytes();
        match (length, high, low) {
            (..32, _, low) => self.0.push(0xa0 | low),
            (..0x100, _, low) => self.0.extend([0xd9, low]),
            (..0x1_0000, high, low) => self.0.extend([0xda, high, low]),
            (length, ..) => {
                self.0.push(0xdb);
                self.0.extend(length.to_be_bytes());
            }
        }
        self.0.extend(text.as_bytes());
    }

    /// Writes a number that is not negative.
    pub(super) fn unsigned(&mut self, number: u64) {
        match u8::try_from(number) {
            Ok(small) if small < 0x80 => self.0.push(small),
            _ => {
                self.0.push(0xcf);
                self.0.extend(number.to_be_bytes());
            }
        }
    }

    fn signed(&mut self, number: i64) {
        self.0.push(0xd3);
        self.0.extend(number.to_be_bytes());
    }

    fn float(&mut self, number: f64) {
        self.0.push(0xcb);
        self.0.extend(number.to_be_bytes());
    }

    fn boolean(&mut self, is_true: bool) {
        self.0.push(0xc2 | u8::from(is_true));
    }

    fn nil(&mut self) {
        self.0.push(0xc0);
    }

    /// Writes a value.
    fn value(&mut self, value: &Json) {
        let written = Transcoder { into: self, first: None }.deserialize(value);
        debug_assert!(written.is_ok(), "a value that was read can be written");
    }

    /// Writes the input of an operation: these fields, and those of the JSON text. If that is no map,
    /// it is written as it is, for the reader to refuse.
    ///
    /// # Errors
    /// The text is no JSON, or is nested too deep to be read.
    pub(super) fn input(&mut self, fields: &Fields, text: &[u8]) -> Result<(), serde_json::Error> {
        let first = Some(fields.as_slice());
        if text.is_empty() {
            return Transcoder { into: self, first }.deserialize(Json::Null);
        }
        let mut json = serde_json::Deserializer::from_slice(text);
        Transcoder { into: self, first }.deserialize(&mut json)?;
        json.end()
    }

    /// The message.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl OpenEntries {
    /// Counts an entry.
    pub(super) fn add(&mut self) {
        self.count += 1;
    }
}

/// Writes whatever is read. At the top of an input, `first` has fields that come before those read.
struct Transcoder<'a> {
    into: &'a mut PackedRequest,
    first: Option<&'a [(SmolStr, Json)]>,
}

impl Transcoder<'_> {
    fn begin_map(&mut self) -> OpenEntries {
        let mut map = self.into.map();
        for (name, value) in self.first.unwrap_or_default() {
            self.into.text(name);
            self.into.value(value);
            map.add();
        }
        map
    }
}

impl<'de> DeserializeSeed<'de> for Transcoder<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Transcoder<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, is_true: bool) -> Result<(), E> {
        self.into.boolean(is_true);
        Ok(())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.into.unsigned(number);
        Ok(())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.into.signed(number);
        Ok(())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        self.into.float(number);
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.into.text(text);
        Ok(())
    }

    /// An input that is `null` has no fields of its own.
    fn visit_unit<E: Error>(mut self) -> Result<(), E> {
        match self.first {
            Some(_) => {
                let map = self.begin_map();
                self.into.close(&map);
            }
            None => self.into.nil(),
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut list = self.into.list();
        while seq.next_element_seed(Transcoder { into: self.into, first: None })?.is_some() {
            list.add();
        }
        self.into.close(&list);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<(), A::Error> {
        let mut map = self.begin_map();
        while entries.next_key_seed(Transcoder { into: self.into, first: None })?.is_some() {
            entries.next_value_seed(Transcoder { into: self.into, first: None })?;
            map.add();
        }
        self.into.close(&map);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(packed: PackedRequest) -> Json {
        rmp_serde::from_slice(&packed.into_bytes()).unwrap()
    }

    fn input(fields: &[(&str, Json)], text: &str) -> Result<Json, serde_json::Error> {
        let fields = fields.iter().map(|(name, value)| ((*name).into(), value.clone())).collect();
        let mut packed = PackedRequest::default();
        packed.input(&fields, text.as_bytes())?;
        Ok(read(packed))
    }

    #[test]
    fn what_is_packed_is_what_was_read() {
        let long = "x".repeat(70_000);
        let text = serde_json::json!({
            "texts": ["", "é", "x".repeat(31), "x".repeat(32), "x".repeat(256), long],
            "numbers": [0, 127, 128, u64::MAX, -1, i64::MIN, 0.1, 1e300],
            "others": [null, true, false, {}, [], { "deep": { "er": [[1]] } }],
        });
        assert_eq!(input(&[], &text.to_string()).unwrap(), text);
    }

    #[test]
    fn fields_of_the_path_come_before_those_of_the_body() {
        let given = [("step_id", Json::from("a"))];
        let both = serde_json::json!({ "step_id": "a", "status": "blocked" });
        assert_eq!(input(&given, r#"{"status":"blocked"}"#).unwrap(), both);
        let alone = serde_json::json!({ "step_id": "a" });
        for empty in ["", "null", "{}"] {
            assert_eq!(input(&given, empty).unwrap(), alone, "{empty:?}");
        }
        assert_eq!(input(&given, "[1]").unwrap(), serde_json::json!([1]), "the reader refuses it");
    }

    #[test]
    fn a_key_that_comes_twice_stays_twice_for_the_reader_to_refuse() {
        let mut packed = PackedRequest::default();
        packed.input(&Fields::new(), br#"{"a":1,"a":2}"#).unwrap();
        assert_eq!(packed.into_bytes(), [0xdf, 0, 0, 0, 2, 0xa1, b'a', 1, 0xa1, b'a', 2]);
    }

    #[test]
    fn what_is_no_json_is_refused() {
        let deep = "[".repeat(129) + &"]".repeat(129);
        for text in ["{", "{} {}", "nonsense", "{\"a\":01}", "\u{0}", &deep] {
            assert!(input(&[], text).is_err(), "{text:.20}");
        }
    }
}
