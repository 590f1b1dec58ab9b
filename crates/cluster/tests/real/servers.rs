//! Real servers for tests: each on a free port of this machine, with a directory of its own, ended by
//! its process id.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// How long a server may take to answer.
const START: Duration = Duration::from_secs(20);

/// A server that runs.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    command: Vec<String>,
    pub(crate) port: u16,
    dir: TempDir,
}

impl Server {
    fn start(dir: TempDir, port: u16, command: Vec<String>) -> Self {
        let child = launch(&command, dir.path());
        let server = Self { child, command, port, dir };
        server.wait();
        server
    }

    fn wait(&self) {
        let begun = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            let log = || std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            assert!(begun.elapsed() < START, "{} does not answer:\n{}", self.command[0], log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }

    /// `kill -9`, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, on the same port and directory.
    pub(crate) fn restart(&mut self) {
        self.child = launch(&self.command, self.dir.path());
        self.wait();
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may be gone.
        let _ = self.child.wait();
    }
}

fn launch(command: &[String], dir: &Path) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
    Command::new(&command[0])
        .args(&command[1..])
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", command[0]))
}

/// NATS with JetStream, which syncs every message before it acknowledges it.
pub(crate) fn nats() -> Server {
    nats_with("")
}

/// The same with more lines in its configuration.
pub(crate) fn nats_with(more: &str) -> Server {
    let dir = TempDir::new().unwrap();
    let port = free_port();
    let config = format!(
        "listen: 127.0.0.1:{port}\n\
         jetstream {{ store_dir: \"js\", sync_interval: always }}\n{more}\n"
    );
    std::fs::write(dir.path().join("nats.conf"), config).unwrap();
    let binary = find("TENURE_NATS_SERVER", "nats-server");
    let command = [&binary, "-c", "nats.conf"].map(str::to_owned).to_vec();
    Server::start(dir, port, command)
}

/// Redis that never evicts, unless told otherwise.
pub(crate) fn redis(more: &[&str]) -> Server {
    let port = free_port();
    let binary = find("TENURE_REDIS_SERVER", "redis-server");
    let port_text = port.to_string();
    let mut command = vec![binary.as_str(), "--port", &port_text, "--bind", "127.0.0.1"];
    command.extend(["--save", "", "--appendonly", "no"]);
    command.extend(more);
    let command = command.into_iter().map(str::to_owned).collect();
    Server::start(TempDir::new().unwrap(), port, command)
}

/// Redis with a configuration of its own, which is told to listen on `port`.
pub(crate) fn redis_of(config: &Path, port: u16, more: &[&str]) -> Server {
    let binary = find("TENURE_REDIS_SERVER", "redis-server");
    let command = [&[&*binary, config.to_str().unwrap()][..], more].concat();
    let command = command.into_iter().map(str::to_owned).collect();
    Server::start(TempDir::new().unwrap(), port, command)
}

/// A port that was free a moment ago, and is given once: below those that the system lends to
/// connections, one of which could have it before the server does.
pub(crate) fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = GIVEN.fetch_add(1, Ordering::Relaxed);
        let place = (std::process::id().wrapping_mul(61).wrapping_add(number)) % 20_000;
        let port = u16::try_from(10_000 + place).unwrap();
        if TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// A server's binary: where the variable says, on the path, or where `./check` has put it. What it has
/// put there goes first for NATS: the one on the path may be too old.
pub(crate) fn find(variable: &str, name: &str) -> String {
    if let Ok(path) = std::env::var(variable) {
        return path;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let fetched = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("tools/servers");
    let on_path = std::env::split_paths(&path);
    let (places, which): (Vec<PathBuf>, _) = match name {
        "nats-server" => ([fetched].into_iter().chain(on_path).collect(), " of NATS 2.15 or newer"),
        _ => (on_path.chain([fetched]).collect(), ""),
    };
    let found = places.into_iter().map(|dir| dir.join(name)).find(|file| file.is_file());
    match found {
        Some(file) => file.to_str().unwrap().to_owned(),
        None => panic!("{name}{which} is needed: run `./check servers`, or name it in {variable}"),
    }
}
