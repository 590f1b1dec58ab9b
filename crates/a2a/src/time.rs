//! Times as A2A writes them: ISO 8601 in UTC with milliseconds, and in headers as HTTP has them.

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use tenure_core::id::Millis;

/// A time as text, such as `2026-03-12T08:30:00.250Z`.
pub fn to_timestamp(at: Millis) -> String {
    let time = Timestamp::from_millisecond(at).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}

/// The time in a text, if it is one.
pub fn from_timestamp(text: &str) -> Option<Millis> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

/// A time as headers of HTTP have it, such as `Thu, 12 Mar 2026 08:30:00 GMT`; none: no header can say it.
pub fn to_http_date(at: Millis) -> Option<String> {
    let time = Timestamp::from_millisecond(at).ok()?;
    DateTimePrinter::new().timestamp_to_rfc9110_string(&time).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds_and_a_z() {
        for (at, text) in
            [(0, "1970-01-01T00:00:00.000Z"), (1_773_304_200_250, "2026-03-12T08:30:00.250Z")]
        {
            assert_eq!(to_timestamp(at), text);
            assert_eq!(from_timestamp(text), Some(at));
        }
        assert_eq!(from_timestamp("2026-03-12T09:30:00.25+01:00"), Some(1_773_304_200_250));
        assert_eq!(from_timestamp("yesterday"), None);
    }

    #[test]
    fn headers_have_the_date_of_http() {
        let date = to_http_date(1_773_304_200_250);
        assert_eq!(date.as_deref(), Some("Thu, 12 Mar 2026 08:30:00 GMT"));
        assert_eq!(to_http_date(Millis::MIN), None);
    }
}
