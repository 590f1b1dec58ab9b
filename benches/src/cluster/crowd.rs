//! Many idle workers, spoken for by one connection: what they cost a node.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use async_nats::{Client, Subscriber};
use futures::StreamExt as _;
use tenure_core::features::Features;
use tenure_core::id::PoolId;
use tenure_core::sessions::WorkerSessions;
use tenure_wire::bus::subject::{ClusterName, Token, WorkerName};
use tenure_wire::bus::worker::{Capacity, Deliveries, Hello};
use tenure_wire::bus::{V, decode, encode};

/// A worker that has nothing to say states its room so often (docs/protocol.md).
const RESTATED: Duration = Duration::from_secs(2);

/// The statements of so many workers go out together.
const TOGETHER: usize = 50;

/// How long all may take to get their links.
const PATIENCE: Duration = Duration::from_secs(60);

/// Workers of a pool that has no work.
pub(crate) struct Crowd {
    client: Client,
    sent: Subscriber,
    workers: Vec<WorkerName>,
    /// The node and the link of each, by its inbox.
    links: HashMap<String, (String, String)>,
    number: u64,
}

impl Crowd {
    /// So many join, and have a link.
    pub(crate) async fn join(url: &str, count: usize) -> Result<Self> {
        let options = async_nats::ConnectOptions::new().subscription_capacity(4 * count);
        let client = options.connect(url).await?;
        let (pool, principal) = (PoolId::new("crowd")?, Token::new("crowd")?);
        let sent = client.subscribe("_INBOX.worker.crowd.>").await?;
        let name = |at: usize| -> Result<WorkerName> {
            let boot = Token::new(format!("b{at}"))?;
            Ok(WorkerName { pool: pool.clone(), principal: principal.clone(), boot })
        };
        let workers = (0..count).map(name).collect::<Result<_>>()?;
        let mut crowd = Self { client, sent, workers, links: HashMap::new(), number: 0 };
        let hello = encode(&Hello {
            v: V,
            handlers: None,
            sessions: WorkerSessions::ALL,
            worker_build: None,
            worker_host: None,
            features: Features::default(),
        })?;
        for worker in &crowd.workers {
            crowd
                .client
                .publish(
                    format!("{}.hello", worker.root(&ClusterName::default())),
                    hello.clone().into(),
                )
                .await?;
        }
        let begun = Instant::now();
        while crowd.links.len() < count {
            ensure!(begun.elapsed() < PATIENCE, "{} of {count} have a link", crowd.links.len());
            let message = tokio::time::timeout(PATIENCE, crowd.sent.next()).await;
            let message = message.ok().flatten().context("the node is silent")?;
            let told: Deliveries = decode(&message.payload)?;
            let (inbox, _) = message.subject.rsplit_once(".d.").context("another subject")?;
            crowd.links.insert(inbox.to_owned(), (told.node.into(), told.link.into()));
        }
        Ok(crowd)
    }

    /// States the room of all, as often as idle workers do, spread over time.
    pub(crate) async fn idle(&mut self, time: Duration) -> Result<()> {
        let begun = Instant::now();
        let groups = self.workers.len().div_ceil(TOGETHER);
        let pause = RESTATED / u32::try_from(groups)?;
        let mut due = tokio::time::Instant::now();
        while begun.elapsed() < time {
            self.number += 1;
            for group in self.workers.chunks(TOGETHER) {
                for worker in group {
                    let (node, link) = &self.links[&worker.inbox()];
                    let room = Capacity {
                        v: V,
                        link: link.as_str().into(),
                        number: self.number,
                        free: 1,
                        seen: 0,
                        got: 0,
                        lost: 0,
                    };
                    let subject = format!("{}.node.{node}", worker.root(&ClusterName::default()));
                    self.client.publish(subject, encode(&room)?.into()).await?;
                }
                due += pause;
                tokio::time::sleep_until(due).await;
            }
        }
        Ok(())
    }
}
