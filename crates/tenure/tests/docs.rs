//! What the documentation lists is what there is.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::path::Path;

use tenure_core::Code;
use tenure_core::command::Operator;
use tenure_core::eligibility::Obstacle;
use tenure_core::event::Bindings;
use tenure_core::record::{ArtifactInput, Counter, Coverage, Progress};
use tenure_core::status::{ArtifactKind, ArtifactState, DeliveryState, Role};
use tenure_core::task::Waits;
use tenure_core::view::public::EventName;
use tenure_core::view::{RuntimeName, ViewName};
use tenure_wire::bus::catalog::{Catalog, OperationEntry, catalog};

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// Rows of the first table behind these words, as their cells.
fn table<'a>(text: &'a str, behind: &str) -> Vec<Vec<&'a str>> {
    let (_, rest) = text.split_once(behind).unwrap_or_else(|| panic!("{behind:?} is not there"));
    let rows = rest.lines().skip_while(|line| !line.starts_with("|---"));
    let rows = rows.skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// What stands between backquotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// VIEW-17: the contract names every reason, in the order in which they decide.
#[test]
fn the_contract_lists_every_reason_in_its_order() {
    let text = read("docs/contract.md");
    let rule = text.lines().find(|line| line.starts_with("- VIEW-17 ")).unwrap();
    let listed = quoted(rule).filter_map(Obstacle::from_name).collect::<Vec<_>>();
    assert_eq!(listed.len(), Obstacle::ALL.len(), "each is named once: {listed:?}");
    assert_eq!(listed, Obstacle::ALL);
    let described = read("docs/observability.md");
    for why in Waits::REASONS.iter().chain(Waits::BESIDE) {
        assert!(
            described.contains(&format!("`{why}`")),
            "docs/observability.md does not name {why}"
        );
    }
}

/// What a table names in its first column.
fn names<'a>(table: &[Vec<&'a str>]) -> Vec<&'a str> {
    table.iter().flat_map(|row| quoted(row[0])).collect()
}

#[test]
fn errors_md_lists_every_error_code_once_in_the_order_of_the_enum() {
    let text = read("docs/errors.md");
    let listed = names(&table(&text, "## Error codes"));
    let there_are: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(listed, there_are);
}

#[test]
fn errors_md_says_which_errors_are_retryable() {
    let text = read("docs/errors.md");
    for line in text.lines().filter_map(|line| line.strip_prefix("| `")) {
        let Some(code) = Code::from_name(line.split('`').next().unwrap()) else { continue };
        assert_eq!(line.contains("Retryable."), code.is_retryable(), "{code}");
    }
}

/// PERM-17: the page on MCP lists the tools, in the order in which a model sees them.
#[test]
fn mcp_md_lists_every_tool() {
    let text = read("docs/mcp.md");
    let listed = names(&table(&text, "## Tools"));
    assert_eq!(listed, tenure_mcp::tool_names().collect::<Vec<_>>());
}

/// CTRL-01, PERM-04, PERM-15: every operation of the catalog has its row, with whoever has it and the fields
/// that it needs.
#[test]
fn protocol_md_says_who_may_ask_what() {
    let text = read("docs/protocol.md");
    let catalog = catalog();
    let mut listed = BTreeSet::new();
    for row in table(&text, "| Operation | Input | Who | `ok` |") {
        for name in quoted(row[0]) {
            let operation = catalog.operations.iter().find(|it| it.name == name).expect(name);
            let who: BTreeSet<&str> = row[2].split(", ").collect();
            let roles = operation.roles.iter().map(|role| match role {
                Role::Orchestrator => "O",
                role => role.as_str(),
            });
            assert_eq!(who, roles.collect(), "{name}");
            assert_fields(&catalog, operation, row[1]);
            listed.insert(name);
        }
    }
    // A patch of one operation, by a name of its own: the table of these names has it.
    let asked = catalog.operations.iter().map(|it| it.name.as_str());
    assert_eq!(listed, asked.filter(|name| *name != "update_task").collect());
}

/// Fields that a row names are fields of the input, with a question mark where they may be left out.
fn assert_fields(catalog: &Catalog, operation: &OperationEntry, row: &str) {
    let mut schemas = vec![operation.input.clone().to_value()];
    let (mut known, mut needed) = (BTreeSet::new(), BTreeSet::new());
    while let Some(schema) = schemas.pop() {
        if let Some(at) = schema["$ref"].as_str() {
            schemas.push(catalog.inputs[at.rsplit_once('/').unwrap().1].clone());
        }
        schemas.extend(schema["anyOf"].as_array().into_iter().flatten().cloned());
        known.extend(
            schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone()),
        );
        let required = schema["required"].as_array().into_iter().flatten();
        needed.extend(required.map(|name| name.as_str().unwrap().to_owned()));
    }
    let fields = row.split(". ").next().unwrap(); // What follows is said of some of them.
    for said in quoted(fields) {
        let name = said.trim_end_matches('?');
        if known.contains(name) {
            assert_eq!(said == name, needed.contains(name), "{}: {said}", operation.name);
        }
    }
    // A row of its own has each of the two inputs of `retry_task`; that of `task_update_step` names another row.
    if !["retry_task", "task_update_step"].contains(&operation.name.as_str()) {
        let said: Vec<&str> = quoted(row).collect();
        let missing: Vec<&String> =
            needed.iter().filter(|it| !said.contains(&it.as_str())).collect();
        assert_eq!(missing, [""; 0], "{}", operation.name);
    }
}

/// PERM-17, CTRL-01: the tools of agents and the names of the control plane are those that are taken.
#[test]
fn protocol_md_lists_the_other_names_of_operations() {
    let text = read("docs/protocol.md");
    for (head, there_are) in [
        ("| Tool | Operation | `tenure_sdk` |", &Operator::TOOLS[..]),
        ("| Control plane | Operation |", &Operator::CONTROL_PLANE[..]),
    ] {
        let rows = table(&text, head);
        let listed = rows.iter().map(|row| (quoted(row[0]).next().unwrap(), row[1]));
        let listed: Vec<(&str, &str)> = listed.collect();
        let names: Vec<&str> = listed.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, there_are.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        for ((name, told), (_, operation)) in listed.iter().zip(there_are) {
            let own = quoted(told).next().unwrap();
            // Workers claim by a subject of its own.
            let is_it = own == operation.as_str() || (*operation, own) == (CLAIM, "claim");
            assert!(is_it, "{name} is {operation}, not {own}");
        }
    }
}

const CLAIM: Operator = Operator::TaskClaimStep;

#[test]
fn protocol_md_names_every_word_event_and_view() {
    let text = read("docs/protocol.md");
    let words = [Operator::EndRun, Operator::DeclineRun, Operator::ReleaseStep];
    let words = words.iter().map(|op| op.as_str());
    let events = EventName::ALL.iter().map(|name| name.as_str());
    let events = events.chain(RuntimeName::ALL.iter().map(|name| name.as_str()));
    let views = ViewName::ALL.iter().map(|name| name.as_str());
    let missing = |name: &&str| !text.contains(&format!("`{name}`"));
    let missing: Vec<&str> = words.chain(events).chain(views).filter(missing).collect();
    assert_eq!(missing, [""; 0], "docs/protocol.md does not name them");
}

/// The values that a table of fields names for one.
fn values<'a>(table: &[Vec<&'a str>], field: &str) -> Vec<&'a str> {
    let row = table.iter().find(|row| quoted(row[0]).any(|name| name == field));
    quoted(row.unwrap_or_else(|| panic!("no row {field}"))[1]).collect()
}

/// What a value has as fields.
fn fields(value: &impl serde::Serialize) -> BTreeSet<String> {
    serde_json::to_value(value).unwrap().as_object().unwrap().keys().cloned().collect()
}

fn named(table: &[Vec<&str>]) -> BTreeSet<String> {
    names(table).into_iter().map(|name| name.trim_end_matches('?').to_owned()).collect()
}

/// PROG-01, PROG-07, ART-01: what a worker may say of progress and artifacts.
#[test]
fn protocol_md_has_every_field_of_progress_and_artifacts() {
    let text = read("docs/protocol.md");
    let progress = table(&text, "Fields of `progress`");
    let counters = [("c".into(), Counter { done: 1, total: Some(2) })].into();
    let all = Progress {
        percent: Some(1.0),
        phase: Some("p".into()),
        current_step: Some("s".into()),
        checklist: Some(serde_json::from_str("[1]").unwrap()),
        summary: Some("s".into()),
        counters,
        output_refs: vec!["r".parse().unwrap()],
        output_offsets: [("r".parse().unwrap(), 1)].into(),
        delivery_state: Some(DeliveryState::Pending),
        validation_state: Some("v".into()),
        acceptance_coverage: Some(Coverage { met: 1, total: 2 }),
        updated_at: None,
    };
    assert_eq!(named(&progress), fields(&all));
    let names: Vec<&str> = DeliveryState::ALL.iter().map(|state| state.as_str()).collect();
    assert_eq!(values(&progress, "delivery_state"), names);

    let artifacts = table(&text, "Fields of an artifact.");
    let all = ArtifactInput {
        artifact_id: "a".parse().unwrap(),
        name: "n".into(),
        description: Some("d".into()),
        media_type: Some("text/plain".into()),
        kind: ArtifactKind::Text,
        uri: Some("u".into()),
        data: Some("d".into()),
        size_bytes: Some(1),
        digest: Some("sha256:0".into()),
        state: ArtifactState::Available,
    };
    assert_eq!(named(&artifacts), fields(&all));
    let kinds: Vec<&str> = ArtifactKind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(values(&artifacts, "kind"), kinds);
    let states: Vec<&str> = ArtifactState::ALL.iter().map(|state| state.as_str()).collect();
    assert_eq!(values(&artifacts, "state"), states);

    let bindings = Bindings { thread_id: Some("t".into()), environment_ref: Some("e".into()) };
    for field in fields(&bindings) {
        assert!(text.contains(&format!("{field}?")), "{field} of `bindings`");
    }
}

#[test]
fn errors_md_lists_each_reason_once() {
    let text = read("docs/errors.md");
    let listed = names(&table(&text, "## Reason codes"));
    assert_eq!(listed.len(), listed.iter().collect::<BTreeSet<_>>().len());
}

#[test]
fn reasons_in_the_code_are_listed() {
    let text = read("docs/errors.md");
    let listed = names(&table(&text, "## Reason codes"));
    for (file, code) in reasons() {
        assert!(
            listed.contains(&&*code),
            "{file} gives the reason {code:?}, which docs/errors.md does not list"
        );
    }
}

/// Codes that appear as reasons in the core and in the built-in handlers.
fn reasons() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for folder in ["core/src/command", "sdk/src/worker"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            for call in ["Reason::code(\"", "Reason::new(\"", "ctx.fail(\"", "self.fail(\""] {
                let codes = text.split(call).skip(1).filter_map(|rest| rest.split('"').next());
                found.extend(codes.map(|code| (path.display().to_string(), code.to_owned())));
            }
        }
    }
    assert!(!found.is_empty());
    found
}

#[test]
fn the_readme_names_files_that_are_there() {
    let text = read("README.md");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        let file = link.split('#').next().unwrap();
        assert!(file.is_empty() || root.join(file).exists(), "{link}");
    }
    assert!(root.join("check").exists() && root.join("examples/hello.yaml").exists());
}
