//! Tokens that an issuer signed (JWT, RFC 7519): what must hold of one, and whom it stands for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use tenure_core::id::BadId;
use tenure_core::status::Role;
use tenure_wire::bus::subject::Token;

use super::authenticator::{LoggedIn, LoginRefused};
use super::file::{IdentityError, allowed, parse_json, read_bounded, role_of_callers};
use super::jwks::{IssuerKeys, SignatureKind};
use super::{Allowed, Identity};

/// The longest token, in bytes: issuers that list many groups make tokens of some 4 KB.
pub(super) const JWT_BYTES_MAX: usize = 16 << 10;
/// How far clocks may differ if the file does not say it.
const SKEW_SECONDS: u32 = 30;
/// How far clocks may differ at most: a longer time would make a short life of tokens pointless.
const SKEW_SECONDS_MAX: u32 = 300;

/// The table `[jwt]` of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JwtTable {
    /// The file with the issuer's keys, seen from the directory of this file.
    jwks: PathBuf,
    issuer: String,
    audience: String,
    #[serde(default = "skew_seconds")]
    clock_skew_s: u32,
    #[serde(default)]
    claims: ClaimNames,
    /// Which role a value of the role's claim means, if it is not the name of a role.
    #[serde(default)]
    roles: BTreeMap<String, Role>,
    #[serde(default)]
    default: ClaimDefaults,
}

const fn skew_seconds() -> u32 {
    SKEW_SECONDS
}

/// The claims in which an issuer says what matters here. A name that begins with `/` is the JSON
/// pointer of a claim in another one.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
struct ClaimNames {
    principal: String,
    role: String,
    sessions: String,
    pools: String,
}

impl Default for ClaimNames {
    fn default() -> Self {
        Self {
            principal: "sub".to_owned(),
            role: "tenure_role".to_owned(),
            sessions: "tenure_sessions".to_owned(),
            pools: "tenure_pools".to_owned(),
        }
    }
}

/// What holds for a token that lacks a claim.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
struct ClaimDefaults {
    role: Option<Role>,
    sessions: Vec<String>,
    pools: Vec<String>,
}

/// What must hold of a signed token.
#[derive(Debug)]
pub(super) struct JwtRules {
    keys: IssuerKeys,
    issuer: String,
    audience: String,
    skew: Duration,
    claims: ClaimNames,
    roles: BTreeMap<String, Role>,
    default: ClaimDefaults,
}

/// The first part of a token.
#[derive(Deserialize)]
struct JwtHeader {
    alg: SignatureKind,
    kid: Option<String>,
    typ: Option<String>,
    /// Extensions that a receiver must know. None is known here.
    crit: Option<Json>,
}

/// The claims that every token has.
#[derive(Deserialize)]
struct Registered {
    iss: String,
    aud: Audience,
    exp: f64,
    nbf: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    fn as_slice(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

impl JwtRules {
    pub(super) fn read(table: JwtTable, beside: &Path) -> Result<Self, IdentityError> {
        let path = beside.parent().unwrap_or(Path::new("")).join(&table.jwks);
        let keys = IssuerKeys::read(parse_json(&path, &read_bounded(&path)?)?)?;
        Self::new(table, keys)
    }

    fn new(table: JwtTable, keys: IssuerKeys) -> Result<Self, IdentityError> {
        let said = |why: String| IdentityError::entry("jwt", why);
        let JwtTable { jwks: _, issuer, audience, clock_skew_s, claims, roles, default } = table;
        if issuer.is_empty() || audience.is_empty() {
            return Err(said(
                "issuer and audience name whose tokens count, and for whom".to_owned(),
            ));
        }
        if clock_skew_s > SKEW_SECONDS_MAX {
            return Err(said(format!("clock_skew_s is more than {SKEW_SECONDS_MAX}")));
        }
        for role in roles.values().chain(&default.role) {
            role_of_callers(*role).map_err(said)?;
        }
        allowed::<tenure_core::id::SessionId>(&default.sessions).map_err(said)?;
        allowed::<tenure_core::id::PoolId>(&default.pools).map_err(said)?;
        let skew = Duration::from_secs(clock_skew_s.into());
        Ok(Self { keys, issuer, audience, skew, claims, roles, default })
    }

    /// Whom a token stands for at this time, and until when.
    pub(super) fn verify(&self, token: &[u8], now: SystemTime) -> Result<LoggedIn, LoginRefused> {
        let claims = self.signed_claims(token)?;
        let registered = Registered::deserialize(&claims).map_err(|_| LoginRefused::Invalid)?;
        let until = self.check_times(&registered, now)?;
        let is_for_us = registered.aud.as_slice().contains(&self.audience);
        if registered.iss != self.issuer || !is_for_us {
            return Err(LoginRefused::Invalid);
        }
        let identity = self.identity(&claims).map_err(LoginRefused::Claims)?;
        Ok(LoggedIn { identity, until: Some(until) })
    }

    /// The claims of a token whose signature is good.
    fn signed_claims(&self, token: &[u8]) -> Result<Json, LoginRefused> {
        let bad = LoginRefused::Invalid;
        if token.len() > JWT_BYTES_MAX {
            return Err(bad);
        }
        let text = std::str::from_utf8(token).map_err(|_| LoginRefused::Invalid)?;
        let (signed, signature) = text.rsplit_once('.').ok_or(LoginRefused::Invalid)?;
        let (header, claims) = signed.split_once('.').ok_or(LoginRefused::Invalid)?;
        let header: JwtHeader = json_part(header)?;
        let type_of = header.typ.as_deref().map(str::to_ascii_lowercase);
        let is_access = type_of.is_none_or(|typ| matches!(typ.as_str(), "jwt" | "at+jwt"));
        if header.crit.is_some() || !is_access {
            return Err(bad);
        }
        let key = self.keys.find(header.alg, header.kid.as_deref()).ok_or(LoginRefused::Invalid)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| LoginRefused::Invalid)?;
        if !key.verifies(signed.as_bytes(), &signature) {
            return Err(bad);
        }
        json_part(claims)
    }

    /// Checks `exp` and `nbf`, and says when the token ends here.
    fn check_times(&self, of: &Registered, now: SystemTime) -> Result<SystemTime, LoginRefused> {
        let since_epoch = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (now, skew) = (since_epoch.as_secs_f64(), self.skew.as_secs_f64());
        if !of.exp.is_finite() || of.exp + skew <= now {
            return Err(LoginRefused::Expired);
        }
        if of.nbf.is_some_and(|from| !from.is_finite() || from - skew > now) {
            return Err(LoginRefused::NotYet);
        }
        let ends = Duration::try_from_secs_f64(of.exp + skew).ok();
        ends.and_then(|ends| SystemTime::UNIX_EPOCH.checked_add(ends)).ok_or(LoginRefused::Invalid)
    }

    fn identity(&self, claims: &Json) -> Result<Identity, String> {
        let principal = claim(claims, &self.claims.principal).and_then(Json::as_str);
        let principal =
            principal.ok_or_else(|| format!("the claim {} is no text", self.claims.principal))?;
        // The value itself may be private to the caller, as a mail address, and is not repeated.
        let principal = Token::new(principal).map_err(|BadId { expected, .. }| {
            format!(
                "the claim {} cannot be a principal: it has to be {expected}",
                self.claims.principal
            )
        })?;
        Ok(Identity {
            principal,
            role: self.role(claims)?,
            sessions: names(claims, &self.claims.sessions, &self.default.sessions)?,
            pools: names(claims, &self.claims.pools, &self.default.pools)?,
        })
    }

    /// The one role that the claim names. Values that mean no role here do not count: issuers list
    /// the groups of a caller for many services.
    fn role(&self, claims: &Json) -> Result<Role, String> {
        let name = &self.claims.role;
        let Some(said) = claim(claims, name) else {
            return self.default.role.ok_or_else(|| format!("the claim {name} is missing"));
        };
        let mut roles = texts(name, said)?.into_iter().filter_map(|value| self.role_of(&value));
        let role = roles.next().ok_or_else(|| format!("the claim {name} names no role"))?;
        if roles.any(|other| other != role) {
            return Err(format!("the claim {name} names more than one role"));
        }
        Ok(role)
    }

    fn role_of(&self, value: &str) -> Option<Role> {
        if !self.roles.is_empty() {
            return self.roles.get(value).copied();
        }
        role_of_callers(Role::from_name(value)?).ok()
    }
}

/// A part of a token that is JSON in base64url.
fn json_part<T: DeserializeOwned>(part: &str) -> Result<T, LoginRefused> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| LoginRefused::Invalid)?;
    serde_json::from_slice(&bytes).map_err(|_| LoginRefused::Invalid)
}

fn claim<'a>(claims: &'a Json, name: &str) -> Option<&'a Json> {
    let found = if name.starts_with('/') {
        claims.pointer(name)
    } else {
        claims.as_object().and_then(|claims: &Map<_, _>| claims.get(name))
    };
    found.filter(|value| !value.is_null())
}

/// The values of a claim that is a list, or a text with spaces between, as scopes are written.
fn texts(name: &str, value: &Json) -> Result<Vec<String>, String> {
    if let Some(text) = value.as_str() {
        return Ok(text.split_ascii_whitespace().map(str::to_owned).collect());
    }
    let list: Option<Vec<String>> = value
        .as_array()
        .and_then(|list| list.iter().map(|one| one.as_str().map(str::to_owned)).collect());
    list.ok_or_else(|| format!("the claim {name} is neither a text nor a list of texts"))
}

fn names<T>(claims: &Json, name: &str, default: &[String]) -> Result<Allowed<T>, String>
where
    T: std::str::FromStr<Err = BadId>,
{
    match claim(claims, name) {
        Some(said) => {
            allowed(&texts(name, said)?).map_err(|why| format!("the claim {name}: {why}"))
        }
        None => allowed(default),
    }
}

#[cfg(test)]
mod tests;
