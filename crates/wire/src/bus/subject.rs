//! Subjects: where a message goes, and who sent it (law 7).
//!
//! The tokens in front name role, principal and what it may act on, so that the permissions of the
//! server decide who may say what:
//!
//! | Subject | From | To |
//! |---|---|---|
//! | `tenure.v1.worker.<pool>.<principal>.<boot>.<verb>` | a worker | every node |
//! | `tenure.v1.worker.<pool>.<principal>.<boot>.node.<node>` | a worker | one node |
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

use smol_str::SmolStr;
use tenure_core::id::{AgentId, BadId, PoolId, SessionId, TaskId};
use tenure_core::status::Role;

/// What all subjects begin with.
pub const ROOT: &str = "tenure.v1";

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

/// A worker process: a principal, and which boot of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerName {
    /// Its pool.
    pub pool: PoolId,
    /// Who the server says it is.
    pub principal: Token,
    /// Unlike that of any other process of this principal.
    pub boot: Token,
}

impl WorkerName {
    /// Its id in the log, `<principal>.<boot>`: unique to this boot.
    ///
    /// # Errors
    /// None: tokens make an id.
    pub fn agent(&self) -> Result<AgentId, BadId> {
        AgentId::new(format!("{}.{}", self.principal, self.boot))
    }

    /// What its subjects begin with.
    pub fn root(&self) -> String {
        format!("{ROOT}.worker.{}.{}.{}", self.pool, self.principal, self.boot)
    }

    /// What its inboxes begin with.
    pub fn inbox(&self) -> String {
        inbox(Role::Worker, &self.principal, &self.boot)
    }
}

/// What the inboxes of a boot of a principal begin with.
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
    /// Who the server says it is.
    pub principal: Token,
}

impl ClientName {
    /// Its id in the log.
    ///
    /// # Errors
    /// None: a token makes an id.
    pub fn agent(&self) -> Result<AgentId, BadId> {
        AgentId::new(self.principal.as_str())
    }

    /// What its subjects begin with.
    pub fn root(&self) -> String {
        format!("{ROOT}.{}.{}.{}", self.role, self.session, self.principal)
    }
}

/// Where it is said that a Task has changed.
pub fn event(session: &SessionId, task: &TaskId) -> String {
    format!("{ROOT}.event.{session}.{task}")
}

/// Where the public events of a Task go that is followed.
pub fn public(session: &SessionId, task: &TaskId) -> String {
    format!("{ROOT}.event.{session}.{task}.public")
}

/// Where it is told what happens to Runs of a Task and changes none; without a Task, to hear it of all.
pub fn runtime(session: &SessionId, task: Option<&TaskId>) -> String {
    format!("{ROOT}.event.{session}.{}.runtime", task.map_or("*", TaskId::as_str))
}

/// What a subject says, read by a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParsedSubject {
    /// A worker speaks.
    Worker(WorkerName, WorkerVerb),
    /// An orchestrator or observer asks.
    Client(ClientName, ClientVerb),
}

/// What a worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerVerb {
    /// Asks every node for a link.
    Hello,
    /// Leaves.
    Bye,
    /// Heartbeats.
    Heartbeat,
    /// Says what capacity it has, to one node.
    Room,
    /// Reports to the owner of a partition.
    Report(u32),
    /// Looks for a Step in the scope of a Run.
    Query(u32),
    /// Claims one.
    Claim(u32),
    /// Looks at the Task of a Run.
    Look(u32),
}

/// What an orchestrator or observer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientVerb {
    /// Asks how the cluster is made.
    Hello,
    /// Asks every node what it knows of workers.
    Nodes,
    /// Tells workers to take no more, through every node.
    Drain,
    /// A command or a look, at the owner of a partition.
    Command(u32),
    /// Brings a log to the owner of a partition.
    Import(u32),
}

impl ParsedSubject {
    /// Reads a subject below [`ROOT`]; none if it is not of this form.
    pub fn read(subject: &str) -> Option<Self> {
        let rest = subject.strip_prefix(ROOT)?.strip_prefix('.')?;
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
            // `system` is a node that asks another.
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

/// A worker that asks for a link in a pool that there cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misnamed<'a> {
    /// What it calls its pool.
    pub pool: &'a str,
    /// Who the server says it is.
    pub principal: Token,
    /// Which boot of it.
    pub boot: Token,
    /// What a pool is called.
    pub why: BadId,
}

/// Reads the subject of a worker's hello that [`ParsedSubject::read`] cannot read, as its pool has no such name.
pub fn misnamed(subject: &str) -> Option<Misnamed<'_>> {
    let rest = subject.strip_prefix(ROOT)?.strip_prefix('.')?;
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
            tokens.next()?; // Whose it is decides the subscription.
            WorkerVerb::Room
        }
        "report" => WorkerVerb::Report(tokens.next()?.parse().ok()?),
        "query" => WorkerVerb::Query(tokens.next()?.parse().ok()?),
        "claim" => WorkerVerb::Claim(tokens.next()?.parse().ok()?),
        "look" => WorkerVerb::Look(tokens.next()?.parse().ok()?),
        _ => return None,
    })
}
