//! Checks the limits that keep a hostile client from filling the memory of a NATS server. Only its monitoring port
//! says them.

use serde::Deserialize;

use super::monitor::read;
use super::{Finding, bytes};
use crate::request::{RequestError, within};

const CHECK: &str = "nats.limits";
/// How many connections a server lets in by default.
const UNSAID: u64 = 65_536;
/// The highest limit of a message that makes sense: eight times the longest message of the protocol.
const PAYLOAD_MAX: u64 = 8 << 20;
/// What a server should have.
const ADVICE: &str = "set max_connections, max_subscriptions, max_payload and max_pending, as deploy/nats/common.conf \
                      does: whoever has a login can otherwise fill the server's memory";

/// What a server says of itself (`/varz`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Varz {
    /// The server's id.
    pub server_id: String,
    /// Its name.
    pub server_name: String,
    /// How many connections it lets in.
    pub max_connections: u64,
    /// How many subscriptions a connection may have; 0: any number.
    pub max_subscriptions: u64,
    /// The longest message.
    pub max_payload: u64,
}

/// Asks a server at its monitoring address.
///
/// # Errors
/// It does not answer, or not as NATS does.
pub async fn ask(url: &str) -> Result<Varz, RequestError> {
    within(super::monitor::PATIENCE, "it does not answer", read(url, "/varz")).await
}

/// Judges what servers said; none: none of them said anything.
pub fn judge(answers: &[Varz]) -> Option<Finding> {
    let mut found = Vec::new();
    for varz in answers {
        let mut lacks = Vec::new();
        if varz.max_connections == 0 || varz.max_connections >= UNSAID {
            lacks.push("no max_connections of its own".to_owned());
        }
        if varz.max_subscriptions == 0 {
            lacks.push("no max_subscriptions".to_owned());
        }
        if varz.max_payload > PAYLOAD_MAX {
            lacks.push(format!("a max_payload of {}", bytes(varz.max_payload)));
        }
        if !lacks.is_empty() {
            found.push(format!("{} has {}", varz.server_name, lacks.join(", ")));
        }
    }
    match (answers, &found[..]) {
        ([], _) => None,
        (_, []) => {
            Some(Finding::good(CHECK, "connections, subscriptions and messages are bounded"))
        }
        (_, found) => Some(Finding::caution(CHECK, found.join("; "), ADVICE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_server_is_judged_by_what_it_does_not_bound() {
        let sound = Varz {
            server_name: "n1".into(),
            max_connections: 16_384,
            max_subscriptions: 4_096,
            max_payload: 1 << 20,
            ..Varz::default()
        };
        let of = |varz: Varz| judge(&[sound.clone(), varz]).unwrap();
        assert_eq!(of(sound.clone()).verdict, Verdict::Good);
        for (lax, says) in [
            (Varz { max_connections: UNSAID, ..sound.clone() }, "no max_connections of its own"),
            (Varz { max_subscriptions: 0, ..sound.clone() }, "no max_subscriptions"),
            (Varz { max_payload: 64 << 20, ..sound.clone() }, "a max_payload of 64 MiB"),
        ] {
            let found = of(lax);
            assert_eq!(found.verdict, Verdict::Caution);
            assert_eq!(found.found, format!("n1 has {says}"));
        }
        assert_eq!(judge(&[]), None);
    }
}
