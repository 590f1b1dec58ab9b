//! Makes findings about scheduler nodes that say nothing: they hang, were killed or are cut off.

use std::collections::{BTreeMap, BTreeSet};

use tenure_node::doctor::{Examination, Finding, SignsOfLife, Verdict};
use tenure_wire::bus::operate::NodeFacts;

use super::judge::{AS_WHOM, Holders};
use crate::answer::{Exit, Failure, human};

/// The advice if no scheduler runs.
pub(super) const START: &str = "start `tenure serve`; where it runs, its log says what it lacks";

/// The advice about a process that exists and does nothing.
const STANDS_STILL: &str = "its connections to NATS are open, so its process is there and stands still: \
                            stopped, short of processor, or swapped out. End it with `kill -9`, and \
                            start it again";

/// The advice if the process is gone.
const IS_GONE: &str = "it has no connection to NATS: it was killed, or its machine is gone. Its unit's \
                       status and `dmesg` say why; start it again";

/// The advice if it is not known whether the process exists.
const EITHER: &str = "it stands still, is cut off, or was killed: look at its process and at the end of its \
                      log, end it with `kill -9` if it is there, and start it again. With --nats-monitor \
                      this says which";

/// What is known of the servers and nodes of a cluster.
#[derive(Debug, Default)]
pub(super) struct Ground {
    /// Which node has the lease of which partition.
    pub(super) holders: Holders,
    pub(super) signs: Option<SignsOfLife>,
    connected: Option<BTreeSet<String>>,
    /// The servers that do not answer.
    away: Vec<&'static str>,
}

impl Ground {
    pub(super) fn of(examined: &Examination) -> Self {
        let away = ["nats", "redis"].into_iter().filter(|server| examined.is_away(server));
        Self {
            holders: examined.holders.clone(),
            signs: examined.signs.clone(),
            connected: examined.connected.clone(),
            away: away.collect(),
        }
    }

    /// The advice about an answer that did not come. Another login helps only if the login was refused.
    pub(super) fn advice(&self, exit: Exit) -> String {
        match (exit, &self.away[..]) {
            (Exit::NotAllowed | Exit::Usage, _) => AS_WHOM.into(),
            (_, []) => "mend what `nodes` says first".into(),
            (_, away) => {
                let named: Vec<String> = away.iter().map(|server| format!("`{server}`")).collect();
                format!("mend what {} says first", named.join(" and "))
            }
        }
    }

    /// The finding if no node has answered.
    pub(super) fn nobody(&self, check: &'static str, failure: &Failure) -> Finding {
        let (found, advice) = (failure.message.clone(), self.advice(failure.exit));
        if matches!(failure.exit, Exit::NotAllowed | Exit::Usage) || self.away.contains(&"nats") {
            return Finding::unknown(check, found, advice);
        }
        match self.signs.as_ref().map(|signs| &signs.live) {
            Some(live) if !live.is_empty() => {
                let live: Vec<&str> = live.iter().map(String::as_str).collect();
                let found =
                    format!("no node answers, and these are alive in Redis: {}", live.join(", "));
                let advice = "see whether they reach the NATS of --nats, and what their logs say: within seconds \
                              they answer, or are given up";
                Finding::bad(check, found, advice)
            }
            _ => Finding::bad(check, format!("no node answers: {found}"), START),
        }
    }

    /// Nodes that gave no sign of life and had not left, and nodes that only Redis or only NATS knows.
    pub(super) fn silent(&self, answers: Option<&[NodeFacts]>) -> Vec<Finding> {
        const CHECK: &str = "nodes.silent";
        let Some(signs) = &self.signs else { return Vec::new() };
        let answering: BTreeSet<&str> =
            answers.unwrap_or_default().iter().map(|node| node.node.as_str()).collect();
        let mut findings = Vec::new();
        for (node, silent) in &signs.silent {
            let ago = human::duration(u64::try_from(silent.as_millis()).unwrap_or(u64::MAX));
            if answering.contains(node.as_str()) {
                let found = format!("{node} answers, and has not reached this Redis for {ago}");
                let advice =
                    "see that it has this Redis, and what its log says: it takes no partition";
                findings.push(Finding::bad(CHECK, found, advice));
                continue;
            }
            let found = format!("{node} has given no sign of life for {ago}, and has not left");
            let is_connected = self.connected.as_ref().map(|all| all.contains(node));
            let advice = match is_connected {
                Some(true) => STANDS_STILL,
                Some(false) => IS_GONE,
                None => EITHER,
            };
            findings.push(Finding::bad(CHECK, found, advice));
        }
        let unheard = |node: &&String| answers.is_some() && !answering.contains(node.as_str());
        let unheard: Vec<&str> = signs.live.iter().filter(unheard).map(String::as_str).collect();
        if !unheard.is_empty() {
            let found = format!("alive in Redis, and without an answer: {}", unheard.join(", "));
            let advice = "look again: they may have just begun, or just ended. If it stays so, see whether they reach \
                          NATS, and what their logs say";
            findings.push(Finding::not(Verdict::Caution, CHECK, found, advice));
        }
        if findings.is_empty() {
            findings.push(Finding::good(CHECK, "all that have not left give signs of life"));
        }
        findings
    }
}

/// The nodes that hold partitions for which nobody answers, each with these partitions.
pub(super) fn holding<'a>(missing: &[u32], holders: &'a Holders) -> BTreeMap<&'a str, Vec<String>> {
    let mut held: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for partition in missing {
        if let Some(holder) = holders.get(partition) {
            held.entry(holder).or_default().push(partition.to_string());
        }
    }
    held
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ground(live: &[&str], silent: &[&str]) -> Ground {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let silent = names(silent).into_iter().map(|name| (name, Duration::from_secs(12)));
        let signs =
            SignsOfLife { live: names(live).into_iter().collect(), silent: silent.collect() };
        Ground { signs: Some(signs), ..Ground::default() }
    }

    fn answers(names: &[&str]) -> Vec<NodeFacts> {
        let node = |name: &&str| NodeFacts { node: (*name).into(), ..NodeFacts::default() };
        names.iter().map(node).collect()
    }

    /// Whether the process of a silent node is there decides what to do with it.
    #[test]
    fn a_silent_node_is_told_with_what_helps() {
        let mut of = ground(&["n1-a"], &["n2-a"]);
        let told = |of: &Ground| {
            let found = of.silent(Some(&answers(&["n1-a"])));
            assert_eq!((found.len(), found[0].verdict), (1, Verdict::Bad), "{found:?}");
            assert!(
                found[0].found.starts_with("n2-a has given no sign of life for 12.0 s"),
                "{found:?}"
            );
            found[0].advice.clone().unwrap()
        };
        assert_eq!(told(&of), EITHER);
        of.connected = Some(BTreeSet::from(["n1-a".to_owned()]));
        assert_eq!(told(&of), IS_GONE);
        of.connected = Some(BTreeSet::from(["n1-a".to_owned(), "n2-a".to_owned()]));
        assert_eq!(told(&of), STANDS_STILL);
        let cut_off = of.silent(Some(&answers(&["n1-a", "n2-a"])));
        assert!(cut_off[0].found.contains("has not reached this Redis"), "{cut_off:?}");
        assert_eq!(
            ground(&["n1-a"], &[]).silent(Some(&answers(&["n1-a"])))[0].verdict,
            Verdict::Good
        );
        let unheard = ground(&["n1-a", "n2-a"], &[]).silent(Some(&answers(&["n1-a"])));
        assert_eq!(unheard[0].verdict, Verdict::Caution, "{unheard:?}");
        assert!(ground(&["n1-a"], &[]).silent(None)[0].advice.is_none(), "nobody could be asked");
    }

    /// A server that says nothing is no question of logins.
    #[test]
    fn another_login_is_advised_only_where_one_was_refused() {
        let of = |exit| Failure::new(exit, "why");
        let mut ground = ground(&[], &[]);
        let refused = ground.nobody("nodes", &of(Exit::NotAllowed));
        assert_eq!((refused.verdict, refused.advice.as_deref()), (Verdict::Unknown, Some(AS_WHOM)));
        let silent = ground.nobody("nodes", &of(Exit::Unavailable));
        assert_eq!((silent.verdict, silent.advice.as_deref()), (Verdict::Bad, Some(START)));
        assert_eq!(ground.advice(Exit::Unavailable), "mend what `nodes` says first");
        ground.away = vec!["nats", "redis"];
        let away = ground.nobody("nodes", &of(Exit::Unavailable));
        let advice = "mend what `nats` and `redis` says first";
        assert_eq!((away.verdict, away.advice.as_deref()), (Verdict::Unknown, Some(advice)));
    }
}
