//! What strict hosts ask of a list of tools: one that they do not take makes others vanish, too.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};
use tenure_core::status::Role;
use tenure_mcp::{ToolFilter, tool_names};

use crate::house::House;

async fn listed() -> Vec<Json> {
    let mut host = House::open().await.host().await;
    host.ask("tools/list", json!({})).await["tools"].as_array().unwrap().clone()
}

/// Calls `look` with each schema below this one, and with its path.
fn walk(schema: &Json, path: &str, look: &mut impl FnMut(&Json, &str)) {
    look(schema, path);
    let empty = serde_json::Map::new();
    for (name, field) in schema["properties"].as_object().unwrap_or(&empty) {
        walk(field, &format!("{path}.{name}"), look);
    }
    for keyword in ["items", "additionalProperties"] {
        if schema[keyword].is_object() {
            walk(&schema[keyword], &format!("{path}.{keyword}"), look);
        }
    }
    for member in schema["anyOf"].as_array().into_iter().flatten() {
        walk(member, &format!("{path}|"), look);
    }
}

#[tokio::test]
async fn every_schema_is_one_that_strict_hosts_take() {
    for tool in listed().await {
        let name = tool["name"].as_str().unwrap();
        let is_fit = |it: char| it.is_ascii_alphanumeric() || "_-".contains(it);
        assert!((1..=64).contains(&name.len()) && name.chars().all(is_fit), "{name}");
        for schema in [&tool["inputSchema"], &tool["outputSchema"]] {
            assert_eq!(schema["type"], "object", "{name}");
            assert!(schema["properties"].is_object(), "{name}");
            for keyword in ["anyOf", "oneOf", "allOf", "$schema", "$ref", "$defs"] {
                assert!(schema.get(keyword).is_none(), "{name}: {keyword} at the top");
            }
            walk(schema, name, &mut |schema, path| {
                let kind = schema.get("type");
                assert!(kind.is_none_or(Json::is_string), "{path}: {schema}");
                assert_ne!(kind, Some(&json!("null")), "{path}");
                let known = [
                    "type",
                    "properties",
                    "required",
                    "description",
                    "enum",
                    "items",
                    "anyOf",
                    "minimum",
                    "maximum",
                    "minLength",
                    "maxLength",
                    "minItems",
                    "maxItems",
                    "pattern",
                    "format",
                    "additionalProperties",
                    "propertyNames",
                    "maxProperties",
                    "uniqueItems",
                ];
                let keywords = schema.as_object().unwrap_or_else(|| panic!("{path}: {schema}"));
                for keyword in keywords.keys() {
                    assert!(known.contains(&keyword.as_str()), "{path}: {keyword}");
                }
                for required in schema["required"].as_array().into_iter().flatten() {
                    assert!(
                        schema["properties"].get(required.as_str().unwrap()).is_some(),
                        "{path}"
                    );
                }
            });
            jsonschema::validator_for(schema).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

/// PERM-17, CTRL-10: the tools are those of agents, and those that are made of queries.
#[tokio::test]
async fn the_list_is_complete_and_always_in_one_order() {
    let names: Vec<String> =
        listed().await.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, tool_names().collect::<Vec<_>>());
    let agents = [
        "task_template",
        "task_create",
        "task_get",
        "task_list",
        "task_update",
        "task_query_steps",
        "task_update_step",
        "task_complete",
        "task_fail",
        "task_cancel",
        "dispatch_worker",
    ];
    let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    assert!(agents.iter().all(|name| names.contains(name)), "{names:?}");
}

#[tokio::test]
async fn hints_say_what_reads_what_ends_and_what_may_be_repeated() {
    for tool in listed().await {
        let (name, hints) = (tool["name"].as_str().unwrap(), &tool["annotations"]);
        let reads = [
            "task_template",
            "task_get",
            "task_list",
            "task_query_steps",
            "explain",
            "inbox",
            "board",
            "wait",
        ];
        assert_eq!(hints["readOnlyHint"], reads.contains(&name), "{name}");
        let ends = ["task_update", "task_update_step", "task_fail", "task_cancel"];
        assert_eq!(hints["destructiveHint"], ends.contains(&name), "{name}");
        assert!(
            hints["idempotentHint"].is_boolean() && hints["openWorldHint"].is_boolean(),
            "{name}"
        );
        assert!(tool["description"].as_str().unwrap().len() > 60, "{name}");
    }
}

/// What a model reads before its first call: hosts often give all tools together some ten thousand tokens.
#[tokio::test]
async fn all_tools_together_take_a_bounded_part_of_a_context() {
    let all = listed().await;
    let inputs: usize = all.iter().map(|tool| tool["inputSchema"].to_string().len()).sum();
    let whole = json!(all).to_string().len();
    assert!(inputs < 48 << 10, "{inputs}");
    assert!(whole < 80 << 10, "{whole}");
}

/// PERM-08, PERM-15: an observer is shown what it may use, and `--allow` cuts further.
#[tokio::test]
async fn a_list_has_what_its_caller_may_use() {
    let house = House::open().await;
    let only = |names: &[&str]| ToolFilter::Only(names.iter().map(|&it| it.to_owned()).collect());
    for (role, filter, expected) in [
        (Role::Observer, ToolFilter::All, "task_get task_list task_query_steps explain inbox wait"),
        (
            Role::Orchestrator,
            ToolFilter::ReadOnly,
            "task_template task_get task_list task_query_steps explain inbox board wait",
        ),
        (Role::Orchestrator, only(&["wait", "task_create"]), "task_create wait"),
        (Role::Observer, only(&["wait", "task_create"]), "wait"),
        (Role::Orchestrator, only(&[]), ""),
    ] {
        let mut host = house.host_with(role, filter).await;
        let tools = host.ask("tools/list", json!({})).await["tools"].clone();
        let names: Vec<&str> =
            tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names.join(" "), expected, "{role}");
    }
}
