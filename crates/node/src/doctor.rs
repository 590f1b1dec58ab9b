//! Looks at everything a node would use, as the node would: with its addresses and its logins.
//!
//! What is wrong with one server does not keep the others from being looked at.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use async_nats::{Client, Event, ServerError};
use tenure_cluster::doctor::server::Let;
pub use tenure_cluster::doctor::{Finding, Verdict, clock, latency};
use tenure_cluster::doctor::{log, monitor, redis, server};
use tenure_core::id::SessionId;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout_at;

use crate::bus::{connect_with, options};
use crate::settings::{Login, Settings, without_secrets};

/// How long a server may take to say that something is not allowed.
const REFUSAL: Duration = Duration::from_millis(500);

/// What was found.
#[derive(Debug, Default)]
pub struct Examined {
    /// What to say of it, in the order in which it should be read.
    pub findings: Vec<Finding>,
    /// Sessions that have leases.
    pub sessions: BTreeSet<SessionId>,
    /// NATS or Redis did not answer.
    pub is_cut_off: bool,
}

/// One of the connections of a node, and what its server says of it.
struct Connected {
    client: Client,
    events: UnboundedReceiver<Event>,
}

/// Looks at the servers that a node with these settings would use. `monitors`: where NATS servers
/// answer those who look, in place of the usual port beside the first.
pub async fn examine(settings: &Settings, monitors: &[String]) -> Examined {
    let mut examined = Examined::default();
    nats(&mut examined, settings, monitors).await;
    let name = settings.name.to_lowercase();
    let of_redis = redis::examine(&settings.redis, &name, settings.partitions).await;
    let is_away = |finding: &Finding| finding.check == "redis" && finding.verdict == Verdict::Bad;
    examined.is_cut_off |= of_redis.findings.iter().any(is_away);
    examined.findings.extend(of_redis.findings);
    examined.sessions = of_redis.sessions;
    examined
}

async fn nats(examined: &mut Examined, settings: &Settings, monitors: &[String]) {
    let at = without_secrets(&settings.nats.url);
    let logins = &settings.nats;
    let mut parts = Vec::new();
    for (part, login) in
        [("journal", &logins.journal), ("control", &logins.control), ("intake", &logins.intake)]
    {
        match connect(settings, login, part).await {
            Ok(connected) => parts.push(connected),
            Err(why) => {
                examined.is_cut_off = true;
                examined.findings.push(Finding::bad(
                    "nats",
                    format!("{at} does not let {part} in: {why}"),
                    "see that it runs, that --nats names it, and that user and password are its own",
                ));
                return;
            }
        }
    }
    let [journal, control, intake] = &mut parts[..] else { return };
    let info = journal.client.server_info();
    examined.findings.push(Finding::good("nats", format!("{at} lets a node in")));
    examined.findings.extend(server::judge(&info, is_near(&settings.nats.url)));
    let rights = Let {
        asks: info.auth_required,
        others_write: is_let(control, &write(settings)).await
            || is_let(intake, &write(settings)).await,
        journal_deletes: is_let(journal, &delete(settings)).await,
    };
    examined.findings.push(server::rights(rights));
    let cluster = tenure_cluster::Settings {
        name: settings.name.clone(),
        partitions: settings.partitions,
        replicas: settings.replicas,
        ..tenure_cluster::Settings::default()
    };
    let client = &journal.client;
    examined.findings.extend(log::examine(client, &cluster, info.cluster.is_some()).await);
    examined.findings.extend(syncs(settings, monitors, &info.server_id).await);
}

async fn connect(settings: &Settings, login: &Login, part: &str) -> Result<Connected, String> {
    let (tell, events) = unbounded_channel();
    let options = options(&settings.nats, login, &settings.node, part).await?;
    let options = options.event_callback(move |event| {
        let _ = tell.send(event); // Nobody asks any more.
        async {}
    });
    let client = connect_with(options, &settings.nats).await?;
    Ok(Connected { client, events })
}

/// A place of the log that no partition has.
fn write(settings: &Settings) -> String {
    format!("{}.wal.doctor", settings.name.to_lowercase())
}

/// Deletes a stream that there is not.
fn delete(settings: &Settings) -> String {
    format!("$JS.API.STREAM.DELETE.{}_DOCTOR", settings.name)
}

/// Whether the server lets a connection publish there: it says only if it does not.
async fn is_let(connected: &mut Connected, subject: &str) -> bool {
    let sent = async {
        connected.client.publish(subject.to_owned(), "".into()).await.ok()?;
        connected.client.flush().await.ok()
    };
    let until = (Instant::now() + REFUSAL).into();
    if !matches!(timeout_at(until, sent).await, Ok(Some(()))) {
        return false;
    }
    while let Ok(Some(event)) = timeout_at(until, connected.events.recv()).await {
        if let Event::ServerError(ServerError::Other(why)) = event
            && why.to_lowercase().contains("permissions violation")
        {
            return false;
        }
    }
    true
}

/// When each server that can be asked syncs.
async fn syncs(settings: &Settings, monitors: &[String], server_id: &str) -> Vec<Finding> {
    if monitors.is_empty() {
        let Some(beside) = monitor::beside(&settings.nats.url) else { return Vec::new() };
        return vec![match monitor::ask(&beside).await {
            Ok(jsz) if jsz.server_id == server_id => monitor::judge(&jsz, settings.replicas),
            Ok(_) => monitor::unknown(&beside, "that is another server"),
            Err(why) => monitor::unknown(&beside, &why),
        }];
    }
    let mut findings = Vec::new();
    for monitor in monitors {
        findings.push(match monitor::ask(monitor).await {
            Ok(jsz) => monitor::judge(&jsz, settings.replicas),
            Err(why) => monitor::unknown(monitor, &why),
        });
    }
    findings
}

/// Whether all servers are on this machine.
fn is_near(url: &str) -> bool {
    without_secrets(url).split(',').all(|one| {
        let host = one.rsplit('/').next().unwrap_or_default();
        ["127.", "localhost", "[::1]"].iter().any(|near| host.starts_with(near))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_this_machine_are_near() {
        assert!(is_near("nats://u:p@127.0.0.1:4222,localhost,nats://[::1]:1"));
        assert!(!is_near("nats://127.0.0.1:4222,nats://10.0.0.1:4222"));
        assert!(!is_near("nats://127.0.0.1@example.org"));
    }
}
