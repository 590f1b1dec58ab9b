//! The same programs while what they run on breaks: a scheduler is killed and started again, so is NATS,
//! and Redis forgets everything; each in the midst of them, and again in another order, as the seeds say.

use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::UnboundedReceiver;
use futures::future::join_all;
use tenure_ports::ClientPort;
use tenure_ports::bus::Delivery;
use tenure_sdk::client::Client;
use tenure_sdk::nats::{NatsClient, NatsSettings, NatsWorker};
use tenure_tests::cluster::{Cluster, Plan, redis, until};
use tokio::sync::watch;

use super::dice::{Dice, seeds};
use super::hands::Books;
use super::program::Program;
use super::{Place, client_at, dismiss, hire, is_lawful, is_worth_it, worker_at};

/// Programs that run at a time.
const PROGRAMS: u64 = 8;

/// Orders of the faults, one behind the other.
const ORDERS: u64 = 2;

/// Commands of a program before the first fault, between two, and behind the last one.
const COMMANDS: usize = 6;

/// How long whoever commands waits: less than it takes to miss a node that was killed, and more than an
/// answer takes on a slow machine while nothing is broken.
const HASTE: Duration = Duration::from_secs(1);

/// Longer than all faults together, on any machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Processes that can be killed.
struct Apart(String);

impl Apart {
    fn settings(&self, patience: Duration) -> NatsSettings {
        NatsSettings { patience, ..NatsSettings::new(self.0.clone()) }
    }

    /// One who waits for a place to ask, and then for nothing long.
    async fn hasty(&self) -> Client<NatsClient> {
        loop {
            if let Ok(client) = client_at(&self.settings(HASTE)).await {
                return client;
            }
        }
    }
}

impl Place for Apart {
    type Client = NatsClient;
    type Worker = NatsWorker;

    async fn client(&self) -> Client<NatsClient> {
        client_at(&self.settings(PATIENCE)).await.unwrap()
    }

    async fn join(&self, who: &str, pool: &str) -> (NatsWorker, UnboundedReceiver<Delivery>) {
        worker_at(&self.settings(PATIENCE), who, pool).await
    }
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// Which.
    Scheduler(usize),
    Nats,
    Redis,
}

/// Each of the faults once, as a seed says.
fn faults(seed: u64) -> Vec<Fault> {
    let mut dice = Dice::new(seed);
    let mut left = vec![Fault::Scheduler(dice.below(2)), Fault::Nats, Fault::Redis];
    (0..left.len()).map(|_| left.remove(dice.below(left.len()))).collect()
}

/// Has every fault fall into the midst of every program.
struct Pace {
    /// Parts that a program has behind it.
    reached: watch::Sender<usize>,
    /// Faults that have begun.
    begun: watch::Sender<usize>,
}

impl Pace {
    async fn run<C: ClientPort>(&self, program: &mut Program<C>, faults: usize) {
        program.create().await;
        for part in 1..=faults {
            program.go_on(COMMANDS).await;
            self.reached.send_modify(|most| *most = part.max(*most));
            let mut begun = self.begun.subscribe();
            begun.wait_for(|begun| *begun >= part).await.unwrap();
        }
        program.go_on(COMMANDS).await;
        program.end().await;
    }
}

/// Breaks one after another, each when a program has come so far, and lets all of them go on meanwhile.
fn breaks(mut cluster: Cluster, pace: &Pace, faults: &[Fault]) -> Cluster {
    for (part, fault) in (1..).zip(faults) {
        until("a program goes on", PATIENCE, || Ok(*pace.reached.borrow() >= part)).unwrap();
        let begun = || pace.begun.send_modify(|faults| *faults = part);
        match fault {
            Fault::Scheduler(which) => {
                let victim = &mut cluster.schedulers[*which];
                victim.kill().unwrap();
                begun();
                victim.restart().unwrap();
            }
            Fault::Nats => {
                cluster.nats.process.kill().unwrap();
                begun();
                cluster.nats.restart().unwrap();
            }
            Fault::Redis => {
                redis::command(cluster.redis.port, &["FLUSHALL"]).unwrap();
                begun();
            }
        }
        cluster.wait_owned().unwrap();
    }
    cluster
}

/// CTRL-03, IDEM-01, OWN-03, OWN-06, LEASE-14, RECOVER-08, WAL-08: whatever breaks, all that was answered is
/// in the log, all that is in the log is lawful, and what was not answered is there as it ought to be or
/// not at all.
#[test]
fn whatever_is_killed_meanwhile_is_answered_lawfully() {
    let environment = vec![("TENURE_CANCEL_WAIT_MS", "1000".to_owned())];
    let plan = Plan { workers: 0, lease_ms: 1_500, environment, ..Plan::default() };
    let cluster = Cluster::start(plan).unwrap();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(are_lawful(cluster));
}

async fn are_lawful(cluster: Cluster) {
    let (there, books) = (Apart(cluster.url()), Books::default());
    let faults: Vec<Fault> = seeds(ORDERS).flat_map(faults).collect();
    let (count, mut programs) = (faults.len(), Vec::new());
    for seed in seeds(PROGRAMS) {
        let task = format!("t{seed}");
        let mut program = Program::new(there.client().await, &task, &books, seed);
        program.hasty = Some(there.hasty().await);
        programs.push(program);
    }
    let mut hands = Vec::new();
    for (n, who) in ["ant", "bee", "cow", "cat", "cat-2"].iter().enumerate() {
        hands.push(hire(&there, &books, who, n as u64).await);
    }
    let (reached, begun) = (watch::Sender::new(0), watch::Sender::new(0));
    let pace = Arc::new(Pace { reached, begun });
    let paced = Arc::clone(&pace);
    let breaking = tokio::task::spawn_blocking(move || breaks(cluster, &paced, &faults));
    let all = join_all(programs.iter_mut().map(|program| pace.run(program, count)));
    let (_, cluster) = tokio::join!(all, async { breaking.await.unwrap() });
    dismiss(hands).await;
    let judged = join_all(programs.iter().map(is_lawful)).await;
    if judged.len() > 1 {
        is_worth_it(&judged, 1);
    }
    drop(cluster);
}
