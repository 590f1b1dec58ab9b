//! Identifiers and time: a newtype per id, checked where a value enters.
//!
//! Names chosen by people (`task_id`, `step_id`, pools, handlers) share one form: `a-z0-9-_`, not
//! empty, with a length limit, so that no id can ever mean a path (ID-02, ID-05, ID-08). Ids made
//! by the scheduler are UUIDs that enter the core as values.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use smol_str::SmolStr;
use uuid::Uuid;

use crate::rules::Rules;

/// Unix epoch milliseconds, UTC.
pub type Millis = i64;

/// Longest `task_id`, `step_id`, `wal_name`, `session_id`, pool and handler name, in characters (ID-02,
/// ID-05, ID-08, STORE-13).
pub const NAME_MAX: usize = 128;
/// The same in the first edition of the contract, where a session had 128 already (EVOLVE-02).
pub(crate) const FIRST_NAME_MAX: usize = 64;
/// Longest principal id, `command_id` and other opaque id, in bytes.
pub const OPAQUE_MAX: usize = 256;
/// Longest ref, in bytes.
const REF_MAX: usize = 4096;

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadId {
    /// What kind of id it was to be, such as `step_id`.
    pub what: &'static str,
    /// The text as given, cut to a printable length.
    pub given: String,
    /// The form that is expected.
    pub expected: &'static str,
}

impl fmt::Display for BadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} is not valid: {}", self.what, self.given, self.expected)
    }
}

impl core::error::Error for BadId {}

fn is_name(text: &str, max: usize) -> bool {
    !text.is_empty()
        && text.len() <= max
        && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
}

fn bad(what: &'static str, given: &str, expected: &'static str) -> BadId {
    BadId { what, given: given.chars().take(80).collect(), expected }
}

/// The characters that [`is_name`] lets through, for schemas.
const NAME: &str = "^[a-z0-9_-]+$";

/// The characters of an opaque id, for schemas. They count characters where the ids count bytes.
const OPAQUE: &str = "^[^\\x00]+$";

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:expr, $expected:literal, $pattern:expr, $max:expr) => {
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "string",
                    "description": $expected,
                    "pattern": $pattern,
                    "maxLength": $max,
                })
            }
        }

        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(SmolStr);

        impl $name {
            /// Checks the form and wraps the text.
            pub fn new(text: impl AsRef<str>) -> Result<Self, BadId> {
                let text = text.as_ref();
                let check: fn(&str) -> bool = $check;
                if check(text) { Ok(Self(SmolStr::new(text))) } else { Err(bad($what, text, $expected)) }
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self.as_str(), f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl core::str::FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                Self::new(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = SmolStr::deserialize(d)?;
                Self::new(text).map_err(serde::de::Error::custom)
            }
        }
    };
}

text_id!(
    /// A Task, unique in its session for ever (ID-02, ID-03).
    TaskId, "task_id", |t| is_name(t, NAME_MAX),
    "1 to 128 characters a-z, 0-9, - or _", NAME, NAME_MAX
);
text_id!(
    /// A Step, unique in its Task (ID-05).
    StepId, "step_id", |t| is_name(t, NAME_MAX),
    "1 to 128 characters a-z, 0-9, - or _", NAME, NAME_MAX
);
text_id!(
    /// The file name of an embedded WAL, without extension (STORE-12, STORE-13).
    WalName, "wal_name", |t| is_name(t, NAME_MAX),
    "1 to 128 characters a-z, 0-9, - or _", NAME, NAME_MAX
);
text_id!(
    /// A session: the namespace and lifetime group of Tasks (ID-08).
    SessionId, "session_id", |t| is_name(t, NAME_MAX),
    "1 to 128 characters a-z, 0-9, - or _", NAME, NAME_MAX
);
text_id!(
    /// A pool of workers (ID-08).
    PoolId, "worker_pool_id", |t| is_name(t, NAME_MAX),
    "1 to 128 characters a-z, 0-9, - or _", NAME, NAME_MAX
);
text_id!(
    /// The name of a worker's handler (ID-08, U13).
    HandlerName, "handler", |t| is_name(t, NAME_MAX),
    "1 to 128 characters a-z, 0-9, - or _", NAME, NAME_MAX
);
text_id!(
    /// A principal as the transport authenticated it (U12).
    AgentId, "agent id", |t| !t.is_empty() && t.len() <= OPAQUE_MAX && !t.contains('\0'),
    "1 to 256 bytes without NUL", OPAQUE, OPAQUE_MAX
);
text_id!(
    /// The id of a command, chosen by the caller (IDEM-01).
    CommandId, "command_id", |t| !t.is_empty() && t.len() <= OPAQUE_MAX && !t.contains('\0'),
    "1 to 256 bytes without NUL", OPAQUE, OPAQUE_MAX
);
text_id!(
    /// An artifact of a Task (ART-01, ART-02).
    ArtifactId, "artifact_id",
    |t| !t.is_empty() && t.len() <= OPAQUE_MAX && !t.contains(['\0', '/', ':']),
    "1 to 256 bytes without NUL, / or :", "^[^\\x00/:]+$", OPAQUE_MAX
);
text_id!(
    /// A relation record (REL-01).
    EdgeId, "edge_id", |t| !t.is_empty() && t.len() <= OPAQUE_MAX && !t.contains('\0'),
    "1 to 256 bytes without NUL", OPAQUE, OPAQUE_MAX
);
text_id!(
    /// A pointer to data: an artifact of this Task, `<task_id>/<artifact_id>`, or a URI (2.7).
    Ref, "ref", |t| !t.is_empty() && t.len() <= REF_MAX && !t.contains('\0'),
    "1 to 4096 bytes without NUL", OPAQUE, REF_MAX
);

impl Ref {
    /// A ref that has the right form.
    pub(crate) fn known(text: String) -> Self {
        Self(SmolStr::from(text))
    }
}

/// The principal of the scheduler's own moves (`system`, U4).
pub fn system_agent() -> AgentId {
    AgentId(SmolStr::new_static("system"))
}

impl TaskId {
    /// IDEM-03: the id of a Task that is created with this key and without an id. A repeated create
    /// gets the same id, and so meets the same Task.
    pub fn of_key(session: &SessionId, key: &str) -> Self {
        let space = alloc::format!("tenure:{session}");
        let space = Uuid::new_v5(&Uuid::NAMESPACE_URL, space.as_bytes());
        let id = Uuid::new_v5(&space, key.as_bytes());
        Self(SmolStr::new(id.hyphenated().encode_lower(&mut Uuid::encode_buffer())))
    }
}

impl HandlerName {
    /// The handler of a Step that names none (U13).
    pub fn default_handler() -> Self {
        Self(SmolStr::new_static("default"))
    }

    /// The built-in handler that does nothing: a claim looks through its Steps (STEP-37).
    pub const NOOP: &'static str = "noop";
}

impl From<&TaskId> for WalName {
    /// `wal_name` defaults to `task_id`: both have the same form (STORE-09).
    fn from(task: &TaskId) -> Self {
        Self(task.0.clone())
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "format": "uuid" })
            }
        }

        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Uuid);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl core::str::FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                Uuid::try_parse(text).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(self.0.hyphenated().encode_lower(&mut Uuid::encode_buffer()))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            /// Reads text in any UUID form, or 16 bytes, as clients in other languages send either.
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct Either;
                impl serde::de::Visitor<'_> for Either {
                    type Value = Uuid;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a UUID as text or as 16 bytes")
                    }
                    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Uuid, E> {
                        Uuid::try_parse(v).map_err(E::custom)
                    }
                    fn visit_bytes<E: serde::de::Error>(self, v: &[u8]) -> Result<Uuid, E> {
                        Uuid::from_slice(v).map_err(E::custom)
                    }
                }
                d.deserialize_any(Either).map(Self)
            }
        }
    };
}

uuid_id!(
    /// A Run, made by the scheduler (ID-07).
    RunId
);
uuid_id!(
    /// An Attempt, made by the scheduler (ID-07).
    AttemptId
);
uuid_id!(
    /// A commit: all events of one command (WAL-08).
    CommitId
);

/// By which rule a digest is made (EVOLVE-04).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DigestForm {
    /// The whole command is hashed together with who asks for it.
    First = 1,
    /// The content of the command is hashed, and who asks is added where it counts (IDEM-02).
    Second = 2,
}

impl DigestForm {
    /// The form of new digests.
    pub const NEWEST: Self = Self::Second;

    /// The form of new digests in a Task of these rules: who has only the first edition can read it.
    pub const fn of(rules: Rules) -> Self {
        match rules {
            Rules::First => Self::First,
            Rules::Second => Self::Second,
        }
    }

    /// What stands before the hash in the text of a digest; nothing in the first form.
    const fn prefix(self) -> &'static str {
        match self {
            Self::First => "",
            Self::Second => "2:",
        }
    }
}

/// SHA-256 of a command, computed where the request arrived (P38), with the form in which it is made:
/// 64 hex digits in the first form, `2:` and 64 hex digits in the second.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    /// How it is made.
    pub form: DigestForm,
    /// The hash.
    pub sha256: [u8; 32],
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text(&mut [0; Self::TEXT_MAX]))
    }
}

impl Digest {
    /// The longest text of a digest.
    pub const TEXT_MAX: usize = 66;

    /// A digest of the first form.
    pub const fn first(sha256: [u8; 32]) -> Self {
        Self { form: DigestForm::First, sha256 }
    }

    /// A digest of the second form.
    pub const fn second(sha256: [u8; 32]) -> Self {
        Self { form: DigestForm::Second, sha256 }
    }

    /// The digest of the same content with who asks for it (IDEM-02). In the first form it has that already.
    #[must_use]
    pub fn asked_by(self, agent: &AgentId) -> Self {
        match self.form {
            DigestForm::First => self,
            DigestForm::Second => {
                let both = Sha256::new().chain_update(self.sha256).chain_update(agent.as_str());
                Self { sha256: both.finalize().into(), ..self }
            }
        }
    }

    /// Its text with lower-case hex digits, written into `out`.
    pub fn text<'a>(&self, out: &'a mut [u8; Self::TEXT_MAX]) -> &'a str {
        let prefix = self.form.prefix();
        let out = &mut out[..prefix.len() + 64];
        let (head, digits) = out.split_at_mut(prefix.len());
        head.copy_from_slice(prefix.as_bytes());
        hex(&self.sha256, digits);
        core::str::from_utf8(out).unwrap_or("")
    }

    pub(crate) fn of_text(text: &str) -> Option<Self> {
        let (form, digits) = match text.strip_prefix(DigestForm::Second.prefix()) {
            Some(digits) => (DigestForm::Second, digits),
            None => (DigestForm::First, text),
        };
        of_hex(digits.as_bytes()).map(|sha256| Self { form, sha256 })
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.text(&mut [0; Self::TEXT_MAX]))
    }
}

impl JsonSchema for Digest {
    fn schema_name() -> Cow<'static, str> {
        "Digest".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "description": "SHA-256 as 64 hex digits, behind `2:`" })
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let form = "64 hex digits expected, or `2:` and 64 hex digits";
        Self::of_text(&text).ok_or_else(|| serde::de::Error::custom(form))
    }
}

/// SHA-256 of the bytes of a blob (VALUE-01): 64 lower-case hex digits as text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobHash(pub [u8; 32]);

impl fmt::Debug for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(hex(&self.0, &mut [0; 64]))
    }
}

impl BlobHash {
    /// Reads lower-case hex digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let is_lower = !text.bytes().any(|digit| digit.is_ascii_uppercase());
        of_hex(text.as_bytes()).filter(|_| is_lower).map(Self)
    }
}

/// Lower-case hex digits of a hash, written into `out`, which has room for 64.
fn hex<'a>(hash: &[u8; 32], out: &'a mut [u8]) -> &'a str {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for (pair, byte) in out.chunks_exact_mut(2).zip(hash) {
        pair[0] = HEX[usize::from(byte >> 4)];
        pair[1] = HEX[usize::from(byte & 15)];
    }
    core::str::from_utf8(out).unwrap_or("")
}

/// The hash of 64 hex digits of any case.
fn of_hex(text: &[u8]) -> Option<[u8; 32]> {
    if text.len() != 64 {
        return None;
    }
    let mut out = [0; 32];
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}
