//! docs/orchestrate.md, carried out: each command as it stands there, in a cluster that runs.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

#[path = "support/cluster.rs"]
mod cluster;
#[allow(dead_code)] // Other tests need more of it.
#[path = "../../cluster/tests/real/servers.rs"]
mod servers;
mod support;

use std::path::Path;

use cluster::Cluster;

/// Code of the page, in the order in which somebody reads it.
struct Block<'a> {
    language: &'a str,
    text: &'a str,
}

fn blocks(page: &str) -> impl Iterator<Item = Block<'_>> {
    page.split("\n```").skip(1).step_by(2).map(|fenced| {
        let (language, text) = fenced.split_once('\n').unwrap();
        Block { language, text }
    })
}

/// A command that is shown, and what it printed when the page was written.
fn shown<'a>(block: &Block<'a>) -> impl Iterator<Item = (&'a str, &'a str)> {
    let commands = block.text.split("$ ").skip(1);
    commands.map(|command| command.split_once('\n').unwrap_or((command, "")))
}

/// The words that are the same each time: no times, ids and counts.
fn lasting(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace().filter(|word| !word.contains(|c: char| c.is_ascii_digit()))
}

/// CTRL-01: who follows the page creates a Task, gives out its Steps under a scope, changes the rest,
/// answers a question, and closes.
#[test]
fn the_page_is_followed_command_by_command() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/orchestrate.md")).unwrap();
    let cluster = Cluster::start();
    let _worker = cluster.worker("w1");
    let (mut script, mut printed) = ("", String::new());
    let mut compared = 0;
    for block in blocks(&page) {
        match block.language {
            "sh" => {
                script = block.text;
                printed = cluster.shell(script).with(0).stdout;
            }
            "console" => {
                // The programs among the examples are run by a test of their own.
                for (command, output) in shown(&block).filter(|(it, _)| !it.starts_with("cargo ")) {
                    assert!(script.contains(command), "shown and not run: {command}");
                    let missing: Vec<&str> =
                        lasting(output).filter(|word| !printed.contains(word)).collect();
                    assert_eq!(
                        missing, [""; 0],
                        "{command} is shown with them, and printed:\n{printed}"
                    );
                    compared += 1;
                }
            }
            other => panic!("neither sh nor console: {other}"),
        }
    }
    assert!(compared >= 2, "the page shows what comes of its commands");
    let ended = cluster.tenure(&["task", "get", "release", "-o", "json"]).with(0).json();
    assert_eq!(
        (&ended["native_status"], &ended["result_summary"], &ended["archived"]),
        (&"completed".into(), &"1.4 is out".into(), &true.into())
    );
    assert_eq!(ended["steps"].as_array().unwrap().len(), 4, "one was added");
}
