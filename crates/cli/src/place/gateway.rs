//! The options that name a gateway, and the settings that they make.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tenure_core::Code;
use tenure_sdk::http::{HttpConnectError, HttpSettings};

use crate::answer::{Exit, Failure};

/// The variable that names a gateway.
const VARIABLE: &str = "TENURE_URL";

/// The variable that names a NATS server.
pub(super) const NATS_VARIABLE: &str = "TENURE_NATS_URL";

/// A gateway, if one is named.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct GatewayArgs {
    /// Go through the gateway at http://HOST:PORT, https://HOST:PORT or unix:PATH, and not over NATS; several
    /// addresses separated by commas
    #[arg(long = "http", value_name = "URL", env = VARIABLE, hide_env_values = true)]
    http: Option<String>,

    /// The token that says to the gateway who this is; safer in the environment
    #[arg(long, value_name = "TOKEN", env = "TENURE_TOKEN", hide_env_values = true)]
    token: Option<String>,

    /// The certificate of the authority that signed the gateway's own, in PEM
    #[arg(long, value_name = "FILE", env = "TENURE_HTTP_CA")]
    http_ca: Option<PathBuf>,
}

impl GatewayArgs {
    /// The address of the gateway, unless the options name a NATS server more explicitly: what is typed goes
    /// before what the environment says.
    pub(crate) fn chosen(&self, nats: Option<&str>) -> Option<&str> {
        let url = self.http.as_deref()?;
        let is_meant =
            is_typed(url, VARIABLE) || !nats.is_some_and(|it| is_typed(it, NATS_VARIABLE));
        is_meant.then_some(url)
    }

    /// Whether somebody has typed the address of a gateway.
    pub(super) fn is_typed(&self) -> bool {
        self.http.as_deref().is_some_and(|url| is_typed(url, VARIABLE))
    }

    /// The option that names the gateway to another command. Empty if the environment names it.
    pub(super) fn told(url: &str) -> String {
        match is_typed(url, VARIABLE) {
            true => format!(" --http {url}"),
            false => String::new(),
        }
    }

    /// How to reach the gateway, and how long to ask it.
    pub(crate) fn settings(&self, url: &str, patience: Option<Duration>) -> HttpSettings {
        let usual = HttpSettings::new(url);
        let patience = patience.unwrap_or(usual.patience);
        let first_wait = usual.first_wait.min(patience);
        let (token, ca) = (self.token.clone(), self.http_ca.clone());
        HttpSettings { token, ca, first_wait, patience, ..usual }
    }
}

/// Whether somebody has typed this value: it is not that of the environment.
pub(super) fn is_typed(value: &str, variable: &str) -> bool {
    std::env::var(variable).ok().as_deref() != Some(value)
}

const NAMES_GATEWAY: &str = "--http, or TENURE_URL, names the gateway: http://HOST:PORT, https://HOST:PORT or \
     unix:PATH";

const TOKEN: &str = "--token, or TENURE_TOKEN, is the token that the gateway knows you by";

const TRUST: &str =
    "--http-ca (TENURE_HTTP_CA) is the certificate of the authority that signed the gateway's own";

impl From<HttpConnectError> for Failure {
    fn from(error: HttpConnectError) -> Self {
        let wrong = |help| Self::caused(Exit::Usage, &error).help(help);
        match error {
            HttpConnectError::Refused(refused) => {
                let help = match refused.code {
                    Code::Unavailable => NAMES_GATEWAY,
                    Code::Unauthenticated => TOKEN,
                    _ => return refused.into(),
                };
                Self::from(refused).help(help)
            }
            HttpConnectError::Address { .. } => wrong(NAMES_GATEWAY),
            HttpConnectError::Token => wrong(TOKEN),
            HttpConnectError::Certificates { .. } | HttpConnectError::Tls(_) => wrong(TRUST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_goes_before_a_server_of_the_environment() {
        let named = |url: &str| GatewayArgs { http: Some(url.into()), ..GatewayArgs::default() };
        assert_eq!(GatewayArgs::default().chosen(None), None);
        assert_eq!(named("http://a").chosen(None), Some("http://a"));
        assert_eq!(named("http://a").chosen(Some("nats://b")), Some("http://a"), "both are typed");
    }

    #[test]
    fn a_short_patience_counts_for_the_first_answer_too() {
        let settings =
            GatewayArgs::default().settings("http://a", Some(Duration::from_millis(100)));
        assert_eq!(
            (settings.first_wait, settings.patience),
            (Duration::from_millis(100), settings.patience)
        );
        let usual = GatewayArgs::default().settings("http://a", None);
        assert!(usual.first_wait < usual.patience);
    }
}
