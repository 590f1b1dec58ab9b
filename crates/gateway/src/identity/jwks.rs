//! The keys of an issuer of tokens, from a JWK set (RFC 7517) in a file.
//!
//! A key has one algorithm, which follows from the kind of the key and never from a token: so no
//! token can have a public key taken for a secret, or no key at all.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::{hmac, signature};
use serde::Deserialize;

use super::file::IdentityError;

/// The most keys: an issuer that changes its keys has two or three.
const KEYS_MAX: usize = 64;
/// The fewest bytes of a shared secret: as many as the digest has, as RFC 7518 demands.
const SECRET_BYTES_MIN: usize = 32;
/// The fewest bytes of an RSA modulus, 2048 bits: the library verifies with none that is shorter.
const MODULUS_BYTES_MIN: usize = 256;
/// The length of a coordinate on P-256 and of an Ed25519 key.
const COORDINATE_BYTES: usize = 32;

/// How tokens are signed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum SignatureKind {
    #[serde(rename = "HS256")]
    Hs256,
    #[serde(rename = "RS256")]
    Rs256,
    #[serde(rename = "ES256")]
    Es256,
    #[serde(rename = "EdDSA", alias = "Ed25519")]
    EdDsa,
}

/// A key that verifies signatures of one kind.
pub(super) struct IssuerKey {
    id: Option<String>,
    material: KeyMaterial,
}

enum KeyMaterial {
    Secret(hmac::Key),
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl fmt::Debug for IssuerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuerKey").field("id", &self.id).field("kind", &self.kind()).finish()
    }
}

impl IssuerKey {
    /// The one kind of signature that this key verifies.
    pub(super) const fn kind(&self) -> SignatureKind {
        match self.material {
            KeyMaterial::Secret(_) => SignatureKind::Hs256,
            KeyMaterial::Rsa { .. } => SignatureKind::Rs256,
            KeyMaterial::P256(_) => SignatureKind::Es256,
            KeyMaterial::Ed25519(_) => SignatureKind::EdDsa,
        }
    }

    /// Whether `signature` is that of the key's owner below `message`.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let with = |algorithm: &'static dyn signature::VerificationAlgorithm, key: &[u8]| {
            signature::UnparsedPublicKey::new(algorithm, key).verify(message, signature)
        };
        let verified = match &self.material {
            KeyMaterial::Secret(key) => hmac::verify(key, message, signature),
            KeyMaterial::Rsa { n, e } => signature::RsaPublicKeyComponents { n, e }.verify(
                &signature::RSA_PKCS1_2048_8192_SHA256,
                message,
                signature,
            ),
            KeyMaterial::P256(key) => with(&signature::ECDSA_P256_SHA256_FIXED, key),
            KeyMaterial::Ed25519(key) => with(&signature::ED25519, key),
        };
        verified.is_ok()
    }
}

/// The keys of the set that verify signatures here.
#[derive(Debug)]
pub(super) struct IssuerKeys(Vec<IssuerKey>);

impl IssuerKeys {
    pub(super) fn read(set: JwkSet) -> Result<Self, IdentityError> {
        if set.keys.len() > KEYS_MAX {
            let why = format!("there are {} keys; at most {KEYS_MAX}", set.keys.len());
            return Err(IdentityError::entry("keys", why));
        }
        let mut keys: Vec<IssuerKey> = Vec::new();
        for (i, jwk) in set.keys.into_iter().enumerate() {
            let at = format!("keys[{i}]");
            let Some(kind) = jwk.signs_as() else {
                tracing::info!(key = i, "a key of the issuer is for something else and not used");
                continue;
            };
            let key = jwk.key(kind).map_err(|why| IdentityError::entry(&at, why))?;
            if keys.iter().any(|other| other.id == key.id && other.kind() == kind) {
                return Err(IdentityError::entry(at, "another key has the same kid"));
            }
            keys.push(key);
        }
        if keys.is_empty() {
            return Err(IdentityError::entry(
                "keys",
                "no key verifies HS256, RS256, ES256 or EdDSA",
            ));
        }
        Ok(Self(keys))
    }

    /// The key that a token names; for a token that names none, the only key of its kind.
    pub(super) fn find(&self, kind: SignatureKind, id: Option<&str>) -> Option<&IssuerKey> {
        let mut fitting = self
            .0
            .iter()
            .filter(|key| key.kind() == kind && (id.is_none() || key.id.as_deref() == id));
        let found = fitting.next()?;
        fitting.next().is_none().then_some(found)
    }
}

/// A JWK set as it is written.
#[derive(Deserialize)]
pub(super) struct JwkSet {
    keys: Vec<Jwk>,
}

/// A key as it is written. Fields that are not here do not matter for signatures.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    r#use: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    k: Option<String>,
}

impl Jwk {
    /// The kind of signature for which this key is; `None` if it is for none that is used here.
    fn signs_as(&self) -> Option<SignatureKind> {
        let (kind, names): (_, &[&str]) = match (self.kty.as_str(), self.crv.as_deref()) {
            ("oct", _) => (SignatureKind::Hs256, &["HS256"]),
            ("RSA", _) => (SignatureKind::Rs256, &["RS256"]),
            ("EC", Some("P-256")) => (SignatureKind::Es256, &["ES256"]),
            ("OKP", Some("Ed25519")) => (SignatureKind::EdDsa, &["EdDSA", "Ed25519"]),
            _ => return None,
        };
        let is_meant = self.alg.as_deref().is_none_or(|alg| names.contains(&alg))
            && self.r#use.as_deref().is_none_or(|of| of == "sig")
            && self.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        is_meant.then_some(kind)
    }

    fn key(self, kind: SignatureKind) -> Result<IssuerKey, String> {
        let material = match kind {
            SignatureKind::Hs256 => {
                let secret = bytes("k", self.k.as_deref())?;
                at_least(&secret, SECRET_BYTES_MIN, "the secret k")?;
                KeyMaterial::Secret(hmac::Key::new(hmac::HMAC_SHA256, &secret))
            }
            SignatureKind::Rs256 => {
                let [n, e] = [number("n", self.n.as_deref())?, number("e", self.e.as_deref())?];
                at_least(&n, MODULUS_BYTES_MIN, "the modulus n")?;
                KeyMaterial::Rsa { n, e }
            }
            SignatureKind::Es256 => {
                let [x, y] = [coordinate("x", self.x)?, coordinate("y", self.y)?];
                KeyMaterial::P256([vec![4], x, y].concat()) // 4: a point that is not compressed.
            }
            SignatureKind::EdDsa => KeyMaterial::Ed25519(coordinate("x", self.x)?),
        };
        Ok(IssuerKey { id: self.kid, material })
    }
}

fn at_least(bytes: &[u8], min: usize, what: &str) -> Result<(), String> {
    if bytes.len() < min {
        return Err(format!("{what} has {} bytes; at least {min}", bytes.len()));
    }
    Ok(())
}

fn bytes(field: &str, text: Option<&str>) -> Result<Vec<u8>, String> {
    let text = text.ok_or_else(|| format!("{field} is missing"))?;
    URL_SAFE_NO_PAD.decode(text).map_err(|_| format!("{field} is not base64url"))
}

/// A number without leading zeros, as the library wants it.
fn number(field: &str, text: Option<&str>) -> Result<Vec<u8>, String> {
    let mut bytes = bytes(field, text)?;
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.drain(..zeros);
    if bytes.is_empty() { Err(format!("{field} is 0")) } else { Ok(bytes) }
}

fn coordinate(field: &str, text: Option<String>) -> Result<Vec<u8>, String> {
    let bytes = bytes(field, text.as_deref())?;
    if bytes.len() != COORDINATE_BYTES {
        return Err(format!("{field} has {} bytes and not {COORDINATE_BYTES}", bytes.len()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn read(keys: Json) -> Result<IssuerKeys, IdentityError> {
        IssuerKeys::read(serde_json::from_value(json!({ "keys": keys })).unwrap())
    }

    fn secret(bytes: usize) -> String {
        URL_SAFE_NO_PAD.encode(vec![7; bytes])
    }

    #[test]
    fn a_key_has_one_kind_whatever_a_token_says() {
        let point = secret(COORDINATE_BYTES);
        let keys = read(json!([
            { "kty": "oct", "kid": "a", "k": secret(32) },
            { "kty": "EC", "kid": "b", "crv": "P-256", "x": point, "y": point },
            { "kty": "OKP", "kid": "c", "crv": "Ed25519", "x": point },
            { "kty": "RSA", "kid": "d", "n": secret(256), "e": "AQAB" },
        ]))
        .unwrap();
        let kinds = [
            SignatureKind::Hs256,
            SignatureKind::Es256,
            SignatureKind::EdDsa,
            SignatureKind::Rs256,
        ];
        for (its, kid) in kinds.into_iter().zip(["a", "b", "c", "d"]) {
            for asked in kinds {
                assert_eq!(keys.find(asked, Some(kid)).is_some(), asked == its, "{kid} {asked:?}");
            }
            assert!(keys.find(its, None).is_some(), "it is the only one of its kind");
        }
        assert!(keys.find(SignatureKind::Hs256, Some("z")).is_none());
    }

    #[test]
    fn a_token_without_a_kid_is_not_tried_with_several_keys() {
        let keys = read(json!([
            { "kty": "oct", "kid": "a", "k": secret(32) },
            { "kty": "oct", "kid": "b", "k": secret(33) },
        ]))
        .unwrap();
        assert!(keys.find(SignatureKind::Hs256, None).is_none());
        assert!(keys.find(SignatureKind::Hs256, Some("b")).is_some());
    }

    #[test]
    fn keys_for_other_purposes_are_left_out() {
        let good = json!({ "kty": "oct", "kid": "good", "k": secret(32) });
        for other in [
            json!({ "kty": "RSA", "use": "enc", "n": secret(256), "e": "AQAB" }),
            json!({ "kty": "RSA", "alg": "RS512", "n": secret(256), "e": "AQAB" }),
            json!({ "kty": "oct", "alg": "none", "k": secret(32) }),
            json!({ "kty": "EC", "crv": "P-384", "x": "", "y": "" }),
            json!({ "kty": "oct", "key_ops": ["encrypt"], "k": secret(32) }),
        ] {
            assert_eq!(read(json!([other, good])).unwrap().0.len(), 1, "{other}");
            assert!(read(json!([other])).is_err(), "no key is left: {other}");
        }
    }

    #[test]
    fn short_and_broken_keys_are_refused() {
        for bad in [
            json!({ "kty": "oct", "k": secret(31) }),
            json!({ "kty": "oct", "k": "not base64url!" }),
            json!({ "kty": "oct" }),
            json!({ "kty": "RSA", "n": secret(255), "e": "AQAB" }),
            json!({ "kty": "RSA", "n": secret(256), "e": "AAAA" }),
            json!({ "kty": "OKP", "crv": "Ed25519", "x": secret(31) }),
        ] {
            assert!(read(json!([bad])).is_err(), "{bad}");
        }
        let twice = json!({ "kty": "oct", "kid": "a", "k": secret(32) });
        assert!(read(json!([twice, twice])).is_err());
        let key = |i: usize| json!({ "kty": "oct", "kid": i.to_string(), "k": secret(32) });
        assert!(read((0..KEYS_MAX).map(key).collect()).is_ok());
        assert!(read((0..=KEYS_MAX).map(key).collect()).is_err());
    }

    #[test]
    fn no_key_is_shown() {
        let keys = read(json!([{ "kty": "oct", "kid": "a", "k": secret(32) }])).unwrap();
        assert_eq!(
            format!("{keys:?}"),
            r#"IssuerKeys([IssuerKey { id: Some("a"), kind: Hs256 }])"#
        );
    }
}
