//! A scheduler that lost one of its loops does not go on as if it had it.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::id::{AttemptId, PoolId};
use tenure_ports::Leases;
use tenure_ports::leases::{Lease, LeaseError, Scan};
use tenure_scheduler::{Config, Scheduler};
use tenure_testkit::MemoryJournal;

/// Tells a process that it is the one whose scan fails.
const FAILS: &str = "TENURE_TEST_SCAN_FAILS";

/// A store of leases with a defect: who asks it what has ended falls with it.
#[derive(Debug)]
struct Broken;

impl Leases for Broken {
    async fn acquire(&self, _: Vec<Lease>) -> Result<(), LeaseError> {
        Ok(())
    }

    async fn renew(&self, _: Vec<Lease>) -> Result<(), LeaseError> {
        Ok(())
    }

    async fn raise(&self, _: Vec<Lease>) -> Result<(), LeaseError> {
        Ok(())
    }

    async fn ensure(&self, _: Vec<Lease>) -> Result<(), LeaseError> {
        Ok(())
    }

    async fn release(&self, _: Vec<AttemptId>) -> Result<(), LeaseError> {
        Ok(())
    }

    async fn expired(&self) -> Result<Scan, LeaseError> {
        panic!("a defect of the scan")
    }

    fn left_ms(&self, _: AttemptId) -> Option<u64> {
        None
    }
}

/// Mechanisms 18; this test again is the process.
#[test]
fn a_lease_scan_that_panics_ends_the_process_and_says_why() {
    if std::env::var_os(FAILS).is_some() {
        return run_a_scan_that_panics();
    }
    let mut process = Command::new(std::env::current_exe().unwrap());
    let name = "supervised::a_lease_scan_that_panics_ends_the_process_and_says_why";
    let ended = process.args([name, "--exact", "--nocapture"]).env(FAILS, "1").output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success(), "{ended:?}");
    assert!(said.lines().any(|line| line.contains("a defect of the scan")), "{said}");
}

/// Ends well, if late, where nobody minds the scan.
fn run_a_scan_that_panics() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = Config::embedded(PoolId::new("default").unwrap());
        let journal = Arc::new(MemoryJournal::default());
        let _node = Scheduler::start(journal, Arc::new(Broken), config).await.unwrap();
        tokio::time::sleep(Duration::from_secs(30)).await;
    });
}
