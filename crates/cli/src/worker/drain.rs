//! `tenure worker drain`: asks workers to leave, and waits until they have.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use smol_str::SmolStr;
use tenure_core::id::{AgentId, PoolId};
use tenure_sdk::client::passes;
use tenure_sdk::nats::NatsClient;
use tenure_sdk::nats::client::Gather;
use tenure_wire::bus::V;
use tenure_wire::bus::operate::{Drain, Drained, NodeFacts};
use tenure_wire::bus::subject::Token;
use tokio::time::{Instant, sleep, timeout};

use super::facts::{WorkerSums, merged};
use crate::answer::{Exit, Failure, Shape, human, output};
use crate::place::{FleetArgs, exit_without};
use crate::runtime::unless_stopped;

/// Tell workers to leave.
#[derive(Debug, Clone, Args)]
pub(crate) struct DrainArgs {
    /// The worker's name, as PRINCIPAL (all that run under it) or PRINCIPAL.BOOT (one process)
    #[arg(value_name = "WORKER", required_unless_present = "pool")]
    worker: Option<String>,

    /// Every worker of this pool
    #[arg(long, value_name = "POOL")]
    pool: Option<PoolId>,

    /// After so long, such as 5m, they stop what still runs and give it back, for others to run; 0s is --force
    #[arg(long, value_name = "TIME", value_parser = within)]
    within: Option<Duration>,

    /// They stop what runs at once and give it back, for others to run
    #[arg(long, conflicts_with = "within")]
    force: bool,

    /// Wait until they have left; exit code 6 if they have not
    #[arg(long, short = 'w')]
    wait: bool,

    /// Give up waiting after so many seconds [default: 20 more than --within, 20 with --force, else no limit]
    #[arg(long, value_name = "SECONDS", requires = "wait")]
    timeout: Option<u64>,

    #[command(flatten)]
    fleet: FleetArgs,
}

/// How long workers have to stop their handlers and to give Steps back, when the time is over: twice
/// the grace of a handler.
const STOPPING: Duration = Duration::from_secs(20);

/// A worker that is only connecting again has no link for a moment: it has left if no node names it for
/// so long.
const AWAY: Duration = Duration::from_secs(2);

/// The pause between two looks at the workers.
const LOOK: Duration = Duration::from_millis(250);

/// How many workers a line names.
const NAMED_MAX: usize = 5;

#[derive(Serialize)]
struct DrainAnswer {
    workers: Vec<AgentId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_partitions: Vec<u32>,
}

pub(super) fn run(args: &DrainArgs) -> Result<Exit, Failure> {
    let which = args.which()?;
    args.fleet.ask_nats(async |client| {
        let heard = client.drain(&which).await?;
        let exit = exit_without(&heard.missing_partitions);
        let mut workers: Vec<AgentId> =
            heard.answers.into_iter().flat_map(|node: Drained| node.workers).collect();
        workers.sort_unstable();
        workers.dedup();
        if workers.is_empty() && exit == Exit::Ok {
            return Err(Failure::new(Exit::NotFound, "there is no such worker")
                .help("`tenure worker list` shows those that there are"));
        }
        let told = DrainAnswer { workers, missing_partitions: heard.missing_partitions };
        args.tell(&told)?;
        if !args.wait || told.workers.is_empty() {
            return Ok(exit);
        }
        let said = || STOPPED.to_owned();
        let left = unless_stopped(said, args.until_gone(&client, &told.workers)).await?;
        Ok(left.max(exit))
    })
}

fn within(text: &str) -> Result<Duration, String> {
    let within = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if within > Duration::from_millis(Drain::WITHIN_MS_MAX) {
        return Err("it is at most `30d`".to_owned());
    }
    // Milliseconds are sent, and 0 means force: a shorter time than 1 ms counts as 1 ms.
    let is_forced = within.is_zero();
    Ok(within.max(Duration::from_millis(u64::from(!is_forced))))
}

impl DrainArgs {
    fn which(&self) -> Result<Drain, Failure> {
        let (principal, boot) = match &self.worker {
            Some(name) => {
                let (principal, boot) = match name.split_once('.') {
                    Some((principal, boot)) => (principal, Some(boot)),
                    None => (name.as_str(), None),
                };
                let token = |text: &str| Token::new(text).map_err(tenure_core::Rejection::from);
                let boot = boot.map(token).transpose()?;
                (Some(token(principal)?), boot)
            }
            None => (None, None),
        };
        let name = |token: Token| SmolStr::new(token.as_str());
        let (principal, boot) = (principal.map(name), boot.map(name));
        let within_ms = self.time().map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        Ok(Drain { v: V, pool: self.pool.clone(), principal, boot, within_ms })
    }

    /// After which time workers stop what still runs.
    fn time(&self) -> Option<Duration> {
        if self.force { Some(Duration::ZERO) } else { self.within }
    }

    fn tell(&self, told: &DrainAnswer) -> Result<(), Failure> {
        let how = match self.time() {
            None => "leaves when it is done".to_owned(),
            Some(time) if time.is_zero() => "gives back what it has, and leaves".to_owned(),
            Some(time) => {
                let time = human::limit(time);
                format!("leaves when it is done, or gives back what still runs after {time}")
            }
        };
        self.fleet.output.answer(told, Shape::many("workers", "worker_id"), || {
            told.workers.iter().try_for_each(|worker| {
                output::print(format_args!("{worker} takes no more, and {how}\n"))
            })
        })?;
        Ok(())
    }

    /// Waits until no node has a link with any of these workers, and tells whom it waits for. Nodes
    /// that do not answer are asked again for as long as the patience lasts.
    async fn until_gone(&self, client: &NatsClient, told: &[AgentId]) -> Result<Exit, Failure> {
        let most = match (self.timeout, self.time()) {
            (Some(seconds), _) => Duration::from_secs(seconds),
            (None, Some(time)) => time + STOPPING,
            (None, None) => Duration::MAX,
        };
        let mut waits_for = listed(told.iter().map(AgentId::to_string));
        let gone = async {
            let mut heard = Instant::now();
            let (mut is_told, mut away) = (false, None);
            loop {
                match staying(client, told).await? {
                    Some(staying) if staying.is_empty() => {
                        heard = Instant::now();
                        if away.get_or_insert(heard).elapsed() >= AWAY {
                            return Ok::<(), Failure>(());
                        }
                    }
                    Some(staying) => {
                        (heard, away) = (Instant::now(), None);
                        let now = listed(staying.iter().map(with_steps));
                        if !is_told || now != waits_for {
                            output::say(format_args!("waiting for {now}"));
                            (waits_for, is_told) = (now, true);
                        }
                    }
                    None if heard.elapsed() >= client.patience() => return Err(silent()),
                    None => {}
                }
                sleep(LOOK).await;
            }
        };
        let waited = timeout(most, gone).await;
        let late = || {
            let time = human::limit(most);
            let message = format!("they have not left within {time}: {waits_for}");
            Failure::new(Exit::Unavailable, message).help(SOONER)
        };
        waited.map_err(|_| late())??;
        output::say("all of them have left");
        Ok(Exit::Ok)
    }
}

/// What a wait says that a signal stops.
const STOPPED: &str = "stopped; the workers leave without this command; `tenure worker list` shows \
     those that are still there";

/// Help: how to have workers leave that take too long.
const SOONER: &str = "they leave without this command; to have them leave sooner, repeat it with a \
     shorter --within, or with --force";

fn silent() -> Failure {
    let message = "not all nodes answer which workers they have";
    Failure::new(Exit::Unavailable, message).help("`tenure worker list` shows those that there are")
}

/// Those of these workers with which a node has a link. None if that is not known, as some nodes do
/// not answer, or have more workers than they name.
async fn staying(
    client: &NatsClient,
    told: &[AgentId],
) -> Result<Option<Vec<WorkerSums>>, Failure> {
    match client.nodes().await {
        Ok(heard) => Ok(still_there(&heard, told)),
        Err(refused) if passes(&refused) => Ok(None),
        Err(refused) => Err(refused.into()),
    }
}

fn still_there(heard: &Gather<NodeFacts>, told: &[AgentId]) -> Option<Vec<WorkerSums>> {
    if !heard.missing_partitions.is_empty() || heard.answers.iter().any(|node| node.more) {
        return None;
    }
    let told: BTreeSet<&str> = told.iter().map(AgentId::as_str).collect();
    let mut all = merged(heard);
    all.retain(|worker| told.contains(&*name(worker)));
    Some(all)
}

fn name(worker: &WorkerSums) -> String {
    format!("{}.{}", worker.principal, worker.boot)
}

/// Its name, and how much it has not given back yet.
fn with_steps(worker: &WorkerSums) -> String {
    match worker.running {
        Some(count) => {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            format!("{} ({})", name(worker), human::plural(count, "step"))
        }
        None => name(worker),
    }
}

/// The first of them, and how many others there are.
fn listed(all: impl ExactSizeIterator<Item = String>) -> String {
    let others = all.len().saturating_sub(NAMED_MAX);
    let mut named: Vec<String> = all.take(NAMED_MAX).collect();
    if others > 0 {
        named.push(format!("and {} more", human::len(others)));
    }
    named.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::idle;

    /// docs/protocol.md, `drain`: the time goes from 0 to 30 days.
    #[test]
    fn the_time_to_leave_has_bounds() {
        assert_eq!(within("0s"), Ok(Duration::ZERO));
        assert_eq!(within("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(within("30d"), Ok(Duration::from_millis(Drain::WITHIN_MS_MAX)));
        assert!(within("30d 1ms").unwrap_err().contains("30d"));
        assert!(within("soon").is_err());
    }

    /// docs/operations.md: a worker has left when all nodes answer and none names it.
    #[test]
    fn a_worker_has_left_when_all_nodes_say_so() {
        let told: [AgentId; 2] = ["w.b1", "w.b2"].map(|id| id.parse().unwrap());
        let node = |workers| NodeFacts { workers, ..NodeFacts::default() };
        let (here, other) = (idle("p", "w", "b2"), idle("p", "w", "b3"));
        let mut heard = Gather {
            answers: vec![node(vec![other]), node(vec![here])],
            missing_partitions: Vec::new(),
        };
        let names = |heard: &Gather<NodeFacts>| {
            still_there(heard, &told).map(|all| all.iter().map(name).collect::<Vec<_>>())
        };
        assert_eq!(names(&heard), Some(vec!["w.b2".to_owned()]));
        heard.answers.truncate(1);
        assert_eq!(names(&heard), Some(Vec::new()));
        heard.answers[0].more = true;
        assert_eq!(names(&heard), None, "a node has more workers than it names");
        heard.answers[0].more = false;
        heard.missing_partitions = vec![3];
        assert_eq!(names(&heard), None, "a node does not answer");
    }

    #[test]
    fn a_line_names_a_few_workers() {
        let names = |count: usize| listed((0..count).map(|n| format!("w{n}.b")));
        assert_eq!(names(2), "w0.b, w1.b");
        assert_eq!(names(5), "w0.b, w1.b, w2.b, w3.b, w4.b");
        assert_eq!(names(7), "w0.b, w1.b, w2.b, w3.b, w4.b, and 2 more");
        let busy = WorkerSums { running: Some(1), ..one("w") };
        assert_eq!([busy, one("x")].map(|worker| with_steps(&worker)), ["w.b (1 step)", "x.b"]);
    }

    /// A worker of which nodes say nothing.
    fn one(principal: &str) -> WorkerSums {
        let answers =
            vec![NodeFacts { workers: vec![idle("p", principal, "b")], ..NodeFacts::default() }];
        let mut all = merged(&Gather { answers, missing_partitions: Vec::new() });
        all.remove(0)
    }
}
