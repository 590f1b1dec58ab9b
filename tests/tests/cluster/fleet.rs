//! A cluster under the rights that are shipped (`deploy/nats`), everybody with the login that is theirs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use async_nats::{Client, ConnectOptions, Subscriber};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rmpv::Value;
use serde_json::{Value as Json, json};
use tenure_tests::binary::{Ended, Running, tenure};
use tenure_tests::cluster::client::wait;
use tenure_tests::cluster::message::{Answer, text, write};
use tenure_tests::cluster::process::Process;
use tenure_tests::cluster::servers::{Server, free_port};
use tenure_tests::cluster::{PATIENCE, until};

/// As they are shipped.
const ROLES: &str = include_str!("../../../deploy/nats/roles.conf");
const ONE_NODE: &str = include_str!("../../../deploy/nats/tenure.conf");
const TLS: &str = include_str!("../../../deploy/nats/tls.conf");
const COMMON: &str = include_str!("../../../deploy/nats/common.conf");
const REDIS: &str = include_str!("../../../deploy/redis/redis.conf");

/// The parts of a scheduler, and then those who speak to it.
const LOGINS: [&str; 8] =
    ["journal", "control", "intake", "worker", "orchestrator", "operator", "observer", "gateway"];

/// The session of the users that are shipped.
pub(crate) const SESSION: &str = "main";

/// Where its orchestrator asks about Tasks of the one partition.
pub(crate) const COMMANDS: &str = "tenure.v1.orchestrator.main.orchestrator-1.cmd.0";

/// For so long nothing is written once nothing is to be written any more.
const QUIET: Duration = Duration::from_millis(700);

/// Servers, a scheduler and workers, each with the login that is theirs.
pub(crate) struct Fleet {
    processes: Vec<Process>,
    nats: Server,
    redis: Server,
    /// Where both are, without a login.
    at: String,
    redis_at: String,
    /// The certificate of the authority, if there is TLS.
    ca: Option<PathBuf>,
    dir: tempfile::TempDir,
}

impl Fleet {
    /// On servers with these roles, and nothing else of what is shipped.
    pub(crate) fn start() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("roles.conf"), roles()?)?;
        let nats = Server::nats(dir.path(), "include roles.conf", &passwords())?;
        let redis = Server::redis(dir.path())?;
        let at = format!("nats://127.0.0.1:{}", nats.port);
        let redis_at = format!("redis://127.0.0.1:{}", redis.port);
        Self { processes: Vec::new(), nats, redis, at, redis_at, ca: None, dir }.serve()
    }

    /// On servers that are set up as they are shipped: TLS, roles, and a user of Redis.
    pub(crate) fn start_as_shipped() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let (ca, environment) = certificates(dir.path())?;
        let (port, health) = (free_port(), free_port());
        let config = ONE_NODE.replace("0.0.0.0:4222", &format!("127.0.0.1:{port}"));
        let common = COMMON.replace("127.0.0.1:8222", &format!("127.0.0.1:{health}"));
        for (name, text) in [("tls", TLS), ("common", &common), ("roles", &roles()?)] {
            std::fs::write(dir.path().join(format!("{name}.conf")), text)?;
        }
        let environment = [&passwords()[..], &environment].concat();
        let nats = Server::nats_of(dir.path(), port, &config, &environment)?;
        std::fs::write(dir.path().join("users.acl"), users_of_redis()?)?;
        std::fs::write(dir.path().join("redis.conf"), REDIS.replace("/var/lib/redis", "."))?;
        let redis = Server::redis_of(dir.path(), &["redis.conf", "--aclfile", "users.acl"])?;
        let at = format!("tls://localhost:{port}");
        let redis_at = format!("redis://tenure:{}@127.0.0.1:{}", password("redis"), redis.port);
        Self { processes: Vec::new(), nats, redis, at, redis_at, ca: Some(ca), dir }.serve()
    }

    /// Starts a scheduler, and waits until it answers.
    fn serve(self) -> Result<Self> {
        let mut fleet = self;
        let mut node = Command::new(tenure()?);
        node.args(["serve", "--node", "n1", "--partitions", "1"]);
        node.args(["--nats", &fleet.at, "--redis", &fleet.redis_at]);
        node.args(fleet.trusts());
        node.envs(passwords().into_iter().take(3));
        node.envs(LOGINS[..3].iter().map(|part| (variable(part, "USER"), *part)));
        fleet.processes.push(Process::start("n1", fleet.dir.path(), node)?);
        let asking = wait(fleet.connect("orchestrator-1"))?;
        let body = json!({"v": 1, "operation": "list_index", "input": {}});
        let answered = told(&asking, COMMANDS, &body).map(|_| ());
        with_tails(&fleet, answered)?;
        Ok(fleet)
    }

    /// The address of NATS with a user's login.
    pub(crate) fn url(&self, user: &str) -> String {
        self.at.replace("://", &format!("://{user}:{}@", password(user)))
    }

    /// What a process is told whose server shows a certificate.
    fn trusts(&self) -> Vec<PathBuf> {
        self.ca.iter().flat_map(|ca| ["--nats-ca".into(), ca.clone()]).collect()
    }

    /// Where everything of it lies.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn command(&self, user: &str, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(tenure()?);
        command.args(args).args(["--nats", &self.url(user), "--name", user]).args(self.trusts());
        command.current_dir(self.dir.path());
        Ok(command)
    }

    /// Has a user do something in the session.
    pub(crate) fn tenure(&self, user: &str, args: &[&str]) -> Result<Ended> {
        let mut command = self.command(user, args)?;
        let ended = Running::start(command.args(["--session", SESSION]))?.end(PATIENCE)?;
        ensure!(ended.status.success(), "{args:?}: {ended:?}");
        Ok(ended)
    }

    /// Starts a worker of a pool, known to the server by this user.
    pub(crate) fn add_worker(&mut self, name: &str, user: &str, pool: &str) -> Result<()> {
        let worker = self.command(user, &["worker", "--pool", pool, "--files", name])?;
        self.processes.push(Process::start(name, self.dir.path(), worker)?);
        Ok(())
    }

    pub(crate) fn submit(&self, task: &str, file: &Json) -> Result<()> {
        let name = format!("{task}.json");
        std::fs::write(self.dir.path().join(&name), file.to_string())?;
        self.tenure("orchestrator-1", &["submit", &name]).map(|_| ())
    }

    /// A user on a connection of their own.
    pub(crate) async fn connect(&self, user: &str) -> Result<Client> {
        let role = match role(user) {
            "journal" => "scheduler",
            role => role,
        };
        let options = ConnectOptions::with_user_and_password(user.to_owned(), password(user));
        let options = options.custom_inbox_prefix(format!("_INBOX.{role}.{user}.test"));
        let options = match &self.ca {
            Some(ca) => options.add_root_certificates(ca.clone()).require_tls(true),
            None => options,
        };
        Ok(options.connect(self.at.as_str()).await?)
    }

    /// A user who listens to something.
    pub(crate) fn listen(&self, user: &str, subject: &str) -> Result<(Client, Subscriber)> {
        wait(async {
            let client = self.connect(user).await?;
            let heard = client.subscribe(subject.to_owned()).await?;
            client.flush().await?;
            Ok((client, heard))
        })
    }

    /// How many messages the log has, once it is quiet, but for the records of owners: a node that was
    /// slow for a while takes its partition anew.
    pub(crate) fn written(&self) -> Result<usize> {
        let journal = wait(self.connect("journal"))?;
        let store = wait(async { Ok::<_, anyhow::Error>(async_nats::jetstream::new(journal)) })?;
        let (mut read, mut written) = (0, 0);
        until("nothing more is written", PATIENCE, || {
            std::thread::sleep(QUIET);
            let before = read;
            wait(async {
                let stream = store.get_stream("TENURE_WAL_0").await?;
                while read < stream.cached_info().state.last_sequence {
                    read += 1;
                    let message = stream.get_raw_message(read).await?;
                    written += usize::from(!is_of_owner(&message.payload));
                }
                Ok::<_, anyhow::Error>(())
            })?;
            Ok(read == before)
        })?;
        Ok(written)
    }

    fn tails(&self) -> String {
        let all = [&self.nats.process, &self.redis.process].into_iter().chain(&self.processes);
        all.map(Process::tail).collect::<Vec<_>>().join("\n")
    }
}

/// Whether a message of a log says no more than who owns it from here on: magic, length and checksum of
/// a header, which is a map.
fn is_of_owner(message: &[u8]) -> bool {
    let header = message.strip_prefix(b"TNF1").and_then(|rest| rest.get(8..));
    let header = header.and_then(|mut bytes| rmpv::decode::read_value(&mut bytes).ok());
    header.is_some_and(|header| text(&header, "kind") == Some("owner"))
}

/// The roles, and a worker of the pool `other`: the block of the other worker is copied, as it is said
/// there.
fn roles() -> Result<String> {
    let end = "\n      }\n";
    let from = ROLES.find("      {\n        user: worker-1\n").context("no block of a worker")?;
    let length = ROLES[from..].find(end).context("a block without an end")? + end.len();
    let block = &ROLES[from..from + length];
    let other = block.replace("worker-1", "worker-2").replace("worker.default.", "worker.other.");
    Ok(ROLES.replacen(block, &format!("{block}{other}"), 1))
}

/// A certificate of `localhost` as the servers find it, and that of its authority.
fn certificates(dir: &Path) -> Result<(PathBuf, Vec<(String, String)>)> {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Two of the same name are taken for one that has signed itself.
    ca.distinguished_name.push(DnType::CommonName, "authority");
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let own = CertificateParams::new(vec!["localhost".to_owned()])?.signed_by(&key, &ca)?;
    let texts = [("CA", ca.pem()), ("CERT", own.pem()), ("KEY", key.serialize_pem())];
    let mut environment = vec![
        ("TENURE_NATS_NAME".to_owned(), "n1".to_owned()),
        ("TENURE_NATS_STORE".to_owned(), dir.join("js").display().to_string()),
    ];
    for (name, text) in texts {
        let path = dir.join(format!("{name}.pem"));
        std::fs::write(&path, text)?;
        environment.push((format!("TENURE_NATS_{name}"), path.display().to_string()));
    }
    Ok((dir.join("CA.pem"), environment))
}

/// The users that the configuration of Redis advises, in a comment of two lines.
fn users_of_redis() -> Result<String> {
    let users = REDIS.split_once("#   user default off\n").context("no users")?.1;
    let lines = users.lines().take(2).map(|line| line.trim_matches(['#', ' ', '\\']));
    let user = lines.collect::<Vec<_>>().join(" ").replace("(in one line)", "");
    let hash = "#<sha-256 of the password, in hex>";
    ensure!(user.starts_with("user tenure on ") && user.contains(hash), "{user}");
    let password = format!(">{}", password("redis"));
    Ok(format!("user default off\n{}\n", user.replace(hash, &password).trim()))
}

fn passwords() -> [(String, String); 8] {
    LOGINS.map(|login| (variable(login, "PASSWORD"), password(login)))
}

/// What a user is: what stands before the number.
fn role(user: &str) -> &str {
    user.split('-').next().unwrap_or(user)
}

fn password(user: &str) -> String {
    format!("secret-of-{}", role(user))
}

fn variable(login: &str, what: &str) -> String {
    format!("TENURE_{}_{what}", login.to_uppercase())
}

/// Asks once.
pub(crate) async fn ask(client: &Client, subject: &str, body: &Json) -> Result<Answer> {
    let asked = client.request(subject.to_owned(), write(body)?.into());
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Ok(message)) => Answer::read(&message.payload),
        Ok(Err(error)) if error.kind() == async_nats::RequestErrorKind::NoResponders => {
            Ok(Answer::NoResponders)
        }
        Ok(Err(_)) | Err(_) => Ok(Answer::Silence),
    }
}

/// Asks until there is an answer for good, and it is none that refuses.
pub(crate) fn told(client: &Client, subject: &str, body: &Json) -> Result<Value> {
    let mut done = None;
    until("there is an answer", PATIENCE, || {
        done = match wait(ask(client, subject, body))? {
            Answer::Done(ok) => Some(ok),
            Answer::Refused(refusal) if !refusal.retryable => return Err(refusal.into()),
            Answer::Refused(_) | Answer::NoResponders | Answer::Silence => None,
        };
        Ok(done.is_some())
    })?;
    done.context("no answer")
}

pub(crate) fn with_tails(fleet: &Fleet, done: Result<()>) -> Result<()> {
    if done.is_err() {
        println!("{}", fleet.tails());
    }
    done
}
