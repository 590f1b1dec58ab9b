//! What one principal sends costs that principal.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use tenure_core::Code;
use tenure_core::record::Progress;
use tenure_core::status::{StepStatus, TaskStatus};
use tenure_node::{Node, RateSettings, Settings};
use tenure_sdk::client::{Client, Step, Task};
use tenure_sdk::nats::{NatsClient, NatsSettings, PoolMember};
use tenure_sdk::worker::{Handlers, Options, WorkerPool};
use tenure_wire::bus::V;
use tenure_wire::bus::operate::{ImportLog, Imported};
use tenure_wire::bus::request::RawBytes;
use tenure_wire::bus::subject::ClusterName;
use tenure_wire::bus::worker::{Heartbeat, Holding, Pulses, Report, Word};

use crate::common::{Caller, Hand, PARTITIONS, Servers};
use crate::workers::{one_grant, report, tell};

async fn node_with(servers: &Servers, rates: RateSettings) -> Node {
    servers.node_of(Settings { rates, ..servers.settings("n1") }).await
}

fn progress(claim: &tenure_core::view::ClaimResult, percent: f64) -> Report {
    let mut said = report(claim, StepStatus::Running);
    let Word::TaskUpdateStep(word) = &mut said.word else { panic!("{said:?}") };
    word.progress = Some(Progress { percent: Some(percent), ..Progress::default() });
    said
}

/// LIVE-03: a worker that says all the time how far it is writes no more into the log than it may, and is told to come
/// again. Its result counts at once, and what it was refused counts when it says it again.
#[tokio::test(flavor = "multi_thread")]
async fn progress_has_a_rate_and_results_have_none() {
    let servers = Servers::start();
    let rates = RateSettings { reports: 2, ..RateSettings::default() };
    let node = node_with(&servers, rates).await;
    let bob = Caller::new(&servers).await;
    let mut eve = Hand::join(&servers, "eve").await;
    eve.room(1).await;
    bob.create("t", &["a"]).await;
    let claim = one_grant(&mut eve).await;
    let said: Vec<Report> = (0..200).map(|n| progress(&claim, f64::from(n) / 10.0)).collect();
    let results = tell(&eve, said).await;
    let refused: Vec<_> = results.iter().filter_map(|result| result.error.as_ref()).collect();
    assert!((190..=196).contains(&refused.len()), "{} of 200 were refused", refused.len());
    let over = refused[0];
    assert_eq!((over.code, &over.details["rate"]), (Code::Unavailable, &2.into()), "{over}");
    assert!(over.message.contains("--rate-reports"), "{over}");
    let ms = over.details["retry_after_ms"].as_u64().unwrap();
    tokio::time::sleep(Duration::from_millis(ms)).await;
    let again = tell(&eve, vec![progress(&claim, 99.0)]).await;
    assert!(again[0].error.is_none(), "{again:?}");
    let results = tell(&eve, vec![report(&claim, StepStatus::Completed)]).await;
    assert!(results[0].error.is_none(), "{results:?}");
    assert!(bob.events("t").await.len() < 40, "the log has what was accepted");
    assert!(node.sampler()().live.over_rate >= 190);
}

/// LIVE-03: a worker that floods the node with large reports is refused before they are read. Another worker of the
/// pool reports as ever, and even the one that floods keeps its lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_one_principal_costs_no_other_its_reports() {
    let servers = Servers::start();
    let rates = RateSettings { traffic: 64 << 10, ..RateSettings::default() };
    let node = node_with(&servers, rates).await;
    let bob = Caller::new(&servers).await;
    let (mut eve, mut ann) = (Hand::join(&servers, "eve").await, Hand::join(&servers, "ann").await);
    bob.create("t", &["a", "b"]).await;
    eve.room(1).await;
    let of_eve = one_grant(&mut eve).await;
    eve.room(0).await;
    ann.room(1).await;
    let of_ann = one_grant(&mut ann).await;
    let flood: bytes::Bytes = vec![0; 256 << 10].into();
    for n in 0..400 {
        let partition = n % PARTITIONS;
        let subject = format!("{}.report.{partition}", eve.name.root(&ClusterName::default()));
        eve.client.publish(subject, flood.clone()).await.unwrap();
    }
    eve.client.flush().await.unwrap();
    let begun = Instant::now();
    let results = tell(&ann, vec![report(&of_ann, StepStatus::Completed)]).await;
    assert!(results[0].error.is_none(), "{results:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let holdings = vec![Holding {
        session_id: of_eve.session_id.clone(),
        task_id: of_eve.task_id.clone(),
        run_id: of_eve.run_id,
        attempt_id: of_eve.attempt_id,
        fencing_token: of_eve.fencing_token,
        input_seen: None,
    }];
    let pulses: Pulses = eve.ask("hb", &Heartbeat { v: V, holdings }).await.unwrap();
    assert!(pulses.pulses[0].error.is_none(), "{pulses:?}");
    assert!(node.sampler()().live.over_rate > 0);
    let look = |task: &tenure_core::view::View<'_>| task.status();
    assert_eq!(node.scheduler().read(&bob.key("t"), look).await.unwrap(), TaskStatus::Running);
}

/// LIVE-03: an orchestrator that creates Tasks without end is told to come again, and its observer is not.
#[tokio::test(flavor = "multi_thread")]
async fn creates_have_a_rate() {
    let servers = Servers::start();
    let rates = RateSettings { creates: 1, ..RateSettings::default() };
    let _node = node_with(&servers, rates).await;
    let bob = Caller::new(&servers).await;
    let mut refused = None;
    for n in 0..20 {
        refused = bob.try_create(&format!("t{n}"), &format!("c{n}"), &["a"]).await.err();
        if refused.is_some() {
            assert!(n >= 2, "it may make two at once");
            break;
        }
    }
    let refused = refused.expect("twenty are too many");
    assert_eq!((refused.code, &refused.details["rate"]), (Code::Unavailable, &1.into()));
    bob.log("t0").await.unwrap();
    let ms = refused.details["retry_after_ms"].as_u64().unwrap();
    tokio::time::sleep(Duration::from_millis(ms)).await;
    bob.try_create("later", "later", &["a"]).await.unwrap();
}

/// LIVE-03: a log that is imported counts as the creation of a Task of its length, part by part. What was
/// refused may come again, and nothing of what has come is lost.
#[tokio::test(flavor = "multi_thread")]
async fn imports_have_the_rate_of_creates() {
    const PART: usize = 100 << 10; // It counts as two hundred Tasks.
    let servers = Servers::start();
    let rates = RateSettings { creates: 1_000, ..RateSettings::default() };
    let settings = Settings { rates, ..servers.settings("n1") };
    let _node = servers.node_of(settings).await;
    let bob = Caller::new(&servers).await;
    let bring = async |from: usize| {
        let (task_id, lines) = ("t".parse().unwrap(), RawBytes(vec![b'x'; PART]));
        let part = ImportLog { v: V, task_id, len: 64 << 20, from: from as u64, lines };
        let verb = format!("import.{}", bob.key("t").partition(PARTITIONS));
        bob.say::<Imported>(&verb, &part).await
    };
    let mut here = 0;
    let refused = loop {
        match bring(here).await {
            Ok(imported) => here = usize::try_from(imported.received).unwrap(),
            Err(refused) => break refused,
        }
        assert!(here < 40 * PART, "forty parts are too many");
    };
    assert!(here >= 10 * PART, "ten may come at once, and {here} bytes have come");
    assert_eq!((refused.code, &refused.details["rate"]), (Code::Unavailable, &1_000.into()));
    assert!(refused.message.contains("--rate-creates"), "{refused}");
    let ms = refused.details["retry_after_ms"].as_u64().unwrap();
    tokio::time::sleep(Duration::from_millis(ms + 100)).await;
    let received = bring(here).await.unwrap().received;
    assert_eq!(usize::try_from(received).unwrap(), here + PART, "it goes on where it was");
}

/// How many Steps say at a time how far they are.
const AT_ONCE: usize = 8;

/// LIVE-03: a handler that says more than its principal may is slower, and loses nothing of what it says.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_says_again_what_was_refused() {
    let servers = Servers::start();
    let rates = RateSettings { reports: 2, ..RateSettings::default() };
    let node = node_with(&servers, rates).await;
    let handlers = Handlers::new().on("chatty", |ctx| async move {
        for percent in [10.0, 20.0, 30.0] {
            let progress = Progress { percent: Some(percent), ..Progress::default() };
            ctx.send_status(progress).await?;
        }
        Ok(ctx.complete(None)?)
    });
    let options = Options::new(NonZeroUsize::new(AT_ONCE).unwrap());
    let member = PoolMember { pool: "default", name: "ant", build: None };
    let settings = NatsSettings::new(servers.url());
    let _ant =
        WorkerPool::connect(settings.clone(), member, handlers.unwrap(), options).await.unwrap();
    let client: Client<NatsClient> = Client::connect(settings, "s1", "bob").await.unwrap();
    let steps = (0..AT_ONCE).map(|n| Step::new(&format!("s{n}")).handler("chatty"));
    let task = steps.fold(Task::new("t").id("t"), Task::step);
    let task = client.create(task).await.unwrap();
    assert_eq!(client.wait_for_end(&task).await.unwrap().status, TaskStatus::Completed);
    assert!(node.sampler()().live.over_rate > 0, "some of it was too much");
    let bob = Caller::new(&servers).await;
    let said = bob.events("t").await;
    let count = |event: &str| said.iter().filter(|said| *said == event).count();
    assert_eq!(count("task_step_started") + count("task_step_updated"), 3 * AT_ONCE, "{said:?}");
    assert_eq!((count("task_step_claimed"), count("task_step_completed")), (AT_ONCE, AT_ONCE));
}
