//! The walk in docs/architecture.md names the files through which a Task goes, and each of them says so.

use std::collections::{BTreeMap, BTreeSet};

use super::{assert_none, files, root};

/// The files that the walk names, each with the steps in which it does.
fn walked() -> BTreeMap<String, BTreeSet<u32>> {
    let page = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let (_, walk) = page.split_once("\n## A walk: ").expect("docs/architecture.md has a walk");
    let walk = walk.split("\n## ").next().unwrap();
    let mut walked: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    let mut step = None;
    for line in walk.lines() {
        let begins = line.split_once(". ").and_then(|(number, _)| number.parse().ok());
        step = match line {
            "" => None,
            _ => begins.or(step),
        };
        let Some(step) = step else { continue };
        let named = line.split('`').skip(1).step_by(2).filter(|name| name.contains("/src/"));
        for name in named {
            walked.entry(format!("crates/{name}")).or_default().insert(step);
        }
    }
    assert!(walked.len() > 40, "{walked:?}");
    walked
}

/// The steps that the head of a file says: `Step 5 of the walk`, or `Steps 5 and 10 of the walk`.
fn said(text: &str) -> BTreeSet<u32> {
    let head = text.lines().take_while(|line| line.starts_with("//!"));
    let head: Vec<&str> = head.map(|line| line.trim_start_matches("//!").trim()).collect();
    let head = head.join(" ");
    let Some((before, _)) = head.split_once(" of the walk in docs/architecture.md.") else {
        return BTreeSet::new();
    };
    let mut steps = BTreeSet::new();
    for word in before.split(' ').rev() {
        match word.trim_end_matches(',').parse() {
            Ok(step) => drop(steps.insert(step)),
            Err(_) if word == "and" => {}
            Err(_) => break,
        }
    }
    steps
}

#[test]
fn each_file_of_the_walk_says_where_it_stands_on_it() {
    let walked = walked();
    let mut wrong = Vec::new();
    for path in files(&["crates"], &[".rs"]) {
        let text = std::fs::read_to_string(root().join(&path)).unwrap();
        let shown = path.display().to_string();
        let (said, is_instead) =
            (said(&text), text.contains("`tenure run` has this instead of step"));
        let named = walked.get(&shown).cloned().unwrap_or_default();
        if said != named && !is_instead {
            wrong.push(format!("{shown}: its head says {said:?}, the walk says {named:?}"));
        }
    }
    let all: BTreeSet<String> =
        files(&["crates"], &[".rs"]).iter().map(|path| path.display().to_string()).collect();
    wrong.extend(
        walked
            .keys()
            .filter(|name| !all.contains(*name))
            .map(|name| format!("{name}: is not there")),
    );
    assert_none(&wrong, "the walk in docs/architecture.md and the heads of its files say the same");
}

#[test]
fn heads_are_read_as_they_are_meant() {
    let one = "//! Does it.\n//!\n//! Step 6 of the walk in docs/architecture.md.\n\nuse a;\n";
    assert_eq!(said(one), BTreeSet::from([6]));
    let more = "//! Does it. Steps 5, 6 and 10 of the walk in\n//! docs/architecture.md.\n";
    assert_eq!(said(more), BTreeSet::from([5, 6, 10]));
    assert_eq!(
        said("//! Does it.\nuse a; // Step 6 of the walk in docs/architecture.md.\n"),
        BTreeSet::new()
    );
}
