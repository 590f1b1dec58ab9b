//! Which servers there are, how each is reached, and what may be asked of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use serde::Deserialize;

use super::stdio::HARMLESS;
use crate::secrets::{SecretName, SecretSources};

/// The servers that a worker may call, by their names.
///
/// Read from TOML, a table `servers.NAME` is a server.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolServers {
    /// The servers.
    #[serde(default)]
    pub servers: BTreeMap<String, ToolServerSettings>,
}

/// How one server is reached, and what may be asked of it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "ServerTable")]
pub struct ToolServerSettings {
    /// The way to it.
    pub way: ToolServerWay,
    /// The tools that may be called; none: all that it has.
    pub allow: Option<Vec<String>>,
    /// How long it may take to begin, and to answer what is no call of a tool.
    pub start_timeout: Duration,
    /// How long a call may go on without a sign of life.
    pub call_timeout: Duration,
    /// The longest message that is read.
    pub answer_bytes_max: usize,
    /// How many calls go on at a time; more wait.
    pub calls_max: usize,
}

/// The way to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolServerWay {
    /// A program, which speaks over its standard input and output.
    Program {
        /// The program and its arguments.
        command: Vec<String>,
        /// The names of variables that it gets from the environment of the worker, beside a few harmless ones.
        env: Vec<String>,
        /// The directory in which it runs; none: that of the worker.
        cwd: Option<PathBuf>,
    },
    /// An address of HTTP.
    Address {
        /// The address.
        url: String,
        /// Where the token is that says who the caller is.
        token: Option<ToolToken>,
        /// The certificate of the authority that signed the server's own, if the machine does not know it.
        ca: Option<PathBuf>,
    },
}

/// Where a token is. It is read when a connection is made, so a new one counts from the next connection on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolToken {
    /// In a file.
    File(PathBuf),
    /// In a variable of the environment.
    Env(String),
    /// The token is a secret of the worker, which has this name.
    Secret(SecretName, SecretSources),
}

/// The seconds in which a server has to begin.
const START_TIMEOUT_S: u64 = 30;

/// The seconds for which a call may go on without a sign of life.
const CALL_TIMEOUT_S: u64 = 600;

/// The longest time that may be named, in seconds: a week.
const TIMEOUT_S_MAX: u64 = 604_800;

/// The longest message, and the longest that may be allowed. An output of a Step has 16 MiB at most.
const ANSWER_BYTES: (usize, usize) = (8 << 20, 24 << 20);

/// The shortest limit of a message: below this nothing could be said.
const ANSWER_BYTES_MIN: usize = 1 << 10;

/// How many calls go on at a time, and the most that may be allowed.
const CALLS: (usize, usize) = (16, 1_024);

/// Variables that belong to Tenure and to its servers. No server of tools gets one.
const OWN_VARIABLES: [&str; 2] = ["TENURE_", "NATS_"];

impl ToolServers {
    /// The same, whose tokens may be secrets of these places.
    #[must_use]
    pub fn with_secrets(mut self, secrets: &SecretSources) -> Self {
        for server in self.servers.values_mut() {
            if let ToolServerWay::Address { token: Some(ToolToken::Secret(_, places)), .. } =
                &mut server.way
            {
                places.clone_from(secrets);
            }
        }
        self
    }
}

impl ToolServers {
    /// The names of the variables that hold what servers get, without those that every program gets.
    pub(crate) fn variables(&self) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for server in self.servers.values() {
            match &server.way {
                ToolServerWay::Program { env, .. } => all.extend(env.iter().cloned()),
                ToolServerWay::Address { token: Some(ToolToken::Env(name)), .. } => {
                    all.insert(name.clone());
                }
                ToolServerWay::Address { .. } => {}
            }
        }
        all.retain(|name| !HARMLESS.contains(&name.as_str()));
        all
    }
}

impl ToolServerSettings {
    /// A server that is reached in this way, with the defaults.
    pub fn new(way: ToolServerWay) -> Self {
        Self {
            way,
            allow: None,
            start_timeout: Duration::from_secs(START_TIMEOUT_S),
            call_timeout: Duration::from_secs(CALL_TIMEOUT_S),
            answer_bytes_max: ANSWER_BYTES.0,
            calls_max: CALLS.0,
        }
    }

    /// Whether this tool may be called.
    pub fn allows(&self, tool: &str) -> bool {
        self.allow.as_ref().is_none_or(|all| all.iter().any(|it| it == tool))
    }
}

/// A server as a file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerTable {
    command: Option<Vec<String>>,
    #[serde(default)]
    env: Vec<String>,
    cwd: Option<PathBuf>,
    url: Option<String>,
    token_file: Option<PathBuf>,
    token_env: Option<String>,
    token_secret: Option<SecretName>,
    ca: Option<PathBuf>,
    allow: Option<Vec<String>>,
    start_timeout_s: Option<u64>,
    call_timeout_s: Option<u64>,
    answer_bytes_max: Option<usize>,
    calls_max: Option<usize>,
}

/// What is wrong with a server of a file.
#[derive(Debug, PartialEq, Eq)]
struct BadServer(String);

impl fmt::Display for BadServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<ServerTable> for ToolServerSettings {
    type Error = BadServer;

    fn try_from(mut table: ServerTable) -> Result<Self, BadServer> {
        let way = table.way()?;
        let start =
            within("start_timeout_s", table.start_timeout_s, (START_TIMEOUT_S, 1, TIMEOUT_S_MAX))?;
        let call =
            within("call_timeout_s", table.call_timeout_s, (CALL_TIMEOUT_S, 1, TIMEOUT_S_MAX))?;
        let (usual, most) = ANSWER_BYTES;
        let bytes = (usual, ANSWER_BYTES_MIN, most);
        let answer_bytes_max = within("answer_bytes_max", table.answer_bytes_max, bytes)?;
        let calls_max = within("calls_max", table.calls_max, (CALLS.0, 1, CALLS.1))?;
        Ok(Self {
            way,
            allow: table.allow,
            start_timeout: Duration::from_secs(start),
            call_timeout: Duration::from_secs(call),
            answer_bytes_max,
            calls_max,
        })
    }
}

impl ServerTable {
    /// The way, from the fields that belong to it and to no other.
    fn way(&mut self) -> Result<ToolServerWay, BadServer> {
        match (self.command.take(), self.url.take()) {
            (Some(command), None) => self.program(command),
            (None, Some(url)) => self.address(url),
            _ => bad("a server has either command or url"),
        }
    }

    fn program(&mut self, command: Vec<String>) -> Result<ToolServerWay, BadServer> {
        let has_token =
            self.token_file.is_some() || self.token_env.is_some() || self.token_secret.is_some();
        if has_token || self.ca.is_some() {
            return bad(
                "token_file, token_env, token_secret and ca go with url; a command gets variables by env",
            );
        }
        if command.first().is_none_or(String::is_empty)
            || command.iter().any(|it| it.contains('\0'))
        {
            return bad("command is a list: the program, and its arguments");
        }
        let env = std::mem::take(&mut self.env);
        if let Some(own) =
            env.iter().find(|name| OWN_VARIABLES.iter().any(|it| name.starts_with(it)))
        {
            return bad(format!("env names {own}: variables of Tenure and NATS are not passed on"));
        }
        if env.iter().any(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return bad("env is a list of names of variables, without values");
        }
        Ok(ToolServerWay::Program { command, env, cwd: self.cwd.take() })
    }

    fn address(&mut self, url: String) -> Result<ToolServerWay, BadServer> {
        if !self.env.is_empty() || self.cwd.is_some() {
            return bad("env and cwd go with command");
        }
        let file = self.token_file.take().map(ToolToken::File);
        let env = self.token_env.take().map(ToolToken::Env);
        let secret = self.token_secret.take();
        let secret = secret.map(|name| ToolToken::Secret(name, SecretSources::default()));
        let mut given = [file, env, secret].into_iter().flatten();
        let token = given.next();
        if given.next().is_some() {
            return bad("a server has one of token_file, token_env and token_secret");
        }
        check_url(&url).map_err(|why| BadServer(format!("url: {why}")))?;
        Ok(ToolServerWay::Address { url, token, ca: self.ca.take() })
    }
}

/// The origin and the path of an address.
///
/// # Errors
/// It is none of HTTP, or a login stands in it; the text says why, and shows no login.
pub(super) fn check_url(url: &str) -> Result<(String, String), String> {
    let uri: Uri = url.parse().map_err(|_| "it is no address".to_owned())?;
    let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority())
    else {
        return Err("it begins with http:// or https://, and names a host".to_owned());
    };
    if authority.as_str().contains('@') {
        return Err("a login does not stand in an address: give a token".to_owned());
    }
    let path = uri.path_and_query().map_or("/", |it| it.as_str());
    Ok((format!("{scheme}://{authority}"), path.to_owned()))
}

fn bad<T>(why: impl Into<String>) -> Result<T, BadServer> {
    Err(BadServer(why.into()))
}

/// A number of a file, if there is one, within its least and its most.
fn within<T: PartialOrd + fmt::Display>(
    field: &str,
    given: Option<T>,
    (usual, least, most): (T, T, T),
) -> Result<T, BadServer> {
    match given {
        None => Ok(usual),
        Some(given) if given >= least && given <= most => Ok(given),
        Some(given) => bad(format!("{field} is {given}; it is from {least} to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn read(server: Json) -> Result<ToolServerSettings, String> {
        let all: Result<ToolServers, _> =
            serde_json::from_value(json!({"servers": {"one": server}}));
        all.map(|mut all| all.servers.remove("one").unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_server_is_a_program_or_an_address() {
        let program =
            read(json!({"command": ["a", "b"], "env": ["KEY"], "cwd": "/c", "allow": ["t"]}));
        let program = program.unwrap();
        let (command, env) = (vec!["a".to_owned(), "b".to_owned()], vec!["KEY".to_owned()]);
        let way = ToolServerWay::Program { command, env, cwd: Some("/c".into()) };
        assert_eq!(
            program,
            ToolServerSettings { allow: Some(vec!["t".into()]), ..ToolServerSettings::new(way) }
        );
        assert!(program.allows("t") && !program.allows("u"));
        let address = read(
            json!({"url": "https://one/mcp", "token_env": "T", "call_timeout_s": 5, "calls_max": 1}),
        );
        let address = address.unwrap();
        assert_eq!((address.call_timeout, address.calls_max), (Duration::from_secs(5), 1));
        assert!(address.allows("any"));
    }

    #[test]
    fn what_servers_get_by_name_is_known() {
        let servers: ToolServers = serde_json::from_value(json!({"servers": {
            "one": {"command": ["a"], "env": ["KEY", "PATH"]},
            "two": {"url": "https://two", "token_env": "TOKEN"},
            "three": {"url": "https://three", "token_file": "FILE"},
        }}))
        .unwrap();
        assert_eq!(servers.variables().into_iter().collect::<Vec<_>>(), ["KEY", "TOKEN"]);
    }

    /// A server gets nothing of Tenure's own logins, and what is wrong is named with its field.
    #[test]
    fn what_is_wrong_is_refused_with_its_field() {
        for (server, field) in [
            (json!({}), "command or url"),
            (json!({"command": ["a"], "url": "http://one"}), "command or url"),
            (json!({"command": []}), "command"),
            (json!({"command": ["a"], "env": ["TENURE_TOKEN"]}), "TENURE_TOKEN"),
            (json!({"command": ["a"], "env": ["NATS_PASSWORD"]}), "NATS_PASSWORD"),
            (json!({"command": ["a"], "env": ["A=b"]}), "env"),
            (json!({"command": ["a"], "token_env": "T"}), "token_env"),
            (json!({"url": "http://one", "cwd": "/"}), "cwd"),
            (json!({"url": "http://one", "token_env": "T", "token_file": "t"}), "token_file"),
            (json!({"url": "http://one", "token_env": "T", "token_secret": "t"}), "token_secret"),
            (json!({"url": "http://one", "token_secret": "../t"}), "name of a secret"),
            (json!({"command": ["a"], "token_secret": "t"}), "token_secret"),
            (json!({"url": "file:///etc/passwd"}), "url"),
            (json!({"url": "http://ann:s3cret@one"}), "url"),
            (json!({"url": "http://one", "call_timeout_s": 0}), "call_timeout_s"),
            (json!({"url": "http://one", "answer_bytes_max": 1}), "answer_bytes_max"),
            (json!({"url": "http://one", "token": "t"}), "token"),
        ] {
            let refused = read(server.clone()).unwrap_err();
            assert!(refused.contains(field) && !refused.contains("s3cret"), "{server}: {refused}");
        }
    }
}
