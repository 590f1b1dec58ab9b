//! Checks what only the monitoring port of a NATS server says: when it syncs what it has
//! acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tenure_wire::bus::address::{HIDDEN, without_secrets};
use tokio::net::TcpStream;

use super::Finding;
use crate::request::{RequestError, within};

const CHECK: &str = "jetstream.sync";
/// How long a server may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// How many bytes an answer may have.
const ANSWER_MAX: usize = 1 << 20;
/// The usual monitoring port.
const PORT: u16 = 8222;

/// What a server says of its JetStream (`/jsz`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Jsz {
    /// The server's id.
    #[serde(default)]
    pub server_id: String,
    /// How the server stores streams.
    #[serde(default)]
    pub config: JszConfig,
    /// The cluster with which it stores them, if it is not alone.
    #[serde(default)]
    pub meta_cluster: Option<MetaCluster>,
}

/// The servers that store streams together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct MetaCluster {
    /// The name of the cluster.
    #[serde(default)]
    pub name: String,
    /// How many servers it has.
    #[serde(default)]
    pub cluster_size: usize,
}

/// How a server stores streams.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct JszConfig {
    /// The server syncs before it acknowledges.
    #[serde(default)]
    pub sync_always: bool,
    /// Otherwise: after how many nanoseconds it syncs.
    #[serde(default)]
    pub sync_interval: u64,
}

/// The usual monitoring addresses of these servers. A part that may be a piece of a password is
/// left out.
pub fn beside(nats: &str) -> BTreeSet<String> {
    let servers = without_secrets(nats);
    let hosts = servers.split(',').filter(|at| *at != HIDDEN).map(|at| match at.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => at,
    });
    hosts.filter(|host| !host.is_empty()).map(|host| format!("http://{host}:{PORT}")).collect()
}

/// Asks a server.
///
/// # Errors
/// The server does not answer, or not as NATS does.
pub async fn ask(url: &str) -> Result<Jsz, RequestError> {
    within(PATIENCE, "it does not answer", read(url, "/jsz")).await
}

/// Reads what a server says at a path of its monitoring address.
pub(super) async fn read<T: DeserializeOwned>(
    url: &str,
    path: &str,
) -> Result<T, Box<dyn Error + Send + Sync>> {
    let authority = url.strip_prefix("http://").ok_or("only http:// is spoken")?;
    let authority = authority.split('/').next().unwrap_or_default();
    let stream = TcpStream::connect(authority).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::get(path).header("host", authority).body(Empty::<&[u8]>::new())?;
    let answer = sender.send_request(request).await?;
    if answer.status() != StatusCode::OK {
        return Err(format!("it answers {}", answer.status()).into());
    }
    let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
    connection.abort();
    let answer = serde_json::from_slice(&body?.to_bytes());
    answer.map_err(|error| format!("no answer of NATS: {error}").into())
}

/// Judges when acknowledged commits are on disk, by what the servers answered, or why they did not.
/// `replicas`: how many servers store each stream.
pub fn judge(answers: &[(String, Result<Jsz, RequestError>)], replicas: usize) -> Vec<Finding> {
    let mut looked: BTreeMap<&str, (&str, &Jsz)> = BTreeMap::new();
    for (at, answer) in answers {
        if let Ok(jsz) = answer {
            looked.insert(&jsz.server_id, (at, jsz));
        }
    }
    let silent = answers.iter().filter_map(|(at, answer)| Some((at, answer.as_ref().err()?)));
    let of_cluster = looked.values().filter_map(|(_, jsz)| jsz.meta_cluster.as_ref());
    let known = of_cluster.map(|cluster| cluster.cluster_size).max().unwrap_or_default();
    let all =
        known.max(looked.len() + usize::from(looked.is_empty() || silent.clone().count() > 0));
    let late = looked.values().filter(|(_, jsz)| !jsz.config.sync_always);
    let mut findings: Vec<Finding> = late.map(|(at, jsz)| late_at(at, jsz, replicas)).collect();
    if looked.len() < all {
        let why = silent.map(|(at, why)| format!("; {at}: {why}")).collect::<String>();
        findings.push(unknown(&format!("{} of {all} servers looked at{why}", looked.len())));
    } else if findings.is_empty() {
        let found = match all {
            1 => "what is acknowledged is on the disk".to_owned(),
            _ => format!("what is acknowledged is on the disks of all {all} servers"),
        };
        findings.push(Finding::good(CHECK, found));
    }
    findings
}

/// The finding on a server that syncs later than it acknowledges. If it stores the log alone, a
/// power failure of its machine loses what was acknowledged. Otherwise other servers still have it,
/// unless they lose power at the same time.
fn late_at(at: &str, jsz: &Jsz, replicas: usize) -> Finding {
    let seconds = Duration::from_nanos(jsz.config.sync_interval).as_secs();
    let found = format!("{at}: what is acknowledged may be on no disk for {seconds} s");
    let advice = "set `sync_interval: always` in the block `jetstream` of NATS, unless nothing is to be kept";
    match replicas {
        ..=1 => {
            let lost = "a machine that loses power loses it";
            Finding::bad(CHECK, format!("{found}: {lost}"), advice)
        }
        _ => {
            let lost = "machines that lose power together lose it";
            Finding::caution(CHECK, format!("{found}: {lost}"), advice)
        }
    }
}

/// The finding that this is not known.
pub fn unknown(why: &str) -> Finding {
    let found = format!("whether what is acknowledged is on the disk: {why}");
    let advice = "give each NATS `http: 127.0.0.1:8222`, and name all with --nats-monitor \
                  http://HOST:8222,…; or look for `sync_interval: always` in their configuration";
    Finding::unknown(CHECK, found, advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn the_port_for_those_who_look_is_beside() {
        let all = |nats: &str| beside(nats).into_iter().collect::<Vec<_>>().join(" ");
        for (nats, beside_it) in [
            ("nats://127.0.0.1:4222", "http://127.0.0.1:8222"),
            ("nats://u:p@host:4222, nats://other:1", "http://host:8222 http://other:8222"),
            ("host", "http://host:8222"),
            ("tls://[::1]:4222", "http://[::1]:8222"),
            ("nats://host:4222/,nats://host:4223", "http://host:8222"),
            ("nats://ann:s3,cret@host", "http://host:8222"), // No piece of a password.
        ] {
            assert_eq!(all(nats), beside_it, "{nats}");
        }
        assert_eq!(all(""), "");
    }

    fn said(id: &str, more: &str) -> (String, Result<Jsz, RequestError>) {
        let jsz = format!(r#"{{"server_id":"{id}",{more}}}"#);
        (format!("http://{id}"), Ok(serde_json::from_str(&jsz).unwrap()))
    }

    fn verdicts(answers: &[(String, Result<Jsz, RequestError>)], replicas: usize) -> Vec<Verdict> {
        judge(answers, replicas).into_iter().map(|finding| finding.verdict).collect()
    }

    /// One server's answer does not speak for all.
    #[test]
    fn a_server_that_was_not_looked_at_is_not_good() {
        let of_three = |id: &str| {
            let cluster = r#""meta_cluster":{"name":"c","cluster_size":3}"#;
            said(id, &format!(r#""config":{{"sync_always":true}},{cluster}"#))
        };
        let lone = || said("a", r#""config":{"sync_always":true}"#);
        let away = || {
            let silent = RequestError::Silent("it does not answer".into());
            ("http://c".to_owned(), Err(silent))
        };
        assert_eq!(verdicts(&["a", "b", "c"].map(of_three), 3), [Verdict::Good]);
        assert_eq!(verdicts(&["a", "b", "b"].map(of_three), 3), [Verdict::Unknown]);
        let found = judge(&[of_three("a"), of_three("b"), away()], 3);
        assert_eq!(found[0].verdict, Verdict::Unknown);
        let why = "2 of 3 servers looked at; http://c: it does not answer";
        assert!(found[0].found.ends_with(why), "{found:?}");
        assert_eq!(verdicts(&[lone()], 1), [Verdict::Good]);
        assert_eq!(verdicts(&[lone(), away()], 1), [Verdict::Unknown], "it may be another");
        assert_eq!(verdicts(&[away()], 1), [Verdict::Unknown]);
    }

    #[test]
    fn a_server_that_syncs_later_is_said_to() {
        let later = [said("a", r#""config":{"sync_interval":120000000000}"#)];
        let found = judge(&later, 1);
        assert_eq!(found[0].verdict, Verdict::Bad, "{found:?}");
        assert!(found[0].found.contains("for 120 s: a machine that"), "{found:?}");
        assert_eq!(found.len(), 1);
        let found = judge(&later, 3);
        assert_eq!(found[0].verdict, Verdict::Caution, "{found:?}");
        assert!(found[0].found.contains("together"), "{found:?}");
    }

    #[tokio::test]
    async fn who_does_not_answer_is_not_waited_for() {
        assert_eq!(ask("https://h").await.unwrap_err().to_string(), "only http:// is spoken");
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        assert_eq!(ask(&url).await.unwrap_err().to_string(), "it does not answer");
    }
}
