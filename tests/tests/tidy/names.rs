//! A name means one thing: a type of one crate has no name that a type of another has, and words that the field has
//! others for are not used for types and files.

use std::collections::{BTreeMap, BTreeSet};

use super::{assert_none, files, root};

/// Names that stand in several crates, as they are the same thing there.
const SAME: &[(&str, &str)] = &[
    ("Backoff", "what a task file says of the core's: a name in its published schema"),
    ("Defaults", "a name in the published schema of task files"),
    ("Deliveries", "what the wire has as a list, while it is made"),
    ("Delivery", "the port's, and the form that it has on the wire"),
    ("Entry", "the journal's, and the form that it has on the wire"),
    ("Holding", "the port's, and the form that it has on the wire"),
    ("LogPage", "the port's, and the form that it has on the wire"),
    ("Pulse", "the port's, and the form that it has on the wire"),
    ("Step", "the contract's; what a program or a task file says of one, too"),
    ("Task", "the contract's; what a program says of one, too"),
];

/// Words for which the field has others, which the glossary of docs/architecture.md names. What crosses a process,
/// or is stored, keeps its names: those stand in texts and fields, which are not looked at.
const OTHERS: &[(&str, &str)] = &[
    ("room", "capacity"),
    ("kept", "snapshot, or cache"),
    ("folded", "snapshot"),
    ("heard", "acknowledged, or reachable"),
    ("unheard", "unacknowledged"),
    ("told", "notified"),
    ("loan", "permit"),
    ("shelf", "cache"),
    ("desk", "session, or links"),
    ("office", "session"),
    ("kin", "family"),
    ("minded", "needs"),
    ("fate", "outcome"),
];

/// Types of production code: their names, where they stand and in which crate.
fn types() -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    for path in files(&["crates"], &[".rs"]) {
        let shown = path.display().to_string();
        let parts: Vec<&str> = shown.split('/').collect();
        if parts[2] != "src"
            || parts[1] == "testkit"
            || parts.contains(&"tests.rs")
            || parts.contains(&"tests")
        {
            continue;
        }
        let text = std::fs::read_to_string(root().join(&path)).unwrap();
        for (at, line) in
            text.lines().take_while(|line| !line.starts_with("mod tests {")).enumerate()
        {
            let line = line.trim_start();
            let public = line.strip_prefix("pub").unwrap_or(line);
            let public = public
                .strip_prefix('(')
                .and_then(|it| it.split_once(')'))
                .map_or(public, |(_, it)| it);
            let mut words = public.split_whitespace();
            let is_type = words
                .next()
                .is_some_and(|word| ["struct", "enum", "trait", "union"].contains(&word));
            let name = words
                .next()
                .filter(|_| is_type)
                .map(|it| it.split(|c: char| !c.is_alphanumeric()).next());
            let Some(name) = name.flatten().filter(|name| !name.is_empty()) else { continue };
            all.push((name.to_owned(), format!("{shown}:{}", at + 1), parts[1].to_owned()));
        }
    }
    assert!(all.len() > 900, "{}", all.len());
    all
}

#[test]
fn no_type_has_the_name_of_another_crates() {
    let mut places: BTreeMap<String, (BTreeSet<String>, Vec<String>)> = BTreeMap::new();
    for (name, place, of) in types() {
        let (crates, all) = places.entry(name).or_default();
        crates.insert(of);
        all.push(place);
    }
    places.retain(|_, (crates, _)| crates.len() > 1);
    let is_same = |name: &String| SAME.iter().any(|(same, _)| same == name);
    let twice = places.iter().filter(|(name, _)| !is_same(name));
    let twice: Vec<String> =
        twice.map(|(name, (_, all))| format!("{name}: {}", all.join(", "))).collect();
    assert_none(&twice, "call each what it is; or say in SAME why it is the same thing");
    let gone = SAME.iter().filter(|(name, _)| !places.contains_key(*name));
    let gone: Vec<String> = gone.map(|(name, _)| (*name).to_owned()).collect();
    assert_none(&gone, "these stand in one crate: take them out of SAME");
}

/// The words of a name: `RoomLeft` and `room_left` are `room` and `left`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c.is_uppercase() {
            words.push(String::new());
        }
        words.last_mut().unwrap().extend(c.to_lowercase().filter(|c| c.is_alphanumeric()));
    }
    words
}

#[test]
fn types_and_files_are_called_by_the_fields_words() {
    let mut wrong = Vec::new();
    let types = types();
    let names = types.iter().map(|(name, place, _)| (name.clone(), place.clone()));
    let files = files(&["crates"], &[".rs"])
        .into_iter()
        .filter(|path| path.components().any(|it| it.as_os_str() == "src"));
    let files = files.map(|path| {
        (path.file_stem().unwrap().to_string_lossy().into_owned(), path.display().to_string())
    });
    for (name, place) in names.chain(files) {
        for (word, other) in OTHERS {
            if words(&name).iter().any(|it| it == word) {
                wrong.push(format!("{place}: {name}: {other}"));
            }
        }
    }
    assert_none(&wrong, "the field, and the glossary of docs/architecture.md, have another word");
}

/// Who asks changes nothing.
#[test]
fn what_asks_a_question_changes_nothing() {
    let mut wrong = Vec::new();
    for path in files(&["crates", "tests", "benches"], &[".rs"]) {
        let text = std::fs::read_to_string(root().join(&path)).unwrap();
        for (at, _) in text.match_indices("fn is_") {
            let arguments = text[at..].split_once('(').map_or("", |(_, rest)| rest.trim_start());
            if arguments.starts_with("&mut self") {
                let line = text[..at].lines().count();
                wrong.push(format!("{}:{line}", path.display()));
            }
        }
    }
    assert_none(
        &wrong,
        "a name that begins with is_ is a question: call what changes something by what it does",
    );
}

/// The glossary is short enough to be read, and has each word once.
#[test]
fn the_glossary_has_at_most_seventy_words() {
    let text = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let (_, glossary) =
        text.split_once("## Glossary").expect("docs/architecture.md has a glossary");
    let glossary = glossary.split("\n## ").next().unwrap();
    let words = glossary.lines().filter_map(|line| line.strip_prefix("| **")?.split("**").next());
    let words: Vec<&str> = words.collect();
    let each: BTreeSet<&str> = words.iter().copied().collect();
    assert_eq!(each.len(), words.len(), "each word stands there once");
    assert!((40..=70).contains(&words.len()), "{}", words.len());
    for (word, _) in OTHERS {
        assert!(
            !each.iter().any(|it| it.eq_ignore_ascii_case(word)),
            "{word} is called something else"
        );
    }
}

/// A page that names a file, as `scheduler/src/cache.rs`, leads to it.
#[test]
fn files_that_the_pages_name_are_there() {
    let sources = files(&["crates", "tests", "benches", "examples"], &[".rs", ".py"]);
    let sources: Vec<String> = sources.iter().map(|path| format!("/{}", path.display())).collect();
    let mut wrong = Vec::new();
    for path in files(&["docs", "README.md"], &[".md"]) {
        let text = std::fs::read_to_string(root().join(&path)).unwrap();
        for name in text.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs")) {
            if !sources.iter().any(|source| source.ends_with(&format!("/{name}"))) {
                wrong.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert_none(&wrong, "there is no such file");
}
