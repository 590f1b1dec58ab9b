//! Which partition a Task belongs to: the same for ever and in every language.

#![allow(clippy::unwrap_used)]

use tenure_ports::journal::TaskKey;

fn key(session: &str, task: &str) -> TaskKey {
    TaskKey { session_id: session.parse().unwrap(), task_id: task.parse().unwrap() }
}

/// OWN-01: known answers, computed elsewhere, and Tasks with ids as
/// libraries make them spread over all partitions.
#[test]
fn a_task_belongs_to_one_partition() {
    assert_eq!(key("s", "t").hash64(), 0x81bd_8919_5c76_cc76);
    assert_eq!(key("session-1", "task-42").hash64(), 0x4e58_289c_0ebb_a80f);
    assert_ne!(key("a", "bc").hash64(), key("ab", "c").hash64(), "the zero byte keeps them apart");
    assert_eq!(key("s", "t").partition(8), 1);
    let mut tasks = [0; 8];
    let id =
        |n: u128| format!("{:032x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
    (0..8_000).for_each(|n| tasks[key("s", &id(n)).partition(8) as usize] += 1);
    assert!(tasks.iter().all(|&n| (800..1_200).contains(&n)), "{tasks:?}");
    assert_eq!(key("s", "t").partition(1), 0);
}

/// The table of docs/protocol.md, by which others compute it.
#[test]
fn the_documented_answers_are_right() {
    let page = include_str!("../../../docs/protocol.md");
    let table = page.lines().skip_while(|line| !line.contains("| hash |")).skip(2);
    let rows: Vec<Vec<&str>> = table
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.split('|').map(|cell| cell.trim().trim_matches('`')).collect())
        .collect();
    assert_eq!(rows.len(), 6);
    for row in rows {
        let task = key(row[1], row[2]);
        assert_eq!(format!("{:016x}", task.hash64()), row[3]);
        for (partitions, column) in [(8, 4), (3, 5), (1, 6)] {
            assert_eq!(task.partition(partitions).to_string(), row[column], "{task}");
        }
    }
}
