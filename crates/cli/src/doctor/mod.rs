//! `tenure doctor`: checks whether NATS, Redis and the nodes of a cluster are set up as they must
//! be, and says what to change.

mod audit;
mod exposed;
mod gateways;
mod judge;
mod silent;
mod work;

use std::iter;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use futures::{StreamExt as _, stream};
use serde::Serialize;
use tenure_core::id::SessionId;
use tenure_node::doctor::{Examination, Finding, Verdict, examine, latency};
use tenure_sdk::http::HttpSettings;
use tenure_sdk::nats::{NatsClient, NatsSettings};
use tenure_wire::bus::subject::Token;

use self::audit::audit;
use self::gateways::gateways;
use self::judge::{SESSIONS, leases, nodes, open_to_all};
use self::silent::Ground;
use self::work::work;
use crate::answer::{
    Exit, Failure, Format, Shape, Sheet, Stream, Tone, human, output, text, toned,
};
use crate::lease::{self, compare};
use crate::place::{ClusterUser, Looker};
use crate::runtime::one_thread;
use crate::serve::NodeArgs;

/// How long to wait for the answer of a node.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often to repeat a measurement.
const TIMES: usize = 5;
/// Answers of a node that take longer than the first time are worth a look, and those above the
/// second are bad.
const ANSWER: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Look at what a cluster runs on.
///
/// It is told what `tenure serve` is told, and looks as a node would: at NATS and its log, at Redis,
/// at clocks, and at who owns what. Then it asks the nodes themselves, as an observer does. It changes
/// nothing: one small message among the checkpoints says how long it takes to store one.
///
/// Exit code 0: nothing is bad; 1: something is; 2: an option cannot be used; 6: NATS or Redis did not answer.
#[derive(Debug, Clone, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    node: NodeArgs,

    /// Where NATS servers answer those who look, separated by commas [default: port 8222 of each]
    #[arg(
        long,
        value_name = "URL",
        env = "TENURE_NATS_MONITOR",
        hide_env_values = true,
        value_delimiter = ','
    )]
    nats_monitor: Vec<String>,

    /// The same NATS with the login of an observer, to ask nodes [default: the address of --nats]
    #[arg(long, value_name = "URL", env = "TENURE_CLIENT_NATS_URL", hide_env_values = true)]
    client_nats: Option<String>,

    /// A credentials file for it
    #[arg(long, value_name = "FILE", env = "TENURE_CLIENT_CREDS")]
    client_creds: Option<PathBuf>,

    /// Gateways to compare, too: http://HOST:PORT, https://HOST:PORT or unix:PATH, separated by commas
    #[arg(long, value_name = "URL", env = "TENURE_URL", hide_env_values = true)]
    gateways: Option<String>,

    /// The token that says to the gateways who asks; safer in the environment
    #[arg(long, value_name = "TOKEN", env = "TENURE_TOKEN", hide_env_values = true)]
    token: Option<String>,

    /// The certificate of the authority that signed the gateways' own, in PEM
    #[arg(long, value_name = "FILE", env = "TENURE_HTTP_CA")]
    http_ca: Option<PathBuf>,

    /// Who asks the nodes: what the server lets this in as
    #[arg(long, value_name = "NAME", env = "TENURE_PRINCIPAL", default_value = "cli")]
    name: Token,

    /// What the server knows it as
    #[arg(long, value_enum, value_name = "ROLE", env = "TENURE_ROLE", default_value = "observer")]
    role: Looker,

    /// Session to look into, beside those that have leases
    #[arg(long, value_name = "NAME", env = "TENURE_SESSION", default_value = "default")]
    session: SessionId,

    /// Data directory of `tenure run` or `tenure dev` at which to look, too [default: .tenure, if it is there]
    #[arg(long, value_name = "DIR", env = "TENURE_DATA")]
    data: Option<PathBuf>,

    /// Look for some seconds, too, whether nodes keep what is left over of work that has ended
    #[arg(long)]
    audit: bool,

    /// How to write the answer
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT", default_value_t)]
    output: Format,
}

impl DoctorArgs {
    /// How to reach the gateways, if any are named.
    fn of_gateways(&self) -> Option<HttpSettings> {
        let usual = HttpSettings::new(self.gateways.as_deref()?);
        Some(HttpSettings { token: self.token.clone(), ca: self.http_ca.clone(), ..usual })
    }
}

#[derive(Debug, Serialize)]
struct DoctorReport {
    /// Nothing is bad.
    ok: bool,
    findings: Vec<Finding>,
}

pub(crate) fn run(args: DoctorArgs) -> Result<Exit, Failure> {
    let settings = args.node.clone().into_settings()?;
    let mut exposed_settings = args.node.exposed()?;
    exposed_settings.secrets.extend(args.client_creds.clone().map(|path| ("client-creds", path)));
    let of_machine =
        exposed::judge(&exposed_settings, exposed::data_dir(args.data.as_ref()).as_deref());
    if Stream::Stderr.is_terminal() {
        output::say("looking; this takes some seconds");
    }
    let runtime = one_thread()?;
    let (findings, is_cut_off) = runtime.block_on(async {
        let of_gateways = match args.of_gateways() {
            Some(settings) => {
                let mut found = gateways(&settings).await?;
                found.extend(exposed::gateways(&settings).await);
                found
            }
            None => Vec::new(),
        };
        let examined = examine(&settings, &args.nats_monitor).await;
        let ground = Ground::of(&examined);
        let Examination { mut findings, sessions, is_cut_off, .. } = examined;
        let busy = sessions.len();
        let others = sessions.into_iter().filter(|session| *session != args.session);
        let sessions: Vec<SessionId> = iter::once(args.session.clone()).chain(others).collect();
        let url = args.client_nats.clone().unwrap_or_else(|| settings.nats.url.clone());
        let asking = NatsSettings {
            credentials: args.client_creds.clone(),
            ca: settings.nats.ca.clone(),
            cluster: settings.cluster.clone(),
            name: format!("tenure-{}", args.name),
            request_timeout: PATIENCE,
            patience: PATIENCE,
            ..NatsSettings::new(url)
        };
        findings.extend(ask(&asking, &args, (&sessions, busy), &ground).await);
        findings.extend(of_gateways);
        findings.extend(of_machine);
        Ok::<_, Failure>((findings, is_cut_off))
    })?;
    let is_bad = findings.iter().any(|finding| finding.verdict == Verdict::Bad);
    let report = DoctorReport { ok: !is_bad, findings };
    args.output.answer(&report, Shape::many("findings", "check"), || tell(&report.findings))?;
    Ok(match (is_cut_off, is_bad) {
        (true, _) => Exit::Unavailable,
        (false, true) => Exit::TaskFailed,
        (false, false) => Exit::Ok,
    })
}

/// Asks the nodes of the cluster, in some sessions. `busy`: how many sessions have leases.
async fn ask(
    settings: &NatsSettings,
    args: &DoctorArgs,
    (sessions, busy): (&[SessionId], usize),
    ground: &Ground,
) -> Vec<Finding> {
    let caller = match ClusterUser::looking(settings, args.role, args.name.clone()).await {
        Ok(caller) => caller,
        Err(failure) => {
            let mut findings = vec![ground.nobody("nodes", &failure)];
            findings.extend(ground.silent(None));
            return findings;
        }
    };
    let (most, at_once) = SESSIONS;
    let (sessions, left_out) = sessions.split_at(sessions.len().min(most));
    let looks = sessions.iter().map(|session| look(&caller, session));
    let mut looked: Vec<SessionCheck<'_>> = stream::iter(looks).buffered(at_once).collect().await;
    let heard = looked.iter_mut().find_map(|one| Some((one.session, one.client.take()?)));
    let mut findings = match heard {
        Some((session, client)) => {
            let mut findings = hear((&caller, session), &client, ground, busy).await;
            if args.audit {
                findings.extend(audit(&client).await);
            }
            findings
        }
        None => {
            let mut findings: Vec<Finding> = looked
                .first()
                .and_then(|one| one.compared.as_ref().err())
                .map(|failure| ground.nobody("nodes", failure))
                .into_iter()
                .collect();
            findings.extend(ground.silent(None));
            findings
        }
    };
    let compared = looked.into_iter().map(|one| (one.session, one.compared)).collect();
    findings.extend(leases(compared, left_out, ground));
    findings
}

/// A session that was checked.
struct SessionCheck<'a> {
    session: &'a SessionId,
    /// The client of the session, if a node answered.
    client: Option<NatsClient>,
    compared: Result<lease::LeaseAudit, Failure>,
}

async fn look<'a>(caller: &ClusterUser, session: &'a SessionId) -> SessionCheck<'a> {
    match caller.nats(session).await {
        Ok(client) => {
            let compared = compare(&client).await;
            SessionCheck { session, client: Some(client), compared }
        }
        Err(failure) => SessionCheck { session, client: None, compared: Err(failure) },
    }
}

/// Measures how fast a node answers, and collects the answers of all nodes, if the login may ask
/// them.
async fn hear(
    (caller, session): (&ClusterUser, &SessionId),
    client: &NatsClient,
    ground: &Ground,
    busy: usize,
) -> Vec<Finding> {
    let mut times = Vec::new();
    while times.len() < TIMES {
        let begun = Instant::now();
        if caller.nats(session).await.is_err() {
            break;
        }
        times.push(begun.elapsed());
    }
    let advice = "see what else its machine does, and how far it is";
    let mut findings =
        vec![latency("nodes.latency", "an answer of a node", &mut times, ANSWER, advice)];
    let begun = human::now();
    let heard = client.nodes().await;
    let open = heard.as_ref().ok().and_then(|heard| open_to_all(&heard.answers, busy));
    let of_work = heard.as_ref().map(work).unwrap_or_default();
    let silent = ground.silent(heard.as_ref().ok().map(|heard| &heard.answers[..]));
    findings.extend(nodes(heard, begun..=human::now(), &ground.holders));
    findings.extend(silent);
    findings.extend(of_work);
    findings.extend(open);
    findings
}

/// Prints the findings for people, in the order of the checks, with advice on those that are not
/// good.
fn tell(findings: &[Finding]) -> Result<(), Failure> {
    let mut sheet = Sheet::new(&["", "CHECK", "FOUND"]);
    for finding in findings {
        let (word, tone) = match finding.verdict {
            Verdict::Good => ("ok", Tone::Good),
            Verdict::Unknown => ("?", Tone::Faint),
            Verdict::Caution => ("look", Tone::Caution),
            Verdict::Bad => ("BAD", Tone::Bad),
        };
        sheet.row([toned(word, tone), toned(finding.check, Tone::Strong), text(&finding.found)]);
        if let Some(advice) = &finding.advice {
            sheet.row([text(""), text(""), toned(format_args!("→ {advice}"), Tone::Faint)]);
        }
    }
    sheet.print()?;
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    output::say(format_args!(
        "{} checked: {} bad, {} to look at, {} unknown",
        human::plural(findings.len(), "thing"),
        count(Verdict::Bad),
        count(Verdict::Caution),
        count(Verdict::Unknown),
    ));
    Ok(())
}
