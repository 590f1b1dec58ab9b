//! Tokens that the operator wrote down. The file has the SHA-256 of each, so that who reads the file
//! learns no token.

use std::fmt;
use std::hint::black_box;

use sha2::{Digest as _, Sha256};

use super::Identity;
use super::file::{IdentityError, TokenEntry};

/// The most tokens: every request is compared with all of them, which takes some 10 µs then. For more
/// callers there are signed tokens.
pub(super) const TOKENS_MAX: usize = 1_000;

/// The SHA-256 of a token.
pub(super) type TokenDigest = [u8; 32];

/// The tokens of the file, each with whom it stands for.
#[derive(Default)]
pub(super) struct StaticTokens(Vec<(TokenDigest, Identity)>);

impl fmt::Debug for StaticTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let principals = self.0.iter().map(|(_, who)| &who.principal);
        f.debug_list().entries(principals).finish()
    }
}

impl StaticTokens {
    pub(super) fn read(entries: &[TokenEntry]) -> Result<Self, IdentityError> {
        if entries.len() > TOKENS_MAX {
            let why = format!("there are {} tokens; at most {TOKENS_MAX}", entries.len());
            return Err(IdentityError::entry("tokens", why));
        }
        let mut known: Vec<(TokenDigest, Identity)> = Vec::with_capacity(entries.len());
        for (i, entry) in entries.iter().enumerate() {
            let at = format!("tokens[{i}]");
            let digest = hex_digest(&entry.sha256).ok_or_else(|| {
                IdentityError::entry(&at, "sha256 is not 64 digits of a hexadecimal number")
            })?;
            if digest == digest_of(b"") {
                return Err(IdentityError::entry(&at, "sha256 is that of an empty token"));
            }
            if known.iter().any(|(other, _)| *other == digest) {
                return Err(IdentityError::entry(&at, "another entry has the same sha256"));
            }
            known.push((digest, entry.identity(&at)?));
        }
        Ok(Self(known))
    }

    /// Whom the token with this digest stands for. The time that this takes depends on the number of
    /// entries alone: all are compared, and each as a whole.
    pub(super) fn find(&self, digest: &TokenDigest) -> Option<&Identity> {
        let mut found = None;
        for (known, who) in &self.0 {
            if differing_bits(known, digest) == 0 {
                found = Some(who);
            }
        }
        found
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The bits in which two digests differ, or-ed together. It has no branch that depends on them.
fn differing_bits(a: &TokenDigest, b: &TokenDigest) -> u8 {
    black_box(a.iter().zip(b).fold(0, |bits, (x, y)| black_box(bits | (x ^ y))))
}

/// The digest by which a token is known here.
pub(super) fn digest_of(token: &[u8]) -> TokenDigest {
    Sha256::digest(token).into()
}

fn hex_digest(text: &str) -> Option<TokenDigest> {
    let (mut digest, text) = (TokenDigest::default(), text.as_bytes());
    if text.len() != 2 * digest.len() {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(text.chunks_exact(2)) {
        let nibble = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = u8::try_from(nibble(0)? << 4 | nibble(1)?).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(digest: TokenDigest) -> String {
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn entry(sha256: &str, principal: &str) -> TokenEntry {
        let json = serde_json::json!({
            "sha256": sha256, "principal": principal, "role": "orchestrator"
        });
        serde_json::from_value(json).unwrap()
    }

    fn tokens(of: &[&str]) -> StaticTokens {
        let entries: Vec<_> =
            of.iter().map(|token| entry(&hex(digest_of(token.as_bytes())), token)).collect();
        StaticTokens::read(&entries).unwrap()
    }

    #[test]
    fn a_token_is_found_wherever_it_stands_and_no_other_is() {
        let known = tokens(&["first", "second", "third"]);
        for token in ["first", "second", "third"] {
            let who = known.find(&digest_of(token.as_bytes())).unwrap();
            assert_eq!(who.principal.as_str(), token);
        }
        for wrong in ["", "firs", "first ", "FIRST", "fourth"] {
            assert_eq!(known.find(&digest_of(wrong.as_bytes())), None, "{wrong:?}");
        }
        assert_eq!(StaticTokens::default().find(&digest_of(b"")), None);
    }

    #[test]
    fn every_bit_of_a_digest_counts() {
        let digest = digest_of(b"secret");
        assert_eq!(differing_bits(&digest, &digest), 0);
        for bit in 0..256 {
            let mut other = digest;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(differing_bits(&digest, &other), 0, "bit {bit}");
        }
    }

    #[test]
    fn an_entry_that_would_let_everybody_in_is_refused() {
        let (empty, good) = (hex(digest_of(b"")), hex(digest_of(b"good")));
        for bad in ["", "abc", &good[1..], &format!("{good}0"), &good.replace('a', "g"), &empty] {
            assert!(StaticTokens::read(&[entry(bad, "ci")]).is_err(), "{bad:?}");
        }
        let twice = [entry(&good, "a"), entry(&good.to_uppercase(), "b")];
        assert!(StaticTokens::read(&twice).is_err(), "one token stands for one caller");
    }

    #[test]
    fn there_are_at_most_so_many_tokens() {
        let all: Vec<_> = (0..=TOKENS_MAX)
            .map(|i| entry(&hex(digest_of(format!("t{i}").as_bytes())), "ci"))
            .collect();
        assert!(StaticTokens::read(&all[1..]).is_ok());
        assert!(StaticTokens::read(&all).is_err());
    }

    #[test]
    fn no_digest_is_shown() {
        assert_eq!(format!("{:?}", tokens(&["a"])), "[Token(\"a\")]");
    }
}
