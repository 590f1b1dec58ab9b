//! Appends that fail or whose fate nobody knows, at random moments: nothing is lost, nothing
//! accepted twice, and no credit leaks. Seeds are printed, and `TENURE_SEED` repeats one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use crate::common::{self, Node, POOL, View, create, dag, events, node_on, replayed, with_policy};
use tenure_core::id::PoolId;
use tenure_core::record::RetryPolicy;
use tenure_core::retry_policy::Limit;
use tenure_core::status::TaskStatus;
use tenure_ports::journal::TaskKey;
use tenure_testkit::faulty::Fault;
use tenure_testkit::{Faulty, MemoryJournal};
use uuid::Uuid;

const SEEDS: u64 = 300;
const TASKS: usize = 3;
const WORKERS: usize = 4;
const FAULTS: usize = 60;

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn fault(&mut self) -> Fault {
        match self.below(100) {
            0..20 => Fault::Fail,
            20..25 => Fault::UnknownLost,
            25..30 => Fault::UnknownKept,
            _ => Fault::Delay(Duration::from_millis(self.below(5))),
        }
    }
}

/// WAL-07, WAL-09, mechanisms 2 and 14: whatever befalls appends, every Task ends, each Step is
/// completed once, memory is what the log says, and all room of the worker is there again.
#[test]
fn appends_that_fail_lose_nothing() {
    let given = std::env::var("TENURE_SEED").ok().map(|seed| seed.parse().unwrap());
    let seeds = given.map_or_else(
        || (0..SEEDS).map(|_| Uuid::now_v7().as_u64_pair().1).collect(),
        |seed: u64| vec![seed],
    );
    for seed in seeds {
        eprintln!("TENURE_SEED={seed}");
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().start_paused(true).build().unwrap().block_on(storm(seed));
    }
}

/// Waits for the end of a Task, also while its log cannot be read.
async fn ended(node: &Node, key: &TaskKey) {
    let is_over = |task: &View<'_>| task.status().is_terminal();
    let found = async {
        while !node.read(key, is_over).await.unwrap_or(false) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(3_600), found).await.expect("the task ends");
}

async fn storm(seed: u64) {
    let mut random = Random(seed);
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let node = node_on(Arc::clone(&journal)).await;
    let policy = RetryPolicy {
        max_attempts: Some(Limit::Of(1)),
        max_lost: Some(Limit::Unlimited),
        ..RetryPolicy::default()
    };
    let mut keys = Vec::new();
    for task in 0..TASKS {
        let input = dag(&format!("t{task}"), "a b<-a c<-a d<-a e<-b,c,d f g h<-f,g");
        keys.push(create(&node, with_policy(input, policy.clone())).await.unwrap());
    }
    (0..FAULTS).for_each(|_| journal.next(random.fault()));
    let pace = Duration::from_millis(random.below(20));
    let workers = common::workers(&node, WORKERS, move |ctx| async move {
        tokio::time::sleep(pace).await;
        Ok(ctx.complete(None)?)
    });
    for at in 0..5 {
        tokio::time::sleep(Duration::from_millis(100 * at)).await;
        journal.fail_reads(random.below(3));
    }
    for key in &keys {
        ended(&node, key).await;
        journal.fail_reads(0);
        let task = replayed(&node, key).await;
        assert_eq!(task.head().status, TaskStatus::Completed, "seed {seed}");
        let completed = events(&node, key).await;
        let completed = completed.iter().filter(|e| **e == "task_step_completed").count();
        assert_eq!(completed, 8, "seed {seed}");
        if let Ok(live) = node.read(key, |task| task.to_task()).await {
            assert_eq!(live, task, "seed {seed}");
        }
    }
    // What workers ask for beyond their number follows the time of their handlers.
    let ahead = if pace < Duration::from_millis(5) { 3 * WORKERS } else { WORKERS / 2 };
    let free = || node.pool_facts(&PoolId::new(POOL).unwrap()).free as usize;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((workers.in_hand(), free()), (0, WORKERS + ahead), "seed {seed}");
    node.stop().await;
}
