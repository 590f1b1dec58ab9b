//! The stored state of a Task: what is written is read, and nothing else is.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod samples;

use std::path::Path;
use std::sync::Arc;

use samples::{commit, event, full, least_step, retry_policy, task_spec};
use tenure_core::Task;
use tenure_core::event::Body;
use tenure_core::record::{StepSpec, TaskSpec, Value};
use tenure_core::task::TaskSnapshot;
use tenure_wire::stored::{STATE_VERSION, SnapshotError, decode_snapshot, encode_snapshot};

/// An event of a type, with every field.
fn full_of(name: &str) -> Body {
    full().into_iter().find(|body| body.event_type() == name).unwrap()
}

/// A Task with a record of each kind.
fn task() -> Task {
    let input = Some(Value::inline("application/octet-stream", vec![0, 159, 255]));
    let step = StepSpec { input, retry_policy: Some(retry_policy()), ..least_step() };
    let mut created = full_of("task_created");
    if let Body::TaskCreated(created) = &mut created {
        let steps = [Arc::new(step)].into();
        created.task = Arc::new(TaskSpec { steps, ..task_spec() });
    }
    let begins =
        [full_of("task_step_ready"), full_of("task_running"), full_of("task_run_dispatched")];
    let events = [created].into_iter().chain(begins).map(event).collect();
    let first = commit(1, events, true);
    let mut claimed = full_of("task_step_claimed");
    if let Body::StepClaimed(claimed) = &mut claimed {
        (claimed.ordinal, claimed.fencing_token) = (1, 5);
    }
    let goes_on = [full_of("task_step_started"), full_of("task_progress"), full_of("task_linked")];
    let events = [claimed].into_iter().chain(goes_on).map(event).collect();
    let mut task = Task::restore(&first).unwrap();
    task.replay(&commit(5, events, false)).unwrap();
    task
}

fn records() -> TaskSnapshot {
    task().into_snapshot()
}

/// RECOVER-01, mechanisms 5: every record comes back as it was.
#[test]
fn what_is_kept_is_read() {
    let read = decode_snapshot(&encode_snapshot(&records()).unwrap()).unwrap();
    assert_eq!(read, records());
    assert_eq!(read.version(), 8);
    let made = Task::of_snapshot(read);
    assert_eq!(made, task());
    made.check_invariants().unwrap();
}

/// A state of another version is not read, so whatever changes these bytes, and whatever changes
/// what the reducer makes of a log, is a new version.
#[test]
fn other_bytes_are_another_version() {
    let name = format!("tests/golden/state-v{STATE_VERSION}.bin");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let written = encode_snapshot(&records()).unwrap();
    if std::env::var_os("TENURE_WRITE_GOLDEN").is_some() {
        std::fs::write(file, &written).unwrap();
        return;
    }
    assert!(written == std::fs::read(file).unwrap(), "the same state is written as other bytes");
}

/// Mechanisms 5: what is damaged, cut off, of another version or something else is no state.
#[test]
fn what_is_no_state_is_refused() {
    let whole = encode_snapshot(&records()).unwrap();
    assert!(matches!(decode_snapshot(b""), Err(SnapshotError::NoState)));
    assert!(matches!(decode_snapshot(b"TNF1 and more of it"), Err(SnapshotError::NoState)));
    for len in 0..12 {
        assert!(
            matches!(decode_snapshot(&whole[..len]), Err(SnapshotError::NoState)),
            "{len} bytes"
        );
    }
    for len in [12, 13, whole.len() - 1] {
        assert!(
            matches!(decode_snapshot(&whole[..len]), Err(SnapshotError::Damaged)),
            "{len} bytes"
        );
    }
    for at in [8, 12, whole.len() / 2, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        assert!(matches!(decode_snapshot(&damaged), Err(SnapshotError::Damaged)), "byte {at}");
    }
    let mut later = whole.clone();
    later[4] += 1;
    assert!(
        matches!(decode_snapshot(&later), Err(SnapshotError::Version(version)) if version != STATE_VERSION)
    );
    let mut other = whole[..8].to_vec();
    other.extend_from_slice(&crc32fast::hash(b"\x80").to_le_bytes());
    other.extend_from_slice(b"\x80"); // A map of nothing.
    assert!(matches!(decode_snapshot(&other), Err(SnapshotError::Records(_))));
}
