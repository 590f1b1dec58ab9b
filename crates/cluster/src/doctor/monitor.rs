//! What only the monitoring port of a NATS server says: when it syncs what it has acknowledged.

use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tenure_wire::bus::address::{HIDDEN, without_secrets};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Finding;

/// How long a server may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of an answer.
const ANSWER_MAX: usize = 1 << 20;
/// Where servers listen for those who look, if they do.
const PORT: u16 = 8222;

/// What a server says of JetStream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Jsz {
    /// Which server.
    #[serde(default)]
    pub server_id: String,
    /// How it keeps streams.
    #[serde(default)]
    pub config: JszConfig,
}

/// How a server keeps streams.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct JszConfig {
    /// What is acknowledged is on the disk.
    #[serde(default)]
    pub sync_always: bool,
    /// Nanoseconds after which it is, otherwise.
    #[serde(default)]
    pub sync_interval: u64,
}

/// Where the first of some servers would be asked.
pub fn beside(nats: &str) -> Option<String> {
    let servers = without_secrets(nats);
    let at = servers.split(',').next().filter(|at| *at != HIDDEN)?;
    let host = match at.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => at,
    };
    (!host.is_empty()).then(|| format!("http://{host}:{PORT}"))
}

/// Asks a server.
///
/// # Errors
/// It does not answer, or not with what was asked for.
pub async fn ask(url: &str) -> Result<Jsz, String> {
    let asked = async {
        let authority = url.strip_prefix("http://").ok_or("only http:// is spoken")?;
        let authority = authority.split('/').next().unwrap_or_default();
        let stream = TcpStream::connect(authority).await.map_err(|error| error.to_string())?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        let connection = tokio::spawn(connection);
        let request = Request::get("/jsz").header("host", authority).body(Empty::<&[u8]>::new());
        let request = request.map_err(|error| error.to_string())?;
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        if answer.status() != StatusCode::OK {
            return Err(format!("it answers {}", answer.status()));
        }
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
        connection.abort();
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        serde_json::from_slice(&body).map_err(|error| format!("no answer of NATS: {error}"))
    };
    timeout(PATIENCE, asked).await.map_err(|_| "it does not answer".to_owned())?
}

/// Judges when acknowledged commits are on the disk. `replicas`: servers that keep each.
pub fn judge(jsz: &Jsz, replicas: usize) -> Finding {
    const CHECK: &str = "jetstream.sync";
    if jsz.config.sync_always {
        return Finding::good(CHECK, "what is acknowledged is on the disk");
    }
    let seconds = Duration::from_nanos(jsz.config.sync_interval).as_secs();
    let lost = match replicas {
        1 => "a machine that loses power loses them",
        _ => "machines that lose power together lose them",
    };
    let found = format!("what is acknowledged may be on no disk for {seconds} s: {lost}");
    let advice = "set `sync_interval: always` in the block `jetstream` of NATS, unless nothing is to be kept";
    Finding::caution(CHECK, found, advice)
}

/// Nobody said it.
pub fn unknown(at: &str, why: &str) -> Finding {
    let found = format!("whether what is acknowledged is on the disk: {at}: {why}");
    let advice = "give NATS `http: 127.0.0.1:8222` and name it with --nats-monitor http://HOST:8222; or \
                  look for `sync_interval: always` in its configuration";
    Finding::unknown("jetstream.sync", found, advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn the_port_for_those_who_look_is_beside() {
        for (nats, beside_it) in [
            ("nats://127.0.0.1:4222", "http://127.0.0.1:8222"),
            ("nats://u:p@host:4222, nats://other:1", "http://host:8222"),
            ("host", "http://host:8222"),
            ("tls://[::1]:4222", "http://[::1]:8222"),
            ("nats://host:4222/", "http://host:8222"),
        ] {
            assert_eq!(beside(nats).as_deref(), Some(beside_it), "{nats}");
        }
        assert_eq!(beside(""), None);
        assert_eq!(beside("nats://ann:s3,cret@host"), None, "no piece of a password");
    }

    #[test]
    fn a_server_that_syncs_later_is_said_to() {
        let always = serde_json::from_str(r#"{"server_id":"N1","config":{"sync_always":true}}"#);
        assert_eq!(judge(&always.unwrap(), 1).verdict, Verdict::Good);
        let later = serde_json::from_str(r#"{"config":{"sync_interval":120000000000}}"#).unwrap();
        let found = judge(&later, 1);
        assert_eq!(found.verdict, Verdict::Caution);
        assert!(found.found.contains("for 120 s: a machine that"), "{found:?}");
        assert!(judge(&later, 3).found.contains("together"));
    }

    #[tokio::test]
    async fn who_does_not_answer_is_not_waited_for() {
        assert_eq!(ask("https://h").await.unwrap_err(), "only http:// is spoken");
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        assert_eq!(ask(&url).await.unwrap_err(), "it does not answer");
    }
}
