//! The examples: each is read, fits the schema, and its shell lines do what its comment says.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tenure_taskfile::{Plan, PlanStep, ReadOptions, parse, read, schema};

fn example(name: &str) -> Plan {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    read(&folder.join(name), &ReadOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// One attempt of a step of a shell line, in the way of a worker; its output if it succeeds.
fn attempt(step: &PlanStep, inputs: &Value, attempt: u32) -> Result<Value, i32> {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("inputs"), folder.path().join("output"));
    std::fs::write(&input, inputs.to_string()).unwrap();
    let line = step.input.as_ref().unwrap()["run"].as_str().unwrap().to_owned();
    let mut command = Command::new("sh");
    command.args(["-c", &line]).env("TENURE_INPUTS", &input).env("TENURE_OUTPUT", &output);
    let run = command.env("TENURE_ATTEMPT", attempt.to_string()).output().unwrap();
    if !run.status.success() {
        return Err(run.status.code().unwrap());
    }
    let output = std::fs::read_to_string(output).unwrap_or("null".into());
    Ok(serde_json::from_str(&output).unwrap())
}

#[test]
fn the_diamond_passes_outputs_along() {
    let mut outputs: HashMap<String, Value> = HashMap::new();
    for step in &example("diamond.yaml").steps {
        let inputs = step.depends_on.iter().map(|id| (id.clone(), outputs[id].clone())).collect();
        let output = attempt(step, &Value::Object(inputs), 1).unwrap();
        outputs.insert(step.id.clone(), output);
    }
    assert_eq!(outputs["report"], serde_json::json!({ "area": 42, "perimeter": 26 }));
}

#[test]
fn the_retried_step_succeeds_at_its_third_attempt() {
    let plan = example("retry.yaml");
    let results = (1..=3).map(|n| attempt(&plan.steps[0], &Value::Null, n));
    assert_eq!(results.collect::<Vec<_>>(), [Err(1), Err(1), Ok(Value::Null)]);
    let retry = plan.steps[0].retry.as_ref().unwrap();
    assert_eq!((retry.max_attempts, retry.backoff.initial_ms), (Some(4), 200));
}

#[test]
fn the_optional_branch_has_nothing_required_behind_it() {
    let plan = example("optional.yaml");
    let failing = plan.steps.iter().find(|step| step.id == "report").unwrap();
    assert_eq!(attempt(failing, &Value::Null, 1), Err(1));
    for step in plan.steps.iter().filter(|step| step.depends_on.contains(&failing.id)) {
        assert!(!step.required);
    }
}

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_task = |path: &PathBuf| {
        path.extension().is_some_and(|e| ["yaml", "toml", "json"].iter().any(|known| e == *known))
    };
    files.filter(is_task).collect()
}

#[test]
fn every_example_is_read() {
    let examples = examples();
    assert!(examples.len() >= 7);
    for path in examples {
        let plan = read(&path, &ReadOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert_eq!(plan.task_id.as_deref(), Some(name));
    }
}

#[test]
fn the_fan_out_example_is_as_wide_as_it_is_told() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fan-out.yaml");
    let plan = read(&path, &ReadOptions::default()).unwrap();
    assert_eq!((plan.steps.len(), plan.steps[1001].depends_on.len()), (1_002, 1_000));
    let vars = [("width".to_owned(), "5".to_owned())].into();
    let plan = read(&path, &ReadOptions { vars, ..ReadOptions::default() }).unwrap();
    assert_eq!(plan.steps[6].depends_on.len(), 5);
}

#[test]
fn every_example_fits_the_schema() {
    let schema = schema();
    for path in examples() {
        let value = value_of(&path);
        check(&value, &schema, &schema, "").unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}

#[test]
fn the_documentation_names_every_field() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/task-file.md");
    let text = std::fs::read_to_string(path).unwrap();
    let schema = schema();
    let definitions = schema["$defs"].as_object().unwrap().values();
    for object in definitions.chain([&schema]) {
        for name in object["properties"].as_object().into_iter().flat_map(|map| map.keys()) {
            assert!(text.contains(&format!("`{name}`")), "{name}");
        }
    }
}

#[test]
fn the_schema_refuses_what_the_reader_refuses() {
    let schema = schema();
    for text in [
        r#"{}"#,
        r#"{"steps": []}"#,
        r#"{"steps": {"a": {"runn": "x"}}}"#,
        r#"{"steps": [{"id": "A b", "run": "x"}]}"#,
        r#"{"steps": [{"id": "a", "run": ["x"]}]}"#,
        r#"{"steps": [{"id": "a", "run": "x", "retry": 3}]}"#,
        r#"{"steps": [{"id": "a", "noop": "yes"}]}"#,
        r#"{"dispatch": "never", "steps": [{"id": "a", "noop": true}]}"#,
    ] {
        assert!(parse(text.as_bytes(), "t.json", &ReadOptions::default()).is_err(), "{text}");
        let value: Value = serde_json::from_str(text).unwrap();
        assert!(check(&value, &schema, &schema, "").is_err(), "{text}");
    }
}

/// The file as plain JSON, without this reader: TOML and JSON by their libraries, YAML through a
/// task file's metadata.
fn value_of(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap();
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => serde_json::from_str(&text).unwrap(),
        Some("toml") => toml::from_str(&text).unwrap(),
        _ => {
            let indented: String = text.lines().map(|line| format!("  {line}\n")).collect();
            let escaped = indented.replace("${{", "$${{");
            let wrapped = format!("metadata:\n{escaped}steps: {{a: {{noop: true}}}}\n");
            let plan = parse(wrapped.as_bytes(), "t.yaml", &ReadOptions::default()).unwrap();
            Value::Object(plan.metadata)
        }
    }
}

/// As much of JSON Schema as ours uses.
fn check(value: &Value, schema: &Value, root: &Value, path: &str) -> Result<(), String> {
    if schema == &Value::Bool(true) {
        return Ok(());
    }
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.strip_prefix("#/$defs/").unwrap();
        return check(value, &root["$defs"][name], root, path);
    }
    if let Some(branches) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
        let fits = branches.iter().any(|branch| check(value, branch, root, path).is_ok());
        return if fits { Ok(()) } else { Err(format!("{path}: {value} fits no branch")) };
    }
    if let Some(constant) = schema.get("const") {
        return if constant == value { Ok(()) } else { Err(format!("{path}: {value}")) };
    }
    check_type(value, &schema["type"], path)?;
    check_pattern(value, schema, path)?;
    check_items(value, schema, root, path)?;
    check_properties(value, schema, root, path)
}

fn check_type(value: &Value, expected: &Value, path: &str) -> Result<(), String> {
    let fits = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => panic!("{name}"),
    };
    let fits = match expected {
        Value::Null => true,
        Value::String(name) => fits(name),
        names => names.as_array().unwrap().iter().any(|name| fits(name.as_str().unwrap())),
    };
    if fits { Ok(()) } else { Err(format!("{path}: {value} is not {expected}")) }
}

/// The two patterns of the schema, written out.
fn check_pattern(value: &Value, schema: &Value, path: &str) -> Result<(), String> {
    let (Some(text), Some(pattern)) = (value.as_str(), schema["pattern"].as_str()) else {
        return Ok(());
    };
    let reference = text.contains("${{");
    let id = (1..=64).contains(&text.len())
        && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'));
    let fits = reference || (pattern.contains("a-z0-9") && id);
    if fits { Ok(()) } else { Err(format!("{path}: {text} does not match {pattern}")) }
}

fn check_items(value: &Value, schema: &Value, root: &Value, path: &str) -> Result<(), String> {
    let Some(items) = value.as_array() else { return Ok(()) };
    if items.is_empty() && schema["minItems"].as_u64() == Some(1) {
        return Err(format!("{path}: empty"));
    }
    let item = schema.get("items").unwrap_or(&Value::Bool(true));
    items.iter().enumerate().try_for_each(|(n, v)| check(v, item, root, &format!("{path}[{n}]")))
}

fn check_properties(value: &Value, schema: &Value, root: &Value, path: &str) -> Result<(), String> {
    let Some(map) = value.as_object() else { return Ok(()) };
    for name in schema["required"].as_array().into_iter().flatten() {
        if !map.contains_key(name.as_str().unwrap()) {
            return Err(format!("{path}: {name} is missing"));
        }
    }
    for (key, value) in map.iter().filter(|(key, _)| !key.starts_with("x-")) {
        let path = format!("{path}.{key}");
        match (schema["properties"].get(key), &schema["additionalProperties"]) {
            (Some(property), _) => check(value, property, root, &path)?,
            (None, Value::Bool(false)) => return Err(format!("{path} is unknown")),
            (None, Value::Null | Value::Bool(true)) => {}
            (None, other) => check(value, other, root, &path)?,
        }
    }
    Ok(())
}
