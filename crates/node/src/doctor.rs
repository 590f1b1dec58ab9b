//! Checks everything that a node would use, as the node would: with its addresses and its logins.
//!
//! A fault of one server does not keep the others from being checked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_nats::{Client, Event, ServerError, ServerInfo};
use futures::StreamExt as _;
use futures::future::join_all;
use tenure_cluster::doctor::monitor::Jsz;
pub use tenure_cluster::doctor::nodes::SignsOfLife;
use tenure_cluster::doctor::server::Let;
use tenure_cluster::doctor::store::{self, StoreClaim};
pub use tenure_cluster::doctor::{Finding, Verdict, clock, latency};
use tenure_cluster::doctor::{limits, log, logins, monitor, nodes, redis, server};
use tenure_cluster::request::RequestError;
use tenure_core::id::SessionId;
use tenure_wire::bus::address::login;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{sleep, timeout};

use crate::bus::{Fault, NoConnection, connect_with, options};
use crate::settings::{Login, Nats, Settings, without_secrets};

/// How long a server may take to report what it refuses.
const REFUSAL: Duration = Duration::from_secs(3);
/// How long such a report may take to come through the client library, which handles it in a task
/// of its own.
const HANDED_ON: Duration = Duration::from_millis(200);
/// The payload that is sent where it should be refused. For JetStream it is no valid request: it
/// changes nothing even if it is let through to an existing stream.
const NO_REQUEST: &str = "doctor";

/// The result of the checks.
#[derive(Debug, Default)]
pub struct Examination {
    /// The findings, in the order in which they should be read.
    pub findings: Vec<Finding>,
    /// Sessions that have leases.
    pub sessions: BTreeSet<SessionId>,
    /// Which node has the lease of which partition, according to this Redis.
    pub holders: BTreeMap<u32, String>,
    /// Which nodes live, according to this Redis; none: it did not say.
    pub signs: Option<SignsOfLife>,
    /// Nodes that have a connection to NATS; none: no monitoring port said it.
    pub connected: Option<BTreeSet<String>>,
    /// NATS or Redis did not answer.
    pub is_cut_off: bool,
}

impl Examination {
    /// Whether a server, `nats` or `redis`, could not be examined.
    pub fn is_away(&self, server: &str) -> bool {
        self.findings.iter().any(|one| one.check == server && one.verdict == Verdict::Bad)
    }
}

/// One of the connections of a node, and the events that its server causes.
struct Connected {
    client: Client,
    events: UnboundedReceiver<Event>,
}

/// Checks the servers that a node with these settings would use. `monitors`: the monitoring
/// addresses of the NATS servers, instead of the usual port beside the first.
pub async fn examine(settings: &Settings, monitors: &[String]) -> Examination {
    let mut examined = Examination::default();
    let of_log = nats(&mut examined, settings, monitors).await;
    let name = settings.cluster.key_prefix();
    let of_redis = redis::examine(&settings.redis, &name, settings.partitions).await;
    let is_away = |finding: &Finding| finding.check == "redis" && finding.verdict == Verdict::Bad;
    examined.is_cut_off |= of_redis.findings.iter().any(is_away);
    examined.findings.extend(of_redis.findings);
    let of_cluster =
        store::judge(settings.cluster.as_str(), &settings.redis, of_log, of_redis.store);
    examined.findings.insert(0, of_cluster);
    (examined.sessions, examined.holders) = (of_redis.sessions, of_redis.holders);
    examined.signs = of_redis.signs;
    examined
}

/// Checks NATS and the log in it. Answers which store the log belongs to.
async fn nats(examined: &mut Examination, settings: &Settings, monitors: &[String]) -> StoreClaim {
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
                examined.findings.push(no_connection(&at, part, &why));
                return StoreClaim::Unknown;
            }
        }
    }
    let [journal, control, intake] = &mut parts[..] else { return StoreClaim::Unknown };
    let info = journal.client.server_info();
    examined.findings.push(Finding::good("nats", format!("{at} lets a node in")));
    let is_near = is_near(&settings.nats.url);
    examined.findings.extend(server::judge(&info, is_near));
    examined.findings.extend(passwords(&settings.nats, is_near));
    if !info.auth_required {
        examined.findings.push(server::rights(Let::default()));
    } else {
        let tried = [
            try_rights(journal, settings, of_journal(settings)).await,
            try_rights(control, settings, of_control(settings)).await,
            try_rights(intake, settings, of_intake(settings)).await,
        ];
        let [journal, control, intake] = tried.each_ref().map(|tried| Some(tried.as_ref()?.is_let));
        examined.findings.push(server::rights(Let { asks: true, control, intake, journal }));
        let lacks = tried.map(|tried| Some(tried?.lacks));
        examined.findings.push(server::needs(&lacks));
    }
    let cluster = tenure_cluster::LogSettings {
        name: settings.cluster.as_str().into(),
        partitions: settings.partitions,
        replicas: settings.replicas,
        ..tenure_cluster::LogSettings::default()
    };
    let log = log::examine(&journal.client, &cluster, info.cluster.is_some()).await;
    examined.findings.extend(log.findings);
    let replicas = log.kept.unwrap_or(settings.replicas);
    examined.findings.extend(syncs(settings, monitors, &info, replicas).await);
    examined.findings.extend(bounds(settings, monitors, &info).await);
    examined.connected = connected(settings, monitors, &info).await;
    log.store
}

/// Judges the passwords with which a node's users were let in.
fn passwords(nats: &Nats, is_near: bool) -> Option<Finding> {
    let in_address = login(&nats.url);
    let of = |part: &'static str, login: &Login| match login {
        Login::Password { user, password } => Some((part, user.clone(), password.clone())),
        Login::Address => in_address.clone().map(|login| match login.password {
            Some(password) => (part, login.user, password),
            None => (part, String::new(), login.user), // A login by token has no password.
        }),
        Login::File(_) => None,
    };
    let parts = [("journal", &nats.journal), ("control", &nats.control), ("intake", &nats.intake)];
    let all: Vec<_> = parts.iter().filter_map(|(part, login)| of(part, login)).collect();
    let logins: Vec<_> = all
        .iter()
        .map(|(part, user, password)| logins::PartLogin { part, user, password })
        .collect();
    logins::passwords(&logins, is_near)
}

/// Why a part of a node has no connection, and what to do about it.
fn no_connection(at: &str, part: &str, NoConnection { fault, why }: &NoConnection) -> Finding {
    match fault {
        Fault::Away => Finding::bad(
            "nats",
            format!("{at} cannot be reached: {why}"),
            "see that it runs, and that --nats names it",
        ),
        Fault::Denied => Finding::bad(
            "nats",
            format!("{at} does not let {part} in: {why}"),
            "see that user and password are its own",
        ),
        Fault::Settings => Finding::bad(
            "nats",
            format!("there is no connection to {at} for {part}: {why}"),
            "see that --nats is an address of NATS, and that both sides agree on TLS: the options for \
             certificates say whom a node trusts",
        ),
    }
}

async fn connect(
    settings: &Settings,
    login: &Login,
    part: &str,
) -> Result<Connected, NoConnection> {
    let (tell, events) = unbounded_channel();
    let options = options(&settings.nats, login, &settings.node, part).await?;
    let options = options.event_callback(move |event| {
        let _ = tell.send(event); // The receiver may have gone.
        async {}
    });
    let client = connect_with(options, &settings.nats).await?;
    Ok(Connected { client, events })
}

/// A subject of the log that no partition has.
fn write(settings: &Settings) -> String {
    format!("{}.wal.doctor", settings.cluster.key_prefix())
}

/// The subject to change, empty or delete a stream that does not exist.
fn change(settings: &Settings, verb: &str) -> String {
    format!("$JS.API.STREAM.{verb}.{}_DOCTOR", settings.cluster)
}

/// The rights to try with a connection.
struct Rights {
    /// Subjects to which the connection must not be able to send.
    forbidden: Vec<String>,
    /// Subjects to which it must be able to send; nobody listens there.
    says: Vec<String>,
    /// Subjects to which it must be able to subscribe; nobody sends there.
    hears: Vec<String>,
}

/// The result of trying these rights.
struct RightsTrial {
    /// The server let something through that it must refuse.
    is_let: bool,
    /// What the server refused and must not.
    lacks: Vec<String>,
}

/// The journal's user writes the log and its checkpoints, makes their streams and reads them.
fn of_journal(settings: &Settings) -> Rights {
    let forbidden = ["UPDATE", "PURGE", "DELETE"].map(|verb| change(settings, verb));
    let stream = format!("{}_DOCTOR", settings.cluster);
    let asks = ["STREAM.CREATE", "STREAM.INFO", "STREAM.MSG.GET", "DIRECT.GET", "CONSUMER.CREATE"];
    let asks = asks.map(|ask| format!("$JS.API.{ask}.{stream}"));
    Rights {
        forbidden: forbidden.into(),
        says: [write(settings)].into_iter().chain(asks).collect(),
        hears: vec![format!("_INBOX.scheduler.{}.journal.doctor", settings.node)],
    }
}

/// The user that speaks to workers and to other nodes.
fn of_control(settings: &Settings) -> Rights {
    let (root, inbox) = (settings.cluster.root(), format!("_INBOX.system.{}", settings.node));
    Rights {
        forbidden: write_or_delete(settings),
        says: vec![
            "_INBOX.worker.doctor".into(),
            format!("{root}.node.doctor.doctor"),
            format!("{root}.system.doctor"),
            format!("{inbox}.say"),
        ],
        hears: vec![
            "_INBOX.gone.doctor".into(),
            format!("{root}.worker.*.*.*.doctor"),
            format!("{root}.worker.*.*.*.report.doctor"),
            format!("{root}.system.*.*.cmd.doctor"),
            format!("{inbox}.hear"),
        ],
    }
}

/// The user that speaks to callers.
fn of_intake(settings: &Settings) -> Rights {
    let (root, roles) = (settings.cluster.root(), ["orchestrator", "observer"]);
    let answers = roles.map(|role| format!("_INBOX.{role}.doctor"));
    Rights {
        forbidden: write_or_delete(settings),
        says: answers.into_iter().chain([format!("{root}.event.doctor")]).collect(),
        hears: roles.map(|role| format!("{root}.{role}.*.*.cmd.doctor")).into(),
    }
}

fn write_or_delete(settings: &Settings) -> Vec<String> {
    vec![write(settings), change(settings, "PURGE"), change(settings, "DELETE")]
}

/// Tries what a connection may do; none: it could not be tried.
///
/// The server reports only what it refuses, and handles what a connection sends in order. So one
/// last message follows that the server answers whatever the rights are: by sending it back, or by
/// refusing that too. With the shipped roles, `control` gets it back; `journal` and `intake` may
/// not send to any inbox of their own.
async fn try_rights(
    connected: &mut Connected,
    settings: &Settings,
    rights: Rights,
) -> Option<RightsTrial> {
    let last = format!("_INBOX.system.{}.doctor", settings.node);
    let refused = timeout(REFUSAL, refusals(connected, &rights, &last)).await.ok()??;
    let Rights { forbidden, says, hears } = rights;
    let is_let = forbidden.iter().any(|subject| !refused.contains(subject));
    let needed = says.into_iter().chain(hears);
    Some(RightsTrial {
        is_let,
        lacks: needed.filter(|subject| refused.contains(subject)).collect(),
    })
}

/// What the server refuses of what is tried. `last` is the subject of the last message, on which
/// nobody else listens.
async fn refusals(connected: &mut Connected, rights: &Rights, last: &str) -> Option<Vec<String>> {
    let Connected { client, events } = connected;
    for subject in rights.forbidden.iter().chain(&rights.says) {
        client.publish(subject.clone(), NO_REQUEST.into()).await.ok()?;
    }
    let mut listening = Vec::new(); // Held until the refusals are known.
    for subject in &rights.hears {
        listening.push(client.subscribe(subject.clone()).await.ok()?);
    }
    let mut back = client.subscribe(last.to_owned()).await.ok()?;
    client.publish(last.to_owned(), NO_REQUEST.into()).await.ok()?;
    let mut found = Vec::new();
    let told = async {
        loop {
            match events.recv().await? {
                Event::Disconnected => return None, // The refusals may be lost with the connection.
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
    drop(listening);
    is_over.map(|()| found)
}

/// The subject on which the server refuses to let a connection send or listen, if the event is such
/// a refusal.
fn refused(event: &Event) -> Option<&str> {
    let Event::ServerError(ServerError::Other(why)) = event else { return None };
    let (what, subject) = why.split_once('"')?;
    let is_refused = what.to_lowercase().contains("permissions violation");
    subject.split('"').next().filter(|_| is_refused)
}

/// When each server syncs, asked at the given monitoring addresses, or at the usual port beside the
/// NATS server.
async fn syncs(
    settings: &Settings,
    monitors: &[String],
    info: &ServerInfo,
    replicas: usize,
) -> Vec<Finding> {
    // The finding shows none of them: a password with a comma would be split over several.
    if monitors.iter().any(|monitor| monitor.contains('@')) {
        let why = "--nats-monitor has a login, and NATS asks for none there: leave it out";
        return vec![monitor::unknown(why)];
    }
    let is_usual = monitors.is_empty();
    let asked = asked_at(settings, monitors).into_iter().map(async |monitor| {
        let jsz = monitor::ask(&monitor).await;
        let is_other = |jsz: &Jsz| is_usual && !is_of(jsz, info);
        let jsz = match jsz {
            Ok(jsz) if is_other(&jsz) => Err(RequestError::failed("that is another server")),
            answer => answer,
        };
        (monitor, jsz)
    });
    monitor::judge(&join_all(asked).await, replicas)
}

/// The monitoring addresses: those that are given, or the usual ones.
fn asked_at(settings: &Settings, monitors: &[String]) -> Vec<String> {
    match monitors {
        [] => monitor::beside(&settings.nats.url).into_iter().collect(),
        given => given.to_vec(),
    }
}

/// What each server bounds; none if none says it, as [`syncs`] tells then.
async fn bounds(settings: &Settings, monitors: &[String], info: &ServerInfo) -> Option<Finding> {
    if monitors.iter().any(|monitor| monitor.contains('@')) {
        return None;
    }
    let asked = asked_at(settings, monitors);
    let answers = join_all(asked.iter().map(|monitor| limits::ask(monitor))).await;
    let is_it = |varz: &limits::Varz| !monitors.is_empty() || varz.server_id == info.server_id;
    limits::judge(&answers.into_iter().flatten().filter(is_it).collect::<Vec<_>>())
}

/// The boots of nodes that have a connection to NATS; none unless all servers say it.
async fn connected(
    settings: &Settings,
    monitors: &[String],
    info: &ServerInfo,
) -> Option<BTreeSet<String>> {
    if monitors.iter().any(|monitor| monitor.contains('@')) {
        return None;
    }
    let asked = asked_at(settings, monitors);
    let answers = join_all(asked.iter().map(|monitor| nodes::connections(monitor))).await;
    let is_all = !asked.is_empty() && (!monitors.is_empty() || info.cluster.is_none());
    let mut all = BTreeSet::new();
    for answer in answers {
        let (server, names) = answer.ok().filter(|_| is_all)?;
        if monitors.is_empty() && server != info.server_id {
            return None;
        }
        all.extend(names.iter().filter_map(|name| boot_of(name)).map(str::to_owned));
    }
    Some(all)
}

/// The boot of a node whose connection is called like this.
fn boot_of(connection: &str) -> Option<&str> {
    let (boot, part) = connection.strip_prefix("tenure-")?.rsplit_once('-')?;
    ["journal", "control", "intake"].contains(&part).then_some(boot)
}

/// Whether this is the server that was reached, or one of its cluster.
fn is_of(jsz: &Jsz, info: &ServerInfo) -> bool {
    let cluster = jsz.meta_cluster.as_ref().map(|cluster| &cluster.name);
    jsz.server_id == info.server_id || (cluster.is_some() && cluster == info.cluster.as_ref())
}

/// Whether all servers run on this machine.
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
    fn a_connection_names_its_node() {
        assert_eq!(boot_of("tenure-n1-86b8dc7e-control"), Some("n1-86b8dc7e"));
        assert_eq!([boot_of("tenure-worker-w1"), boot_of("nats-cli")], [None, None]);
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
        let found = &syncs(&settings, &split, &ServerInfo::default(), 1).await[..];
        let [found] = found else { panic!("one finding") };
        assert_eq!(found.verdict, Verdict::Unknown);
        assert!(found.found.contains("has a login"), "{found:?}");
        assert!(!format!("{found:?}").contains("s3"), "{found:?}");
    }
}
