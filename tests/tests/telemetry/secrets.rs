//! What is told for debugging: nothing secret, no payloads.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value as Json;
use tenure_tests::cluster::tasks::{exec, task};
use tenure_tests::cluster::{PATIENCE, POOL, Plan, on_cluster, until};
use tenure_tests::otlp::{Protocol, Receiver};

/// What is in everything that nobody may be told.
const SECRET: &str = "s3cret";

/// One of them.
fn secret(of: &str) -> String {
    format!("{SECRET}-{of}")
}

#[test]
fn nothing_secret_and_no_payload_is_told_not_even_for_debugging() -> Result<()> {
    let receiver = Receiver::start(Protocol::Grpc)?;
    let mut environment = receiver.environment();
    environment.extend([
        ("TENURE_LOG", "debug".to_owned()),
        ("TENURE_LOG_FORMAT", "json".to_owned()),
        ("OTEL_EXPORTER_OTLP_HEADERS", format!("authorization={}", secret("header"))),
        ("TENURE_JOURNAL_USER", "journal".to_owned()),
        ("TENURE_JOURNAL_PASSWORD", secret("password")),
    ]);
    let plan = Plan { schedulers: 1, workers: 0, environment, ..Plan::default() };
    on_cluster(plan, |cluster| {
        // These servers let everybody in, whatever the password.
        let login = format!("nats://w0:{}@127.0.0.1:{}", secret("login"), cluster.nats.port);
        cluster.add_worker(POOL, &login)?;
        let client = cluster.client("c")?;
        let said = format!("echo {0}; echo {0} >&2; test $TENURE_ATTEMPT -ge 2", secret("result"));
        let mut input = task("quiet", &[exec("a", &[], &said)]);
        input["summary"] = secret("summary").into();
        client.create(&input)?;
        until("quiet", PATIENCE, || Ok(client.log("quiet", PATIENCE)?.has_ended()))?;
        let log = String::from_utf8(client.log("quiet", PATIENCE)?.lines)?;
        ensure!(log.contains(&secret("result")), "it is in the task, and may be nowhere else");
        let got = receiver.wait("the trace and what was logged", PATIENCE, |got| {
            got.spans.iter().any(|span| span.is_task())
                && ["tenure-scheduler", "tenure-worker"].iter().all(|service| {
                    got.records.iter().any(|record| {
                        record.resource["service.name"] == *service && record.severity == "DEBUG"
                    })
                })
        })?;
        let spans = got.spans.iter().map(|span| format!("{span:?}"));
        let records = got.records.iter().map(|record| format!("{record:?}"));
        let points = got.points.iter().map(|point| format!("{point:?}"));
        let mut told: Vec<String> = spans.chain(records).chain(points).collect();
        for process in cluster.schedulers.iter().chain(&cluster.workers) {
            let log = cluster.dir().join(format!("{}.log", process.name()));
            let log = std::fs::read_to_string(log)?;
            let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok());
            lines.find(|line| line["level"] == "DEBUG").context("nothing for debugging")?;
            told.extend(log.lines().map(str::to_owned));
        }
        let leaks: Vec<&String> = told.iter().filter(|text| text.contains(SECRET)).collect();
        ensure!(leaks.is_empty(), "{leaks:#?}");
        Ok(())
    })
}
