//! What a person sees when a task file is wrong. The cases and the messages stand in
//! `errors.golden`, to be read as a text: `=== file name`, the file, `~~~`, the message.
//! `TENURE_BLESS=1` writes the messages anew.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use tenure_taskfile::{ReadOptions, TaskFileError, parse};

const GOLDEN: &str = include_str!("errors.golden");

struct Case<'g> {
    file: &'g str,
    input: &'g str,
    message: &'g str,
}

fn cases() -> Vec<Case<'static>> {
    GOLDEN.split("=== ").skip(1).map(case).collect()
}

fn case(block: &'static str) -> Case<'static> {
    let (file, rest) = block.split_once('\n').unwrap();
    let (input, message) = rest.rsplit_once("~~~\n").unwrap_or((rest, ""));
    Case { file, input, message: message.trim_end() }
}

fn refuse(input: &str, file: &str) -> TaskFileError {
    parse(input.as_bytes(), file, &ReadOptions::default()).expect_err(file)
}

#[test]
fn messages_name_the_place_and_what_would_be_right() {
    let rendered: Vec<String> =
        cases().iter().map(|case| refuse(case.input, case.file).to_string()).collect();
    if std::env::var_os("TENURE_BLESS").is_some() {
        bless(&rendered);
        return;
    }
    for (case, message) in cases().iter().zip(&rendered) {
        assert_eq!(message, case.message, "{}\n{}", case.file, case.input);
    }
}

fn bless(rendered: &[String]) {
    let block = |(case, message): (&Case<'_>, &String)| {
        format!("=== {}\n{}~~~\n{message}\n\n", case.file, case.input)
    };
    let text: String = cases().iter().zip(rendered).map(block).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors.golden");
    std::fs::write(path, text).unwrap();
}

#[test]
fn every_message_has_a_code_and_none_repeats_control_characters() {
    for case in cases() {
        let error = refuse(case.input, case.file);
        for problem in error.problems() {
            assert!(matches!(problem.code, "validation_error" | "dependency_cycle"));
            assert!(!problem.message.contains(char::is_control), "{}", problem.message);
        }
        let shown = error.to_string().replace('\n', "");
        assert!(!shown.contains(char::is_control), "{shown}");
    }
}

#[test]
fn as_json_the_first_problem_stands_beside_the_file() {
    let input = "steps:\n  a: {run: x, timout: 3}\n  a-bcd: {run: x, depends_on: a-bce}\n";
    let json = serde_json::to_value(refuse(input, "t.yaml")).unwrap();
    let expected = serde_json::json!({
        "file": "t.yaml",
        "code": "validation_error",
        "line": 2,
        "column": 15,
        "field": "steps.a.timout",
        "message": "unknown field `timout`",
        "hint": "did you mean `timeout`?",
        "others": [{
            "code": "validation_error",
            "line": 3,
            "column": 31,
            "field": "a-bcd.depends_on",
            "message": "`a-bcd` depends on `a-bce`, which is no step",
            "hint": "did you mean `a-bcd`?",
        }],
        "omitted": 0,
    });
    assert_eq!(json, expected);
}

#[test]
fn at_most_twenty_problems_are_listed_and_the_rest_is_counted() {
    let steps: String = (0..50).map(|n| format!("  s{n}: {{run: x, bad{n}: 1}}\n")).collect();
    let error = refuse(&format!("steps:\n{steps}"), "t.yaml");
    assert_eq!((error.problems().count(), error.omitted), (20, 30));
    assert!(error.to_string().ends_with("30 more of these are not shown"));
}

#[test]
fn a_mistake_in_a_repeated_step_is_said_once() {
    let error = refuse("steps: [{id: a, repeat: 900, run: x, needs: nobody, sleeep: 1}]", "t.yaml");
    let messages: Vec<&str> = error.problems().map(|p| p.message.as_str()).collect();
    assert_eq!(
        messages,
        ["`a-0000` depends on `nobody`, which is no step", "unknown field `sleeep`"]
    );
}

#[test]
fn a_file_that_is_not_utf8_is_named_with_the_place_of_the_first_bad_byte() {
    let error = parse(b"steps:\n  a: \xff", "t.yaml", &ReadOptions::default()).unwrap_err();
    assert_eq!((error.first.line, error.first.column), (Some(2), Some(6)));
    assert_eq!(error.first.message, "the file is not UTF-8 text");
    let utf16: Vec<u8> = "\u{feff}steps".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let error = parse(&utf16, "t.yaml", &ReadOptions::default()).unwrap_err();
    assert_eq!(error.first.hint.as_deref(), Some("it looks like UTF-16; save it as UTF-8"));
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_file() {
    let plan = parse(
        "\u{feff}{\"steps\":{\"a\":{\"run\":\"x\"}}}".as_bytes(),
        "-",
        &ReadOptions::default(),
    );
    assert_eq!(plan.unwrap().steps.len(), 1);
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let absent = tenure_taskfile::read(&folder.path().join("no.yaml"), &ReadOptions::default());
    assert!(absent.unwrap_err().first.message.starts_with("the file cannot be read: "));
    let directory = tenure_taskfile::read(folder.path(), &ReadOptions::default()).unwrap_err();
    assert_eq!(directory.first.message, "this is a directory");
}
