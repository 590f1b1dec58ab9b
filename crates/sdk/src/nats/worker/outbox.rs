//! Holds the reports that wait to be sent, by partition.
//!
//! A report is sent at once while few messages to its partition are unanswered. Otherwise reports
//! gather and go together, so the number of messages for each report falls under load.
//!
//! Step 10 of the walk in docs/architecture.md.

use std::collections::{BTreeMap, VecDeque};

use tenure_core::Rejection;
use tenure_ports::bus::Recorded;
use tenure_ports::journal::TaskKey;
use tenure_wire::bus::worker::{Report, Reported};
use tokio::sync::oneshot;

use crate::patience::unavailable;

/// Unanswered messages to a partition beyond which reports gather.
const IN_FLIGHT: usize = 8;

/// Reports in a message.
const REPORTS_MAX: usize = 256;

/// Bytes of reports in a message, but for one that is longer by itself.
const BYTES_MAX: usize = 256 << 10;

/// A report and the caller that waits for its outcome.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) task: TaskKey,
    pub(super) report: Report,
    pub(super) bytes: usize,
    /// To be sent alone, because the message with it and others was refused.
    pub(super) alone: bool,
    pub(super) waiter: oneshot::Sender<Result<Recorded, Rejection>>,
}

/// The reports that wait.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// The number of partitions of the cluster; 0 until a node has said it.
    partitions: u32,
    unplaced: Vec<Item>,
    lanes: BTreeMap<u32, OutboxLane>,
}

#[derive(Debug, Default)]
struct OutboxLane {
    waiting: VecDeque<Item>,
    in_flight: usize,
}

impl Outbox {
    /// Adds a report behind those of its partition.
    pub(super) fn push(&mut self, item: Item) {
        if self.partitions == 0 {
            return self.unplaced.push(item);
        }
        let partition = item.task.partition(self.partitions);
        self.lanes.entry(partition).or_default().waiting.push_back(item);
    }

    /// Sets the number of partitions, which never changes in a cluster.
    pub(super) fn place(&mut self, partitions: u32) {
        if self.partitions == 0 {
            self.partitions = partitions;
            for item in std::mem::take(&mut self.unplaced) {
                self.push(item);
            }
        }
    }

    /// The reports to send now, and their partition. The caller then calls
    /// [`answered`](Self::answered).
    pub(super) fn next(&mut self) -> Option<(u32, Vec<Item>)> {
        let mut lanes = self.lanes.iter_mut();
        let is_open = |lane: &OutboxLane| lane.in_flight < IN_FLIGHT && !lane.waiting.is_empty();
        let (partition, lane) = lanes.find(|(_, lane)| is_open(lane))?;
        lane.in_flight += 1;
        Some((*partition, lane.gather()))
    }

    /// The message to a partition was answered, or nobody waits for its answer any more.
    pub(super) fn answered(&mut self, partition: u32) {
        if let Some(lane) = self.lanes.get_mut(&partition) {
            lane.in_flight -= 1;
        }
    }
}

impl OutboxLane {
    fn gather(&mut self) -> Vec<Item> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(next) = self.waiting.front() {
            bytes += next.bytes;
            let is_full = batch.len() == REPORTS_MAX || bytes > BYTES_MAX || next.alone;
            if is_full && !batch.is_empty() {
                break;
            }
            let is_alone = next.alone;
            batch.extend(self.waiting.pop_front());
            if is_alone {
                break;
            }
        }
        batch
    }
}

/// The outcome of each of `count` reports.
pub(super) fn outcomes(
    answer: Result<Reported, Rejection>,
    count: usize,
) -> Vec<Result<Recorded, Rejection>> {
    let mut all = match answer {
        Ok(reported) => reported.results.into_iter().map(Recorded::of).collect(),
        Err(refused) => vec![Err(refused); count],
    };
    all.resize(count, Err(unavailable("the answer does not say what became of the report")));
    all
}

#[cfg(test)]
mod tests {
    use tenure_core::Code;
    use tenure_core::command::RunOutcome;
    use tenure_core::id::{RunId, SessionId, TaskId};
    use tenure_wire::bus::worker::{ReportResult, Word};

    use super::*;

    fn item(task: &str, bytes: usize) -> Item {
        let session_id = SessionId::new("s").unwrap();
        let task_id = TaskId::new(task).unwrap();
        let run_id = RunId(uuid::Uuid::now_v7());
        let report = Report {
            session_id: session_id.clone(),
            task_id: task_id.clone(),
            run_id,
            word: Word::EndRun { outcome: RunOutcome::Finished, result: None },
        };
        let (waiter, _) = oneshot::channel();
        Item { task: TaskKey { session_id, task_id }, report, bytes, alone: false, waiter }
    }

    fn of_one_partition() -> Outbox {
        let mut outbox = Outbox::default();
        outbox.place(1);
        outbox
    }

    #[test]
    fn the_first_reports_go_at_once_and_later_ones_gather() {
        let mut outbox = of_one_partition();
        for _ in 0..IN_FLIGHT {
            outbox.push(item("t", 10));
            assert_eq!(outbox.next().unwrap().1.len(), 1);
        }
        for _ in 0..5 {
            outbox.push(item("t", 10));
        }
        assert!(outbox.next().is_none(), "as many as may be are unanswered");
        outbox.answered(0);
        assert_eq!(outbox.next().unwrap().1.len(), 5);
        assert!(outbox.next().is_none());
    }

    #[test]
    fn a_message_holds_so_many_reports_and_bytes() {
        let mut outbox = of_one_partition();
        for _ in 0..REPORTS_MAX + 1 {
            outbox.push(item("t", 1));
        }
        assert_eq!(outbox.next().unwrap().1.len(), REPORTS_MAX);
        assert_eq!(outbox.next().unwrap().1.len(), 1);
        for _ in 0..3 {
            outbox.push(item("t", BYTES_MAX / 2));
        }
        assert_eq!(outbox.next().unwrap().1.len(), 2);
        assert_eq!(outbox.next().unwrap().1.len(), 1);
        outbox.push(item("t", BYTES_MAX * 2));
        assert_eq!(outbox.next().unwrap().1.len(), 1, "what is too long for any goes by itself");
    }

    #[test]
    fn what_was_refused_with_others_goes_alone() {
        let mut outbox = of_one_partition();
        outbox.push(item("t", 1));
        outbox.push(Item { alone: true, ..item("t", 1) });
        outbox.push(item("t", 1));
        let sizes = std::iter::from_fn(|| outbox.next()).map(|(_, batch)| batch.len());
        assert_eq!(sizes.collect::<Vec<_>>(), [1, 1, 1]);
    }

    #[test]
    fn reports_wait_until_the_partitions_are_known() {
        let mut outbox = Outbox::default();
        outbox.push(item("a", 1));
        assert!(outbox.next().is_none());
        outbox.place(4);
        let (partition, batch) = outbox.next().unwrap();
        assert_eq!(partition, batch[0].task.partition(4));
    }

    #[test]
    fn every_report_learns_what_became_of_it() {
        let recorded = ReportResult {
            version: Some(7),
            cancel_requested: true,
            time_left_ms: None,
            error: None,
        };
        let open = ReportResult {
            version: None,
            cancel_requested: false,
            time_left_ms: None,
            error: None,
        };
        let answer = Reported { results: vec![recorded, open] };
        let all = outcomes(Ok(answer), 3);
        assert_eq!(all[0], Ok(Recorded { version: 7, cancel_requested: true, time_left_ms: None }));
        assert_eq!(all[1].as_ref().unwrap_err().code, Code::Unavailable);
        assert_eq!(all[2].as_ref().unwrap_err().code, Code::Unavailable);
        let refused = outcomes(Err(Rejection::new(Code::NotOwner, "another's")), 2);
        assert!(refused.iter().all(|one| one.as_ref().unwrap_err().code == Code::NotOwner));
    }
}
