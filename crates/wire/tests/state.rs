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

/// A state whose records name others that are not there, or that come twice, is not read: a Task cannot be made of it.
#[test]
fn a_state_that_names_what_is_not_there_is_refused() {
    let written = encode_snapshot(&records()).unwrap();
    let (head, mut bytes) = written.split_at(12);
    let whole = rmpv::decode::read_value(&mut bytes).unwrap();
    type Change = fn(&mut rmpv::Value);
    let changes: [(&str, Change); 5] = [
        ("attempt", |it| *member(first(it, "attempts"), "run") = 7.into()),
        ("attempt", |it| *member(first(it, "attempts"), "step") = 7.into()),
        ("attempt", |it| *member(first(it, "attempts"), "previous") = 0.into()),
        ("step", |it| *member(member(first(it, "steps"), "state"), "last_attempt") = 1.into()),
        ("two records", |it| {
            let rmpv::Value::Array(steps) = member(it, "steps") else { panic!("a list") };
            steps.push(steps[0].clone());
        }),
    ];
    for (says, change) in changes {
        let mut changed = whole.clone();
        change(&mut changed);
        let mut records = Vec::new();
        rmpv::encode::write_value(&mut records, &changed).unwrap();
        let crc = crc32fast::hash(&records).to_le_bytes();
        let refused = decode_snapshot(&[&head[..8], &crc, &records].concat()).unwrap_err();
        assert!(matches!(&refused, SnapshotError::Records(why) if why.contains(says)), "{refused}");
    }
}

/// A member of a map, by its name.
fn member<'v>(value: &'v mut rmpv::Value, name: &str) -> &'v mut rmpv::Value {
    let rmpv::Value::Map(fields) = value else { panic!("a map") };
    let field = fields.iter_mut().find(|(key, _)| key.as_str() == Some(name));
    &mut field.unwrap_or_else(|| panic!("{name}")).1
}

/// The first entry of a list that is a member of a map.
fn first<'v>(value: &'v mut rmpv::Value, name: &str) -> &'v mut rmpv::Value {
    let rmpv::Value::Array(all) = member(value, name) else { panic!("a list") };
    &mut all[0]
}
