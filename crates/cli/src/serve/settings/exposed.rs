//! The settings of a node that decide who can reach what, for `tenure doctor`.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::NodeArgs;
use crate::answer::Failure;
use crate::metrics::MetricsArgs;

/// Settings that let somebody in, and files that must not be read by others.
#[derive(Debug, Clone)]
pub(crate) struct ExposedSettings {
    /// Files with secrets, each with the option that names it.
    pub(crate) secrets: Vec<(&'static str, PathBuf)>,
    /// The file that says who is let in. A user who may write there can let in anybody.
    pub(crate) callers: Option<PathBuf>,
    /// The same for the page of metrics.
    pub(crate) metrics_callers: Option<PathBuf>,
    /// Where the HTTP API is served.
    pub(crate) http: Option<SocketAddr>,
    /// Whether it speaks TLS.
    pub(crate) has_tls: bool,
    /// Whether the token of a caller of MACP is taken as its name.
    pub(crate) trusts_tokens: bool,
}

impl NodeArgs {
    /// The part of these settings that decides who can reach what.
    pub(crate) fn exposed(&self) -> Result<ExposedSettings, Failure> {
        let config = self.config.clone();
        let given = self.clone().into_given()?;
        let files = [
            ("config", config),
            ("journal-creds", given.journal_creds),
            ("control-creds", given.control_creds),
            ("intake-creds", given.intake_creds),
            ("gateway-creds", given.gateway_creds),
            ("http-key", given.http_key),
        ];
        let secrets = files.into_iter().filter_map(|(name, path)| Some((name, path?))).collect();
        Ok(ExposedSettings {
            secrets,
            callers: given.http_callers,
            metrics_callers: given.metrics_callers,
            http: given.http,
            has_tls: given.http_cert.is_some(),
            trusts_tokens: given.macp_trust_tokens,
        })
    }

    /// Where the node serves its metrics. If the file cannot be read, its start will say so.
    pub(crate) fn metrics(&self) -> MetricsArgs {
        let in_file = self.in_file().unwrap_or_default();
        MetricsArgs {
            metrics: self.given.metrics.or(in_file.metrics),
            metrics_callers: self.given.metrics_callers.clone().or(in_file.metrics_callers),
        }
    }
}
