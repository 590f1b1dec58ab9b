//! Checks the log in JetStream: its streams, their settings, servers and capacity, and how fast
//! they are.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use async_nats::Client;
use async_nats::jetstream::account::Account;
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, Info, PersistenceMode, RetentionPolicy, StorageType,
};
use async_nats::jetstream::{self, ErrorCode};
use futures::{StreamExt as _, stream};
use tokio::time::timeout;

use super::store::StoreClaim;
use super::{Finding, Verdict, bytes, latency, partitions, percent};
use crate::journal::{LogSettings, record};
use crate::request::{RequestError, within};

/// How often each time is measured.
const TIMES: usize = 5;
/// How many streams are asked for at a time.
const AT_ONCE: usize = 8;
/// How full a store may be, in percent: above the first limit it is a caution, above the second it
/// is bad.
const FULL: (u64, u64) = (80, 95);
/// How long an answer of JetStream may take: the same.
const ANSWER: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));
/// How long JetStream may take to make a message durable: the same.
const APPEND: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// What is known of a partition's stream: its facts; none, if there is no stream; or why that is
/// not known.
type StreamInfo = Result<Option<Info>, RequestError>;

/// The result of the checks.
#[derive(Debug, Default)]
pub struct Examined {
    /// The findings.
    pub findings: Vec<Finding>,
    /// The smallest number of replicas of any stream; none: there is no stream yet.
    pub kept: Option<usize>,
    /// Which store the streams belong to.
    pub store: StoreClaim,
}

/// Checks the log. `is_cluster`: its NATS server is one of several.
pub async fn examine(client: &Client, settings: &LogSettings, is_cluster: bool) -> Examined {
    let context = jetstream::ContextBuilder::new().timeout(settings.timeout).build(client.clone());
    let mut times = Vec::new();
    let mut account = None;
    for _ in 0..TIMES {
        let begun = Instant::now();
        match context.query_account().await {
            Ok(answer) => account = Some(answer),
            Err(error) => {
                let findings = vec![Finding::bad(
                    "jetstream",
                    format!("JetStream does not answer: {error}"),
                    "switch it on in the configuration of NATS, and for the account of the journal's \
                     user: deploy/nats/common.conf",
                )];
                return Examined { findings, ..Examined::default() };
            }
        }
        times.push(begun.elapsed());
    }
    let mut findings = Vec::new();
    findings.extend(account.as_ref().map(judge_account));
    findings.push(latency(
        "jetstream.latency",
        "an answer of JetStream",
        &mut times,
        ANSWER,
        "a Step takes two of these and more: put nodes near NATS, and look at what else its machine does",
    ));
    let context = &context;
    let looks = (0..settings.partitions)
        .map(|partition| async move { look(context, settings, &settings.stream(partition)).await });
    let seen: Vec<StreamInfo> = stream::iter(looks).buffered(AT_ONCE).collect().await;
    findings.extend(judge_streams(settings, is_cluster, &seen));
    let index = look(context, settings, &settings.index_stream()).await;
    findings.extend(judge_index(settings, is_cluster, &index));
    let blobs = look(context, settings, &settings.blob_stream()).await;
    findings.extend(judge_blobs(settings, is_cluster, &blobs));
    findings.push(match unmeasured(settings, &index) {
        Some(finding) => finding,
        None => judge_append(settings, append(context, settings).await),
    });
    let kept = seen.iter().flatten().flatten().map(|info| info.config.num_replicas).min();
    Examined { findings, kept, store: store(settings, &seen) }
}

/// Which store the streams belong to, by the first record that names one.
fn store(settings: &LogSettings, seen: &[StreamInfo]) -> StoreClaim {
    let infos = || seen.iter().flatten().flatten();
    match infos().find_map(|info| record::store(&info.config.metadata)) {
        Some(store) => StoreClaim::Store(store.to_owned()),
        None if seen.iter().any(Result::is_err) => StoreClaim::Unknown,
        None if infos().next().is_none() => StoreClaim::Nobody,
        None => StoreClaim::Store(record::older_store(&settings.name)),
    }
}

async fn look(context: &jetstream::Context, settings: &LogSettings, name: &str) -> StreamInfo {
    match timeout(settings.timeout, context.get_stream(name)).await {
        Err(_) => Err(RequestError::Silent("no answer".into())),
        Ok(Ok(stream)) => Ok(Some(stream.cached_info().clone())),
        Ok(Err(error)) => match error.kind() {
            GetStreamErrorKind::JetStream(e) if e.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                Ok(None)
            }
            _ => Err(RequestError::failed(error)),
        },
    }
}

/// Measures how long JetStream takes to make a message durable. It writes a message of its own
/// among the checkpoints, which replaces the one of the last measurement.
async fn append(
    context: &jetstream::Context,
    settings: &LogSettings,
) -> Result<Vec<Duration>, RequestError> {
    let subject = format!("{}.doctor", settings.index_subject());
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let begun = Instant::now();
        let stored = async { context.publish(subject.clone(), "latency".into()).await?.await };
        within(settings.timeout, "no answer", stored).await?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

/// Judges the stream of checkpoints; if that is missing or could not be read, [`unmeasured`] says
/// so. Nodes recover from its loss by reading the whole log, but not from stale parts: they read
/// the newest message of each part.
fn judge_index(settings: &LogSettings, is_cluster: bool, index: &StreamInfo) -> Vec<Finding> {
    let Ok(Some(info)) = index else { return Vec::new() };
    let name = settings.index_stream();
    let discard =
        (info.config.discard != DiscardPolicy::Old, "takes nothing when full", "discard: old");
    let until = "until then nodes start slowly";
    let good = format!("{name} has the newest checkpoints");
    judge_newest(("log.index", &name), (settings, is_cluster, info), discard, until, good)
}

/// Judges the stream of blobs (VALUE-01); the first blob makes it.
fn judge_blobs(settings: &LogSettings, is_cluster: bool, blobs: &StreamInfo) -> Vec<Finding> {
    let name = settings.blob_stream();
    let info = match blobs {
        Ok(Some(info)) => info,
        Ok(None) => return Vec::new(),
        Err(why) => {
            let found = format!("stream {name}: {why}");
            return vec![Finding::unknown("log.blobs", found, "try again")];
        }
    };
    let discard =
        (info.config.discard != DiscardPolicy::New, "drops blobs when full", "discard: new");
    let until = "values of more than 64 KiB are in it, and in no log";
    let good = format!("{name} has the blobs, {}", bytes(info.state.bytes));
    judge_newest(("log.blobs", &name), (settings, is_cluster, info), discard, until, good)
}

/// Something that may be wrong with a stream: whether it is, in words, and what would be right.
type Fault = (bool, &'static str, &'static str);

/// Judges a stream that has the newest message of each subject.
fn judge_newest(
    (check, name): (&'static str, &str),
    (settings, is_cluster, info): (&LogSettings, bool, &Info),
    discard: Fault,
    until: &str,
    good: String,
) -> Vec<Finding> {
    let config = &info.config;
    let is_alone = config.max_messages_per_subject == 1;
    let wrong = [
        (config.storage != StorageType::File, "kept in memory", "storage: file"),
        (!is_alone, "keeps what was replaced", "max_msgs_per_subject: 1"),
        discard,
        (config.no_ack, "acknowledges nothing", "no_ack: false"),
        (config.sealed, "takes nothing any more", "sealed: false"),
        (!config.max_age.is_zero(), "drops what is old", "max_age: 0"),
        (config.retention != RetentionPolicy::Limits, "drops what was read", "retention: limits"),
    ];
    let wrong = wrong.into_iter().filter(|(is_so, ..)| *is_so);
    let mut findings: Vec<Finding> = wrong
        .map(|(_, found, change)| {
            let advice = format!("change the stream: {change}; {until}");
            Finding::caution(check, format!("{name}: {found}"), advice)
        })
        .collect();
    findings.extend(replication(settings, is_cluster, info).map(|(_, verdict, found, advice)| {
        Finding::not(verdict, check, format!("{name}: {found}"), advice)
    }));
    if findings.is_empty() {
        let kept = format!("{good}, kept by {}", config.num_replicas);
        findings.push(Finding::good(check, kept));
    }
    findings
}

/// The finding that no append can be measured, if the index stream is like this.
fn unmeasured(settings: &LogSettings, index: &StreamInfo) -> Option<Finding> {
    const CHECK: &str = "log.append";
    match index {
        Ok(Some(_)) => None,
        Ok(None) => Some(Finding::unknown(
            CHECK,
            "no checkpoint yet, beside which something could be stored",
            "look again later: nodes write the first when a partition has some history",
        )),
        Err(why) => {
            let found = format!("stream {}: {why}", settings.index_stream());
            Some(Finding::unknown(CHECK, found, "try again"))
        }
    }
}

fn judge_append(settings: &LogSettings, times: Result<Vec<Duration>, RequestError>) -> Finding {
    const CHECK: &str = "log.append";
    match times {
        Ok(mut times) => latency(
            CHECK,
            "to make a message durable",
            &mut times,
            APPEND,
            "each append of the log waits for this: a local disk with power-loss protection syncs in \
             less than 1 ms",
        ),
        Err(why) => Finding::bad(
            CHECK,
            format!("nothing can be stored: {why}"),
            format!(
                "see that the store has room, that {} has a leader, and that the journal's user may \
                 publish to {}.>, as in deploy/nats/roles.conf",
                settings.index_stream(),
                settings.index_subject(),
            ),
        ),
    }
}

fn judge_account(account: &Account) -> Finding {
    const CHECK: &str = "jetstream";
    let used = bytes(account.storage);
    let most = account.limits.max_storage.and_then(|max| u64::try_from(max).ok());
    match most {
        Some(most) => {
            fullness(CHECK, format!("{used} of {} are stored", bytes(most)), account.storage, most)
        }
        None => Finding::good(CHECK, format!("{used} are stored, and the server bounds it alone")),
    }
}

fn fullness(check: &'static str, found: String, used: u64, of: u64) -> Finding {
    let advice = "make room: a full log refuses new work and results, and loses nothing";
    match percent(used, of) {
        full if full >= FULL.1 => Finding::bad(check, found, advice),
        full if full >= FULL.0 => Finding::caution(check, found, advice),
        _ => Finding::good(check, found),
    }
}

/// A fault of some partitions: the check, how bad it is, what was found, and what to do.
type Wrong = (&'static str, Verdict, String, String);

/// Judges the streams of all partitions together: a fault of several becomes one finding.
fn judge_streams(settings: &LogSettings, is_cluster: bool, seen: &[StreamInfo]) -> Vec<Finding> {
    if !seen.is_empty() && seen.iter().all(|one| matches!(one, Ok(None))) {
        return vec![Finding::unknown(
            "log.streams",
            format!("there is no log named {}", settings.name),
            "the first `tenure serve` makes it; or name another with --cluster",
        )];
    }
    let mut wrong: BTreeMap<Wrong, Vec<u32>> = BTreeMap::new();
    for (partition, one) in (0..).zip(seen) {
        let problems = match one {
            Ok(Some(info)) => problems(settings, is_cluster, info),
            Ok(None) => vec![missing()],
            Err(why) => vec![unseen(why)],
        };
        problems.into_iter().for_each(|problem| wrong.entry(problem).or_default().push(partition));
    }
    let mut findings: Vec<Finding> = Vec::new();
    let unread = (0..).zip(seen).filter(|(_, one)| !matches!(one, Ok(Some(_))));
    let unread: Vec<u32> = unread.map(|(partition, _)| partition).collect();
    for check in ["log.streams", "log.settings", "log.replicas", "log.room"] {
        let mut of_check = wrong.iter().filter(|((c, ..), _)| *c == check).peekable();
        if of_check.peek().is_none() {
            findings.push(match &unread[..] {
                [] => Finding::good(check, all_well(check, seen)),
                some => {
                    let found = format!("{}: not looked into", partitions(some));
                    Finding::unknown(check, found, "mend what `log.streams` says first")
                }
            });
        }
        findings.extend(of_check.map(|((_, verdict, found, advice), which)| {
            Finding::not(*verdict, check, format!("{}: {found}", partitions(which)), advice)
        }));
    }
    findings
}

fn all_well(check: &str, seen: &[StreamInfo]) -> String {
    let infos = || seen.iter().flatten().flatten();
    match check {
        "log.streams" => format!("all {} streams are there", seen.len()),
        "log.settings" => "nothing is dropped, deleted, or kept in memory alone".into(),
        "log.replicas" => {
            let kept = infos().map(|info| info.config.num_replicas).min().unwrap_or_default();
            format!("each is kept by {kept}, and has a leader")
        }
        _ => {
            let used = infos().map(|info| info.state.bytes).max().unwrap_or_default();
            format!("the largest has {}", bytes(used))
        }
    }
}

fn missing() -> Wrong {
    let advice = "a node that starts makes it anew and empty: put it back from a backup first, \
                  or see that --partitions is the number the cluster was made with";
    ("log.streams", Verdict::Bad, "no stream, where others have one".into(), advice.into())
}

fn unseen(why: &RequestError) -> Wrong {
    (
        "log.streams",
        Verdict::Bad,
        format!("not known: {why}"),
        "try again; then look at NATS".into(),
    )
}

fn problems(settings: &LogSettings, is_cluster: bool, info: &Info) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    if let Err(other) = record::check(&info.config.metadata, settings.partitions) {
        wrong.push(("log.streams", Verdict::Bad, other.to_string(), other.advice()));
    }
    wrong.extend(lossy(&info.config).into_iter().map(|(found, change)| {
        ("log.settings", Verdict::Bad, found.to_owned(), format!("change the stream: {change}"))
    }));
    wrong.extend(replication(settings, is_cluster, info));
    if let Ok(most @ 1..) = u64::try_from(info.config.max_bytes) {
        let full = fullness("log.room", String::new(), info.state.bytes, most);
        if let Some(advice) = full.advice {
            let found = format!("{} % of max_bytes are used", percent(info.state.bytes, most));
            wrong.push(("log.room", full.verdict, found, advice));
        }
    }
    wrong
}

/// The settings by which history would be lost, and what they should be.
fn lossy(config: &Config) -> Vec<(&'static str, &'static str)> {
    let is_bounded = config.max_messages > 0
        || config.max_messages_per_subject > 0
        || !config.max_age.is_zero()
        || config.retention != RetentionPolicy::Limits;
    [
        (config.storage != StorageType::File, "kept in memory", "storage: file"),
        (config.discard != DiscardPolicy::New, "drops the oldest when full", "discard: new"),
        (is_bounded, "drops what is old or many", "retention: limits, and none but max_bytes"),
        (!config.deny_delete, "messages can be deleted", "deny_delete: true"),
        (!config.deny_purge, "it can be purged", "deny_purge: true"),
        (config.no_ack, "acknowledges nothing", "no_ack: false"),
        (config.sealed, "takes nothing any more", "sealed: false"),
        (!config.allow_atomic_publish, "takes no batches", "allow_atomic: true"),
        (
            config.persist_mode == Some(PersistenceMode::Async),
            "acknowledges before it writes",
            "persist_mode: default",
        ),
    ]
    .into_iter()
    .filter_map(|(is_so, found, change)| is_so.then_some((found, change)))
    .collect()
}

fn replication(settings: &LogSettings, is_cluster: bool, info: &Info) -> Option<Wrong> {
    const CHECK: &str = "log.replicas";
    let kept = info.config.num_replicas;
    let cluster = info.cluster.as_ref();
    let is_led =
        cluster.is_none_or(|cluster| cluster.leader.as_ref().is_some_and(|l| !l.is_empty()));
    let behind = cluster.map_or(0, |cluster| {
        cluster.replicas.iter().filter(|peer| peer.offline || !peer.current).count()
    });
    if !is_led {
        let advice = "see that most of the NATS servers are up and reach each other";
        return Some((
            CHECK,
            Verdict::Bad,
            "no leader: nothing can be stored".into(),
            advice.into(),
        ));
    }
    if behind > 0 {
        let found = format!("{behind} of {kept} servers are away or behind");
        let advice = "see that they are up: one more that goes away stops the partition";
        return Some((CHECK, Verdict::Bad, found, advice.into()));
    }
    if kept < settings.replicas {
        let found = format!("kept by {kept}, and {} are asked for", settings.replicas);
        let advice = format!("nats stream edit --replicas {}", settings.replicas);
        return Some((CHECK, Verdict::Bad, found, advice));
    }
    if is_cluster && kept < 3 {
        let advice =
            "give nodes `replicas = 3` before the first start; now: nats stream edit --replicas 3";
        let found = format!("kept by {kept} of several servers");
        return Some((CHECK, Verdict::Caution, found, advice.into()));
    }
    None
}

#[cfg(test)]
mod tests;
