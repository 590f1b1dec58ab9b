//! What the manifest of the workspace offers to its crates.

use super::{assert_none, files, root};

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
