//! Who sends a request, and what that caller may reach.
//!
//! A caller proves who it is with a token that the operator wrote down ([`tokens`]), with a token that
//! an issuer signed ([`jwt`]), or with the certificate of its TLS connection ([`certs`]). One file
//! ([`file`]) says which of these count and whom they stand for; [`Authenticator`] reads it, and reads
//! it again when it is told to. Nothing in a body or in another header ever says who the caller is.

mod authenticator;
mod certs;
mod file;
mod jwks;
mod jwt;
mod tokens;

use tenure_core::id::{PoolId, SessionId};
use tenure_core::status::Role;
use tenure_wire::bus::subject::Token;

pub use self::authenticator::{Authenticator, LoggedIn, LoginRefused};
pub use self::certs::ClientCertificate;
pub use self::file::IdentityError;

/// The caller of a request, as the listener or the caller's token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name under which the caller acts.
    pub principal: Token,
    /// What kind of caller it is.
    pub role: Role,
    /// The sessions into which it is let.
    pub sessions: Allowed<SessionId>,
    /// The pools that it may join as a worker.
    pub pools: Allowed<PoolId>,
}

impl Identity {
    /// The user of this machine, who may do everything: whoever reaches a listener that only this
    /// machine, or only this user, can reach.
    pub fn local() -> Self {
        let principal = Token::new("local").unwrap_or_else(|_| unreachable!("it is a token"));
        let role = Role::Orchestrator;
        Self { principal, role, sessions: Allowed::All, pools: Allowed::All }
    }
}

/// Which of the named things a caller may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed<T> {
    /// All there are.
    All,
    /// Only these.
    Only(Vec<T>),
}

impl<T: PartialEq> Allowed<T> {
    /// Whether `it` is among them.
    pub fn admits(&self, it: &T) -> bool {
        match self {
            Self::All => true,
            Self::Only(some) => some.contains(it),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_admits_what_it_names_and_nothing_else() {
        let (a, b): (SessionId, SessionId) = ("a".parse().unwrap(), "b".parse().unwrap());
        assert!(Allowed::All.admits(&a));
        assert!(Allowed::Only(vec![a.clone()]).admits(&a));
        assert!(!Allowed::Only(vec![a.clone()]).admits(&b));
        assert!(!Allowed::Only(Vec::new()).admits(&a));
    }

    #[test]
    fn the_local_user_may_do_everything() {
        let local = Identity::local();
        assert_eq!((local.principal.as_str(), local.role), ("local", Role::Orchestrator));
        assert!(local.sessions.admits(&"any".parse().unwrap()));
        assert!(local.pools.admits(&"any".parse().unwrap()));
    }
}
