//! The binding without a connection.

use prost_reflect::DynamicMessage;
use prost_reflect::prost::{self, Message as _};
use serde_json::json;

use super::size::memory_of;
use super::*;

fn message(name: &str) -> prost_reflect::MessageDescriptor {
    let pool = SERVICE.as_ref().unwrap().parent_pool();
    pool.get_message_by_name(&format!("lf.a2a.v1.{name}")).unwrap()
}

/// The service has each method of 1.0 under its own name, and those alone; two of them are streams.
#[test]
fn the_service_has_all_methods() {
    let service = SERVICE.as_ref().unwrap();
    let known: Vec<_> = service.methods().filter_map(|it| method(it.name())).collect();
    assert_eq!((known.len(), service.methods().len()), (11, 11));
    for (of, described) in known {
        let streams = matches!(of, A2aMethod::Stream | A2aMethod::Subscribe);
        assert_eq!(described.is_server_streaming(), streams, "{of:?}");
    }
}

/// A message of the wire becomes the JSON of the other bindings: what is not there is left out, a name stands for each
/// number of an enumeration, and whole numbers stay whole.
#[test]
fn a_message_becomes_json() {
    let bytes: Vec<u8> = [
        &b"\x0a\x01e"[..],                           // tenant
        b"\x12\x22",                                 // message
        b"\x0a\x01m\x20\x01",                        // messageId, role
        b"\x2a\x03\x0a\x01a",                        // parts: a text
        b"\x2a\x04\x12\x02hi",                       // parts: bytes
        b"\x2a\x0b\x22\x09\x11\0\0\0\0\0\0\x45\x40", // parts: the number 42
        b"\x2a\x03\x3a\x01t",                        // parts: a media type alone
        b"\x1a\x00",                                 // configuration
    ]
    .concat();
    let read = DynamicMessage::decode(message("SendMessageRequest"), &*bytes).unwrap();
    let parts = json!([{"text": "a"}, {"raw": "aGk="}, {"data": 42}, {"mediaType": "t"}]);
    let expected = json!({
        "tenant": "e", "configuration": {},
        "message": {"messageId": "m", "role": "ROLE_USER", "parts": parts},
    });
    assert_eq!(codec::read(&read).unwrap(), expected);
}

/// JSON becomes a message, without the fields that the service does not know.
#[test]
fn json_becomes_a_message() {
    let json = json!({"id": "t", "contextId": "c", "newer": [1], "status": {
        "state": "TASK_STATE_COMPLETED", "timestamp": "1970-01-01T00:00:01.500Z",
    }});
    let written = codec::write(&message("Task"), json).unwrap().encode_to_vec();
    assert_eq!(
        written,
        b"\x0a\x01t\x12\x01c\x1a\x0c\x08\x03\x1a\x08\x08\x01\x10\x80\xca\xb5\xee\x01"[..]
    );
    assert!(codec::write(&message("Task"), json!({"id": 1})).is_err());
}

/// A message of a few bytes counts with all that it becomes, a long text with hardly more than its own, and what goes
/// deeper than a reader of messages does is not read at all.
#[test]
fn memory_is_counted_by_what_a_message_becomes() {
    let of = message("Message");
    let memory = |bytes: &[u8]| memory_of(&of, bytes);
    let parts = b"\x2a\x00".repeat(1_000);
    assert!(memory(&parts).unwrap() > 1_000 * 1_000);
    let text = [&b"\x0a\x80\x80\x04"[..], &[b'a'; 1 << 16]].concat();
    assert!(memory(&text).unwrap() < 4 << 16);
    for broken in [&b"\x0a\x05a"[..], b"\x0a", b"\xff"] {
        assert_eq!(memory(broken), None, "{broken:?}");
    }
    let lists = |depth| {
        let mut value = Vec::new();
        for _ in 0..depth {
            value = field(0x32, &field(0x0a, &value)); // A list of one value.
        }
        field(0x22, &value)
    };
    let memory = |depth| memory_of(&message("Part"), &lists(depth));
    assert!(memory(40).is_some());
    assert_eq!(memory(60), None);
}

/// A field with so many bytes.
fn field(key: u8, inside: &[u8]) -> Vec<u8> {
    let mut all = vec![key];
    prost::encoding::encode_varint(inside.len() as u64, &mut all);
    all.extend_from_slice(inside);
    all
}
