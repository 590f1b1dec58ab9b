//! What a command does not inherit: the logins of the worker that runs it.
//!
//! A worker gets its own login from variables such as `TENURE_NATS_URL`, `TENURE_TOKEN` or `TENURE_REDIS_URL`, and
//! whoever may create a Task says what its commands do. So a command gets the environment of the worker without the
//! variables of Tenure and without headers for telemetry, which hold tokens. What a command shall have all the same,
//! the worker hands on by name.

use std::ffi::OsStr;
use std::process::Command;

/// Whether commands do not inherit a variable of this name.
pub(super) fn is_withheld(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b"TENURE_") || (name.starts_with(b"OTEL_") && name.ends_with(b"_HEADERS"))
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
