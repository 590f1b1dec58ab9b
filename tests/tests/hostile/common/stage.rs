//! Where an attack takes place: servers as they are shipped, a scheduler, a gateway, the victim's worker, and logins
//! for everybody.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use async_nats::{Client, ConnectOptions};
use serde_json::Value as Json;
use tenure_tests::binary::tenure;
use tenure_tests::cluster::process::Process;
use tenure_tests::cluster::servers::{Server, free_port};
use tenure_tests::cluster::{PATIENCE, until};

use super::http;
use super::raw::RawClient;

/// As they are shipped.
const ROLES: &str = include_str!("../../../../deploy/nats/roles.conf");
const COMMON: &str = include_str!("../../../../deploy/nats/common.conf");
const LOCAL: &str = include_str!("../../../../deploy/nats/local.conf");
const REDIS: &str = include_str!("../../../../deploy/redis/redis.conf");

/// The parts of a scheduler, and then those who speak to it.
const LOGINS: [&str; 8] =
    ["journal", "control", "intake", "worker", "orchestrator", "operator", "observer", "gateway"];

/// Blocks of users that are copied for the attacker: whose, and what stands for what in it.
const COPIES: [(&str, [(&str, &str); 2]); 3] = [
    ("worker-1", [("worker-1", "worker-2"), ("worker.default.", "worker.other.")]),
    ("orchestrator-1", [("orchestrator-1", "orchestrator-2"), (".main.", ".other.")]),
    ("observer-1", [("observer-1", "observer-2"), (".main.", ".other.")]),
];

/// Who may come over HTTP, with role, session beside that of MACP, and the SHA-256 of the [`token`]: the victim, and
/// two attackers.
const CALLERS: [(&str, &str, &str, &str); 3] = [
    (
        "victim",
        "orchestrator",
        "main",
        "501b7fc2b4255f7f814e5cf682a0a905ae185752a518d596d723e30ea861664a",
    ),
    (
        "attacker",
        "orchestrator",
        "other",
        "d716276a1acd0f3b9b5403387347277d43c4da8d5ac7e89d3c15620aa118f0f9",
    ),
    (
        "looker",
        "observer",
        "other",
        "5e64058780a6b673cb1f4dbe851b4782e22f9972e1443c93abb342c0a179d8e9",
    ),
];

/// An agent in the session of the attacker, whose messages no worker takes.
const AGENTS: &str = "[[agents]]\nname = \"echo\"\ndescription = \"Says nothing.\"\nsession = \"other\"\n\
                      pool = \"nobody\"\n\n[[agents.skills]]\nid = \"say\"\nname = \"Say\"\n\
                      description = \"Says nothing.\"\ntags = [\"demo\"]\n";

/// So many files the gateway may have open, and half as many connections: an attack that takes them all is over soon.
const FILES_OF_GATEWAY: u32 = 2_048;

/// So many live tasks a session may have: an attack that makes more is refused soon.
pub(crate) const SESSION_TASKS: usize = 2_000;

/// The session in which the tasks of MACP are, and how many sessions of it one caller may have open.
#[cfg(feature = "grpc")]
const MACP: (&str, &str) = ("agents", "300");

/// One who may do everything, for tests that look at what listeners make of anything.
pub(crate) const ANYBODY: &str = "anybody-1";

/// How long leases last.
pub(crate) const LEASE_MS: u64 = 6_000;

/// A connection as the server sees it.
pub(crate) struct Connection {
    pub(crate) name: String,
    pub(crate) id: u64,
    /// How many messages the server has sent to it.
    pub(crate) sent: u64,
    /// What it listens to.
    pub(crate) subjects: Vec<String>,
}

/// Servers, a scheduler node, a gateway and a worker of the victim's.
pub(crate) struct Stage {
    pub(crate) node: Process,
    pub(crate) gateway: Process,
    /// Where the gateway listens.
    pub(crate) http: u16,
    /// Where it speaks gRPC.
    #[cfg(feature = "grpc")]
    pub(crate) grpc: u16,
    worker: Process,
    nats: Server,
    redis: Server,
    /// Where NATS says who is connected.
    monitor: u16,
    dir: tempfile::TempDir,
}

impl Stage {
    pub(crate) fn start() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let (port, monitor, http) = (free_port(), free_port(), free_port());
        let own = |text: &str| {
            let text = text.replace("0.0.0.0:4222", &format!("127.0.0.1:{port}"));
            text.replace("127.0.0.1:8222", &format!("127.0.0.1:{monitor}"))
        };
        std::fs::write(dir.path().join("common.conf"), own(COMMON))?;
        std::fs::write(dir.path().join("roles.conf"), roles()?)?;
        std::fs::write(dir.path().join("redis.conf"), REDIS.replace("/var/lib/redis", "."))?;
        let store = dir.path().join("js").display().to_string();
        let mut environment = passwords();
        environment.push(("TENURE_NATS_NAME".to_owned(), "nats-1".to_owned()));
        environment.push(("TENURE_NATS_STORE".to_owned(), store));
        let nats = Server::nats_of(dir.path(), port, &own(LOCAL), &environment)?;
        let redis = Server::redis_of(dir.path(), &["redis.conf"])?;
        let at = format!("nats://127.0.0.1:{port}");

        let mut node = Command::new(tenure()?);
        node.args(["serve", "--node", "n1", "--partitions", "1", "--nats", &at]);
        node.args(["--redis", &format!("redis://127.0.0.1:{}", redis.port)]);
        node.args(["--lease-ms", &LEASE_MS.to_string()]);
        node.args(["--session-tasks", &SESSION_TASKS.to_string()]);
        node.envs(passwords().into_iter().take(3));
        node.envs(LOGINS[..3].iter().map(|part| (variable(part, "USER"), *part)));
        let node = Process::start("n1", dir.path(), node)?;

        let mut worker = Command::new(tenure()?);
        worker.args(["worker", "--pool", "default", "--name", "worker-1", "--concurrency", "8"]);
        worker.args(["--nats", &url(port, "worker-1"), "--files", "files-worker-1"]);
        let worker = Process::start("worker-1", dir.path(), worker)?;

        std::fs::write(dir.path().join("callers.json"), callers().to_string())?;
        let mut gateway = Command::new("sh");
        gateway.args(["-c", &format!("ulimit -n {FILES_OF_GATEWAY}; exec \"$0\" \"$@\"")]);
        gateway.arg(tenure()?).args([
            "gateway",
            "--nats",
            &url(port, "gateway"),
            "--name",
            "gateway",
        ]);
        std::fs::write(dir.path().join("agents.toml"), AGENTS)?;
        gateway.args(["--http", &format!("127.0.0.1:{http}"), "--http-callers", "callers.json"]);
        gateway.args(["--agents", "agents.toml"]);
        #[cfg(feature = "grpc")]
        let grpc = free_port();
        #[cfg(feature = "grpc")]
        gateway
            .args(["--grpc", &format!("127.0.0.1:{grpc}"), "--macp", MACP.0])
            .args(["--macp-open-max", MACP.1]);
        let gateway = Process::start("gateway", dir.path(), gateway)?;
        let stage = Self {
            node,
            gateway,
            http,
            #[cfg(feature = "grpc")]
            grpc,
            worker,
            nats,
            redis,
            monitor,
            dir,
        };
        let listens =
            until("the gateway listens", PATIENCE, || Ok(stage.gateway.has_said("listens at") > 0));
        listens.inspect_err(|_| println!("{}", stage.tails()))?;
        Ok(stage)
    }

    /// A user who says what no library would.
    pub(crate) fn raw(&self, user: &str) -> Result<RawClient> {
        RawClient::connect(self.nats.port, user, &password(user))
    }

    /// A user with a library. Answers go below `_INBOX.<role>.<user>.hostile`.
    pub(crate) async fn connect(&self, user: &str) -> Result<Client> {
        let options = ConnectOptions::with_user_and_password(user.to_owned(), password(user));
        let options = options.custom_inbox_prefix(format!("_INBOX.{}.{user}.hostile", role(user)));
        Ok(options.connect(format!("nats://127.0.0.1:{}", self.nats.port)).await?)
    }

    /// Starts a program of ours, known to NATS as this user.
    pub(crate) fn program(&self, name: &str, user: &str, args: &[&str]) -> Result<Process> {
        let mut command = Command::new(tenure()?);
        command.args(args).args(["--nats", &url(self.nats.port, user), "--name", user]);
        Process::start(name, self.dir.path(), command)
    }

    /// Connections of programs of ours: their names, and the number that the server gave each.
    pub(crate) fn connections(&self) -> Result<BTreeSet<(String, u64)>> {
        let all = self.connz()?.into_iter();
        Ok(all.map(|one| (one.name, one.id)).collect())
    }

    /// The same with everything that is asked for here.
    pub(crate) fn connz(&self) -> Result<Vec<Connection>> {
        let (status, body) =
            http::ask(self.monitor, None, "GET", "/connz?limit=4096&subs=1", None)?;
        ensure!(status == 200, "{status}: {body}");
        let said: Json = serde_json::from_str(&body)?;
        let all = said["connections"].as_array().context("no connections")?;
        let read = |one: &Json| {
            let subjects = one["subscriptions_list"].as_array().into_iter().flatten();
            let subjects = subjects.filter_map(|it| it.as_str().map(str::to_owned)).collect();
            let (id, sent) = (one["cid"].as_u64()?, one["out_msgs"].as_u64()?);
            Some(Connection { name: one["name"].as_str()?.to_owned(), id, sent, subjects })
        };
        let ours = all.iter().filter_map(read).filter(|one| one.name.starts_with("tenure"));
        Ok(ours.collect())
    }

    /// How many lines the logs of node and gateway have.
    pub(crate) fn lines(&self) -> usize {
        self.node.has_said("") + self.gateway.has_said("")
    }

    /// What every process said last.
    pub(crate) fn tails(&self) -> String {
        let all =
            [&self.nats.process, &self.redis.process, &self.node, &self.worker, &self.gateway];
        all.map(Process::tail).join("\n")
    }
}

/// The roles that are shipped, and the attacker's: blocks are copied, as it is said there.
fn roles() -> Result<String> {
    let (end, mut roles) = ("\n      }\n", ROLES.to_owned());
    for (user, changes) in COPIES {
        let begin = format!("      {{\n        user: {user}\n");
        let from = roles.find(&begin).with_context(|| format!("no block of {user}"))?;
        let length = roles[from..].find(end).context("a block without an end")? + end.len();
        let block = roles[from..from + length].to_owned();
        let copy = changes.iter().fold(block.clone(), |text, (from, to)| text.replace(from, to));
        ensure!(copy != block, "the block of {user} is another than it was");
        roles.insert_str(from, &copy);
    }
    let anybody = format!("users: [\n{{ user: {ANYBODY}, password: {} }}", password(ANYBODY));
    Ok(roles.replacen("users: [", &anybody, 1))
}

fn callers() -> Json {
    let tokens: Vec<Json> = CALLERS
        .iter()
        .map(|(name, role, session, sha256)| {
            serde_json::json!({"sha256": sha256, "principal": name, "role": role, "sessions": [session, "agents"],
                "pools": []})
        })
        .collect();
    serde_json::json!({"tokens": tokens})
}

fn passwords() -> Vec<(String, String)> {
    LOGINS.iter().map(|login| (variable(login, "PASSWORD"), password(login))).collect()
}

/// The address of NATS with a user's login.
fn url(port: u16, user: &str) -> String {
    format!("nats://{user}:{}@127.0.0.1:{port}", password(user))
}

/// What a user is: what stands before the number.
fn role(user: &str) -> &str {
    user.split('-').next().unwrap_or(user)
}

fn password(user: &str) -> String {
    format!("secret-of-{}", role(user))
}

/// What a caller shows over HTTP.
pub(crate) fn token(caller: &str) -> String {
    format!("token-of-{caller}-0123456789abcdef")
}

fn variable(login: &str, what: &str) -> String {
    format!("TENURE_{}_{what}", login.to_uppercase())
}

/// Niceness 19 for what this thread does: an attacker that takes the processor proves nothing.
pub(crate) fn be_nice() {
    let thread = nix::unistd::gettid().to_string();
    // Where there is no such program the attack is only harder.
    let _ = Command::new("renice").args(["-n", "19", "-p", &thread]).output();
}

/// How long an attack that waits for something waits between two looks.
pub(crate) const LOOK: Duration = Duration::from_millis(20);
