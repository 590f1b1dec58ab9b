//! What a command does not inherit: the logins of the worker that runs it.
//!
//! A worker gets its own login from variables such as `TENURE_NATS_URL`, `TENURE_TOKEN` or `TENURE_REDIS_URL`, and
//! whoever may create a Task says what its commands do. So a command gets the environment of the worker without the
//! variables of Tenure and without headers for telemetry, which hold tokens. What a command shall have all the same,
//! the worker hands on by name.
//!
//! The same is true for what the servers of tools get by name: a login there, which a Step uses through the tools that
//! it may call, and not by itself.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::process::Command;

use parking_lot::RwLock;

/// The variables that servers of tools get. What a process hands on holds for all of it.
static OF_SERVERS: RwLock<BTreeSet<String>> = RwLock::new(BTreeSet::new());

/// Takes the variables that servers of tools get from all commands that start from now on.
#[cfg(feature = "mcp")]
pub(crate) fn withhold_for_servers(names: impl IntoIterator<Item = String>) {
    OF_SERVERS.write().extend(names);
}

/// Whether commands do not inherit a variable of this name.
pub(super) fn is_withheld(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    bytes.starts_with(b"TENURE_")
        || (bytes.starts_with(b"OTEL_") && bytes.ends_with(b"_HEADERS"))
        || name.to_str().is_some_and(|name| OF_SERVERS.read().contains(name))
}

/// Takes from a command what it shall not inherit. Call it before the command's own variables are set.
pub(crate) fn withhold(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_withheld(name)) {
        command.env_remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "mcp")]
    #[test]
    fn logins_of_servers_are_withheld() {
        let name = OsStr::new("SOME_SERVER_S_TOKEN");
        assert!(!is_withheld(name));
        withhold_for_servers(["SOME_SERVER_S_TOKEN".to_owned()]);
        assert!(is_withheld(name));
    }

    #[test]
    fn logins_are_withheld_and_nothing_else_is() {
        let withheld = [
            "TENURE_NATS_URL",
            "TENURE_TOKEN",
            "TENURE_REDIS_URL",
            "TENURE_JOURNAL_PASSWORD",
            "TENURE_DATA",
            "OTEL_EXPORTER_OTLP_HEADERS",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
        ];
        assert!(withheld.iter().all(|name| is_withheld(OsStr::new(name))));
        let inherited = [
            "PATH",
            "HOME",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "MY_TENURE_TOKEN",
            "TENURE",
            "X_HEADERS",
            "",
        ];
        assert!(!inherited.iter().any(|name| is_withheld(OsStr::new(name))));
    }
}
