//! The catalog says of every message what it is: the bytes that the protocol is held to, judged by a validator of
//! JSON Schema that others wrote.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::fs;
use std::path::PathBuf;

use rmpv::Value as Msg;
use serde_json::{Map, Value, json};
use tenure_core::Code;
use tenure_core::command::Operator;
use tenure_wire::bus::catalog::catalog;

fn described() -> Value {
    serde_json::to_value(catalog()).unwrap()
}

/// A validator of a schema of the catalog.
fn validator(catalog: &Value, schema: &Value) -> jsonschema::Validator {
    let whole = json!({
        "allOf": [schema], "inputs": catalog["inputs"], "outputs": catalog["outputs"],
    });
    jsonschema::draft202012::new(&whole).unwrap()
}

#[track_caller]
fn assert_fits(catalog: &Value, schema: &Value, message: &Value, name: &str) {
    let validator = validator(catalog, schema);
    let wrong: Vec<String> = validator
        .iter_errors(message)
        .map(|error| format!("{} at {}", error, error.instance_path()))
        .collect();
    assert_eq!(wrong, [""; 0], "{name}: {message:#}");
}

/// A message as JSON: bytes are text, which they all are here.
fn json(message: Msg) -> Value {
    match message {
        Msg::Nil => Value::Null,
        Msg::Boolean(it) => it.into(),
        Msg::Integer(it) => it.as_i64().map_or_else(|| it.as_u64().into(), Value::from),
        Msg::F32(it) => it.into(),
        Msg::F64(it) => it.into(),
        Msg::String(it) => it.as_str().unwrap().into(),
        Msg::Binary(it) => String::from_utf8(it).unwrap().into(),
        Msg::Array(all) => all.into_iter().map(json).collect(),
        Msg::Map(all) => {
            let fields =
                all.into_iter().map(|(key, it)| (key.as_str().unwrap().to_owned(), json(it)));
            Value::Object(fields.collect::<Map<String, Value>>())
        }
        Msg::Ext(..) => panic!("there are none"),
    }
}

/// What a recorded message is, by the name of its file.
enum Is {
    /// A message of the subject that ends so.
    Message(&'static str),
    /// The answer to that.
    Answer(&'static str),
    /// What the operation is answered with.
    Output(&'static str),
    /// Something that stands in a message.
    Part(&'static str),
    /// A request.
    Request,
    /// Between nodes: nobody else says or hears it.
    Internal,
}

fn what(name: &str) -> Is {
    match name {
        _ if name.starts_with("request-read-parent") || name.starts_with("parent") => Is::Internal,
        _ if name.starts_with("request-") => Is::Request,
        _ if name.starts_with("reports") => Is::Message(".report.<partition>"),
        _ if name.starts_with("node-facts") => Is::Answer(".nodes"),
        _ if name.starts_with("welcome") => Is::Answer("<session>.<principal>.hello"),
        _ if name.starts_with("alive") => Is::Message(".alive"),
        _ if name.starts_with("room") => Is::Message(".node.<node>"),
        _ if name.starts_with("nodes") => Is::Message(".nodes"),
        _ if name.starts_with("hello") => Is::Message("<boot>.hello"),
        "deliveries" => Is::Message(".d.<node>"),
        "delivery-drain" | "delivery-drain-within" | "delivery-input" | "delivery-read-output" => {
            Is::Part("Delivery")
        }
        "output" => Is::Message(".output.<node>"),
        "output-page" | "output-absent" => Is::Output("read_output"),
        "claim-lost" => Is::Answer(".claim.<partition>"),
        "reported" => Is::Answer(".report.<partition>"),
        "heartbeat" | "heartbeat-input-seen" => Is::Message(".hb"),
        "pulses" => Is::Answer(".hb"),
        "query" => Is::Message(".query.<partition>"),
        "claim" => Is::Message(".claim.<partition>"),
        "look" => Is::Message(".look.<partition>"),
        "blob" | "blob-get" => Is::Message(".blob.<partition>"),
        "blob-part" | "blob-taken" | "blob-stored" => Is::Answer(".blob.<partition>"),
        "hungry" => Is::Message(".hungry"),
        "committed" => Is::Message("<task>"),
        "published" => Is::Message(".public"),
        "runtime" => Is::Message(".runtime"),
        "events" => Is::Output("read_events"),
        "leases" => Is::Output("list_leases"),
        "refused" => Is::Part("Error"),
        "drain" | "drain-within" => Is::Message(".drain"),
        "drained" => Is::Answer(".drain"),
        "import" => Is::Message(".import.<partition>"),
        "imported" => Is::Answer(".import.<partition>"),
        _ => panic!("say what {name} is"),
    }
}

fn message<'a>(catalog: &'a Value, ending: &str) -> &'a Value {
    let all = catalog["messages"].as_array().unwrap();
    let mut found = all.iter().filter(|it| it["subject"].as_str().unwrap().ends_with(ending));
    let message = found.next().unwrap_or_else(|| panic!("{ending}"));
    assert!(found.next().is_none(), "{ending} says which");
    message
}

fn operation<'a>(catalog: &'a Value, name: &str) -> &'a Value {
    let mut all = catalog["operations"].as_array().unwrap().iter();
    let is_it =
        |it: &&Value| it["name"] == name || it["names"].as_array().unwrap().contains(&name.into());
    all.find(is_it).unwrap_or_else(|| panic!("{name}"))
}

/// What an answer says where it is no refusal; what is no answer is that itself.
fn ok(message: &Value) -> &Value {
    message.get("ok").unwrap_or(message)
}

/// CTRL-01: every message that was ever recorded is what the catalog says of it.
#[test]
fn recorded_messages_fit_their_schemas() {
    let catalog = described();
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/bus-v1");
    let mut seen = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let bytes = fs::read(&path).unwrap();
        let said = json(rmpv::decode::read_value(&mut &bytes[..]).unwrap());
        seen += 1;
        match what(name) {
            Is::Message(ending) => {
                assert_fits(&catalog, &message(&catalog, ending)["message"], &said, name);
            }
            Is::Answer(ending) => {
                assert_fits(&catalog, &message(&catalog, ending)["answer"], ok(&said), name);
            }
            Is::Output(name) => {
                assert_fits(&catalog, &operation(&catalog, name)["output"], ok(&said), name);
            }
            Is::Part(of) => {
                let part = said.get("error").unwrap_or(&said);
                assert_fits(&catalog, &json!({"$ref": format!("#/outputs/{of}")}), part, name);
            }
            Is::Request => {
                let operation = operation(&catalog, said["operation"].as_str().unwrap());
                assert_fits(&catalog, &catalog["request"], &said, name);
                let input = said.get("input").cloned().unwrap_or_else(|| json!({}));
                assert_fits(&catalog, &operation["input"], &input, name);
            }
            Is::Internal => {}
        }
    }
    assert!(seen > 60, "{seen}");
}

/// A schema that let everything through would fit, too.
#[test]
fn what_is_refused_fits_no_schema() {
    let catalog = described();
    let step = json!({"step_id": "a", "title": "A"});
    let create = json!({"task_id": "t", "title": "T", "steps": [step]});
    let input = |name: &str| operation(&catalog, name)["input"].clone();
    assert_fits(&catalog, &input("create_task"), &create, "what is left out has a default");
    let typo = json!({"depends_on_steps_ids": ["b"], "step_id": "a", "title": "A"});
    for (name, wrong) in [
        ("task_create", json!({"title": "T"})),
        ("task_create", json!({"task_id": "t", "title": "T", "steps": [{"title": "A"}]})),
        ("task_create", json!({"task_id": "t", "title": "T", "steps": [typo]})),
        ("task_create", json!({"task_id": "t", "title": "T", "dispatch": "sometimes"})),
        ("task_update", json!({})),
        ("task_update", json!({"operations": [{"op": "add_stop", "step": step}]})),
        ("explain", json!({})),
        ("task_get", json!({"task": "t"})),
        ("cancel_run", json!({"run_id": 7})),
    ] {
        let validator = validator(&catalog, &input(name));
        assert!(!validator.is_valid(&wrong), "{name} {wrong}");
    }
}

/// CTRL-01: each operation has one entry, by all of its names; and each code stands in the list of codes.
#[test]
fn each_operation_and_each_code_stands_there_once() {
    let catalog = catalog();
    let mut names: Vec<&str> = Vec::new();
    for operation in &catalog.operations {
        names.push(&operation.name);
        names.extend(&operation.names);
        assert!(!operation.roles.is_empty(), "{}", operation.name);
        let is_common = |code: &Code| Code::COMMON.contains(code);
        assert!(!operation.refusals.iter().any(is_common), "{}", operation.name);
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    let others = Operator::TOOLS.iter().chain(&Operator::CONTROL_PLANE).map(|(name, _)| *name);
    for name in others.filter(|name| *name != "agent.task_claim_step") {
        assert!(names.contains(&name), "{name}");
    }
    assert_eq!(catalog.errors.len(), Code::ALL.len());
}
