//! Remembers workers that have no link because the node cannot accept their messages, and names them
//! to those who ask for workers.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use smol_str::SmolStr;
use tenure_core::Rejection;
use tenure_wire::bus::operate::RefusedFacts;
use tenure_wire::bus::subject::{Token, WorkerName};
use tokio::time::Instant;

/// For how long the node names a worker that it refused; the worker may have ended since.
const TOLD: Duration = Duration::from_secs(600);

/// How many logins of workers the node remembers. It answers others too, but does not name them.
const NAMES_MAX: usize = 1_000;

/// How many of them one answer names at most.
const NAMED_MAX: usize = 100;

/// How many characters of a refusal the node sends at most.
const WORDS_MAX: usize = 400;

/// The sender of a worker's message, whether its pool can exist or not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Speaker<'a> {
    pub(crate) pool: &'a str,
    pub(crate) principal: &'a Token,
    pub(crate) boot: &'a Token,
}

impl<'a> From<&'a WorkerName> for Speaker<'a> {
    fn from(name: &'a WorkerName) -> Self {
        Self { pool: name.pool.as_str(), principal: &name.principal, boot: &name.boot }
    }
}

impl Speaker<'_> {
    fn login(&self) -> (SmolStr, SmolStr) {
        (self.pool.into(), self.principal.as_str().into())
    }
}

/// Workers that were refused lately: the last one of each login in a pool.
#[derive(Debug, Default)]
pub(crate) struct RefusedWorkers(Mutex<BTreeMap<(SmolStr, SmolStr), Last>>);

#[derive(Debug)]
struct Last {
    boot: SmolStr,
    error: Rejection,
    at: Instant,
    /// The worker has a link since. It is remembered only so that its next refusal is not logged at
    /// once.
    is_mended: bool,
}

impl RefusedWorkers {
    /// Notes that a worker was refused. Answers whether that is news, so that a worker that is
    /// refused again and again is logged once.
    pub(crate) fn note(&self, who: Speaker<'_>, error: Rejection) -> bool {
        let now = Instant::now();
        let mut all = self.0.lock();
        all.retain(|_, last| now - last.at < TOLD);
        let is_new = !all.contains_key(&who.login());
        if is_new && all.len() >= NAMES_MAX {
            return false;
        }
        let boot = who.boot.as_str().into();
        all.insert(who.login(), Last { boot, error, at: now, is_mended: false });
        is_new
    }

    /// Notes that a worker has a link: from now on it is not named.
    pub(crate) fn forget(&self, who: Speaker<'_>) {
        let mut all = self.0.lock();
        if let Some(last) = all.get_mut(&who.login()) {
            last.is_mended |= last.boot == who.boot.as_str();
        }
    }

    /// The workers that were refused, and why.
    pub(crate) fn facts(&self) -> Vec<RefusedFacts> {
        let now = Instant::now();
        let all = self.0.lock();
        let told = all.iter().filter(|(_, last)| now - last.at < TOLD && !last.is_mended);
        let facts = told.map(|((pool, principal), last)| RefusedFacts {
            pool: pool.clone(),
            principal: principal.clone(),
            boot: last.boot.clone(),
            error: last.error.clone(),
            ago_ms: u64::try_from((now - last.at).as_millis()).unwrap_or(u64::MAX),
        });
        facts.take(NAMED_MAX).collect()
    }
}

/// A refusal with a message of bounded length: the message may name many things.
pub(crate) fn in_short(mut refused: Rejection) -> Rejection {
    if let Some((end, _)) = refused.message.char_indices().nth(WORDS_MAX) {
        refused.message.truncate(end);
        refused.message.push('…');
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    fn refusal() -> Rejection {
        Rejection::invalid("handlers", "no such name")
    }

    /// A worker that starts again and again is logged once, and one that has a link is no longer
    /// named.
    #[tokio::test(start_paused = true)]
    async fn a_login_is_told_of_once_while_it_is_remembered() {
        let (refused, alice, one, two) =
            (RefusedWorkers::default(), token("alice"), token("b1"), token("b2"));
        let (first, second) = (
            Speaker { pool: "p", principal: &alice, boot: &one },
            Speaker { pool: "p", principal: &alice, boot: &two },
        );
        assert!(refused.note(first, refusal()));
        assert!(!refused.note(second, refusal()));
        let facts = refused.facts();
        assert_eq!((facts.len(), facts[0].boot.as_str()), (1, "b2"), "the last of them");
        refused.forget(first);
        assert_eq!(refused.facts().len(), 1, "another boot is not mended by it");
        refused.forget(second);
        assert_eq!(refused.facts(), []);
        assert!(!refused.note(first, refusal()), "one that goes to and fro fills no log");
        assert_eq!(refused.facts().len(), 1);
        tokio::time::advance(TOLD).await;
        assert_eq!(refused.facts(), []);
        assert!(refused.note(first, refusal()));
    }

    /// Names cost a sender nothing, so they must fill neither the memory nor the log.
    #[test]
    fn so_many_logins_are_remembered() {
        let (refused, boot) = (RefusedWorkers::default(), token("b1"));
        let names: Vec<Token> = (0..=NAMES_MAX).map(|n| token(&format!("w{n}"))).collect();
        let of = |principal| Speaker { pool: "p", principal, boot: &boot };
        let news = names.iter().filter(|name| refused.note(of(*name), refusal())).count();
        assert_eq!((news, refused.0.lock().len()), (NAMES_MAX, NAMES_MAX));
        assert_eq!(refused.facts().len(), NAMED_MAX);
    }

    #[test]
    fn a_refusal_is_told_in_so_many_words() {
        let long = in_short(Rejection::invalid("v", "ä".repeat(1 << 20)));
        assert_eq!(long.message.chars().count(), WORDS_MAX + 1);
        assert_eq!(in_short(refusal()), refusal());
    }
}
