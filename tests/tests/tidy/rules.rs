//! Every rule of the contract is named by a test that fails when the rule is broken.

use std::collections::{BTreeMap, BTreeSet};

use super::{assert_none, files, root};

/// What a rule of `docs/contract.md` ends with that the code does not follow yet.
const NOT_BUILT: &str = " *(not built yet)*";

/// Group and number of the rule in a line of `docs/contract.md`: it begins with `- CLAIM-08 `.
fn rule(line: &str) -> Option<(&str, u32)> {
    let (group, number) = line.strip_prefix("- ")?.split(' ').next()?.rsplit_once('-')?;
    Some((group, number.parse().ok()?))
}

/// The rules of `docs/contract.md`, by group.
fn written() -> BTreeMap<String, BTreeSet<u32>> {
    let contract = std::fs::read_to_string(root().join("docs/contract.md")).unwrap();
    let mut rules: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for (group, number) in contract.lines().filter_map(rule) {
        let is_new = rules.entry(group.to_owned()).or_default().insert(number);
        assert!(is_new, "docs/contract.md has {group}-{number:02} twice");
    }
    assert!(rules.len() > 30, "docs/contract.md names its rules in lists: {rules:?}");
    rules
}

/// Those of the rules that are not built yet, or not as they stand there.
fn not_built() -> BTreeSet<(String, u32)> {
    let contract = std::fs::read_to_string(root().join("docs/contract.md")).unwrap();
    let marked = contract.lines().filter(|line| line.ends_with(NOT_BUILT));
    marked.filter_map(rule).map(|(group, number)| (group.to_owned(), number)).collect()
}

/// The rules that the comments of tests name: `CLAIM-08`, or `CLAIM-01 to CLAIM-04`.
pub(super) fn named() -> BTreeMap<String, BTreeSet<u32>> {
    let mut named: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for path in files(&["crates", "tests"], &[".rs"]) {
        let text = std::fs::read_to_string(root().join(path)).unwrap();
        let (mut comment, mut is_open) = (String::new(), false);
        for line in text.lines().map(str::trim) {
            if let Some(words) = line.strip_prefix("///") {
                if !std::mem::replace(&mut is_open, true) {
                    comment.clear();
                }
                comment.push_str(words);
            } else if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                note(&comment, &mut named);
            } else if !line.starts_with("#[") {
                comment.clear();
                is_open = false;
            }
        }
    }
    named
}

fn note(comment: &str, named: &mut BTreeMap<String, BTreeSet<u32>>) {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let mut before: Option<(&str, u32)> = None;
    let mut is_range = false;
    for word in comment.split(|c: char| !is_part(c)).filter(|word| !word.is_empty()) {
        let rule = word.rsplit_once('-').and_then(|(group, n)| Some((group, n.parse().ok()?)));
        match rule {
            Some((group, number)) => {
                let first = match before {
                    Some((of, first)) if is_range && of == group => first,
                    _ => number,
                };
                named.entry(group.to_owned()).or_default().extend(first..=number);
                (before, is_range) = (Some((group, number)), false);
            }
            None => is_range = word == "to",
        }
    }
}

#[test]
fn every_rule_is_named_by_a_test() {
    let (named, not_built) = (named(), not_built());
    let has = |group: &str, number| named.get(group).is_some_and(|all| all.contains(&number));
    let is_built = |group: &str, number| !not_built.contains(&(group.to_owned(), number));
    let mut missing = Vec::new();
    for (group, numbers) in written() {
        let of_group = numbers.into_iter().filter(|&n| is_built(&group, n) && !has(&group, n));
        missing.extend(of_group.map(|number| format!("{group}-{number:02}")));
    }
    assert_none(&missing, "each rule has a test whose comment names it");
}

#[test]
fn no_rule_is_named_that_does_not_exist() {
    let written = written();
    let mut wrong = Vec::new();
    for (group, numbers) in named() {
        let Some(known) = written.get(&group) else { continue }; // Another word with a number.
        let beyond = numbers.into_iter().filter(|number| !known.contains(number));
        wrong.extend(beyond.map(|number| format!("{group}-{number:02}")));
    }
    assert_none(&wrong, "the contract has no such rule");
}

#[test]
fn comments_are_read_as_they_are_meant() {
    let mut named = BTreeMap::new();
    note("CLAIM-08, OWN-02 to OWN-04, mechanisms 3: 7.1 to 7.2, GET-01 and GET-03.", &mut named);
    let numbers = |group: &str| named[group].iter().copied().collect::<Vec<u32>>();
    assert_eq!(numbers("CLAIM"), [8]);
    assert_eq!(numbers("OWN"), [2, 3, 4]);
    assert_eq!(numbers("GET"), [1, 3]);
}

/// CTX-13: nothing that a handler is given has a version or a token in it.
#[test]
fn handlers_see_neither_versions_nor_tokens() {
    let path = root().join("crates/sdk/src/worker/context.rs");
    let context = std::fs::read_to_string(path).unwrap();
    let shown = context.lines().filter(|line| line.trim_start().starts_with("pub fn "));
    let shown: Vec<&str> = shown.collect();
    assert!(shown.len() > 10, "{shown:?}");
    for word in ["ClaimResult", "Recorded", "token", "version", "AttemptId", "RunId"] {
        assert!(!shown.iter().any(|line| line.contains(word)), "{word}: {shown:?}");
    }
}

/// PERM-11: what decides commands has no way to files, so no command can ask for leave to use some.
#[test]
fn the_core_knows_no_files() {
    let core = std::fs::read_to_string(root().join("crates/core/src/lib.rs")).unwrap();
    assert!(core.lines().any(|line| line == "#![no_std]"));
    for path in files(&["crates/core/src"], &[".rs"]) {
        let text = std::fs::read_to_string(root().join(&path)).unwrap();
        let uses = text.lines().find(|line| line.trim_start().starts_with("use std::"));
        assert_eq!(uses, None, "{}", path.display());
    }
}

/// What docs/contract.md and docs/mechanisms.md can be referred to by: rules (`CLAIM-08`), rows of their tables (`S26`)
/// and sections (`contract 5.1`, `mechanisms 6`).
fn defined() -> BTreeSet<String> {
    let mut defined = BTreeSet::new();
    for (group, numbers) in written() {
        defined.extend(numbers.iter().map(|number| format!("{group}-{number:02}")));
    }
    for book in ["contract", "mechanisms"] {
        let text = std::fs::read_to_string(root().join(format!("docs/{book}.md"))).unwrap();
        for line in text.lines() {
            let row = line.strip_prefix("| ").and_then(|row| row.split_once(" |"));
            defined.extend(row.map(|(first, _)| first.to_owned()));
            let section = line.starts_with('#').then(|| line.trim_start_matches('#').trim());
            let number = section.and_then(|section| section.split([' ', ':']).next());
            defined.extend(number.map(|number| format!("{book} {}", number.trim_end_matches('.'))));
        }
    }
    defined
}

/// The references in a text, as `defined` has them. Other words with a number are none.
fn references(text: &str, groups: &BTreeSet<String>) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let mut found = Vec::new();
    let mut before = "";
    for word in text.split(|c: char| !is_part(c)).filter(|word| !word.is_empty()) {
        let word = word.trim_end_matches('.');
        if let Some((group, number)) = word.rsplit_once('-')
            && groups.contains(group)
            && is_number(number)
            && number.len() < 4
        {
            found.push(format!("{group}-{number}"));
        }
        // Rows of tables: checks, moves of Tasks, Steps and Runs, names shown, decisions and proposals.
        if word.split_at_checked(1).is_some_and(|(letter, number)| {
            "KTSRNUP".contains(letter) && is_number(number) && number.len() < 3
        }) {
            found.push(word.to_owned());
        }
        let is_section = word.split('.').all(is_number);
        if is_section && ["contract", "mechanisms"].contains(&before) {
            found.push(format!("{before} {word}"));
        }
        before = word;
    }
    found
}

/// Whoever meets a number in a comment or in a page finds the rule behind it.
#[test]
fn every_reference_is_to_something_that_is_written() {
    let (defined, groups) = (defined(), written().into_keys().collect());
    assert!(
        ["K12", "S26", "T05", "R05", "N03", "U14", "P31"].iter().all(|it| defined.contains(*it))
    );
    assert!(["contract 5.1", "mechanisms 6"].iter().all(|it| defined.contains(*it)));
    let mut wrong = Vec::new();
    for path in files(
        &["crates", "tests", "benches", "docs", "examples", "README.md"],
        &[".rs", ".md", ".py"],
    ) {
        let text = std::fs::read_to_string(root().join(&path)).unwrap();
        let is_code = path.extension().is_some_and(|ending| ending == "rs");
        for (number, line) in text.lines().enumerate() {
            let comment =
                if is_code { line.split_once("//").map(|(_, it)| it) } else { Some(line) };
            for reference in references(comment.unwrap_or_default(), &groups) {
                if !defined.contains(&reference) {
                    wrong.push(format!("{}:{}: {reference}", path.display(), number + 1));
                }
            }
        }
    }
    assert_none(
        &wrong,
        "docs/contract.md and docs/mechanisms.md have no such rule, row or section",
    );
}

#[test]
fn references_are_read_as_they_are_meant() {
    let groups = BTreeSet::from(["CLAIM".to_owned()]);
    let text = "CLAIM-08, S26 (mechanisms 17); contract 5.1. UTF-8, SHA-256, S3, at 0.5 and P100 are none.";
    let found = ["CLAIM-08", "S26", "mechanisms 17", "contract 5.1", "S3"];
    assert_eq!(references(text, &groups), found);
}
