//! Files that a gateway reads, and tokens: who is who, keys of issuers, agents and their tools.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use tempfile::TempDir;
use tenure_gateway::a2a::Agents;
use tenure_gateway::identity::Authenticator;
use tenure_mcp::file::AgentsFile;
use tenure_mcp::offers::OfferTable;
use tenure_testkit::fuzz::{Corpus, InputForm, fuzz};

use crate::site::{AGENTS, TOOLS, template};

const TOKENS_FILE: &str = r#"
[[tokens]]
sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
principal = "ann"
role = "orchestrator"
sessions = ["main", "other"]

[[tokens]]
sha256 = "cb8379ac2098aa165029e3938a51da0bcecfc008fd6795f401178647f96c5b34"
principal = "ant"
role = "worker"
pools = ["*"]

[[certificates]]
name = "dns:node.example"
principal = "bob"
role = "observer"
sessions = ["main"]

[jwt]
jwks = "keys.json"
issuer = "https://issuer.example"
audience = "tenure"
clock_skew_s = 60

[jwt.claims]
principal = "/a/sub"

[jwt.roles]
admins = "orchestrator"

[jwt.default]
sessions = ["main"]
"#;

const WORDS: [&str; 12] = [
    "[[",
    "]]",
    " = ",
    "\"\"\"",
    "\\u0000",
    "role",
    "sessions",
    "[\"*\"]",
    "\n",
    "inf",
    "1979-05-27",
    "{ a = 1 }",
];

fn keys() -> String {
    json!({ "keys": [
        { "kty": "oct", "kid": "hmac", "k": URL_SAFE_NO_PAD.encode([7; 32]) },
        { "kty": "EC", "kid": "p256", "crv": "P-256", "x": URL_SAFE_NO_PAD.encode([1; 32]),
          "y": URL_SAFE_NO_PAD.encode([2; 32]), "use": "sig", "alg": "ES256" },
        { "kty": "OKP", "kid": "ed", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode([3; 32]) },
        { "kty": "RSA", "kid": "rsa", "n": URL_SAFE_NO_PAD.encode([0xc3; 256]), "e": "AQAB", "key_ops": ["verify"] },
    ]})
    .to_string()
}

/// A folder with both files.
fn folder() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("keys.json"), keys()).unwrap();
    let path = dir.path().join("who.toml");
    std::fs::write(&path, TOKENS_FILE).unwrap();
    (dir, path)
}

/// Whether a file is read. Its error quotes nothing of what only its owner may know.
fn is_read(path: &Path, text: &[u8]) -> bool {
    std::fs::write(path, text).unwrap();
    match Authenticator::load(path) {
        Ok(_) => true,
        Err(error) => {
            let said = error.to_string();
            assert!(
                !said.contains("ba7816bf8f01cfea414140de5dae2223"),
                "a digest is shown: {said}"
            );
            false
        }
    }
}

#[test]
fn fuzz_files_of_callers() {
    let (_dir, path) = folder();
    let corpus = Corpus::new(InputForm::Bytes, [TOKENS_FILE.into()]).with_tokens(&WORDS);
    fuzz("files of callers", &corpus, |bytes| is_read(&path, bytes));
}

#[test]
fn fuzz_keys_of_issuers() {
    let (dir, path) = folder();
    let corpus = Corpus::new(InputForm::Json, [keys().into_bytes()]);
    fuzz("keys of issuers", &corpus, |bytes| {
        std::fs::write(dir.path().join("keys.json"), bytes).unwrap();
        is_read(&path, TOKENS_FILE.as_bytes())
    });
}

/// Tokens with a right signature, for claims of every kind, and tokens without one.
#[test]
fn fuzz_signed_tokens() {
    let (_dir, path) = folder();
    let who = Authenticator::load(&path).unwrap();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &[7; 32]);
    let sample = json!({
        "header": { "alg": "HS256", "kid": "hmac", "typ": "JWT" },
        "claims": {
            "iss": "https://issuer.example", "aud": ["tenure"], "exp": 4_102_444_800_u64, "nbf": 1, "iat": 1,
            "a": { "sub": "alice" }, "tenure_role": "admins", "tenure_sessions": ["a", "b"], "tenure_pools": "x",
        },
    });
    let corpus = Corpus::new(InputForm::Json, [sample.to_string().into_bytes()]);
    fuzz("signed tokens", &corpus, |bytes| {
        let _ = who.bearer(bytes);
        let Ok(token) = serde_json::from_slice::<serde_json::Value>(bytes) else { return false };
        let part = |name: &str| URL_SAFE_NO_PAD.encode(token[name].to_string());
        let signed = format!("{}.{}", part("header"), part("claims"));
        let signature = ring::hmac::sign(&key, signed.as_bytes());
        let whole = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature));
        who.bearer(whole.as_bytes()).is_ok()
    });
}

#[test]
fn fuzz_files_of_agents() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agents.toml");
    let both = format!("{AGENTS}{TOOLS}");
    let example = include_str!("../../../../tests/mcp/tools.toml");
    let agents = include_str!("../../../../tests/a2a/agents.toml");
    let corpus = [AGENTS, TOOLS, &both, example, agents].map(|it| it.as_bytes().to_vec());
    let corpus = Corpus::new(InputForm::Bytes, corpus).with_tokens(&WORDS);
    fuzz("files of agents", &corpus, |bytes| {
        std::fs::write(&path, bytes).unwrap();
        let Ok(file) = AgentsFile::read(&path) else { return false };
        let agents = Agents::read(&file, &|_| Ok(template())).is_ok();
        agents | OfferTable::read(&file, &|_| Ok(template())).is_ok()
    });
}
