//! For how long partitions do not answer: a cheap question to each, every ten milliseconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::PATIENCE;
use super::client::{Client, runtime, wait};
use super::message::Answer;
use super::tasks::{id_in, noop, task};

/// How often each partition is asked.
const EVERY: Duration = Duration::from_millis(10);

/// A shorter time between two answers says nothing.
const GAP_MIN: Duration = EVERY.saturating_mul(3);

/// Questions to all partitions.
#[derive(Debug)]
pub struct Probe {
    ends: Arc<AtomicBool>,
    asking: Vec<JoinHandle<Result<Seen>>>,
    tasks: Vec<String>,
    client: Client,
}

/// What a partition was seen to do.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Which.
    pub partition: u32,
    /// Questions that were answered.
    pub answered: u64,
    /// From when to when nothing was answered.
    gaps: Vec<(Instant, Instant)>,
}

impl Seen {
    /// The longest time without an answer. What all of these others did not answer either is taken
    /// off: nothing had happened to them, so that it was the machine that stood still. It may have been
    /// what is tested, too: whoever takes it off holds their own gaps to a bound.
    pub fn longest_gap(&self, others: &[&Self]) -> Duration {
        let own = |&(from, until): &(Instant, Instant)| {
            let silent = others.iter().map(|other| other.silent_within(from, until)).min();
            (until - from).saturating_sub(silent.unwrap_or_default())
        };
        self.gaps.iter().map(own).max().unwrap_or_default()
    }

    fn silent_within(&self, from: Instant, until: Instant) -> Duration {
        let shared =
            |gap: &(Instant, Instant)| gap.1.min(until).saturating_duration_since(gap.0.max(from));
        self.gaps.iter().map(shared).sum()
    }

    fn note(&mut self, from: Instant, until: Instant) {
        if until.saturating_duration_since(from) >= GAP_MIN {
            self.gaps.push((from, until));
        }
    }
}

impl Probe {
    /// Makes a draft in each partition, which runs nothing, and asks for it until the end.
    ///
    /// # Errors
    /// The drafts cannot be made.
    pub fn start(client: &Client) -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("probe-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let ends = Arc::new(AtomicBool::new(false));
        let (mut asking, mut tasks) = (Vec::new(), Vec::new());
        for partition in 0..client.partitions() {
            let id = id_in(partition, client.partitions(), &prefix);
            let mut draft = task(&id, &[noop("a", &[])]);
            draft["draft"] = json!(true);
            client.create(&draft)?;
            let (client, ends) = (client.clone(), Arc::clone(&ends));
            asking.push(runtime().spawn(ask(client, partition, id.clone(), ends)));
            tasks.push(id);
        }
        Ok(Self { ends, asking, tasks, client: client.clone() })
    }

    /// Ends as soon as every partition answers, and says what was seen of each.
    ///
    /// # Errors
    /// One does not answer for long, or something else came back than it should.
    pub fn finish(self) -> Result<Vec<Seen>> {
        for task in &self.tasks {
            self.client.log(task, PATIENCE)?;
        }
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
    let mut seen = Seen { partition, answered: 0, gaps: Vec::new() };
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
                    seen.note(last, at);
                    last = last.max(at);
                    seen.answered += 1;
                }
                Answer::Refused(refusal) => ensure!(refusal.retryable, "a probe: {refusal}"),
                Answer::NoResponders | Answer::Silence => {}
            },
        }
    }
    seen.note(last, Instant::now());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_answered_is_no_gap_of_one() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let seen = |gaps: &[(u64, u64)]| {
            let gaps = gaps.iter().map(|&(from, until)| (at(from), at(until))).collect();
            Seen { partition: 0, answered: 0, gaps }
        };
        let one = seen(&[(100, 900), (2_000, 2_300)]);
        let (others, awake) = (seen(&[(0, 400), (700, 1_000)]), seen(&[(0, 250)]));
        assert_eq!(one.longest_gap(&[]), Duration::from_millis(800));
        assert_eq!(one.longest_gap(&[&others]), Duration::from_millis(300));
        assert_eq!(one.longest_gap(&[&others, &awake]), Duration::from_millis(650));
    }
}
