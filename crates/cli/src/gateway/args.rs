//! Where the HTTP API listens, and for whom.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use tenure_gateway::server::{ServerError, ServerSettings, TlsFiles};

use super::grpc::{GrpcArgs, SpokenHere};
use super::usage;
use crate::agent::AgentsOnFile;
use crate::answer::{Exit, Failure};

/// Where the HTTP API listens if nobody says it.
const DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7677);

/// The HTTP API as options say it.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct HttpArgs {
    /// Address and port at which the HTTP API listens [default: 127.0.0.1:7677]
    #[arg(long, value_name = "ADDR", env = "TENURE_HTTP")]
    pub(crate) http: Option<SocketAddr>,

    /// File that says who may come in, and as whom: tokens, JWT, certificates (docs/http.md)
    #[arg(long, value_name = "FILE", env = "TENURE_HTTP_CALLERS")]
    pub(crate) http_callers: Option<PathBuf>,

    /// Certificate of the HTTP API in PEM, with which it speaks TLS
    #[arg(long, value_name = "FILE", env = "TENURE_HTTP_CERT")]
    pub(crate) http_cert: Option<PathBuf>,

    /// The private key of that certificate
    #[arg(long, value_name = "FILE", env = "TENURE_HTTP_KEY")]
    pub(crate) http_key: Option<PathBuf>,

    /// Certificates of the authorities that sign those of callers
    #[arg(long, value_name = "FILE", env = "TENURE_HTTP_CLIENT_CA")]
    pub(crate) http_client_ca: Option<PathBuf>,

    /// Another name under which browsers reach the HTTP API, as that of a proxy (repeatable)
    #[arg(
        long = "http-name",
        value_name = "HOST",
        env = "TENURE_HTTP_NAMES",
        value_delimiter = ','
    )]
    pub(crate) http_names: Vec<String>,

    /// File that says which agents speak A2A here (docs/a2a.md)
    #[arg(long, value_name = "FILE", env = "TENURE_AGENTS")]
    pub(crate) agents: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) grpc: GrpcArgs,
}

impl HttpArgs {
    /// What is spoken beside the HTTP API.
    pub(crate) fn spoken(&self) -> Result<SpokenHere, Failure> {
        Ok(SpokenHere {
            agents: AgentsOnFile::read(self.agents.clone())?,
            #[cfg(feature = "grpc")]
            macp: self.grpc.macp(self.http_callers.is_some())?,
            #[cfg(feature = "grpc")]
            macp_policies: self.grpc.macp_policies.clone(),
        })
    }

    /// The settings of the server.
    pub(crate) fn settings(&self) -> Result<ServerSettings, Failure> {
        self.grpc.check_built()?;
        Ok(ServerSettings {
            tcp: vec![self.http.unwrap_or(DEFAULT)],
            #[cfg(feature = "grpc")]
            grpc: self.grpc.grpc,
            tls: self.tls()?,
            identities: self.http_callers.clone(),
            names: self.http_names.clone(),
            ..ServerSettings::default()
        })
    }

    fn tls(&self) -> Result<Option<TlsFiles>, Failure> {
        let client_authorities = self.http_client_ca.clone();
        match (&self.http_cert, &self.http_key) {
            (Some(certificate), Some(key)) => {
                if client_authorities.is_some() && self.http_callers.is_none() {
                    return Err(usage(
                        "--http-client-ca goes with --http-callers, which says whom certificates stand for",
                    ));
                }
                let (certificate, key) = (certificate.clone(), key.clone());
                Ok(Some(TlsFiles { certificate, key, client_authorities }))
            }
            (None, None) if client_authorities.is_none() => Ok(None),
            (None, None) => Err(usage("--http-client-ca goes with --http-cert and --http-key")),
            (Some(_), None) | (None, Some(_)) => Err(usage("--http-cert goes with --http-key")),
        }
    }
}

const ELSEWHERE: &str = "another process may listen there: --http names another address, and port 0 is one \
     that is free";

const CALLERS: &str = "--http-callers FILE names the file; docs/http.md says what is in it";

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Self {
        let caused = |exit| Self::caused(exit, &error);
        match &error {
            ServerError::Open(_) => caused(Exit::Usage).help(CALLERS),
            ServerError::Tcp { .. } => caused(Exit::Unavailable).help(ELSEWHERE),
            ServerError::Unix { .. } => caused(Exit::Unavailable),
            ServerError::Identity(_) => caused(Exit::Usage).help(CALLERS),
            ServerError::Tls(_) => caused(Exit::Usage),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> Option<PathBuf> {
        Some(name.into())
    }

    #[test]
    fn files_that_go_together_are_asked_for_together() {
        let refused = |args: HttpArgs| args.settings().unwrap_err().message;
        let usual = HttpArgs::default;
        assert!(refused(HttpArgs { http_cert: file("c"), ..usual() }).contains("--http-key"));
        assert!(refused(HttpArgs { http_key: file("k"), ..usual() }).contains("--http-cert"));
        assert!(refused(HttpArgs { http_client_ca: file("a"), ..usual() }).contains("--http-cert"));
        let (http_cert, http_key, http_client_ca) = (file("c"), file("k"), file("a"));
        let all = HttpArgs { http_cert, http_key, http_client_ca, ..usual() };
        assert!(refused(all.clone()).contains("--http-callers"));
        let settings = HttpArgs { http_callers: file("who"), ..all }.settings().unwrap();
        assert!(settings.tls.unwrap().client_authorities.is_some());
        assert_eq!(settings.identities, file("who"));
    }

    #[test]
    fn without_an_address_only_this_machine_is_served() {
        let settings = HttpArgs::default().settings().unwrap();
        assert_eq!(settings.tcp, [DEFAULT]);
        assert!(DEFAULT.ip().is_loopback() && settings.tls.is_none() && settings.unix.is_empty());
    }
}
