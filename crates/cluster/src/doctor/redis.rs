//! Checks Redis: whether it keeps leases, how fast it is, by which clock, and who owns which
//! partition.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::{Cmd, FromRedisValue, cmd};
use tenure_core::id::SessionId;

use super::nodes::SignsOfLife;
use super::store::StoreClaim;
use super::{Finding, bytes, clock, latency, logins, partitions, percent, version};
use crate::leases::{self, RedisOpenError};
use crate::redis_at::{RedisConnection, words};
use crate::request::{RequestError, within};
use crate::{Owned, RedisAt, RedisLeases, ownership};

/// How long Redis may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often each time is measured.
const TIMES: usize = 9;
/// How long an answer may take. Beyond the first limit a node no longer waits for Redis beside the
/// log (mechanisms 9).
const ANSWER: (Duration, Duration) = (Duration::from_millis(3), Duration::from_millis(100));
/// The oldest supported version.
const OLDEST: (u32, u32) = (7, 0);

/// What a server says of itself: the fields of `INFO`, by name.
type Info = HashMap<String, String>;

/// The result of the checks.
#[derive(Debug, Default)]
pub struct Examined {
    /// The findings.
    pub findings: Vec<Finding>,
    /// Sessions that have leases.
    pub sessions: BTreeSet<SessionId>,
    /// Which node has the lease of which partition.
    pub holders: BTreeMap<u32, String>,
    /// Which store Redis belongs to.
    pub store: StoreClaim,
    /// Which nodes live; none: Redis did not say it.
    pub signs: Option<SignsOfLife>,
}

/// Checks Redis. `name` is the prefix of all keys of the cluster.
pub async fn examine(at: &RedisAt, name: &str, count: u32) -> Examined {
    let mut examined = Examined::default();
    if let Err(why) = examine_into(&mut examined, at, name, count).await {
        let found = format!("{at:?}: {why}");
        let advice = "see that it runs, and that --redis names it: nothing is claimed meanwhile";
        examined.findings.push(Finding::bad("redis", found, advice));
    }
    examined
}

async fn examine_into(
    examined: &mut Examined,
    at: &RedisAt,
    name: &str,
    count: u32,
) -> Result<(), RequestError> {
    let refused = |error| RequestError::failed(words(&error));
    let mut redis = at.client(PATIENCE).map_err(refused)?.connect().await.map_err(refused)?;
    let Examined { findings, sessions, holders, store, signs } = examined;
    findings.extend(judge_all(&infos(&mut redis).await?));
    findings.extend(logins::redis(at));
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let begun = Instant::now();
        let _: String = answer(&mut redis, &cmd("PING")).await?;
        times.push(begun.elapsed());
    }
    let advice =
        "heartbeats and new work wait for this: put Redis near the nodes, and nothing else on it";
    findings.push(latency("redis.latency", "a ping of Redis", &mut times, ANSWER, advice));
    let begun = Instant::now();
    let (seconds, micros): (i64, i64) = answer(&mut redis, &cmd("TIME")).await?;
    let redis_ms = seconds * 1_000 + micros / 1_000;
    findings.push(clock("clock.redis", "redis", redis_ms - now_ms(), begun.elapsed()));
    let named: Option<String> = answer(&mut redis, cmd("GET").arg(leases::store_key(name))).await?;
    *store = named.map_or(StoreClaim::Nobody, StoreClaim::Store);
    let key = |what: &str| format!("{name}:{{own}}:{what}");
    let owners: HashMap<String, String> =
        answer(&mut redis, cmd("HGETALL").arg(key("owners"))).await?;
    let ends: HashMap<String, i64> = answer(&mut redis, cmd("HGETALL").arg(key("ends"))).await?;
    *holders = holding(count, redis_ms, &owners, &ends);
    findings.push(judge_owners(count, holders));
    let mut scores = async |what: &str| {
        answer(&mut redis, cmd("ZRANGE").arg(key(what)).arg(0).arg(-1).arg("WITHSCORES")).await
    };
    *signs =
        Some(SignsOfLife::of(scores("nodes").await?, scores(ownership::SILENT).await?, redis_ms));
    let rights = scripts(&mut redis, name).await;
    let may_run = rights.is_ok();
    findings.push(judge_rights(rights));
    if may_run {
        sessions.extend(of_leases(at, name, count).await?);
    }
    Ok(())
}

/// Runs each script of a node on data that it does not change.
async fn scripts(redis: &mut RedisConnection, name: &str) -> Result<(), RequestError> {
    leases::rehearse(redis, name).await.map_err(RequestError::failed)?;
    ownership::rehearse(redis, name).await
}

/// Judges whether the scripts ran.
fn judge_rights(tried: Result<(), RequestError>) -> Finding {
    const CHECK: &str = "redis.rights";
    match tried {
        Ok(()) => Finding::good(CHECK, "the scripts of leases and of ownership may run"),
        Err(why) => Finding::bad(
            CHECK,
            format!("a script of leases or of ownership does not run: {why}"),
            "give its user the keys and the commands of deploy/redis/redis.conf; see that it takes writes",
        ),
    }
}

/// The sessions that have leases.
async fn of_leases(
    at: &RedisAt,
    name: &str,
    count: u32,
) -> Result<BTreeSet<SessionId>, RequestError> {
    let leases = match RedisLeases::open(at, name, Owned::none(count).into()).await {
        Err(RedisOpenError::Evicts(_)) => return Ok(BTreeSet::new()), // `redis.policy` says so.
        opened => opened.map_err(RequestError::failed)?,
    };
    let mut sessions = BTreeSet::new();
    for partition in 0..count {
        let kept = leases.of_partition(partition).await.map_err(RequestError::failed)?;
        sessions.extend(kept.into_iter().map(|lease| lease.task.session_id));
    }
    Ok(sessions)
}

/// The `INFO` of each server, by its address; the address is empty for a single server.
async fn infos(redis: &mut RedisConnection) -> Result<BTreeMap<String, Info>, RequestError> {
    let ask = cmd("INFO");
    let texts: BTreeMap<String, String> = match redis {
        RedisConnection::One(_) => BTreeMap::from([(String::new(), answer(redis, &ask).await?)]),
        RedisConnection::Cluster(_) => answer(redis, &ask).await?,
    };
    let pair =
        |line: &str| line.split_once(':').map(|(name, value)| (name.into(), value.trim().into()));
    let read = |text: &str| text.lines().filter_map(pair).collect();
    Ok(texts.into_iter().map(|(server, text)| (server, read(&text))).collect())
}

async fn answer<T: FromRedisValue>(
    redis: &mut RedisConnection,
    ask: &Cmd,
) -> Result<T, RequestError> {
    within(PATIENCE, "it does not answer", ask.query_async(redis)).await
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// Judges what servers say of themselves. Where there are several, each finding names its server.
fn judge_all(infos: &BTreeMap<String, Info>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (server, info) in infos {
        findings.extend(judge(info).into_iter().map(|finding| match infos.len() {
            1 => finding,
            _ => Finding { found: format!("{server}: {}", finding.found), ..finding },
        }));
    }
    findings
}

/// Judges what a server says of itself.
fn judge(info: &Info) -> Vec<Finding> {
    vec![age(info), policy(info), room(info), role(info), persistence(info)]
}

fn said<'a>(info: &'a Info, name: &str) -> &'a str {
    info.get(name).map_or("", String::as_str)
}

fn age(info: &Info) -> Finding {
    const CHECK: &str = "redis.version";
    // Valkey calls itself a Redis 7.2 to programs, whatever its version.
    let of_redis = said(info, "redis_version");
    let found = match info.get("valkey_version") {
        Some(valkey) => format!("valkey {valkey}"),
        None => format!("redis {of_redis}"),
    };
    match version(of_redis) {
        old if old < OLDEST => Finding::bad(CHECK, found, "take 7 or newer"),
        _ => Finding::good(CHECK, found),
    }
}

fn policy(info: &Info) -> Finding {
    const CHECK: &str = "redis.policy";
    match said(info, "maxmemory_policy") {
        "noeviction" => Finding::good(CHECK, "no key is ever evicted"),
        "" => Finding::unknown(CHECK, "it does not say whether it evicts keys", "it must not"),
        other => Finding::bad(
            CHECK,
            format!("keys are evicted when memory runs short ({other}): workers would look dead"),
            "set `maxmemory-policy noeviction`: nodes do not start otherwise",
        ),
    }
}

fn room(info: &Info) -> Finding {
    const CHECK: &str = "redis.memory";
    let number = |name| said(info, name).parse::<u64>().unwrap_or_default();
    let (used, most) = (number("used_memory"), number("maxmemory"));
    if most == 0 {
        return Finding::good(CHECK, format!("{} are used, and nothing bounds it", bytes(used)));
    }
    let found = format!("{} of {} are used", bytes(used), bytes(most));
    let advice =
        "give it more, half a KiB for each Step that runs is ample: full, it takes no new leases";
    match percent(used, most) {
        95.. => Finding::bad(CHECK, found, advice),
        80.. => Finding::caution(CHECK, found, advice),
        _ => Finding::good(CHECK, found),
    }
}

fn role(info: &Info) -> Finding {
    const CHECK: &str = "redis.role";
    match (said(info, "role"), said(info, "loading")) {
        (_, "1") => {
            Finding::caution(CHECK, "it reads what it had kept", "wait: it answers when it is done")
        }
        ("master", _) => Finding::good(CHECK, "it takes writes"),
        (other, _) => Finding::bad(
            CHECK,
            format!("it is a {other}, and takes no writes"),
            "name the master with --redis, or a name that follows it",
        ),
    }
}

fn persistence(info: &Info) -> Finding {
    const CHECK: &str = "redis.persistence";
    let failed = ["aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status"];
    if let Some(what) = failed.into_iter().find(|what| said(info, what) == "err") {
        return Finding::bad(
            CHECK,
            format!("it could not save ({what}), and may refuse writes"),
            "see that its disk has room; deploy/redis/redis.conf saves no snapshots",
        );
    }
    match said(info, "aof_enabled") {
        "1" => Finding::good(CHECK, "leases outlive a restart"),
        _ => Finding::good(CHECK, "none: after a restart leases are made again from the log"),
    }
}

/// Which node has the lease of which partition, of leases that have not ended.
fn holding(
    count: u32,
    now: i64,
    owners: &HashMap<String, String>,
    ends: &HashMap<String, i64>,
) -> BTreeMap<u32, String> {
    let holder = |partition: u32| {
        let key = partition.to_string();
        let owner = owners.get(&key).filter(|_| ends.get(&key).is_some_and(|&end| end > now))?;
        Some((partition, owner.clone()))
    };
    (0..count).filter_map(holder).collect()
}

/// Judges who owns the partitions.
fn judge_owners(count: u32, holders: &BTreeMap<u32, String>) -> Finding {
    const CHECK: &str = "partitions.owners";
    let without: Vec<u32> = (0..count).filter(|it| !holders.contains_key(it)).collect();
    if without.is_empty() {
        let nodes: BTreeSet<&String> = holders.values().collect();
        return Finding::good(
            CHECK,
            format!("all {count} have an owner, of {} nodes", nodes.len()),
        );
    }
    let found = format!("{} of {count}: no node owns them", partitions(&without));
    let advice = "start `tenure serve`; where it runs, its log says why it does not take them: it hears Redis \
                  too late, the log does not answer it, or its clock is off";
    Finding::bad(CHECK, found, advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict::{self, Bad, Caution, Good, Unknown};

    fn info(pairs: &[(&str, &str)]) -> Info {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[track_caller]
    fn is(of: fn(&Info) -> Finding, pairs: &[(&str, &str)], verdict: Verdict) {
        let finding = of(&info(pairs));
        assert_eq!(finding.verdict, verdict, "{finding:?}");
        assert_eq!(finding.advice.is_none(), verdict == Good, "{finding:?}");
    }

    #[test]
    fn a_server_is_judged_by_what_it_says() {
        is(age, &[("redis_version", "6.2.9")], Bad);
        is(age, &[("redis_version", "7.0.0")], Good);
        is(policy, &[("maxmemory_policy", "noeviction")], Good);
        is(policy, &[("maxmemory_policy", "allkeys-lru")], Bad);
        is(policy, &[], Unknown);
        is(role, &[("role", "master"), ("loading", "0")], Good);
        is(role, &[("role", "slave")], Bad);
        is(role, &[("role", "master"), ("loading", "1")], Caution);
        is(persistence, &[("aof_enabled", "1"), ("aof_last_write_status", "ok")], Good);
        is(persistence, &[("aof_enabled", "0")], Good);
        is(persistence, &[("rdb_last_bgsave_status", "err")], Bad);
        is(persistence, &[("aof_last_write_status", "err")], Bad);
    }

    #[test]
    fn one_of_several_servers_is_named() {
        let of = |policy| info(&[("maxmemory_policy", policy)]);
        let policies = |servers: &[(&str, Info)]| -> Vec<String> {
            let all = servers.iter().map(|(name, info)| ((*name).to_owned(), info.clone()));
            let found = judge_all(&all.collect()).into_iter();
            found.filter(|finding| finding.check == "redis.policy").map(|f| f.found).collect()
        };
        let found = policies(&[("a:6379", of("noeviction")), ("b:6379", of("allkeys-lru"))]);
        assert_eq!(found[0], "a:6379: no key is ever evicted");
        assert!(found[1].starts_with("b:6379: keys are evicted"), "{found:?}");
        assert_eq!(policies(&[("", of("noeviction"))]), ["no key is ever evicted"]);
    }

    #[test]
    fn memory_is_judged_at_its_limits() {
        for (used, verdict) in [("79", Good), ("80", Caution), ("94", Caution), ("95", Bad)] {
            is(room, &[("used_memory", used), ("maxmemory", "100")], verdict);
        }
        is(room, &[("used_memory", "999"), ("maxmemory", "0")], Good);
        let valkey = info(&[("redis_version", "7.2.4"), ("valkey_version", "8.1.0")]);
        assert_eq!(age(&valkey).found, "valkey 8.1.0");
    }

    #[test]
    fn partitions_without_an_owner_are_named() {
        let owners = info(&[("0", "n1"), ("1", "n2"), ("2", "n2")]);
        let ends = |last| HashMap::from([("0".into(), 11), ("1".into(), 11), ("2".into(), last)]);
        let judged = |count, ends| judge_owners(count, &holding(count, 10, &owners, &ends));
        let good = judged(3, ends(11));
        assert_eq!((good.verdict, &*good.found), (Good, "all 3 have an owner, of 2 nodes"));
        let ended = judged(3, ends(10));
        assert_eq!((ended.verdict, &*ended.found), (Bad, "partition 2 of 3: no node owns them"));
        let none = judged(2, HashMap::new());
        assert_eq!(none.found, "2 partitions: 0, 1 of 2: no node owns them");
    }
}
