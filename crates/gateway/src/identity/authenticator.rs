//! [`Authenticator`]: who a caller is, by the file that the operator wrote.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use super::Identity;
use super::certs::{CertificateMap, ClientCertificate};
use super::file::{IdentityError, read_identities};
use super::jwt::JwtRules;
use super::tokens::{StaticTokens, TokenDigest, digest_of};

/// How many signed tokens are remembered as verified, so that a signature is not computed anew for
/// every request. When there are more, all are forgotten and verified again: some 100 µs each.
const VERIFIED_MAX: usize = 1_024;

/// Why a caller is not who it says it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginRefused {
    /// The token or the certificate means nobody, or its signature is not good. More is not said: it
    /// would help who guesses.
    #[error("the credentials are not valid")]
    Invalid,
    /// The token or the certificate was good until its time was over.
    #[error("the credentials have expired")]
    Expired,
    /// The token will be good later.
    #[error("the token is not valid yet")]
    NotYet,
    /// The issuer has signed the token, but its claims do not say who that is here.
    #[error("{0}")]
    Claims(String),
}

/// A caller who has proved who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedIn {
    /// Who it is.
    pub identity: Identity,
    /// When the proof ends, if it does by itself.
    pub until: Option<SystemTime>,
}

/// Who counts as whom, by one reading of the file.
#[derive(Debug, Default)]
struct KnownCallers {
    tokens: StaticTokens,
    certificates: CertificateMap,
    jwt: Option<JwtRules>,
}

/// Says who a caller is, by its token or its certificate.
pub struct Authenticator {
    path: PathBuf,
    known: RwLock<Arc<KnownCallers>>,
    verified: Mutex<HashMap<TokenDigest, LoggedIn>>,
    reloads: watch::Sender<u64>,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Authenticator {
    /// Reads the file, and the file with the issuer's keys if it names one.
    ///
    /// # Errors
    /// A file cannot be read, or says something that cannot be meant.
    pub fn load(path: impl Into<PathBuf>) -> Result<Self, IdentityError> {
        let path = path.into();
        let known = RwLock::new(Arc::new(KnownCallers::read(&path)?));
        Ok(Self { path, known, verified: Mutex::default(), reloads: watch::Sender::new(0) })
    }

    /// Reads the files again. Streams whose caller is not known any more end.
    ///
    /// # Errors
    /// As [`load`](Self::load); then everything stays as it was.
    pub fn reload(&self) -> Result<(), IdentityError> {
        let known = Arc::new(KnownCallers::read(&self.path)?);
        let mut verified = self.verified.lock(); // So that nothing of the old file comes in later.
        *self.known.write() = known;
        verified.clear();
        drop(verified);
        self.reloads.send_modify(|count| *count += 1);
        Ok(())
    }

    /// Who has this token now.
    ///
    /// # Errors
    /// Why nobody has it.
    pub fn bearer(&self, token: &[u8]) -> Result<LoggedIn, LoginRefused> {
        self.bearer_at(token, SystemTime::now())
    }

    fn bearer_at(&self, token: &[u8], now: SystemTime) -> Result<LoggedIn, LoginRefused> {
        let (known, digest) = (Arc::clone(&self.known.read()), digest_of(token));
        if let Some(identity) = known.tokens.find(&digest) {
            return Ok(LoggedIn { identity: identity.clone(), until: None });
        }
        let Some(rules) = &known.jwt else { return Err(LoginRefused::Invalid) };
        if let Some(login) = self.verified_before(&digest, now) {
            return Ok(login);
        }
        let login = rules.verify(token, now)?;
        self.remember(&known, digest, &login);
        Ok(login)
    }

    fn verified_before(&self, digest: &TokenDigest, now: SystemTime) -> Option<LoggedIn> {
        let verified = self.verified.lock();
        verified.get(digest).filter(|login| login.until.is_some_and(|until| now < until)).cloned()
    }

    fn remember(&self, by: &Arc<KnownCallers>, digest: TokenDigest, login: &LoggedIn) {
        let mut verified = self.verified.lock();
        if !Arc::ptr_eq(by, &self.known.read()) {
            return; // The file was read again while the signature was computed.
        }
        if verified.len() >= VERIFIED_MAX {
            verified.clear();
        }
        verified.insert(digest, login.clone());
    }

    /// Whom a client certificate stands for that the TLS connection has verified.
    ///
    /// # Errors
    /// It is not valid any more, no entry has one of its names, or entries for different callers do.
    pub fn certificate(&self, of: &ClientCertificate) -> Result<LoggedIn, LoginRefused> {
        if of.until <= SystemTime::now() {
            return Err(LoginRefused::Expired);
        }
        let identity = self.known.read().certificates.find(&of.names)?;
        Ok(LoggedIn { identity, until: Some(of.until) })
    }

    /// Tells each time the files were read again.
    pub(crate) fn reloads(&self) -> watch::Receiver<u64> {
        self.reloads.subscribe()
    }
}

impl KnownCallers {
    fn read(path: &Path) -> Result<Self, IdentityError> {
        let file = read_identities(path)?;
        let known = Self {
            tokens: StaticTokens::read(&file.tokens)?,
            certificates: CertificateMap::read(&file.certificates)?,
            jwt: file.jwt.map(|table| JwtRules::read(table, path)).transpose()?,
        };
        if known.tokens.is_empty() && known.certificates.is_empty() && known.jwt.is_none() {
            return Err(IdentityError::entry(path.display().to_string(), "it names no caller"));
        }
        Ok(known)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use sha2::{Digest as _, Sha256};

    use super::*;

    fn file_for(token: &str, principal: &str) -> String {
        let digest = Sha256::digest(token.as_bytes());
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!(
            "[[tokens]]\nsha256 = \"{digest}\"\nprincipal = \"{principal}\"\n\
             role = \"orchestrator\"\nsessions = [\"a\"]\n"
        )
    }

    #[test]
    fn a_file_that_is_read_again_counts_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("who.toml");
        fs::write(&path, file_for("old", "alice")).unwrap();
        let who = Authenticator::load(&path).unwrap();
        let reloads = who.reloads();
        assert_eq!(who.bearer(b"old").unwrap().identity.principal.as_str(), "alice");

        fs::write(&path, file_for("new", "bob")).unwrap();
        assert!(who.bearer(b"new").is_err(), "nobody has told it to read again");
        who.reload().unwrap();
        assert_eq!(who.bearer(b"new").unwrap().identity.principal.as_str(), "bob");
        assert_eq!(who.bearer(b"old"), Err(LoginRefused::Invalid));
        assert!(reloads.has_changed().unwrap());
    }

    #[test]
    fn a_broken_file_leaves_everything_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("who.toml");
        fs::write(&path, file_for("old", "alice")).unwrap();
        let who = Authenticator::load(&path).unwrap();
        for broken in ["", "[[tokens]]", "]"] {
            fs::write(&path, broken).unwrap();
            assert!(who.reload().is_err(), "{broken:?}");
            assert!(Authenticator::load(&path).is_err(), "{broken:?}");
            assert!(who.bearer(b"old").is_ok());
        }
        assert!(!who.reloads().has_changed().unwrap());
    }

    #[test]
    fn neither_tokens_nor_digests_are_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("who.toml");
        fs::write(&path, file_for("very-secret", "alice")).unwrap();
        let shown = format!("{:?}", Authenticator::load(&path).unwrap());
        assert!(
            shown.starts_with("Authenticator { path: ") && !shown.contains("sha256"),
            "{shown}"
        );
    }
}
