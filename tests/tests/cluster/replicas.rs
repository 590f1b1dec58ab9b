//! Three servers of NATS, of which any one may go.

use std::time::{Duration, Instant};

use anyhow::Result;
use tenure_tests::cluster::load::Load;
use tenure_tests::cluster::probe::append;
use tenure_tests::cluster::tasks::{exec, sleep, task};
use tenure_tests::cluster::{PATIENCE, Plan, on_cluster};

use crate::common::{check_claimed_once, wait_ended, wait_runs};

/// An election of leaders stops appends for some seconds; leases outlast it (mechanisms 6), so nobody
/// loses a Step, and what was acknowledged is there after each server has been away once.
#[test]
fn any_server_of_three_may_be_killed() -> Result<()> {
    on_cluster(Plan { is_replicated: true, lease_ms: 15_000, ..Plan::default() }, |cluster| {
        let client = cluster.client("c")?;
        let steps: Vec<_> = (0..6).map(|n| exec(&format!("s{n}"), &[], "sleep 12")).collect();
        client.create(&task("through", &steps))?;
        client.create(&task("beside", &[sleep("a", &[], 600_000)]))?; // It outlasts all of this.
        wait_runs(cluster, 6)?;
        let load = Load::start(&client, Duration::from_millis(50));
        // A lease counts as a third until its first renewal, which comes 0.2 s after the grant.
        std::thread::sleep(Duration::from_secs(2));
        for at in 0..3 {
            let server = match at {
                0 => &mut cluster.nats,
                at => &mut cluster.replicas[at - 1],
            };
            // The second is frozen: it says nothing, and all connections to it stay open.
            match at {
                1 => server.process.pause()?,
                _ => server.process.kill()?,
            }
            let killed = Instant::now();
            append(&cluster.client(&format!("after-{at}"))?, "beside", PATIENCE)?;
            println!("server {at} is gone: an append was durable {:?} later", killed.elapsed());
            let server = match at {
                0 => &mut cluster.nats,
                at => &mut cluster.replicas[at - 1],
            };
            if at == 1 {
                server.process.kill()?; // What it knew by then it knows again.
            }
            server.restart()?; // It has caught up when this returns.
            println!("server {at} had everything again after {:?}", killed.elapsed());
        }
        load.finish()?;
        client.cancel("beside")?;
        println!("{} tasks acknowledged meanwhile", cluster.records.acknowledged());
        wait_ended(&client, "through")?;
        check_claimed_once(&client, "through")
    })
}
