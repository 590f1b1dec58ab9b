//! One model, three notations: the same content gives the same plan.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use tenure_taskfile::{FileFormat, Plan, ReadOptions, parse};

fn plan(text: &str, name: &str) -> Plan {
    parse(text.as_bytes(), name, &ReadOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

const YAML: &str = r#"
task_id: same
title: "The same ü \" task"
priority: 3
metadata: {list: [1, 2.5, "x"], flag: true, deep: {a: {b: -1}}}
vars: {n: 3}
defaults: {retries: 1, env: {A: b}, timeout: 30s}
steps:
  - {id: a, run: "echo \"hi\"\n"}
  - {id: b, needs: a, repeat: "${{ vars.n }}", command: [echo, "${{ index }}"]}
  - {id: c, depends_on: [b, a], optional: true, handler: mail, input: {to: [x], n: 1.5}}
  - {id: d, depends_on: b-0001, sleep: 1500}
"#;

const TOML: &str = r#"
task_id = "same"
title = 'The same ü " task'
priority = 3
metadata = { list = [1, 2.5, "x"], flag = true, deep.a.b = -1 }
[vars]
n = 3
[defaults]
retries = 1
timeout = "30s"
env.A = "b"
[[steps]]
id = "a"
run = """
echo "hi"
"""
[[steps]]
id = "b"
needs = "a"
repeat = "${{ vars.n }}"
command = ["echo", "${{ index }}"]
[[steps]]
id = "c"
depends_on = ["b", "a"]
optional = true
handler = "mail"
[steps.input]
to = ["x"]
n = 1.5
[[steps]]
id = "d"
depends_on = "b-0001"
sleep = 1_500
"#;

const JSON: &str = r#"{
  "task_id": "same",
  "title": "The same \u00fc \" task",
  "priority": 3,
  "metadata": {"list": [1, 2.5, "x"], "flag": true, "deep": {"a": {"b": -1}}},
  "vars": {"n": 3},
  "defaults": {"retries": 1, "env": {"A": "b"}, "timeout": "30s"},
  "steps": [
    {"id": "a", "run": "echo \"hi\"\n"},
    {"id": "b", "needs": "a", "repeat": "${{ vars.n }}", "command": ["echo", "${{ index }}"]},
    {"id": "c", "depends_on": ["b", "a"], "optional": true, "handler": "mail",
     "input": {"to": ["x"], "n": 1.5}},
    {"id": "d", "depends_on": "b-0001", "sleep": 1500}
  ]
}"#;

#[test]
fn the_same_content_gives_the_same_plan_in_every_notation() {
    let expected = plan(JSON, "t.json");
    assert_eq!(expected.steps.len(), 6);
    assert_eq!(plan(YAML, "t.yaml"), expected);
    assert_eq!(plan(TOML, "t.toml"), expected);
    assert_eq!(plan(JSON, "json-is-yaml.yaml"), Plan { title: expected.title.clone(), ..expected });
}

#[test]
fn without_an_extension_the_content_tells_the_notation() {
    let expected = plan(JSON, "-");
    assert_eq!(plan(YAML, "-"), expected);
    assert_eq!(plan(TOML, "stdin"), expected);
}

#[test]
fn a_format_that_is_asked_for_wins_over_the_extension() {
    let options = ReadOptions { format: Some(FileFormat::Toml), ..ReadOptions::default() };
    let plan = parse(TOML.as_bytes(), "t.yaml", &options).unwrap();
    assert_eq!(plan.task_id.as_deref(), Some("same"));
}

#[test]
fn steps_as_a_map_are_the_same_as_a_list_and_keep_their_order() {
    let list = plan("steps: [{id: z, run: x}, {id: a, run: x, needs: z}]", "t.yaml");
    assert_eq!(plan("steps: {z: {run: x}, a: {run: x, needs: z}}", "t.yaml"), list);
    assert_eq!(plan("[steps.z]\nrun = 'x'\n[steps.a]\nrun = 'x'\nneeds = 'z'\n", "t.toml"), list);
    let json = r#"{"steps": {"z": {"run": "x"}, "a": {"run": "x", "needs": "z"}}}"#;
    assert_eq!(plan(json, "t.json"), list);
}
