//! Which scheduler nodes live, as Redis says it, and which have a connection to NATS.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::monitor::{PATIENCE, read};
use crate::ownership::is_replaced;
use crate::request::{RequestError, within};

/// How many connections a server is asked for.
const CONNECTIONS: &str = "/connz?limit=1024";

/// The boots of nodes that give signs of life, and those that were given up and had not left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignsOfLife {
    /// Those that live.
    pub live: BTreeSet<String>,
    /// The others, each with how long ago it was given up. A node that was started again is not among them.
    pub silent: BTreeMap<String, Duration>,
}

impl SignsOfLife {
    /// Puts together what Redis says: of each node when it is given up if it says nothing more, and when
    /// others were. `now` is the time there.
    pub(super) fn of(nodes: Vec<(String, f64)>, silent: Vec<(String, f64)>, now: i64) -> Self {
        #[allow(clippy::cast_possible_truncation)] // Milliseconds since 1970 are below 2^53.
        let all: Vec<(String, i64)> =
            silent.into_iter().chain(nodes).map(|(node, at)| (node, at as i64)).collect();
        let live = all.iter().filter(|(_, at)| *at > now).map(|(node, _)| node.clone());
        let live: BTreeSet<String> = live.collect();
        let ago =
            |at: i64| Duration::from_millis(u64::try_from(now.saturating_sub(at)).unwrap_or(0));
        let gone =
            all.into_iter().filter(|(node, _)| !live.contains(node) && !is_replaced(node, &live));
        let silent = gone.map(|(node, at)| (node, ago(at))).collect();
        Self { live, silent }
    }
}

/// The connections of a server of NATS (`/connz`).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Connz {
    server_id: String,
    connections: Vec<NamedConnection>,
    /// How many there are, also if not all are listed.
    total: usize,
}

/// A connection.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamedConnection {
    name: String,
}

/// The names of the connections that a server has, and the server's id.
///
/// # Errors
/// The monitoring address does not answer, or not as NATS does, or there are more connections than it lists.
pub async fn connections(url: &str) -> Result<(String, BTreeSet<String>), RequestError> {
    let connz: Connz = answer(url).await?;
    if connz.total > connz.connections.len() {
        return Err(RequestError::failed("it lists only a part of its connections"));
    }
    Ok((connz.server_id, connz.connections.into_iter().map(|one| one.name).collect()))
}

async fn answer<T: DeserializeOwned>(url: &str) -> Result<T, RequestError> {
    within(PATIENCE, "it does not answer", read(url, CONNECTIONS)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_given_up_and_not_started_again_is_silent() {
        let at = |pairs: &[(&str, f64)]| -> Vec<(String, f64)> {
            pairs.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect()
        };
        // n1 lives, n2 has just been missed, n3 was started again, n4 was given up and lives again.
        let nodes = at(&[("n1-a", 1_500.0), ("n2-a", 900.0), ("n3-b", 1_400.0), ("n4-a", 1_200.0)]);
        let silent = at(&[("n3-a", 100.0), ("n4-a", 300.0), ("n5-a", 400.0)]);
        let signs = SignsOfLife::of(nodes, silent, 1_000);
        assert_eq!(signs.live.iter().collect::<Vec<_>>(), ["n1-a", "n3-b", "n4-a"]);
        let ms = |name: &str| signs.silent.get(name).map(Duration::as_millis);
        assert_eq!((signs.silent.len(), ms("n2-a"), ms("n5-a")), (2, Some(100), Some(600)));
    }
}
