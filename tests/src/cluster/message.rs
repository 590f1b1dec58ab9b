//! Messages of docs/protocol.md: requests are written from JSON, answers read as MessagePack.

use anyhow::{Context as _, Result, ensure};
use rmpv::Value;
use serde_json::Value as Json;

/// What came back for a request.
#[derive(Debug, Clone)]
pub enum Answer {
    /// What was asked for.
    Done(Value),
    /// It was refused.
    Refused(Refusal),
    /// Nobody listens to the subject.
    NoResponders,
    /// Nothing came in time.
    Silence,
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Its code, see docs/errors.md.
    pub code: String,
    /// For people.
    pub message: String,
    /// Whether the same may succeed later.
    pub retryable: bool,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Refusal {}

impl Answer {
    /// Reads an answer.
    ///
    /// # Errors
    /// It is none.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let mut rest = bytes;
        let answer = rmpv::decode::read_value(&mut rest).context("an answer that is none")?;
        ensure!(rest.is_empty(), "{} bytes follow an answer", rest.len());
        ensure!(number(&answer, "v") == Some(1), "an answer of another version: {answer}");
        if let Some(error) = field(&answer, "error") {
            return Ok(Self::Refused(Refusal {
                code: text(error, "code").unwrap_or_default().to_owned(),
                message: text(error, "message").unwrap_or_default().to_owned(),
                retryable: field(error, "retryable").and_then(Value::as_bool).unwrap_or_default(),
            }));
        }
        let ok = field(&answer, "ok").with_context(|| format!("says nothing: {answer}"))?;
        Ok(Self::Done(ok.clone()))
    }

    /// The code of a refusal.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(refusal) => Some(&refusal.code),
            Self::Done(_) | Self::NoResponders | Self::Silence => None,
        }
    }
}

/// A message as bytes.
///
/// # Errors
/// It has no form in MessagePack.
pub fn write(message: &Json) -> Result<Vec<u8>> {
    Ok(rmp_serde::to_vec_named(message)?)
}

/// A field of a map.
pub fn field<'a>(map: &'a Value, key: &str) -> Option<&'a Value> {
    let fields = map.as_map()?;
    fields.iter().find(|(name, _)| name.as_str() == Some(key)).map(|(_, value)| value)
}

/// A text of a map.
pub fn text<'a>(map: &'a Value, key: &str) -> Option<&'a str> {
    field(map, key)?.as_str()
}

/// A number of a map.
pub fn number(map: &Value, key: &str) -> Option<u64> {
    field(map, key)?.as_u64()
}

/// A list of a map; one that is left out is empty.
pub fn list<'a>(map: &'a Value, key: &str) -> &'a [Value] {
    field(map, key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
