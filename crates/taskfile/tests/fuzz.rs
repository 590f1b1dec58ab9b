//! Whatever the bytes, there is an answer; and where JSON is concerned, the answer of
//! `serde_json`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Value, json};
use tenure_taskfile::{FileFormat, ReadOptions, parse};
use tenure_testkit::fuzz::{Corpus, InputForm, Meter, fuzz};

#[global_allocator]
static METER: Meter = Meter;

const SEEDS: [(&str, &str); 4] = [
    ("t.yaml", include_str!("../../../examples/retry.yaml")),
    ("t.yaml", include_str!("../../../examples/fan-out.yaml")),
    ("t.toml", include_str!("../../../examples/pipeline.toml")),
    ("t.json", include_str!("../../../examples/release.json")),
];

/// Bytes that mean something in one of the notations.
const TOKENS: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\n",
    "  ",
    "- ",
    "\"",
    "'",
    "#",
    "&a ",
    "*a",
    "<<: *a",
    "${{",
    "}}",
    "= ",
    "\\u",
    "\u{1f600}",
    "null",
    "1e9",
    "!!str ",
    "\t",
];

#[derive(Debug, Clone)]
enum Change {
    Cut(usize, usize),
    Token(usize, usize),
    Byte(usize, u8),
    Copy(usize, usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let place = 0..4_000usize;
    prop_oneof![
        (place.clone(), 0..40usize).prop_map(|(at, length)| Change::Cut(at, length)),
        (place.clone(), 0..TOKENS.len()).prop_map(|(at, token)| Change::Token(at, token)),
        (place.clone(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        (place.clone(), place, 0..200usize).prop_map(|(from, to, n)| Change::Copy(from, to, n)),
    ]
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    let within = |at: usize| at % (bytes.len() + 1);
    match *change {
        Change::Cut(at, length) => {
            let (start, end) = (within(at), (within(at) + length).min(bytes.len()));
            bytes.drain(start..end);
        }
        Change::Token(at, token) => {
            let at = within(at);
            bytes.splice(at..at, TOKENS[token].bytes());
        }
        Change::Byte(at, byte) => {
            let at = within(at);
            bytes.insert(at, byte);
        }
        Change::Copy(from, to, length) => {
            let (from, to) = (within(from), within(to));
            let piece = bytes[from..(from + length).min(bytes.len())].to_vec();
            bytes.splice(to..to, piece);
        }
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9f64..1e9).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            btree_map(any::<String>(), inner, 0..15)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Equal, but for the last bit of floats: `serde_json` rounds them fast, this reader exactly.
fn same(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= a.abs() * 1e-12
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => ours == theirs,
    }
}

/// `value` as it comes back through a task file.
fn through_a_file(file: &str, format: FileFormat) -> Result<Value, String> {
    let options = ReadOptions { format: Some(format), ..ReadOptions::default() };
    let plan = parse(file.as_bytes(), "t", &options).map_err(|error| error.to_string())?;
    Ok(plan.metadata.get("v").cloned().unwrap_or_default())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn mutated_files_get_an_answer(seed in 0..SEEDS.len(), changes in vec(change(), 1..12)) {
        let (name, text) = SEEDS[seed];
        let mut bytes = text.as_bytes().to_vec();
        changes.iter().for_each(|change| apply(&mut bytes, change));
        if let Err(error) = parse(&bytes, name, &ReadOptions::default()) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn any_text_gets_an_answer_in_any_notation(text in any::<String>(), tokens in vec(0..TOKENS.len(), 0..60)) {
        let tokens: String = tokens.into_iter().map(|n| TOKENS[n]).collect();
        for format in [FileFormat::Yaml, FileFormat::Toml, FileFormat::Json, FileFormat::WfFormat] {
            let options = ReadOptions { format: Some(format), ..ReadOptions::default() };
            for text in [&text, &tokens] {
                prop_assert!(parse(text.as_bytes(), "t", &options).is_err());
            }
        }
    }

    #[test]
    fn json_is_read_as_serde_json_reads_it(value in json_value(), pretty in any::<bool>()) {
        // References are the reader's own and would be replaced.
        prop_assume!(!value.to_string().contains("${{"));
        let file = json!({ "metadata": { "v": value }, "steps": { "a": { "noop": true } } });
        let text = if pretty { format!("{file:#}") } else { file.to_string() };
        prop_assert_eq!(through_a_file(&text, FileFormat::Json), Ok(value));
    }

    #[test]
    fn what_is_accepted_of_broken_json_is_what_serde_json_accepts(
        value in json_value(),
        changes in vec(change(), 1..3),
    ) {
        let file = json!({ "metadata": { "v": value }, "steps": { "a": { "noop": true } } });
        let mut bytes = file.to_string().into_bytes();
        changes.iter().for_each(|change| apply(&mut bytes, change));
        let Ok(text) = std::str::from_utf8(&bytes) else { return Ok(()) };
        prop_assume!(!text.contains("${{") && !text.starts_with('\u{feff}'));
        // The other way round does not hold: what is JSON may still be no task.
        if let Ok(ours) = through_a_file(text, FileFormat::Json) {
            let theirs: Value = serde_json::from_str(text).map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert!(same(&ours, &theirs["metadata"]["v"]), "{ours} {theirs}");
        }
    }
}

#[test]
fn every_cut_of_an_example_gets_an_answer() {
    for (name, text) in SEEDS {
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            let _ = parse(&text.as_bytes()[..end], name, &ReadOptions::default());
        }
    }
}

/// Reads bytes in a notation, twice: the same file is the same plan. An error names a line that is there.
fn is_plan(format: FileFormat, bytes: &[u8]) -> bool {
    let options = ReadOptions { format: Some(format), ..ReadOptions::default() };
    let read = parse(bytes, "t", &options);
    match &read {
        Ok(plan) => assert_eq!(parse(bytes, "t", &options).as_ref(), Ok(plan)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    read.is_ok()
}

fn examples(endings: &[&str]) -> Corpus {
    let tokens = [
        &TOKENS[..],
        &["steps", "needs", "handler", "for_each", "!!map ", "? ", "|\n", "inf", "0x", "''"],
    ];
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    Corpus::of_files(InputForm::Bytes, folder, endings).with_tokens(&tokens.concat())
}

#[test]
fn fuzz_task_files_in_yaml() {
    fuzz("task files in YAML", &examples(&[".yaml"]), |bytes| is_plan(FileFormat::Yaml, bytes));
}

#[test]
fn fuzz_task_files_in_toml() {
    fuzz("task files in TOML", &examples(&["pipeline.toml"]), |bytes| {
        is_plan(FileFormat::Toml, bytes)
    });
}

#[test]
fn fuzz_task_files_in_json() {
    let sample = include_bytes!("../../../examples/release.json").to_vec();
    fuzz("task files in JSON", &Corpus::new(InputForm::Json, [sample]), |bytes| {
        is_plan(FileFormat::Json, bytes)
    });
}

#[test]
fn fuzz_workflows_in_wfformat() {
    let sample = include_bytes!("../../../tests/workflows/survey.json").to_vec();
    fuzz("workflows in WfFormat", &Corpus::new(InputForm::Json, [sample]), |bytes| {
        is_plan(FileFormat::WfFormat, bytes)
    });
}
