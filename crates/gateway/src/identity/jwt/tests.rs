//! Tokens as issuers make them, and as attackers do.

use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
};
use ring::{hmac, rand};
use serde_json::json;

use super::*;

/// The modulus of an RSA key of which nobody has the private part.
const RSA_MODULUS: &str = "\
    q99pY1Kd4zkOXVXZIw6GPPFGRuYaeuT3_H2zGt_Uqa0nShI5tzwlF3aK-\
    hpK28jIehtjkQOX8HD_RQ5Zjo7DQ_GwUdPR7TVhRyDw-nwMrAmfbqcYl_NGdWVmeGPyojMWJnf27WJ5ejEY7\
    cS33sHFSW_r-\
    t1JKtADJQDeiXGmKRl8ykMgzA2bta9qKNnq84NHJSmbwZq8JPLCqa6bzN2CfXdZCqsB2gpo1b15JzPQkcdcO\
    i4Nn9SpQrqT0pCaRWkPLVMLYXSNJ0vK_qIg3hcc5GeFZ6Rwsf-aJ06js3F628lkJU-\
    iIx-9rBzAVbUYsQ_8vSGfKS_kXtDPuac_zdsx1w";

/// A token that was signed with that key when it was made: of `alice`, good until second 2000.
const RSA_TOKEN: &str = "\
    eyJhbGciOiJSUzI1NiIsImtpZCI6InJzYSIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL2lzc3Vlci5\
    leGFtcGxlIiwiYXVkIjoidGVudXJlIiwic3ViIjoiYWxpY2UiLCJ0ZW51cmVfcm9sZSI6Im9ic2VydmVyIiw\
    iZXhwIjoyMDAwfQ.U4PGFW9x3C6ap9RZkwt3RkL7_0xvBhpsdEL83SQ3tMzq5ZR3TfC28dK8Pj9SSJyhzp6W\
    OSwMa4GjHpaUuPPeHB_RfP8d92e7NtkF3FBGf5SNqvUdztBKQkZT3Xjwc2OnB0T9WcBdqgTyJCrQYsDtR9e3\
    SFu8vgr-MEGUvt0IJzV4UrEFC-rVInc2HX18UlYULY9i7MooyNfOCtn1SJ33Avh4iYE1E7ZOp4PPjB8qsmmq\
    7bc5LUmJdbN30Wy1JB8jjPMPuDxvOK_WWRR0hOzl-\
    rSQBySsOL1W1jkOCc96W2_K9WKLOJwToM54aLQlNn1WDFpTwgvaHBZprhI4ezsgmA";

const SECRET: [u8; 32] = [7; 32];
const NOW: u64 = 1_000;

fn now() -> SystemTime {
    at(NOW)
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Keys of every kind, and what signs with them.
struct Issuer {
    p256: EcdsaKeyPair,
    ed25519: Ed25519KeyPair,
    random: SystemRandom,
}

impl Issuer {
    fn new() -> Self {
        let random = rand::SystemRandom::new();
        let kind = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let p256 = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        let p256 = EcdsaKeyPair::from_pkcs8(kind, p256.as_ref(), &random).unwrap();
        let ed25519 = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let ed25519 = Ed25519KeyPair::from_pkcs8(ed25519.as_ref()).unwrap();
        Self { p256, ed25519, random }
    }

    fn jwks(&self) -> Json {
        let point = self.p256.public_key().as_ref();
        json!({ "keys": [
            { "kty": "oct", "kid": "hmac", "k": b64(SECRET) },
            { "kty": "RSA", "kid": "rsa", "n": RSA_MODULUS, "e": "AQAB" },
            { "kty": "EC", "kid": "p256", "crv": "P-256", "x": b64(&point[1..33]), "y": b64(&point[33..]) },
            { "kty": "OKP", "kid": "ed", "crv": "Ed25519", "x": b64(self.ed25519.public_key()) },
        ]})
    }

    fn rules(&self, table: Json) -> JwtRules {
        let mut whole = json!({
            "jwks": "unused", "issuer": "https://issuer.example", "audience": "tenure"
        });
        whole.as_object_mut().unwrap().extend(table.as_object().unwrap().clone());
        let keys = IssuerKeys::read(serde_json::from_value(self.jwks()).unwrap()).unwrap();
        JwtRules::new(serde_json::from_value(whole).unwrap(), keys).unwrap()
    }

    fn sign(&self, alg: &str, message: &[u8]) -> Vec<u8> {
        match alg {
            "HS256" => hmac_with(&SECRET, message),
            "ES256" => self.p256.sign(&self.random, message).unwrap().as_ref().to_vec(),
            "EdDSA" => self.ed25519.sign(message).as_ref().to_vec(),
            _ => Vec::new(),
        }
    }

    fn token(&self, header: &Json, claims: &Json) -> String {
        let signed = format!("{}.{}", b64(header.to_string()), b64(claims.to_string()));
        let signature = self.sign(header["alg"].as_str().unwrap(), signed.as_bytes());
        format!("{signed}.{}", b64(signature))
    }

    fn hs256(&self, claims: &Json) -> String {
        self.token(&json!({ "alg": "HS256", "kid": "hmac" }), claims)
    }
}

fn hmac_with(secret: &[u8], message: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message).as_ref().to_vec()
}

/// Claims that are good, with some of them changed; `null` takes one out.
fn claims(changes: Json) -> Json {
    let mut claims = json!({
        "iss": "https://issuer.example", "aud": "tenure", "sub": "alice", "exp": 2_000,
        "tenure_role": "observer", "tenure_sessions": ["a", "b"],
    });
    let fields = claims.as_object_mut().unwrap();
    fields.extend(changes.as_object().unwrap().clone());
    fields.retain(|_, value| !value.is_null());
    claims
}

fn verify(rules: &JwtRules, token: &str) -> Result<LoggedIn, LoginRefused> {
    rules.verify(token.as_bytes(), now())
}

#[test]
fn every_kind_of_signature_is_verified() {
    let issuer = Issuer::new();
    let rules = issuer.rules(json!({}));
    for (alg, kid) in [("HS256", "hmac"), ("ES256", "p256"), ("EdDSA", "ed")] {
        for typ in [Json::Null, json!("JWT"), json!("at+jwt")] {
            let header = json!({ "alg": alg, "kid": kid, "typ": typ });
            let token = issuer.token(&header, &claims(json!({})));
            let LoggedIn { identity, until } = verify(&rules, &token).unwrap();
            assert_eq!((identity.principal.as_str(), identity.role), ("alice", Role::Observer));
            let both = ["a".parse().unwrap(), "b".parse().unwrap()];
            assert_eq!(identity.sessions, Allowed::Only(both.to_vec()));
            assert_eq!(until, Some(at(2_030)), "{alg}");
        }
    }
    assert!(verify(&rules, RSA_TOKEN).is_ok());
}

#[test]
fn a_token_with_one_changed_byte_is_refused() {
    let issuer = Issuer::new();
    let rules = issuer.rules(json!({}));
    let good = claims(json!({}));
    let kinds = [("HS256", "hmac"), ("ES256", "p256"), ("EdDSA", "ed")];
    let mut tokens: Vec<_> = kinds
        .iter()
        .map(|(alg, kid)| issuer.token(&json!({ "alg": alg, "kid": kid }), &good))
        .collect();
    tokens.push(RSA_TOKEN.to_owned());
    for token in tokens {
        // The last character has bits that count for nothing.
        for at in (0..token.len() - 1).step_by(7) {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let refused = rules.verify(&changed, now());
            assert_eq!(refused, Err(LoginRefused::Invalid), "at {at}");
        }
    }
}

#[test]
fn no_signature_and_a_public_key_as_secret_are_refused() {
    let issuer = Issuer::new();
    let rules = issuer.rules(json!({}));
    let good = claims(json!({}));
    for alg in ["none", "None", "NONE", "", "HS384", "RS512", "PS256"] {
        for kid in [Json::Null, json!("hmac"), json!("rsa")] {
            let token = issuer.token(&json!({ "alg": alg, "kid": kid }), &good);
            assert_eq!(verify(&rules, &token), Err(LoginRefused::Invalid), "{alg} {kid}");
        }
    }
    // The public key of the issuer is known to everybody: it is no secret to sign with.
    let modulus = URL_SAFE_NO_PAD.decode(RSA_MODULUS).unwrap();
    let point = issuer.p256.public_key().as_ref();
    for public in [modulus.as_slice(), RSA_MODULUS.as_bytes(), point, &point[1..33]] {
        for kid in ["rsa", "p256", "hmac"] {
            let header = json!({ "alg": "HS256", "kid": kid });
            let signed = format!("{}.{}", b64(header.to_string()), b64(good.to_string()));
            let signature = hmac_with(public, signed.as_bytes());
            let token = format!("{signed}.{}", b64(signature));
            assert_eq!(verify(&rules, &token), Err(LoginRefused::Invalid), "{kid}");
        }
    }
    // A signature of one kind below the name of another key.
    for (alg, kid) in [("HS256", "rsa"), ("ES256", "ed"), ("EdDSA", "p256"), ("RS256", "hmac")] {
        let token = issuer.token(&json!({ "alg": alg, "kid": kid }), &good);
        assert_eq!(verify(&rules, &token), Err(LoginRefused::Invalid), "{alg} {kid}");
    }
}

#[test]
fn times_count_with_the_difference_of_clocks_and_no_longer() {
    let issuer = Issuer::new();
    let rules = issuer.rules(json!({ "clock_skew_s": 10 }));
    let said = |changes: Json| verify(&rules, &issuer.hs256(&claims(changes))).map(|_| ());
    assert_eq!(said(json!({ "exp": NOW - 9 })), Ok(()));
    assert_eq!(said(json!({ "exp": NOW - 10 })), Err(LoginRefused::Expired));
    assert_eq!(said(json!({ "exp": 999.5 })), Ok(()), "a time may have a fraction");
    assert_eq!(said(json!({ "nbf": NOW + 10 })), Ok(()));
    assert_eq!(said(json!({ "nbf": NOW + 11 })), Err(LoginRefused::NotYet));
    for bad in [json!({ "exp": null }), json!({ "exp": "2000" }), json!({ "exp": 1e300 })] {
        assert_eq!(said(bad.clone()), Err(LoginRefused::Invalid), "{bad}");
    }
    let table = json!({
        "jwks": "unused", "issuer": "i", "audience": "a", "clock_skew_s": SKEW_SECONDS_MAX + 1
    });
    let keys = IssuerKeys::read(serde_json::from_value(issuer.jwks()).unwrap()).unwrap();
    assert!(JwtRules::new(serde_json::from_value(table).unwrap(), keys).is_err());
}

#[test]
fn a_token_of_another_issuer_or_for_somebody_else_is_refused() {
    let issuer = Issuer::new();
    let rules = issuer.rules(json!({}));
    let said = |changes: Json| verify(&rules, &issuer.hs256(&claims(changes))).map(|_| ());
    assert_eq!(said(json!({ "aud": ["other", "tenure"] })), Ok(()));
    for bad in [
        json!({ "iss": "https://issuer.example/" }),
        json!({ "iss": null }),
        json!({ "aud": "other" }),
        json!({ "aud": ["tenure2"] }),
        json!({ "aud": [] }),
        json!({ "aud": null }),
    ] {
        assert_eq!(said(bad.clone()), Err(LoginRefused::Invalid), "{bad}");
    }
    for header in [json!({ "typ": "logout+jwt" }), json!({ "crit": ["b64"], "b64": false })] {
        let mut whole = json!({ "alg": "HS256", "kid": "hmac" });
        whole.as_object_mut().unwrap().extend(header.as_object().unwrap().clone());
        let token = issuer.token(&whole, &claims(json!({})));
        assert_eq!(verify(&rules, &token), Err(LoginRefused::Invalid), "{header}");
    }
}

#[test]
fn claims_that_name_nobody_are_refused_and_say_which() {
    let issuer = Issuer::new();
    let rules = issuer.rules(json!({}));
    for (changes, claim) in [
        (json!({ "sub": null }), "sub"),
        (json!({ "sub": "a.b" }), "sub"),
        (json!({ "sub": "x > y" }), "sub"),
        (json!({ "tenure_role": null }), "tenure_role"),
        (json!({ "tenure_role": "system" }), "tenure_role"),
        (json!({ "tenure_role": 5 }), "tenure_role"),
        (json!({ "tenure_role": ["observer", "worker"] }), "tenure_role"),
        (json!({ "tenure_sessions": ["A B"] }), "tenure_sessions"),
        (json!({ "tenure_sessions": ["a", "*"] }), "tenure_sessions"),
        (json!({ "tenure_pools": [1] }), "tenure_pools"),
    ] {
        let Err(LoginRefused::Claims(why)) =
            verify(&rules, &issuer.hs256(&claims(changes.clone())))
        else {
            panic!("it was let in: {changes}");
        };
        assert!(why.contains(claim) && !why.contains("a.b"), "{why}");
    }
}

#[test]
fn an_issuer_may_use_claims_of_its_own() {
    let issuer = Issuer::new();
    let rules = issuer.rules(json!({
        "claims": { "principal": "name", "role": "/realm_access/roles" },
        "roles": { "ops": "orchestrator", "readers": "observer" },
        "default": { "sessions": ["*"], "pools": ["build"] },
    }));
    let who = |roles: Json| {
        let own = json!({
            "name": "bob", "realm_access": { "roles": roles }, "tenure_sessions": null,
        });
        verify(&rules, &issuer.hs256(&claims(own))).map(|login| login.identity)
    };
    let bob = who(json!(["offline_access", "ops"])).unwrap();
    assert_eq!((bob.principal.as_str(), bob.role), ("bob", Role::Orchestrator));
    assert_eq!(bob.sessions, Allowed::All);
    assert_eq!(bob.pools, Allowed::Only(vec!["build".parse().unwrap()]));
    assert!(who(json!(["ops", "readers"])).is_err(), "nobody has two roles");
    assert!(who(json!(["orchestrator"])).is_err(), "a role has only the name that it was given");
}

#[test]
fn what_is_no_token_is_refused() {
    let issuer = Issuer::new();
    let rules = issuer.rules(json!({}));
    let good = issuer.hs256(&claims(json!({})));
    let long = issuer.hs256(&claims(json!({ "more": "x".repeat(JWT_BYTES_MAX) })));
    let parts: Vec<_> = good.split('.').collect();
    for bad in [
        "",
        ".",
        "..",
        "...",
        &parts[..2].join("."),
        &format!("{}.{}.", parts[0], parts[1]),
        &format!("{good}."),
        &format!("{good}.x"),
        &format!("{good}="),
        &format!(" {good}"),
        &long,
    ] {
        assert_eq!(verify(&rules, bad), Err(LoginRefused::Invalid), "{bad:.40}");
    }
    assert_eq!(rules.verify(&[0xff, b'.', b'.'], now()), Err(LoginRefused::Invalid));
}
