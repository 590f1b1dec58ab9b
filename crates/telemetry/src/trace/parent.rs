//! W3C `traceparent`: the span of whoever made a Task.

use opentelemetry::trace::{SpanId, TraceId};

/// A span elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent {
    /// Its trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
    /// Whether its trace is kept.
    pub is_sampled: bool,
}

/// Characters of version 00; later versions may say more behind them.
const LENGTH: usize = 55;

impl Parent {
    /// Reads a `traceparent`; none if it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let is_known = bytes.starts_with(b"00-");
        let fits = bytes.len() == LENGTH || !is_known && bytes.get(LENGTH) == Some(&b'-');
        if !fits || !text.is_ascii() || !text.starts_with(|c: char| c.is_ascii_hexdigit()) {
            return None;
        }
        let mut parts = text[..LENGTH].split('-');
        let version = part(parts.next()?, 2)?;
        let trace = TraceId::from_hex(part(parts.next()?, 32)?).ok()?;
        let span = SpanId::from_hex(part(parts.next()?, 16)?).ok()?;
        let flags = u8::from_str_radix(part(parts.next()?, 2)?, 16).ok()?;
        let is_valid = version != "ff" && trace != TraceId::INVALID && span != SpanId::INVALID;
        is_valid.then_some(Self { trace, span, is_sampled: flags & 1 == 1 })
    }
}

/// Hexadecimal in small letters, of a length.
fn part(text: &str, length: usize) -> Option<&str> {
    let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (text.len() == length && is_hex).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read() {
        let parent = Parent::parse(GOOD).unwrap();
        assert_eq!(parent.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parent.span.to_string(), "00f067aa0ba902b7");
        assert!(parent.is_sampled);
        assert!(!Parent::parse(&GOOD.replace("-01", "-00")).unwrap().is_sampled);
        assert!(Parent::parse(&format!("{}-more", GOOD.replace("00-4b", "01-4b"))).is_some());
    }

    #[test]
    fn what_is_not_a_traceparent_is_nothing() {
        let zeros = "0".repeat(32);
        for bad in [
            String::new(),
            "x".repeat(LENGTH),
            "ä".repeat(LENGTH / 2) + "x",
            GOOD[1..].into(),
            format!("{GOOD}-more"),
            GOOD.replace("00-4b", "ff-4b"),
            GOOD.replace("4bf92f", "4BF92F"),
            GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &zeros),
            GOOD.replace("00f067aa0ba902b7", &zeros[..16]),
            GOOD.replace("-01", "-0x"),
        ] {
            assert_eq!(Parent::parse(&bad), None, "{bad}");
        }
    }
}
