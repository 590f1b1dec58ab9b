//! Reads files in TOML and JSON. An error names the line and what is expected there, and quotes nothing, as a file of
//! settings may hold a password.

use serde::de::DeserializeOwned;

/// Reads TOML.
///
/// # Errors
/// The line, and what is wrong with it.
pub fn read_toml<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = 1 + before.matches('\n').count();
        format!("line {line}: {}", without_value(error.message()))
    })
}

/// Reads JSON.
///
/// # Errors
/// The line, and what is wrong with it.
pub fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| {
        let said = error.to_string();
        let why = said.rsplit_once(" at line ").map_or(said.as_str(), |(why, _)| why);
        format!("line {}: {}", error.line(), without_value(why))
    })
}

/// A message without the value that is wrong.
fn without_value(message: &str) -> String {
    if !message.starts_with("invalid ") {
        return message.to_owned(); // The rest of the message names a field, or what the notation lacks.
    }
    match message.rsplit_once(", expected ") {
        Some((_, expected)) => format!("this is not what is expected: {expected}"),
        None => "the notation is wrong, or this is not the value that is expected here".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[allow(dead_code)]
        journal_password: Option<String>,
        #[allow(dead_code)]
        partitions: Option<u32>,
    }

    /// A secret in a line that is wrong is not shown, whatever is wrong with the line.
    #[test]
    fn an_error_quotes_no_line() {
        for (text, line, says) in [
            ("\njournal_password = 5353535353", 2, "expected"),
            ("journal_password = [\"5353535353\"]", 1, "expected"),
            ("partitions = \"5353535353\"", 1, "expected"),
            ("journal_password = \"5353535353", 1, ""),
            ("journal_password = '5353535353' x", 1, ""),
            ("journal_password = 5353535353-a", 1, ""),
            ("journal_pasword = \"5353535353\"", 1, "journal_pasword"),
            ("journal_password = \"5353535353\"\njournal_password = \"5353535353\"", 2, ""),
        ] {
            let said = read_toml::<Sample>(text).unwrap_err();
            assert!(
                said.starts_with(&format!("line {line}: ")) && said.contains(says),
                "{text}: {said}"
            );
            assert!(!said.contains("5353535353"), "{said}");
        }
        assert!(read_toml::<Sample>("partitions = 8").is_ok());
        for (text, line, says) in [
            ("{\n\"journal_password\": 5353535353}", 2, "expected: a string"),
            ("{\"partitions\": \"5353535353\"}", 1, "expected: u32"),
            ("{\"journal_password\": \"5353535353", 1, "EOF while parsing a string"),
            ("{\"journal_password\": \"5353535353\\x\"}", 1, "the notation is wrong"),
            ("{\"journal_pasword\": \"5353535353\"}", 1, "journal_pasword"),
        ] {
            let said = read_json::<Sample>(text.as_bytes()).unwrap_err();
            let place = format!("line {line}: ");
            assert!(said.starts_with(&place) && said.contains(says), "{text}: {said}");
            assert!(!said.contains("5353535353"), "{said}");
        }
    }
}
