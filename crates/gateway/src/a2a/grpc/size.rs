//! How much memory a message takes once it is read.

use prost_reflect::prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, skip_field,
};
use prost_reflect::{Kind, MessageDescriptor};

/// About how many bytes a message takes that has any field: a map of its fields, and as JSON another one.
const MESSAGE_BYTES: usize = 1_500;

/// About how many bytes another value takes, beside its own.
const VALUE_BYTES: usize = 128;

/// How often the bytes of a text are there: in the message, in JSON, and in what is made of that.
const COPIES: usize = 3;

/// How deep messages may be in each other: as deep as the reader of messages goes.
const DEPTH_MAX: u32 = 100;

/// About how many bytes a message takes once it is read, at most. None if it cannot be read.
///
/// A few bytes may stand for a whole message, so their number alone says little.
pub(super) fn memory_of(message: &MessageDescriptor, bytes: &[u8]) -> Option<usize> {
    within(message, bytes, DEPTH_MAX)
}

fn within(message: &MessageDescriptor, mut bytes: &[u8], depth: u32) -> Option<usize> {
    let depth = depth.checked_sub(1)?;
    let mut sum = MESSAGE_BYTES;
    while !bytes.is_empty() {
        let (number, wire) = decode_key(&mut bytes).ok()?;
        sum += VALUE_BYTES;
        if wire != WireType::LengthDelimited {
            skip_field(wire, number, &mut bytes, DecodeContext::default()).ok()?;
            continue;
        }
        let length = usize::try_from(decode_varint(&mut bytes).ok()?).ok()?;
        let (inside, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        sum += match message.get_field(number).map(|field| field.kind()) {
            Some(Kind::Message(inner)) => within(&inner, inside, depth)?,
            _ => COPIES * length,
        };
    }
    Some(sum)
}
