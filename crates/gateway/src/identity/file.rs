//! The file that says who is who, as TOML or as JSON.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tenure_core::id::{BadId, PoolId, SessionId};
use tenure_core::status::Role;
use tenure_mcp::unquoted::{read_json, read_toml};
use tenure_wire::bus::subject::Token;

use super::jwt::JwtTable;
use super::{Allowed, Identity};

/// The most bytes of the file, and of a file that it names: a thousand tokens take some 200 KB.
pub(super) const FILE_BYTES_MAX: u64 = 4 << 20;

/// What stands for all sessions, or for all pools, in a list of names.
const ALL: &str = "*";

/// Why the file cannot be used. No message contains a token, a key or a digest.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// A file is longer than any that was written by hand or by an issuer.
    #[error("{} has more than {max} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The greatest length.
        max: u64,
    },
    /// A file is not the TOML or JSON that it should be.
    #[error("{} cannot be understood: {why}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        why: String,
    },
    /// An entry means nothing, or something dangerous.
    #[error("{at}: {why}")]
    Entry {
        /// Which entry, such as `tokens[3]`.
        at: String,
        /// What is wrong with it.
        why: String,
    },
}

impl IdentityError {
    pub(super) fn entry(at: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Entry { at: at.into(), why: why.into() }
    }
}

/// The file as it is written. Every table may be absent.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct IdentityFile {
    pub(super) tokens: Vec<TokenEntry>,
    pub(super) certificates: Vec<CertificateEntry>,
    pub(super) jwt: Option<JwtTable>,
}

/// A token that somebody was given, by its digest.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenEntry {
    pub(super) sha256: String,
    principal: String,
    role: Role,
    #[serde(default)]
    sessions: Vec<String>,
    #[serde(default)]
    pools: Vec<String>,
}

/// A client certificate, by one of its names.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CertificateEntry {
    pub(super) name: String,
    principal: String,
    role: Role,
    #[serde(default)]
    sessions: Vec<String>,
    #[serde(default)]
    pools: Vec<String>,
}

impl TokenEntry {
    pub(super) fn identity(&self, at: &str) -> Result<Identity, IdentityError> {
        identity(at, &self.principal, self.role, [&self.sessions, &self.pools])
    }
}

impl CertificateEntry {
    pub(super) fn identity(&self, at: &str) -> Result<Identity, IdentityError> {
        identity(at, &self.principal, self.role, [&self.sessions, &self.pools])
    }
}

fn identity(
    at: &str,
    principal: &str,
    role: Role,
    [sessions, pools]: [&[String]; 2],
) -> Result<Identity, IdentityError> {
    let said = |why: String| IdentityError::entry(at, why);
    Ok(Identity {
        principal: Token::new(principal).map_err(|bad| said(bad.to_string()))?,
        role: role_of_callers(role).map_err(said)?,
        sessions: allowed::<SessionId>(sessions).map_err(said)?,
        pools: allowed::<PoolId>(pools).map_err(said)?,
    })
}

/// The role, if a caller from outside may have it.
pub(super) fn role_of_callers(role: Role) -> Result<Role, String> {
    match role {
        Role::Orchestrator | Role::Observer | Role::Worker => Ok(role),
        Role::SubAgent | Role::System => {
            Err(format!("the role {role} is none of orchestrator, observer and worker"))
        }
    }
}

/// The names of a list, or everything where the list is `["*"]`.
pub(super) fn allowed<T: FromStr<Err = BadId>>(
    names: &[impl AsRef<str>],
) -> Result<Allowed<T>, String> {
    if let [only] = names
        && only.as_ref() == ALL
    {
        return Ok(Allowed::All);
    }
    let named: Result<_, BadId> = names.iter().map(|name| name.as_ref().parse()).collect();
    named.map(Allowed::Only).map_err(|bad| format!("{bad}; {ALL:?} alone stands for all"))
}

/// Reads the file that says who is who.
pub(super) fn read_identities(path: &Path) -> Result<IdentityFile, IdentityError> {
    let bytes = read_bounded(path)?;
    if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json")) {
        return parse_json(path, &bytes);
    }
    let form = |why: String| IdentityError::Form { path: path.to_owned(), why };
    let text = std::str::from_utf8(&bytes).map_err(|error| form(error.to_string()))?;
    read_toml(text).map_err(form)
}

/// Reads JSON from the bytes of a file.
pub(super) fn parse_json<T: DeserializeOwned>(
    path: &Path,
    bytes: &[u8],
) -> Result<T, IdentityError> {
    read_json(bytes).map_err(|why| IdentityError::Form { path: path.to_owned(), why })
}

/// Reads a file that has a length at which it is certainly a mistake.
pub(super) fn read_bounded(path: &Path) -> Result<Vec<u8>, IdentityError> {
    let failed = |source| IdentityError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(IdentityError::TooLong { path: path.to_owned(), max: FILE_BYTES_MAX });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(name: &str, text: &str) -> Result<IdentityFile, IdentityError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        read_identities(&path)
    }

    #[test]
    fn toml_and_json_say_the_same() {
        let toml = "[[tokens]]\nsha256 = \"ab\"\nprincipal = \"ci\"\nrole = \"observer\"\n\
                    sessions = [\"*\"]\n";
        let json = r#"{"tokens": [{"sha256": "ab", "principal": "ci", "role": "observer",
                                   "sessions": ["*"]}]}"#;
        for (name, text) in [("who.toml", toml), ("who.json", json)] {
            let file = read(name, text).unwrap();
            let who = file.tokens[0].identity("tokens[0]").unwrap();
            assert_eq!((who.principal.as_str(), who.role), ("ci", Role::Observer));
            assert_eq!(who.sessions, Allowed::All);
            assert_eq!(who.pools, Allowed::Only(Vec::new()), "what is not named is not allowed");
        }
    }

    #[test]
    fn an_error_names_the_line_and_quotes_nothing() {
        let text = "[[tokens]]\nsha256 = \"very-secret\"\nprincipal = 5\nrole = \"observer\"\n";
        let Err(error) = read("who.toml", text) else { panic!("it was read") };
        let said = error.to_string();
        assert!(said.contains("line 3") && !said.contains("very-secret"), "{said}");
        assert!(read("who.toml", "tokns = []").is_err(), "a misspelt table is no empty table");
        for (name, text) in [
            ("who.json", r#"{"tokens": "very-secret"}"#),
            ("who.json", r#"{"jwt": "very-secret"}"#),
            ("who.toml", "jwt = \"very-secret\""),
            ("who.toml", "[[tokens]]\nsha256 = [\"very-secret\"]\n"),
        ] {
            let Err(error) = read(name, text) else { panic!("{text} was read") };
            let said = error.to_string();
            assert!(said.contains("expected") && !said.contains("very-secret"), "{said}");
        }
    }

    #[test]
    fn a_caller_is_none_of_the_inner_roles() {
        let refused = identity("tokens[0]", "ci", Role::System, [&[], &[]]).unwrap_err();
        assert!(refused.to_string().starts_with("tokens[0]: the role system"), "{refused}");
        assert!(identity("x", "a b", Role::Worker, [&[], &[]]).is_err());
        let both = ["*".to_owned(), "a".to_owned()];
        assert!(identity("x", "a", Role::Worker, [&both, &[]]).is_err());
    }

    #[test]
    fn a_file_over_the_limit_is_not_read() {
        let spaces = usize::try_from(FILE_BYTES_MAX).unwrap();
        assert!(read("who.toml", &"\n".repeat(spaces)).is_ok());
        let over = read("who.toml", &"\n".repeat(spaces + 1));
        assert!(matches!(over, Err(IdentityError::TooLong { .. })));
    }
}
