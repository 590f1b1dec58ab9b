//! Mutated samples of everything that is stored or crosses the bus: there is an answer, within bounds, and what is
//! read is written as what is read again.

#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tenure_core::Task;
use tenure_core::event::Commit;
use tenure_testkit::fuzz::{Corpus, Draw, InputForm, Meter, fuzz, instance};
use tenure_wire::bus::call::{CALL_MAX, CallAnswer};
use tenure_wire::bus::catalog::catalog;
use tenure_wire::bus::encode as encode_message;
use tenure_wire::bus::request::{self, Request};
use tenure_wire::bus::subject::{ClusterName, ParsedSubject, misnamed};
use tenure_wire::bus::worker::{self, Looking};
use tenure_wire::bus::{Answer, MESSAGE_MAX, address, blob, decode, event, node, operate, output};
use tenure_wire::stored::frame::{Chunk, Header, decode_chunk, encode_header};
use tenure_wire::stored::{
    Assembler, decode_line, decode_packed, decode_snapshot, encode, encode_packed, encode_snapshot,
    frame, seal,
};

#[global_allocator]
static METER: Meter = Meter;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Whether bytes are such a message. One that is read is written, and read as the same: it has the same bytes again.
fn is_message<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> bool {
    let Ok(message) = decode::<T>(bytes) else { return false };
    let written = match bus_bytes(&message) {
        Some(written) => written,
        None => return true,
    };
    let again: T = decode(&written).expect("what is written is read");
    assert_eq!(bus_bytes(&again).as_ref(), Some(&written), "it is read as another message");
    true
}

/// A message as bytes; none if it is too long.
fn bus_bytes<T: Serialize>(message: &T) -> Option<Vec<u8>> {
    match encode_message(message) {
        Ok(bytes) => Some(bytes),
        Err(bad) => {
            assert!(bad.why.contains(&MESSAGE_MAX.to_string()), "{bad}");
            None
        }
    }
}

macro_rules! messages {
    ($($of:ty),* $(,)?) => {
        /// Whether bytes are any message.
        fn is_any_message(bytes: &[u8]) -> bool {
            let read = [$(is_message::<$of>(bytes)),*];
            read.contains(&true)
        }
    };
}

messages!(
    worker::Hello,
    worker::Bye,
    worker::Capacity,
    worker::Deliveries,
    worker::Reports,
    worker::Heartbeat,
    worker::QuerySteps,
    worker::Claim,
    Answer<worker::Reported>,
    Answer<worker::Pulses>,
    worker::Delivery,
    request::Hello,
    request::RequestHead,
    request::Committed,
    Answer<request::Welcome>,
    Answer<request::LogPage>,
    Answer<request::Entries>,
    Answer<request::ViewPage>,
    CallAnswer<request::LogPage>,
    blob::HeldBlob,
    Answer<blob::BlobPart>,
    Answer<blob::BlobTaken>,
    event::Published,
    event::Runtime,
    Answer<event::EventPage>,
    operate::Nodes,
    operate::Drain,
    operate::ImportLog,
    Answer<operate::Imported>,
    Answer<operate::NodeFacts>,
    Answer<operate::Drained>,
    Answer<operate::LeasePage>,
    output::OutputAnswer,
    Answer<output::OutputPage>,
    node::Alive,
    node::Hungry,
    node::Serves,
    node::FamilyMessage,
);

/// A request as a node reads it, and as a gateway does.
fn is_request(bytes: &[u8]) -> bool {
    let read = Request::read(bytes);
    let longer = Request::read_within(CALL_MAX, bytes);
    assert_eq!(read.is_ok(), longer.is_ok() && bytes.len() <= MESSAGE_MAX);
    let Ok(request) = read else { return false };
    let Ok(written) = request.write() else { return true };
    let again = Request::read(&written).expect("what is written is read");
    assert_eq!(again.write().as_ref(), Ok(&written), "it is read as another request");
    true
}

/// CTRL-01: every operation's request, and every message of workers, clients and nodes.
#[test]
fn fuzz_messages_of_the_bus() {
    let catalog = serde_json::to_value(catalog()).unwrap();
    let mut draw = Draw::new(1);
    let mut samples = Vec::new();
    for operation in catalog["operations"].as_array().unwrap() {
        for _ in 0..6 {
            let request = json!({
                "v": 1, "operation": operation["name"], "task_id": "t", "command_id": "c",
                "input": instance(&mut draw, &operation["input"], &catalog),
            });
            samples.push(rmp_serde::to_vec_named(&request).unwrap());
        }
    }
    for message in catalog["messages"].as_array().unwrap() {
        for _ in 0..3 {
            let made = instance(&mut draw, &message["message"], &catalog);
            samples.push(rmp_serde::to_vec_named(&made).unwrap());
        }
    }
    let corpus = Corpus::of_files(InputForm::MessagePack, golden("bus-v1"), &[".msgpack"]);
    fuzz("messages of the bus", &corpus.and(samples), |bytes| {
        let is_looking = Looking::read(bytes).is_ok();
        is_request(bytes) | is_any_message(bytes) | is_looking
    });
}

/// A line with the checksum that its writer would give it.
fn sealed(line: &[u8]) -> Option<Vec<u8>> {
    let end = line.windows(7).rposition(|it| it == b",\"crc\":")?;
    let mut out = line[..end].to_vec();
    seal(&mut out, 0);
    out.pop();
    Some(out)
}

/// Reads lines as those of a log, by the reducer, as an owner does.
fn is_log(lines: &[Vec<u8>]) -> bool {
    let mut commits: Option<Assembler> = None;
    let mut task: Option<Task> = None;
    let mut read = false;
    for line in lines {
        let Ok(line) = decode_line(line) else { return read };
        let (session, id) = (line.session_id.clone(), line.task_id.clone());
        let commits = commits.get_or_insert_with(|| {
            Assembler::after(session.clone(), id.clone(), line.wal_seq.saturating_sub(1))
        });
        let Ok(pushed) = commits.push(line) else { return read };
        let Some(commit) = pushed else { continue };
        read = true;
        is_stored(&commit, |out| encode(&commit, &session, &id, out).is_ok());
        let replayed = match &mut task {
            Some(task) => task.replay(&commit),
            None => Task::restore(&commit).map(|made| task = Some(made)),
        };
        if replayed.is_err() {
            return read;
        }
    }
    read
}

/// What was read is written, and read as the same, as lines and packed.
fn is_stored(commit: &Commit, as_lines: impl Fn(&mut Vec<u8>) -> bool) {
    assert!(as_lines(&mut Vec::new()), "what was read can be written");
    let mut packed = Vec::new();
    encode_packed(commit, &mut packed).expect("what was read can be written");
    packed.pop();
    let read = decode_packed(&packed).expect("what was written can be read");
    let mut again = Vec::new();
    encode_packed(&read, &mut again).unwrap();
    again.pop();
    assert!(again == packed, "it is read as another commit");
}

/// WAL-04, RECOVER-05: lines of a log with right checksums, in any order.
#[test]
fn fuzz_lines_of_logs() {
    let corpus = Corpus::of_files(InputForm::JsonLines, golden(""), &[".jsonl"]);
    let whole: Vec<u8> = corpus_of_a_whole_log();
    fuzz("lines of logs", &corpus.and([whole]), |bytes| {
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let as_they_are: Vec<Vec<u8>> = lines.clone().map(<[u8]>::to_vec).collect();
        let sealed: Vec<Vec<u8>> = lines.filter_map(sealed).collect();
        is_log(&as_they_are) | is_log(&sealed)
    });
}

/// A log from its creation on: two commits.
fn corpus_of_a_whole_log() -> Vec<u8> {
    let created = std::fs::read(golden("v1/task_created.jsonl")).unwrap();
    let ready = std::fs::read(golden("v1/task_step_ready.jsonl")).unwrap();
    [created, ready].concat()
}

/// WAL-13: commits as a partition's stream has them.
#[test]
fn fuzz_packed_commits() {
    let text = std::fs::read(golden("packed-v1.txt")).unwrap();
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let corpus = Corpus::new(InputForm::Json, lines.map(<[u8]>::to_vec));
    fuzz("packed commits", &corpus, |bytes| {
        let _ = decode_packed(bytes);
        let Some(Ok(commit)) = sealed(bytes).map(|line| decode_packed(&line)) else { return false };
        is_stored(&commit, |_| true);
        let _ = Task::restore(&commit).map(|task| task.check_invariants());
        true
    });
}

/// Bytes with their header's length and checksum made right.
fn framed(bytes: &[u8], header: usize) -> Option<Vec<u8>> {
    let (header, body) = bytes.get(12..)?.split_at_checked(header)?;
    let length = u32::try_from(header.len()).ok()?.to_le_bytes();
    Some([&b"TNF1"[..], &length, &crc32fast::hash(header).to_le_bytes(), header, body].concat())
}

/// OWN-03: frames, with right checksums or wrong ones, and chunks of frames.
#[test]
fn fuzz_frames() {
    let corpus = Corpus::of_files(InputForm::Bytes, golden(""), &["frame-v1.bin", "lost.bin"]);
    let chunk = Chunk { index: 1, of: 3, part: b"abc" }.encode();
    fuzz("frames", &corpus.and([chunk]), |bytes| {
        if let Some(chunk) = decode_chunk(bytes) {
            assert_eq!(chunk.encode(), bytes);
        }
        let as_it_is = is_frame(bytes);
        let told = bytes.get(4..8).map_or(0, |it| u32::from_le_bytes(it.try_into().unwrap()));
        let mut draw = Draw::new(u64::from(crc32fast::hash(bytes)));
        let header = if draw.once_in(4) { draw.below(bytes.len()) } else { told as usize };
        as_it_is | framed(bytes, header).is_some_and(|bytes| is_frame(&bytes))
    });
}

fn is_frame(bytes: &[u8]) -> bool {
    let Ok(read) = frame::decode(bytes) else { return false };
    let lengths: usize = read.commits().map(|(_, lines)| lines.len()).sum();
    assert_eq!(lengths, read.body.len());
    let header: &Header = &read.header;
    let mut written = encode_header(header, 0).expect("what was read can be written");
    written.extend_from_slice(read.body);
    assert_eq!(frame::decode(&written).as_ref(), Ok(&read));
    true
}

/// RECOVER-01: stored states of Tasks.
#[test]
fn fuzz_snapshots() {
    let name = format!("state-v{}.bin", tenure_wire::stored::STATE_VERSION);
    let state = std::fs::read(golden(&name)).unwrap();
    let (head, records) = state.split_at(12);
    let corpus = Corpus::new(InputForm::MessagePack, [records.to_vec()]);
    fuzz("snapshots", &corpus, |records| {
        let _ = decode_snapshot(records);
        let crc = crc32fast::hash(records).to_le_bytes();
        let whole = [&head[..8], &crc, records].concat();
        let Ok(read) = decode_snapshot(&whole) else { return false };
        let written = encode_snapshot(&read).expect("what was read can be written");
        let again = decode_snapshot(&written).expect("what was written can be read");
        assert!(encode_snapshot(&again).unwrap() == written, "it is read as another state");
        let _ = Task::of_snapshot(read).check_invariants();
        true
    });
}

/// U12: subjects, by which a node knows who a sender is; and addresses with logins.
#[test]
fn fuzz_subjects_and_addresses() {
    let samples = [
        "TENURE.worker.default.ann.b1.hello",
        "TENURE.worker.default.ann.b1.report.3",
        "tenure.v1.worker.default.ann.b1.hb",
        "tenure.v1.orchestrator.main.ann.cmd.7",
        "tenure.v1.observer.main.ann.nodes",
        "tenure.v1.system.main.n1.import.4294967295",
        "tenure.v1.worker.default.ann.b1.node.n1.room",
        "nats://ann:s3cret@one:4222,tls://token@two",
    ];
    let samples = samples.map(|it| it.as_bytes().to_vec());
    let corpus = Corpus::new(InputForm::Bytes, samples).with_tokens(&[
        ".", "*", ">", "@", ":", "://", "%40", "%", ",", "hello", "worker", "observer",
    ]);
    let cluster = ClusterName::default();
    fuzz("subjects and addresses", &corpus, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return false };
        let _ = misnamed(&cluster, text);
        let shown = address::without_secrets(text);
        if let Some(password) = address::login(text).and_then(|login| login.password)
            && password.len() > 12
            && !text.contains('%')
            && text.matches(&*password).count() == 1
        // A host may have the same name.
        {
            assert!(!shown.contains(&password), "a password is shown: {shown}");
        }
        let _ = address::servers(text).count();
        ParsedSubject::read(&cluster, text).is_some()
    });
}
