//! What commands wrote, which their worker shows (ART-09).

use std::time::{Duration, Instant};

use tenure_core::features::{Features, OUTPUT};
use tenure_core::id::AttemptId;
use tenure_core::status::Role;
use tenure_core::view::ClaimResult;
use tenure_core::{Code, Rejection};
use tenure_wire::bus::V;
use tenure_wire::bus::output::{OutputAnswer, OutputPage, OutputRequest, OutputStream, ReadOutput};
use tenure_wire::bus::request::{Ask, RawBytes};
use tenure_wire::bus::subject::ClientName;

use crate::common::{Caller, Hand, Servers};
use crate::workers::one_grant;

/// A worker of these features that holds the one Step of a Task.
async fn holder(
    servers: &Servers,
    bob: &Caller,
    name: &str,
    features: Features,
) -> (Hand, ClaimResult) {
    let mut hand = Hand::unheard(servers, name).await;
    hand.hello_with(features).await;
    hand.room(1).await;
    bob.create(&format!("of-{name}"), &["a"]).await;
    let claim = one_grant(&mut hand).await;
    hand.room(0).await;
    (hand, claim)
}

fn ask(attempt_id: AttemptId, from: u64) -> Ask {
    Ask::ReadOutput(ReadOutput { attempt_id, stream: OutputStream::Stderr, from })
}

async fn read(bob: &Caller, claim: &ClaimResult, from: u64) -> Result<OutputPage, Rejection> {
    bob.ask(claim.task_id.as_str(), "unused", ask(claim.attempt_id, from)).await
}

/// The next request that comes to a worker, which states its room meanwhile.
async fn asked(hand: &mut Hand) -> OutputRequest {
    let begun = Instant::now();
    loop {
        let next = tokio::time::timeout(Duration::from_millis(500), hand.take()).await;
        hand.room(0).await;
        let mut all = next.into_iter().flatten();
        if let Some(asked) = all.find_map(|one| one.read_output) {
            return *asked;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "the worker is not asked");
    }
}

fn page(text: &[u8]) -> OutputPage {
    OutputPage { data: RawBytes(text.to_vec()), size_bytes: Some(9) }
}

async fn show(hand: &Hand, asked: &OutputRequest, page: OutputPage) {
    let answer = OutputAnswer { v: V, request: asked.request, page };
    hand.say(&format!("output.{}", asked.node), &answer).await;
}

/// ART-09: the owner has the worker of the Attempt read a page, and passes it on; also to observers.
#[tokio::test(flavor = "multi_thread")]
async fn the_worker_of_an_attempt_shows_what_its_command_writes() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let (mut ann, claim) = holder(&servers, &bob, "ann", Features::of([OUTPUT])).await;
    let shows = async {
        let asked = asked(&mut ann).await;
        assert_eq!((asked.step_id.as_str(), asked.ordinal, asked.from), ("a", 1, 4));
        assert_eq!((asked.task_id.as_str(), asked.stream), ("of-ann", OutputStream::Stderr));
        show(&ann, &asked, page(b"text")).await;
    };
    let (shown, ()) = tokio::join!(read(&bob, &claim, 4), shows);
    assert_eq!(shown.unwrap(), page(b"text"));

    let mut other = Caller::new(&servers).await;
    other.name = ClientName { session: "s2".parse().unwrap(), ..other.name };
    let absent = read(&other, &claim, 0).await.unwrap_err();
    assert_eq!(absent.code, Code::TaskNotFound, "another session does not see it");
    let nobody = AttemptId(uuid::Uuid::nil());
    let unknown = bob.ask::<OutputPage>("of-ann", "unused", ask(nobody, 0)).await.unwrap_err();
    assert_eq!(
        (unknown.code, &unknown.details["field"]),
        (Code::ValidationError, &"attempt_id".into())
    );
}

/// ART-09, PERM-15: an observer may see it, as it may read the Task.
#[tokio::test(flavor = "multi_thread")]
async fn an_observer_sees_what_commands_write() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let (mut ann, claim) = holder(&servers, &bob, "ann", Features::of([OUTPUT])).await;
    let mut eve = Caller::new(&servers).await;
    eve.name = ClientName { role: Role::Observer, ..eve.name };
    let options = async_nats::ConnectOptions::new().custom_inbox_prefix("_INBOX.observer.bob.b1");
    eve.client = options.connect(servers.url()).await.unwrap();
    let shows = async {
        let asked = asked(&mut ann).await;
        show(&ann, &asked, page(b"seen")).await;
    };
    let (shown, ()) = tokio::join!(read(&eve, &claim, 0), shows);
    assert_eq!(shown.unwrap(), page(b"seen"));
}

/// ART-09: who has gone, and who is too old to be asked, is said at once; who does not answer, in time.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_shows_nothing_is_named() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let (_old, claim) = holder(&servers, &bob, "old", Features::default()).await;
    let refused = read(&bob, &claim, 0).await.unwrap_err();
    assert_eq!((refused.code, &refused.details["feature"]), (Code::Unavailable, &OUTPUT.into()));

    let (mut mute, claim) = holder(&servers, &bob, "mute", Features::of([OUTPUT])).await;
    let silence = async {
        asked(&mut mute).await;
    };
    let (refused, ()) = tokio::join!(read(&bob, &claim, 0), silence);
    let refused = refused.unwrap_err();
    assert_eq!((refused.code, refused.details.get("feature")), (Code::Unavailable, None));

    mute.say("bye", &tenure_wire::bus::worker::Bye { v: V }).await;
    let begun = Instant::now();
    let gone = loop {
        let refused = read(&bob, &claim, 0).await.unwrap_err();
        if refused.code == Code::WorkerGone {
            break refused;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{refused}");
    };
    let named = (&gone.details["worker_id"], &gone.details["worker_host"]);
    assert_eq!(named, (&"mute.b1".into(), &"rack-7".into()));
}

/// ART-09: a worker has eight requests at a time; a ninth is refused at once and may come again.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_asked_for_a_few_pages_at_a_time() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let (mut ann, claim) = holder(&servers, &bob, "ann", Features::of([OUTPUT])).await;
    let eight = futures::future::join_all((0..8).map(|from| read(&bob, &claim, from)));
    let ninth = async {
        let mut came = Vec::new();
        while came.len() < 8 {
            let all = ann.take().await;
            came.extend(all.into_iter().filter_map(|one| one.read_output));
            ann.room(0).await;
        }
        let refused = read(&bob, &claim, 8).await.unwrap_err();
        assert_eq!(
            (refused.code, &refused.details["kind"]),
            (Code::Unavailable, &"overloaded".into())
        );
        for asked in &came {
            show(&ann, asked, page(asked.from.to_string().as_bytes())).await;
        }
    };
    let (shown, ()) = tokio::join!(eight, ninth);
    let shown: Vec<Vec<u8>> = shown.into_iter().map(|page| page.unwrap().data.0).collect();
    assert_eq!(shown, (0..8).map(|n: u64| n.to_string().into_bytes()).collect::<Vec<_>>());
}
