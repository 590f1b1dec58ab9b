//! Every metric, label and span attribute that a dashboard or an alert asks for is one that a cluster
//! has sent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value as Json;
use tenure_tests::cluster::client::command;
use tenure_tests::cluster::tasks::{noop, sleep, task};
use tenure_tests::cluster::{PATIENCE, Plan, on_cluster, until};
use tenure_tests::otlp::{Got, Point, Protocol, Receiver};

/// Labels that a store adds of itself.
const OF_THE_STORE: [&str; 4] = ["le", "job", "instance", "service_instance_id"];

/// Words of the query language.
const WORDS: [&str; 25] = [
    "and",
    "or",
    "unless",
    "by",
    "without",
    "on",
    "sum",
    "max",
    "min",
    "count",
    "avg",
    "rate",
    "increase",
    "histogram_quantile",
    "label_values",
    "max_over_time",
    "ignoring",
    "bool",
    "offset",
    "last_over_time",
    "quantile_over_time",
    "label_replace",
    "round",
    "topk",
    "vector",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/grafana")
}

/// A name as Prometheus has it, when it comes by OTLP.
fn prometheus(name: &str) -> String {
    name.replace('.', "_")
}

/// What a point is called there, with the labels that it has.
fn series(point: &Point) -> Vec<String> {
    let unit = match point.unit.as_str() {
        "s" => "_seconds",
        "By" => "_bytes",
        _ => "", // What stands in braces is left out.
    };
    let name = format!("{}{unit}", prometheus(&point.name));
    match point.kind {
        "counter" => vec![format!("{name}_total")],
        "histogram" => ["bucket", "sum", "count"].map(|part| format!("{name}_{part}")).into(),
        _ => vec![name],
    }
}

/// The names in a query: of metrics, and of labels.
fn names(query: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut metrics, mut labels) = (BTreeSet::new(), BTreeSet::new());
    let (mut in_braces, mut in_by, mut in_range) = (false, false, false);
    let mut rest = query;
    let mut before = "";
    while let Some(first) = rest.chars().next() {
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        let length = match first {
            '"' => rest[1..].find('"').map_or(rest.len(), |at| at + 2),
            c if is_name(c) => rest.find(|c| !is_name(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        let (word, after) = rest.split_at(length);
        match word {
            "{" => in_braces = true,
            "}" => in_braces = false,
            "[" => in_range = true,
            "]" => in_range = false,
            "(" => in_by = before == "by",
            ")" => in_by = false,
            word if !word.starts_with(|c: char| c.is_alphabetic()) => {}
            _ if in_range => {}
            word if in_braces || in_by => drop(labels.insert(word.to_owned())),
            word if !WORDS.contains(&word) => drop(metrics.insert(word.to_owned())),
            _ => {}
        }
        if !word.trim().is_empty() {
            before = word;
        }
        rest = after;
    }
    (metrics, labels)
}

#[test]
fn names_are_found_in_queries() {
    let query =
        r#"histogram_quantile(0.9, sum by (le, a_b) (rate(x_bucket{c="d", e=~"$f"}[5m]))) > 2"#;
    let (metrics, labels) = names(query);
    assert_eq!(metrics.into_iter().collect::<Vec<_>>(), ["x_bucket"]);
    assert_eq!(labels.into_iter().collect::<Vec<_>>(), ["a_b", "c", "e", "le"]);
}

/// Queries, each with where it stands.
type Queries = Vec<(String, String)>;

/// All queries of the dashboards: those for metrics, and those for traces.
fn queries() -> Result<(Queries, Queries)> {
    let (mut metrics, mut traces) = (Queries::new(), Queries::new());
    for file in std::fs::read_dir(root().join("dashboards"))? {
        let file = file?.path();
        let board: Json = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
        let panels = board["panels"].as_array().context("no panels")?;
        for panel in panels.iter().filter(|panel| panel["type"] != "row") {
            let place = format!("{}: {}", file.display(), panel["title"]);
            ensure!(panel["description"].as_str().is_some_and(|it| !it.is_empty()), "{place}");
            let targets = panel["targets"].as_array().context("no targets")?;
            ensure!(!targets.is_empty(), "{place} shows nothing");
            for target in targets {
                let of_traces = target["query"].as_str().map(str::to_owned);
                let of_metrics = target["expr"].as_str().map(str::to_owned);
                ensure!(of_traces.is_some() || of_metrics.is_some(), "{place}");
                traces.extend(of_traces.map(|it| (place.clone(), it)));
                metrics.extend(of_metrics.map(|it| (place.clone(), it)));
            }
        }
        for variable in board["templating"]["list"].as_array().into_iter().flatten() {
            let place = format!("{}: {}", file.display(), variable["name"]);
            let query = variable["query"]["query"].as_str().map(str::to_owned);
            metrics.extend(query.map(|it| (place, it)));
        }
    }
    Ok((metrics, traces))
}

/// The expressions of the alert rules, by name. Each has a line that says what to do.
fn alerts() -> Result<Queries> {
    let text = std::fs::read_to_string(root().join("alerts.yaml"))?;
    let mut alerts = Vec::new();
    for rule in text.split("- alert: ").skip(1) {
        let name = rule.lines().next().unwrap_or_default().to_owned();
        ensure!(rule.contains("runbook: "), "{name} says nothing of what to do");
        let (_, expression) = rule.split_once("expr:").context("no expression")?;
        let end =
            ["\n        for:", "\n        labels:"].iter().filter_map(|it| expression.find(it));
        let expression = &expression[..end.min().context("no end")?];
        alerts.push((name, expression.trim().trim_start_matches('|').to_owned()));
    }
    ensure!(alerts.len() >= 8, "{} alerts", alerts.len());
    Ok(alerts)
}

fn check(got: &Got) -> Result<()> {
    let mut sent: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for point in &got.points {
        for name in series(point) {
            let labels = point.attributes.keys().map(|label| prometheus(label));
            sent.entry(name).or_default().extend(labels);
        }
    }
    let (mut metrics, traces) = queries()?;
    metrics.extend(alerts()?);
    let mut wrong = Vec::new();
    for (place, query) in &metrics {
        let (names, labels) = names(query);
        for name in &names {
            // In `label_values(metric, label)` the label stands beside the metric.
            let is_label = sent.values().any(|labels| labels.contains(name));
            let is_asked_for = query.starts_with("label_values") && is_label;
            if !sent.contains_key(name) && !is_asked_for {
                wrong.push(format!("{place}: nobody sends {name}"));
            }
        }
        let known: BTreeSet<&String> =
            names.iter().filter_map(|it| sent.get(it)).flatten().collect();
        let of_failures = |label: &str| label == "error_type"; // No call has failed.
        for label in &labels {
            let is_known = known.contains(label) || OF_THE_STORE.contains(&label.as_str());
            if !is_known && !of_failures(label) {
                wrong.push(format!("{place}: {names:?} has no label {label}"));
            }
        }
    }
    let attributes: BTreeSet<&String> =
        got.spans.iter().flat_map(|span| span.attributes.keys()).collect();
    for (place, query) in &traces {
        let spans = query.split("span.").skip(1);
        for name in spans.filter_map(|it| it.split([' ', ',', ')', '}']).next()) {
            if !attributes.contains(&name.to_owned()) {
                wrong.push(format!("{place}: no span has {name}"));
            }
        }
    }
    ensure!(wrong.is_empty(), "{wrong:#?}");
    println!("{} queries of metrics, {} of traces", metrics.len(), traces.len());
    Ok(())
}

#[test]
fn every_panel_and_alert_asks_for_what_is_sent() -> Result<()> {
    let receiver = Receiver::start(Protocol::Http)?;
    let environment = receiver.environment();
    let plan = Plan { schedulers: 1, workers: 2, lease_ms: 2_000, environment, ..Plan::default() };
    on_cluster(plan, |cluster| {
        let client = cluster.client("c")?;
        // A lease that ends without a word.
        client.create(&task("lost", &[sleep("a", &[], 10_000)]))?;
        let held = |who: &str| {
            Ok::<_, anyhow::Error>(!client.log("lost", PATIENCE)?.held_by(who).is_empty())
        };
        until("it runs", PATIENCE, || Ok(held("w0")? || held("w1")?))?;
        // What a worker has not got yet is another's at once when it dies.
        receiver.wait("its worker has it", PATIENCE, |got| {
            got.total("tenure.leases.items", Some(("tenure.lease.call", "renew"))) > 0.0
        })?;
        let holder = usize::from(held("w1")?);
        cluster.workers[holder].kill()?;
        // Long enough for heartbeats, and a command that is refused.
        client.create(&task("done", &[noop("a", &[]), sleep("b", &["a"], 2_000)]))?;
        let again = command("task_create", None, &task("done", &[noop("other", &[])]));
        let refused = client.ask_of("done", &again, PATIENCE);
        ensure!(tenure_tests::cluster::client::wait(refused).is_err(), "the id exists");
        until("done", PATIENCE, || Ok(client.log("done", PATIENCE)?.has_ended()))?;
        let got = receiver.wait("everything", PATIENCE, |got| {
            let some = |metric: &str| got.total(metric, None) > 0.0;
            let late = some("tenure.leases.expiry.lateness");
            let requests = got.newest("tenure.requests.duration");
            let is_refused = requests.iter().any(|it| it.attributes.contains_key("error.type"));
            let counted = some("tenure.refusals") && some("tenure.tasks.ended") && is_refused;
            !got.spans.is_empty() && late && counted
        })?;
        check(&got)
    })
}
