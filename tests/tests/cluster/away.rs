//! NATS or Redis is away for minutes.

use std::panic::resume_unwind;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tenure_tests::cluster::client::Client;
use tenure_tests::cluster::load::Load;
use tenure_tests::cluster::probe::append;
use tenure_tests::cluster::tasks::{exec, noop, sleep, task};
use tenure_tests::cluster::{Cluster, PATIENCE, Plan, on_cluster};

use crate::common::{check_claimed_once, wait_claims, wait_ended};

/// How long: many leases, and more than any pause between two tries to connect.
const AWAY: Duration = Duration::from_secs(150);

/// How long leases of Attempts last.
const LEASE_MS: u64 = 12_000;

/// REPORT-16, IDEM-01, LEASE-14: all Tasks end as they should, before or after; nothing takes effect
/// twice; and no worker that lives loses a Step again and again, or at all if it was Redis.
#[test]
fn work_goes_on_after_nats_or_redis_was_away_for_minutes() -> Result<()> {
    // Each of a cluster of its own, and both at a time: most of it is waiting.
    let redis = std::thread::spawn(|| on_cluster(plan(), redis_is_away));
    let nats = on_cluster(plan(), nats_is_away);
    redis.join().unwrap_or_else(|panic| resume_unwind(panic))?;
    nats
}

fn plan() -> Plan {
    Plan { lease_ms: LEASE_MS, ..Plan::default() }
}

/// Commands are sent all the time, and repeated until they are answered.
fn load(client: &Client, pause: Duration) -> Load {
    Load::patient(client, pause, AWAY + 2 * PATIENCE)
}

fn nats_is_away(cluster: &mut Cluster) -> Result<()> {
    let client = cluster.client("c")?;
    // Half of it is done before a lease ends, half of it is stopped then by its worker.
    let short = |n| exec(&format!("short{n}"), &[], "sleep 4");
    let long = |n| exec(&format!("long{n}"), &[], "[ $TENURE_ATTEMPT != 1 ] || sleep 60");
    let mut steps: Vec<_> = (0..3).flat_map(|n| [short(n), long(n)]).collect();
    steps.push(noop("end", &["short0", "long2"]));
    client.create(&task("through", &steps))?;
    client.create(&task("beside", &[sleep("a", &[], 600_000)]))?; // It outlasts all of this.
    let load = load(&client, Duration::from_millis(50));
    wait_claims(&client, "through", 6)?;
    cluster.nats.process.kill()?;
    std::thread::sleep(AWAY); // This long it is away.
    cluster.nats.restart()?;
    let back = Instant::now();
    append(&cluster.client("after")?, "beside", PATIENCE)?;
    println!("NATS was away: an append was durable {:?} later", back.elapsed());
    wait_ended(&client, "through")?;
    println!("NATS was away: what was under way was done {:?} later", back.elapsed());
    load.finish()?;
    client.cancel("beside")?;
    println!("NATS was away: {} tasks acknowledged", cluster.records.acknowledged());
    let lost = client.log("through", PATIENCE)?.events("task_step_lease_expired");
    let lost = lost.iter().filter(|event| event["payload"]["reason"] != "released");
    let mut steps: Vec<_> = lost.filter_map(|event| event["step_id"].as_str()).collect();
    println!("NATS was away: lost were {steps:?}");
    steps.sort_unstable();
    ensure!(steps.windows(2).all(|pair| pair[0] != pair[1]), "lost more than once: {steps:?}");
    Ok(())
}

fn redis_is_away(cluster: &mut Cluster) -> Result<()> {
    let client = cluster.client("c")?;
    let outlasts = format!("sleep {}", AWAY.as_secs() + 10);
    let steps: Vec<_> = (0..6).map(|n| exec(&format!("s{n}"), &[], &outlasts)).collect();
    client.create(&task("through", &steps))?;
    wait_claims(&client, "through", steps.len())?;
    let load = load(&client, Duration::from_secs(3));
    cluster.redis.process.kill()?;
    client.create(&task("meanwhile", &[noop("a", &[])]))?;
    std::thread::sleep(AWAY); // This long it is away.
    cluster.redis.restart()?; // It remembers nothing.
    let took = wait_ended(&client, "meanwhile")?;
    println!("Redis was away: a task made meanwhile ended {took:?} after it was back");
    load.finish()?;
    println!("Redis was away: {} tasks acknowledged", cluster.records.acknowledged());
    wait_ended(&client, "through")?;
    check_claimed_once(&client, "through")
}
