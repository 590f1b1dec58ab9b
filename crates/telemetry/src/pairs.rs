//! Looks at lists of `name=value`, as OpenTelemetry's variables have them, for entries that its exporters leave out.

/// What is wrong with a list of headers, if anything is. Never names a value: it may be a secret.
pub(crate) fn bad_header(all: &str) -> Option<String> {
    entries(all).find_map(|(number, entry)| {
        let Some((name, value)) = entry.split_once('=') else {
            return Some(format!("entry {number} is no name=value, so it is not sent"));
        };
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() || !name.chars().all(is_token) {
            return Some(format!(
                "the name of entry {number} is no name of a header, so it is not sent"
            ));
        }
        let is_shown = |value: Vec<u8>| value.iter().all(|byte| matches!(byte, b'\t' | 32..=126));
        let is_right = !value.is_empty() && decoded(value).is_some_and(is_shown);
        (!is_right).then(|| {
            format!(
                "the value of {name} is no value of a header, percent-encoded, so it is not sent"
            )
        })
    })
}

/// The same of a list of attributes, which are no secret.
pub(crate) fn bad_attribute(all: &str) -> Option<String> {
    entries(all).find_map(|(number, entry)| match entry.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() && decoded(value.trim()).is_some() => None,
        Some(_) => {
            Some(format!("entry {number}, {entry:?}, is not percent-encoded, or has no name"))
        }
        None => Some(format!("entry {number}, {entry:?}, is no name=value, so it is left out")),
    })
}

/// The entries that there are, with their numbers from 1.
fn entries(all: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(all.split(',').map(str::trim)).filter(|(_, entry)| !entry.is_empty())
}

/// A letter of the name of a header.
fn is_token(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(letter)
}

/// The bytes that a percent-encoded text stands for.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut out) = (text.bytes(), Vec::new());
    while let Some(byte) = bytes.next() {
        let decoded = match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            other => other,
        };
        out.push(decoded);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_are_sent_are_right() {
        for right in ["a=b", " a = b , c=d%20e%2C,", "authorization=Basic%20YTpi", "x=a=b"] {
            assert_eq!(bad_header(right), None, "{right}");
        }
        for (wrong, part) in [
            ("a=b,c", "entry 2 is no name=value"),
            ("a b=c", "the name of entry 1"),
            ("=c", "the name of entry 1"),
            ("a=", "the value of a"),
            ("a=%zz", "the value of a"),
            ("a=%0a", "the value of a"),
            ("a=%F", "the value of a"),
            ("a=\u{e4}", "the value of a"),
        ] {
            let said = bad_header(wrong).unwrap();
            assert!(said.contains(part), "{wrong}: {said}");
        }
    }

    #[test]
    fn attributes_are_pairs() {
        for right in ["a=b", "a=,b=c", "a=%C3%A4", ""] {
            assert_eq!(bad_attribute(right), None, "{right}");
        }
        assert!(bad_attribute("a=b,team").unwrap().contains("entry 2, \"team\""));
        assert!(bad_attribute("a=%").unwrap().contains("entry 1"));
    }
}
