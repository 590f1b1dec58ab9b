//! What a patch does with a field.

use alloc::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize};

/// What a patch does with a field: keep it, clear it, or set it.
///
/// In JSON: absent, `null`, or a value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// Not named.
    #[default]
    Keep,
    /// `null`.
    Clear,
    /// The new value.
    Set(T),
}

impl<T> Change<T> {
    /// Whether the field is not named.
    pub const fn is_keep(&self) -> bool {
        matches!(self, Self::Keep)
    }

    /// The new value.
    pub const fn value(&self) -> Option<&T> {
        match self {
            Self::Keep | Self::Clear => None,
            Self::Set(value) => Some(value),
        }
    }
}

impl<T: Clone> Change<T> {
    /// Applies the change to an optional field.
    pub fn apply(&self, field: &mut Option<T>) {
        match self {
            Self::Keep => {}
            Self::Clear => *field = None,
            Self::Set(value) => *field = Some(value.clone()),
        }
    }

    /// Applies the change to a field that always has a value.
    pub(super) fn replace(&self, field: &mut T) {
        if let Self::Set(value) = self {
            field.clone_from(value);
        }
    }

    /// As [`replace`](Self::replace); if the change clears the field, it gets `cleared`.
    pub(super) fn replace_or(&self, field: &mut T, cleared: T) {
        match self {
            Self::Keep => {}
            Self::Clear => *field = cleared,
            Self::Set(value) => field.clone_from(value),
        }
    }
}

impl<T: Serialize> Serialize for Change<T> {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Keep | Self::Clear => s.serialize_none(),
            Self::Set(value) => s.serialize_some(value),
        }
    }
}

/// An absent field stays as it is, and null clears it.
impl<T: JsonSchema> JsonSchema for Change<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Option::<T>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Option::<T>::json_schema(generator)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Change<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(Option::<T>::deserialize(d)?.map_or(Self::Clear, Self::Set))
    }
}
