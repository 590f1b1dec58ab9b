//! Secrets of a worker, which Steps name and never hold.
//!
//! A Task says `{"secret": NAME}` where a password would stand, and the worker that runs the Step puts the value
//! there: from its environment, from a file of a directory, or from what a program of its operator answers. So logs,
//! snapshots and everybody who may read a Task hold the name alone. What a Step writes is masked as far as the worker
//! records it ([`SecretMask`]).
//!
//! Whoever may have a worker run a Step may use its secrets: a worker with secrets says which sessions it serves
//! (DISP-20), or is alone in a cluster.

mod mask;
mod source;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;
use tenure_core::id::BadId;

pub(crate) use self::mask::{CUTS, SecretMask};
pub use self::source::{SecretSource, SecretSources};

/// The longest name of a secret.
const NAME_MAX: usize = 128;

/// The longest value of a secret, 64 KiB.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 10;

/// How many secrets a Step may name.
const NAMED_MAX: usize = 64;

/// The only field of a reference.
const FIELD: &str = "secret";

/// The name of a secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretName(String);

impl SecretName {
    /// Checks the form of a name: it is no path, and it is one word of a command line.
    ///
    /// # Errors
    /// The name has another form.
    pub fn new(text: &str) -> Result<Self, BadId> {
        let is_plain =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        let begins_well =
            text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if begins_well && text.len() <= NAME_MAX && text.bytes().all(is_plain) {
            return Ok(Self(text.to_owned()));
        }
        let given = text.chars().take(80).collect();
        let expected =
            "1 to 128 characters a-z, A-Z, 0-9, _, - or ., the first a letter, a digit or _";
        Err(BadId { what: "name of a secret", given, expected })
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SecretName {
    type Err = BadId;
    fn from_str(text: &str) -> Result<Self, BadId> {
        Self::new(text)
    }
}

impl<'de> Deserialize<'de> for SecretName {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Self::new(&text).map_err(serde::de::Error::custom)
    }
}

/// A reference to a secret, in the input of a Step.
#[cfg(feature = "a2a")]
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretRef {
    /// Its name.
    pub(crate) secret: SecretName,
}

/// Why a Step does not get a secret. No message holds a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The value there is no reference.
    #[error("{0}")]
    Malformed(String),
    /// No source has it.
    #[error("this worker has no secret {name}: {searched}")]
    Missing {
        /// Its name.
        name: SecretName,
        /// Where it was searched for.
        searched: String,
    },
    /// A source has something that cannot be a value.
    #[error("secret {name} cannot be used: {why}")]
    Unusable {
        /// Its name.
        name: SecretName,
        /// Why.
        why: String,
    },
    /// A source does not answer now.
    #[error("secret {name} cannot be read now: {why}")]
    Unavailable {
        /// Its name.
        name: SecretName,
        /// Why.
        why: String,
    },
}

impl SecretError {
    /// The code with which a Step fails for it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "rejected",
            Self::Missing { .. } => "secret_missing",
            Self::Unusable { .. } => "secret_unusable",
            Self::Unavailable { .. } => "secret_unavailable",
        }
    }

    /// Whether a repetition of the Step may get the secret.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

/// The values that a Step was given.
#[derive(Clone, Default)]
pub(crate) struct GivenSecrets(BTreeMap<SecretName, String>);

impl GivenSecrets {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The mask of these values.
    pub(crate) fn mask(&self) -> SecretMask {
        SecretMask::of(self.0.values().map(String::as_str))
    }
}

/// Names the secrets, and shows no value.
impl fmt::Debug for GivenSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The name in a value that has the form of a reference.
fn name_in(value: &Json) -> Option<Result<SecretName, SecretError>> {
    let fields = value.as_object()?;
    let named = fields.get(FIELD)?;
    let name = named.as_str().filter(|_| fields.len() == 1);
    let name = name.ok_or_else(|| "a reference to a secret is {\"secret\": NAME}".to_owned());
    Some(
        name.and_then(|name| SecretName::new(name).map_err(|bad| bad.to_string()))
            .map_err(SecretError::Malformed),
    )
}

/// Puts the values of secrets where these places of an input refer to one. Answers those that it gave.
pub(crate) async fn fill_in(
    places: Vec<&mut Json>,
    sources: &SecretSources,
) -> Result<GivenSecrets, SecretError> {
    let mut given = GivenSecrets::default();
    for place in places {
        let Some(name) = name_in(place) else { continue };
        let name = name?;
        if !given.0.contains_key(&name) {
            if given.0.len() == NAMED_MAX {
                let message = format!("a step names {NAMED_MAX} secrets at most");
                return Err(SecretError::Malformed(message));
            }
            let value = sources.read(&name).await?;
            given.0.insert(name.clone(), value);
        }
        *place = Json::from(given.0[&name].clone());
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_is_one_word_and_no_path() {
        for name in ["db", "DB_PASSWORD", "a.b-c", "_x", "7"] {
            assert_eq!(SecretName::new(name).unwrap().as_str(), name);
        }
        for name in ["", ".", "..", ".hidden", "a/b", "../x", "-x", "a b", "ü", &"x".repeat(129)] {
            assert!(SecretName::new(name).is_err(), "{name}");
        }
    }

    #[tokio::test]
    async fn only_a_whole_reference_is_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("db"), "s3cret-value\n").unwrap();
        let sources = SecretSources::of([SecretSource::Dir(dir.path().to_owned())]);
        let mut all = [
            json!({"secret": "db"}),
            json!("plain"),
            json!({"secret": "db"}),
            json!({"other": "db"}),
        ];
        let given = fill_in(all.iter_mut().collect(), &sources).await.unwrap();
        assert_eq!(
            all,
            [json!("s3cret-value"), json!("plain"), json!("s3cret-value"), json!({"other": "db"})]
        );
        assert_eq!(format!("{given:?}"), "{SecretName(\"db\")}", "no value is shown");
        for wrong in
            [json!({"secret": 7}), json!({"secret": "db", "more": 1}), json!({"secret": "../db"})]
        {
            let mut place = wrong.clone();
            let refused = fill_in(vec![&mut place], &sources).await.unwrap_err();
            assert_eq!((refused.code(), place), ("rejected", wrong));
        }
        let mut place = json!({"secret": "nope"});
        let refused = fill_in(vec![&mut place], &sources).await.unwrap_err();
        assert_eq!((refused.code(), refused.is_retryable()), ("secret_missing", false));
        assert!(refused.to_string().contains("no secret nope"), "{refused}");
    }
}
