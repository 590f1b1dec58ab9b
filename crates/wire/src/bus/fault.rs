//! Why there is no connection to a server of NATS, in kind and in words.

use std::error::Error;
use std::io;
use std::iter::successors;

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing answers there; that may pass.
    Away,
    /// This login is not accepted there.
    Denied,
    /// The address, a certificate or a credentials file is wrong, or the two sides disagree on TLS.
    Settings,
}

/// Whether the two sides disagree on TLS: the client does not trust the server's certificate, or
/// the server has none. The client library reports this as a read error with invalid data.
pub fn is_of_tls(error: &(dyn Error + 'static)) -> bool {
    causes(error)
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::InvalidData)
}

/// The error with all its causes in one line. A cause that the text has already is left out, and so
/// is the library's bare kind of the error where a cause says more.
pub fn why(error: &(dyn Error + 'static)) -> String {
    let mut said = error.to_string();
    for cause in causes(error).map(ToString::to_string) {
        if !said.contains(&cause) {
            said.push_str(": ");
            said.push_str(&cause);
        }
    }
    match said.strip_prefix("IO error: ") {
        Some(cause) => cause.to_owned(),
        None => said,
    }
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(error.source(), |&error| error.source())
}

/// Refuses a file of certificates that cannot be read, or has none in it. The client library looks
/// at the file only where the server asks for TLS.
///
/// # Errors
/// The error names what is wrong, and not the file.
pub fn check_certificates(pem: io::Result<Vec<u8>>) -> io::Result<()> {
    const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
    match pem?.windows(BEGIN.len()).any(|part| part == BEGIN) {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "it has no certificate in PEM")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{says}")]
    struct Outer {
        says: &'static str,
        source: io::Error,
    }

    fn outer(says: &'static str, source: io::Error) -> Outer {
        Outer { says, source }
    }

    #[test]
    fn a_fault_is_told_with_its_causes_and_once() {
        let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, "nobody is there");
        assert_eq!(why(&outer("IO error: nobody is there", refused())), "nobody is there");
        assert_eq!(why(&outer("DNS error", refused())), "DNS error: nobody is there");
        assert!(!is_of_tls(&outer("", refused())));
        let unknown = io::Error::new(io::ErrorKind::InvalidData, "UnknownIssuer");
        assert!(is_of_tls(&outer("IO error", unknown)));
    }

    #[test]
    fn a_file_of_certificates_has_some() {
        assert!(check_certificates(Ok(b"x\n-----BEGIN CERTIFICATE-----\n".to_vec())).is_ok());
        assert!(check_certificates(Ok(b"no certificate".to_vec())).is_err());
        assert!(check_certificates(Err(io::Error::from(io::ErrorKind::NotFound))).is_err());
    }
}
