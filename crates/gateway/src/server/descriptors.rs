//! How many files the process may have open: each connection is one.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// How many descriptors are for everything that is no connection: the log files of a scheduler in the
/// same process, of which it keeps at most 8192 open, and connections to servers.
pub(super) const RESERVED: u64 = 9_216;

/// So few connections fit into the limit that processes have by default, and the limit stays as it is.
/// Commands that a worker of the same process starts inherit it, and some do not work with a high one.
const FEW: usize = 256;

/// Raises the soft limit of the process to what so many connections need, and returns how many there
/// can be. It says so in the log if there can be fewer.
pub(super) fn provide(connections: usize) -> usize {
    if connections <= FEW {
        return connections;
    }
    let wanted = connections as u64 + RESERVED;
    match raise_to(wanted) {
        Ok(limit) if limit >= wanted => connections,
        Ok(limit) => {
            let fewer = connections_within(limit).min(connections);
            tracing::warn!(
                limit,
                wanted,
                connections = fewer,
                "the limit of open files is too low for all connections (ulimit -n, LimitNOFILE)"
            );
            fewer
        }
        Err(error) => {
            tracing::warn!(%error, "the limit of open files cannot be read or raised");
            connections
        }
    }
}

/// The soft limit afterwards.
fn raise_to(wanted: u64) -> nix::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let raised = wanted.min(hard);
    if raised <= soft {
        return Ok(soft);
    }
    setrlimit(Resource::RLIMIT_NOFILE, raised, hard)?;
    Ok(raised)
}

/// How many of so many descriptors may be connections: half where there are few, as a scheduler in the
/// same process takes up to half of them for its log.
fn connections_within(limit: u64) -> usize {
    let rest = limit.saturating_sub(RESERVED).max(limit / 2).max(1);
    usize::try_from(rest).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_are_shared() {
        assert_eq!(connections_within(0), 1);
        assert_eq!(connections_within(1_024), 512);
        assert_eq!(connections_within(30_000), 20_784);
    }

    #[test]
    fn the_soft_limit_rises_and_never_falls() {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(raise_to(0), Ok(soft));
        let more = (soft + 1).min(hard);
        assert_eq!(raise_to(more), Ok(more));
        assert_eq!(raise_to(soft), Ok(more), "somebody else may need what it has");
    }
}
