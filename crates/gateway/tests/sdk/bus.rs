//! The conformance suites of the bus, with callers and workers that come over HTTP.

use std::time::Duration;

use futures::channel::mpsc::UnboundedReceiver;
use tempfile::TempDir;
use tenure_core::id::PoolId;
use tenure_core::status::Role;
use tenure_gateway::identity::Identity;
use tenure_ports::bus::Delivery;
use tenure_sdk::http::{HttpClient, HttpSettings, HttpWorker};
use tenure_testkit::conformance::{Bus, absence_suite, bus_suite};
use tenure_wire::bus::subject::Token;
use tokio::sync::Mutex;

use crate::house::{House, Socket, connect, pool, worker};

/// Over what everybody comes. Sockets and certificates lie in the directory.
enum Over {
    Tcp,
    Unix(TempDir),
    Tls(TempDir),
}

/// A bus whose callers and workers come over HTTP, each on a socket of its own.
struct OverHttp {
    house: House,
    over: Over,
    patience: Duration,
    sockets: Mutex<Vec<Socket>>,
}

impl OverHttp {
    async fn start(over: Over) -> Self {
        let patience = Duration::from_secs(30);
        Self { house: House::start().await, over, patience, sockets: Mutex::default() }
    }

    /// A socket for somebody, and how to reach it.
    async fn open(&self, who: Identity) -> HttpSettings {
        let routes = self.house.routes_for(who);
        let mut sockets = self.sockets.lock().await;
        let file = |dir: &TempDir| dir.path().join(sockets.len().to_string());
        let (socket, ca) = match &self.over {
            Over::Tcp => (Socket::tcp("127.0.0.1:0", routes).await, None),
            Over::Unix(dir) => (Socket::unix(&file(dir), routes), None),
            Over::Tls(dir) => {
                let ca = file(dir);
                (Socket::tls(&ca, routes).await, Some(ca))
            }
        };
        let settings = HttpSettings { ca, patience: self.patience, ..socket.settings() };
        sockets.push(socket);
        settings
    }
}

impl Bus for OverHttp {
    type Worker = HttpWorker;
    type Client = HttpClient;

    fn pool(&self) -> PoolId {
        pool()
    }

    async fn worker(
        &self,
        principal: &str,
        boot: &str,
    ) -> (HttpWorker, UnboundedReceiver<Delivery>) {
        let settings = self.open(worker(principal)).await;
        let boot = Token::new(boot).unwrap();
        HttpWorker::join(&settings, &pool(), &boot, None).await.unwrap()
    }

    async fn client(&self, role: Role, session: &str) -> HttpClient {
        let settings = self.open(Identity { role, ..Identity::local() }).await;
        connect(&settings, session).await.unwrap()
    }

    async fn stop(&self) {
        self.house.scheduler.stop().await;
    }
}

/// Mechanisms 7, 8, 11 and 15, over HTTP.
#[tokio::test(flavor = "multi_thread")]
async fn http_is_a_bus() {
    bus_suite(|| async { (OverHttp::start(Over::Tcp).await, ()) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_in_the_file_system_is_a_bus() {
    let unix = || Over::Unix(tempfile::tempdir().unwrap());
    bus_suite(|| async { (OverHttp::start(unix()).await, ()) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_a_bus() {
    let tls = || Over::Tls(tempfile::tempdir().unwrap());
    bus_suite(|| async { (OverHttp::start(tls()).await, ()) }).await;
}

/// Mechanisms 7 and 13: a gateway without a scheduler answers so that callers and workers come again.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_without_a_scheduler_says_so() {
    let impatient = || async {
        let bus = OverHttp::start(Over::Tcp).await;
        (OverHttp { patience: Duration::from_millis(300), ..bus }, ())
    };
    absence_suite(impatient).await;
}
