//! Orchestrators that do anything, with workers that do anything, in one process and in a cluster with
//! faults: every answer is held against a model of its own, which knows the Task from its log alone.
//!
//! Nobody knows which of two that speak at once is heard first. So an answer is lawful if it is the right
//! one at some version between what its caller knew when it asked and what it found afterwards; what was
//! written has to be right at the version before it.

#[path = "../../../../core/tests/rules/common/dice.rs"]
mod dice;
mod faults;
mod hands;
mod judge;
mod late;
mod model;
mod notes;
mod program;

use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::UnboundedReceiver;
use futures::future::join_all;
use tenure_core::Rejection;
use tenure_core::status::Role;
use tenure_local::MemoryLeases;
use tenure_node::Node;
use tenure_ports::ClientPort;
use tenure_ports::bus::{Delivery, WorkerPort};
use tenure_scheduler::{ClientLink, Config, Scheduler, WorkerLink};
use tenure_sdk::client::Client;
use tenure_sdk::nats::{Connection, NatsClient, NatsSettings, NatsWorker};
use tenure_testkit::faulty::Fault;
use tenure_testkit::{Faulty, MemoryJournal};
use tenure_wire::bus::subject::{ClientName, Token, WorkerName, inbox};
use tokio::task::JoinHandle;

use crate::common::Servers;
use dice::{Dice, seeds};
use hands::{Books, Hand};
use model::Commit;
use notes::{Judged, check};
use program::Program;

/// Where a program runs: who asks, and who works.
trait Place: Sync {
    type Client: ClientPort;
    type Worker: WorkerPort;

    fn client(&self) -> impl Future<Output = Client<Self::Client>>;

    fn join(
        &self,
        who: &str,
        pool: &str,
    ) -> impl Future<Output = (Self::Worker, UnboundedReceiver<Delivery>)>;
}

/// A worker that works until it is stopped.
async fn hire<P: Place>(place: &P, books: &Books, who: &str, dice: u64) -> JoinHandle<()> {
    let pool = if who.starts_with("cat") { "gpu" } else { "default" };
    let (port, inbox) = place.join(who, pool).await;
    let (client, books) = (place.client().await, Arc::clone(books));
    let hand =
        Hand { port, client, books, dice: Dice::new(dice), seen: 0, said: 0, mine: Vec::new() };
    tokio::spawn(hand.work(inbox))
}

/// Stops workers, which have found nothing wrong.
async fn dismiss(hands: Vec<JoinHandle<()>>) {
    for hand in hands {
        hand.abort();
        let ended = hand.await;
        assert!(
            ended.is_err_and(|gone| gone.is_cancelled()),
            "a worker was told what it must not be"
        );
    }
}

/// The log of a program is sound, to the checker that shares nothing with what wrote it, and all that was
/// said fits it.
async fn is_lawful<C: ClientPort>(program: &Program<C>) -> Judged {
    let log = program.log().await;
    let sound = tenure_tests::wal::check_bytes(&log, false);
    let sound = sound.unwrap_or_else(|faults| panic!("{faults:#}"));
    assert!(sound.ended.is_some());
    check(&program.notes, &Commit::all(&log))
}

/// What was judged, of all programs together, is enough to say something: two thirds of what can be asked were
/// done so often, and refused. Which they are is chance, where programs meet faults.
fn is_worth_it(judged: &[Judged], least: usize) {
    let all = Judged::all(judged);
    let often = |(done, refused): &(usize, usize)| *done >= least && *refused >= least;
    let seldom: Vec<_> = all.asks.iter().filter(|(_, count)| !often(count)).collect();
    assert!(3 * seldom.len() <= all.asks.len() && all.looks >= 20 * least, "{seldom:?} of {all:?}");
}

type Journal = Faulty<MemoryJournal>;

struct Here(Scheduler<Journal, MemoryLeases>);

impl Place for Here {
    type Client = ClientLink<Journal, MemoryLeases>;
    type Worker = WorkerLink<Journal, MemoryLeases>;

    async fn client(&self) -> Client<Self::Client> {
        let (who, session) = ("boss".parse().unwrap(), "s1".parse().unwrap());
        Client::new(self.0.client(Role::Orchestrator, who, session))
    }

    async fn join(&self, who: &str, pool: &str) -> (Self::Worker, UnboundedReceiver<Delivery>) {
        self.0.join(who.parse().unwrap(), pool.parse().unwrap(), None).unwrap()
    }
}

/// CTRL-01 to CTRL-04, OCC-01 to OCC-03, IDEM-01, IDEM-04, WAL-08, WAL-11, READY-02, READY-03, TASK-04,
/// CLAIM-03 to CLAIM-08, CLAIM-15, GET-04, LIST-08, QUERY-04, QUERY-12, PERM-13, PERM-16, PROMPT-06,
/// REPORT-03, REPORT-14, REPORT-16, TERM-19, DISP-10 and the tables of section 3, in one process: random
/// programs with random workers, one of which dies,
/// and, every other time, appends that fail or whose fate nobody knows.
#[test]
fn whatever_orchestrators_and_workers_do_in_one_process_is_answered_lawfully() {
    let mut judged = Vec::new();
    for seed in seeds(200) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        judged.push(runtime.block_on(in_one_process(seed)));
    }
    if judged.len() > 1 {
        is_worth_it(&judged, 10);
    }
}

async fn in_one_process(seed: u64) -> Judged {
    let config = Config::embedded("default".parse().unwrap());
    let (journal, leases) = (Arc::<Journal>::default(), Arc::<MemoryLeases>::default());
    let here = Here(Scheduler::start(journal, leases, config).await.unwrap());
    let books = Books::default();
    let mut program = Program::new(here.client().await, "t", &books, seed);
    let mut hands = Vec::new();
    for (n, who) in ["ant", "bee", "cat"].iter().enumerate() {
        hands.push(hire(&here, &books, who, seed * 100 + n as u64).await);
    }
    let dies_after = Duration::from_millis(100 + seed % 300);
    let dies = async {
        tokio::time::sleep(dies_after).await;
        hands[0].abort();
        hands[0] = hire(&here, &books, "ant-2", seed * 100 + 50).await;
    };
    let mut dice = Dice::new(seed);
    let faults = async {
        if seed.is_multiple_of(2) {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(Duration::from_millis(40 + dice.below(200) as u64)).await;
            let faults = [Fault::Fail, Fault::Fail, Fault::UnknownLost, Fault::UnknownKept];
            here.0.journal().next(dice.of(&faults));
        }
    };
    let runs = async {
        tokio::select! {
            () = program.run(40) => {}
            () = faults => {}
        }
    };
    tokio::join!(runs, dies);
    dismiss(hands).await;
    let judged = is_lawful(&program).await;
    here.0.stop().await;
    judged
}

struct There<'s>(&'s Servers);

impl There<'_> {
    async fn node(&self, name: &str) -> Node {
        let mut settings = self.0.settings(name);
        settings.scheduler.limits.lease_ms = 1_500;
        settings.scheduler.limits.cancel_wait_ms = 1_000;
        Node::start(settings).await.unwrap()
    }
}

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

impl Place for There<'_> {
    type Client = NatsClient;
    type Worker = NatsWorker;

    async fn client(&self) -> Client<NatsClient> {
        client_at(&NatsSettings::new(self.0.url())).await.unwrap()
    }

    async fn join(&self, who: &str, pool: &str) -> (NatsWorker, UnboundedReceiver<Delivery>) {
        worker_at(&NatsSettings::new(self.0.url()), who, pool).await
    }
}

async fn client_at(settings: &NatsSettings) -> Result<Client<NatsClient>, Rejection> {
    let (role, session) = (Role::Orchestrator, "s1".parse().unwrap());
    let name = ClientName { role, session, principal: token("boss") };
    let boot = token(&uuid::Uuid::now_v7().to_string());
    let at = inbox(role, &name.principal, &boot);
    let connection = Connection::open(settings, at).await.unwrap();
    NatsClient::join(connection, &name).await.map(Client::new)
}

async fn worker_at(
    settings: &NatsSettings,
    who: &str,
    pool: &str,
) -> (NatsWorker, UnboundedReceiver<Delivery>) {
    let name = WorkerName { pool: pool.parse().unwrap(), principal: token(who), boot: token("b1") };
    let connection = Connection::open(settings, name.inbox()).await.unwrap();
    NatsWorker::join(connection, &name, None).await.unwrap()
}

/// The same over NATS, on JetStream and Redis, OWN-04 and OWN-06: many programs at a time, while a worker
/// dies and the node hands over to another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_orchestrators_and_workers_do_in_a_cluster_is_answered_lawfully() {
    let servers = Servers::start();
    let there = There(&servers);
    let first = there.node("n1").await;
    crate::common::until(async || first.served().len() == crate::common::PARTITIONS as usize).await;
    let books = Books::default();
    let mut programs = Vec::new();
    for seed in seeds(8) {
        programs.push(Program::new(there.client().await, &format!("t{seed}"), &books, seed));
    }
    let mut hands = Vec::new();
    for (n, who) in ["ant", "bee", "cow", "cat", "cat-2"].iter().enumerate() {
        hands.push(hire(&there, &books, who, n as u64).await);
    }
    let faults = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        hands[0].abort();
        hands[0] = hire(&there, &books, "ant-2", 50).await;
        let second = there.node("n2").await;
        tokio::time::sleep(Duration::from_millis(700)).await;
        first.stop().await;
        second
    };
    let all = async { join_all(programs.iter_mut().map(|program| program.run(48))).await };
    let (_, second) = tokio::join!(all, faults);
    dismiss(hands).await;
    let judged = join_all(programs.iter().map(is_lawful)).await;
    if judged.len() > 1 {
        is_worth_it(&judged, 1);
    }
    second.stop().await;
}
