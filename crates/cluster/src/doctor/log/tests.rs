use serde_json::{Value, json};

use super::*;

/// A stream as `tenure serve` makes it, but for `changes`.
fn stream(changes: Value) -> Info {
    let mut info = json!({
        "config": {
            "name": "TENURE_WAL_0", "subjects": ["tenure.wal.0"], "retention": "limits",
            "max_consumers": -1, "max_msgs": -1, "max_bytes": 1000, "max_age": 0,
            "max_msgs_per_subject": -1, "max_msg_size": -1, "discard": "new", "storage": "file",
            "num_replicas": 1, "duplicate_window": 120_000_000_000_u64, "deny_delete": true,
            "deny_purge": true, "allow_direct": true, "allow_atomic": true, "sealed": false,
            "metadata": record::write(2, "TENURE, store a1"),
        },
        "created": "2026-01-01T00:00:00Z",
        "state": {
            "messages": 1, "bytes": 10, "first_seq": 1, "last_seq": 1, "consumer_count": 0,
            "first_ts": "2026-01-01T00:00:00Z", "last_ts": "2026-01-01T00:00:00Z",
        },
    });
    merge(&mut info, changes);
    serde_json::from_value(info).unwrap()
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn settings() -> LogSettings {
    LogSettings { partitions: 2, ..LogSettings::default() }
}

fn judged(is_cluster: bool, changes: Value) -> Vec<Finding> {
    let mut found = judge_streams(
        &settings(),
        is_cluster,
        &[Ok(Some(stream(json!({})))), Ok(Some(stream(changes)))],
    );
    found.retain(|finding| finding.verdict != Verdict::Good);
    found
}

#[track_caller]
fn one(is_cluster: bool, changes: Value) -> (&'static str, Verdict) {
    let [finding] = &judged(is_cluster, changes)[..] else { panic!("one finding") };
    if !is_cluster {
        assert!(finding.found.starts_with("partition 1: "), "{finding:?}");
    }
    assert!(finding.advice.is_some(), "{finding:?}");
    (finding.check, finding.verdict)
}

#[test]
fn a_log_as_a_node_makes_it_is_good() {
    let found = judge_streams(
        &settings(),
        false,
        &[Ok(Some(stream(json!({})))), Ok(Some(stream(json!({}))))],
    );
    let checks: Vec<_> = found.iter().map(|finding| (finding.check, finding.verdict)).collect();
    let names = ["log.streams", "log.settings", "log.replicas", "log.room"];
    assert_eq!(checks, names.map(|name| (name, Verdict::Good)));
}

#[test]
fn every_setting_that_loses_history_is_told() {
    for config in [
        json!({"storage": "memory"}),
        json!({"discard": "old"}),
        json!({"max_msgs": 5}),
        json!({"max_msgs_per_subject": 5}),
        json!({"max_age": 1_000_000_000}),
        json!({"retention": "workqueue"}),
        json!({"deny_delete": false}),
        json!({"deny_purge": false}),
        json!({"no_ack": true}),
        json!({"sealed": true}),
        json!({"allow_atomic": false}),
        json!({"persist_mode": "async"}),
    ] {
        let found = one(false, json!({"config": config}));
        assert_eq!(found, ("log.settings", Verdict::Bad), "{config}");
    }
}

/// Settings of the stream of checkpoints are less grave than those of the log: with wrong ones
/// nodes start slowly, and nothing is lost.
#[test]
fn the_stream_of_checkpoints_is_judged_too() {
    let index = |changes: Value| {
        let mut index = json!({"config": {
            "name": "TENURE_INDEX", "max_msgs_per_subject": 1, "discard": "old",
            "deny_delete": false, "deny_purge": false, "allow_atomic": false,
        }});
        merge(&mut index, changes);
        let found = judge_index(&settings(), true, &Ok(Some(stream(index))));
        assert!(found.iter().all(|finding| finding.check == "log.index"), "{found:?}");
        let [finding] = &found[..] else { panic!("one finding: {found:?}") };
        finding.verdict
    };
    let of = |config: Value| index(json!({"config": {"num_replicas": 3}, "cluster": config}));
    assert_eq!(of(json!({"leader": "n1"})), Verdict::Good);
    assert_eq!(of(json!({"leader": ""})), Verdict::Bad);
    assert_eq!(index(json!({"config": {"num_replicas": 1}})), Verdict::Caution);
    for config in [
        json!({"storage": "memory"}),
        json!({"max_msgs_per_subject": -1}),
        json!({"discard": "new"}),
        json!({"max_age": 1_000_000_000}),
        json!({"sealed": true}),
    ] {
        let three = json!({"num_replicas": 3});
        let mut with = config.clone();
        merge(&mut with, three);
        assert_eq!(index(json!({"config": with})), Verdict::Caution, "{config}");
    }
    assert!(judge_index(&settings(), true, &Ok(None)).is_empty(), "`log.append` says so");
}

/// VALUE-01: a stream of blobs that may drop some is worth a look; without one nobody has put any.
#[test]
fn the_stream_of_blobs_is_judged_too() {
    let blobs = |changes: Value| {
        let mut blobs = json!({"config": {
            "name": "TENURE_BLOB", "max_msgs_per_subject": 1, "discard": "new", "num_replicas": 3,
            "deny_delete": false, "deny_purge": false, "allow_atomic": false,
        }});
        merge(&mut blobs, json!({"config": changes}));
        let found = judge_blobs(&settings(), true, &Ok(Some(stream(blobs))));
        let [finding] = &found[..] else { panic!("one finding: {found:?}") };
        assert_eq!(finding.check, "log.blobs");
        finding.verdict
    };
    assert_eq!(blobs(json!({})), Verdict::Good);
    for wrong in [json!({"discard": "old"}), json!({"num_replicas": 1}), json!({"max_age": 1})] {
        assert_eq!(blobs(wrong.clone()), Verdict::Caution, "{wrong}");
    }
    assert!(judge_blobs(&settings(), true, &Ok(None)).is_empty());
}

#[test]
fn a_log_of_another_cluster_is_told() {
    for metadata in [record::write(16, "TENURE, store a1"), record::tests::entry("2")] {
        let other = json!({"config": {"metadata": metadata}});
        assert_eq!(one(false, other), ("log.streams", Verdict::Bad));
    }
}

/// OWN-01: the first stream that names a store says which one the log is of. Streams that an older version made
/// name none.
#[test]
fn the_streams_say_which_store_they_are_of() {
    let of = |seen: &[StreamInfo]| store(&settings(), seen);
    let named = || Ok(Some(stream(json!({}))));
    let older = || {
        let mut info = stream(json!({}));
        info.config.metadata = record::tests::entry("2, placement 2");
        Ok(Some(info))
    };
    let a1 = StoreClaim::Store("TENURE, store a1".into());
    assert_eq!(of(&[named(), named()]), a1);
    assert_eq!(of(&[older(), named()]), a1);
    assert_eq!(of(&[silent(), named()]), a1);
    let made = StoreClaim::Store("TENURE, made by an older version".into());
    assert_eq!(of(&[older(), Ok(None)]), made);
    assert_eq!(of(&[older(), silent()]), StoreClaim::Unknown);
    assert_eq!(of(&[Ok(None), Ok(None)]), StoreClaim::Nobody);
}

#[test]
fn servers_that_are_away_are_told() {
    let peers = |leader: Value, current: bool, offline: bool| {
        let peer = json!({"name": "n2", "current": current, "offline": offline, "active": 0});
        json!({"config": {"num_replicas": 3}, "cluster": {"leader": leader, "replicas": [peer]}})
    };
    assert_eq!(one(false, peers(Value::Null, true, false)), ("log.replicas", Verdict::Bad));
    assert_eq!(one(false, peers("".into(), true, false)), ("log.replicas", Verdict::Bad));
    assert_eq!(one(false, peers("n1".into(), false, false)), ("log.replicas", Verdict::Bad));
    assert_eq!(one(false, peers("n1".into(), true, true)), ("log.replicas", Verdict::Bad));
    assert_eq!(judged(false, peers("n1".into(), true, false)), []);
}

#[test]
fn one_copy_among_several_servers_is_told() {
    assert_eq!(one(true, json!({})), ("log.replicas", Verdict::Caution));
    let wanted = LogSettings { replicas: 3, ..settings() };
    let found = judge_streams(&wanted, true, &[Ok(Some(stream(json!({}))))]);
    let bad: Vec<_> = found.iter().filter(|f| f.verdict == Verdict::Bad).collect();
    assert_eq!((bad.len(), bad[0].check), (1, "log.replicas"));
}

#[test]
fn a_stream_is_told_before_it_is_full() {
    let used = |bytes: u64| json!({"state": {"bytes": bytes}});
    assert_eq!(judged(false, used(799)), []);
    assert_eq!(one(false, used(800)), ("log.room", Verdict::Caution));
    assert_eq!(one(false, used(949)), ("log.room", Verdict::Caution));
    assert_eq!(one(false, used(950)), ("log.room", Verdict::Bad));
    let unbounded = json!({"config": {"max_bytes": -1}, "state": {"bytes": 1_u64 << 40}});
    assert_eq!(judged(false, unbounded), []);
}

#[test]
fn a_log_that_is_not_there_is_no_fault_and_a_part_of_it_is() {
    let none = judge_streams(&settings(), false, &[Ok(None), Ok(None)]);
    assert_eq!((none.len(), none[0].verdict), (1, Verdict::Unknown));
    let some = judge_streams(&settings(), false, &[Ok(Some(stream(json!({})))), Ok(None)]);
    assert_eq!(told(&some), unread("partition 1", "partition 1: no stream, where others have one"));
}

fn told(findings: &[Finding]) -> Vec<(&str, Verdict, &str)> {
    findings.iter().map(|found| (found.check, found.verdict, &*found.found)).collect()
}

fn silent<T>() -> Result<T, RequestError> {
    Err(RequestError::Silent("no answer".into()))
}

/// The findings on a log of which these partitions could not be read, and the others are sound.
fn unread(which: &str, why: &'static str) -> Vec<(&'static str, Verdict, &'static str)> {
    let not = &*format!("{which}: not looked into").leak();
    let later = ["log.settings", "log.replicas", "log.room"];
    let later = later.into_iter().map(|check| (check, Verdict::Unknown, not));
    [("log.streams", Verdict::Bad, why)].into_iter().chain(later).collect()
}

#[test]
fn streams_that_could_not_be_read_are_not_called_good() {
    let none = judge_streams(&settings(), false, &[silent(), silent()]);
    let why = "2 partitions: 0, 1: not known: no answer";
    assert_eq!(told(&none), unread("2 partitions: 0, 1", why));
    let sound = Ok(Some(stream(json!({}))));
    let half = judge_streams(&settings(), false, &[silent(), sound]);
    assert_eq!(told(&half), unread("partition 0", "partition 0: not known: no answer"));

    // What is wrong with a stream that was read is reported all the same.
    let lossy = Ok(Some(stream(json!({"config": {"storage": "memory"}}))));
    let found = judge_streams(&settings(), false, &[silent(), lossy]);
    assert_eq!(told(&found)[1], ("log.settings", Verdict::Bad, "partition 1: kept in memory"));
}

#[test]
fn what_cannot_be_stored_is_not_called_slow() {
    let settings = settings();
    let slow = judge_append(&settings, Ok(vec![Duration::from_secs(1)]));
    assert_eq!(slow.verdict, Verdict::Bad);
    assert!(slow.advice.unwrap().contains("power-loss protection"));
    let refused = judge_append(&settings, silent());
    assert_eq!(
        (refused.verdict, &*refused.found),
        (Verdict::Bad, "nothing can be stored: no answer")
    );
    let advice = refused.advice.unwrap();
    assert!(advice.contains("room") && advice.contains("tenure.index.>"), "{advice}");
}

#[test]
fn what_is_not_measured_is_said() {
    let of = |index: StreamInfo| {
        unmeasured(&settings(), &index).map(|found| (found.verdict, found.found))
    };
    let first = "no checkpoint yet, beside which something could be stored".to_owned();
    assert_eq!(of(Ok(None)), Some((Verdict::Unknown, first)));
    let unanswered = "stream TENURE_INDEX: no answer".to_owned();
    assert_eq!(of(silent()), Some((Verdict::Unknown, unanswered)));
    assert_eq!(of(Ok(Some(stream(json!({}))))), None);
}
