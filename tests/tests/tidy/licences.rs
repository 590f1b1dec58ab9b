//! Everything that is linked is under a licence that `deny.toml` allows: checked here too, since
//! this needs no tool but cargo.

use super::{assert_none, metadata, root, text};

#[test]
fn every_dependency_has_a_licence_that_is_allowed() {
    let allowed = allowed();
    let metadata = metadata(&[]);
    let packages = metadata["packages"].as_array().unwrap();
    let bad = packages.iter().filter(|p| !is_met(text(p, "license"), &allowed));
    let found: Vec<String> = bad
        .map(|p| format!("{} {}: {:?}", text(p, "name"), text(p, "version"), text(p, "license")))
        .collect();
    assert!(packages.len() > 50, "cargo knows the dependencies");
    assert_none(&found, "use another crate, or allow the licence in deny.toml with a reason");
}

/// The licences in `deny.toml`, the one list of them.
fn allowed() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    let lines = text.lines().skip_while(|line| line.trim() != "allow = [");
    let lines = lines.skip(1).take_while(|line| line.trim() != "]");
    let quoted = lines.filter_map(|line| line.split('"').nth(1));
    let allowed: Vec<String> = quoted.map(str::to_owned).collect();
    assert!(!allowed.is_empty(), "deny.toml has a list of licences");
    allowed
}

/// Whether an SPDX expression can be met with these licences. `/` is an old way to write `OR`;
/// `AND` binds closer than `OR`.
fn is_met(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    !words.is_empty() && any(&words, &mut at, allowed) && at == words.len()
}

fn any(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut met = all(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= all(words, at, allowed);
    }
    met
}

fn all(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut met = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at, allowed);
    }
    met
}

fn one(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let Some(&word) = words.get(*at) else { return false };
    *at += 1;
    if word == "(" {
        let met = any(words, at, allowed);
        *at += 1; // The closing one.
        return met;
    }
    let mut name = word.to_owned();
    if words.get(*at) == Some(&"WITH") {
        name = format!("{word} WITH {}", words.get(*at + 1).copied().unwrap_or_default());
        *at += 2;
    }
    allowed.contains(&name)
}

#[test]
fn expressions_are_read_as_spdx_means_them() {
    let allowed = ["MIT", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"].map(String::from);
    let met = |expression: &str| is_met(expression, &allowed);
    assert!(met("MIT"));
    assert!(met("GPL-3.0 OR MIT"));
    assert!(met("MIT/Apache-2.0"));
    assert!(met("(MIT OR Apache-2.0) AND Unicode-3.0"));
    assert!(met("GPL-3.0 AND BSD-3-Clause OR MIT"));
    assert!(met("Apache-2.0 WITH LLVM-exception"));
    assert!(!met("Apache-2.0"));
    assert!(!met("GPL-3.0"));
    assert!(!met("MIT AND GPL-3.0"));
    assert!(!met("GPL-3.0 AND (MIT OR BSD-3-Clause)"));
    assert!(!met(""));
}
