//! Messages about blobs (VALUE-01).

use tenure_core::record::Blob;
use tenure_wire::bus::blob::{BlobAsk, BlobGet, BlobPart, BlobPut, BlobTaken, HeldBlob};
use tenure_wire::bus::request::{Ask, RawBytes, Request};
use tenure_wire::bus::{Answer, V, decode, encode};

use crate::{attempt, run};

/// What workers and clients ask, and what they are answered, as bytes.
pub fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let blob = Blob::of(b"bytes");
    let (data, digest) = (RawBytes(b"te".to_vec()), blob.digest().into());
    let part = BlobPut { data, digest, offset: 2, size_bytes: 5 };
    let get = BlobGet { reference: blob.reference(), offset: 2 };
    let held = |ask| HeldBlob {
        v: V,
        session_id: "s".parse().unwrap(),
        task_id: "t".parse().unwrap(),
        run_id: run(),
        attempt_id: attempt(),
        fencing_token: 4,
        ask,
    };
    let said = |ask| {
        let bytes = encode(&held(ask)).unwrap();
        let read: HeldBlob = decode(&bytes).unwrap();
        assert_eq!(encode(&read).unwrap(), bytes);
        bytes
    };
    let asked = |ask: Ask| {
        let request = Request::new(Some("t".parse().unwrap()), None, ask);
        let bytes = request.write().unwrap();
        assert_eq!(Request::read(&bytes).unwrap(), request);
        bytes
    };
    let (data, size_bytes) = (part.data.clone(), part.size_bytes);
    let answer = BlobPart { data, size_bytes, next_offset: Some(4) };
    let taken = BlobTaken { next_offset: Some(4), reference: None };
    let stored = BlobTaken { next_offset: None, reference: Some(blob.reference()) };
    vec![
        ("blob", said(BlobAsk::BlobPut(part.clone()))),
        ("blob-get", said(BlobAsk::BlobGet(get.clone()))),
        ("blob-part", encode(&Answer::from(Ok(answer))).unwrap()),
        ("blob-taken", encode(&Answer::from(Ok(taken))).unwrap()),
        ("blob-stored", encode(&Answer::from(Ok(stored))).unwrap()),
        ("request-blob-put", asked(part.into())),
        ("request-blob-get", asked(get.into())),
    ]
}
