//! What the checker finds in logs that were forged.

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

type Event = (&'static str, &'static str, Value);

/// A Task of two Steps in the pool `p`.
fn made() -> Event {
    let steps = [step("a", &[]), step("b", &[])];
    ("task_created", "", json!({"task": {"default_worker_pool_id": "p", "steps": steps}}))
}

fn dispatched(run: &str, allowed: &[&str]) -> Event {
    let payload = json!({"run_id": run, "worker_pool_id": "p", "dispatched_by": "o",
        "allowed_step_ids": allowed});
    ("task_run_dispatched", "", payload)
}

/// The Attempt of this name and number, claimed by the event at this place of the log.
fn claimed(seq: u64, step: &'static str, (attempt, ordinal): (&str, u64), run: &Value) -> Event {
    let mut payload = json!({"attempt_id": attempt, "ordinal": ordinal, "fencing_token": seq,
        "worker_id": "w.1", "worker_pool_id": "p"});
    let fields = run.as_object().into_iter().flatten();
    fields.for_each(|(key, value)| payload[key] = value.clone());
    ("task_step_claimed", step, payload)
}

/// A Run that the scheduler made.
fn automatic(run: &str, step: &str) -> Value {
    json!({"run_id": run, "dispatched_by": "system", "allowed_step_ids": [step]})
}

/// One that the orchestrator made.
fn by_hand(run: &str, allowed: &[&str]) -> Value {
    json!({"run_id": run, "dispatched_by": "o", "allowed_step_ids": allowed})
}

fn of_attempt(event_type: &'static str, step: &'static str, attempt: &str) -> Event {
    (event_type, step, json!({"attempt_id": attempt}))
}

#[test]
fn a_claim_outside_the_scope_of_its_run_shows() {
    let run = dispatched("r", &["a"]);
    let claim =
        |step, licence: &Value| faults(&[made(), run.clone(), claimed(3, step, ("x", 1), licence)]);
    assert_eq!(claim("a", &by_hand("r", &["a"])), "");
    assert!(claim("b", &by_hand("r", &["a"])).contains("outside the scope of its run"));
    assert!(claim("b", &by_hand("r", &["b"])).contains("gives its run another scope"));
    assert!(claim("a", &automatic("r", "a")).contains("gives its run another scope"));
    assert!(claim("a", &by_hand("s", &["a"])).contains("a run that nobody dispatched"));
    assert_eq!(claim("a", &automatic("s", "a")), "");
}

#[test]
fn a_claim_under_a_run_that_is_over_shows() {
    let ended = ("task_run_ended", "", json!({"run_id": "r", "end_reason": "cancelled"}));
    let late = claimed(4, "a", ("x", 1), &by_hand("r", &["a"]));
    let late = [made(), dispatched("r", &["a"]), ended.clone(), late];
    assert!(faults(&late).contains("under a run that is over"));
    let twice = [
        made(),
        dispatched("r", &["a", "b"]),
        claimed(3, "a", ("x", 1), &by_hand("r", &["a", "b"])),
        claimed(4, "b", ("y", 1), &by_hand("r", &["a", "b"])),
    ];
    assert!(faults(&twice).contains("under a run that is over"));
    let again = [made(), dispatched("r", &["a"]), ended.clone(), ended];
    assert!(faults(&again).contains("ends a run that is over"));
}

#[test]
fn a_claim_in_another_pool_shows() {
    let mut elsewhere = automatic("r", "a");
    elsewhere["worker_pool_id"] = json!("q");
    let claim = claimed(2, "a", ("x", 1), &elsewhere);
    assert!(faults(&[made(), claim]).contains("in another pool than its step"));
    let fields = json!({"worker_pool_id": "q"});
    let moved = patched(json!([{"op": "update_step", "step_id": "a", "fields": fields}]));
    let sound = [made(), moved.clone(), claimed(3, "a", ("x", 1), &elsewhere)];
    assert_eq!(faults(&sound), "");
    let claim = claimed(3, "a", ("x", 1), &automatic("r", "a"));
    assert!(faults(&[made(), moved, claim]).contains("in another pool than its step"));
}

#[test]
fn a_word_of_an_attempt_that_is_over_shows() {
    let begun = [
        made(),
        claimed(2, "a", ("x", 1), &automatic("r", "a")),
        of_attempt("task_step_started", "a", "x"),
        of_attempt("task_step_lease_expired", "a", "x"),
        claimed(5, "a", ("y", 2), &automatic("s", "a")),
    ];
    let then = |event: Event| faults(&[begun.to_vec(), vec![event]].concat());
    for event_type in
        ["task_step_started", "task_step_updated", "task_step_completed", "task_step_blocked"]
    {
        assert_eq!(then(of_attempt(event_type, "a", "y")), "");
        for (step, attempt) in [("a", "x"), ("b", "y"), ("a", "z")] {
            let found = then(of_attempt(event_type, step, attempt));
            assert!(found.contains("an attempt that is not open"), "{event_type}: {found}");
        }
    }
    assert!(then(completed("a")).contains("says nothing of the attempt"));
}

/// REPORT-14: the result of a lost Attempt may be taken over, as long as nobody has had the Step since.
#[test]
fn a_late_result_is_of_the_last_attempt_which_was_lost() {
    let lost = |reason: &str| {
        let payload = json!({"attempt_id": "x", "reason": reason});
        ("task_step_lease_expired", "a", payload)
    };
    let adopted = ("task_step_completed", "a", json!({"attempt_id": "x", "adopted": true}));
    let claim = || claimed(2, "a", ("x", 1), &automatic("r", "a"));
    for reason in ["lease_expired", "outage"] {
        assert_eq!(faults(&[made(), claim(), lost(reason), adopted.clone()]), "");
    }
    for before in [
        vec![made(), claim()],
        vec![made(), claim(), lost("released")],
        vec![made(), claim(), lost("outage"), claimed(4, "a", ("y", 2), &automatic("s", "a"))],
    ] {
        let found = faults(&[before, vec![adopted.clone()]].concat());
        assert!(found.contains("an attempt that is not open"), "{found}");
    }
}
