//! Arrows between crates point down only.

use serde_json::Value as Json;

use super::{assert_none, metadata, root, text};

/// What each crate may use of Tenure. Tests and benches use what they like. No row allows `tenure-testkit`: only tests
/// are built with it.
const ARROWS: &[(&str, &[&str])] = &[
    ("tenure-core", &[]),
    ("tenure-a2a", &["tenure-core"]),
    ("tenure-macp", &["tenure-core"]),
    ("tenure-wire", &["tenure-core"]),
    ("tenure-ports", &["tenure-core", "tenure-wire"]),
    ("tenure-testkit", &["tenure-core", "tenure-wire", "tenure-ports"]),
    ("tenure-local", &["tenure-core", "tenure-wire", "tenure-ports"]),
    ("tenure-cluster", &["tenure-core", "tenure-wire", "tenure-ports"]),
    ("tenure-scheduler", &["tenure-core", "tenure-wire", "tenure-ports"]),
    (
        "tenure-node",
        &["tenure-core", "tenure-wire", "tenure-ports", "tenure-cluster", "tenure-scheduler"],
    ),
    ("tenure-sdk", &["tenure-core", "tenure-a2a", "tenure-wire", "tenure-ports"]),
    ("tenure-mcp", &["tenure-core", "tenure-wire", "tenure-ports", "tenure-sdk"]),
    (
        "tenure-gateway",
        &[
            "tenure-core",
            "tenure-a2a",
            "tenure-macp",
            "tenure-wire",
            "tenure-ports",
            "tenure-scheduler",
            "tenure-sdk",
            "tenure-mcp",
        ],
    ),
    ("tenure-telemetry", &["tenure-core", "tenure-ports"]),
    ("tenure-taskfile", &[]),
    (
        "tenure-embedded",
        &[
            "tenure-core",
            "tenure-ports",
            "tenure-local",
            "tenure-scheduler",
            "tenure-sdk",
            "tenure-gateway",
            "tenure-taskfile",
        ],
    ),
    (
        "tenure-cli",
        &[
            "tenure-core",
            "tenure-wire",
            "tenure-ports",
            "tenure-local",
            "tenure-scheduler",
            "tenure-node",
            "tenure-sdk",
            "tenure-mcp",
            "tenure-gateway",
            "tenure-telemetry",
            "tenure-taskfile",
            "tenure-embedded",
        ],
    ),
    ("tenure", &["tenure-sdk", "tenure-taskfile", "tenure-embedded", "tenure-cli"]),
];

/// Members that only test or measure.
const FREE: &[&str] = &["tenure-tests", "tenure-benches"];

#[test]
fn arrows_between_crates_point_down_only() {
    let metadata = metadata(&["--no-deps"]);
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = text(package, "name");
        match ARROWS.iter().find(|(known, _)| *known == name) {
            Some((_, allowed)) => found.extend(wrong_arrows(package, allowed)),
            None if FREE.contains(&name) => {}
            None => found.push(format!("{name}: not in the table")),
        }
    }
    let packages = metadata["packages"].as_array().unwrap();
    let is_there = |known: &str| packages.iter().any(|package| text(package, "name") == known);
    let gone = ARROWS.iter().filter(|(known, _)| !is_there(known));
    found.extend(gone.map(|(known, _)| format!("{known}: in the table, and not there")));
    assert_none(&found, "a new arrow is a decision: docs/architecture.md and the table here");
}

#[test]
fn the_page_on_the_architecture_has_the_same_arrows() {
    let page = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let mut found = Vec::new();
    for (name, allowed) in ARROWS {
        let uses: Vec<&str> = allowed.iter().filter_map(|it| it.strip_prefix("tenure-")).collect();
        let uses = uses.join(", ");
        let row = page.lines().find(|line| line.contains(&format!(" `{name}` |")));
        let said = row.and_then(|row| row.split('|').nth(3)).map(str::trim);
        if said != Some(uses.as_str()) {
            found.push(format!("{name}: {said:?} on the page, {uses:?} in the table"));
        }
    }
    assert_none(&found, "the table of crates on the page is that of this test");
}

/// What a crate is built from. What only its tests use may point anywhere but up from the core,
/// whose tests shall need nothing either.
fn wrong_arrows(package: &Json, allowed: &[&str]) -> Vec<String> {
    let name = text(package, "name");
    let of_tenure = |dependency: &&Json| text(dependency, "name").starts_with("tenure");
    let counts = |dependency: &&Json| text(dependency, "kind") != "dev" || name == "tenure-core";
    let dependencies = package["dependencies"].as_array().unwrap().iter();
    let wrong = dependencies.filter(of_tenure).filter(counts).map(|d| text(d, "name"));
    let wrong = wrong.filter(|used| !allowed.contains(used));
    wrong.map(|used| format!("{name} -> {used}")).collect()
}
