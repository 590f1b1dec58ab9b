//! The conformance suite of journals.

use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;

use futures::future::{join, join_all};
use parking_lot::Mutex;
use tenure_core::Commit;
use tenure_core::id::SessionId;
use tenure_core::status::End;
use tenure_ports::journal::{AppendError, EncodedSnapshot, Entry, Journal, ReadError, TaskKey};

use super::history::{History, labels, title};

/// Every commit of a log.
pub async fn read_all<J: Journal>(journal: &J, key: &TaskKey) -> Result<Vec<Commit>, ReadError> {
    let commits = Arc::new(Mutex::new(Vec::new()));
    let into = commits.clone();
    journal
        .read(key, 0, move |commit| {
            into.lock().push(commit);
            ControlFlow::Continue(())
        })
        .await?;
    Ok(std::mem::take(&mut commits.lock()))
}

/// The contract of [`Journal`]. `make` gives a fresh journal and what must outlive it.
pub async fn journal_suite<J, G, F>(make: impl Fn() -> F)
where
    J: Journal,
    F: Future<Output = (J, G)>,
{
    macro_rules! run {
        ($($check:ident),+ $(,)?) => {$({
            let (journal, _guard) = make().await;
            $check(&journal).await;
        })+};
    }
    run!(
        what_was_written_is_read,
        a_create_may_carry_several_commits,
        a_wrong_expectation_is_fenced,
        commits_that_do_not_follow_are_refused,
        a_log_starts_with_its_creation,
        a_task_is_created_once,
        ids_are_of_their_session,
        one_of_many_creates_wins,
        what_does_not_exist_is_not_found,
        a_read_may_break_off,
        a_read_may_begin_behind_any_commit,
        a_kept_state_is_read_as_it_was_given,
        entries_follow_the_log,
        an_end_is_an_end_whatever_follows,
        a_released_task_goes_on,
        tasks_run_in_parallel,
        a_reader_sees_whole_commits,
    );
}

/// Checks a journal in which the names of logs are names of files (STORE-14).
pub async fn names_suite<J, G, F>(make: impl Fn() -> F)
where
    J: Journal,
    F: Future<Output = (J, G)>,
{
    let (journal, _guard) = make().await;
    a_name_is_taken_once(&journal).await;
}

async fn create<J: Journal>(journal: &J, history: &mut History) {
    let commit = history.create();
    journal.create(&history.key, &history.wal_name, vec![commit]).await.unwrap();
}

async fn append<J: Journal>(
    journal: &J,
    history: &History,
    after: u64,
    commits: Vec<Arc<Commit>>,
) -> Result<(), AppendError> {
    journal.append(&history.key, after, commits).await
}

async fn work<J: Journal>(journal: &J, history: &mut History, events: usize) {
    let after = history.last_seq();
    let commit = history.work(events);
    append(journal, history, after, vec![commit]).await.unwrap();
}

async fn assert_holds<J: Journal>(journal: &J, history: &History) {
    let read = read_all(journal, &history.key).await.unwrap();
    assert!(read.iter().eq(history.commits.iter().map(|c| &**c)), "{read:#?}");
}

async fn entry<J: Journal>(journal: &J, history: &History) -> Entry {
    journal.entry(&history.key).await.unwrap().expect("the task is in the index")
}

/// WAL-01, WAL-08
async fn what_was_written_is_read<J: Journal>(journal: &J) {
    let mut history = History::of("s", "t").on(journal);
    create(journal, &mut history).await;
    assert_holds(journal, &history).await;
    work(journal, &mut history, 1).await;
    work(journal, &mut history, 3).await;
    let after = history.last_seq();
    let together = vec![history.work(2), history.work(1), history.complete()];
    append(journal, &history, after, together).await.unwrap();
    assert_holds(journal, &history).await;
}

/// WAL-08
async fn a_create_may_carry_several_commits<J: Journal>(journal: &J) {
    let mut history = History::of("s", "t").on(journal);
    let commits = vec![history.create(), history.work(2), history.complete()];
    journal.create(&history.key, &history.wal_name, commits).await.unwrap();
    assert_holds(journal, &history).await;
    assert_eq!(entry(journal, &history).await.ended, Some(End::Completed));
}

/// WAL-04, WAL-05
async fn a_wrong_expectation_is_fenced<J: Journal>(journal: &J) {
    let mut history = History::of("s", "t").on(journal);
    create(journal, &mut history).await;
    let last = history.last_seq();
    let kept = history.clone();
    let commit = history.work(1);
    for wrong in [0, last - 1, last + 1] {
        let refused = append(journal, &history, wrong, vec![commit.clone()]).await;
        assert!(
            matches!(refused, Err(AppendError::Fenced { expected, last: is }) if expected == wrong && is == last),
            "{refused:?}"
        );
        assert_holds(journal, &kept).await;
    }
    append(journal, &history, last, vec![commit]).await.unwrap();
    assert_holds(journal, &history).await;
}

/// WAL-04
async fn commits_that_do_not_follow_are_refused<J: Journal>(journal: &J) {
    let mut history = History::of("s", "t").on(journal);
    create(journal, &mut history).await;
    let last = history.last_seq();
    let kept = history.clone();
    let (first, second) = (history.work(1), history.work(1));
    let empty = Arc::new(Commit { events: Vec::new(), ..Commit::clone(&first) });
    for wrong in [vec![second.clone()], vec![first.clone(), first.clone()], vec![empty]] {
        let refused = append(journal, &history, last, wrong).await;
        assert!(matches!(refused, Err(AppendError::Failed(_))), "{refused:?}");
        assert_holds(journal, &kept).await;
    }
    append(journal, &history, last, vec![first, second]).await.unwrap();
    assert_holds(journal, &history).await;
}

/// STORE-06, WAL-04
async fn a_log_starts_with_its_creation<J: Journal>(journal: &J) {
    let mut history = History::of("s", "t").on(journal);
    let stray = history.work(1);
    for wrong in [vec![], vec![stray]] {
        let refused = journal.create(&history.key, &history.wal_name, wrong).await;
        assert!(matches!(refused, Err(AppendError::Failed(_))), "{refused:?}");
    }
    assert_eq!(journal.entry(&history.key).await, Ok(None));
    history.commits.clear();
    create(journal, &mut history).await;
    assert_holds(journal, &history).await;
}

/// ID-03, OWN-07
async fn a_task_is_created_once<J: Journal>(journal: &J) {
    let mut history = History::of("s", "t").on(journal);
    create(journal, &mut history).await;
    for name in ["t", "other"] {
        let mut second = History::named("s", "t", name).on(journal);
        let commit = second.create();
        let refused = journal.create(&second.key, &second.wal_name, vec![commit]).await;
        assert!(matches!(refused, Err(AppendError::TaskExists)), "{refused:?}");
    }
    assert_holds(journal, &history).await;
}

/// ID-03
async fn ids_are_of_their_session<J: Journal>(journal: &J) {
    let mut histories = [
        History::of("one", "t").on(journal),
        History::of("two", "t").on(journal),
        History::of("one", "u").on(journal),
    ];
    for history in &mut histories {
        create(journal, history).await;
        work(journal, history, 1).await;
    }
    for history in &histories {
        assert_holds(journal, history).await;
    }
    let one = SessionId::new("one").unwrap();
    let found = journal.entries(Some(&one)).await.unwrap();
    let mut names: Vec<_> = found.iter().map(|entry| entry.key.to_string()).collect();
    names.sort_unstable();
    assert_eq!(names, ["one/t", "one/u"]);
    assert_eq!(journal.entries(None).await.unwrap().len(), 3);
    let none = SessionId::new("none").unwrap();
    assert_eq!(journal.entries(Some(&none)).await, Ok(Vec::new()));
}

/// OWN-07, ID-03
async fn one_of_many_creates_wins<J: Journal>(journal: &J) {
    let mut history = History::of("s", "t").on(journal);
    let commit = history.create();
    let creates =
        (0..16).map(|_| journal.create(&history.key, &history.wal_name, vec![commit.clone()]));
    let results = join_all(creates).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    let lost = |result: &&Result<(), AppendError>| matches!(result, Err(AppendError::TaskExists));
    assert_eq!(results.iter().filter(lost).count(), 15, "{results:?}");
    assert_holds(journal, &history).await;
}

async fn what_does_not_exist_is_not_found<J: Journal>(journal: &J) {
    let mut history = History::of("s", "t").on(journal);
    assert_eq!(read_all(journal, &history.key).await, Err(ReadError::NotFound));
    assert_eq!(journal.entry(&history.key).await, Ok(None));
    let commit = history.work(1);
    let refused = append(journal, &history, 0, vec![commit]).await;
    assert!(matches!(refused, Err(AppendError::Failed(_))), "{refused:?}");
    assert_eq!(journal.entry(&history.key).await, Ok(None));
}

async fn a_read_may_break_off<J: Journal>(journal: &J) {
    let mut history = History::of("s", "t").on(journal);
    create(journal, &mut history).await;
    for _ in 0..3 {
        work(journal, &mut history, 2).await;
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let into = seen.clone();
    let first_two = move |commit: Commit| {
        let mut seen = into.lock();
        seen.push(commit.first_seq);
        if seen.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    journal.read(&history.key, 0, first_two).await.unwrap();
    assert_eq!(*seen.lock(), [1, 4]);
}

async fn a_read_may_begin_behind_any_commit<J: Journal>(journal: &J) {
    let mut history = History::of("s", "t").on(journal);
    create(journal, &mut history).await;
    for n in 0..200 {
        work(journal, &mut history, 1 + n % 7).await;
    }
    let ends: Vec<u64> = history.commits.iter().map(|commit| commit.last_seq()).collect();
    for (at, after) in ends.into_iter().enumerate() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = seen.clone();
        let each = move |commit: Commit| {
            into.lock().push(commit);
            ControlFlow::Continue(())
        };
        journal.read(&history.key, after, each).await.unwrap();
        assert!(seen.lock().iter().eq(history.commits[at + 1..].iter().map(|c| &**c)), "{after}");
    }
    let last = history.last_seq();
    for first in (1..=last).step_by(37) {
        for part in [first..=first, first..=first + 10, first..=u64::MAX] {
            let seen = Arc::new(Mutex::new(Vec::new()));
            let into = seen.clone();
            let each = move |commit: Commit| {
                into.lock().push(commit);
                ControlFlow::Continue(())
            };
            journal.read_part(&history.key, part.clone(), each).await.unwrap();
            let has_some =
                |c: &&Arc<Commit>| c.first_seq <= *part.end() && c.last_seq() >= *part.start();
            let expected = history.commits.iter().filter(has_some).map(|c| &**c);
            assert!(seen.lock().iter().eq(expected), "{part:?}");
        }
    }
}

/// Mechanisms 5: a journal that wants snapshots stores them. It returns the newest one that it was
/// given, of a place in the log.
async fn a_kept_state_is_read_as_it_was_given<J: Journal>(journal: &J) {
    let wants = journal.wanted().is_some();
    let mut history = History::of("s", "t").on(journal);
    let folded =
        |version: u64| EncodedSnapshot { version, bytes: version.to_le_bytes().repeat(50_000) };
    journal.keep(&history.key, folded(1)).await; // There is no such Task.
    assert_eq!(journal.kept(&history.key, u64::MAX).await, None);
    create(journal, &mut history).await;
    let other = History::of("s", "other").on(journal);
    for _ in 0..5 {
        work(journal, &mut history, 2).await;
        let given = folded(history.last_seq());
        journal.keep(&history.key, given.clone()).await;
        work(journal, &mut history, 1).await;
        let kept = journal.kept(&history.key, u64::MAX).await;
        assert!(kept.map_or(!wants, |kept| kept == given));
        assert_eq!(journal.kept(&history.key, given.version - 1).await, None, "it is later");
        assert_eq!(journal.kept(&other.key, u64::MAX).await, None);
    }
    assert_holds(journal, &history).await;
}

/// RECOVER-02, P08
async fn entries_follow_the_log<J: Journal>(journal: &J) {
    let mut history = History::named("s", "t", "some-name").on(journal);
    create(journal, &mut history).await;
    let mut expected = Entry {
        key: history.key.clone(),
        wal_name: history.wal_name.clone(),
        title: title(&history.key.task_id),
        labels: labels(),
        created_at: history.updated_at(),
        updated_at: history.updated_at(),
        ended: None,
        archived: false,
        damaged: false,
    };
    assert_eq!(entry(journal, &history).await, expected);
    let after = history.last_seq();
    let end = history.complete();
    append(journal, &history, after, vec![end]).await.unwrap();
    expected.ended = Some(End::Completed);
    expected.updated_at = history.updated_at();
    assert_eq!(entry(journal, &history).await, expected);
    assert_eq!(journal.entries(None).await, Ok(vec![expected]));

    let mut lost = History::of("s", "lost").on(journal);
    create(journal, &mut lost).await;
    let after = lost.last_seq();
    let end = lost.lose();
    append(journal, &lost, after, vec![end]).await.unwrap();
    assert_eq!(entry(journal, &lost).await.ended, Some(End::Lost));
}

/// RECOVER-02, STORE-15
async fn an_end_is_an_end_whatever_follows<J: Journal>(journal: &J) {
    let mut history = History::of("s", "t").on(journal);
    create(journal, &mut history).await;
    let mut after = history.last_seq();
    let ending = [history.complete(), history.deliver(), history.archive(), history.deliver()];
    for commit in ending.into_iter().chain([history.note()]) {
        append(journal, &history, after, vec![commit.clone()]).await.unwrap();
        after = commit.last_seq();
        let entry = entry(journal, &history).await;
        assert_eq!(entry.ended, Some(End::Completed));
        assert_eq!(entry.updated_at, commit.created_at);
        assert_eq!(entry.archived, after >= 6);
    }
    assert_holds(journal, &history).await;
}

async fn a_released_task_goes_on<J: Journal>(journal: &J) {
    let mut history = History::of("s", "t").on(journal);
    journal.release(&history.key);
    create(journal, &mut history).await;
    for _ in 0..3 {
        journal.release(&history.key);
        work(journal, &mut history, 1).await;
        journal.release(&history.key);
        assert_holds(journal, &history).await;
    }
}

/// STORE-07, WAL-05: a session has many live Tasks at a time, each with its own history.
async fn tasks_run_in_parallel<J: Journal>(journal: &J) {
    let lives = (0..40).map(|n| async move {
        let mut history = History::of(["s0", "s1", "s2"][n % 3], &format!("t{n}")).on(journal);
        create(journal, &mut history).await;
        for round in 0..10 {
            work(journal, &mut history, 1 + (n + round) % 3).await;
        }
        history
    });
    let histories = join_all(lives).await;
    for history in &histories {
        assert_holds(journal, history).await;
    }
    assert_eq!(journal.entries(None).await.unwrap().len(), 40);
    let live = journal.live().await.unwrap();
    for (session, count) in [("s0", 14), ("s1", 13), ("s2", 13)] {
        let of_it = live.iter().filter(|key| key.session_id.as_str() == session);
        assert_eq!(of_it.count(), count, "{session}");
    }
}

/// WAL-08, WAL-10
async fn a_reader_sees_whole_commits<J: Journal>(journal: &J) {
    let mut history = History::of("s", "t").on(journal);
    create(journal, &mut history).await;
    let all: Vec<_> = (0..30).map(|n| (history.last_seq(), history.work(1 + n % 4))).collect();
    let key = history.key.clone();
    let writing = async {
        for (after, commit) in all {
            append(journal, &history, after, vec![commit]).await.unwrap();
        }
    };
    let reading = async {
        let mut seen = 0;
        while seen < history.commits.len() {
            let read = read_all(journal, &key).await.unwrap();
            assert!(read.len() >= seen, "what was seen is not taken back");
            seen = read.len();
            assert!(read.iter().eq(history.commits[..seen].iter().map(|c| &**c)));
            tokio::task::yield_now().await;
        }
    };
    join(writing, reading).await;
}

/// STORE-09, STORE-10, STORE-14
async fn a_name_is_taken_once<J: Journal>(journal: &J) {
    let mut first = History::named("s", "t", "name").on(journal);
    create(journal, &mut first).await;
    let mut second = History::named("s", "u", "name").on(journal);
    let commit = second.create();
    let refused = journal.create(&second.key, &second.wal_name, vec![commit]).await;
    assert!(matches!(refused, Err(AppendError::NameTaken)), "{refused:?}");
    assert_eq!(journal.entry(&second.key).await, Ok(None));
    assert_holds(journal, &first).await;
    let mut renamed = History::named("s", "u", "other").on(journal);
    create(journal, &mut renamed).await;
    let mut elsewhere = History::named("s2", "u", "name").on(journal);
    create(journal, &mut elsewhere).await;
    for history in [&first, &renamed, &elsewhere] {
        assert_holds(journal, history).await;
    }
}
