//! Asks a cluster again and again, in a task of its own beside the display.

use std::time::{Duration, Instant};

use tenure_core::id::SessionId;
use tenure_core::{Code, Rejection};
use tenure_sdk::nats::NatsClient;
use tenure_sdk::nats::client::Gather;
use tenure_wire::bus::operate::{LeaseRow, NodeFacts};
use tokio::sync::mpsc::{self, Sender};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::answer::{Exit, Failure};
use crate::place::ClusterUser;

/// How long one try to find the cluster may take, before the screen says that nobody answers.
const JOIN: Duration = Duration::from_secs(3);

/// How many Attempts to ask of each partition.
const OLDEST: usize = 50;

/// How often to ask for them. Owners go through all their leases for this, and the oldest Attempts
/// change least.
const LEASES_EVERY: Duration = Duration::from_secs(2);

/// The same if it takes the owners long.
const LEASES_SELDOM: Duration = Duration::from_secs(5);

/// It takes long if it would take more than one part in so many of the time between.
const LEASES_SHARE: u32 = 20;

/// How many answers may wait to be shown: when the display is slow, asking waits.
const NEWS_MAX: usize = 4;

/// An answer of the cluster.
pub(super) enum FeedMessage {
    Nodes(Result<Gather<NodeFacts>, Rejection>),
    Leases(Result<Gather<LeaseRow>, Rejection>),
    /// A final refusal, after which it asks no more.
    Refused(Failure),
}

/// Begins to ask. It ends when the receiver is dropped.
pub(super) fn start(
    caller: ClusterUser,
    session: SessionId,
    every: Duration,
) -> mpsc::Receiver<FeedMessage> {
    let (tell, news) = mpsc::channel(NEWS_MAX);
    tokio::spawn(async move {
        let asked = async {
            let client = join(&caller, &session, &tell).await?;
            let ((), ()) =
                tokio::join!(ask_nodes(&client, every, &tell), ask_leases(&client, &tell));
            Some(())
        };
        let _ = asked.await; // It ends when the receiver is dropped.
    });
    news
}

/// Tries until some node answers; none if the refusal is final.
async fn join(
    caller: &ClusterUser,
    session: &SessionId,
    tell: &Sender<FeedMessage>,
) -> Option<NatsClient> {
    loop {
        let why = match timeout(JOIN, caller.nats(session)).await {
            Ok(Ok(client)) => return Some(client),
            Ok(Err(failure)) if failure.exit != Exit::Unavailable => {
                let _ = tell.send(FeedMessage::Refused(failure)).await;
                return None;
            }
            Ok(Err(failure)) => failure.message,
            Err(_) => "no node answers".into(),
        };
        let silence = Rejection::new(Code::Unavailable, why);
        tell.send(FeedMessage::Nodes(Err(silence))).await.ok()?;
        sleep(Duration::from_millis(100)).await;
    }
}

async fn ask_nodes(client: &NatsClient, every: Duration, tell: &Sender<FeedMessage>) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let heard = client.nodes().await;
        if tell.send(FeedMessage::Nodes(heard)).await.is_err() {
            return;
        }
    }
}

async fn ask_leases(client: &NatsClient, tell: &Sender<FeedMessage>) {
    loop {
        let begun = Instant::now();
        let heard = client.oldest_leases(OLDEST).await;
        if tell.send(FeedMessage::Leases(heard)).await.is_err() {
            return;
        }
        let wait = begun.elapsed() * LEASES_SHARE;
        sleep(wait.clamp(LEASES_EVERY, LEASES_SELDOM)).await;
    }
}
