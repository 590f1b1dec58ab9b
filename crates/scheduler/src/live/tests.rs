//! The bounds of a session and of a node, and places in memory.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use tenure_core::Code;

use super::*;

fn session(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

fn maker(id: &str) -> AgentId {
    AgentId::new(id).unwrap()
}

/// Counts a Task whose session and maker have the same name.
fn count(live: &Arc<LiveTasks>, who: &str, bytes: u64) -> LiveShare {
    live.count(&session(who), &maker(who), bytes, None)
}

/// Whether there may be one more Task of a session and a maker of the same name.
fn admit(live: &LiveTasks, who: &str) -> Result<(), Rejection> {
    live.admit_task(&session(who), &maker(who))
}

const FEW: LiveTaskLimits = LiveTaskLimits {
    session_tasks: 2,
    session_bytes: 1_000,
    tasks: 3,
    bytes: 10_000,
    memory: 4 * TASK_BYTES,
};

/// LIVE-01: a session at its bound costs no other session its Tasks, and nothing is remembered of what has ended.
#[test]
fn each_session_has_its_bounds_and_the_node_has_its_own() {
    let live = LiveTasks::new(FEW);
    let mut of_eve = vec![count(&live, "eve", 10), count(&live, "eve", 10)];
    let refused = admit(&live, "eve").unwrap_err();
    assert_eq!((refused.code, refused.details["limit"].as_u64()), (Code::QuotaExceeded, Some(2)));
    assert!(refused.message.contains("--session-tasks"), "{refused}");
    admit(&live, "bob").unwrap();
    let of_bob = count(&live, "bob", 10);
    let refused = admit(&live, "ann").unwrap_err();
    assert_eq!(refused.code, Code::Unavailable);
    assert!(refused.message.contains("--live-tasks"), "{refused}");
    of_eve.pop();
    admit(&live, "ann").unwrap();
    of_eve[0].note_bytes(1_000);
    assert_eq!(live.admit_growth(&of_eve[0]).unwrap_err().code, Code::QuotaExceeded);
    live.admit_growth(&of_bob).unwrap();
    assert_eq!(live.now().bytes, 1_010);
    of_eve[0].note_bytes(20);
    live.admit_growth(&of_eve[0]).unwrap();
    of_eve[0].note_bytes(FEW.memory / TASK_PART);
    let refused = live.admit_growth(&of_eve[0]).unwrap_err();
    assert!(refused.message.contains("--memory"), "{refused}");
    drop((of_eve, of_bob));
    let LiveSample { tasks, bytes, memory, .. } = live.now();
    assert_eq!((tasks, bytes, memory), (0, 0, 0));
    assert!(live.sessions.lock().is_empty() && live.makers.lock().is_empty());
}

/// LIVE-02: a Task gets a place when another is put away, and is refused for now if none is.
#[tokio::test(start_paused = true)]
async fn a_task_waits_for_its_place() {
    let live = LiveTasks::new(FEW);
    let mut all: Vec<LiveShare> = (0..4).map(|_| count(&live, "s", 0)).collect();
    assert_eq!(admit(&live, "other").unwrap_err().code, Code::Unavailable);
    let why = live.place(PlaceOwner::Unread, 0).await.map(drop).unwrap_err();
    assert!(why.contains("--memory"), "{why}");
    assert!(live.surplus() > 0);
    let waits = tokio::spawn({
        let live = Arc::clone(&live);
        async move { live.place(PlaceOwner::Unread, 0).await }
    });
    tokio::task::yield_now().await;
    all[0].put_away();
    let place = waits.await.unwrap().unwrap();
    all[0].bring_back(place);
    drop(all);
    let small = count(&live, "s", 0);
    let large = tokio::spawn({
        let live = Arc::clone(&live);
        async move { live.place(PlaceOwner::Unread, 3 * TASK_BYTES).await }
    });
    tokio::task::yield_now().await;
    assert_eq!(live.surplus(), TASK_BYTES, "there is little, and not enough beside it");
    assert_eq!(live.surplus(), TASK_BYTES, "nothing was put away, and it waits as before");
    drop(small);
    drop(large.await.unwrap().unwrap());
    assert!(live.wanted.lock().is_empty(), "nobody waits");
    let whole = live.place(PlaceOwner::Unread, 1 << 40).await.unwrap();
    assert_eq!(live.now().memory, (1 << 40) + TASK_BYTES);
    drop(whole);
    assert_eq!((live.now().memory, live.now().unplaced), (0, 1));
}

/// LIVE-01: whoever makes Tasks in many sessions leaves a quarter of what the node may have to others.
#[test]
fn many_sessions_of_one_maker_have_one_share() {
    let limits = LiveTaskLimits { tasks: 100, bytes: 100_000, ..LiveTaskLimits::default() };
    let live = LiveTasks::new(limits);
    let eve = maker("eve");
    let of_eve: Vec<LiveShare> = (0..75)
        .map(|n| {
            let session = session(&format!("s{n}"));
            live.admit_task(&session, &eve).unwrap();
            live.count(&session, &eve, 10, None)
        })
        .collect();
    let refused = live.admit_task(&session("more"), &eve).unwrap_err();
    assert_eq!((refused.code, refused.details["limit"].as_u64()), (Code::Unavailable, Some(75)));
    assert!(refused.message.contains("--live-tasks"), "{refused}");
    live.admit_growth(&of_eve[0]).unwrap(); // That makes no Task more.
    live.admit_task(&session("s0"), &maker("bob")).unwrap();
    drop(of_eve);
    live.admit_task(&session("more"), &eve).unwrap();
    let large = count(&live, "eve", 75_000);
    let refused = live.admit_growth(&large).unwrap_err();
    assert_eq!(
        (refused.code, refused.details["limit"].as_u64()),
        (Code::Unavailable, Some(75_000))
    );
    assert!(refused.message.contains("--live-bytes"), "{refused}");
    live.admit_growth(&count(&live, "bob", 10)).unwrap();
    drop(large);
    live.admit_growth(&count(&live, "eve", 74_990)).unwrap();
}

/// LIVE-02: what one session, or one maker of Tasks, has at work leaves a quarter of the memory to others, and each of
/// these leaves some to the next; what is not at work counts for nobody.
#[tokio::test(start_paused = true)]
async fn tasks_at_work_leave_memory_to_others() {
    let memory = 100 * TASK_BYTES;
    let live = LiveTasks::new(LiveTaskLimits { memory, ..LiveTaskLimits::default() });
    let (eve, one) = (maker("eve"), session("one"));
    // At first one session of many makers, and then one maker in many sessions.
    for is_session in [true, false] {
        let share = |n: usize| match is_session {
            true => live.count(&one, &maker(&format!("m{n}")), 0, None),
            false => live.count(&session(&format!("s{n}")), &eve, 0, None),
        };
        let mut of_eve: Vec<LiveShare> = (0..75).map(share).collect();
        for share in &mut of_eve {
            live.admit_growth(share).unwrap();
            share.note_work(true);
        }
        let refused = live.admit_growth(&of_eve[0]).unwrap_err();
        assert_eq!(refused.code, Code::Unavailable);
        assert!(refused.message.contains("--memory"), "{refused}");
        let refused = live.admit_task(&one, &eve).unwrap_err();
        assert_eq!(refused.code, Code::Unavailable, "{refused}");
        let mut away = share(0);
        away.put_away();
        let why = live.place(PlaceOwner::Share(&away), 0).await.map(drop).unwrap_err();
        assert!(why.contains("--memory"), "{why}");
        drop(away);
        live.place(PlaceOwner::Unread, 0).await.map(drop).unwrap(); // Somebody may be at work on it.

        let mut of_bob: Vec<LiveShare> = (0..18).map(|_| count(&live, "bob", 0)).collect();
        for share in &mut of_bob {
            admit(&live, "bob").unwrap();
            live.admit_growth(share).unwrap();
            share.note_work(true);
        }
        drop(live.place(PlaceOwner::Share(&of_bob[0]), 0).await.unwrap());
        of_bob.push(count(&live, "bob", 0));
        of_bob[18].note_work(true);
        assert_eq!(live.admit_growth(&of_bob[0]).unwrap_err().code, Code::Unavailable);
        live.admit_growth(&count(&live, "ann", 0)).unwrap();
        of_bob.clear();
        of_eve[0].note_work(false);
        of_eve[1].put_away();
        live.admit_growth(&of_eve[2]).unwrap();
        drop(of_eve);
        assert_eq!((live.all.at_work.load(Ordering::Relaxed), live.now().memory), (0, 0));
    }
}

/// LIVE-02: whoever reads Tasks that have ended leaves a quarter of the memory to live ones.
#[tokio::test(start_paused = true)]
async fn reads_of_ended_tasks_leave_memory_to_live_ones() {
    let live = LiveTasks::new(LiveTaskLimits { memory: 100 * TASK_BYTES, ..FEW });
    let of_ended = live.place(PlaceOwner::Ended, 49 * TASK_BYTES).await.unwrap();
    let more = live.place(PlaceOwner::Ended, 24 * TASK_BYTES).await.unwrap();
    live.place(PlaceOwner::Ended, 0).await.map(drop).unwrap_err();
    admit(&live, "ann").unwrap();
    drop(live.place(PlaceOwner::Unread, 24 * TASK_BYTES).await.unwrap());
    let waits = tokio::spawn({
        let live = Arc::clone(&live);
        async move { live.place(PlaceOwner::Ended, 10 * TASK_BYTES).await }
    });
    tokio::task::yield_now().await;
    assert!(live.surplus() >= 11 * TASK_BYTES, "Tasks are put away for it");
    drop(more);
    drop(waits.await.unwrap().unwrap());
    drop(of_ended);
    let whole = live.place(PlaceOwner::Ended, 1 << 40).await.unwrap();
    assert!(live.place(PlaceOwner::Ended, 0).await.is_err(), "the first may be of any size");
    drop(whole);
}
