//! The messages between scheduler nodes, workers and orchestrators on the network.
//!
//! [`subject`] has the subjects, which name the sender; [`worker`], [`request`], [`event`],
//! [`operate`], [`output`] and [`node`] are the messages, MessagePack maps with named fields. Every message
//! carries the version `v`. A reader skips unknown fields, except in the input of an operation; it
//! refuses an unknown version, and a list in the place of a map. docs/protocol.md describes all of
//! it for other languages.
//!
//! These forms live as long as a release; those of [`stored`](crate::stored) live for ever.

pub mod address;
mod ask;
mod beside;
pub mod blob;
pub mod call;
pub mod catalog;
pub mod event;
pub mod fault;
pub mod fleet;
pub mod node;
pub mod operate;
mod operation;
pub mod output;
mod reader;
mod report;
pub mod request;
pub mod subject;
pub mod turns;
pub mod worker;

use std::borrow::Cow;
use std::io::ErrorKind::UnexpectedEof;
use std::io::{self, Write};
use std::marker::PhantomData;

use rmp_serde::decode::Error::InvalidMarkerRead;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeOwned, DeserializeSeed};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tenure_core::Rejection;

use self::reader::{FieldPath, Unknown};

/// The version of the protocol here.
pub const VERSION: u16 = 1;

/// The placement of a cluster whose nodes name none (OWN-01).
fn first_placement() -> u32 {
    1
}

fn is_first_placement(placement: &u32) -> bool {
    *placement == first_placement()
}

/// Longest message, in bytes.
pub const MESSAGE_MAX: usize = 1 << 20;

/// Deepest nesting of a message, so that a hostile one cannot exhaust the stack.
const DEPTH_MAX: usize = 64;

/// The version field of a message: writes [`VERSION`], and reads no other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct V;

impl Serialize for V {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u16(VERSION)
    }
}

impl JsonSchema for V {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Version".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "const": VERSION })
    }
}

impl<'de> Deserialize<'de> for V {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let given = u64::deserialize(d)?;
        if given == u64::from(VERSION) {
            return Ok(Self);
        }
        let message = format!("version {given} of the protocol is not spoken here, only {VERSION}");
        Err(serde::de::Error::custom(message))
    }
}

/// A message that cannot be read, or that cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the message cannot be read{}: {why}", place(.field))]
pub struct BadMessage {
    /// What is wrong with it.
    pub why: String,
    /// The path of the field that is wrong; absent: the message itself.
    pub field: Option<String>,
}

impl BadMessage {
    fn whole(why: impl Into<String>) -> Self {
        Self { why: why.into(), field: None }
    }
}

fn place(field: &Option<String>) -> String {
    field.as_ref().map_or_else(String::new, |field| format!(" at `{field}`"))
}

impl From<BadMessage> for Rejection {
    fn from(bad: BadMessage) -> Self {
        Self::invalid(bad.field.as_deref().unwrap_or("message"), bad.to_string())
    }
}

/// A message as bytes: MessagePack, maps with named fields.
///
/// # Errors
/// It is longer than [`MESSAGE_MAX`], or a value in it has no form in MessagePack.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, BadMessage> {
    encode_within(MESSAGE_MAX, message)
}

/// A message as bytes, for a transport that carries up to `most` of them.
///
/// # Errors
/// It is longer, or a value in it has no form in MessagePack.
pub fn encode_within<T: Serialize>(most: usize, message: &T) -> Result<Vec<u8>, BadMessage> {
    let mut out = Bounded { bytes: Vec::with_capacity(256), most, is_full: false };
    let written = message.serialize(&mut rmp_serde::Serializer::new(&mut out).with_struct_map());
    if out.is_full {
        return Err(too_long(most));
    }
    written.map_err(|error| BadMessage::whole(error.to_string()))?;
    let out = out.bytes;
    Ok(out)
}

/// Reads a message, to its last byte, nested no deeper than 64. Skips unknown fields.
///
/// # Errors
/// The bytes are no such message, nest too deep, are too long, or something follows the message.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BadMessage> {
    decode_within(MESSAGE_MAX, bytes)
}

/// Reads a message of a transport that carries up to `most` bytes.
///
/// # Errors
/// As [`decode`].
pub fn decode_within<T: DeserializeOwned>(most: usize, bytes: &[u8]) -> Result<T, BadMessage> {
    check_length(most, bytes)?;
    read(PhantomData, bytes, Unknown::PassedOver)
}

/// Reads a message with the input of an operation, which refuses unknown fields.
///
/// # Errors
/// As [`decode`], and for unknown fields of the input.
pub fn decode_input<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BadMessage> {
    check_length(MESSAGE_MAX, bytes)?;
    read(PhantomData, bytes, Unknown::AsItSays)
}

/// Refuses more bytes than the transport carries.
fn check_length(most: usize, bytes: &[u8]) -> Result<(), BadMessage> {
    if bytes.len() > most { Err(too_long(most)) } else { Ok(()) }
}

/// Reads a message, whose length the caller has checked. Only one that cannot be read is read once more, to find
/// where it is bad.
fn read<'de, S: DeserializeSeed<'de> + Copy>(
    seed: S,
    bytes: &'de [u8],
    unknown: Unknown,
) -> Result<S::Value, BadMessage> {
    read_at(seed, bytes, unknown, None).or_else(|_| {
        let place = FieldPath::default();
        read_at(seed, bytes, unknown, Some(&place))
            .map_err(|bad| BadMessage { field: bad.field.or_else(|| place.name()), ..bad })
    })
}

fn read_at<'de, S: DeserializeSeed<'de>>(
    seed: S,
    bytes: &'de [u8],
    unknown: Unknown,
    place: Option<&FieldPath>,
) -> Result<S::Value, BadMessage> {
    let mut reader = rmp_serde::Deserializer::from_read_ref(bytes);
    reader.set_max_depth(DEPTH_MAX);
    let message = reader::read(seed, &mut reader, unknown, place);
    let message = message.map_err(|error| BadMessage::whole(plain(&error.to_string())))?;
    // Reading a unit reads nothing inside a value: only at the end of the bytes does it find the end.
    match <()>::deserialize(&mut reader) {
        Err(InvalidMarkerRead(end)) if end.kind() == UnexpectedEof => Ok(message),
        _ => Err(BadMessage::whole("something follows its end")),
    }
}

/// The text of an error without names of types, which say little to somebody who writes no Rust.
fn plain(error: &str) -> String {
    let Some((what, expected)) = error.rsplit_once(", expected ") else { return error.to_owned() };
    let expected = match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number that is not negative",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        other => other,
    };
    format!("{what}, expected {expected}")
}

fn too_long(most: usize) -> BadMessage {
    BadMessage::whole(format!("it has more than {most} bytes"))
}

/// The output of a message: writing stops when it gets too long.
struct Bounded {
    bytes: Vec<u8>,
    /// The most bytes that it may have.
    most: usize,
    is_full: bool,
}

impl Write for Bounded {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        self.write_all(more).map(|()| more.len())
    }

    fn write_all(&mut self, more: &[u8]) -> io::Result<()> {
        if self.bytes.len() + more.len() > self.most {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(more);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An answer: the result, or a refusal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer<T> {
    /// The version.
    pub v: V,
    /// The result.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub ok: Option<T>,
    /// The refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Rejection>,
}

/// Bytes of an answer as it is sent; more than any limit if it is too long for a message.
pub fn answer_bytes<T: Serialize>(ok: &T) -> usize {
    let answer = Answer { v: V, ok: Some(ok), error: None };
    encode(&answer).map_or(usize::MAX, |bytes| bytes.len())
}

fn none<T>() -> Option<T> {
    None
}

impl<T> From<Result<T, Rejection>> for Answer<T> {
    fn from(result: Result<T, Rejection>) -> Self {
        match result {
            Ok(ok) => Self { v: V, ok: Some(ok), error: None },
            Err(error) => Self { v: V, ok: None, error: Some(error) },
        }
    }
}

impl<T> Answer<T> {
    /// The answer as a result.
    ///
    /// # Errors
    /// The refusal, or `unavailable` for an answer with neither.
    pub fn into_result(self) -> Result<T, Rejection> {
        match (self.ok, self.error) {
            (_, Some(refused)) => Err(refused),
            (Some(ok), None) => Ok(ok),
            (None, None) => {
                let message = "the answer says nothing";
                Err(Rejection::new(tenure_core::Code::Unavailable, message))
            }
        }
    }
}
