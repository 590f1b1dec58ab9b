//! Which sessions a worker serves (DISP-20): names of sessions in which `*` stands for any text.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smol_str::SmolStr;

use crate::id::{BadId, HandlerName, NAME_MAX, SessionId};

/// How many patterns a worker names at most.
pub const SESSION_PATTERNS_MAX: usize = 64;

/// The character that stands for any text in a pattern, also for none.
const ANY: u8 = b'*';

/// The name of a session, or a text with `*` that stands for the names of many.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionPattern(SmolStr);

impl SessionPattern {
    /// Checks the form.
    ///
    /// # Errors
    /// The text can stand for no session.
    pub fn new(text: impl AsRef<str>) -> Result<Self, BadId> {
        let text = text.as_ref();
        let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | ANY);
        if (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(is_plain) {
            return Ok(Self(text.into()));
        }
        let given: String = text.chars().take(80).collect();
        let expected = "1 to 128 characters a-z, 0-9, - or _, and * for any text";
        Err(BadId { what: "pattern of sessions", given, expected })
    }

    /// The pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pattern stands for this session.
    pub fn admits(&self, session: &SessionId) -> bool {
        self.matches(session.as_str())
    }

    /// Whether the pattern stands for every session for which `other` does. This may answer no where yes is right.
    fn includes(&self, other: &Self) -> bool {
        // A `*` of the other is a character that only a `*` of this one stands for.
        self.matches(&other.0)
    }

    /// Whether a text is of this form. The cost is at most the product of both lengths: a `*` is tried again
    /// only until the next one has been reached.
    fn matches(&self, text: &str) -> bool {
        let (pattern, text) = (self.0.as_bytes(), text.as_bytes());
        let (mut at, mut read) = (0, 0);
        let mut again: Option<(usize, usize)> = None;
        while read < text.len() {
            match pattern.get(at) {
                Some(&ANY) => {
                    again = Some((at + 1, read));
                    at += 1;
                }
                Some(&byte) if byte == text[read] => {
                    at += 1;
                    read += 1;
                }
                _ => {
                    let Some((behind, from)) = again else { return false };
                    again = Some((behind, from + 1));
                    (at, read) = (behind, from + 1);
                }
            }
        }
        pattern[at..].iter().all(|&byte| byte == ANY)
    }
}

impl fmt::Display for SessionPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SessionPattern {
    type Err = BadId;
    fn from_str(text: &str) -> Result<Self, BadId> {
        Self::new(text)
    }
}

impl Serialize for SessionPattern {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SessionPattern {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = SmolStr::deserialize(d)?;
        Self::new(text).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for SessionPattern {
    fn schema_name() -> Cow<'static, str> {
        "SessionPattern".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "1 to 128 characters a-z, 0-9, - or _, and * for any text",
            "pattern": "^[a-z0-9_*-]+$",
            "maxLength": NAME_MAX,
        })
    }
}

/// The sessions that a worker serves.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerSessions(Option<Arc<[SessionPattern]>>);

impl WorkerSessions {
    /// All sessions.
    pub const ALL: Self = Self(None);

    /// The sessions of these patterns, in whatever order they are and however often. `*` alone stands for all.
    ///
    /// # Errors
    /// There are no patterns, or too many.
    pub fn of(patterns: impl IntoIterator<Item = SessionPattern>) -> Result<Self, String> {
        let mut patterns: Vec<SessionPattern> = patterns.into_iter().collect();
        if patterns.is_empty() {
            return Err("a worker serves at least one session; leave the list out for all".into());
        }
        if patterns.len() > SESSION_PATTERNS_MAX {
            let count = patterns.len();
            return Err(format!("{count} patterns: a worker names at most {SESSION_PATTERNS_MAX}"));
        }
        if patterns.iter().any(|one| one.0.bytes().all(|byte| byte == ANY)) {
            return Ok(Self::ALL);
        }
        patterns.sort_unstable();
        patterns.dedup();
        Ok(Self(Some(patterns.into())))
    }

    /// Reads patterns with commas between them.
    ///
    /// # Errors
    /// One has another form, or there are none, or too many.
    pub fn read(text: &str) -> Result<Self, String> {
        let patterns = text.split(',').map(str::trim).filter(|one| !one.is_empty());
        let patterns: Result<Vec<_>, BadId> = patterns.map(SessionPattern::new).collect();
        Self::of(patterns.map_err(|bad| format!("{bad}"))?)
    }

    /// Whether these are all sessions.
    pub const fn is_all(&self) -> bool {
        self.0.is_none()
    }

    /// The patterns; none if these are all sessions.
    pub fn patterns(&self) -> Option<&[SessionPattern]> {
        self.0.as_deref()
    }

    /// DISP-20: whether a worker that serves these sessions may be given Steps and Runs of that one.
    pub fn admits(&self, session: &SessionId) -> bool {
        self.patterns().is_none_or(|patterns| patterns.iter().any(|one| one.admits(session)))
    }

    /// Whether every one of the other sessions is among these. This may answer no where yes is right: for each pattern
    /// there it looks for one pattern here that stands for at least as much.
    pub fn include(&self, others: &Self) -> bool {
        match (self.patterns(), others.patterns()) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(these), Some(others)) => {
                others.iter().all(|other| these.iter().any(|one| one.includes(other)))
            }
        }
    }
}

/// What a worker can and may run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Abilities {
    /// The handlers that it has; none: all (DISP-14).
    pub handlers: Option<Vec<HandlerName>>,
    /// The sessions that it serves (DISP-20).
    pub sessions: WorkerSessions,
}

impl From<Option<Vec<HandlerName>>> for Abilities {
    /// A worker of all sessions.
    fn from(handlers: Option<Vec<HandlerName>>) -> Self {
        Self { handlers, sessions: WorkerSessions::ALL }
    }
}

/// As [`WorkerSessions::read`] reads it.
impl fmt::Display for WorkerSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(patterns) = self.patterns() else { return f.write_str("*") };
        for (at, one) in patterns.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            f.write_str(one.as_str())?;
        }
        Ok(())
    }
}

impl FromStr for WorkerSessions {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(text)
    }
}

/// Stored as a list, which is `["*"]` for all.
impl Serialize for WorkerSessions {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.patterns() {
            Some(patterns) => patterns.serialize(s),
            None => ["*"].serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for WorkerSessions {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        match Option::<Vec<SessionPattern>>::deserialize(d)? {
            None => Ok(Self::ALL),
            Some(patterns) => Self::of(patterns).map_err(serde::de::Error::custom),
        }
    }
}

impl JsonSchema for WorkerSessions {
    fn schema_name() -> Cow<'static, str> {
        "WorkerSessions".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["array", "null"],
            "description": "The sessions that a worker serves; [\"*\"], or nothing: all",
            "items": generator.subschema_for::<SessionPattern>(),
            "minItems": 1,
            "maxItems": SESSION_PATTERNS_MAX,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use alloc::string::ToString as _;

    use super::*;

    fn admits(pattern: &str, session: &str) -> bool {
        SessionPattern::new(pattern).unwrap().admits(&session.parse().unwrap())
    }

    /// DISP-20: a `*` stands for any text, also for none; every other character stands for itself.
    #[test]
    fn a_pattern_admits_the_sessions_of_its_form() {
        for (pattern, session) in [
            ("main", "main"),
            ("*", "x"),
            ("ci-*", "ci-"),
            ("ci-*", "ci-12"),
            ("*-ci", "a-ci"),
            ("a*b*c", "abc"),
            ("a*b*c", "a-b-b-c"),
            ("**", "x"),
            ("a*a", "aaa"),
            ("*ab", "aab"),
        ] {
            assert!(admits(pattern, session), "{pattern} {session}");
        }
        for (pattern, session) in [
            ("main", "main2"),
            ("main", "mai"),
            ("ci-*", "ci"),
            ("ci-*", "xci-1"),
            ("*-ci", "a-ci2"),
            ("a*b*c", "acb"),
            ("a*a", "a"),
            ("ab*ba", "aba"),
        ] {
            assert!(!admits(pattern, session), "{pattern} {session}");
        }
        let long = "*a".repeat(64);
        assert!(!admits(&long, &"a".repeat(63)) && admits(&long, &"a".repeat(128)));
    }

    #[test]
    fn sessions_are_read_as_they_are_written() {
        let some = WorkerSessions::read("main, ci-*,main").unwrap();
        assert_eq!(some.to_string(), "ci-*,main");
        assert_eq!(WorkerSessions::read(&some.to_string()).unwrap(), some);
        assert_eq!(WorkerSessions::read("main,*").unwrap(), WorkerSessions::ALL);
        assert_eq!(WorkerSessions::ALL.to_string(), "*");
        assert!(some.admits(&"ci-1".parse().unwrap()) && !some.admits(&"other".parse().unwrap()));
        for wrong in ["", " , ", "Main", "a/b", "a.b", &"x".repeat(129)] {
            assert!(WorkerSessions::read(wrong).is_err(), "{wrong}");
        }
        let most = |count: usize| (0..count).map(|n| format!("s{n}")).collect::<Vec<_>>().join(",");
        assert!(WorkerSessions::read(&most(SESSION_PATTERNS_MAX)).is_ok());
        assert!(WorkerSessions::read(&most(SESSION_PATTERNS_MAX + 1)).is_err());
    }

    /// Who serves fewer sessions is no substitute for who serves more.
    #[test]
    fn sessions_include_others_that_they_admit() {
        let includes = |these: &str, others: &str| {
            WorkerSessions::read(these).unwrap().include(&WorkerSessions::read(others).unwrap())
        };
        for (these, others) in
            [("*", "a"), ("*", "*"), ("a*", "a"), ("a*", "ab*"), ("a,b", "a"), ("a*,b", "ac,b,a*")]
        {
            assert!(includes(these, others), "{these} {others}");
        }
        for (these, others) in [("a", "*"), ("ab*", "a*"), ("a", "a,b"), ("a", "a*")] {
            assert!(!includes(these, others), "{these} {others}");
        }
    }
}
