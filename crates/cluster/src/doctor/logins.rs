//! Judges logins: passwords that are easy to guess, and a Redis that asks for no password or gets it unencrypted.

use super::{Finding, Verdict};
use crate::RedisAt;

/// Passwords of examples, and those that people try first.
const KNOWN: [&str; 20] = [
    "password",
    "passwd",
    "secret",
    "s3cr3t",
    "changeme",
    "change-me",
    "changeit",
    "admin",
    "root",
    "nats",
    "redis",
    "tenure",
    "default",
    "test",
    "guest",
    "example",
    "letmein",
    "12345678",
    "123456789",
    "1234567890",
];
/// A password that a program has made has at least so many bytes.
const LENGTH_MIN: usize = 16;
/// The advice about a password.
const ADVICE: &str = "`deploy/passwords` makes long ones by chance: one for each user, in the environment or a file of \
                      mode 0600, and its bcrypt hash for NATS";

/// A login of a part of a node.
#[derive(Clone, Copy)]
pub struct PartLogin<'a> {
    /// The part.
    pub part: &'static str,
    /// The user.
    pub user: &'a str,
    /// The password.
    pub password: &'a str,
}

/// How easily a password is guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Guess {
    Hard,
    Short,
    Known,
    Empty,
}

fn guess(user: &str, password: &str) -> Guess {
    let lower = password.to_lowercase();
    let is_known = KNOWN.contains(&lower.as_str()) || lower == user.to_lowercase();
    match password.len() {
        0 => Guess::Empty,
        _ if is_known => Guess::Known,
        1..LENGTH_MIN => Guess::Short,
        _ => Guess::Hard,
    }
}

/// Judges the passwords of a node's users of NATS; none: it has no passwords. `is_near`: it seems that only this
/// machine reaches the server. No finding shows a password.
pub fn passwords(logins: &[PartLogin<'_>], is_near: bool) -> Option<Finding> {
    const CHECK: &str = "nats.passwords";
    let guesses = logins.iter().map(|login| (guess(login.user, login.password), login.part));
    let (worst, _) = guesses.clone().max()?;
    let those: Vec<&str> = guesses.filter(|(one, _)| *one == worst).map(|(_, part)| part).collect();
    let those = those.join(", ");
    let bad = if is_near { Verdict::Caution } else { Verdict::Bad };
    Some(match worst {
        Guess::Empty => {
            Finding::not(bad, CHECK, format!("the password of {those} is empty"), ADVICE)
        }
        Guess::Known => Finding::not(
            bad,
            CHECK,
            format!("the password of {those} is one that anybody tries first"),
            ADVICE,
        ),
        Guess::Short => {
            let found = format!("the password of {those} has fewer than {LENGTH_MIN} characters");
            Finding::caution(CHECK, found, ADVICE)
        }
        Guess::Hard if has_twice(logins) => {
            let found =
                "two users have the same password: whoever learns one has the rights of both";
            Finding::caution(CHECK, found, ADVICE)
        }
        Guess::Hard => Finding::good(CHECK, "long, and each user has its own"),
    })
}

/// Whether two users have one password.
fn has_twice(logins: &[PartLogin<'_>]) -> bool {
    let is_same = |one: &PartLogin<'_>, other: &PartLogin<'_>| {
        one.user != other.user && one.password == other.password
    };
    logins
        .iter()
        .enumerate()
        .any(|(at, one)| logins[at + 1..].iter().any(|other| is_same(one, other)))
}

/// Judges how a node speaks to Redis, by the address that let it in.
pub fn redis(at: &RedisAt) -> Vec<Finding> {
    let (scheme, rest) = at.url.split_once("://").unwrap_or(("redis", &at.url));
    let (login, servers) = rest.rsplit_once('@').unwrap_or(("", rest));
    let is_near = servers.split(',').all(|server| {
        let server = server.trim();
        ["127.", "localhost", "[::1]"].iter().any(|near| server.starts_with(near))
    }) || scheme.contains("unix");
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    vec![redis_login(user, password, is_near), redis_tls(scheme, is_near)]
}

fn redis_login(user: &str, password: &str, is_near: bool) -> Finding {
    const CHECK: &str = "redis.login";
    const CONF: &str = "give Redis a user with a long password and the rights of deploy/redis/redis.conf, and put both \
                        into the address";
    let bad = if is_near { Verdict::Caution } else { Verdict::Bad };
    match guess(user, password) {
        Guess::Empty if is_near => Finding::good(CHECK, "it asks for no password, on this machine"),
        Guess::Empty => Finding::bad(
            CHECK,
            "it asks nobody for a password: whoever reaches it may take partitions and end leases",
            CONF,
        ),
        Guess::Known => {
            Finding::not(bad, CHECK, "its password is one that anybody tries first", CONF)
        }
        Guess::Short => {
            let found = format!("its password has fewer than {LENGTH_MIN} characters");
            Finding::caution(CHECK, found, CONF)
        }
        Guess::Hard => Finding::good(CHECK, "it asks for a password, which is long"),
    }
}

fn redis_tls(scheme: &str, is_near: bool) -> Finding {
    const CHECK: &str = "redis.tls";
    match (scheme.starts_with("rediss"), is_near) {
        (true, _) => Finding::good(CHECK, "connections have TLS"),
        (false, true) => Finding::good(CHECK, "no TLS, on this machine"),
        (false, false) => Finding::caution(
            CHECK,
            "connections go without TLS: its password can be read on its way, and answers can be changed",
            "`--redis rediss://…` where the network is not private; deploy/redis/redis.conf has what the server needs",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "nSLKu6kXy0z2V7Qw";

    fn of(users: &[(&'static str, &str, &str)], is_near: bool) -> Option<Verdict> {
        let logins: Vec<PartLogin<'_>> = users
            .iter()
            .map(|&(part, user, password)| PartLogin { part, user, password })
            .collect();
        let finding = passwords(&logins, is_near)?;
        for (_, _, password) in users.iter().filter(|(_, _, password)| password.len() > 7) {
            assert!(!format!("{finding:?}").contains(password), "{finding:?}");
        }
        Some(finding.verdict)
    }

    #[test]
    fn passwords_are_judged_by_the_one_that_is_guessed_first() {
        use Verdict::{Bad, Caution, Good};
        let other = "xSLKu6kXy0z2V7Qw";
        assert_eq!(of(&[], false), None);
        assert_eq!(
            of(&[("journal", "journal", LONG), ("control", "control", other)], false),
            Some(Good)
        );
        assert_eq!(
            of(&[("journal", "journal", LONG), ("control", "control", LONG)], false),
            Some(Caution)
        );
        assert_eq!(
            of(&[("journal", "one", LONG), ("control", "one", LONG)], false),
            Some(Good),
            "one user"
        );
        for known in ["", "journal", "Journal", "changeme", "PASSWORD"] {
            let users = [("journal", "journal", known), ("control", "control", LONG)];
            assert_eq!(of(&users, false), Some(Bad), "{known:?}");
            assert_eq!(of(&users, true), Some(Caution), "{known:?}, on this machine");
        }
        assert_eq!(of(&[("journal", "journal", "a-short-one")], false), Some(Caution));
    }

    #[test]
    fn redis_is_judged_by_its_address() {
        use Verdict::{Bad, Caution, Good};
        for (url, login, tls) in [
            ("redis://127.0.0.1:6379", Good, Good),
            ("redis://10.0.0.1:6379", Bad, Caution),
            ("rediss://10.0.0.1:6379", Bad, Good),
            ("redis://:password@10.0.0.1", Bad, Caution),
            ("redis://tenure:tenure@localhost", Caution, Good),
            ("rediss-cluster://tenure:nSLKu6kXy0z2V7Qw@a:1,b:1", Good, Good),
            ("redis-cluster://tenure:nSLKu6kXy0z2V7Qw@127.0.0.1:1,b:1", Good, Caution),
        ] {
            let found = redis(&url.to_owned().into());
            let verdicts: Vec<Verdict> = found.iter().map(|finding| finding.verdict).collect();
            assert_eq!(verdicts, [login, tls], "{url}: {found:?}");
            assert!(!format!("{found:?}").contains(LONG), "{found:?}");
        }
    }
}
