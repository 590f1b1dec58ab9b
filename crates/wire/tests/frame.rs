//! Frames of a partition's stream: bytes that were once written are read for ever, and no bytes at
//! all bring a reader down.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use proptest::prelude::*;
use tenure_core::features::Features;
use tenure_core::record::Labels;
use tenure_core::status::{FailedAs, TaskStatus};
use tenure_wire::stored::frame::{
    Chunk, CommitHead, FRAME_VERSION, FrameError, Header, Named, decode, decode_chunk,
    encode_header,
};

fn head(task: &str, len: u32) -> CommitHead {
    CommitHead {
        session_id: "s".parse().unwrap(),
        task_id: task.parse().unwrap(),
        first_seq: 1,
        last_seq: 3,
        created_at: 1_700_000_000_000,
        prev: 0,
        len,
        named: Some(Named {
            title: "Title".into(),
            wal_name: "t".parse().unwrap(),
            labels: Labels::new(),
        }),
        ended: None,
        failed_as: None,
        archived: false,
    }
}

fn commits() -> Header {
    let later = CommitHead {
        first_seq: 4,
        last_seq: 4,
        prev: 7,
        named: None,
        ended: Some(TaskStatus::Completed),
        failed_as: None,
        archived: true,
        ..head("u", 2)
    };
    Header::Commits { version: 1, epoch: 5, commits: vec![head("t", 3), later] }
}

fn frame() -> Vec<u8> {
    let mut bytes = encode_header(&commits(), 0).unwrap();
    bytes.extend_from_slice(b"abcde");
    bytes
}

/// What was written is read, each commit with its own lines.
#[test]
fn a_frame_is_read_as_it_was_written() {
    let bytes = frame();
    let read = decode(&bytes).unwrap();
    assert_eq!(read.header, commits());
    let lines: Vec<_> =
        read.commits().map(|(head, lines)| (head.task_id.as_str(), lines)).collect();
    assert_eq!(lines, [("t", &b"abc"[..]), ("u", &b"de"[..])]);
    for features in [Features::default(), Features::read("a,b")] {
        let owner = Header::Owner {
            version: 1,
            node: "n".into(),
            taking: "t".into(),
            write_level: 1,
            features,
        };
        let bytes = encode_header(&owner, 0).unwrap();
        let read = decode(&bytes).unwrap();
        assert_eq!((read.commits().count(), read.header), (0, owner));
    }
}

/// EVOLVE-02: a program of the first edition reads the number in an owner record, and no other field is new to it.
#[test]
fn an_owner_record_is_read_by_the_first_edition() {
    let features = Features::default();
    let owner = Header::Owner {
        version: 1,
        node: "n".into(),
        taking: "t".into(),
        write_level: 1,
        features,
    };
    let told = serde_json::to_value(&owner).unwrap();
    let expected = serde_json::json!({"kind": "owner", "version": 1, "node": "n", "taking": "t", "write_level": 1});
    assert_eq!(told, expected);
}

/// P02: the form on disk. A change of it is a new version.
#[test]
fn golden_bytes_stay_readable() {
    let golden = include_bytes!("golden/frame-v1.bin");
    assert_eq!(decode(golden).unwrap().header, commits());
    assert_eq!(&frame()[..], golden, "the same frame is written as the same bytes");
}

/// What newer programs say of an end has a place of its own, which older ones pass over.
#[test]
fn the_end_of_a_task_has_a_golden_form_of_its_own() {
    let lost = CommitHead {
        ended: Some(TaskStatus::Failed),
        failed_as: Some(FailedAs::Lost),
        ..head("t", 0)
    };
    let header = Header::Commits { version: 2, epoch: 5, commits: vec![lost] };
    let golden = include_bytes!("golden/frame-v2-lost.bin");
    assert_eq!(decode(golden).unwrap().header, header);
    assert_eq!(encode_header(&header, 0).unwrap(), golden);
}

/// Every changed byte of a header is noticed; a body of another length is.
#[test]
fn damage_is_noticed() {
    let bytes = frame();
    let body = bytes.len() - 5;
    for at in 0..body {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            assert!(decode(&changed).is_err(), "byte {at}, bit {bit}");
        }
    }
    for len in 0..bytes.len() {
        assert!(decode(&bytes[..len]).is_err(), "{len} bytes of it");
    }
    let longer = [&bytes[..], b"x"].concat();
    assert_eq!(decode(&longer), Err(FrameError::Body { expected: 5, found: 6 }));
    let later = Header::Commits { version: FRAME_VERSION + 1, epoch: 1, commits: Vec::new() };
    let later = encode_header(&later, 0).unwrap();
    assert_eq!(decode(&later), Err(FrameError::Version(FRAME_VERSION + 1)));
}

#[test]
fn chunks_make_up_their_frame() {
    let bytes = frame();
    let parts: Vec<&[u8]> = bytes.chunks(10).collect();
    let of = u32::try_from(parts.len()).unwrap();
    let mut whole = Vec::new();
    for (index, part) in (0..).zip(&parts) {
        let chunk = Chunk { index, of, part };
        let sent = chunk.encode();
        assert_eq!(decode_chunk(&sent), Some(chunk));
        assert_eq!(decode(&sent), Err(FrameError::NoFrame));
        whole.extend_from_slice(decode_chunk(&sent).unwrap().part);
    }
    assert_eq!(whole, bytes);
    assert_eq!(decode_chunk(&bytes), None);
    assert_eq!(decode_chunk(&Chunk { index: 2, of: 2, part: b"" }.encode()), None, "out of range");
}

proptest! {
    /// No bytes make a reader panic or take what is not there.
    #[test]
    fn no_bytes_bring_a_reader_down(mut bytes in prop::collection::vec(any::<u8>(), 0..200), framed: bool) {
        if framed {
            let header = bytes.clone();
            bytes = b"TNF1".to_vec();
            bytes.extend_from_slice(&u32::try_from(header.len()).unwrap().to_le_bytes());
            bytes.extend_from_slice(&crc32fast::hash(&header).to_le_bytes());
            bytes.extend_from_slice(&header);
        }
        if let Ok(frame) = decode(&bytes) {
            prop_assert_eq!(frame.commits().map(|(_, lines)| lines.len()).sum::<usize>(), frame.body.len());
        }
        let _ = decode_chunk(&bytes);
    }
}
