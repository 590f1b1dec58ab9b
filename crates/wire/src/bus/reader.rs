//! Reads messages by the rules of docs/protocol.md, whatever the record types in them would accept
//! by themselves.
//!
//! A record is a map with named fields. Serde would take the fields of a list, or of a map with
//! numbers as keys, by position; this reader refuses both.
//!
//! Records of the log refuse unknown fields (RECOVER-05), and so do inputs of commands, where a
//! misspelt field must not get lost without an error. Between a sender and a reader of different
//! releases, the reader skips unknown fields (mechanisms 17): a new field in a worker's report must
//! not fail its Step. Serde's own rules apply to values that it buffers to read them again
//! (`untagged`, `flatten`), and inside of a variant of an enum.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::StrDeserializer;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error, IgnoredAny, MapAccess,
    SeqAccess, Unexpected, Visitor,
};
use smol_str::SmolStr;

/// Reads a value and skips unknown fields.
pub(super) fn lenient<'de, T: Deserialize<'de>, D: Deserializer<'de>>(d: D) -> Result<T, D::Error> {
    read(PhantomData, d, Unknown::PassedOver, None)
}

/// Reads a value. If it fails, `place` says where; to note that costs some tenth of reading.
pub(super) fn read<'de, S: DeserializeSeed<'de>, D: Deserializer<'de>>(
    seed: S,
    inner: D,
    unknown: Unknown,
    place: Option<&FieldPath>,
) -> Result<S::Value, D::Error> {
    seed.deserialize(Reader { inner, how: How { unknown, place, is_key: false } })
}

/// How to treat fields that a record does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    /// Skip them.
    PassedOver,
    /// As the record's type says.
    AsItSays,
}

/// The path of the value that is being read.
#[derive(Debug, Default)]
pub(super) struct FieldPath(RefCell<Vec<PathPart>>);

/// So many characters of a name are shown in an error.
const FIELD_SHOWN: usize = 80;

/// A step on the path to a value.
#[derive(Debug)]
enum PathPart {
    Field(SmolStr),
    Element(usize),
}

impl FieldPath {
    /// The path as people write it: `steps[2].summary`.
    pub(super) fn name(&self) -> Option<String> {
        let mut name = String::new();
        for part in &*self.0.borrow() {
            match part {
                PathPart::Element(at) => name.push_str(&format!("[{at}]")),
                PathPart::Field(field) => {
                    if !name.is_empty() {
                        name.push('.');
                    }
                    name.extend(field.chars().take(FIELD_SHOWN)); // A sender may have chosen it.
                }
            }
        }
        (!name.is_empty()).then_some(name)
    }
}

#[derive(Debug, Clone, Copy)]
struct How<'p> {
    unknown: Unknown,
    place: Option<&'p FieldPath>,
    /// Whether the value is a key of a map, whose value comes next.
    is_key: bool,
}

impl How<'_> {
    fn enter(self, part: impl FnOnce() -> PathPart) {
        if let Some(FieldPath(parts)) = self.place {
            parts.borrow_mut().push(part());
        }
    }

    fn depth(self) -> usize {
        self.place.map_or(0, |FieldPath(parts)| parts.borrow().len())
    }

    /// Cuts the path to this depth.
    fn leave_to(self, depth: usize) {
        if let Some(FieldPath(parts)) = self.place {
            parts.borrow_mut().truncate(depth);
        }
    }
}

/// Applies `how` to whatever is read through it, and to everything in that: it wraps a
/// deserializer, a sequence, or the seed of an element.
struct Reader<'p, T> {
    inner: T,
    how: How<'p>,
}

macro_rules! deserialize {
    ($($name:ident($($arg:ident: $type:ty),*))*) => {$(
        fn $name<V: Visitor<'de>>(self, $($arg: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$name($($arg,)* Seen { visitor, how: self.how })
        }
    )*};
}

macro_rules! integers {
    ($($name:ident)*) => {$(
        fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.deserialize_any(visitor)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Reader<'_, D> {
    type Error = D::Error;

    deserialize! {
        deserialize_any()
        deserialize_bool()
        deserialize_i128()
        deserialize_u128()
        deserialize_f32()
        deserialize_f64()
        deserialize_char()
        deserialize_str()
        deserialize_string()
        deserialize_bytes()
        deserialize_byte_buf()
        deserialize_option()
        deserialize_unit()
        deserialize_unit_struct(name: &'static str)
        deserialize_newtype_struct(name: &'static str)
        deserialize_seq()
        deserialize_tuple(len: usize)
        deserialize_tuple_struct(name: &'static str, len: usize)
        deserialize_map()
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
        deserialize_identifier()
        deserialize_ignored_any()
    }

    // Reading as any value makes an error name what is there; an integer reader would name its marker.
    integers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_struct(name, fields, Record { visitor, fields, how: self.how })
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// The elements of a list.
struct Elements<'p, A> {
    list: A,
    how: How<'p>,
    /// The number of the next one, from 0.
    next: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Elements<'_, A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, A::Error> {
        let depth = self.how.depth();
        self.how.enter(|| PathPart::Element(self.next));
        let element = self.list.next_element_seed(Reader { inner: seed, how: self.how })?;
        self.how.leave_to(depth);
        self.next += 1;
        Ok(element)
    }

    fn size_hint(&self) -> Option<usize> {
        self.list.size_hint()
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Reader<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Reader { inner: d, how: self.how })
    }
}

/// Wraps the visitor of anything but a record.
struct Seen<'p, V> {
    visitor: V,
    how: How<'p>,
}

impl<V> Seen<'_, V> {
    fn note_key(&self, text: &str) {
        if self.how.is_key {
            self.how.enter(|| PathPart::Field(SmolStr::new(text)));
        }
    }
}

macro_rules! visit {
    ($($name:ident($type:ty))*) => {$(
        fn $name<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.visitor.$name(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Seen<'_, V> {
    type Value = V::Value;

    visit! {
        visit_bool(bool)
        visit_i8(i8)
        visit_i16(i16)
        visit_i32(i32)
        visit_i64(i64)
        visit_i128(i128)
        visit_u8(u8)
        visit_u16(u16)
        visit_u32(u32)
        visit_u64(u64)
        visit_u128(u128)
        visit_f32(f32)
        visit_f64(f64)
        visit_char(char)
        visit_bytes(&[u8])
        visit_borrowed_bytes(&'de [u8])
        visit_byte_buf(Vec<u8>)
    }

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<V::Value, E> {
        self.note_key(value);
        self.visitor.visit_str(value)
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<V::Value, E> {
        self.note_key(value);
        self.visitor.visit_borrowed_str(value)
    }

    fn visit_string<E: Error>(self, value: String) -> Result<V::Value, E> {
        self.note_key(&value);
        self.visitor.visit_string(value)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(Reader { inner: d, how: self.how })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, d: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_newtype_struct(Reader { inner: d, how: self.how })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_seq(Elements { list: seq, how: self.how, next: 0 })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(Entries { map, how: self.how, depth: self.how.depth() })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(data)
    }
}

/// The entries of a map.
struct Entries<'p, A> {
    map: A,
    how: How<'p>,
    /// The depth of the map's path.
    depth: usize,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Entries<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let how = How { is_key: true, ..self.how };
        self.map.next_key_seed(Reader { inner: seed, how })
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let value = self.map.next_value_seed(Reader { inner: seed, how: self.how })?;
        self.how.leave_to(self.depth);
        Ok(value)
    }

    fn size_hint(&self) -> Option<usize> {
        self.map.size_hint()
    }
}

/// Wraps the visitor of a record, so that it accepts a map and nothing else.
struct Record<'p, V> {
    visitor: V,
    fields: &'static [&'static str],
    how: How<'p>,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Record<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map with named fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        let Self { visitor, fields, how } = self;
        visitor.visit_map(RecordFields { map, fields, how, depth: how.depth() })
    }
}

/// The fields of a record.
struct RecordFields<'p, A> {
    map: A,
    fields: &'static [&'static str],
    how: How<'p>,
    /// The depth of the record's path.
    depth: usize,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for RecordFields<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(name) = self.map.next_key_seed(FieldOf(self.fields))? {
            match name {
                Name::Known(name) => {
                    self.how.enter(|| PathPart::Field(SmolStr::new_static(name)));
                    return seed.deserialize(StrDeserializer::new(name)).map(Some);
                }
                Name::Other(name) if self.how.unknown == Unknown::AsItSays => {
                    self.how.enter(|| PathPart::Field(name.clone()));
                    return seed.deserialize(StrDeserializer::new(&name)).map(Some);
                }
                Name::Other(_) => {
                    self.map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let value = self.map.next_value_seed(Reader { inner: seed, how: self.how })?;
        self.how.leave_to(self.depth);
        Ok(value)
    }
}

/// The name of a field.
enum Name {
    /// A field of the record.
    Known(&'static str),
    Other(SmolStr),
}

/// Reads the name of a field, for a record with these fields.
struct FieldOf(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for FieldOf {
    type Value = Name;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Name, D::Error> {
        d.deserialize_identifier(self)
    }
}

impl Visitor<'_> for FieldOf {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Name, E> {
        let known = self.0.iter().copied().find(|field| *field == name);
        Ok(known.map_or_else(|| Name::Other(name.into()), Name::Known))
    }

    fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<Name, E> {
        match std::str::from_utf8(name) {
            Ok(name) => self.visit_str(name),
            Err(_) => Err(E::invalid_type(Unexpected::Bytes(name), &self)),
        }
    }
}
