//! Client certificates: the names in one, and whom they stand for.
//!
//! TLS has verified a certificate before it comes here: its form, its signatures up to an authority
//! that the operator named, and its times. What is left is to read its names, for which a few lines of
//! DER suffice.

use std::collections::HashMap;

use super::Identity;
use super::authenticator::LoginRefused;
use super::file::{CertificateEntry, IdentityError};

/// The most names of a certificate that are looked at.
const NAMES_MAX: usize = 64;
/// The longest name that is looked at, in bytes: longer than the name of a host, or a SPIFFE id, may be.
const NAME_BYTES_MAX: usize = 2_048;
/// The most entries: each has a name of its own.
const ENTRIES_MAX: usize = 10_000;

/// What a name in the file begins with, and so what kind of name it is.
const KINDS: [&str; 4] = ["dns:", "uri:", "email:", "cn:"];

/// The names of a client certificate, each with its kind before it: `dns:`, `uri:` and `email:` for
/// those of its subject's alternative names, and `cn:` for the common name of its subject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateNames(Vec<String>);

/// Whom certificates stand for, by their names.
#[derive(Debug, Default)]
pub(super) struct CertificateMap(HashMap<String, Identity>);

impl CertificateMap {
    pub(super) fn read(entries: &[CertificateEntry]) -> Result<Self, IdentityError> {
        if entries.len() > ENTRIES_MAX {
            let why = format!("there are {} entries; at most {ENTRIES_MAX}", entries.len());
            return Err(IdentityError::entry("certificates", why));
        }
        let mut known = HashMap::with_capacity(entries.len());
        for (i, entry) in entries.iter().enumerate() {
            let at = format!("certificates[{i}]");
            if !KINDS
                .iter()
                .any(|kind| entry.name.len() > kind.len() && entry.name.starts_with(kind))
            {
                let why = "name is none of dns:…, uri:…, email:… and cn:…";
                return Err(IdentityError::entry(at, why));
            }
            let identity = entry.identity(&at)?;
            if known.insert(comparable(&entry.name), identity).is_some() {
                return Err(IdentityError::entry(at, "another entry has the same name"));
            }
        }
        Ok(Self(known))
    }

    /// The one caller for whom the names stand.
    pub(super) fn find(&self, names: &CertificateNames) -> Result<Identity, LoginRefused> {
        let mut found = names.0.iter().filter_map(|name| self.0.get(name));
        let first = found.next().ok_or(LoginRefused::Invalid)?;
        if found.any(|other| other != first) {
            let why = "the names of the certificate stand for different callers";
            return Err(LoginRefused::Claims(why.to_owned()));
        }
        Ok(first.clone())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A name in the form in which two names are compared: names of hosts do not depend on case.
fn comparable(name: &str) -> String {
    if name.starts_with("dns:") { name.to_ascii_lowercase() } else { name.to_owned() }
}

impl CertificateNames {
    /// The names of a certificate. One that is not understood has none.
    pub fn read(certificate: &[u8]) -> Self {
        let mut names = Vec::new();
        if let Some((subject, extensions)) = parts(certificate) {
            names.extend(alternative_names(extensions));
            names.extend(common_name(subject).map(|name| format!("cn:{name}")));
        }
        names.retain(|name| name.len() <= NAME_BYTES_MAX);
        names.truncate(NAMES_MAX);
        Self(names.iter().map(|name| comparable(name)).collect())
    }
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const OCTETS: u8 = 0x04;
const UTF8_TEXT: u8 = 0x0c;
const PRINTABLE_TEXT: u8 = 0x13;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const EMAIL_NAME: u8 = 0x81;
const DNS_NAME: u8 = 0x82;
const URI_NAME: u8 = 0x86;
/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 2.5.29.17
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

/// DER that is read from its front.
#[derive(Clone, Copy)]
struct Der<'a>(&'a [u8]);

impl<'a> Iterator for Der<'a> {
    type Item = (u8, &'a [u8]);

    /// The next tag and its content; `None` at the end, and where the bytes are no DER.
    fn next(&mut self) -> Option<Self::Item> {
        let (&[tag, first], mut rest) = self.0.split_first_chunk()?;
        let length = if first < 0x80 {
            usize::from(first)
        } else {
            let digits = rest.split_off(..usize::from(first & 0x7f))?;
            if digits.is_empty() || digits.len() > 3 {
                return None;
            }
            digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit))
        };
        let content = rest.split_off(..length)?;
        self.0 = rest;
        Some((tag, content))
    }
}

impl<'a> Der<'a> {
    /// The content of the next element, which has this tag.
    fn expect(&mut self, tag: u8) -> Option<Self> {
        let (found, content) = self.next()?;
        (found == tag).then_some(Self(content))
    }
}

/// The subject of a certificate, and its extensions.
fn parts(certificate: &[u8]) -> Option<(Der<'_>, Der<'_>)> {
    let mut fields = Der(certificate).expect(SEQUENCE)?.expect(SEQUENCE)?;
    let (first, _) = fields.next()?;
    if first == VERSION {
        fields.next()?; // The serial number comes first where there is no version.
    }
    fields.expect(SEQUENCE)?; // The algorithm of the signature.
    fields.expect(SEQUENCE)?; // The issuer.
    fields.expect(SEQUENCE)?; // The times.
    let subject = fields.expect(SEQUENCE)?;
    fields.expect(SEQUENCE)?; // The public key.
    let extensions = fields.find(|(tag, _)| *tag == EXTENSIONS);
    let extensions = extensions.and_then(|(_, content)| Der(content).expect(SEQUENCE));
    Some((subject, extensions.unwrap_or(Der(&[]))))
}

/// The last common name of a subject: the most specific one, as its parts go from large to small.
fn common_name(subject: Der<'_>) -> Option<String> {
    let parts = subject.filter(|(tag, _)| *tag == SET).flat_map(|(_, set)| Der(set));
    parts.filter_map(|(_, pair)| common_name_in(Der(pair))).last()
}

fn common_name_in(mut pair: Der<'_>) -> Option<String> {
    let Der(kind) = pair.expect(OBJECT_ID)?;
    let (tag, value) = pair.next()?;
    let is_name = kind == COMMON_NAME && matches!(tag, UTF8_TEXT | PRINTABLE_TEXT);
    is_name.then(|| String::from_utf8(value.to_vec()).ok()).flatten()
}

fn alternative_names(extensions: Der<'_>) -> impl Iterator<Item = String> {
    let found = extensions.filter_map(|(_, content)| extension(Der(content)));
    let of_subject = found.filter(|(kind, _)| *kind == ALTERNATIVE_NAMES);
    let names = of_subject.filter_map(|(_, content)| Der(content).expect(SEQUENCE));
    names.flatten().filter_map(|(tag, content)| {
        let kind = match tag {
            DNS_NAME => "dns",
            URI_NAME => "uri",
            EMAIL_NAME => "email",
            _ => return None,
        };
        let name = std::str::from_utf8(content).ok()?;
        Some(format!("{kind}:{name}"))
    })
}

/// The kind of an extension and its content, without whether it is critical.
fn extension(mut fields: Der<'_>) -> Option<(&[u8], &[u8])> {
    let Der(kind) = fields.expect(OBJECT_ID)?;
    let (_, content) = fields.find(|(tag, _)| *tag == OCTETS)?;
    Some((kind, content))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn entry(name: &str, principal: &str) -> CertificateEntry {
        let json = serde_json::json!({
            "name": name, "principal": principal, "role": "worker", "pools": ["build"]
        });
        serde_json::from_value(json).unwrap()
    }

    fn names(of: &[&str]) -> CertificateNames {
        CertificateNames(of.iter().map(|name| (*name).to_owned()).collect())
    }

    /// A certificate with names of every kind, as bytes.
    fn certificate() -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["Worker-1.example.org".to_owned()]).unwrap();
        let spiffe = "spiffe://example.org/worker".try_into().unwrap();
        params.subject_alt_names.push(SanType::URI(spiffe));
        let mail = "ops@example.org".try_into().unwrap();
        params.subject_alt_names.push(SanType::Rfc822Name(mail));
        params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        params.distinguished_name.push(DnType::OrganizationName, "Example");
        params.distinguished_name.push(DnType::CommonName, "worker one");
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn every_kind_of_name_is_read() {
        let expected = [
            "dns:worker-1.example.org",
            "uri:spiffe://example.org/worker",
            "email:ops@example.org",
            "cn:worker one",
        ];
        assert_eq!(CertificateNames::read(&certificate()), names(&expected));
    }

    #[test]
    fn a_certificate_that_is_cut_off_or_changed_has_names_or_none_and_nothing_breaks() {
        let whole = certificate();
        for length in 0..whole.len() {
            assert_eq!(CertificateNames::read(&whole[..length]), CertificateNames::default());
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            let _ = CertificateNames::read(&changed);
        }
        let _ = CertificateNames::read(&[SEQUENCE, 0xff]);
        let _ = CertificateNames::read(&[SEQUENCE, 0x83, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn a_name_stands_for_its_caller_alone() {
        let map = CertificateMap::read(&[
            entry("dns:A.example.org", "a"),
            entry("uri:spiffe://example.org/b", "b"),
            entry("cn:a", "c"),
        ])
        .unwrap();
        let find = |of: &[&str]| map.find(&names(of)).map(|who| who.principal.to_string());
        assert_eq!(find(&["dns:x", "dns:a.example.org"]), Ok("a".to_owned()));
        assert_eq!(find(&["cn:a"]), Ok("c".to_owned()));
        for nobody in [&[][..], &["dns:a"], &["uri:a.example.org"], &["cn:A"], &["email:a"]] {
            assert_eq!(find(nobody), Err(LoginRefused::Invalid), "{nobody:?}");
        }
        let two = find(&["dns:a.example.org", "uri:spiffe://example.org/b"]);
        assert!(matches!(two, Err(LoginRefused::Claims(_))), "{two:?}");
    }

    #[test]
    fn an_entry_without_a_kind_or_with_a_known_name_is_refused() {
        for bad in ["", "a.example.org", "ip:127.0.0.1", "dns:", "DNS:a"] {
            assert!(CertificateMap::read(&[entry(bad, "a")]).is_err(), "{bad:?}");
        }
        let twice = [entry("dns:a", "a"), entry("dns:A", "b")];
        assert!(CertificateMap::read(&twice).is_err());
    }
}
