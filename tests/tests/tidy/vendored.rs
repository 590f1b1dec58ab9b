//! What lies in `crates/vendor` is what its authors have published, and the diff beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::root;

/// The folder of a crate that is changed here.
const FOLDER: &str = "crates/vendor/async-nats";

/// Lines of a file that stand together, before a change and after it; and where they begin after it, from 0.
#[derive(Debug, Default)]
struct Hunk {
    after_at: usize,
    before: Vec<String>,
    after: Vec<String>,
}

/// The hunks of a unified diff, by file.
fn hunks(diff: &str) -> BTreeMap<String, Vec<Hunk>> {
    let mut all: BTreeMap<String, Vec<Hunk>> = BTreeMap::new();
    let mut file = String::new();
    for line in diff.lines() {
        if line.starts_with("--- a/") {
        } else if let Some(name) = line.strip_prefix("+++ b/") {
            name.clone_into(&mut file);
        } else if let Some(places) = line.strip_prefix("@@ ") {
            let after = places.split(' ').nth(1).unwrap().trim_start_matches('+');
            let at: usize = after.split(',').next().unwrap().parse().unwrap();
            let hunk = Hunk { after_at: at - 1, ..Hunk::default() };
            all.entry(file.clone()).or_default().push(hunk);
        } else {
            let hunk = all.get_mut(&file).unwrap().last_mut().unwrap();
            let (sign, text) = line.split_at(1);
            if sign != "+" {
                hunk.before.push(text.to_owned());
            }
            if sign != "-" {
                hunk.after.push(text.to_owned());
            }
        }
    }
    all
}

/// The text as it was before a change.
fn undone(text: &str, hunks: &[Hunk], file: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let (mut before, mut at): (Vec<&str>, usize) = (Vec::new(), 0);
    for hunk in hunks {
        let end = hunk.after_at + hunk.after.len();
        assert_eq!(lines[hunk.after_at..end], hunk.after, "{file}:{}", hunk.after_at + 1);
        before.extend(&lines[at..hunk.after_at]);
        before.extend(hunk.before.iter().map(String::as_str));
        at = end;
    }
    before.extend(&lines[at..]);
    before.join("\n") + "\n"
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files of a folder, as paths below it.
fn below(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut work) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(path) = work.pop() {
        if path.is_dir() {
            work.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            found.push(path.strip_prefix(folder).unwrap().to_owned());
        }
    }
    found.sort();
    found
}

/// Where cargo keeps what its authors have published. It fetches what it builds alone, so there need be none.
fn published() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?;
    let registries = std::fs::read_dir(home.join("registry/src")).ok()?;
    let folders = registries.filter_map(|entry| Some(entry.ok()?.path().join("async-nats-0.51.0")));
    folders.into_iter().find(|folder| folder.is_dir())
}

#[test]
fn what_is_changed_of_others_is_what_the_diff_says() {
    let folder = root().join(FOLDER);
    let hunks = hunks(&read(&folder.join("tenure.diff")));
    assert!(hunks.len() >= 3, "{:?}", hunks.keys());
    let was = |file: &str| {
        let none = Vec::new();
        undone(&read(&folder.join(file)), hunks.get(file).unwrap_or(&none), file)
    };
    hunks.keys().for_each(|file| assert_ne!(was(file), read(&folder.join(file)), "{file}"));
    let Some(published) = published() else { return };
    let files = below(&published.join("src"));
    assert_eq!(below(&folder.join("src")), files);
    for file in files {
        let name = format!("src/{}", file.display());
        assert!(was(&name) == read(&published.join(&name)), "{name} is changed beyond the diff");
    }
    // Of the manifest some parts are left out, and nothing is added but what is said here.
    let manifest = read(&published.join("Cargo.toml"));
    let own = read(&folder.join("Cargo.toml"));
    let (own, lints) = own.split_once("\n# Its warnings are its authors'.\n").unwrap();
    assert_eq!(lints, "[lints.rust]\nwarnings = \"allow\"\n");
    let added = own.lines().filter(|line| !line.starts_with('#'));
    let added: Vec<&str> = added.filter(|line| !manifest.lines().any(|it| it == *line)).collect();
    assert!(added.is_empty(), "{added:?}");
}
