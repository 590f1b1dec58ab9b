//! gRPC, as options say it: A2A, and MACP.
//!
//! A program without the cargo feature `grpc` has the options too, and says what it lacks.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use tenure_core::id::SessionId;
use tenure_gateway::GatewaySettings;
use tenure_mcp::McpSettings;

use super::usage;
use crate::agent::AgentsOnFile;
use crate::answer::Failure;

/// gRPC as options say it.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct GrpcArgs {
    /// Address and port at which gRPC is spoken: by the agents of --agents, and with --macp [default: none]
    #[arg(long, value_name = "ADDR", env = "TENURE_GRPC")]
    pub(crate) grpc: Option<SocketAddr>,

    /// Session in which the tasks of MACP sessions are (docs/macp.md) [default: MACP is not spoken]
    #[arg(long, value_name = "SESSION", env = "TENURE_MACP")]
    pub(crate) macp: Option<SessionId>,

    /// File with the policies that MACP sessions may name
    #[arg(long, value_name = "FILE", env = "TENURE_MACP_POLICIES")]
    pub(crate) macp_policies: Option<PathBuf>,

    /// Pool whose workers may be given tasks of MACP sessions, as POOL or POOL/HANDLER (repeatable)
    #[arg(
        long = "macp-pool",
        value_name = "POOL",
        env = "TENURE_MACP_POOLS",
        value_delimiter = ','
    )]
    pub(crate) macp_pools: Vec<String>,

    /// The most sessions of MACP that one caller may have open at a time [default: 25000]
    #[arg(long, value_name = "N", env = "TENURE_MACP_OPEN_MAX")]
    pub(crate) macp_open_max: Option<usize>,

    /// Take the token of a caller of MACP as its name: to try things out on this machine
    #[arg(long, env = "TENURE_MACP_TRUST_TOKENS")]
    pub(crate) macp_trust_tokens: bool,
}

/// What is spoken beside the HTTP API.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpokenHere {
    /// The agents that speak A2A.
    pub(crate) agents: AgentsOnFile,
    /// How MACP is served.
    #[cfg(feature = "grpc")]
    pub(crate) macp: Option<tenure_gateway::macp::MacpSettings>,
    /// The file with its policies.
    #[cfg(feature = "grpc")]
    pub(crate) macp_policies: Option<PathBuf>,
}

impl SpokenHere {
    /// The settings of a gateway, with it.
    pub(super) fn settings(&self, usual: GatewaySettings) -> GatewaySettings {
        GatewaySettings {
            agents: self.agents.served(),
            mcp: McpSettings { offers: self.agents.offers(), ..usual.mcp.clone() },
            #[cfg(feature = "grpc")]
            macp: self.macp.clone(),
            ..usual
        }
    }

    /// Whether its policies are in a file, which can be read again.
    pub(super) fn has_policies(&self) -> bool {
        #[cfg(feature = "grpc")]
        return self.macp.is_some() && self.macp_policies.is_some();
        #[cfg(not(feature = "grpc"))]
        false
    }

    /// The policies of MACP on file, if there is a file.
    #[cfg(feature = "grpc")]
    pub(super) fn policies(&self) -> Option<PoliciesOnFile> {
        let served = self.macp.as_ref()?.policies.clone();
        let path = self.macp_policies.clone()?;
        Some(PoliciesOnFile { path, served })
    }
}

/// The policies of MACP in their file, and as they are served.
#[cfg(feature = "grpc")]
#[derive(Debug)]
pub(super) struct PoliciesOnFile {
    path: PathBuf,
    served: tenure_gateway::macp::ServedPolicies,
}

#[cfg(feature = "grpc")]
impl PoliciesOnFile {
    /// Reads the file again.
    ///
    /// # Errors
    /// The file cannot be used. The policies stay as they were.
    pub(super) fn reload(&self) -> Result<(), Failure> {
        self.served.replace(read_policies(&self.path)?);
        Ok(())
    }
}

#[cfg(feature = "grpc")]
fn read_policies(file: &std::path::Path) -> Result<tenure_gateway::macp::MacpPolicies, Failure> {
    let named = |why: String| usage(&format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|it| named(it.to_string()))?;
    tenure_gateway::macp::read_policies(&text).map_err(named)
}

impl GrpcArgs {
    /// The option that is given, if one is.
    fn given(&self) -> Option<&'static str> {
        let options = [
            ("--grpc", self.grpc.is_some()),
            ("--macp", self.macp.is_some()),
            ("--macp-policies", self.macp_policies.is_some()),
            ("--macp-pool", !self.macp_pools.is_empty()),
            ("--macp-open-max", self.macp_open_max.is_some()),
            ("--macp-trust-tokens", self.macp_trust_tokens),
        ];
        // The first of those that go with another says what is wrong.
        options.into_iter().rev().find(|(_, is_given)| *is_given).map(|(option, _)| option)
    }

    /// Refuses options where nothing is served.
    ///
    /// # Errors
    /// One of them is given.
    pub(crate) fn check_unused(&self) -> Result<(), Failure> {
        self.check_built()?;
        match self.given() {
            None => Ok(()),
            Some(option) => Err(usage(&format!("{option} goes with --http"))),
        }
    }

    /// Refuses options that this program cannot do anything with.
    #[cfg(not(feature = "grpc"))]
    pub(super) fn check_built(&self) -> Result<(), Failure> {
        let Some(option) = self.given() else { return Ok(()) };
        let help = "cargo install --locked --profile dist --path crates/tenure --features grpc";
        Err(usage(&format!("{option}: this tenure was built without gRPC")).help(help))
    }

    #[cfg(feature = "grpc")]
    pub(super) fn check_built(&self) -> Result<(), Failure> {
        match self.given() {
            Some(option) if self.grpc.is_none() => {
                Err(usage(&format!("{option} goes with --grpc")))
            }
            Some(option) if self.macp.is_none() && option != "--grpc" => {
                Err(usage(&format!("{option} goes with --macp")))
            }
            _ => Ok(()),
        }
    }

    /// How MACP is served, to callers who bring tokens of their own (`asks_for_login`) or to everybody on this machine.
    ///
    /// # Errors
    /// The file of policies cannot be used, or tokens are to be trusted that say who somebody is.
    #[cfg(feature = "grpc")]
    pub(super) fn macp(
        &self,
        asks_for_login: bool,
    ) -> Result<Option<tenure_gateway::macp::MacpSettings>, Failure> {
        use tenure_gateway::macp::{MacpPolicies, MacpSettings, read_pool};
        let Some(session) = self.macp.clone() else { return Ok(None) };
        if self.macp_trust_tokens && asks_for_login {
            let message = "--macp-trust-tokens does not go with --http-callers: those callers have tokens of their own";
            return Err(usage(message));
        }
        let usual = MacpSettings::new(session);
        let policies = match &self.macp_policies {
            None => MacpPolicies::default(),
            Some(file) => read_policies(file)?,
        };
        let pools: Result<Vec<_>, String> =
            self.macp_pools.iter().map(|it| read_pool(it)).collect();
        let pools = pools.map_err(|why| usage(&format!("--macp-pool: {why}")))?;
        let policies = policies.with_pools(pools).into();
        let open_max = self.macp_open_max.unwrap_or(usual.open_max);
        let trusts_tokens = self.macp_trust_tokens;
        Ok(Some(MacpSettings { policies, trusts_tokens, open_max, ..usual }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given() -> GrpcArgs {
        let (grpc, macp) = (Some(([127, 0, 0, 1], 0).into()), Some("agents".parse().unwrap()));
        GrpcArgs { grpc, macp, ..GrpcArgs::default() }
    }

    #[test]
    fn nothing_is_refused_where_nothing_is_said() {
        GrpcArgs::default().check_built().unwrap();
        GrpcArgs::default().check_unused().unwrap();
        assert!(given().check_unused().is_err());
    }

    #[cfg(not(feature = "grpc"))]
    #[test]
    fn a_program_without_grpc_says_so() {
        let refused = given().check_built().unwrap_err();
        assert!(refused.message.contains("built without gRPC"), "{}", refused.message);
        let trusting = GrpcArgs { macp_trust_tokens: true, ..GrpcArgs::default() };
        assert!(trusting.check_unused().unwrap_err().message.contains("built without gRPC"));
    }

    #[cfg(feature = "grpc")]
    #[test]
    fn options_go_together() {
        let refused = |args: &GrpcArgs| args.check_built().unwrap_err().message;
        given().check_built().unwrap();
        assert!(refused(&GrpcArgs { grpc: None, ..given() }).contains("--grpc"));
        let trusting = GrpcArgs { macp_trust_tokens: true, ..given() };
        assert!(refused(&GrpcArgs { macp: None, ..trusting.clone() }).contains("--macp"));
        assert!(trusting.macp(true).unwrap_err().message.contains("--http-callers"));
        let settings = trusting.macp(false).unwrap().unwrap();
        assert_eq!((settings.session.as_str(), settings.trusts_tokens), ("agents", true));
        assert!(!given().macp(false).unwrap().unwrap().trusts_tokens);
        let policies = |text: &str| {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("policies.json");
            std::fs::write(&file, text).unwrap();
            GrpcArgs { macp_policies: Some(file), ..given() }.macp(false)
        };
        assert!(policies("[]").unwrap().is_some());
        assert!(policies("{}").unwrap_err().message.contains("policies.json"));
        let pools = |name: &str| {
            GrpcArgs { macp_pools: vec![name.into()], ..given() }.macp(false).map(Option::unwrap)
        };
        assert_eq!(pools("sales/report").unwrap().policies.now().pools().len(), 1);
        assert!(pools("a b").unwrap_err().message.contains("--macp-pool"));
    }

    /// Policies that are read again count for sessions from then on. A file that cannot be used changes nothing.
    #[cfg(feature = "grpc")]
    #[test]
    fn policies_are_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policies.json");
        let write = |names: &[&str]| {
            let policy = |name: &&str| serde_json::json!({"policy_id": name, "mode": "*", "schema_version": 1, "rules": {}});
            let all: Vec<_> = names.iter().map(policy).collect();
            std::fs::write(&file, serde_json::to_string(&all).unwrap()).unwrap();
        };
        write(&["one"]);
        let (macp_policies, macp_pools) = (Some(file.clone()), vec!["sales".to_owned()]);
        let macp =
            GrpcArgs { macp_policies: macp_policies.clone(), macp_pools, ..given() }.macp(false);
        let spoken = SpokenHere { macp: macp.unwrap(), macp_policies, ..SpokenHere::default() };
        let (policies, served) = (spoken.policies().unwrap(), spoken.macp.unwrap().policies);
        let has = |name: &str| served.now().get(name).is_some();
        write(&["one", "two"]);
        assert!(has("one") && !has("two"));
        policies.reload().unwrap();
        assert!(has("one") && has("two"));
        assert_eq!(served.now().pools().len(), 1, "the pools stay");
        std::fs::write(&file, "[").unwrap();
        assert!(policies.reload().unwrap_err().message.contains("policies.json"));
        assert!(has("one") && has("two"));
    }
}
