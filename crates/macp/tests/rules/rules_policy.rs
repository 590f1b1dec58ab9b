//! Policies: how a file of them is read, and what clients see.

use tenure_macp::{
    DEFAULT_POLICY, MacpAuthority, MacpPolicies, MacpPolicy, MacpPolicyError, TASK_MODE,
};

use crate::common::*;

fn parse(mode: &str, rules: &str) -> Result<MacpPolicy, String> {
    let text = format!(
        r#"[{{"policy_id": "p", "mode": "{mode}", "schema_version": 1, "rules": {rules}}}]"#
    );
    let policies = MacpPolicies::parse(&text).map_err(|e| e.to_string())?;
    Ok(policies.get("p").unwrap().clone())
}

/// S-07: without a file there is `policy.default`, which adds nothing to the rules of the mode.
#[test]
fn the_default_policy_is_always_there() {
    let policies = MacpPolicies::default();
    let default = policies.get(DEFAULT_POLICY).unwrap();
    assert_eq!(default.mode(), "*");
    assert_eq!(default.rules(), &Default::default());
    assert_eq!(default.rules().authority, MacpAuthority::InitiatorOnly);
    assert_eq!(MacpPolicies::parse("[]").unwrap(), policies);
    assert!(policies.get("other").is_none());
}

/// S-07, C-01, C-07, T-04: the rules of Task mode are read, as JSON or as a text with JSON, with notes beside them.
#[test]
fn the_rules_of_task_mode_are_read() {
    let rules = r#"{"assignment": {"allow_reassignment_on_reject": true, "_why": "slow"}, "$id": 7,
        "completion": {"require_output": true},
        "commitment": {"authority": "designated_role", "designated_roles": ["a", "b"]}}"#;
    let text = serde_json::to_string(rules).unwrap();
    for rules in [rules, text.as_str()] {
        let policy = parse(TASK_MODE, rules).unwrap();
        assert!(policy.rules().allow_reassignment_on_reject && policy.rules().require_output);
        let roles = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(policy.rules().authority, MacpAuthority::DesignatedRole(roles));
    }
    let none = parse(TASK_MODE, "{}").unwrap();
    assert_eq!(none.rules(), &Default::default());
    let all_modes = r#"{"voting": {"algorithm": "none"}, "threshold": {"value": 2}, "completion": {},
        "commitment": {"authority": "any_participant", "require_vote_quorum": false}}"#;
    assert_eq!(parse("*", all_modes).unwrap().rules().authority, MacpAuthority::AnyParticipant);
    assert!(parse("macp.mode.quorum.v1", r#"{"threshold": {"value": 2}}"#).is_ok());
}

/// S-07: a mistake in a policy is found when the file is read, and is named by its path.
#[test]
fn a_wrong_policy_is_named_by_its_path() {
    for (rules, path) in [
        (r#"[]"#, "rules must be a JSON object"),
        (r#""no json""#, "rules: the text is no JSON"),
        (r#"{"assigment": {}}"#, "rules.assigment: there is no such group"),
        (r#"{"voting": {}}"#, "rules.voting: there is no such group"),
        (r#"{"assignment": [true]}"#, "rules.assignment must be a JSON object"),
        (r#"{"assignment": {"allow": true}}"#, "rules.assignment.allow: there is no such rule"),
        (
            r#"{"completion": {"require_output": 1}}"#,
            "rules.completion.require_output must be true or false",
        ),
        (
            r#"{"commitment": {"authority": "boss"}}"#,
            "rules.commitment.authority must be initiator_only",
        ),
        (r#"{"commitment": {"authority": 1}}"#, "rules.commitment.authority must be a text"),
        (
            r#"{"commitment": {"designated_roles": "a"}}"#,
            "rules.commitment.designated_roles must be a list",
        ),
        (
            r#"{"commitment": {"designated_roles": [1]}}"#,
            "rules.commitment.designated_roles must be a list",
        ),
        (
            r#"{"commitment": {"authority": "designated_role"}}"#,
            "rules.commitment.designated_roles must name",
        ),
        (
            r#"{"commitment": {"require_vote_quorum": true}}"#,
            "rules.commitment.require_vote_quorum: there is no",
        ),
    ] {
        let error = parse(TASK_MODE, rules).unwrap_err();
        assert!(error.starts_with(&format!("policies[p]: {path}")), "{error}");
    }
    let of = |policy_id: &str, mode: &str, version: u32| {
        let one = format!(
            r#"{{"policy_id": "{policy_id}", "mode": "{mode}", "schema_version": {version}, "rules": {{}}}}"#
        );
        MacpPolicies::parse(&format!("[{one}]")).map_err(|e| e.to_string())
    };
    for (policy_id, mode, version, problem) in [
        ("", "*", 1, "policies[]: policy_id must not be empty"),
        ("policy.std.majority", "*", 1, "policies[policy.std.majority]: names that begin with"),
        ("policy.default", "*", 1, "policies[policy.default]: the name is taken"),
        ("p", "", 1, "policies[p]: mode must be"),
        ("p", "*", 0, "policies[p]: schema_version must be 1, 2 or 3, not 0"),
        ("p", "*", 4, "policies[p]: schema_version must be 1, 2 or 3, not 4"),
    ] {
        let error = of(policy_id, mode, version).unwrap_err();
        assert!(error.starts_with(problem), "{error}");
    }
    for text in [
        "",
        "{}",
        r#"[{"policy_id": "p"}]"#,
        r#"[{"policy_id": "p", "mode": "*", "rules": {}, "x": 1}]"#,
    ] {
        assert!(matches!(MacpPolicies::parse(text), Err(MacpPolicyError::Form(_))), "{text}");
    }
}

/// S-07: ListPolicies has those of a mode and those of all modes, in the order of their names, and their rules as text.
#[test]
fn policies_are_listed_by_mode() {
    let policies = policies();
    let names =
        |mode: &str| policies.list(mode).map(|it| it.policy_id().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(""), ["anyone", "lead", "output", "policy.default", "reassign", "votes"]);
    assert_eq!(names(TASK_MODE), ["anyone", "lead", "output", "policy.default", "reassign"]);
    assert_eq!(names("macp.mode.decision.v1"), ["output", "policy.default", "votes"]);
    let descriptor = policies.get("output").unwrap().descriptor(9);
    assert_eq!(descriptor.policy_id, "output");
    assert_eq!((descriptor.schema_version, descriptor.registered_at_unix_ms), (3, 9));
    assert_eq!(descriptor.rules, r#"{"completion":{"require_output":true}}"#);
}

/// D-01: the text of a policy, which the record of a start has, is read as the same policy.
#[test]
fn a_policy_is_read_from_its_own_text() {
    for policy in policies().list("") {
        assert_eq!(&MacpPolicy::parse(&policy.text()).unwrap(), policy);
    }
}
