//! Every metric, label and span attribute that a dashboard or an alert asks for is one that a cluster
//! has sent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value as Json;
use tenure_tests::cluster::client::command;
use tenure_tests::cluster::tasks::{noop, sleep, task};
use tenure_tests::cluster::{Cluster, PATIENCE, Plan, on_cluster, until};
use tenure_tests::otlp::{Got, Point, Protocol, Receiver};
use tenure_tests::promql;

/// Labels that a store adds of itself.
const OF_THE_STORE: [&str; 5] = ["le", "job", "instance", "service_instance_id", "host_name"];

/// What Prometheus itself says of the rules that fire, with its labels, and one that a query makes of some.
const OF_RULES: [&str; 5] = ["ALERTS", "alertname", "alertstate", "severity", "about"];

/// Calls of which none fails in this run: they have no `error_type`.
const NEVER_FAILED: [&str; 3] = [
    "tenure_journal_append_duration_seconds_bucket",
    "tenure_journal_append_duration_seconds_count",
    "tenure_worker_heartbeat_duration_seconds_count",
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

/// The names in a query, or in `label_values(metric, label)`, which fills a list of Grafana's.
fn names(query: &str) -> Result<promql::Names> {
    let of_list = query.strip_prefix("label_values(").and_then(|it| it.strip_suffix(')'));
    let Some((metric, label)) = of_list.and_then(|it| it.split_once(',')) else {
        return promql::names(query);
    };
    let mut names = promql::names(metric)?;
    names.labels.insert(label.trim().to_owned());
    Ok(names)
}

/// Queries, each with where it stands.
type Queries = Vec<(String, String)>;

/// All queries of the dashboards, by what they are for.
#[derive(Default)]
struct Asked {
    metrics: Queries,
    traces: Queries,
    logs: Queries,
}

fn queries() -> Result<Asked> {
    let mut asked = Asked::default();
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
                let (of, field) = match target["datasource"]["type"].as_str() {
                    Some("tempo") => (&mut asked.traces, "query"),
                    Some("loki") => (&mut asked.logs, "expr"),
                    _ => (&mut asked.metrics, "expr"),
                };
                let query = target[field].as_str().with_context(|| place.clone())?;
                of.push((place.clone(), query.to_owned()));
            }
        }
        for variable in board["templating"]["list"].as_array().into_iter().flatten() {
            let place = format!("{}: {}", file.display(), variable["name"]);
            let query = variable["query"]["query"].as_str().map(str::to_owned);
            asked.metrics.extend(query.map(|it| (place, it)));
        }
    }
    Ok(asked)
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

#[test]
fn every_query_of_metrics_is_one() -> Result<()> {
    let mut metrics = queries()?.metrics;
    metrics.extend(alerts()?);
    for (place, query) in &metrics {
        names(query).with_context(|| place.clone())?;
    }
    Ok(())
}

/// `promtool` runs the series of tests/alerts; a rule without them would never be tried.
#[test]
fn every_alert_has_series_on_which_it_fires_and_series_on_which_it_does_not() -> Result<()> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("alerts/tests.yaml");
    let tests = std::fs::read_to_string(tests)?;
    for (name, _) in alerts()? {
        let asked = format!("expr: 'ALERTS{{alertname=\"{name}\",alertstate=\"firing\"}}'");
        let cases = tests.split(&asked).skip(1).filter_map(|it| it.split("expr:").next());
        let (quiet, firing): (Vec<_>, Vec<_>) =
            cases.partition(|case| case.contains("exp_samples: []"));
        ensure!(!firing.is_empty(), "no series makes {name} fire");
        ensure!(!quiet.is_empty(), "on no series {name} must not fire");
    }
    Ok(())
}

/// The labels in `{a=~"x"} | b = "y"`.
fn labels_asked_for(query: &str) -> Vec<String> {
    let outside = query.split('"').step_by(2).collect::<String>(); // Of texts.
    let conditions = outside.split(['{', '}', '|', ',']).map(str::trim);
    let label = |condition: &str| condition.split(['=', '!', '~', ' ']).next().map(str::to_owned);
    conditions.filter(|it| !it.is_empty()).filter_map(label).collect()
}

/// What Loki calls what logs say of themselves, when they come by OTLP.
fn labels_of_logs(got: &Got) -> BTreeSet<String> {
    let mut labels = BTreeSet::new();
    for record in &got.records {
        let named = record.resource.keys().chain(record.attributes.keys());
        labels.extend(named.map(|name| prometheus(name)));
        labels.extend((!record.severity.is_empty()).then(|| "severity_text".to_owned()));
        labels.extend((!record.trace.is_empty()).then(|| "trace_id".to_owned()));
    }
    labels
}

#[test]
fn labels_are_found_in_queries_of_logs() {
    let query = r#"{a=~"x|y", b!="z"} | c_d = "$v" | e =~ "f""#;
    assert_eq!(labels_asked_for(query), ["a", "b", "c_d", "e"]);
}

/// A data source leads to others by their ids.
#[test]
fn data_sources_lead_to_others_that_there_are() -> Result<()> {
    let text = std::fs::read_to_string(root().join("provisioning/datasources/tenure.yaml"))?;
    let all = |name: &str| -> BTreeSet<String> {
        let values = text.lines().filter_map(|line| line.trim_start().strip_prefix(name));
        values.map(str::to_owned).collect()
    };
    let (there, led_to) = (all("uid: "), all("datasourceUid: "));
    ensure!(led_to.len() == 2 && led_to.is_subset(&there), "{led_to:?} of {there:?}");
    Ok(())
}

fn check(got: &Got) -> Result<()> {
    let mut sent: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for point in &got.points {
        for name in series(point) {
            let labels = point.attributes.keys().map(|label| prometheus(label));
            sent.entry(name).or_default().extend(labels);
        }
    }
    let Asked { mut metrics, traces, logs } = queries()?;
    metrics.extend(alerts()?);
    let mut wrong = Vec::new();
    for (place, query) in &metrics {
        let names = names(query).with_context(|| place.clone())?;
        let is_sent = |it: &String| sent.contains_key(it) || OF_RULES.contains(&it.as_str());
        let unsent = names.metrics.iter().filter(|name| !is_sent(name));
        wrong.extend(unsent.map(|name| format!("{place}: nobody sends {name}")));
        let known: BTreeSet<&String> =
            names.metrics.iter().filter_map(|it| sent.get(it)).flatten().collect();
        for label in &names.labels {
            let of_others = [&OF_THE_STORE[..], &OF_RULES[..]].concat();
            let is_known = known.contains(label) || of_others.contains(&label.as_str());
            let may_fail = names.metrics.iter().any(|it| NEVER_FAILED.contains(&it.as_str()));
            let is_failure = label == "error_type" && may_fail;
            if !is_known && !is_failure {
                wrong.push(format!("{place}: {:?} has no label {label}", names.metrics));
            }
        }
    }
    let labels = labels_of_logs(got);
    for (place, query) in &logs {
        let unknown = labels_asked_for(query).into_iter().filter(|label| !labels.contains(label));
        wrong.extend(unknown.map(|label| format!("{place}: no log has {label}")));
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
    let counts = (metrics.len(), traces.len(), logs.len());
    println!("{} queries of metrics, {} of traces, {} of logs", counts.0, counts.1, counts.2);
    Ok(())
}

#[test]
fn every_panel_and_alert_asks_for_what_is_sent() -> Result<()> {
    let receiver = Receiver::start(Protocol::Http)?;
    let mut environment = receiver.environment();
    environment.push(("TENURE_MAX_BYTES", "100000000".into())); // So that the log has a bound.
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
        fail_calls(cluster, &receiver)?;
        let got = receiver.wait("everything", PATIENCE, |got| {
            let some = |metric: &str| got.total(metric, None) > 0.0;
            let late = some("tenure.leases.expiry.lateness");
            let requests = got.newest("tenure.requests.duration");
            let is_refused = requests.iter().any(|it| it.attributes.contains_key("error.type"));
            let counted = some("tenure.refusals") && some("tenure.tasks.ended") && is_refused;
            let has_room = !got.newest("tenure.log.room").is_empty();
            let is_traced = got.records.iter().any(|it| !it.trace.is_empty());
            !got.spans.is_empty() && late && counted && has_room && is_traced
        })?;
        check(&got)
    })
}

/// Whether some call of a kind has failed.
fn has_failed(got: &Got, metric: &str) -> bool {
    got.newest(metric).iter().any(|it| it.attributes.contains_key("error.type"))
}

/// A call of Redis fails.
fn fail_calls(cluster: &mut Cluster, receiver: &Receiver) -> Result<()> {
    cluster.redis.process.kill()?;
    receiver
        .wait("redis is missed", PATIENCE, |got| has_failed(got, "tenure.leases.call.duration"))?;
    cluster.redis.restart()
}
