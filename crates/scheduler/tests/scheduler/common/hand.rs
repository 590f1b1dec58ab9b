//! A worker of which the test says what it does.

use std::time::Duration;

use futures::channel::mpsc::UnboundedReceiver;
use tenure_core::command::{GiveBack, StepReport};
use tenure_core::id::{AgentId, PoolId};
use tenure_core::patch::ReasonInput;
use tenure_core::sessions::{Abilities, WorkerSessions};
use tenure_core::status::StepStatus;
use tenure_core::view::ClaimResult;
use tenure_local::MemoryLeases;
use tenure_ports::bus::{Credit, Delivery, Holding, WorkerPort as _};
use tenure_scheduler::WorkerLink;
use tenure_testkit::{Faulty, MemoryJournal};
use tokio::time::{Instant, sleep};

use super::{Node, POOL, completes};

type Link = WorkerLink<Faulty<MemoryJournal>, MemoryLeases>;

/// A worker that is told what to do.
pub struct Hand {
    pub link: Link,
    inbox: UnboundedReceiver<Delivery>,
    seen: u64,
    number: u64,
    pub held: Vec<(ClaimResult, Instant)>,
}

impl Hand {
    pub fn join(node: &Node, name: &str) -> Self {
        Self::join_for(node, name, "*")
    }

    /// A worker of these sessions.
    pub fn join_for(node: &Node, name: &str, sessions: &str) -> Self {
        let (id, pool) = (AgentId::new(name).unwrap(), PoolId::new(POOL).unwrap());
        let sessions = WorkerSessions::read(sessions).unwrap();
        let (link, inbox) = node.join(id, pool, Abilities { handlers: None, sessions }).unwrap();
        Self { link, inbox, seen: 0, number: 0, held: Vec::new() }
    }

    pub fn room(&mut self, free: u64) -> Credit {
        self.number += 1;
        Credit { free, seen: self.seen, lost: 0, number: self.number }
    }

    pub fn says_room(&mut self, free: u64) {
        let room = self.room(free);
        self.link.credit(room);
    }

    /// States room beside so many Steps that were lost.
    pub fn says_lost(&mut self, free: u64, lost: u64) {
        let room = self.room(free);
        self.link.credit(Credit { lost, ..room });
    }

    /// Takes in what has come.
    pub fn takes(&mut self) -> Vec<String> {
        let mut came = Vec::new();
        while let Ok(delivery) = self.inbox.try_recv() {
            if let Delivery::Grant(claim) = delivery {
                self.seen += 1;
                came.push(claim.step.step_id.to_string());
                self.held.push((*claim, Instant::now()));
            }
        }
        came
    }

    pub async fn expect_step(&mut self, step: &str) {
        for _ in 0..100 {
            sleep(Duration::from_millis(10)).await;
            let came = self.takes();
            if !came.is_empty() {
                assert_eq!(came, [step]);
                return;
            }
        }
        panic!("{step} does not come");
    }

    pub async fn fails(&mut self, free: u64) {
        let (claim, _) = self.held.pop().unwrap();
        let report = StepReport {
            status: Some(StepStatus::Failed),
            output: None,
            reason: Some(ReasonInput {
                code: Some("broken".into()),
                details: None,
                message: "it broke".into(),
                retryable: None,
            }),
            ..completes(&claim)
        };
        let room = Some(self.room(free));
        self.link.report(&Holding::of(&claim), report, room).await.unwrap();
    }

    pub async fn completes(&mut self, free: u64) {
        let (claim, _) = self.held.pop().unwrap();
        let room = Some(self.room(free));
        self.link.report(&Holding::of(&claim), completes(&claim), room).await.unwrap();
    }

    pub async fn gives_back(&mut self, how: GiveBack, free: u64) {
        let (claim, _) = self.held.pop().unwrap();
        let room = Some(self.room(free));
        self.link.release(&Holding::of(&claim), how, room).await.unwrap();
    }
}
