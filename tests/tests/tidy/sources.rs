//! What sources may not contain, and how large they may get.

use std::path::{Path, PathBuf};

use super::{assert_none, files, root};

/// Columns of a line of Rust. rustfmt keeps code at 100; comments, macros and what it cannot break
/// may stand out by a word or two.
const COLUMNS_MAX: usize = 120;
/// Lines of a file of Rust.
const LINES_MAX: usize = 500;

/// Files that may be longer: so many lines, and why they are not split.
const LONG: &[(&str, usize, &str)] = &[
    ("crates/core/src/task/mod.rs", 700, "the fields of the aggregate, read as one table"),
    ("crates/core/src/task/step_events.rs", 530, "the reducer of Steps, event by event"),
    ("crates/core/src/task/derived.rs", 540, "the indexes, each beside what keeps it"),
    ("crates/core/src/read.rs", 535, "what readers see of a Task, as one list"),
    ("crates/core/src/event.rs", 640, "the payloads of all events, in the order of the contract"),
    ("crates/core/src/record.rs", 700, "the records of the contract, in its order"),
    ("crates/core/tests/rules/random_commands.rs", 980, "one model and the commands it tries"),
    ("crates/core/tests/rules/rules_event_map.rs", 545, "a test per rule of one group"),
    ("crates/core/tests/rules/rules_report.rs", 700, "a test per rule of one group"),
    ("crates/core/tests/rules/rules_run.rs", 550, "a test per rule of one group"),
];

/// Words that say that something is not finished. Put together, so that they do not stand here.
const MARKERS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("HA", "CK"),
    concat!("X", "XX"),
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("db", "g!("),
];

/// Folders with sources of any kind.
const EVERYTHING: &[&str] =
    &["crates", "tests", "benches", "docs", "examples", "deploy", "check", ".ci", "deny.toml"];

fn read(path: &Path) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

#[test]
fn nothing_is_marked_as_unfinished() {
    let mut found = Vec::new();
    for path in files(EVERYTHING, &[".rs", ".md", ".toml", ".yaml", ".yml", ".sh", "check", "run"])
    {
        for (number, line) in (1..).zip(read(&path).lines()) {
            if let Some(marker) = MARKERS.iter().find(|marker| has_word(line, marker)) {
                found.push(format!("{}:{number}: {marker}", path.display()));
            }
        }
    }
    assert_none(&found, "finish it, or write down what is deliberately absent and why");
}

/// Whether a line has the word by itself.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        let next = if word.ends_with('(') { None } else { line[at + word.len()..].chars().next() };
        !is_part(line[..at].chars().next_back()) && !is_part(next)
    })
}

/// Sources that only tests run.
pub(super) fn is_for_tests(path: &Path) -> bool {
    let is_named = |name| path.file_name().unwrap() == name;
    path.starts_with("crates/testkit") || is_named("tests.rs") || is_named("double.rs")
}

fn product_sources() -> Vec<PathBuf> {
    let is_product = |path: &PathBuf| {
        path.components().nth(2).is_some_and(|part| part.as_os_str() == "src")
            && !is_for_tests(path)
    };
    files(&["crates"], &[".rs"]).into_iter().filter(is_product).collect()
}

#[test]
fn nothing_panics_on_what_may_happen() {
    const PANICS: [&str; 4] = [".unwrap()", ".expect(\"", ".unwrap_err()", ".expect_err("];
    let mut found = Vec::new();
    for path in product_sources() {
        for (number, line) in code_lines(&read(&path)) {
            if PANICS.iter().any(|panic| line.contains(panic)) {
                found.push(format!("{}:{number}: {}", path.display(), line.trim()));
            }
        }
    }
    assert_none(&found, "answer with an error, or write it so that the compiler sees it cannot be");
}

#[test]
fn the_core_knows_no_operating_system() {
    let mut found = Vec::new();
    for path in product_sources().iter().filter(|path| path.starts_with("crates/core")) {
        for (number, line) in code_lines(&read(path)) {
            if line.contains("std::") && !line.contains("no_std") {
                found.push(format!("{}:{number}: {}", path.display(), line.trim()));
            }
        }
    }
    assert_none(&found, "the core is pure: use core:: or alloc::, or let it in as a value");
}

/// Lines of code with their numbers: without comments and without what is compiled for tests only,
/// which is the item behind `#[cfg(test)]`.
pub(super) fn code_lines(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            skip_item(&mut lines);
        } else if !line.trim_start().starts_with("//") {
            found.push((number, line));
        }
    }
    found
}

/// Passes over an item: one that opens a brace ends with the brace below its start, any other with
/// its line.
fn skip_item<'a>(lines: &mut impl Iterator<Item = (usize, &'a str)>) {
    let Some((_, start)) = lines.find(|(_, line)| !line.trim_start().starts_with("#[")) else {
        return;
    };
    if start.trim_end().ends_with('{') {
        let indent = &start[..start.len() - start.trim_start().len()];
        let closing = format!("{indent}}}");
        let _ = lines.find(|(_, line)| *line == closing);
    }
}

#[test]
fn code_is_told_from_comments_and_tests() {
    let tests = "#[cfg(test)]\n#[allow(x)]\nmod tests {\n    use a;\n    fn c() {\n    }\n}\n";
    let text = format!("a\n// b\n{tests}d\n#[cfg(test)]\nmod e;\nf\n");
    assert_eq!(code_lines(&text), [(1, "a"), (10, "d"), (13, "f")]);
}

#[test]
fn lines_fit_the_page() {
    let mut found = Vec::new();
    for path in files(&["crates", "tests", "benches"], &[".rs"]) {
        for (number, line) in (1..).zip(read(&path).lines()) {
            let columns = without_text(line).chars().count();
            if columns > COLUMNS_MAX {
                found.push(format!("{}:{number}: {columns} columns", path.display()));
            }
        }
    }
    assert_none(&found, "cargo fmt, and break texts and comments by hand");
}

/// A line of code without the text between its first quote and its last one: a message, a row of a
/// table or a sample reads best on one line, and rustfmt leaves it there. Comments count in full.
fn without_text(line: &str) -> String {
    let is_comment = line.trim_start().starts_with("//");
    match (line.find('"'), line.rfind('"')) {
        (Some(first), Some(last)) if first < last && !is_comment => {
            format!("{}{}", &line[..=first], &line[last..])
        }
        _ => line.to_owned(),
    }
}

/// The worker in another language is there to be read: it shows how little a worker needs.
#[test]
fn the_worker_in_python_has_some_200_lines() {
    let text = read(Path::new("examples/python-worker/worker.py"));
    let (lines, columns) = (text.lines().count(), text.lines().map(|line| line.chars().count()));
    assert!(lines < 205, "{lines} lines");
    assert!(columns.max() <= Some(100), "no line has more than 100 columns");
}

#[test]
fn files_are_short_or_have_a_reason() {
    let mut found = Vec::new();
    let mut used = Vec::new();
    for path in files(&["crates", "tests", "benches"], &[".rs"]) {
        let lines = read(&path).lines().count();
        let name = path.to_string_lossy();
        let max = match LONG.iter().find(|(known, ..)| *known == name) {
            Some((known, max, _)) if lines > LINES_MAX => {
                used.push(*known);
                *max
            }
            _ => LINES_MAX,
        };
        if lines > max {
            found.push(format!("{name}: {lines} lines, at most {max}"));
        }
    }
    for (name, ..) in LONG.iter().filter(|(name, ..)| !used.contains(name)) {
        found.push(format!("{name}: is short by now, or gone: take it off the list"));
    }
    assert_none(&found, "split the file by what it does, or say in the list why it is one");
}
