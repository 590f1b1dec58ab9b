//! Looks at everything a node would use, as the node would: with its addresses and its logins.
//!
//! What is wrong with one server does not keep the others from being looked at.

use std::collections::BTreeSet;
use std::time::Duration;

use async_nats::{Client, Event, ServerError};
use futures::StreamExt as _;
use tenure_cluster::doctor::server::Let;
pub use tenure_cluster::doctor::{Finding, Verdict, clock, latency};
use tenure_cluster::doctor::{log, monitor, redis, server};
use tenure_core::id::SessionId;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{sleep, timeout};

use crate::bus::{connect_with, options};
use crate::settings::{Login, Settings, without_secrets};

/// How long a server may take to say what is not allowed.
const REFUSAL: Duration = Duration::from_secs(3);
/// How long what it said may take to come here from the client library, which has a task for it.
const HANDED_ON: Duration = Duration::from_millis(200);
/// What is sent where it should be refused. JetStream takes it for no request: it changes nothing even
/// where it is let through, and to a stream that there is.
const NO_REQUEST: &str = "doctor";

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
    let [update, purge, delete] = ["UPDATE", "PURGE", "DELETE"].map(|verb| change(settings, verb));
    let by_others = [write(settings), purge.clone(), delete.clone()];
    let by_journal = [update, purge, delete];
    let rights = match info.auth_required {
        false => Let::default(),
        true => Let {
            asks: true,
            control: is_let(control, settings, &by_others).await,
            intake: is_let(intake, settings, &by_others).await,
            journal: is_let(journal, settings, &by_journal).await,
        },
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

/// Where a stream would be changed, emptied or deleted that there is not.
fn change(settings: &Settings, verb: &str) -> String {
    format!("$JS.API.STREAM.{verb}.{}_DOCTOR", settings.name)
}

/// Whether the server lets a connection publish to any of these; none: it could not be tried.
///
/// It says only what it refuses, and takes what a connection sends in order. So something follows that
/// it answers whatever the rights are: by sending it back, or by refusing that too. As the shipped roles
/// are, `control` hears itself there; `journal` and `intake` may not speak to any inbox of their own.
async fn is_let(
    connected: &mut Connected,
    settings: &Settings,
    subjects: &[String],
) -> Option<bool> {
    let last = format!("_INBOX.system.{}.doctor", settings.node);
    let refused = timeout(REFUSAL, refusals(connected, subjects, &last)).await.ok()??;
    Some(subjects.iter().any(|subject| !refused.contains(subject)))
}

/// What is refused of some subjects, and maybe the `last`, to which nobody else listens.
async fn refusals(
    connected: &mut Connected,
    subjects: &[String],
    last: &str,
) -> Option<Vec<String>> {
    let Connected { client, events } = connected;
    for subject in subjects {
        client.publish(subject.clone(), NO_REQUEST.into()).await.ok()?;
    }
    let mut back = client.subscribe(last.to_owned()).await.ok()?;
    client.publish(last.to_owned(), NO_REQUEST.into()).await.ok()?;
    let mut found = Vec::new();
    let told = async {
        loop {
            match events.recv().await? {
                Event::Disconnected => return None, // With what it may have said.
                event => match refused(&event) {
                    Some(subject) if subject == last => return Some(()),
                    subject => found.extend(subject.map(str::to_owned)),
                },
            }
        }
    };
    let came_back = async {
        back.next().await?;
        sleep(HANDED_ON).await;
        Some(())
    };
    let is_over = tokio::select! {
        told = told => told,
        came_back = came_back => came_back,
    };
    is_over.map(|()| found)
}

/// What the server does not let a connection say or hear, if that is what happened.
fn refused(event: &Event) -> Option<&str> {
    let Event::ServerError(ServerError::Other(why)) = event else { return None };
    let (what, subject) = why.split_once('"')?;
    let is_refused = what.to_lowercase().contains("permissions violation");
    subject.split('"').next().filter(|_| is_refused)
}

/// When each server that can be asked syncs.
async fn syncs(settings: &Settings, monitors: &[String], server_id: &str) -> Vec<Finding> {
    // None of them is shown: a password with a comma would be in several.
    if monitors.iter().any(|monitor| monitor.contains('@')) {
        let why = "it has a login, and NATS asks for none there: leave it out";
        return vec![monitor::unknown("--nats-monitor", why)];
    }
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
    without_secrets(url)
        .split(',')
        .all(|server| ["127.", "localhost", "[::1]"].iter().any(|near| server.starts_with(near)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Nats;

    #[test]
    fn servers_of_this_machine_are_near() {
        assert!(is_near("nats://u:p@127.0.0.1:4222,localhost,nats://[::1]:1"));
        assert!(!is_near("nats://127.0.0.1:4222,nats://10.0.0.1:4222"));
        assert!(!is_near("nats://127.0.0.1@example.org"));
        assert!(is_near("nats://127.0.0.1:4222/"));
        assert!(!is_near("example.org,ann:s3cret@127.0.0.1"), "the first may be of the login");
    }

    #[test]
    fn a_refusal_names_what_was_refused() {
        let other = |why: &str| Event::ServerError(ServerError::Other(why.into()));
        let of = |event: Event| refused(&event).map(str::to_owned);
        let publish = other("Permissions Violation for Publish to \"tenure.wal.doctor\"");
        assert_eq!(of(publish).as_deref(), Some("tenure.wal.doctor"));
        let listen = other("Permissions Violation for Subscription to \"a.b\" using queue \"q\"");
        assert_eq!(of(listen).as_deref(), Some("a.b"));
        assert_eq!(of(other("Invalid Subject \"a.b\"")), None);
        assert_eq!(of(Event::Disconnected), None);
    }

    #[tokio::test]
    async fn a_login_for_those_who_look_is_refused_and_not_shown() {
        let (node, pool) = ("n1".parse().unwrap(), "default".parse().unwrap());
        let redis = "redis://127.0.0.1:9".to_owned();
        let settings = Settings::new(Nats::at("nats://127.0.0.1:9"), redis, node, pool);
        let split = ["http://ann:s3".to_owned(), "cret@host:8222".to_owned()];
        let [found] = &syncs(&settings, &split, "").await[..] else { panic!("one finding") };
        assert_eq!(found.verdict, Verdict::Unknown);
        assert!(found.found.contains("it has a login"), "{found:?}");
        assert!(!format!("{found:?}").contains("s3"), "{found:?}");
    }
}
