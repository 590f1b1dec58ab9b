//! Digests that once stood in logs (EVOLVE-04).
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use tenure_core::Command;
use tenure_core::command::create::CreateTask;
use tenure_core::id::DigestForm;
use tenure_wire::digest::{digest_command, digest_create};

/// EVOLVE-04: these digests stand in logs. A field that is added to a record must not change them, so an
/// input has what was given and nothing else.
#[test]
fn digests_stay_as_they_are() {
    let of = |json: serde_json::Value| {
        let command: Command = serde_json::from_value(json).unwrap();
        digest_command(DigestForm::Second, &"a".parse().unwrap(), &command).unwrap().to_string()
    };
    let of_create = |json: serde_json::Value| {
        let input: CreateTask = serde_json::from_value(json).unwrap();
        digest_create(DigestForm::Second, &"a".parse().unwrap(), &input).unwrap().to_string()
    };
    let create = serde_json::json!({
        "task_id": "t", "title": "T", "summary": "", "metadata": {"null": null},
        "steps": [{"step_id": "a", "title": "A", "summary": "", "depends_on_step_ids": []}],
    });
    assert_eq!(
        of_create(create.clone()),
        "2:b7f629ae6a1e25b6c9345eee9cb6834fb3e54acc2daf9f650edd9eeceb94188a"
    );
    let mut nulls = create.clone();
    (nulls["assignee"], nulls["steps"][0]["handler"]) = Default::default();
    assert_eq!(of_create(nulls), of_create(create.clone()), "null is absent here");
    let mut without = create.clone();
    without["metadata"] = serde_json::json!({});
    assert_ne!(of_create(without), of_create(create), "and is content in an opaque map");
    let patch = |fields: serde_json::Value| {
        let operation = serde_json::json!({"op": "update_step", "step_id": "a", "fields": fields});
        of(serde_json::json!({"operation": "task_update", "input": {"operations": [operation]}}))
    };
    assert_eq!(
        patch(serde_json::json!({"input": null})),
        "2:aca4b6e3861e3f9f5a79327a3dfa628dca64fc6d934d7bce349735d0da19365c"
    );
    assert_ne!(
        patch(serde_json::json!({"input": null})),
        patch(serde_json::json!({})),
        "it clears"
    );
}
