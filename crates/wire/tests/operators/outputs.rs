//! Messages about what commands wrote (ART-09).

use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure_wire::bus::output::{OutputAnswer, OutputPage, OutputRequest, OutputStream, ReadOutput};
use tenure_wire::bus::request::{Ask, RawBytes, Request};
use tenure_wire::bus::worker::Delivery;
use tenure_wire::bus::{Answer, V, decode, encode};

use crate::attempt;

/// What a client asks, what the worker is asked, and their answers, as bytes.
pub fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let asked = OutputRequest {
        request: 5,
        node: "n1".into(),
        session_id: "s".parse().unwrap(),
        task_id: "t".parse().unwrap(),
        step_id: "a".parse().unwrap(),
        ordinal: 2,
        stream: OutputStream::Stderr,
        from: 7,
    };
    let read_output = Some(Box::new(asked));
    let page = OutputPage { data: RawBytes(b"text".to_vec()), size_bytes: Some(11) };
    let absent = OutputPage { data: RawBytes(Vec::new()), size_bytes: None };
    let read = ReadOutput { attempt_id: attempt(), stream: OutputStream::Stdout, from: 7 };
    let request = Request::new(Some("t".parse().unwrap()), None, Ask::ReadOutput(read));
    let bytes = request.write().unwrap();
    assert_eq!(Request::read(&bytes).unwrap(), request);
    vec![
        ("request-read-output", bytes),
        ("delivery-read-output", both_ways(&Delivery { read_output, ..Delivery::default() })),
        ("output", both_ways(&OutputAnswer { v: V, request: 5, page: page.clone() })),
        ("output-page", both_ways(&Answer::from(Ok(page)))),
        ("output-absent", both_ways(&Answer::from(Ok(absent)))),
    ]
}

/// A message as bytes, which are read as they were written.
fn both_ways<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    message: &T,
) -> Vec<u8> {
    let bytes = encode(message).unwrap();
    assert_eq!(decode::<T>(&bytes).unwrap(), *message);
    bytes
}
