//! A system's clock that is set while a node runs (mechanisms 17).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use tenure_core::id::Millis;
use tenure_node::Node;
use tenure_scheduler::{Machine, ThisMachine};

use crate::common::{PARTITIONS, Servers, until};

/// Ten minutes.
const FAR: Millis = 600_000;

/// This machine, with a system's clock that is off.
#[derive(Debug)]
struct Off {
    machine: ThisMachine,
    by: AtomicI64,
    /// How often its clock was looked at.
    looks: AtomicUsize,
}

impl Off {
    fn by(ms: Millis) -> Arc<Self> {
        let (by, looks) = (AtomicI64::new(ms), AtomicUsize::new(0));
        Arc::new(Self { machine: ThisMachine::new(), by, looks })
    }

    /// Waits until its clock was looked at a few times more.
    async fn is_looked_at(&self) {
        let enough = self.looks.load(Ordering::SeqCst) + 5;
        until(async || self.looks.load(Ordering::SeqCst) >= enough).await;
    }
}

impl Machine for Off {
    fn wall(&self) -> Millis {
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.machine.wall() + self.by.load(Ordering::SeqCst)
    }

    fn passed(&self) -> Duration {
        self.machine.passed()
    }

    fn suspended(&self) -> Duration {
        self.machine.suspended()
    }
}

/// LEASE-14, P37: a node whose clock was off when it began takes partitions once it is set right, back or
/// forward; one whose clock is set wrong keeps what it has, and goes on as if it had not been.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_follows_its_clock_only_where_that_of_redis_agrees() {
    for first in [FAR, -FAR] {
        let servers = Servers::start();
        let clock = Off::by(first);
        let mut settings = servers.settings("n1");
        settings.scheduler.machine = Arc::clone(&clock) as _;
        let node = Node::start(settings).await.unwrap();
        let is_right = || node.scheduler().now().abs_diff(ThisMachine::new().wall()) < 2_000;
        let owns_all = || node.served().len() == PARTITIONS as usize;
        clock.is_looked_at().await;
        assert!(!owns_all() && !is_right(), "nothing says that it was set");
        clock.by.store(0, Ordering::SeqCst);
        until(async || owns_all() && is_right()).await;
        for wrong in [FAR, -FAR] {
            clock.by.store(wrong, Ordering::SeqCst);
            clock.is_looked_at().await;
            assert!(owns_all() && is_right(), "Redis' clock contradicts it");
        }
        node.stop().await;
    }
}
