//! One writer, many Tasks: locks, names, groups, open files.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{
    Did, SMALL, TestDisk, append, assert_holds, create, data_dir, open, wal, work,
};
use futures::future::join_all;
use tenure_local::{JournalOptions, JsonlJournal, OpenError};
use tenure_ports::Journal;
use tenure_ports::journal::AppendError;
use tenure_testkit::conformance::History;

fn refused(dir: &Path) -> OpenError {
    JsonlJournal::open(dir, SMALL).map(|_| ()).unwrap_err()
}

/// WAL-05: two processes do not write one data directory, and the second learns who is first.
#[test]
fn a_second_writer_is_refused() {
    let dir = data_dir();
    let (journal, _) = open(dir.path());
    let error = refused(dir.path());
    assert!(matches!(error, OpenError::Locked { pid: Some(pid), .. } if pid == std::process::id()));
    let told = error.to_string();
    assert!(told.contains(&format!("process {}", std::process::id())), "{told}");
    drop(journal);
    open(dir.path());
}

/// WAL-05: who removes the file `lock` of a process that runs lets no second writer in.
#[tokio::test]
async fn a_second_writer_is_refused_though_the_lock_file_was_removed() {
    let dir = data_dir();
    let (journal, _) = open(dir.path());
    let mut history = History::of("s", "t");
    create(&journal, &mut history).await;
    fs::remove_file(dir.path().join("lock")).unwrap();
    let error = refused(dir.path());
    assert!(matches!(error, OpenError::Locked { pid: None, .. }), "{error}");
    assert!(!dir.path().join("lock").exists(), "a refused process leaves nothing");
    work(&journal, &mut history).await.unwrap();
    assert_holds(&journal, &history).await;
    drop(journal);
    let (journal, _) = open(dir.path());
    assert_holds(&journal, &history).await;
}

/// WAL-05: the lock dies with its process, however that dies.
#[test]
fn the_lock_of_a_killed_process_is_free() {
    let dir = data_dir();
    let test = std::env::current_exe().unwrap();
    let args = ["--ignored", "--exact", "writing::holds_the_lock", "--nocapture"];
    let mut child =
        Command::new(test).args(args).env("TENURE_TEST_DIR", dir.path()).spawn().unwrap();
    while !dir.path().join("held").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let error = refused(dir.path());
    assert!(
        matches!(error, OpenError::Locked { pid: Some(pid), .. } if pid == child.id()),
        "{error}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    open(dir.path());
}

#[test]
#[ignore = "run in a process of its own by the test above"]
fn holds_the_lock() {
    let dir = std::env::var_os("TENURE_TEST_DIR").unwrap();
    let (_journal, _) = open(Path::new(&dir));
    fs::write(Path::new(&dir).join("held"), "").unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_closed_directory_is_free_while_processes_start() {
    let dir = data_dir();
    let done = Arc::new(AtomicBool::new(false));
    let starting = std::thread::spawn({
        let done = done.clone();
        move || {
            while !done.load(Ordering::Relaxed) {
                let mut child = Command::new("true").spawn().unwrap();
                child.wait().unwrap();
            }
        }
    });
    for _ in 0..300 {
        open(dir.path());
    }
    done.store(true, Ordering::Relaxed);
    starting.join().unwrap();
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let dir = data_dir();
    let missing = dir.path().join("missing");
    assert!(matches!(refused(&missing), OpenError::Missing(path) if path == missing));
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(refused(&file), OpenError::NotADirectory(path) if path == file));
}

/// Runs without the rights of root, to which everything is writable.
#[test]
fn a_directory_that_is_not_writable_is_refused() {
    let dir = data_dir();
    let test = std::env::current_exe().unwrap();
    let script =
        "chmod 555 \"$DIR\"; id nobody >/dev/null && exec setpriv --reuid nobody \"$0\" \"$@\"";
    let args = ["--ignored", "--exact", "writing::finds_nothing_writable", "--nocapture"];
    let readable = data_dir();
    let copy = readable.path().join("test");
    fs::copy(test, &copy).unwrap();
    open_to_all(readable.path());
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(&copy).args(args).env("DIR", dir.path());
    let output = shell.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    if !told.contains("setpriv") && !told.contains("nobody") {
        assert!(output.status.success(), "{output:?}");
    }
}

fn open_to_all(dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
#[ignore = "run as another user by the test above"]
fn finds_nothing_writable() {
    let dir = std::env::var_os("DIR").unwrap();
    let error = refused(Path::new(&dir));
    assert!(matches!(error, OpenError::NotWritable { .. }), "{error:?}");
}

/// STORE-04, STORE-05, STORE-09, STORE-10, STORE-15: logs lie where they should, stay there, and
/// nothing else lies with them.
#[tokio::test]
async fn session_directories_hold_logs_and_nothing_else() {
    let dir = data_dir();
    let (journal, _) = open(dir.path());
    let mut histories =
        [History::named("one", "t", "some_log"), History::of("one", "u"), History::of("two", "t")];
    for history in &mut histories {
        create(&journal, history).await;
        work(&journal, history).await.unwrap();
        append(&journal, history, |h| drop(h.complete())).await.unwrap();
        append(&journal, history, |h| drop(h.archive())).await.unwrap();
    }
    drop(journal);
    open(dir.path());
    let names = |path: &Path| -> HashSet<String> {
        let entries = fs::read_dir(path).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(names(dir.path()), set(&["lock", "index.jsonl", "tasks"]));
    let tasks = dir.path().join("tasks");
    assert_eq!(names(&tasks), set(&["one", "two"]));
    assert_eq!(names(&tasks.join("one")), set(&["some_log.wal.jsonl", "u.wal.jsonl"]));
    assert_eq!(names(&tasks.join("two")), set(&["t.wal.jsonl"]));
}

/// WAL-02, WAL-03: a line is an event with every field of the envelope, in order, sealed.
#[tokio::test]
async fn a_line_is_an_event() {
    let dir = data_dir();
    let (journal, _) = open(dir.path());
    let mut history = History::of("s", "t");
    create(&journal, &mut history).await;
    work(&journal, &mut history).await.unwrap();
    let text = fs::read_to_string(wal(dir.path(), &history)).unwrap();
    assert!(text.ends_with('\n'));
    let events: usize = history.commits.iter().map(|commit| commit.events.len()).sum();
    assert_eq!(text.lines().count(), events);
    let fields = [
        "wal_seq",
        "session_id",
        "event_id",
        "event_type",
        "actor_agent_id",
        "actor_run_id",
        "task_id",
        "payload",
        "created_at",
        "schema_version",
        "command_id",
        "command_digest",
        "commit_id",
        "commit_index",
        "commit_count",
        "epoch",
        "crc",
    ];
    for (number, line) in text.lines().enumerate() {
        let places: Vec<_> =
            fields.iter().map(|field| line.find(&format!("\"{field}\":")).unwrap()).collect();
        assert!(places.is_sorted(), "{line}");
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(value["wal_seq"], number as u64 + 1);
    }
}

/// WAL-01, STORE-16: what was written is never changed.
#[tokio::test]
async fn a_log_only_grows() {
    let dir = data_dir();
    let mut history = History::of("s", "t");
    let (mut journal, _) = open(dir.path());
    create(&journal, &mut history).await;
    let path = wal(dir.path(), &history);
    let mut before = fs::read(&path).unwrap();
    for round in 0..10 {
        work(&journal, &mut history).await.unwrap();
        if round == 5 {
            drop(journal);
            journal = open(dir.path()).0;
        }
        let now = fs::read(&path).unwrap();
        assert!(now.len() > before.len() && now.starts_with(&before));
        before = now;
    }
}

/// STORE-14: a name that is taken on disk is refused, and what is there is left alone.
#[tokio::test]
async fn a_name_taken_by_any_file_is_refused() {
    let dir = data_dir();
    let (journal, _) = open(dir.path());
    let mut history = History::of("s", "t");
    create(&journal, &mut history).await;
    let mut second = History::of("s", "second");
    let path = wal(dir.path(), &second);
    fs::write(&path, "something").unwrap();
    let commit = second.create();
    let result = journal.create(&second.key, &second.wal_name, vec![commit]).await;
    assert!(matches!(result, Err(AppendError::NameTaken)), "{result:?}");
    assert_eq!(fs::read(&path).unwrap(), b"something");
}

/// WAL-10, mechanisms 14: creations share directory syncs, and each is answered only after one
/// that began when its file was on disk.
#[tokio::test(flavor = "multi_thread")]
async fn creations_share_directory_syncs() {
    let dir = data_dir();
    let disk = TestDisk { dir_sync_takes: Duration::from_millis(20), ..TestDisk::default() };
    let options = JournalOptions { sync_threads: 8, ..SMALL };
    let (journal, _) = JsonlJournal::open_on(dir.path(), options, disk.clone()).unwrap();
    let journal = Arc::new(journal);
    disk.take();
    let creates = (0..64).map(|n| {
        let (journal, disk, dir) = (journal.clone(), disk.clone(), dir.path().to_owned());
        tokio::spawn(async move {
            let mut history = History::of("s", &format!("t{n}"));
            create(&*journal, &mut history).await;
            let did = disk.did.lock().clone();
            let session = dir.join("tasks/s");
            let synced = did.iter().position(|did| *did == Did::Sync(wal(&dir, &history))).unwrap();
            let named = did[synced..].iter().position(|d| *d == Did::SyncDir(session.clone()));
            let from = synced + named.unwrap();
            assert!(did[from..].contains(&Did::SyncedDir(session)));
            let tasks = dir.join("tasks");
            assert!(did.contains(&Did::SyncedDir(tasks)), "the session's own name is durable");
        })
    });
    for created in join_all(creates).await {
        created.unwrap();
    }
    let syncs = disk.take().iter().filter(|did| matches!(did, Did::SyncDir(_))).count();
    assert!(syncs <= 40, "{syncs} syncs for 64 creations");
}

/// Mechanisms 14: with fewer files open than there are Tasks, everything still goes on.
#[tokio::test(flavor = "multi_thread")]
async fn tasks_outnumber_open_files() {
    let dir = data_dir();
    let disk = TestDisk::default();
    let options = JournalOptions { open_files: Some(3), sync_threads: 4, read_threads: 2 };
    let (journal, _) = JsonlJournal::open_on(dir.path(), options, disk.clone()).unwrap();
    let mut histories: Vec<_> = (0..20).map(|n| History::of("s", &format!("t{n}"))).collect();
    for history in &mut histories {
        create(&journal, history).await;
    }
    for _ in 0..5 {
        let journal = &journal;
        let all = histories.iter_mut().map(|history| async move { work(journal, history).await });
        for result in join_all(all).await {
            result.unwrap();
        }
    }
    let open = open_files_under(dir.path());
    assert!(open <= 3 + 1, "{open} logs are open");
    for history in &histories {
        assert_holds(&journal, history).await;
    }
    disk.take();
    for _ in 0..3 {
        work(&journal, &mut histories[7]).await.unwrap();
    }
    let opened = disk.take().iter().filter(|did| matches!(did, Did::Open(_))).count();
    assert!(opened <= 1, "a file in use stays open");
}

fn open_files_under(dir: &Path) -> usize {
    let tasks = dir.join("tasks");
    let links = fs::read_dir("/proc/self/fd").unwrap();
    let targets = links.filter_map(|link| fs::read_link(link.ok()?.path()).ok());
    targets.filter(|target| target.starts_with(&tasks)).count()
}

/// A write whose caller has gone is not torn off.
#[tokio::test]
async fn a_write_goes_through_without_its_caller() {
    let dir = data_dir();
    let (journal, _) = open(dir.path());
    let mut history = History::of("s", "t");
    create(&journal, &mut history).await;
    let after = history.last_seq();
    let commit = history.work(1);
    let write = journal.append(&history.key, after, vec![commit]);
    let gone = tokio::time::timeout(Duration::ZERO, write).await;
    drop(gone);
    drop(journal);
    let (journal, _) = open(dir.path());
    assert_holds(&journal, &history).await;
}

/// What is made in a data directory is for its user alone, whatever the umask: inputs and outputs may be
/// secrets.
#[tokio::test]
async fn files_and_folders_are_for_their_user_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = data_dir();
    let (journal, _) = open(dir.path());
    let mut history = History::of("s", "one");
    create(&journal, &mut history).await;
    let mut looked = 0;
    let mut folders = vec![dir.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let rights = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(rights, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
            looked += 1;
            folders.extend(Some(path).filter(|path| path.is_dir()));
        }
    }
    assert!(looked >= 5, "tasks, the folder of a session, a log, the index and the lock: {looked}");
}
