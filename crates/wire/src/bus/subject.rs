//! Subjects, which name the cluster, the receiver of a message and its sender (law 7).
//!
//! The first token is the name of the cluster in small letters: here `tenure`, that of a cluster which was
//! given no other. The next tokens name role, principal and what the principal may act on, so that the
//! server's permissions decide who may send what:
//!
//! | Subject | From | To |
//! |---|---|---|
//! | `tenure.v1.worker.<pool>.<principal>.<boot>.<verb>` | a worker | every node |
//! | `tenure.v1.worker.<pool>.<principal>.<boot>.node.<node>` | a worker | one node |
//! | `tenure.v1.worker.<pool>.<principal>.<boot>.output.<node>` | a worker | one node |
//! | `tenure.v1.worker.<pool>.<principal>.<boot>.<verb>.<partition>` | a worker | the owner |
//! | `tenure.v1.<role>.<session>.<principal>.hello` | an orchestrator or observer | some node |
//! | `tenure.v1.<role>.<session>.<principal>.nodes` | the same | every node |
//! | `tenure.v1.<role>.<session>.<principal>.drain` | an orchestrator | every node |
//! | `tenure.v1.<role>.<session>.<principal>.import.<partition>` | an orchestrator | the owner |
//! | `tenure.v1.<role>.<session>.<principal>.cmd.<partition>` | the same | the owner |
//! | `tenure.v1.system.<session>.<node>.cmd.<partition>` | a node | the owner |
//! | `tenure.v1.node.<node>.<verb>` | a node | workers and nodes |
//! | `tenure.v1.event.<session>.<task>` | the owner | whoever watches |
//! | `_INBOX.<role>.<principal>.<boot>.…` | the scheduler | that principal alone |
//!
//! Step 2 of the walk in docs/architecture.md.

use smol_str::SmolStr;
use tenure_core::id::{AgentId, BadId, PoolId, SessionId, TaskId};
use tenure_core::status::Role;

/// Longest principal, boot and node token.
const TOKEN_MAX: usize = 64;

/// A name that can stand in a subject.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(SmolStr);

impl Token {
    /// Checks the form: 1 to 64 characters a-z, A-Z, 0-9, - or _.
    ///
    /// # Errors
    /// The text has another form.
    pub fn new(text: impl AsRef<str>) -> Result<Self, BadId> {
        let text = text.as_ref();
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if (1..=TOKEN_MAX).contains(&text.len()) && text.bytes().all(is_plain) {
            return Ok(Self(SmolStr::new(text)));
        }
        let given = text.chars().take(80).collect();
        let expected = "1 to 64 characters a-z, A-Z, 0-9, - or _";
        Err(BadId { what: "principal", given, expected })
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for Token {
    type Err = BadId;
    fn from_str(text: &str) -> Result<Self, BadId> {
        Self::new(text)
    }
}

/// The name of a cluster. Clusters on the same servers have different names, which differ in more than the
/// size of their letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterName {
    name: Token,
    root: SmolStr,
}

impl ClusterName {
    /// Checks the form, which is that of a [`Token`].
    ///
    /// # Errors
    /// The text has another form.
    pub fn new(text: impl AsRef<str>) -> Result<Self, BadId> {
        let name = Token::new(text).map_err(|bad| BadId { what: "cluster", ..bad })?;
        let root = format!("{}.v1", name.as_str().to_lowercase()).into();
        Ok(Self { name, root })
    }

    /// The name as it was given, with which the names of streams begin.
    pub fn as_str(&self) -> &str {
        self.name.as_str()
    }

    /// The name in small letters, with which the keys in Redis begin.
    pub fn key_prefix(&self) -> String {
        self.as_str().to_lowercase()
    }

    /// The beginning of all its subjects.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Whether it is the name of a cluster for which no other was given.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for ClusterName {
    fn default() -> Self {
        Self { name: Token(SmolStr::new_static("TENURE")), root: SmolStr::new_static("tenure.v1") }
    }
}

impl std::fmt::Display for ClusterName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for ClusterName {
    type Err = BadId;
    fn from_str(text: &str) -> Result<Self, BadId> {
        Self::new(text)
    }
}

/// A worker process: a principal with its boot id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerName {
    /// Its pool.
    pub pool: PoolId,
    /// Its principal, as the server authenticated it.
    pub principal: Token,
    /// Its boot id, unique among the processes of this principal.
    pub boot: Token,
}

impl std::fmt::Display for WorkerName {
    /// Its id in the log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.principal, self.boot)
    }
}

impl WorkerName {
    /// Its id in the log, `<principal>.<boot>`: unique to this boot.
    ///
    /// # Errors
    /// Never: two tokens make an id.
    pub fn agent(&self) -> Result<AgentId, BadId> {
        AgentId::new(format!("{}.{}", self.principal, self.boot))
    }

    /// The beginning of its subjects in a cluster.
    pub fn root(&self, cluster: &ClusterName) -> String {
        format!("{}.worker.{}.{}.{}", cluster.root(), self.pool, self.principal, self.boot)
    }

    /// The beginning of its inboxes.
    pub fn inbox(&self) -> String {
        inbox(Role::Worker, &self.principal, &self.boot)
    }
}

/// The beginning of the inboxes of a principal's boot.
pub fn inbox(role: Role, principal: &Token, boot: &Token) -> String {
    format!("_INBOX.{role}.{principal}.{boot}")
}

/// Whether a reply subject is an inbox of this principal: any other could make the scheduler write
/// where the sender may not.
pub fn is_inbox_of(reply: &str, role: Role, principal: &Token) -> bool {
    let mut tokens = reply.split('.');
    tokens.next() == Some("_INBOX")
        && tokens.next() == Some(role.as_str())
        && tokens.next() == Some(principal.as_str())
        && tokens.next().is_some_and(|boot| !boot.is_empty())
        && !reply.contains(['*', '>', ' '])
}

/// An orchestrator or observer of a session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientName {
    /// Orchestrator or observer.
    pub role: Role,
    /// The session it may act in.
    pub session: SessionId,
    /// Its principal, as the server authenticated it.
    pub principal: Token,
}

impl ClientName {
    /// Its id in the log.
    ///
    /// # Errors
    /// Never: a token makes an id.
    pub fn agent(&self) -> Result<AgentId, BadId> {
        AgentId::new(self.principal.as_str())
    }

    /// The beginning of its subjects in a cluster.
    pub fn root(&self, cluster: &ClusterName) -> String {
        format!("{}.{}.{}.{}", cluster.root(), self.role, self.session, self.principal)
    }
}

/// The subject of hints that a Task has changed; without a Task, the subject to subscribe to for those
/// of all Tasks.
pub fn event(cluster: &ClusterName, session: &SessionId, task: Option<&TaskId>) -> String {
    format!("{}.event.{session}.{}", cluster.root(), task.map_or("*", TaskId::as_str))
}

/// The subject of the public events of a Task that the owner follows.
pub fn public(cluster: &ClusterName, session: &SessionId, task: &TaskId) -> String {
    format!("{}.public", event(cluster, session, Some(task)))
}

/// The subject of runtime events of a Task; without a Task, the subject to subscribe to for those
/// of all Tasks.
pub fn runtime(cluster: &ClusterName, session: &SessionId, task: Option<&TaskId>) -> String {
    format!("{}.runtime", event(cluster, session, task))
}

/// A subject as a node has parsed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParsedSubject {
    /// A message of a worker.
    Worker(WorkerName, WorkerVerb),
    /// A request of an orchestrator or observer.
    Client(ClientName, ClientVerb),
}

/// The last part of a worker's subject: what the message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerVerb {
    /// It asks every node for a link.
    Hello,
    /// It leaves.
    Bye,
    /// It renews its leases.
    Heartbeat,
    /// It states its capacity to one node.
    Room,
    /// It sends one node what a command wrote.
    Output,
    /// It reports to the owner of a partition.
    Report(u32),
    /// It asks for ready Steps in the scope of a Run.
    Query(u32),
    /// It claims a Step.
    Claim(u32),
    /// It reads the Task of a Run.
    Look(u32),
    /// It puts or gets blobs for a Step that it holds.
    Blob(u32),
}

/// The last part of a client's subject: what the request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientVerb {
    /// It asks for the partitions and the placement of the cluster.
    Hello,
    /// It asks every node for itself and its workers.
    Nodes,
    /// It tells workers, through every node, to take no more Steps.
    Drain,
    /// A command or a query, for the owner of a partition.
    Command(u32),
    /// A part of a log to import, for the owner of a partition.
    Import(u32),
}

impl ParsedSubject {
    /// Parses a subject of a cluster; `None` if it does not have this form.
    pub fn read(cluster: &ClusterName, subject: &str) -> Option<Self> {
        let rest = subject.strip_prefix(cluster.root())?.strip_prefix('.')?;
        let mut tokens = rest.split('.');
        let role = Role::from_name(tokens.next()?)?;
        let heard = match role {
            Role::Worker => {
                let pool = PoolId::new(tokens.next()?).ok()?;
                let principal = Token::new(tokens.next()?).ok()?;
                let boot = Token::new(tokens.next()?).ok()?;
                let verb = worker_verb(&mut tokens)?;
                Self::Worker(WorkerName { pool, principal, boot }, verb)
            }
            // `system` is a node that asks another node.
            Role::Orchestrator | Role::Observer | Role::System => {
                let session = SessionId::new(tokens.next()?).ok()?;
                let principal = Token::new(tokens.next()?).ok()?;
                let verb = match tokens.next()? {
                    "hello" => ClientVerb::Hello,
                    "nodes" => ClientVerb::Nodes,
                    "drain" => ClientVerb::Drain,
                    "import" => ClientVerb::Import(tokens.next()?.parse().ok()?),
                    "cmd" => ClientVerb::Command(tokens.next()?.parse().ok()?),
                    _ => return None,
                };
                Self::Client(ClientName { role, session, principal }, verb)
            }
            Role::SubAgent => return None,
        };
        tokens.next().is_none().then_some(heard)
    }
}

/// A worker that asks for a link in a pool whose name is not valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misnamed<'a> {
    /// The pool that it names.
    pub pool: &'a str,
    /// Its principal, as the server authenticated it.
    pub principal: Token,
    /// Its boot id.
    pub boot: Token,
    /// Why this is no name of a pool.
    pub why: BadId,
}

/// Parses the subject of a worker's hello that [`ParsedSubject::read`] refuses only for the name of
/// its pool.
pub fn misnamed<'a>(cluster: &ClusterName, subject: &'a str) -> Option<Misnamed<'a>> {
    let rest = subject.strip_prefix(cluster.root())?.strip_prefix('.')?;
    let tokens: Vec<&str> = rest.split('.').collect();
    let [role, pool, principal, boot, "hello"] = tokens[..] else { return None };
    if Role::from_name(role)? != Role::Worker {
        return None;
    }
    let why = PoolId::new(pool).err()?;
    let (principal, boot) = (Token::new(principal).ok()?, Token::new(boot).ok()?);
    Some(Misnamed { pool, principal, boot, why })
}

fn worker_verb<'a>(tokens: &mut impl Iterator<Item = &'a str>) -> Option<WorkerVerb> {
    let verb = tokens.next()?;
    Some(match verb {
        "hello" => WorkerVerb::Hello,
        "bye" => WorkerVerb::Bye,
        "hb" => WorkerVerb::Heartbeat,
        "node" => {
            tokens.next()?; // The node's name: only that node subscribes to it.
            WorkerVerb::Room
        }
        "output" => {
            tokens.next()?; // As above.
            WorkerVerb::Output
        }
        "report" => WorkerVerb::Report(tokens.next()?.parse().ok()?),
        "query" => WorkerVerb::Query(tokens.next()?.parse().ok()?),
        "claim" => WorkerVerb::Claim(tokens.next()?.parse().ok()?),
        "look" => WorkerVerb::Look(tokens.next()?.parse().ok()?),
        "blob" => WorkerVerb::Blob(tokens.next()?.parse().ok()?),
        _ => return None,
    })
}
