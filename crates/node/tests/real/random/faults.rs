//! The same programs while what they run on breaks: a scheduler is killed and started again, so is NATS,
//! and Redis forgets everything; each in the midst of them, in an order that the seed says.

use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::UnboundedReceiver;
use futures::future::join_all;
use tenure_ports::ClientPort;
use tenure_ports::bus::Delivery;
use tenure_sdk::client::Client;
use tenure_sdk::nats::{NatsClient, NatsWorker, Settings};
use tenure_tests::cluster::{Cluster, Plan, redis, until};
use tokio::sync::watch;

use super::dice::{Dice, seeds};
use super::hands::Books;
use super::program::Program;
use super::{Place, client_at, dismiss, hire, is_lawful, worker_at};

/// Commands of a program before the first fault, between two, and behind the last one.
const COMMANDS: usize = 9;

/// The parts of a program that the faults make.
const QUARTERS: usize = 4;

/// How long whoever commands waits: less than any of the faults lasts.
const HASTE: Duration = Duration::from_millis(300);

/// Longer than all faults together, on any machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Processes that can be killed.
struct Apart(String);

impl Apart {
    fn settings(&self, patience: Duration) -> Settings {
        Settings { patience, ..Settings::new(self.0.clone()) }
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
    Scheduler,
    Nats,
    Redis,
}

/// Has every fault fall into the midst of every program.
struct Pace {
    /// Parts that a program has behind it.
    reached: watch::Sender<usize>,
    /// Faults that have begun.
    begun: watch::Sender<usize>,
}

impl Pace {
    async fn run<C: ClientPort>(&self, program: &mut Program<C>) {
        program.create().await;
        for quarter in 1..QUARTERS {
            program.go_on(COMMANDS).await;
            self.reached.send_modify(|most| *most = quarter.max(*most));
            let mut begun = self.begun.subscribe();
            begun.wait_for(|begun| *begun >= quarter).await.unwrap();
        }
        program.go_on(COMMANDS).await;
        program.end().await;
    }
}

/// Breaks one after another, each when a program has come so far, and lets all of them go on meanwhile.
fn breaks(mut cluster: Cluster, pace: &Pace, dice: &mut Dice) -> Cluster {
    let mut faults = vec![Fault::Scheduler, Fault::Nats, Fault::Redis];
    for quarter in 1..QUARTERS {
        until("a program goes on", PATIENCE, || Ok(*pace.reached.borrow() >= quarter)).unwrap();
        let begun = || pace.begun.send_modify(|faults| *faults = quarter);
        match faults.remove(dice.below(faults.len())) {
            Fault::Scheduler => {
                let victim = &mut cluster.schedulers[dice.below(2)];
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
    let (mut programs, mut dice) = (Vec::new(), Dice::new(seeds(6).start));
    for seed in seeds(6) {
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
    let breaking = tokio::task::spawn_blocking(move || breaks(cluster, &paced, &mut dice));
    let all = join_all(programs.iter_mut().map(|program| pace.run(program)));
    let (_, cluster) = tokio::join!(all, async { breaking.await.unwrap() });
    dismiss(hands).await;
    join_all(programs.iter().map(is_lawful)).await;
    drop(cluster);
}
