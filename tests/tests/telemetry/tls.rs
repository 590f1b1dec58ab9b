//! Collectors elsewhere: they are spoken to by TLS, and want to know who speaks.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use tenure_tests::otlp::{Front, Got, Protocol, Receiver, environment};

use crate::collector::warnings;
use crate::run;

const BOTH: [Protocol; 2] = [Protocol::Grpc, Protocol::Http];

/// Who a vendor knows by this.
const HEADERS: &str = "api-key=k1,x-of=all%20signals";

type Variables = Vec<(&'static str, String)>;

/// What a process is told to find a collector by TLS.
fn by_tls(protocol: Protocol, front: &Front) -> Variables {
    let mut variables = environment(protocol, front.address());
    variables.extend([
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("https://{}", front.address())),
        ("OTEL_EXPORTER_OTLP_HEADERS", HEADERS.to_owned()),
        ("TENURE_LOG", "debug".to_owned()),
    ]);
    variables
}

fn path(file: &Path) -> String {
    file.display().to_string()
}

/// Everything came, and with headers.
fn check(got: &Got) -> Result<()> {
    ensure!(got.spans.iter().any(|span| span.is_task()), "no spans");
    ensure!(got.total("tenure.tasks.ended", None) == 1.0, "no metrics");
    ensure!(!got.records.is_empty(), "no log records");
    for signal in ["traces", "metrics", "logs"] {
        let headers = got.headers.get(signal).with_context(|| format!("no {signal}"))?;
        let has = |name: &str, value: &str| headers.get(name).is_some_and(|it| it == value);
        ensure!(has("api-key", "k1") && has("x-of", "all signals"), "{signal}: {headers:?}");
    }
    Ok(())
}

#[test]
fn a_collector_whose_authority_is_named_is_spoken_to_by_tls() -> Result<()> {
    for protocol in BOTH {
        let (dir, receiver) = (tempfile::tempdir()?, Receiver::start(protocol)?);
        let front = Front::start(receiver.address(), dir.path())?;
        let mut variables = by_tls(protocol, &front);
        variables.push(("OTEL_EXPORTER_OTLP_CERTIFICATE", path(front.authority())));
        run::run(dir.path(), &variables)?;
        check(&receiver.got()).with_context(|| format!("{protocol:?}"))?;
    }
    Ok(())
}

#[test]
fn a_collector_whose_authority_the_machine_trusts_is_spoken_to_by_tls() -> Result<()> {
    for protocol in BOTH {
        let (dir, receiver) = (tempfile::tempdir()?, Receiver::start(protocol)?);
        let front = Front::start(receiver.address(), dir.path())?;
        let mut variables = by_tls(protocol, &front);
        variables.push(("SSL_CERT_FILE", path(front.authority())));
        run::run(dir.path(), &variables)?;
        check(&receiver.got()).with_context(|| format!("{protocol:?}"))?;
    }
    Ok(())
}

/// What is compressed is said in a header of HTTP, and in one of gRPC.
#[test]
fn what_is_sent_is_compressed_if_the_environment_says_so() -> Result<()> {
    for (protocol, header) in
        [(Protocol::Http, "content-encoding"), (Protocol::Grpc, "grpc-encoding")]
    {
        let (dir, receiver) = (tempfile::tempdir()?, Receiver::start(protocol)?);
        let mut variables = environment(protocol, receiver.address());
        variables.extend([
            ("OTEL_EXPORTER_OTLP_HEADERS", HEADERS.to_owned()),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip".to_owned()),
            ("TENURE_LOG", "debug".to_owned()),
        ]);
        run::run(dir.path(), &variables)?;
        let got = receiver.got();
        check(&got).with_context(|| format!("{protocol:?}"))?;
        for (signal, headers) in &got.headers {
            let is_told = headers.get(header).is_some_and(|it| it == "gzip");
            ensure!(is_told, "{protocol:?}, {signal}: {headers:?}");
        }
    }
    Ok(())
}

#[test]
fn a_collector_that_nobody_vouches_for_gets_nothing_and_that_is_said() -> Result<()> {
    for protocol in BOTH {
        let (dir, receiver) = (tempfile::tempdir()?, Receiver::start(protocol)?);
        let other = tempfile::tempdir()?;
        let front = Front::start(receiver.address(), dir.path())?;
        let other = Front::start(receiver.address(), other.path())?;
        let mut variables = by_tls(protocol, &front);
        variables.retain(|(name, _)| *name != "TENURE_LOG");
        variables.push(("OTEL_EXPORTER_OTLP_CERTIFICATE", path(other.authority())));
        let ended = run::run(dir.path(), &variables)?;
        let got = receiver.got();
        ensure!(got.spans.is_empty() && got.points.is_empty(), "it was trusted");
        ensure!(warnings(&ended) == 1, "{}", ended.stderr);
        drop(got);

        let (_, file) = variables.last_mut().context("none")?;
        *file = path(&dir.path().join("retry.yaml"));
        let dir = tempfile::tempdir()?;
        let ended = run::run(dir.path(), &variables)?;
        let said = "warning: telemetry did not start: ";
        ensure!(ended.stderr.starts_with(said), "{}", ended.stderr);
        ensure!(ended.stderr.contains("there is no certificate in it"), "{}", ended.stderr);
    }
    Ok(())
}
