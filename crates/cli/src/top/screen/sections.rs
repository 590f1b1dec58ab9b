//! Makes the content of the sections of the screen.

use tenure_core::Counts;
use tenure_core::eligibility::Obstacle;

use super::table::{Cell, Column, TextTable, cell, name, number, perhaps, toned, word};
use crate::answer::{Tone, human};
use crate::pool::{longest, most_first};
use crate::top::snapshot::{
    AttemptRow, LongestAttempts, NodeRow, NodeState, PoolRow, Rates, TopSnapshot, WorkerRow,
    WorkerState,
};
use crate::top::ui::Section;

/// From this time on, a Step has waited for long.
const LONG_WAIT_MS: u64 = 60_000;

/// Heartbeats renew a lease three times while it lasts: with less than this left, one is late.
const SHORT_LEASE_MS: u64 = 5_000;

/// A part of the screen.
pub(super) struct ScreenSection {
    pub(super) title: String,
    /// A note about the whole section.
    pub(super) note: Option<(Tone, String)>,
    pub(super) table: TextTable,
    /// The text if there are no rows.
    pub(super) nothing: &'static str,
}

const NODES: &[Column] = &[
    name("NODE", 0),
    word("STATUS", 2),
    number("TASKS", 3),
    number("CLAIMS/S", 4),
    number("DONE/S", 5),
    name("PARTITIONS", 1),
];

const POOLS: &[Column] = &[
    name("POOL", 0),
    number("WORKERS", 3),
    number("FREE", 4),
    number("WAITING", 1),
    number("OLDEST", 2),
    number("RUNNING", 5),
    number("STEPS/S", 6),
    name("WAITS LONGEST", 7),
];

const WORKERS: &[Column] = &[
    name("WORKER", 0),
    name("POOL", 3),
    word("STATUS", 1),
    number("RUNNING", 2),
    number("FREE", 4),
    number("UNHEARD", 6),
    number("SILENT", 5),
];

const ATTEMPTS: &[Column] = &[
    name("TASK", 0),
    name("STEP", 1),
    number("TRY", 5),
    name("WORKER", 3),
    number("RUNNING", 2),
    number("LEASE", 4),
];

const COUNTS: &[Column] = &[
    word("", 3),
    number("CLAIMS", 1),
    number("COMPLETED", 0),
    number("FAILED", 0),
    number("LOST", 0),
    number("TASKS IN", 2),
    number("TASKS OUT", 1),
];

/// Makes a section from a snapshot.
pub(super) fn part(section: Section, snapshot: &TopSnapshot) -> ScreenSection {
    match section {
        Section::Nodes => ScreenSection {
            title: "nodes".into(),
            note: None,
            table: table(NODES, &snapshot.nodes, node),
            nothing: "no node has answered",
        },
        Section::Pools => ScreenSection {
            title: "pools".into(),
            note: None,
            table: table(POOLS, &snapshot.pools, pool),
            nothing: "there is no worker, and nothing waits for one",
        },
        Section::Workers => ScreenSection {
            title: "workers".into(),
            note: snapshot
                .more_workers
                .then(|| (Tone::Caution, "there are more than a node can name".into())),
            table: table(WORKERS, &snapshot.workers, worker),
            nothing: "no worker: `tenure worker --pool POOL` runs one",
        },
        Section::Attempts => ScreenSection {
            title: format!("running longest in session {}", snapshot.session),
            note: asked(&snapshot.attempts),
            table: table(ATTEMPTS, &snapshot.attempts.oldest, attempt),
            nothing: "nothing runs",
        },
    }
}

fn table<T>(columns: &'static [Column], rows: &[T], row: fn(&T) -> Vec<Cell>) -> TextTable {
    TextTable { columns, rows: rows.iter().map(row).collect() }
}

/// How old the list of Attempts is.
fn asked(attempts: &LongestAttempts) -> Option<(Tone, String)> {
    let ago = attempts.age_ms.map(|age| format!("asked {} ago", human::duration(age)));
    Some(match (ago, &attempts.trouble) {
        (Some(ago), None) if !attempts.missing_partitions.is_empty() => {
            let missing = ranges(&attempts.missing_partitions);
            (Tone::Bad, format!("{ago}, no answer for {missing}"))
        }
        (Some(ago), None) => (Tone::Faint, ago),
        (None, None) => (Tone::Faint, "asking".into()),
        (Some(ago), Some(why)) => (Tone::Bad, format!("{ago}, since then: {why}")),
        (None, Some(why)) => (Tone::Bad, why.clone()),
    })
}

fn node(node: &NodeRow) -> Vec<Cell> {
    let status = match node.state {
        NodeState::Here => toned("here", Tone::Good),
        NodeState::Silent => toned(format!("silent {}", human::duration(node.age_ms)), Tone::Bad),
    };
    vec![
        toned(&node.node, Tone::Strong),
        status,
        cell(node.tasks.map_or_else(unknown, human::count)),
        cell(node.rates.map_or_else(unknown, |rates| rate(rates.claims))),
        cell(node.rates.map_or_else(unknown, |rates| rate(rates.completed))),
        cell(ranges(&node.owned)),
    ]
}

fn pool(pool: &PoolRow) -> Vec<Cell> {
    let waits = match (pool.waiting, pool.workers, pool.oldest_ms) {
        (0, ..) => None,
        (_, 0, _) => Some(Tone::Bad),
        (_, _, Some(LONG_WAIT_MS..)) => Some(Tone::Caution),
        _ => None,
    };
    let oldest = pool.oldest_ms.map_or_else(unknown, human::duration);
    vec![
        toned(&pool.pool, Tone::Strong),
        perhaps(human::count(pool.workers), waits.filter(|tone| *tone == Tone::Bad)),
        cell(human::count(pool.free)),
        perhaps(human::count(pool.waiting), waits),
        perhaps(oldest, waits),
        cell(pool.running.map_or_else(unknown, human::count)),
        cell(pool.steps_per_s.map_or_else(unknown, rate)),
        perhaps(longest(pool.longest.as_ref(), pool.oldest_ms), waits),
    ]
}

/// What Steps wait for, the most first, each with its tone.
pub(super) fn waits(snapshot: &TopSnapshot) -> Vec<(Option<Tone>, String)> {
    let all = snapshot.waits.iter().flat_map(most_first);
    let each = all.map(|(why, count)| {
        let tone = match Obstacle::from_name(&why) {
            Some(
                Obstacle::LogUnavailable
                | Obstacle::LeasesUnavailable
                | Obstacle::NoWorkerInPool
                | Obstacle::NoWorkerServesSession
                | Obstacle::NoWorkerWithHandler
                | Obstacle::DependencyUnsatisfiable,
            ) => Some(Tone::Bad),
            Some(Obstacle::PoolSaturated) => Some(Tone::Caution),
            _ => None,
        };
        (tone, format!("{} {why}", human::count(count)))
    });
    each.collect()
}

fn worker(worker: &WorkerRow) -> Vec<Cell> {
    let status = match worker.state {
        WorkerState::Gone => toned("gone", Tone::Bad),
        WorkerState::Silent => toned("silent", Tone::Bad),
        WorkerState::Suspended => toned("suspended", Tone::Bad),
        WorkerState::Leaving => toned("leaving", Tone::Caution),
        WorkerState::Here => toned("here", Tone::Good),
    };
    let is_silent = worker.state < WorkerState::Suspended;
    vec![
        toned(human::one_line(worker.worker.as_str()), Tone::Strong),
        cell(&worker.pool),
        status,
        cell(worker.running.map_or_else(unknown, human::count)),
        cell(human::count(worker.free)),
        cell(human::count(worker.unheard)),
        perhaps(human::duration(worker.silent_ms), is_silent.then_some(Tone::Bad)),
    ]
}

fn attempt(attempt: &AttemptRow) -> Vec<Cell> {
    let lease = match attempt.left_ms {
        None => toned("none", Tone::Bad),
        Some(0) => toned("has ended", Tone::Bad),
        Some(left @ ..SHORT_LEASE_MS) => toned(human::duration(left), Tone::Caution),
        Some(left) => cell(human::duration(left)),
    };
    vec![
        toned(&attempt.task_id, Tone::Strong),
        cell(&attempt.step_id),
        perhaps(attempt.ordinal, (attempt.ordinal > 1).then_some(Tone::Caution)),
        cell(human::one_line(attempt.worker_id.as_str())),
        cell(human::duration(attempt.running_ms)),
        lease,
    ]
}

/// The rates, and the counts since the nodes began.
pub(super) fn counts(snapshot: &TopSnapshot) -> TextTable {
    let per_second = match snapshot.rates {
        Some(rates) => rates_row(rates),
        None => [toned("for each second", Tone::Faint)]
            .into_iter()
            .chain((1..COUNTS.len()).map(|_| cell(unknown())))
            .collect(),
    };
    TextTable { columns: COUNTS, rows: vec![per_second, totals_row(snapshot.counts)] }
}

fn rates_row(rates: Rates) -> Vec<Cell> {
    let unwanted = |value: f64, tone| perhaps(rate(value), (value > 0.0).then_some(tone));
    vec![
        toned("for each second", Tone::Faint),
        cell(rate(rates.claims)),
        cell(rate(rates.completed)),
        unwanted(rates.failed, Tone::Caution),
        unwanted(rates.lost, Tone::Bad),
        cell(rate(rates.tasks_created)),
        cell(rate(rates.tasks_ended)),
    ]
}

fn totals_row(counts: Counts) -> Vec<Cell> {
    let Counts { claims, completed, failed, lost, tasks_created, tasks_ended } = counts;
    let counts = [claims, completed, failed, lost, tasks_created, tasks_ended];
    let name = toned("since nodes began", Tone::Faint);
    [name].into_iter().chain(counts.map(|count| cell(human::count(count)))).collect()
}

fn unknown() -> String {
    "–".into()
}

/// `0`, `0.3`, `12.5`, `1,204`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Between 1,000 and what fits.
fn rate(per_second: f64) -> String {
    match per_second {
        0.0 => "0".into(),
        ..1_000.0 => format!("{per_second:.1}"),
        _ => human::count(per_second.round() as u64),
    }
}

/// `0-3, 7`.
pub(super) fn ranges(numbers: &[u32]) -> String {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in sorted {
        match ranges.last_mut() {
            Some((_, last)) if number <= last.saturating_add(1) => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let text = |(first, last): (u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_and_rates_are_short() {
        assert_eq!(ranges(&[7, 0, 1, 2, 3, 9, 10]), "0-3, 7, 9-10");
        assert_eq!(ranges(&[]), "");
        let rates = [0.0, 0.01, 0.3, 12.5, 999.94, 1_204.4].map(rate);
        assert_eq!(rates, ["0", "0.0", "0.3", "12.5", "999.9", "1,204"]);
    }
}
