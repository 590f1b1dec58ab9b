//! Which partition a Task belongs to: the same for ever and in every language.

#![allow(clippy::unwrap_used)]

use tenure_ports::journal::TaskKey;
use tenure_ports::placement::{OtherPlacement, PLACEMENT, check};
use uuid::{Builder, Uuid};

fn key(session: &str, task: &str) -> TaskKey {
    TaskKey { session_id: session.parse().unwrap(), task_id: task.parse().unwrap() }
}

/// OWN-01: known answers, computed elsewhere.
#[test]
fn a_task_belongs_to_one_partition() {
    assert_eq!(key("s", "t").hash64(), 0x2fc5_9ced_fbc9_040c);
    assert_eq!(key("session-1", "task-42").hash64(), 0xa8a2_3440_abd7_cab1);
    assert_ne!(key("a", "bc").hash64(), key("ab", "c").hash64(), "the zero byte keeps them apart");
    assert_eq!(key("s", "t").partition(8), 5);
    assert_eq!(key("s", "t").partition(1), 0);
}

/// Bits that look like chance, and are the same in every run.
fn bits(n: u32) -> u128 {
    let mut z =
        u128::from(n).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    z = (z ^ (z >> 61)).wrapping_mul(0xbf58_476d_1ce4_e5b9_94d0_49bb_1331_11eb);
    z ^ (z >> 67)
}

fn uuid7(n: u32) -> Uuid {
    let chance = bits(n).to_be_bytes();
    let mut tail = [0; 10];
    tail.copy_from_slice(&chance[..10]);
    Builder::from_unix_timestamp_millis(1_790_000_000_000 + u64::from(n), &tail).into_uuid()
}

/// Ids as people and programs give them, from a number.
fn id(pattern: &str, n: u32) -> String {
    let user = ["ann", "bob", "catherine", "d-smith"][n as usize % 4];
    match pattern {
        "job-0000" => format!("job-{n:04}"),
        "nightly-2026-11-01" => {
            let (year, month, day) = (2026 + n / 336, n / 28 % 12 + 1, n % 28 + 1);
            format!("nightly-{year}-{month:02}-{day:02}")
        }
        "order-17" => format!("order-{n}"),
        "uuid4" => Builder::from_random_bytes(bits(n).to_be_bytes()).into_uuid().to_string(),
        "uuid7" => uuid7(n).to_string(),
        "17-order" => format!("{n}-order"),
        "hex" => format!("{n:08x}"),
        _ => format!("{user}-{}", n / 4),
    }
}

/// OWN-01: whatever pattern the ids of a session have, its Tasks spread over all partitions, so that every
/// node of a fleet has its share.
#[test]
fn tasks_spread_over_partitions_whatever_their_ids_look_like() {
    let patterns = [
        "job-0000",
        "nightly-2026-11-01",
        "order-17",
        "uuid4",
        "uuid7",
        "17-order",
        "hex",
        "user-17",
    ];
    for pattern in patterns {
        for (count, partitions, most) in [(1_000, 8, 1.3), (16_000, 64, 1.35)] {
            let mut tasks = vec![0_u32; partitions as usize];
            for n in 0..count {
                tasks[key("main", &id(pattern, n)).partition(partitions) as usize] += 1;
            }
            let fullest = f64::from(*tasks.iter().max().unwrap());
            let mean = f64::from(count) / f64::from(partitions);
            assert!(
                fullest <= most * mean,
                "{pattern}, {fullest} where {mean} is the mean: {tasks:?}"
            );
        }
    }
}

/// OWN-01: the table of docs/protocol.md, by which others compute it.
#[test]
fn the_documented_answers_are_right() {
    let page = include_str!("../../../docs/protocol.md");
    let table = page.lines().skip_while(|line| !line.contains("| hash |")).skip(2);
    let rows: Vec<Vec<&str>> = table
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.split('|').map(|cell| cell.trim().trim_matches('`')).collect())
        .collect();
    assert!(rows.len() >= 12, "{rows:?}");
    for row in rows {
        let task = key(row[1], row[2]);
        assert_eq!(format!("{:016x}", task.hash64()), row[3], "{task}");
        for (partitions, column) in [(8, 4), (64, 5), (3, 6), (1, 7)] {
            assert_eq!(task.partition(partitions).to_string(), row[column], "{task}");
        }
    }
}

/// OWN-01: no other placement is taken for this one, and what to do is said.
#[test]
fn another_placement_is_refused() {
    assert_eq!(check(PLACEMENT), Ok(()));
    let older = check(1).unwrap_err();
    assert_eq!(older, OtherPlacement { found: 1 });
    let said = older.advice();
    assert!(
        said.contains("`tenure wal export --all") && said.contains("`tenure wal import "),
        "{said}"
    );
    assert!(check(3).unwrap_err().advice().contains("the version that the nodes"));
}
