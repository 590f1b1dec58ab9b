//! For how long partitions do not answer: a cheap question to each, every ten milliseconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::client::{Client, runtime, wait};
use super::message::Answer;
use super::tasks::{id_in, noop, task};

/// How often each partition is asked.
const EVERY: Duration = Duration::from_millis(10);

/// Questions to all partitions.
#[derive(Debug)]
pub struct Probe {
    ends: Arc<AtomicBool>,
    asking: Vec<JoinHandle<Result<Seen>>>,
    tasks: Vec<String>,
    client: Client,
}

/// What a partition was seen to do.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// Which.
    pub partition: u32,
    /// Questions that were answered.
    pub answered: u64,
    /// The longest time between two answers.
    pub gap: Duration,
    /// When the longest gap was over.
    pub until: Instant,
}

impl Probe {
    /// Makes a draft in each partition, which runs nothing, and asks for it until the end.
    ///
    /// # Errors
    /// The drafts cannot be made.
    pub fn start(client: &Client) -> Result<Self> {
        let ends = Arc::new(AtomicBool::new(false));
        let (mut asking, mut tasks) = (Vec::new(), Vec::new());
        for partition in 0..client.partitions() {
            let id = id_in(partition, client.partitions(), "probe");
            let mut draft = task(&id, &[noop("a", &[])]);
            draft["draft"] = json!(true);
            client.create(&draft)?;
            let (client, ends) = (client.clone(), Arc::clone(&ends));
            asking.push(runtime().spawn(ask(client, partition, id.clone(), ends)));
            tasks.push(id);
        }
        Ok(Self { ends, asking, tasks, client: client.clone() })
    }

    /// Ends, and answers what was seen of each partition.
    ///
    /// # Errors
    /// Something else came back than it should.
    pub fn finish(self) -> Result<Vec<Seen>> {
        self.ends.store(true, Ordering::Release);
        let mut seen = Vec::new();
        for asking in self.asking {
            seen.push(wait(asking).context("a probe")??);
        }
        for task in &self.tasks {
            self.client.cancel(task)?;
        }
        Ok(seen)
    }
}

/// Asks, without waiting for earlier answers.
async fn ask(client: Client, partition: u32, task: String, ends: Arc<AtomicBool>) -> Result<Seen> {
    let (tell, mut answers) = unbounded_channel();
    let subject = client.subject(partition);
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut last = Instant::now();
    let mut seen = Seen { partition, answered: 0, gap: Duration::ZERO, until: last };
    let body = json!({"v": 1, "operation": "task_get", "task_id": task});
    while !ends.load(Ordering::Acquire) {
        tokio::select! {
            _ = ticks.tick() => {
                let (client, subject, body, tell) =
                    (client.clone(), subject.clone(), body.clone(), tell.clone());
                tokio::spawn(async move {
                    let answer = client.request(&subject, &body).await;
                    let _ = tell.send((answer, Instant::now())); // The probe may have ended.
                });
            }
            Some((answer, at)) = answers.recv() => match answer? {
                Answer::Done(_) => {
                    let gap = at.saturating_duration_since(last);
                    if gap > seen.gap {
                        (seen.gap, seen.until) = (gap, at);
                    }
                    last = last.max(at);
                    seen.answered += 1;
                }
                Answer::Refused(refusal) => ensure!(refusal.retryable, "a probe: {refusal}"),
                Answer::NoResponders | Answer::Silence => {}
            },
        }
    }
    seen.gap = seen.gap.max(last.elapsed());
    Ok(seen)
}

/// A harmless write: its acknowledgement proves that the partition can append.
///
/// # Errors
/// It is refused, or nobody answers in time.
pub fn append(client: &Client, task: &str, within: Duration) -> Result<()> {
    let input = json!({"progress": {"summary": "still there"}});
    wait(client.change(task, "append_task_progress", &input, within))
}
