//! What the manifest of the workspace offers to its crates, and what they ask for.

use super::{assert_none, files, metadata, root, text};

/// Dependencies that no line of a crate names, and why it has them.
const UNNAMED: &[(&str, &str, &str)] = &[
    ("tenure-macp", "macp-proto", "its build script says where the definitions are"),
    ("tenure-macp", "tonic", "the code that the build script makes names it"),
    ("tenure-macp", "tonic-prost", "the code that the build script makes names it"),
];

#[test]
fn every_dependency_of_the_workspace_is_used_by_a_crate() {
    let read = |path: &std::path::Path| std::fs::read_to_string(root().join(path)).unwrap();
    let folders = ["crates", "tests", "benches", "examples"];
    let manifests =
        files(&folders, &["Cargo.toml"]).iter().map(|path| read(path)).collect::<String>();
    let name_of = |line: &str| line.split(['.', '=', ' ']).next().unwrap_or_default().to_owned();
    let used: Vec<String> = manifests.lines().map(name_of).collect();
    let manifest = read("Cargo.toml".as_ref());
    let offered = manifest.lines().skip_while(|line| *line != "[workspace.dependencies]").skip(1);
    let offered = offered.take_while(|line| !line.starts_with('['));
    let names = offered.filter(|line| line.contains(" = ") && !line.starts_with([' ', '#']));
    let names: Vec<String> = names.map(name_of).collect();
    assert!(names.len() > 30, "the manifest offers dependencies");
    let unused: Vec<String> = names.into_iter().filter(|name| !used.contains(name)).collect();
    assert_none(&unused, "take them out of [workspace.dependencies]");
}

#[test]
fn every_dependency_of_a_crate_is_named_in_it() {
    let metadata = metadata(&["--no-deps"]);
    let (mut unused, mut needless) = (Vec::new(), Vec::new());
    for package in metadata["packages"].as_array().unwrap() {
        let name = text(package, "name");
        let folder = std::path::Path::new(text(package, "manifest_path")).parent().unwrap();
        let folder = folder.strip_prefix(root()).unwrap().to_str().unwrap();
        let sources = files(&[folder], &[".rs"]);
        let sources =
            sources.iter().map(|path| std::fs::read_to_string(root().join(path)).unwrap());
        let sources = sources.collect::<String>();
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let words: std::collections::BTreeSet<&str> =
            sources.split(|c| !is_part(c)).filter(|word| !word.is_empty()).collect();
        for dependency in package["dependencies"].as_array().unwrap() {
            let of = text(dependency, "name");
            let called = dependency["rename"].as_str().unwrap_or(of).replace('-', "_");
            let is_listed = UNNAMED.iter().any(|(by, known, _)| (*by, *known) == (name, of));
            match (words.contains(called.as_str()), is_listed) {
                (false, false) => unused.push(format!("{name}: {of}")),
                (true, true) => needless.push(format!("{name}: {of}")),
                _ => {}
            }
        }
    }
    assert_none(&unused, "take it out of the crate's manifest, or say in UNNAMED why it is there");
    assert_none(&needless, "it is named by now: take it out of UNNAMED");
}
