//! [`JsonCodec`]: the messages of a method between their bytes and JSON.

use bytes::Buf as _;
use prost_reflect::prost::Message as _;
use prost_reflect::{DeserializeOptions, DynamicMessage, MessageDescriptor, MethodDescriptor};
use serde_json::{Number, Value as Json};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use super::size::memory_of;
use super::status::to_status;
use crate::a2a::error::{A2aError, A2aReason};
use crate::guard::BodyShare;

/// Whole numbers up to here are exact where all numbers are floating.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Reads requests of a method and writes its answers.
#[derive(Debug)]
pub(super) struct JsonCodec {
    request: MessageDescriptor,
    answer: MessageDescriptor,
    /// The memory of the request.
    share: Option<BodyShare>,
}

impl JsonCodec {
    /// For one request of this method, which takes its share of the memory for bodies.
    pub(super) fn new(method: &MethodDescriptor, share: Option<BodyShare>) -> Self {
        Self { request: method.input(), answer: method.output(), share }
    }
}

impl Codec for JsonCodec {
    type Encode = Json;
    type Decode = Json;
    type Encoder = JsonEncoder;
    type Decoder = JsonDecoder;

    fn encoder(&mut self) -> JsonEncoder {
        JsonEncoder(self.answer.clone())
    }

    fn decoder(&mut self) -> JsonDecoder {
        JsonDecoder { message: self.request.clone(), share: self.share.clone() }
    }
}

/// Writes JSON as a message.
#[derive(Debug)]
pub(super) struct JsonEncoder(MessageDescriptor);

impl Encoder for JsonEncoder {
    type Item = Json;
    type Error = Status;

    fn encode(&mut self, item: Json, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let broken = |why: String| {
            let message = format!("the answer cannot be written as a message: {why}");
            to_status(&A2aError::new(A2aReason::Internal, message))
        };
        let message = write(&self.0, item).map_err(|error| broken(error.to_string()))?;
        message.encode(out).map_err(|error| broken(error.to_string()))
    }
}

/// JSON as a message. A field that the description does not have is left out.
pub(super) fn write(
    of: &MessageDescriptor,
    json: Json,
) -> Result<DynamicMessage, serde_json::Error> {
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    DynamicMessage::deserialize_with_options(of.clone(), json, &options)
}

/// Reads a message as JSON.
#[derive(Debug)]
pub(super) struct JsonDecoder {
    message: MessageDescriptor,
    share: Option<BodyShare>,
}

impl Decoder for JsonDecoder {
    type Item = Json;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Json>, Status> {
        let bytes = from.copy_to_bytes(from.remaining());
        self.read(&bytes).map(Some).map_err(|error| to_status(&error))
    }
}

impl JsonDecoder {
    fn read(&self, bytes: &[u8]) -> Result<Json, A2aError> {
        let broken = || A2aError::new(A2aReason::Parse, "the request is no message of its method");
        let memory = memory_of(&self.message, bytes).ok_or_else(broken)?;
        if let Some(share) = &self.share {
            share.grow(memory)?;
        }
        let message = DynamicMessage::decode(self.message.clone(), bytes).map_err(|_| broken())?;
        read(&message).map_err(|_| broken())
    }
}

/// A message as JSON, with its whole numbers as such.
pub(super) fn read(message: &DynamicMessage) -> Result<Json, serde_json::Error> {
    let mut json = serde_json::to_value(message)?;
    mend_numbers(&mut json);
    Ok(json)
}

/// Writes `42.0` as `42`: in open values all numbers are floating, and those who read integers take no others.
fn mend_numbers(json: &mut Json) {
    match json {
        Json::Number(number) => {
            let float = number.as_f64().filter(|_| number.is_f64());
            if let Some(whole) = float.filter(|it| it.fract() == 0.0 && it.abs() <= EXACT_MAX) {
                #[allow(clippy::cast_possible_truncation)] // It is whole, and not too large.
                let whole = whole as i64;
                *number = Number::from(whole);
            }
        }
        Json::Array(values) => values.iter_mut().for_each(mend_numbers),
        Json::Object(fields) => fields.values_mut().for_each(mend_numbers),
        Json::Null | Json::Bool(_) | Json::String(_) => {}
    }
}
