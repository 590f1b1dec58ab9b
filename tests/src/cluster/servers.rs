//! NATS and Redis, as a cluster needs them.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::process::Process;

/// How long a server may take to answer.
const START: Duration = Duration::from_secs(20);

/// A server on a port of this machine.
#[derive(Debug)]
pub struct Server {
    /// Its process.
    pub process: Process,
    /// Where it listens.
    pub port: u16,
    /// Where it says whether it is well, if it does.
    health: Option<u16>,
}

impl Server {
    fn start(name: &str, dir: &Path, port: u16, command: Command) -> Result<Self> {
        let process = Process::start(name, dir, command)?;
        let server = Self { process, port, health: None };
        server.answers()?;
        Ok(server)
    }

    /// NATS with JetStream, which syncs every message before it acknowledges it. Its configuration
    /// says this as well, and may name variables of this environment.
    ///
    /// # Errors
    /// It is not there, or does not answer.
    pub fn nats(dir: &Path, more: &str, environment: &[(String, String)]) -> Result<Self> {
        let port = free_port();
        Self::nats_of(dir, port, &configuration(port, more), environment)
    }

    /// NATS with JetStream on this port.
    ///
    /// # Errors
    /// As [`nats`](Self::nats).
    pub fn nats_at(dir: &Path, port: u16) -> Result<Self> {
        Self::nats_of(dir, port, &configuration(port, ""), &[])
    }

    /// NATS with a configuration of its own, by which it listens on this port.
    ///
    /// # Errors
    /// As [`nats`](Self::nats).
    pub fn nats_of(
        dir: &Path,
        port: u16,
        config: &str,
        environment: &[(String, String)],
    ) -> Result<Self> {
        std::fs::write(dir.join("nats.conf"), config)?;
        let mut command = Command::new(find("TENURE_NATS_SERVER", "nats-server")?);
        command.args(["-c", "nats.conf"]).envs(environment.iter().cloned());
        Self::start("nats", dir, port, command)
    }

    /// NATS whose files may have so many blocks of 512 bytes; whoever writes another number into `blocks`, or
    /// `unlimited`, says what they may have when it is started again.
    ///
    /// # Errors
    /// As [`nats`](Self::nats).
    pub fn nats_limited(dir: &Path, blocks: u64) -> Result<Self> {
        let port = free_port();
        std::fs::write(dir.join("nats.conf"), configuration(port, ""))?;
        std::fs::write(dir.join("blocks"), blocks.to_string())?;
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -S -f \"$(cat blocks)\"; exec \"$0\" -c nats.conf"]);
        command.arg(find("TENURE_NATS_SERVER", "nats-server")?);
        Self::start("nats", dir, port, command)
    }

    /// Three servers of NATS that keep copies of each other's streams.
    ///
    /// # Errors
    /// As [`nats`](Self::nats).
    pub fn nats_of_three(dir: &Path) -> Result<Vec<Self>> {
        let routes = [(); 3].map(|()| free_port());
        let all = routes.map(|port| format!("nats://127.0.0.1:{port}")).join(", ");
        let mut servers = Vec::new();
        for (at, route) in routes.iter().enumerate() {
            let (name, port, health) = (format!("nats{at}"), free_port(), free_port());
            let config = format!(
                "server_name: {name}\nlisten: 127.0.0.1:{port}\nhttp: 127.0.0.1:{health}\n\
                 jetstream {{ store_dir: \"js-{name}\", sync_interval: always }}\n\
                 cluster {{ name: tests, listen: 127.0.0.1:{route}, routes: [{all}], \
                 ping_interval: \"2s\" }}\n"
            );
            std::fs::write(dir.join(format!("{name}.conf")), config)?;
            let mut command = Command::new(find("TENURE_NATS_SERVER", "nats-server")?);
            command.args(["-c", &format!("{name}.conf")]);
            let process = Process::start(&name, dir, command)?;
            servers.push(Self { process, port, health: Some(health) });
        }
        servers.iter().try_for_each(Self::answers)?;
        Ok(servers)
    }

    /// Redis that never evicts, and forgets everything when it ends.
    ///
    /// # Errors
    /// It is not there, or does not answer.
    pub fn redis(dir: &Path) -> Result<Self> {
        let forgets = ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"];
        Self::redis_of(dir, &forgets)
    }

    /// Redis that is told what it has to be, but for its port.
    ///
    /// # Errors
    /// As [`redis`](Self::redis).
    pub fn redis_of(dir: &Path, told: &[&str]) -> Result<Self> {
        Self::redis_at(dir, free_port(), told)
    }

    /// The same on this port.
    ///
    /// # Errors
    /// As [`nats`](Self::nats).
    pub fn redis_at(dir: &Path, port: u16, told: &[&str]) -> Result<Self> {
        let mut command = Command::new(find("TENURE_REDIS_SERVER", "redis-server")?);
        command.args(told).args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
        Self::start("redis", dir, port, command)
    }

    /// Starts it again where it was.
    ///
    /// # Errors
    /// It does not answer.
    pub fn restart(&mut self) -> Result<()> {
        self.process.restart()?;
        self.answers()
    }

    fn answers(&self) -> Result<()> {
        let begun = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            ensure!(begun.elapsed() < START, "nobody answers\n{}", self.process.tail());
            std::thread::sleep(Duration::from_millis(10));
        }
        while !self.is_well() {
            ensure!(begun.elapsed() < START, "it is not well\n{}", self.process.tail());
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Whether it knows who leads, and has everything that the others have.
    fn is_well(&self) -> bool {
        let Some(port) = self.health else { return true };
        let ok = |said: &str| said.lines().next().is_some_and(|line| line.contains(" 200 "));
        let leads = |said: &str| said.contains("\"leader\": \"") || said.contains("\"leader\":\"");
        Self::hears(port, "/healthz", ok) && Self::hears(port, "/jsz", leads)
    }

    fn hears(port: u16, path: &str, is_good: impl Fn(&str) -> bool) -> bool {
        let asked = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).and_then(|mut way| {
            way.set_read_timeout(Some(Duration::from_secs(2)))?;
            way.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
            let mut said = String::new();
            way.read_to_string(&mut said)?;
            Ok(said)
        });
        asked.is_ok_and(|said| is_good(&said))
    }
}

/// What one server of NATS is told.
fn configuration(port: u16, more: &str) -> String {
    format!(
        "listen: 127.0.0.1:{port}\n\
         jetstream {{ store_dir: \"js\", sync_interval: always }}\n{more}\n"
    )
}

/// A port that was free a moment ago, and is given once: below those that the system lends to
/// connections, one of which could have it before the server does.
pub fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = GIVEN.fetch_add(1, Ordering::Relaxed);
        let place = (std::process::id().wrapping_mul(61).wrapping_add(number)) % 20_000;
        let port = u16::try_from(10_000 + place).unwrap_or(10_000);
        if TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// A server's binary: where the variable says, on the path, or where `./check` has put it. What it has
/// put there goes first for NATS: the one on the path may be too old.
///
/// # Errors
/// It is nowhere; what to do about it is said.
pub fn find(variable: &str, name: &str) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Ok(path.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let test = std::env::current_exe()?;
    let fetched = test.ancestors().map(|dir| dir.join("tools/servers"));
    let on_path = std::env::split_paths(&path);
    let (places, which): (Vec<PathBuf>, _) = match name {
        "nats-server" => (fetched.chain(on_path).collect(), " of NATS 2.15 or newer"),
        _ => (on_path.chain(fetched).collect(), ""),
    };
    let found = places.into_iter().map(|dir| dir.join(name)).find(|file| file.is_file());
    found.with_context(|| {
        format!("{name}{which} is needed: run `./check servers`, or set {variable}")
    })
}

/// Where `./check` puts what tests need and cargo does not bring.
///
/// # Errors
/// It has not put anything there.
pub fn tools() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let found = test.ancestors().map(|dir| dir.join("tools")).find(|dir| dir.is_dir());
    found.context("tools are needed: run `./check servers`")
}
