//! docs/observability.md says what the code says.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::collections::BTreeSet;
use std::path::Path;

use tenure_telemetry::names::{self, Kind, METRICS, Metric};

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/observability.md");
    std::fs::read_to_string(path).unwrap()
}

/// The section of the page with this heading.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    rest.split("\n## ").next().unwrap()
}

#[test]
fn the_table_of_metrics_is_that_of_the_code() {
    let expected = METRICS.iter().map(|metric| {
        let kind = format!("{:?}", metric.kind).to_lowercase();
        let attributes = metric.attributes.iter().map(|name| format!("`{name}`"));
        let attributes = match metric.attributes {
            [] => "–".into(),
            _ => attributes.collect::<Vec<_>>().join(", "),
        };
        let (name, unit, answers) = (metric.name, metric.unit, metric.answers);
        format!("| `{name}` | {kind} | `{unit}` | {attributes} | {answers} |")
    });
    let expected: Vec<String> = expected.collect();
    let page = page();
    let rows = section(&page, "Metrics").lines().filter(|line| line.starts_with("| `"));
    assert_eq!(rows.collect::<Vec<_>>(), expected);
}

/// The names of a metric in Prometheus.
fn series(metric: &Metric) -> Vec<String> {
    let unit = match metric.unit {
        "s" => "_seconds",
        "By" => "_bytes",
        _ => "",
    };
    let name = format!("{}{unit}", metric.name.replace('.', "_"));
    match metric.kind {
        Kind::Counter => vec![format!("{name}_total")],
        Kind::Histogram => ["bucket", "sum", "count"].map(|part| format!("{name}_{part}")).into(),
        Kind::UpDownCounter | Kind::Gauge => vec![name],
    }
}

/// A name that nobody sends makes an empty panel, or an alert that never fires.
#[test]
fn dashboards_and_alerts_name_metrics_and_labels_that_there_are() {
    let attributes = METRICS.iter().flat_map(|metric| metric.attributes);
    let labels = attributes.map(|name| name.replace('.', "_"));
    let known: BTreeSet<String> = METRICS.iter().flat_map(series).chain(labels).collect();
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/grafana");
    let boards = std::fs::read_dir(deploy.join("dashboards")).unwrap();
    let mut named = 0;
    for file in boards.map(|file| file.unwrap().path()).chain([deploy.join("alerts.yaml")]) {
        let text = std::fs::read_to_string(&file).unwrap();
        for name in text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_') {
            if name.starts_with("tenure_") || name.starts_with("process_") {
                assert!(known.contains(name), "{}: there is no {name}", file.display());
                named += 1;
            }
        }
    }
    assert!(named > 100, "{named} names are read");
}

#[test]
fn the_table_of_spans_has_every_name() {
    let page = page();
    let traces = section(&page, "Traces");
    for name in [
        names::SPAN_TASK,
        names::SPAN_ATTEMPT,
        names::SPAN_QUEUE,
        names::SPAN_LEASE,
        names::SPAN_HANDLER,
        names::SPAN_WAIT,
        names::SPAN_RUN,
        names::SESSION_ID,
        names::TASK_ID,
        names::TASK_KIND,
        names::STATUS,
        names::STEPS,
        names::ATTEMPTS,
        names::STEP_ID,
        names::HANDLER,
        names::POOL,
        names::ATTEMPT_ID,
        names::ORDINAL,
        names::WORKER_ID,
        names::OUTCOME,
        names::ERROR,
        names::MESSAGING_SYSTEM,
        names::MESSAGING_DESTINATION,
        names::MESSAGING_OPERATION,
        names::MESSAGING_OPERATION_TYPE,
        names::MESSAGING_MESSAGE,
        names::MESSAGING_CLIENT,
        names::RUN_END,
        names::RELEASE_REASON,
        names::LINK,
    ] {
        let is_there = ["`", " "].iter().any(|end| traces.contains(&format!("`{name}{end}")));
        assert!(is_there, "{name}");
    }
    for event in names::SPAN_EVENTS {
        let is_listed = |row: &str| row.starts_with("| `") && row.contains(&format!("`{event}`"));
        assert!(traces.lines().any(is_listed), "{event}");
    }
}

/// All that is in the sources of the workspace.
fn sources(dir: &Path, into: &mut String) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.extension() {
            _ if path.is_dir() => sources(&path, into),
            Some(kind) if kind == "rs" => into.push_str(&std::fs::read_to_string(&path).unwrap()),
            _ => {}
        }
    }
}

/// The same for all crates of the workspace.
fn code() -> String {
    let mut code = String::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for each in std::fs::read_dir(crates).unwrap() {
        let dir = each.unwrap().path().join("src");
        if dir.is_dir() {
            sources(&dir, &mut code); // What others have made is below another name.
        }
    }
    code
}

#[test]
fn the_table_of_log_lines_has_messages_and_fields_of_the_code() {
    let page = page();
    let code = code();
    let is_line = |row: &&str| {
        ["INFO", "WARN", "ERROR"].iter().any(|it| row.starts_with(&format!("| `{it}`")))
    };
    let rows: Vec<&str> = section(&page, "Logs").lines().filter(is_line).collect();
    assert!(rows.len() >= 10, "{rows:?}");
    for row in rows {
        let message = row.split('`').nth(3).unwrap();
        let begin = message.trim_end_matches('…').trim_end_matches([' ', ';', ':']);
        let begin = format!("\"{begin}");
        assert!(code.contains(&begin), "no line begins with {begin}");
    }
}

/// What stands between the brackets that a text begins behind.
fn arguments(text: &str) -> &str {
    let (mut depth, mut is_text, mut before) = (1, false, ' ');
    for (at, letter) in text.char_indices() {
        match letter {
            '"' if before != '\\' => is_text = !is_text,
            '(' if !is_text => depth += 1,
            ')' if !is_text => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..at];
        }
        before = letter;
    }
    text
}

/// Names are in logs as they are everywhere, and not as the code has them.
#[test]
fn no_line_of_the_log_shows_a_value_as_the_code_has_it() {
    let code = code();
    let mut lines = 0;
    for begin in ["tracing::info!(", "tracing::warn!(", "tracing::error!("] {
        for after in code.split(begin).skip(1) {
            let all = arguments(after);
            let is_debug = |part: &str| part.trim_start().starts_with('?') || part.contains("= ?");
            assert!(!all.contains(":?}") && !all.split(',').any(is_debug), "{begin}{all})");
            lines += 1;
        }
    }
    assert!(lines > 100, "{lines} lines are read");
}
