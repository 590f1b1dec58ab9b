//! Workers that are cut off, and NATS itself going away.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use tenure_tests::cluster::load::Load;
use tenure_tests::cluster::probe::append;
use tenure_tests::cluster::proxy::Proxy;
use tenure_tests::cluster::tasks::{exec, sleep, task};
use tenure_tests::cluster::{PATIENCE, Plan, on_cluster, url};

use crate::common::{
    attempts, now_ms, report_completed, wait_claimed_again, wait_ended, wait_runs,
};

/// Each a pool with a worker of its own, whose way is cut to the server, from it, or both.
const CUTS: [(&str, bool, bool); 3] =
    [("both", true, true), ("to-server", true, false), ("from-server", false, true)];

#[test]
fn a_worker_that_is_cut_off_fences_itself_and_its_step_goes_to_another() -> Result<()> {
    on_cluster(Plan { workers: 0, ..Plan::default() }, |cluster| {
        let client = cluster.client("c")?;
        let mut proxies = Vec::new();
        for (pool, ..) in CUTS {
            let proxy = Proxy::before(cluster.nats.port)?;
            cluster.add_worker(pool, &url(proxy.port))?;
            proxies.push(proxy);
            // It outlasts the lease: nobody but the worker itself can stop it in time.
            let done = "echo done.$TENURE_TASK_ID.$TENURE_STEP_ID.$TENURE_ATTEMPT >> $TRACE";
            let mut input = task(pool, &[exec("a", &[], &format!("sleep 5; {done}"))]);
            input["default_worker_pool_id"] = json!(pool);
            client.create(&input)?;
        }
        wait_runs(cluster, CUTS.len())?;
        let cut = now_ms()?;
        for ((_, to, from), proxy) in CUTS.iter().zip(&proxies) {
            proxy.cut(*to, *from);
        }
        for (pool, ..) in CUTS {
            cluster.add_worker(pool, &cluster.url())?;
        }
        for (pool, ..) in CUTS {
            let after = wait_claimed_again(&client, pool, &["a".into()], cut)?;
            println!("cut {pool}: claimed by another after {after} ms");
            ensure!(after <= 3_000 + 4_000, "{pool}: after {after} ms");
        }
        proxies.iter().for_each(|proxy| proxy.cut(false, false));
        for (pool, ..) in CUTS {
            let first = client.log(pool, PATIENCE)?.claims("a").remove(0);
            let refused = report_completed(&client, pool, &first)?;
            let is_right =
                ["stale_attempt", "task_terminal"].map(Some).contains(&refused.as_deref());
            ensure!(is_right, "{pool}: {refused:?}");
            wait_ended(&client, pool)?;
            let done: Vec<_> = cluster
                .traced()
                .into_iter()
                .filter(|line| line.contains(&format!("done.{pool}")))
                .collect();
            ensure!(done == [format!("done.{pool}.a.2")], "{done:?}");
        }
        // Those that were cut off serve again.
        cluster.workers.drain(CUTS.len()..).try_for_each(|mut worker| worker.kill())?;
        for (pool, ..) in CUTS {
            let id = format!("again-{pool}");
            let mut input = task(&id, &[exec("a", &[], "true")]);
            input["default_worker_pool_id"] = json!(pool);
            client.create(&input)?;
            wait_ended(&client, &id)?;
        }
        drop(proxies);
        Ok(())
    })
}

#[test]
fn nothing_is_lost_when_nats_is_killed_and_comes_back() -> Result<()> {
    on_cluster(Plan::default(), |cluster| {
        let client = cluster.client("c")?;
        let steps: Vec<_> = (0..6).map(|n| exec(&format!("s{n}"), &[], "sleep 4")).collect();
        client.create(&task("through", &steps))?;
        client.create(&task("beside", &[sleep("a", &[], 600_000)]))?; // It outlasts all of this.
        wait_runs(cluster, 6)?;
        let load = Load::start(&client, Duration::from_millis(20));
        // The last time is longer than a lease.
        for down in [300, 1_500, 4_000] {
            std::thread::sleep(Duration::from_millis(500)); // Some work in between.
            cluster.nats.process.kill()?;
            std::thread::sleep(Duration::from_millis(down)); // This long it is away.
            cluster.nats.restart()?;
            let back = Instant::now();
            append(&cluster.client(&format!("after-{down}"))?, "beside", PATIENCE)?;
            println!("NATS away for {down} ms: an append was durable {:?} later", back.elapsed());
        }
        std::thread::sleep(Duration::from_millis(500));
        load.finish()?;
        client.cancel("beside")?;
        println!("{} tasks acknowledged while NATS came and went", cluster.records.acknowledged());
        let took = wait_ended(&client, "through")?;
        println!("steps that ran meanwhile were done after {took:?}");
        let again = attempts(&client, "through")?.into_iter().filter(|(_, n)| *n > 1).count();
        println!("{again} of 6 were claimed again");
        Ok(())
    })
}
