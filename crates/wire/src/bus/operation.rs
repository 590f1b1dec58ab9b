//! Reads an operation with its name and its input, in whatever order the two stand in a message.

use std::fmt;
use std::iter::empty;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, MapDeserializer, StrDeserializer};
use serde::de::{
    Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess,
    Visitor,
};
use smol_str::SmolStr;

use super::reader::Unknown;
use super::{BadMessage, read};

/// Reads a message with `operation` and `input` as this operation.
pub(super) fn asked<T: DeserializeOwned>(operation: &str, bytes: &[u8]) -> Result<T, BadMessage> {
    within(INPUT, read(InputSeed::of(InputNeed::Operation(operation)), bytes, Unknown::AsItSays))
}

/// The `input` of a message. If it is absent or nil, all its fields are absent.
pub(super) fn input<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BadMessage> {
    within(INPUT, read(InputSeed::of(InputNeed::Nothing), bytes, Unknown::AsItSays))
}

/// The `input` of a message, which must be present.
pub(super) fn required_input<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BadMessage> {
    within(INPUT, read(InputSeed::of(InputNeed::Input), bytes, Unknown::AsItSays))
}

/// The path of the input of a request in its message.
const INPUT: &str = "input.";

/// Makes an error name the field by its path in the input, not in the message.
pub(super) fn within<T>(input: &str, read: Result<T, BadMessage>) -> Result<T, BadMessage> {
    read.map_err(|mut bad| {
        let field =
            bad.field.as_deref().and_then(|field| field.strip_prefix(input)).map(String::from);
        bad.field = field.or(bad.field);
        bad
    })
}

/// What an input needs to be read.
#[derive(Clone, Copy)]
enum InputNeed<'o> {
    Nothing,
    /// It must be present.
    Input,
    /// The name of this operation, of which it is the input.
    Operation(&'o str),
}

/// Reads an input; if it is absent or nil, all its fields are absent.
pub(super) fn or_nothing<'de, T, D>(d: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::deserialize(d).map(Option::unwrap_or_default)
}

/// A message around an input.
struct InputSeed<'o, T>(InputNeed<'o>, PhantomData<T>);

impl<T> Clone for InputSeed<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for InputSeed<'_, T> {}

impl<'o, T> InputSeed<'o, T> {
    fn of(need: InputNeed<'o>) -> Self {
        Self(need, PhantomData)
    }
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for InputSeed<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<T, D::Error> {
        d.deserialize_struct("request", &["input"], self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for InputSeed<'_, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut said = None;
        while let Some(name) = map.next_key::<SmolStr>()? {
            if name == "input" {
                if said.is_some() {
                    return Err(A::Error::duplicate_field("input"));
                }
                said = Some(map.next_value_seed(Input(self.0, PhantomData))?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        said.map_or_else(|| nothing(self.0), Ok)
    }
}

/// The input in a message.
struct Input<'o, T>(InputNeed<'o>, PhantomData<T>);

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Input<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<T, D::Error> {
        d.deserialize_option(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Input<'_, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the input of an operation")
    }

    fn visit_none<E: Error>(self) -> Result<T, E> {
        nothing(self.0)
    }

    fn visit_unit<E: Error>(self) -> Result<T, E> {
        nothing(self.0)
    }

    fn visit_some<D: Deserializer<'de>>(self, input: D) -> Result<T, D::Error> {
        of(self.0, input)
    }
}

/// An operation without an input.
fn nothing<'de, T: Deserialize<'de>, E: Error>(need: InputNeed<'_>) -> Result<T, E> {
    if matches!(need, InputNeed::Input) {
        return Err(E::missing_field("input"));
    }
    of(need, MapDeserializer::new(empty::<(&str, &str)>()))
}

fn of<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    need: InputNeed<'_>,
    input: D,
) -> Result<T, D::Error> {
    match need {
        InputNeed::Nothing | InputNeed::Input => T::deserialize(input),
        InputNeed::Operation(operation) => {
            let (operation, input) = (Some(operation), Some(input));
            T::deserialize(MapAccessDeserializer::new(OperationSeed { operation, input }))
        }
    }
}

/// An operation, followed by its input. The input decides about unknown fields.
struct OperationSeed<'o, D> {
    operation: Option<&'o str>,
    input: Option<D>,
}

impl<'de, D: Deserializer<'de>> MapAccess<'de> for OperationSeed<'_, D> {
    type Error = D::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, D::Error> {
        let name = match (&self.operation, &self.input) {
            (Some(_), _) => "operation",
            (None, Some(_)) => "input",
            (None, None) => return Ok(None),
        };
        seed.deserialize(StrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, D::Error> {
        match self.operation.take() {
            Some(operation) => seed.deserialize(StrDeserializer::new(operation)),
            None => match self.input.take() {
                Some(input) => seed.deserialize(input),
                None => Err(D::Error::custom("an operation has one input")),
            },
        }
    }
}
