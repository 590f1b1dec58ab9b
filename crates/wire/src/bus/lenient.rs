//! Reading past fields that are not known, whatever the record they stand in would do by itself.
//!
//! Records of the log refuse them (RECOVER-05), and so do inputs of commands, where a misspelt field
//! must not be lost in silence. Between a sender and a reader of other releases they are passed over
//! (mechanisms 17): a new field of a worker's report must not fail its Step. What serde puts aside to
//! read it again (`untagged`, `flatten`), and what stands in a variant of an enum, is read as always.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error, IgnoredAny, MapAccess,
    SeqAccess, Visitor,
};

/// Reads a value so.
pub(super) fn read<'de, T: Deserialize<'de>, D: Deserializer<'de>>(d: D) -> Result<T, D::Error> {
    T::deserialize(Lenient(d))
}

/// A message that is read so.
pub(super) struct Message<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Message<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        read(d).map(Self)
    }
}

/// What is read through this is read so, and everything in it: a deserializer, a sequence, or what
/// is made of an element.
struct Lenient<T>(T);

macro_rules! deserialize {
    ($($name:ident($($arg:ident: $type:ty),*))*) => {$(
        fn $name<V: Visitor<'de>>(self, $($arg: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.0.$name($($arg,)* Seen { visitor, fields: None })
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Lenient<D> {
    type Error = D::Error;

    deserialize! {
        deserialize_any()
        deserialize_bool()
        deserialize_i8()
        deserialize_i16()
        deserialize_i32()
        deserialize_i64()
        deserialize_i128()
        deserialize_u8()
        deserialize_u16()
        deserialize_u32()
        deserialize_u64()
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

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, fields, Seen { visitor, fields: Some(fields) })
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Lenient<A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, A::Error> {
        self.0.next_element_seed(Lenient(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Lenient<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Lenient(d))
    }
}

/// What a visitor sees. Of a record it sees the fields that there are.
struct Seen<V> {
    visitor: V,
    fields: Option<&'static [&'static str]>,
}

macro_rules! visit {
    ($($name:ident($type:ty))*) => {$(
        fn $name<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.visitor.$name(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Seen<V> {
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
        visit_str(&str)
        visit_borrowed_str(&'de str)
        visit_string(String)
        visit_bytes(&[u8])
        visit_borrowed_bytes(&'de [u8])
        visit_byte_buf(Vec<u8>)
    }

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(Lenient(d))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, d: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_newtype_struct(Lenient(d))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_seq(Lenient(seq))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(Entries { map, fields: self.fields })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(data)
    }
}

/// Entries of a map, or the known ones of a record.
struct Entries<A> {
    map: A,
    fields: Option<&'static [&'static str]>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Entries<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let Some(fields) = self.fields else { return self.map.next_key_seed(seed) };
        while let Some(key) = self.map.next_key_seed(FieldOf(fields))? {
            if let Some(name) = key {
                return seed.deserialize(StrDeserializer::new(name)).map(Some);
            }
            self.map.next_value::<IgnoredAny>()?;
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.map.next_value_seed(Lenient(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.map.size_hint().filter(|_| self.fields.is_none())
    }
}

/// The name of a field, if it is one of these.
struct FieldOf(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for FieldOf {
    type Value = Option<&'static str>;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_identifier(self)
    }
}

impl Visitor<'_> for FieldOf {
    type Value = Option<&'static str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_u64<E: Error>(self, index: u64) -> Result<Self::Value, E> {
        Ok(usize::try_from(index).ok().and_then(|index| self.0.get(index).copied()))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().copied().find(|field| *field == name))
    }

    fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<Self::Value, E> {
        Ok(self.0.iter().copied().find(|field| field.as_bytes() == name))
    }
}
