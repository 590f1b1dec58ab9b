//! A worker sends messages that a client library cannot read, and that the server forwards all the same.

use anyhow::{Result, ensure};
use tenure_tests::cluster::{PATIENCE, until};

use crate::common::judge::{Attack, Going, Told, check_connections};
use crate::common::raw::{RawClient, frame};
use crate::common::stage::{ANYBODY, LOOK, Stage};
use crate::common::victim::{Victim, Way};

pub(crate) const ATTACK: Attack = Attack {
    name: "malformed",
    is_in_short: true,
    way: Way::Nats,
    // What cannot be read names nobody who could be answered. The node counts it, and logs the counts.
    refused: None,
    memory_mib: 512,
    run,
};

/// What a token of a subject, or of a reply subject, may have in it as far as the server is concerned. With spaces
/// of Unicode, words come from nowhere: a subscription, a reply, a length.
const TOKENS: [&[u8]; 12] = [
    b"\xff",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"a\x00b",
    b"a\x0bb",
    b"\x0c",
    b"a\x0b1\x0bx\x0b12",
    "a\u{a0}2".as_bytes(),
    "a\u{2003}1\u{2003}5".as_bytes(),
    "\u{85}".as_bytes(),
    "\u{2028}\u{2029}".as_bytes(),
    b"\x1b[31m\x7f",
];

/// What headers may be as far as the server is concerned.
const HEADS: [&[u8]; 24] = [
    b"\x00",
    b"\r\n",
    b"\n",
    b"\r\r\n\n",
    b"\xff\xfe\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n",
    b"NATS/1.0",
    b"NATS/1.0\r",
    b"nats/1.0\r\n\r\n",
    b"NATS/1.1\r\n\r\n",
    b" NATS/1.0\r\n\r\n",
    b"NATS/1.0 abc\r\n\r\n",
    b"NATS/1.0 99999999999999999999 x\r\n\r\n",
    b"NATS/1.0 099 \xff\r\n\r\n",
    b"NATS/1.0 -1\r\n\r\n",
    b"NATS/1.0\xc2\xa0200\xc2\xa0\r\n\r\n",
    b"NATS/1.0\r\nno colon\r\n\r\n",
    b"NATS/1.0\r\n: no name\r\n\r\n",
    b"NATS/1.0\r\na b: space in the name\r\n\r\n",
    b"NATS/1.0\r\na\xff: x\r\n\r\n",
    b"NATS/1.0\r\na: \xff\r\n\r\n",
    b"NATS/1.0\r\na: x\ry: z\r\n\r\n",
    b"NATS/1.0\r\n\x01: x\r\n\r\n",
    b"NATS/1.0\r\n folded from nowhere\r\n\r\n",
];

/// What the server itself refuses, each on a connection of its own, which it may close.
const REFUSED: [&[u8]; 12] = [
    b"PUB tenure.v1.node.x.alive -1\r\n\r\n",
    b"PUB tenure.v1.node.x.alive 99999999999999999999999\r\nx\r\n",
    b"PUB tenure.v1.node.x.alive 4294967297\r\nx\r\n",
    b"PUB tenure.v1.node.x.alive 1048577\r\nx\r\n",
    b"PUB tenure.v1.node.x.alive 1e3\r\nx\r\n",
    b"HPUB tenure.v1.node.x.alive 10 5\r\nhello\r\n",
    b"HPUB tenure.v1.node.x.alive -1 5\r\nhello\r\n",
    b"HPUB tenure.v1.node.x.alive 0 5\r\nhello\r\n",
    b"PUB tenure.v1.node.x.alive 3\r\nlonger than that\r\n",
    b"PUB  5\r\nhello\r\n",
    b"PUB a\rb.alive 5\r\nhello\r\n",
    b"MSG tenure.v1.node.x.alive 1 5\r\nhello\r\n",
];

/// Everything malformed that can be sent to whom listens to a subject.
fn frames(pattern: &str) -> Vec<Vec<u8>> {
    let concrete = |token: &[u8]| -> Vec<u8> {
        let tokens = pattern.split('.').map(|it| match it {
            "*" | ">" => token,
            other => other.as_bytes(),
        });
        tokens.collect::<Vec<_>>().join(&b'.')
    };
    let (plain, mut all) = (concrete(b"x"), Vec::new());
    let reply = |token: &[u8]| [b"_INBOX.worker.worker-2.", token].concat();
    for token in TOKENS {
        // With a dot in it, it is two tokens, and the subject is another's.
        if plain != pattern.as_bytes() && !token.contains(&b'.') {
            all.push(frame(&concrete(token), None, None, b"x"));
            all.push(frame(&concrete(token), Some(&reply(token)), Some(b"NATS/1.0\r\n\r\n"), b""));
        }
        all.push(frame(&plain, Some(&reply(token)), None, b"x"));
        all.push(frame(&plain, Some(&reply(token)), Some(b"NATS/1.0\r\n\r\n"), b"x"));
    }
    for head in HEADS {
        all.push(frame(&plain, None, Some(head), b"x"));
        all.push(frame(&plain, Some(&reply(b"r")), Some(head), b""));
    }
    let long = [b"NATS/1.0\r\n".as_slice(), &b"a:\n".repeat(20_000), b"\r\n"].concat();
    all.push(frame(&plain, None, Some(&long), b""));
    all
}

/// Sends bytes that the server may refuse by closing the connection.
fn send_refused(mut client: RawClient, bytes: &[u8]) {
    // Whether it was closed is the server's business, and seen in what others have of it.
    let _ = client.send(bytes).and_then(|()| client.flush());
}

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    let (mut told, mut client) = (Told::default(), stage.raw("worker-2")?);
    let own = ["hello", "hb", "report.0", "query.0", "claim.0", "look.0", "blob.0"];
    let own = own.map(|verb| frames(&format!("tenure.v1.worker.other.worker-2.*.{verb}")));
    while going.is_on() {
        for bytes in own.iter().flatten() {
            client.send(bytes)?;
            told.sent += 1;
        }
        client.flush()?;
        std::thread::sleep(LOOK);
    }
    Ok(told)
}

/// Mechanisms 15: whatever bytes the server forwards, to whatever a node, a gateway, a worker or a client listens to,
/// they end no connection, and everybody goes on.
#[test]
fn no_message_ends_a_connection() -> Result<()> {
    let stage = Stage::start()?;
    let done = send_everything(&stage);
    if done.is_err() {
        println!("{}", stage.tails());
    }
    done
}

fn send_everything(stage: &Stage) -> Result<()> {
    let mut victim = Victim::start(stage)?;
    let waits = ["task", "wait", "held", "--session", "main", "--timeout", "600"];
    let _waits = stage.program("waits", "orchestrator-1", &waits)?;
    let clients = |connection: &str| connection.contains("orchestrator-1");
    until("a client listens", PATIENCE, || {
        let all = stage.connz()?;
        Ok(all.iter().any(|one| clients(&one.name) && !one.subjects.is_empty()))
    })?;
    victim.measure(Way::Gateway, LOOK)?;
    let (before, connections) = (stage.connections()?, stage.connz()?);
    for part in ["control", "intake", "journal", "gateway", "worker-1", "orchestrator-1"] {
        let is_there = before.iter().any(|(name, _)| name.ends_with(part));
        ensure!(is_there, "nobody is called {part}: {before:?}");
    }
    let mut client = stage.raw(ANYBODY)?;
    for connection in &connections {
        let sent: Vec<Vec<u8>> = connection.subjects.iter().flat_map(|it| frames(it)).collect();
        println!("{}: {} messages to {:?}", connection.name, sent.len(), connection.subjects);
        ensure!(!sent.is_empty(), "{} listens to nothing", connection.name);
        for bytes in &sent {
            client.send(bytes)?;
        }
        client.flush()?;
        ensure!(client.errors.is_empty(), "the server refuses some: {:?}", client.errors);
        // They have come there, or have cut the connection.
        until("they were forwarded", PATIENCE, || {
            let now = stage.connz()?.into_iter().find(|one| one.id == connection.id);
            Ok(now.is_none_or(|now| now.sent >= connection.sent + sent.len() as u64))
        })?;
    }
    for bytes in REFUSED {
        send_refused(stage.raw(ANYBODY)?, bytes);
    }
    for way in [Way::Nats, Way::Gateway] {
        victim.measure(way, LOOK)?;
    }
    check_connections(&before, &stage.connections()?)?;
    victim.check_leases()
}
