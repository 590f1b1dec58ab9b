//! Reads what the system says of this process.

use std::time::{Duration, Instant};

/// Facts of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ProcessStats {
    /// Resident memory, in bytes.
    pub(crate) memory: u64,
    /// Processor time used by the program.
    pub(crate) cpu_user: Duration,
    /// Processor time used by the system for it.
    pub(crate) cpu_system: Duration,
    /// How many threads it has.
    pub(crate) threads: u64,
    /// How many files it has open.
    pub(crate) files: u64,
    /// Time since telemetry began.
    pub(crate) uptime: Duration,
}

/// How many ticks a second has in /proc, on every Linux.
const TICKS: u64 = 100;

/// How many bytes a kilobyte of /proc has.
const KB: u64 = 1_024;

impl ProcessStats {
    /// The numbers at present; 0 for what cannot be read.
    pub(crate) fn now(begun: Instant) -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let files = std::fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64);
        let (cpu_user, cpu_system) = cpu(&stat);
        Self {
            memory: field(&status, "VmRSS:") * KB,
            cpu_user,
            cpu_system,
            threads: field(&status, "Threads:"),
            files,
            uptime: begun.elapsed(),
        }
    }
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// User and system time: the 14th and 15th field, counted from behind the name, which may contain
/// anything.
fn cpu(stat: &str) -> (Duration, Duration) {
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let mut ticks = fields.skip(11).map(|field| field.parse::<u64>().unwrap_or(0));
    let mut time = || Duration::from_millis(ticks.next().unwrap_or(0) * 1_000 / TICKS);
    (time(), time())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_uses_memory_threads_and_files() {
        let now = ProcessStats::now(Instant::now());
        assert!(now.memory > KB * KB && now.threads >= 1 && now.files >= 3, "{now:?}");
    }

    #[test]
    fn a_name_with_a_bracket_does_not_move_the_fields() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0";
        assert_eq!(cpu(stat), (Duration::from_millis(2_500), Duration::from_millis(500)));
    }
}
