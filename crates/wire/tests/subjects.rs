//! Subjects: what they say, and of which cluster they are.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use tenure_core::status::Role;
use tenure_wire::bus::subject::{
    ClientName, ClientVerb, ClusterName, ParsedSubject, Token, WorkerName, WorkerVerb, event,
    is_inbox_of, misnamed, public, runtime,
};

fn worker() -> WorkerName {
    let (principal, boot) = (Token::new("alice").unwrap(), Token::new("b01").unwrap());
    WorkerName { pool: "gpu".parse().unwrap(), principal, boot }
}

#[test]
fn a_subject_says_who_speaks() {
    let cluster = ClusterName::default();
    let root = worker().root(&cluster);
    assert_eq!(root, "tenure.v1.worker.gpu.alice.b01");
    for (verb, read) in [
        ("hello", WorkerVerb::Hello),
        ("bye", WorkerVerb::Bye),
        ("hb", WorkerVerb::Heartbeat),
        ("node.n1", WorkerVerb::Room),
        ("output.n1", WorkerVerb::Output),
        ("report.3", WorkerVerb::Report(3)),
        ("query.0", WorkerVerb::Query(0)),
        ("look.7", WorkerVerb::Look(7)),
        ("blob.7", WorkerVerb::Blob(7)),
        ("claim.7", WorkerVerb::Claim(7)),
    ] {
        let heard = ParsedSubject::read(&cluster, &format!("{root}.{verb}"));
        assert_eq!(heard, Some(ParsedSubject::Worker(worker(), read)), "{verb}");
    }
    let client = ClientName {
        role: Role::Orchestrator,
        session: "s1".parse().unwrap(),
        principal: Token::new("Bob").unwrap(),
    };
    let heard = ParsedSubject::read(&cluster, "tenure.v1.orchestrator.s1.Bob.cmd.5");
    assert_eq!(heard, Some(ParsedSubject::Client(client.clone(), ClientVerb::Command(5))));
    let verbs = [
        ("hello", ClientVerb::Hello),
        ("nodes", ClientVerb::Nodes),
        ("drain", ClientVerb::Drain),
        ("import.5", ClientVerb::Import(5)),
    ];
    for (verb, read) in verbs {
        let subject = format!("{}.{verb}", client.root(&cluster));
        let heard = ParsedSubject::read(&cluster, &subject);
        assert_eq!(heard, Some(ParsedSubject::Client(client.clone(), read)), "{verb}");
    }
    assert_eq!(client.root(&cluster), "tenure.v1.orchestrator.s1.Bob");
    let wrong = [
        "tenure.v1.worker.gpu.alice.b01",
        "tenure.v1.worker.gpu.alice.b01.report",
        "tenure.v1.worker.gpu.alice.b01.report.x",
        "tenure.v1.worker.gpu.alice.b01.hb.more",
        "tenure.v1.worker.GPU.alice.b01.hb",
        "tenure.v1.worker.gpu.al ice.b01.hb",
        "tenure.v1.worker.gpu..b01.hb",
        "tenure.v2.worker.gpu.alice.b01.hb",
        "tenure.v1.sub_agent.s1.x.cmd.1",
        "tenure.v1.orchestrator.s1.Bob.cmd.5.6",
        "",
    ];
    for subject in wrong {
        assert_eq!(ParsedSubject::read(&cluster, subject), None, "{subject}");
    }
}

/// EVENT-07: whoever may hear of a session's Tasks hears of their Runs.
#[test]
fn events_have_a_subject_for_each_task() {
    let (session, task) = ("s1".parse().unwrap(), "t".parse().unwrap());
    let cluster = ClusterName::default();
    assert_eq!(event(&cluster, &session, Some(&task)), "tenure.v1.event.s1.t");
    assert_eq!(event(&cluster, &session, None), "tenure.v1.event.s1.*");
    assert_eq!(public(&cluster, &session, &task), "tenure.v1.event.s1.t.public");
    assert_eq!(runtime(&cluster, &session, Some(&task)), "tenure.v1.event.s1.t.runtime");
    assert_eq!(runtime(&cluster, &session, None), "tenure.v1.event.s1.*.runtime");
}

/// OWN-01: a cluster of another name has subjects of its own, and reads no others.
#[test]
fn subjects_begin_with_the_name_of_the_cluster() {
    let (usual, other) = (ClusterName::default(), ClusterName::new("Orders-2").unwrap());
    assert_eq!(ClusterName::new("TENURE").unwrap(), usual);
    assert!(usual.is_default() && !other.is_default());
    assert_eq!((other.as_str(), &*other.key_prefix()), ("Orders-2", "orders-2"));
    let subject = format!("{}.hb", worker().root(&other));
    assert_eq!(subject, "orders-2.v1.worker.gpu.alice.b01.hb");
    let heard = ParsedSubject::Worker(worker(), WorkerVerb::Heartbeat);
    assert_eq!(ParsedSubject::read(&other, &subject), Some(heard));
    assert_eq!(ParsedSubject::read(&usual, &subject), None);
    let subject = format!("{}.hb", worker().root(&usual));
    assert_eq!(ParsedSubject::read(&other, &subject), None);
    let session = "s1".parse().unwrap();
    assert_eq!(runtime(&other, &session, None), "orders-2.v1.event.s1.*.runtime");
    let hello = "orders-2.v1.worker.GPU.alice.b01.hello";
    assert_eq!(misnamed(&other, hello).map(|it| it.pool), Some("GPU"));
    assert_eq!(misnamed(&usual, hello), None);
}

/// OWN-01: the name of a cluster stands in subjects, and in the names of streams and keys. So it has 1 to 64
/// characters, and none that means something there.
#[test]
fn a_name_of_a_cluster_has_a_form() {
    let (longest, over) = ("Z".repeat(64), "Z".repeat(65));
    for right in ["a", "0", "-", "_", "Orders-2_b", longest.as_str()] {
        let name = ClusterName::new(right).unwrap();
        assert_eq!(name.as_str(), right);
        assert_eq!(name.to_string(), right);
        assert_eq!(name.root(), format!("{}.v1", right.to_lowercase()));
        assert_eq!(right.parse::<ClusterName>(), Ok(name));
    }
    let other = ["", "a.b", ".", "a*", "a>", "a b", "a/b", "a:b", "{a}", "$a", "a\n", "ä"];
    for wrong in other.into_iter().chain([&*over]) {
        let refused = ClusterName::new(wrong).unwrap_err();
        assert!(refused.to_string().starts_with("cluster "), "{refused}");
        assert_eq!(wrong.parse::<ClusterName>(), Err(refused), "{wrong}");
    }
}

/// Mechanisms 15: an answer goes to whoever asked and to nobody else.
#[test]
fn only_an_inbox_of_the_sender_is_answered() {
    let alice = Token::new("alice").unwrap();
    let is_own = |reply: &str| is_inbox_of(reply, Role::Worker, &alice);
    assert!(is_own("_INBOX.worker.alice.b01.r.7"));
    assert!(is_own(&format!("{}.r.7", worker().inbox())));
    let others = [
        "_INBOX.worker.bob.b01.r.7",
        "_INBOX.orchestrator.alice.b01.r.7",
        "_INBOX.worker.alice",
        "_INBOX.worker.alice.",
        "_INBOX.worker.alice.>",
        "_INBOX.worker.alicex.b01",
        "tenure.wal.0",
        "$JS.API.STREAM.DELETE.TENURE_WAL_0",
    ];
    for other in others {
        assert!(!is_own(other), "{other}");
    }
}
