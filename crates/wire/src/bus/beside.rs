//! Parts of a report message that must not spoil the reports: a part that cannot be read counts as absent.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use smol_str::SmolStr;

use super::worker::Capacity;
use super::{V, VERSION};

/// Reads a statement of capacity; `None` if it is something else.
pub(super) fn room<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Capacity>, D::Error> {
    Any::deserialize(d).map(|any| any.room())
}

/// Any value, as far as it can be part of a statement of capacity.
enum Any {
    Number(u64),
    Text(SmolStr),
    Map(Vec<(Any, Any)>),
    Other,
}

impl Any {
    fn room(&self) -> Option<Capacity> {
        if self.number("v")? != u64::from(VERSION) {
            return None;
        }
        let link = match self.field("link")? {
            Self::Text(link) => link.clone(),
            _ => return None,
        };
        let (number, free) = (self.number("number")?, self.number("free")?);
        Some(Capacity {
            v: V,
            link,
            number,
            free,
            seen: self.number("seen")?,
            got: self.number("got")?,
            lost: self.number("lost").unwrap_or(0),
        })
    }

    fn number(&self, name: &str) -> Option<u64> {
        match self.field(name)? {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    fn field(&self, name: &str) -> Option<&Self> {
        let Self::Map(entries) = self else { return None };
        let is_meant = |key: &Self| matches!(key, Self::Text(key) if key == name);
        entries.iter().find(|(key, _)| is_meant(key)).map(|(_, value)| value)
    }
}

impl<'de> Deserialize<'de> for Any {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(Whatever)
    }
}

struct Whatever;

impl<'de> Visitor<'de> for Whatever {
    type Value = Any;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Any, E> {
        Ok(Any::Number(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Any, E> {
        Ok(u64::try_from(number).map_or(Any::Other, Any::Number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Any, E> {
        Ok(Any::Text(text.into()))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Any, E> {
        Ok(Any::Other)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Any, E> {
        Ok(Any::Other)
    }

    fn visit_bytes<E: Error>(self, _: &[u8]) -> Result<Any, E> {
        Ok(Any::Other)
    }

    fn visit_none<E: Error>(self) -> Result<Any, E> {
        Ok(Any::Other)
    }

    fn visit_unit<E: Error>(self) -> Result<Any, E> {
        Ok(Any::Other)
    }

    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Any, D::Error> {
        Any::deserialize(d)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, d: D) -> Result<Any, D::Error> {
        IgnoredAny::deserialize(d).map(|IgnoredAny| Any::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Any, A::Error> {
        while let Some(IgnoredAny) = seq.next_element()? {}
        Ok(Any::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Any, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Any::Map(entries))
    }
}
