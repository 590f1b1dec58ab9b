//! Mutated checkpoints: a new owner that reads one gets an answer, and writes what it has read.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use serde_json::json;
use tenure_testkit::fuzz::{Corpus, InputForm, fuzz};

use super::*;

fn sample() -> Vec<u8> {
    let newest = json!({"wal_seq": 9, "stream_seq": 7});
    let row = |ended: &str| {
        json!({
            "newest": newest, "title": "T", "wal_name": "t", "created_at": 1, "updated_at": 2, "ended": null,
            "archived": false, "damaged": ended == "damaged", "unkept": 3,
            "state": {"wal_seq": 4, "parts": [[0, 17], [3, 18]]},
            "marks": {"apart": 262_144, "places": [newest]}, "unmarked": 1, "bytes": 2,
        })
    };
    let line =
        |task: &str| json!({"session_id": "s", "task_id": task, "row": row(task)}).to_string();
    let ends = serde_json::to_value(Ends::default()).unwrap();
    let session = json!({"session_id": "s", "ends": ends}).to_string();
    [line("t"), line("damaged"), session].map(|line| line + "\n").concat().into_bytes()
}

/// RECOVER-01: the rows of a checkpoint.
#[test]
fn fuzz_checkpoints() {
    let corpus = Corpus::new(InputForm::JsonLines, [sample()]);
    fuzz("checkpoints", &corpus, |bytes| {
        let (rows, pairs) = bytes.split_at(bytes.len() - bytes.len() % PAIR);
        let parts = [Bytes::copy_from_slice(rows)];
        let ended = [Bytes::copy_from_slice(pairs), Bytes::copy_from_slice(bytes)];
        let _ = decoded(&parts, &ended);
        let Ok((rows, ends, ended)) = decoded(&[Bytes::copy_from_slice(bytes)], &ended) else {
            return false;
        };
        let index = Index::restored(100, 9, rows, ends, ended);
        let IndexParts { rows, ends, pairs, .. } = index.parts();
        let (lines, ended) = encoded(rows, ends, pairs).unwrap();
        decoded(&[lines], &[ended]).map(drop).unwrap();
        true
    });
}

#[test]
fn fuzz_manifests_of_checkpoints() {
    let sample = json!({
        "version": VERSION, "covered": 7, "checksum": 1, "rows": [1, 2], "ended": [3], "features": "a,b",
    });
    fuzz("manifests", &Corpus::new(InputForm::Json, [sample.to_string().into_bytes()]), |bytes| {
        let Ok(read) = serde_json::from_slice::<Manifest>(bytes) else { return false };
        let written = serde_json::to_vec(&read).unwrap();
        let again: Manifest = serde_json::from_slice(&written).unwrap();
        assert_eq!(serde_json::to_vec(&again).unwrap(), written);
        true
    });
}

/// A number that is only an upper bound of what is held in memory is not taken from a file as it is.
#[test]
fn a_checkpoint_with_a_slot_beyond_all_bounds_is_unsound() {
    let text = String::from_utf8(sample()).unwrap().replace("[3,18]", "[4294967295,18]");
    let refused = decoded(&[Bytes::from(text)], &[]).map(drop).unwrap_err();
    assert!(refused.to_string().contains("slot 4294967295"), "{refused}");
}
