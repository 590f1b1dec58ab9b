//! [`ConnectError`]: why there is no connection.

use std::path::PathBuf;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address is malformed.
    #[error("{address:?} is not the address of a NATS server: {why}")]
    Address {
        /// The address.
        address: String,
        /// What is wrong with it.
        why: String,
    },
    /// The credentials cannot be read.
    #[error("the credentials {} cannot be read", path.display())]
    Credentials {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The certificates cannot be read.
    #[error("the certificates {} cannot be used", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// No server lets this login in, and some server does not answer: that may pass.
    #[error("{why}")]
    Unreachable {
        /// The fault of each server.
        why: String,
    },
    /// The servers answer, and some cannot be connected to with these settings.
    #[error("{why}")]
    Settings {
        /// The fault of each server.
        why: String,
    },
    /// The servers answer, and do not let this login in.
    #[error("{why}")]
    Denied {
        /// What each server said.
        why: String,
    },
}
