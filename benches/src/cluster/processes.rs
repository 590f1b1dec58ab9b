//! The processes that are measured: started on free ports, ended by their process ids.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// How long a process may take to answer.
const START: Duration = Duration::from_secs(20);

/// Processes on this machine, with a directory for their files. They end with this.
pub(crate) struct Processes {
    running: RefCell<Vec<Process>>,
    dir: tempfile::TempDir,
}

struct Process {
    kind: &'static str,
    child: Child,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may have ended.
        let _ = self.child.wait();
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        while self.running.get_mut().pop().is_some() {} // The servers last.
    }
}

impl Processes {
    /// None yet.
    pub(crate) fn none(room: &Path) -> Result<Self> {
        let dir = tempfile::Builder::new().disable_cleanup(true).tempdir_in(room)?;
        Ok(Self { running: RefCell::default(), dir })
    }

    /// Starts one, which writes its log to a file in the directory.
    pub(crate) fn launch(&self, kind: &'static str, command: &mut Command) -> Result<()> {
        let dir = self.dir.path();
        let name = format!("{kind}-{}.log", self.running.borrow().len());
        let log = std::fs::File::create(dir.join(name))?;
        command.current_dir(dir).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("{kind} does not start"))?;
        self.running.borrow_mut().push(Process { kind, child });
        Ok(())
    }

    /// Memory of the processes of a kind, in KB, once they had the time to give back what they can.
    pub(crate) async fn settled_kb(&self, kind: &str) -> Result<f64> {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let running = self.running.borrow();
        let of_kind = running.iter().filter(|process| process.kind == kind);
        of_kind.map(|process| resident_kb(process.child.id())).sum()
    }

    /// Milliseconds of processor so far, by kind of process; this one is `load`.
    pub(crate) fn cpu(&self) -> Result<BTreeMap<String, f64>> {
        let mut spent = BTreeMap::new();
        for Process { kind, child } in self.running.borrow().iter() {
            *spent.entry((*kind).to_owned()).or_default() += cpu_ms(child.id())?;
        }
        spent.insert("load".into(), cpu_ms(std::process::id())?);
        Ok(spent)
    }
}

/// Of what a cluster consists.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClusterSize {
    /// Scheduler nodes.
    pub(crate) nodes: usize,
    /// Worker processes.
    pub(crate) workers: usize,
    /// Handlers that run at a time in each worker.
    pub(crate) concurrency: usize,
    /// Partitions of the cluster.
    pub(crate) partitions: u32,
}

/// A cluster that runs.
pub(crate) struct Cluster {
    pub(crate) processes: Processes,
    nats: u16,
    redis: u16,
    pub(crate) partitions: u32,
}

impl Cluster {
    /// Starts servers, nodes and workers.
    pub(crate) fn start(size: ClusterSize, room: &Path) -> Result<Self> {
        let processes = Processes::none(room)?;
        let (nats, redis) = (free_port()?, free_port()?);
        let config = format!(
            "listen: 127.0.0.1:{nats}\njetstream {{ store_dir: \"js\", sync_interval: always }}\n"
        );
        std::fs::write(processes.dir.path().join("nats.conf"), config)?;
        let cluster = Self { processes, nats, redis, partitions: size.partitions };
        let server = find("TENURE_NATS_SERVER", "nats-server")?;
        // As docs/operations.md says under "Sizing".
        let mut command = Command::new(server);
        command.args(["-c", "nats.conf"]).env("GOMEMLIMIT", "512MiB");
        cluster.processes.launch("nats", &mut command)?;
        let server = find("TENURE_REDIS_SERVER", "redis-server")?;
        let port = redis.to_string();
        let mut command = Command::new(server);
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        let command = command.args(["--maxmemory-policy", "noeviction"]);
        cluster.processes.launch("redis", command)?;
        answers(nats)?;
        answers(redis)?;
        for number in 0..size.nodes {
            cluster.serve(&format!("n{number}"))?;
        }
        for _ in 0..size.workers {
            let mut command = Command::new(tenure()?);
            command.args(["worker", "--nats", &cluster.nats_url()]);
            let command = command.args(["--concurrency", &size.concurrency.to_string()]);
            cluster.processes.launch("worker", command)?;
        }
        Ok(cluster)
    }

    fn serve(&self, node: &str) -> Result<()> {
        let mut command = Command::new(tenure()?);
        command.args(["serve", "--node", node]);
        command.args(["--partitions", &self.partitions.to_string()]);
        let redis = format!("redis://127.0.0.1:{}", self.redis);
        command.args(["--nats", &self.nats_url(), "--redis", &redis]);
        // As deploy/systemd has it.
        command.env("TENURE_LOG", "warn").env("MIMALLOC_PURGE_DELAY", "10000");
        self.processes.launch("scheduler", &mut command)
    }

    /// Kills all nodes at once and starts another one.
    pub(crate) fn replace_nodes(&self) -> Result<()> {
        self.processes.running.borrow_mut().retain(|process| process.kind != "scheduler");
        self.serve("heir")
    }

    /// What a command says: ids, a line for each.
    pub(crate) fn tenure(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(tenure()?);
        command.args(args).args(["-o", "quiet", "--nats", &self.nats_url()]);
        let ended = command.stdin(Stdio::null()).output()?;
        ensure!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        Ok(String::from_utf8(ended.stdout)?)
    }

    pub(crate) fn nats_url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.nats)
    }

    /// Milliseconds of processor that the nodes' threads have had, by the nanosecond, to compare short
    /// spans; threads that have ended are left out.
    pub(crate) fn node_ms(&self) -> Result<f64> {
        let running = self.processes.running.borrow();
        let nodes = running.iter().filter(|process| process.kind == "scheduler");
        nodes.map(|node| threads_ms(node.child.id())).sum()
    }
}

/// What is measured, built beside this.
pub(crate) fn tenure() -> Result<PathBuf> {
    let tenure = std::env::current_exe()?.with_file_name("tenure");
    ensure!(tenure.exists(), "build it first: cargo build --profile dist -p tenure");
    Ok(tenure)
}

/// Memory that a process has in use.
fn resident_kb(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb = line.and_then(|line| line.split_whitespace().next());
    Ok(kb.context("/proc has another form")?.parse()?)
}

/// Processor time of a process, of its ended threads too. `/proc/PID/stat` counts it in ticks of 10 ms, a twentieth
/// of what the scheduler spends on `graphs`; this clock counts nanoseconds.
fn cpu_ms(pid: u32) -> Result<f64> {
    let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid)?))?;
    Ok(Duration::from(clock_gettime(clock)?).as_secs_f64() * 1e3)
}

#[allow(clippy::cast_precision_loss)]
fn threads_ms(pid: u32) -> Result<f64> {
    let mut spent = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(text) = std::fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        let on_cpu = text.split_whitespace().next().context("/proc has another form")?;
        spent += on_cpu.parse::<u64>()?;
    }
    Ok(spent as f64 / 1e6)
}

/// A port of this machine at which nobody listens.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

/// Waits until somebody listens at this port.
pub(crate) fn answers(port: u16) -> Result<()> {
    let begun = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        ensure!(begun.elapsed() < START, "nobody answers at port {port}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// A server's binary: where the variable says, on the path, or where `./check` has put it. What it has
/// put there goes first for NATS: the one on the path may be too old.
fn find(variable: &str, name: &str) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Ok(path.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let target = std::env::current_exe()?;
    let fetched = target.parent().and_then(Path::parent).map(|dir| dir.join("tools/servers"));
    let on_path = std::env::split_paths(&path);
    let (places, which): (Vec<PathBuf>, _) = match name {
        "nats-server" => (fetched.into_iter().chain(on_path).collect(), " of NATS 2.15 or newer"),
        _ => (on_path.chain(fetched).collect(), ""),
    };
    let found = places.into_iter().map(|dir| dir.join(name)).find(|file| file.is_file());
    found.with_context(|| {
        format!("{name}{which} is needed: run `./check servers`, or set {variable}")
    })
}
