//! A checker of Task logs that shares nothing with what wrote them.
//!
//! It says everything that is wrong with a log, in words that name the line. What it asks for: every
//! line is whole and carries its checksum, events are numbered without a gap, commits are whole, no
//! Step is claimed before those it depends on have completed, Attempts are numbered without a gap
//! and end once, tokens rise, a Step completes at most once, and nothing follows the end.

mod crc;
mod history;
mod line;

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

pub use self::history::Summary;

use self::history::History;
use self::line::Line;

/// Reads a log and checks all of it. A last line that a crash broke off is allowed only if
/// `may_be_torn`.
///
/// # Errors
/// What is wrong, one line each.
pub fn check(path: &Path, may_be_torn: bool) -> Result<Summary> {
    let bytes = std::fs::read(path).with_context(|| format!("{}", path.display()))?;
    check_bytes(&bytes, may_be_torn).with_context(|| format!("{}", path.display()))
}

/// As [`check`], on what a file holds.
///
/// # Errors
/// What is wrong, one line each.
pub fn check_bytes(bytes: &[u8], may_be_torn: bool) -> Result<Summary> {
    let mut history = History::default();
    let mut end = 0;
    for (number, text) in (1..).zip(bytes.split_inclusive(|&byte| byte == b'\n')) {
        let Some(text) = text.strip_suffix(b"\n") else {
            ensure!(may_be_torn, "the last line is broken off");
            break;
        };
        end += text.len() + 1;
        match Line::read(text) {
            Ok(line) => history.see(&line, end),
            Err(error) => history.fault(number, &format!("{error:#}")),
        }
    }
    history.finish(may_be_torn)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{check_bytes, crc::crc32};

    /// A log of these events, each a commit of its own.
    fn log(events: &[(&str, &str, Value)]) -> Vec<u8> {
        let mut log = Vec::new();
        for (seq, (event_type, step, payload)) in (1..).zip(events) {
            let commit = format!("c{seq}");
            let line = json!({
                "wal_seq": seq, "session_id": "s", "task_id": "t", "event_id": format!("{commit}.0"),
                "event_type": event_type, "actor_agent_id": "o", "step_id": step, "payload": payload,
                "created_at": seq, "schema_version": 1, "commit_id": commit, "commit_index": 0,
                "commit_count": 1, "epoch": 0,
            });
            let mut line = line.to_string().into_bytes();
            line.pop();
            let crc = crc32(&[&line, b"}"]);
            line.extend(format!(",\"crc\":{crc}}}\n").into_bytes());
            log.extend(line);
        }
        log
    }

    fn step(id: &str, on: &[&str]) -> Value {
        json!({"step_id": id, "depends_on_step_ids": on})
    }

    fn patched(operations: Value) -> (&'static str, &'static str, Value) {
        ("task_updated", "", json!({"operations": operations}))
    }

    fn completed(id: &'static str) -> (&'static str, &'static str, Value) {
        ("task_step_completed", id, json!({}))
    }

    fn faults(events: &[(&str, &str, Value)]) -> String {
        check_bytes(&log(events), false).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn steps_wait_for_what_a_patch_says() {
        let created = ("task_created", "", json!({"task": {"steps": [step("a", &[])]}}));
        let added = patched(json!([{"op": "add_step", "step": step("b", &["a"])}]));
        let ready = ("task_step_ready", "b", json!({}));
        let early = [created.clone(), added.clone(), ready.clone(), completed("a")];
        assert!(faults(&early).contains("before a parent has completed"));
        let sound = [created.clone(), added.clone(), completed("a"), ready.clone()];
        assert_eq!(faults(&sound), "");
        for freed in [
            json!([{"op": "remove_dependency", "step_id": "b", "depends_on_step_id": "a"}]),
            json!([{"op": "update_step", "step_id": "b", "fields": {"depends_on_step_ids": []}}]),
        ] {
            let sound = [created.clone(), added.clone(), patched(freed), ready.clone()];
            assert_eq!(faults(&sound), "");
        }
        let bound = json!([{"op": "add_dependency", "step_id": "a", "depends_on_step_id": "b"}]);
        let free = patched(json!([{"op": "add_step", "step": step("b", &[])}]));
        let early = [created, free, patched(bound), ("task_step_ready", "a", json!({}))];
        assert!(faults(&early).contains("before a parent has completed"));
    }

    #[test]
    fn a_patch_takes_no_id_twice_and_changes_no_history() {
        let created = ("task_created", "", json!({"task": {"steps": [step("a", &[])]}}));
        let add = json!({"op": "add_step", "step": step("b", &[])});
        let delete = json!({"op": "delete_step", "step_id": "b"});
        let again = [created.clone(), patched(json!([add, delete, add]))];
        assert!(faults(&again).contains("takes the id of another step"));
        let bind = json!({"op": "add_dependency", "step_id": "a", "depends_on_step_id": "b"});
        let late = [created.clone(), patched(json!([add])), completed("a"), patched(json!([bind]))];
        assert!(faults(&late).contains("changes what a completed step waited for"));
        let unknown = [created, patched(json!([delete]))];
        assert!(faults(&unknown).contains("names no step"));
    }
}
