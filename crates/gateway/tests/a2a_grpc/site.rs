//! A gateway that speaks HTTP and gRPC.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tenure_gateway::a2a::Agents;
use tenure_gateway::server::{HttpServer, ServerSettings};
use tenure_gateway::{Gateway, GatewaySettings};
use tokio::sync::Notify;

use crate::agents::agents;
use crate::caller::Caller;
use crate::house::{House, settings};
use crate::talk::Talk;

/// A gateway before a scheduler with a worker.
pub(crate) struct Site {
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    /// Tells it to stop.
    pub(crate) stop: Arc<Notify>,
    _files: TempDir,
}

impl Site {
    /// For callers that need not say who they are.
    pub(crate) async fn open() -> Self {
        Self::with(agents(), &[]).await
    }

    /// With these agents, and for these tokens, each of a principal of its name.
    pub(crate) async fn with(agents: Agents, tokens: &[&str]) -> Self {
        let tokens = tokens.to_vec();
        Self::of(agents, move |server, files| {
            server.identities = (!tokens.is_empty()).then(|| tokens_in(files, &tokens));
        })
        .await
    }

    /// With these agents, and with settings whose files may stand in a folder.
    pub(crate) async fn of(
        agents: Agents,
        change: impl FnOnce(&mut ServerSettings, &Path),
    ) -> Self {
        let files = tempfile::tempdir().unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let mut server =
            ServerSettings { tcp: vec![any], grpc: Some(any), ..ServerSettings::default() };
        change(&mut server, files.path());
        let server = HttpServer::bind(server).await.unwrap();
        let (http, grpc) = (server.addresses()[0], server.grpc_address().unwrap());
        let house = House::open().await;
        let settings = GatewaySettings { grpc_port: Some(grpc.port()), ..settings(agents) };
        let gateway = Gateway::new(house.backend(), settings);
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        tokio::spawn(async move { server.serve(gateway, stopped.notified()).await });
        Self { http, grpc, stop, _files: files }
    }

    /// A caller over gRPC.
    pub(crate) async fn caller(&self, agent: &str) -> Caller {
        Caller::of(self.grpc, agent).await
    }

    /// A caller over JSON-RPC.
    pub(crate) fn talk(&self, agent: &str) -> Talk {
        Talk::new(self.http, agent)
    }
}

fn tokens_in(files: &Path, tokens: &[&str]) -> PathBuf {
    let mut text = String::new();
    for token in tokens {
        let digest = Sha256::digest(token);
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "[[tokens]]\nsha256 = \"{hex}\"\nprincipal = \"{token}\"").unwrap();
        text.push_str("role = \"orchestrator\"\nsessions = [\"a2a-echo\"]\n");
    }
    let path = files.join("who.toml");
    std::fs::write(&path, text).unwrap();
    path
}
