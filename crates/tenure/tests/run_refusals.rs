//! What is wrong is said in one message, with what to do about it and the right exit code, and
//! leaves nothing behind.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use support::{Ended, Place};

fn refused(name: &str, text: impl AsRef<[u8]>) -> Ended {
    let place = Place::new();
    place.file(name, text);
    let ended = place.tenure(&["run", name]).with(2);
    assert_eq!(ended.stdout, "");
    assert!(ended.stderr.starts_with("error: "), "{}", ended.stderr);
    assert!(!place.path(".tenure").exists(), "a bad file leaves nothing behind");
    ended
}

#[test]
fn bad_files_are_refused_with_their_place() {
    refused("t.yaml", "").saying("the file is empty");
    refused("t.yaml", "# nothing\n").saying("empty but for comments");
    refused("t.yaml", "steps: []").saying("t.yaml:1:8");
    refused("t.json", "{\"steps\": [}").saying("t.json:1:12");
    refused("t.yaml", "steps: {a: {noop: true}").saying("error");
    refused("t.yaml", b"steps: {a: {run: '\xff'}}").saying("UTF-8");
    refused("t.toml", "steps = 5").saying("steps");
    refused("t.yaml", "steps: {a: {noop: true, dependson: b}}").saying("depends_on");
}

#[test]
fn bad_graphs_are_refused() {
    refused("t.yaml", "steps: {a: {needs: b, noop: true}, b: {needs: a, noop: true}}")
        .saying("a -> b");
    refused("t.yaml", "steps: {a: {needs: a, noop: true}}").saying("a -> a");
    refused("t.yaml", "steps: {a: {needs: c, noop: true}}").saying("`c`");
    refused("t.yaml", "steps: {w: {repeat: 100001, noop: true}}").saying("100000");
}

#[test]
fn ids_never_mean_a_path() {
    for id in [
        "a/b",
        "..",
        ".",
        "../../etc/passwd",
        "ä",
        "A",
        "a b",
        "",
        "a\\u0000b",
        "-\\u200b",
        "%2e%2e",
    ] {
        refused("t.json", format!("{{\"steps\": [{{\"id\": \"{id}\", \"noop\": true}}]}}"));
        refused(
            "t.json",
            format!("{{\"task_id\": \"{id}\", \"steps\": [{{\"id\": \"a\", \"noop\": true}}]}}"),
        );
    }
    let long = "x".repeat(129);
    refused("t.json", format!("{{\"steps\": [{{\"id\": \"{long}\", \"noop\": true}}]}}"));
}

#[test]
fn what_this_command_cannot_do_is_said_before_anything_runs() {
    refused("t.yaml", "steps: {a: {handler: mine}}").saying("handler `mine`").saying("embeds");
    refused("t.yaml", "dispatch: manual\nsteps: {a: {noop: true}}").saying("`dispatch: manual`");
}

#[test]
fn wrong_usage_is_refused() {
    let place = Place::new();
    place.file("t.yaml", "steps: {a: {noop: true}}");
    place.tenure(&["run", "missing.yaml"]).with(2).saying("missing.yaml");
    place.tenure(&["run", "."]).with(2).saying("directory");
    place.tenure(&["run"]).with(2).saying("FILE");
    place.tenure(&["run", "--resume"]).with(2).saying("--resume=TASK_ID");
    place.tenure(&["run", "t.yaml", "--workers", "0"]).with(2).saying("workers");
    place.tenure(&["run", "t.yaml", "--var", "x"]).with(2).saying("KEY=VALUE");
    place.tenure(&["run", "t.yaml", "--var", "x=1"]).with(2).saying("x");
    place.tenure(&["run", "t.yaml", "-o", "xml"]).with(2).saying("jsonl");
    place.tenure(&["run", "t.yaml", "--session", "a/b"]).with(2).saying("session_id");
    place.tenure(&["run", "t.yaml", "--session", ".."]).with(2).saying("session_id");
    place.tenure(&["run", "t.yaml", "--time-scale", "-1"]).with(2);
    place.tenure(&["run", "--resume=../x"]).with(2).saying("task_id");
    place.tenure(&["jump"]).with(2).saying("jump");
}

#[test]
fn a_second_run_of_a_named_task_is_a_conflict_that_names_the_ways_on() {
    let place = Place::new();
    place.file("t.yaml", "task_id: t\nsteps: {a: {noop: true}}");
    place.tenure(&["run", "t.yaml"]).with(0);
    let ended = place.tenure(&["run", "t.yaml"]).with(4);
    ended.saying("task `t` exists and has ended: completed").saying("--resume").saying("--new");
    place.tenure(&["run", "t.yaml", "--session", "other"]).with(0);
    place.tenure(&["run", "t.yaml", "--new"]).with(0);
}

#[test]
fn what_is_not_there_is_not_found() {
    let place = Place::new();
    place.file("t.yaml", "steps: {a: {noop: true}}");
    place.tenure(&["run", "--resume=nobody"]).with(3).saying("nobody");
    place.tenure(&["run", "t.yaml", "--resume"]).with(3).saying("no task was made from");
}

#[test]
fn a_data_directory_in_use_names_the_process() {
    let place = Place::new();
    place.file("wait.yaml", "steps: {a: {run: 'echo > up; sleep 60'}}");
    place.file("t.yaml", "steps: {a: {noop: true}}");
    let running = place.start(&["run", "wait.yaml"]);
    place.wait_for("up");
    let ended = place.tenure(&["run", "t.yaml"]).with(6);
    ended.saying(&format!("in use by process {}", running.pid()));
}

#[test]
fn a_data_directory_that_cannot_be_written_is_unavailable() {
    let place = Place::new();
    place.file("t.yaml", "steps: {a: {noop: true}}");
    // Root may write anywhere but below a file.
    place.tenure(&["run", "t.yaml", "--data", "t.yaml/data"]).with(6).saying("--data");
    place.tenure(&["run", "t.yaml", "--data", "t.yaml"]).with(6).saying("--data");
    place.tenure(&["run", "t.yaml", "--data", "/proc/tenure"]).with(6).saying("/proc/tenure");
}

#[test]
fn a_full_disk_stops_the_run_and_resume_goes_on() {
    let place = Place::new();
    let file = "
task_id: t
steps:
  a: {run: 'echo a >> ran'}
  b: {depends_on: a, noop: true}
  w: {depends_on: b, repeat: 60, noop: true}
";
    place.file("t.yaml", file);
    // A limit on the size of a file stands for the end of the disk, in blocks of 512 bytes: room
    // for the task and its first steps, not for sixty more.
    let ended = place.limited("ulimit -f 64", &["run", "t.yaml"]).with(6);
    ended.saying("cannot be written").saying("--resume=t");
    let (code, report) = place.report(&["run", "t.yaml", "--resume"]);
    assert_eq!((code, &report["counts"]["completed"]), (Some(0), &serde_json::json!(62)));
    assert_eq!(std::fs::read_to_string(place.path("ran")).unwrap(), "a\n", "it was recorded");
}

#[test]
fn a_task_that_does_not_fit_on_the_disk_is_not_there() {
    let place = Place::new();
    place.file("t.yaml", "task_id: t\nsteps: {w: {repeat: 500, noop: true}}");
    place.limited("ulimit -f 8", &["run", "t.yaml"]).with(6).saying("storage_error");
    place.tenure(&["run", "--resume=t"]).with(3);
    place.tenure(&["run", "t.yaml"]).with(0);
}

#[test]
fn what_a_crash_left_is_said_in_one_line() {
    let place = Place::new();
    place.file("t.yaml", "task_id: t\nsteps: {a: {sleep: 20s}}");
    place.file("u.yaml", "task_id: u\nsteps: {a: {noop: true}}");
    let log = place.path(".tenure/tasks/default/t.wal.jsonl");
    let running = place.start(&["run", "t.yaml"]);
    support::wait_until(|| std::fs::read(&log).is_ok_and(|t| t.len() > 100), &log);
    drop(running);
    let mut bytes = std::fs::read(&log).unwrap();
    bytes.extend_from_slice(b"{\"wal_seq\":99,\"ev");
    std::fs::write(&log, &bytes).unwrap();
    let ended = place.tenure(&["run", "u.yaml", "-o", "json"]).with(0).saying("cut off 17 bytes");
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    // Damage elsewhere is damage: that task is out of use, the others are not.
    let at = bytes.iter().position(|&byte| byte == b'\n').unwrap() - 20;
    bytes[at] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    std::fs::remove_file(place.path(".tenure/index.jsonl")).unwrap(); // So that all is looked into.
    let ended = place.tenure(&["run", "u.yaml", "--new"]).with(0);
    ended.saying("task default/t cannot be used").saying("t.wal.jsonl:1");
    place.tenure(&["run", "t.yaml", "--resume"]).with(6).saying("t.wal.jsonl:1");
}

/// LEASE-18: a worker whose commands could leave nothing says so at its start, and takes no Step.
#[test]
fn a_worker_without_a_place_for_files_does_not_start() {
    let place = Place::new();
    place.file("taken", "a file");
    let nowhere = "nats://127.0.0.1:1";
    let ended = place.tenure(&["worker", "--files", "taken/files", "--nats", nowhere]).with(2);
    ended.saying("cannot leave their output below").saying("--files");
}

/// What cannot be written is named: "No space left on device" alone could be about the log.
#[cfg(target_os = "linux")]
#[test]
fn a_full_stdout_is_named() {
    let place = Place::new();
    place.file("t.yaml", "steps: {a: {noop: true}}");
    for format in ["json", "jsonl", "table"] {
        let mut command = place.command(&["run", "t.yaml", "-o", format]);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command.stdout(full).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("cannot write to stdout: No space left"), "{said}");
        assert_eq!(output.status.code(), Some(6), "{said}");
    }
}

#[test]
fn a_working_directory_that_was_removed_is_named() {
    let place = Place::new();
    let file = place.file("t.yaml", "steps: {a: {noop: true}}");
    let data = place.path("data");
    let run =
        format!("mkdir gone; cd gone; rmdir ../gone; {} run {}", support::TENURE, file.display());
    for more in [String::new(), format!(" --data {}", data.display())] {
        let mut command = place.program("sh", &["-c", &(run.clone() + &more)]);
        let ended = support::Running::run_to_end(&mut command).with(6);
        ended.saying("cannot find the working directory (was it removed?): No such file");
    }
}

/// A data directory may come with a repository that somebody cloned: what is no regular file in it is neither written
/// over nor waited for.
#[test]
fn links_and_pipes_in_a_data_directory_are_refused() {
    use std::os::unix::fs::symlink;
    for name in ["lock", "index.jsonl"] {
        let place = Place::new();
        place.file("t.yaml", "task_id: t\nsteps: {a: {noop: true}}");
        let precious = place.file("precious", "keep me");
        std::fs::create_dir(place.path(".tenure")).unwrap();
        symlink(&precious, place.path(".tenure").join(name)).unwrap();
        place.tenure(&["run", "t.yaml"]).with(6).saying("no regular file").saying(name);
        assert_eq!(std::fs::read(precious).unwrap(), b"keep me", "{name}");
    }
    let place = Place::new();
    place.file("t.yaml", "task_id: t\nsteps: {a: {noop: true}}");
    place.tenure(&["run", "t.yaml"]).with(0);
    let log = std::fs::read_dir(place.path(".tenure/tasks/default")).unwrap();
    let log = log
        .map(|it| it.unwrap().path())
        .find(|it| it.extension().is_some_and(|it| it == "jsonl"))
        .unwrap();
    std::fs::remove_file(&log).unwrap();
    nix::unistd::mkfifo(&log, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for args in [
        &["task", "list", "--all"][..],
        &["task", "get", "t"],
        &["wal", "show", "t"],
        &["run", "t.yaml"],
    ] {
        let ended = place.tenure(args); // What it makes of a log that is none is its own; it must end.
        assert!(ended.code.is_some(), "{args:?}: {ended:?}");
        assert_ne!((args[1], ended.code), ("get", Some(0)), "{ended:?}");
    }
}

/// Nor does a link in it lead to any other directory of the user, who is told what is wrong. Where a link leads to the
/// data directory itself, its user has put it there.
#[test]
fn no_link_in_a_data_directory_leads_out_of_it() {
    use std::os::unix::fs::symlink;
    let place = Place::new();
    place.file("t.yaml", "task_id: t\nsteps: {a: {run: echo mine}}");
    place.tenure(&["run", "t.yaml", "--data", "theirs"]).with(0);
    let session = place.path("theirs/tasks/default");
    let unborn = session.join("unborn.wal.jsonl"); // An opening would remove it.
    std::fs::write(&unborn, "").unwrap();
    let index = place.path("theirs/index.jsonl");
    let all = &["run", "t.yaml"][..];
    let show = [
        all,
        &["task", "list", "--all"],
        &["task", "get", "t"],
        &["session", "list"],
        &["logs", "t"],
        &["wal", "verify"],
        &["wal", "verify", "t"],
        &["wal", "show", "t"],
        &["task", "cancel", "t"],
    ];
    for (level, refused) in [("tasks", &show[..]), ("tasks/default", &show), ("files", &show[..1])]
    {
        let data = tempfile::tempdir().unwrap();
        std::fs::copy(&index, data.path().join("index.jsonl")).unwrap();
        let link = data.path().join(level);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(place.path("theirs").join(level), &link).unwrap();
        let said = format!("{level} is no regular directory: put the directory itself there");
        for args in refused {
            let args = [args, &["--data", data.path().to_str().unwrap()][..]].concat();
            place.tenure(&args).with(6).saying(&said);
        }
        assert!(unborn.exists(), "{level}");
        assert_eq!(std::fs::read_dir(&session).unwrap().count(), 2, "{level}: no log was made");
    }
    let (data, notes) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(notes.path().join("notes.txt"), "x").unwrap();
    symlink(notes.path(), data.path().join("tasks")).unwrap();
    let verify = ["wal", "verify", "--data", data.path().to_str().unwrap()];
    let told = place.tenure(&verify).with(6).saying("tasks is no regular directory");
    assert!(!told.stdout.contains("notes"), "not even the names there are told: {told:?}");
    symlink(place.path("theirs"), place.path("link")).unwrap();
    place.file("u.yaml", "task_id: u\nsteps: {a: {noop: true}}");
    place.tenure(&["run", "u.yaml", "--data", "link"]).with(0);
    place.tenure(&["wal", "verify", "--data", "link"]).with(0);
}
