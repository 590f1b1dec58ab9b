//! Compares which store of the cluster the log and Redis belong to.

use super::Finding;
use crate::RedisAt;
use crate::leases::RedisOpenError;

/// Which store the log or Redis says that it belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum StoreClaim {
    /// That could not be found out.
    #[default]
    Unknown,
    /// It belongs to none.
    Nobody,
    /// It belongs to this one.
    Store(String),
}

/// Judges whether the log and Redis belong to the same store. `cluster` is the name of the cluster, and `at`
/// says where Redis is.
pub fn judge(cluster: &str, at: &RedisAt, log: StoreClaim, redis: StoreClaim) -> Finding {
    use StoreClaim::{Nobody, Store, Unknown};
    const CHECK: &str = "cluster";
    match (log, redis) {
        (Store(given), Store(found)) if given == found => {
            Finding::good(CHECK, format!("{given}: the log and Redis belong to it"))
        }
        (Store(given), Store(found)) => {
            let other = RedisOpenError::OtherStore { at: format!("{at:?}"), found, given };
            Finding::bad(CHECK, other.to_string(), other.advice())
        }
        (Store(given), Nobody) => Finding::good(
            CHECK,
            format!("{given}: the log belongs to it, and Redis will when a node has started"),
        ),
        (Nobody, Store(found)) => Finding::bad(
            CHECK,
            format!("{at:?} belongs to the cluster {found}, and NATS has no log of {cluster}"),
            "see that --nats names the NATS of that cluster; if this is another cluster, name it otherwise with \
             --cluster; if the log is lost, docs/operations.md says under Restore how to go on",
        ),
        (Nobody, Nobody) => {
            Finding::good(CHECK, format!("{cluster}: the first `tenure serve` makes it"))
        }
        (Unknown, _) | (_, Unknown) => Finding::unknown(
            CHECK,
            format!(
                "{cluster}: not known whether the log and Redis belong to the same store of it"
            ),
            "mend what keeps NATS or Redis from answering first",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::StoreClaim::{Nobody, Store, Unknown};
    use super::*;
    use crate::doctor::Verdict;

    fn judged(log: StoreClaim, redis: StoreClaim) -> (Verdict, String) {
        let at = RedisAt::from("redis://ann:s3cret@127.0.0.1:6379".to_owned());
        let finding = judge("TENURE", &at, log, redis);
        assert_eq!(finding.check, "cluster");
        assert_eq!(finding.advice.is_none(), finding.verdict == Verdict::Good, "{finding:?}");
        assert!(!finding.found.contains("s3cret"), "{finding:?}");
        (finding.verdict, finding.found)
    }

    /// OWN-01: doctor names the cluster, and finds a Redis that belongs to another store.
    #[test]
    fn a_redis_of_another_store_is_found() {
        let store = |id: &str| Store(format!("TENURE, store {id}"));
        let (verdict, found) = judged(store("a1"), store("a1"));
        assert_eq!((verdict, found.starts_with("TENURE, store a1: ")), (Verdict::Good, true));
        let (verdict, found) = judged(store("a1"), store("b2"));
        let told = "redis://127.0.0.1:6379 belongs to the cluster TENURE, store b2, and the streams in NATS \
                    are those of the cluster TENURE, store a1";
        assert_eq!((verdict, &*found), (Verdict::Bad, told));
        let (verdict, found) = judged(Nobody, store("b2"));
        assert_eq!((verdict, found.contains("TENURE, store b2")), (Verdict::Bad, true), "{found}");
    }

    /// A cluster that is not made yet, and a Redis that was emptied, are no fault.
    #[test]
    fn a_redis_of_nobody_is_no_fault() {
        assert_eq!(judged(Store("TENURE, store a1".into()), Nobody).0, Verdict::Good);
        assert_eq!(judged(Nobody, Nobody).0, Verdict::Good);
        for (log, redis) in [(Unknown, Nobody), (Nobody, Unknown), (Unknown, Unknown)] {
            let (verdict, found) = judged(log, redis);
            assert_eq!((verdict, found.starts_with("TENURE: ")), (Verdict::Unknown, true));
        }
    }
}
