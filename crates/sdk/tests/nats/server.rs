//! A NATS server of the test's own, ended by its process id.

use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tenure_sdk::nats::{Connection, NatsSettings};

use crate::servers::{find, free_port};

/// How long it may take to answer.
const START: Duration = Duration::from_secs(20);

/// A server that runs.
pub(crate) struct Server {
    child: Child,
    port: u16,
}

impl Server {
    pub(crate) fn start() -> Self {
        let port = free_port();
        let mut server = Self { child: launch(port, &[]), port };
        server.wait();
        server
    }

    fn wait(&mut self) {
        let begun = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            assert!(begun.elapsed() < START, "the server does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        // Somebody else may have had the port, and answers there.
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "the server has ended: {ended:?}");
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn restart(&mut self) {
        self.restart_with(&[]);
    }

    /// The same with more arguments than before.
    pub(crate) fn restart_with(&mut self, more: &[&str]) {
        self.child = launch(self.port, more);
        self.wait();
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// A connection that is patient for one second.
    pub(crate) async fn connect(&self, inbox: String) -> Connection {
        self.connect_for(inbox, Duration::from_secs(1)).await
    }

    /// A connection with this patience.
    pub(crate) async fn connect_for(&self, inbox: String, patience: Duration) -> Connection {
        let settings = NatsSettings { patience, ..NatsSettings::new(self.url()) };
        Connection::open(&settings, inbox).await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may be gone.
        let _ = self.child.wait();
    }
}

fn launch(port: u16, more: &[&str]) -> Child {
    Command::new(find("TENURE_NATS_SERVER", "nats-server"))
        .args(["-a", "127.0.0.1", "-p", &port.to_string()])
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}
