//! Finding and killing the children of this process, which has one thread.

use std::fs;
use std::io;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid, getpgrp};

/// Kills every child, and with it its whole group: the kernel does that in one sweep, which a group
/// that keeps forking cannot outrun. All groups of children but our own hold only descendants of
/// ours, for we lead a session of our own.
pub(super) fn kill_children() {
    for child in children() {
        if let Some(group) = group_of(child).filter(|group| *group != getpgrp()) {
            let _ = killpg(group, Signal::SIGKILL);
        }
        let _ = kill(child, Signal::SIGKILL); // It has ended, or is beyond our rights.
    }
}

pub(super) fn has_child_in_group(group: Pid) -> bool {
    children().into_iter().any(|child| group_of(child) == Some(group))
}

fn group_of(child: Pid) -> Option<Pid> {
    getpgid(Some(child)).ok()
}

/// The children of this process. They stay valid until they are waited for.
fn children() -> Vec<Pid> {
    listed_children().or_else(|_| scanned_children()).unwrap_or_default()
}

/// The kernel's own list, which some kernels are built without.
fn listed_children() -> io::Result<Vec<Pid>> {
    let list = fs::read_to_string(format!("/proc/self/task/{}/children", Pid::this()))?;
    Ok(list.split_ascii_whitespace().filter_map(parse_pid).collect())
}

fn scanned_children() -> io::Result<Vec<Pid>> {
    let this = Pid::this();
    let processes = fs::read_dir("/proc")?.filter_map(|entry| {
        let pid = parse_pid(entry.ok()?.file_name().to_str()?)?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        (parent_in_stat(&stat) == Some(this)).then_some(pid)
    });
    Ok(processes.collect())
}

/// The fourth field. The second is the program's name, which may contain anything.
fn parent_in_stat(stat: &str) -> Option<Pid> {
    let (_, after_name) = stat.rsplit_once(')')?;
    parse_pid(after_name.split_ascii_whitespace().nth(1)?)
}

fn parse_pid(text: &str) -> Option<Pid> {
    text.parse().ok().map(Pid::from_raw)
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_a_hostile_program_name() {
        let stat = "12 (a) S 1 (b) R 34 56 7";
        assert_eq!(parent_in_stat(stat), Some(Pid::from_raw(34)));
    }

    #[test]
    fn a_scan_finds_the_child_of_this_process() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("spawns");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("small"));
        assert!(scanned_children().expect("readable").contains(&pid));
        child.kill().expect("killed");
        child.wait().expect("waited for");
    }
}
