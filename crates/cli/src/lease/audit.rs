//! `tenure lease audit`: checks that leases and the open Attempts in the logs agree.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tenure_core::id::AttemptId;
use tenure_sdk::nats::NatsClient;
use tenure_wire::bus::operate::LeaseRow;

use crate::answer::output;
use crate::answer::{Exit, Failure, Shape, human};
use crate::place::FleetArgs;

/// The time between two checks. A row found in both is no Attempt that was just beginning or
/// ending.
const AGAIN: Duration = Duration::from_secs(2);

/// Where leases and logs differ.
#[derive(Debug, Serialize)]
pub(crate) struct LeaseAudit {
    pub(crate) ok: bool,
    /// How many open Attempts and leases were checked.
    pub(crate) checked: usize,
    /// Open Attempts without a lease: the scheduler would not notice that their workers are dead.
    pub(crate) without_lease: Vec<LeaseRow>,
    /// Leases without an open Attempt, which have no effect.
    pub(crate) without_attempt: Vec<LeaseRow>,
}

pub(super) fn run(args: &FleetArgs) -> Result<Exit, Failure> {
    let report = args.ask_nats(async |client| compare(&client).await)?;
    args.output.answer(&report, Shape::nameless(), || {
        for (rows, what) in [
            (&report.without_lease, "open, and without a lease"),
            (&report.without_attempt, "leased, and not open in the log"),
        ] {
            for row in rows {
                let (task, attempt) = (&row.task_id, row.attempt_id);
                let step = row.open.as_ref().map(|open| format!(" of step {}", open.step_id));
                let step = step.unwrap_or_default();
                output::print(format_args!("task {task}: attempt {attempt}{step}: {what}\n"))?;
            }
        }
        let bad = report.without_lease.len() + report.without_attempt.len();
        let checked = human::plural(report.checked, "attempt");
        match bad {
            0 => output::print(format_args!("{checked} checked: leases and logs agree\n")),
            bad => output::print(format_args!("{checked} checked: {bad} do not fit\n")),
        }
    })?;
    Ok(if report.ok { Exit::Ok } else { Exit::TaskFailed })
}

/// Compares the leases of a session with its logs.
pub(crate) async fn compare(client: &NatsClient) -> Result<LeaseAudit, Failure> {
    let first = client.leases().await?;
    if first.iter().all(fits) {
        return Ok(judge(&first, &first));
    }
    tokio::time::sleep(AGAIN).await;
    Ok(judge(&first, &client.leases().await?))
}

/// Whether the row has both: an open Attempt and a lease.
fn fits(row: &LeaseRow) -> bool {
    row.open.is_some() && row.left_ms.is_some()
}

/// Rows that differ now and differed before in the same way.
fn judge(first: &[LeaseRow], second: &[LeaseRow]) -> LeaseAudit {
    let before: BTreeMap<AttemptId, &LeaseRow> =
        first.iter().map(|row| (row.attempt_id, row)).collect();
    let twice = |row: &&LeaseRow, is_bad: fn(&LeaseRow) -> bool| {
        is_bad(row) && before.get(&row.attempt_id).is_some_and(|row| is_bad(row))
    };
    let found = |is_bad: fn(&LeaseRow) -> bool| -> Vec<LeaseRow> {
        second.iter().filter(|row| twice(row, is_bad)).cloned().collect()
    };
    let without_lease = found(|row| row.left_ms.is_none());
    let without_attempt = found(|row| row.open.is_none());
    let ok = without_lease.is_empty() && without_attempt.is_empty();
    LeaseAudit { ok, checked: second.len(), without_lease, without_attempt }
}

#[cfg(test)]
mod tests {
    use tenure_wire::bus::operate::OpenAttempt;
    use uuid::Uuid;

    use super::*;

    fn row(id: u128, left_ms: Option<u64>, is_open: bool) -> LeaseRow {
        let open = OpenAttempt {
            step_id: "a".parse().unwrap(),
            ordinal: 1,
            worker_id: "w.b".parse().unwrap(),
            started_at: 0,
        };
        let (task_id, attempt_id) = ("t".parse().unwrap(), AttemptId(Uuid::from_u128(id)));
        LeaseRow { task_id, attempt_id, left_ms, open: is_open.then_some(open) }
    }

    #[test]
    fn only_what_does_not_fit_twice_is_reported() {
        let first =
            [row(1, Some(9), true), row(2, None, true), row(3, Some(9), false), row(4, None, true)];
        let second = [
            row(1, None, true),
            row(2, None, true),
            row(3, Some(1), false),
            row(4, Some(9), true),
            row(5, Some(9), false),
        ];
        let report = judge(&first, &second);
        let ids = |rows: &[LeaseRow]| rows.iter().map(|row| row.attempt_id.0.as_u128()).collect();
        let without: (Vec<u128>, Vec<u128>) =
            (ids(&report.without_lease), ids(&report.without_attempt));
        assert_eq!(without, (vec![2], vec![3]));
        assert!(!report.ok);
        assert!(judge(&second[3..4], &second[3..4]).ok);
    }
}
