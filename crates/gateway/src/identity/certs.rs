//! Client certificates: the names in one, whom they stand for, and how long it is valid.
//!
//! TLS has verified a certificate before it comes here: its form, its signatures up to an authority
//! that the operator named, and its times. A connection may be open for longer than its certificate is valid,
//! so what is left is to read when it ends, and its names, for which a few lines of DER suffice.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// What is known of a client certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Its names.
    pub(super) names: CertificateNames,
    /// The last moment in which it is valid.
    pub(super) until: SystemTime,
}

/// The names of a client certificate, each with its kind before it: `dns:`, `uri:` and `email:` for
/// those of its subject's alternative names, and `cn:` for the common name of its subject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CertificateNames(Vec<String>);

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

impl ClientCertificate {
    /// Reads a certificate. One that is not understood has no names, and is not valid any more.
    pub fn read(certificate: &[u8]) -> Self {
        match CertificateParts::of(certificate) {
            Some(parts) => Self {
                until: last_moment(parts.times).unwrap_or(UNIX_EPOCH),
                names: CertificateNames::of(parts.subject, parts.extensions),
            },
            None => Self { until: UNIX_EPOCH, names: CertificateNames::default() },
        }
    }
}

impl CertificateNames {
    fn of(subject: Der<'_>, extensions: Der<'_>) -> Self {
        let mut names: Vec<String> = alternative_names(extensions).collect();
        names.extend(common_name(subject).map(|name| format!("cn:{name}")));
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
const SHORT_TIME: u8 = 0x17;
const LONG_TIME: u8 = 0x18;
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

/// The parts of a certificate that are read.
struct CertificateParts<'a> {
    times: Der<'a>,
    subject: Der<'a>,
    extensions: Der<'a>,
}

impl<'a> CertificateParts<'a> {
    fn of(certificate: &'a [u8]) -> Option<Self> {
        let mut fields = Der(certificate).expect(SEQUENCE)?.expect(SEQUENCE)?;
        let (first, _) = fields.next()?;
        if first == VERSION {
            fields.next()?; // The serial number comes first where there is no version.
        }
        fields.expect(SEQUENCE)?; // The algorithm of the signature.
        fields.expect(SEQUENCE)?; // The issuer.
        let times = fields.expect(SEQUENCE)?;
        let subject = fields.expect(SEQUENCE)?;
        fields.expect(SEQUENCE)?; // The public key.
        let extensions = fields.find(|(tag, _)| *tag == EXTENSIONS);
        let extensions = extensions.and_then(|(_, content)| Der(content).expect(SEQUENCE));
        Some(Self { times, subject, extensions: extensions.unwrap_or(Der(&[])) })
    }
}

/// The second of the two times between which a certificate is valid.
fn last_moment(mut times: Der<'_>) -> Option<SystemTime> {
    times.next()?;
    let (tag, text) = times.next()?;
    let (century, text) = match tag {
        LONG_TIME => (number(text.get(..2)?)?, text.get(2..)?),
        // RFC 5280, 4.1.2.5.1: two digits mean a year from 1950 to 2049.
        SHORT_TIME => (if number(text.get(..2)?)? < 50 { 20 } else { 19 }, text),
        _ => return None,
    };
    let text = text.strip_suffix(b"Z").filter(|text| text.len() == 12)?;
    let (pairs, _) = text.as_chunks::<2>();
    let mut pairs = pairs.iter().map(|pair| number(pair));
    let mut next = || pairs.next().flatten();
    let (year, month, day) = (100 * century + next()?, next()?, next()?);
    let (hour, minute, second) = (next()?, next()?, next()?);
    let days = days_since_1970(year, month, day)?;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    Some(UNIX_EPOCH + Duration::from_secs(seconds))
}

/// A number of decimal digits.
fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |number, digit| {
        digit.is_ascii_digit().then(|| 10 * number + u64::from(digit - b'0'))
    })
}

/// How many days lie between the first day of 1970 and this one; none if it is earlier, or no day.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years begin in March here, so that the day that not all of them have is their last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    let since_year_0 = 365 * year + leap_days + (153 * month + 2) / 5 + day - 1;
    since_year_0.checked_sub(719_468)
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

    fn names_in(certificate: &[u8]) -> CertificateNames {
        ClientCertificate::read(certificate).names
    }

    #[test]
    fn every_kind_of_name_is_read() {
        let expected = [
            "dns:worker-1.example.org",
            "uri:spiffe://example.org/worker",
            "email:ops@example.org",
            "cn:worker one",
        ];
        assert_eq!(names_in(&certificate()), names(&expected));
    }

    #[test]
    fn a_certificate_that_is_cut_off_or_changed_has_names_or_none_and_nothing_breaks() {
        let whole = certificate();
        for length in 0..whole.len() {
            let cut_off = ClientCertificate::read(&whole[..length]);
            assert_eq!((cut_off.names, cut_off.until), (CertificateNames::default(), UNIX_EPOCH));
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            let _ = ClientCertificate::read(&changed);
        }
        let _ = ClientCertificate::read(&[SEQUENCE, 0xff]);
        let _ = ClientCertificate::read(&[SEQUENCE, 0x83, 0xff, 0xff, 0xff]);
    }

    /// Certificates write times before 2050 with two digits for the year, and later ones with four.
    #[test]
    fn a_certificate_is_valid_until_the_second_that_it_names() {
        for ((year, month, day), seconds) in [
            ((1970, 1, 1), 0),
            ((2000, 2, 29), 951_782_400),
            ((2024, 2, 29), 1_709_164_800),
            ((2024, 12, 31), 1_735_603_200),
            ((2049, 12, 31), 2_524_521_600),
            ((2050, 1, 1), 2_524_608_000),
            ((2100, 3, 1), 4_107_542_400),
        ] {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            let within = Duration::from_secs(12 * 3_600 + 34 * 60 + 56);
            params.not_after = rcgen::date_time_ymd(year, month, day) + within;
            let signed = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            let until = ClientCertificate::read(signed.der()).until;
            let expected = UNIX_EPOCH + Duration::from_secs(seconds) + within;
            assert_eq!(until, expected, "{year}-{month}-{day}");
        }
    }

    #[test]
    fn a_time_of_another_form_has_passed() {
        let until = |tag: u8, text: &[u8]| {
            let one = [[tag, 13].as_slice(), b"260101000000Z"].concat();
            let other = [[tag, u8::try_from(text.len()).unwrap()].as_slice(), text].concat();
            last_moment(Der(&[one, other].concat()))
        };
        assert!(until(SHORT_TIME, b"260101000000Z").is_some());
        for bad in ["", "Z", "2601010000Z", "260101000000", "26010100000xZ", "261301000000Z"] {
            assert_eq!(until(SHORT_TIME, bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(until(LONG_TIME, b"260101000000Z"), None);
        assert_eq!(until(PRINTABLE_TEXT, b"260101000000Z"), None);
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
