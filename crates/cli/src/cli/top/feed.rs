//! Asks a cluster again and again, beside whoever shows the answers.

use std::time::{Duration, Instant};

use tenure_core::id::SessionId;
use tenure_core::{Code, Rejection};
use tenure_sdk::client::Client;
use tenure_sdk::nats::NatsClient;
use tenure_sdk::nats::client::Gather;
use tenure_wire::bus::operate::{LeaseRow, NodeFacts};
use tokio::sync::mpsc::{self, Sender};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::cli::answer::{Exit, Failure};
use crate::cli::place::ClusterUser;

/// How long one try to find the cluster may take: then it is said that nobody answers.
const JOIN: Duration = Duration::from_secs(3);

/// Attempts that are asked for in each partition.
const OLDEST: usize = 50;

/// How often they are asked for. Their owners go through all leases that they keep for it, and they
/// are those that change least.
const LEASES_EVERY: Duration = Duration::from_secs(2);

/// The same where it takes them long.
const LEASES_SELDOM: Duration = Duration::from_secs(5);

/// It takes long if it would take more than one part in so many of the time.
const LEASES_SHARE: u32 = 20;

/// Answers that wait to be shown. Whoever asks waits for whoever shows.
const NEWS_MAX: usize = 4;

/// What was heard.
pub(super) enum FeedMessage {
    Nodes(Result<Gather<NodeFacts>, Rejection>),
    Leases(Result<Gather<LeaseRow>, Rejection>),
    /// It is no use to ask any more.
    Refused(Failure),
}

/// Begins to ask. It ends when nobody listens any more.
pub(super) fn start(
    caller: ClusterUser,
    session: SessionId,
    every: Duration,
) -> mpsc::Receiver<FeedMessage> {
    let (tell, news) = mpsc::channel(NEWS_MAX);
    tokio::spawn(async move {
        let asked = async {
            let client = join(&caller, &session, &tell).await?;
            let client = client.port();
            let ((), ()) = tokio::join!(ask_nodes(client, every, &tell), ask_leases(client, &tell));
            Some(())
        };
        let _ = asked.await; // Nobody listens any more.
    });
    news
}

/// Tries until some node answers; none: it is no use.
async fn join(
    caller: &ClusterUser,
    session: &SessionId,
    tell: &Sender<FeedMessage>,
) -> Option<Client<NatsClient>> {
    loop {
        let why = match timeout(JOIN, caller.client(session)).await {
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
