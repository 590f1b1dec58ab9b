//! The checker itself: it passes a sound log and finds what was broken in it.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use tenure_tests::binary::{Running, tenure};
use tenure_tests::wal;

const DIAMOND: &str = r#"{"task_id": "diamond", "steps": [
    {"id": "a", "noop": true},
    {"id": "b", "depends_on": "a", "noop": true},
    {"id": "c", "depends_on": "a", "sleep": "1ms"},
    {"id": "d", "depends_on": ["b", "c"], "noop": true}]}"#;

fn log() -> Result<String> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("diamond.json");
    std::fs::write(&file, DIAMOND)?;
    let data = dir.path().join("data");
    let mut command = Command::new(tenure()?);
    command.arg("run").arg(&file).arg("--data").arg(&data).args(["-o", "quiet"]);
    let ended = Running::start(&mut command)?.end(Duration::from_secs(60))?;
    ensure!(ended.status.success(), "{ended:?}");
    Ok(std::fs::read_to_string(data.join("tasks/default/diamond.wal.jsonl"))?)
}

fn faults(text: &str) -> String {
    wal::check_bytes(text.as_bytes(), false)
        .map_or_else(|error| format!("{error:#}"), |_| String::new())
}

#[test]
fn a_sound_log_passes() -> Result<()> {
    let summary = wal::check_bytes(log()?.as_bytes(), false)?;
    ensure!(summary.ended.as_deref() == Some("task_completed"));
    ensure!(summary.completed.len() == 4 && summary.attempts.values().all(|&n| n == 1));
    Ok(())
}

#[test]
fn a_changed_byte_shows() -> Result<()> {
    let log = log()?;
    ensure!(faults(&log.replacen("\"title\":\"a\"", "\"title\":\"b\"", 1)).contains("checksum"));
    Ok(())
}

#[test]
fn a_missing_or_doubled_line_shows() -> Result<()> {
    let log = log()?;
    let lines: Vec<&str> = log.split_inclusive('\n').collect();
    for at in 0..lines.len() {
        let missing: String = [&lines[..at], &lines[at + 1..]].concat().concat();
        let doubled: String = [&lines[..=at], &lines[at..]].concat().concat();
        ensure!(at + 1 == lines.len() || !faults(&missing).is_empty(), "line {at} is not missed");
        ensure!(!faults(&doubled).is_empty(), "line {at} may be doubled");
    }
    Ok(())
}

#[test]
fn a_torn_end_is_allowed_only_after_a_crash() -> Result<()> {
    let log = log()?;
    for cut in 1..log.len() {
        let text = &log.as_bytes()[..log.len() - cut];
        ensure!(wal::check_bytes(text, true).is_ok(), "{cut} bytes cut off");
    }
    ensure!(!faults(&log[..log.len() - 1]).is_empty());
    Ok(())
}
