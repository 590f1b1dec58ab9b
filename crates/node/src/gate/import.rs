//! Imports the log of a Task that lived elsewhere.
//!
//! The node holds the parts in memory until the log is complete. Then it checks the log as a
//! history, and creates the Task with one append. So there is never half a log, which would be a
//! Task that runs from somewhere in its past. A node that does not have the earlier parts tells the
//! client to begin again.

mod log;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_core::command::edition::check_log;
use tenure_core::status::Role;
use tenure_core::{Code, Rejection, RejectionKind};
use tenure_ports::Journal as _;
use tenure_ports::journal::{AppendError, TaskKey};
use tenure_scheduler::ImportPermit;
use tenure_wire::bus::operate::{ImportLog, Imported};
use tenure_wire::bus::subject::ClientName;
use tenure_wire::bus::{Answer, decode};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};

use self::log::judge;
use super::{Gate, say_answer};
use crate::rates::tasks_of;

/// How long a log may be, and how many bytes all logs on their way may have. They are held in
/// memory, and JetStream takes at most a thousand messages of half a mebibyte in one append.
const LOG_MAX: u64 = 384 << 20;

/// How many of these bytes the logs of one principal may have, so that others have room for theirs. A single log may
/// have more.
const OF_ONE_MAX: u64 = LOG_MAX / 4 * 3;

/// Each counts as so many at least: what is shorter comes in one part.
const LOG_MIN: u64 = 512 << 10;

/// After so long without a next part the parts are dropped.
const IDLE: Duration = Duration::from_secs(60);

/// How many bytes a second of a log come at least, after [`IDLE`]. One that is slower makes room for the logs of
/// others, and its client begins again.
const PACE: u64 = 1 << 20;

/// How often the node tries to read an imported Task: an actor that did not find it before may be
/// ending.
const LOOKS: u32 = 20;

/// Logs of which parts have come.
#[derive(Debug, Default)]
pub(crate) struct Imports(Mutex<HashMap<TaskKey, Upload>>);

#[derive(Debug)]
struct Upload {
    by: ClientName,
    len: u64,
    lines: Vec<u8>,
    begun: Instant,
    heard: Instant,
    /// The log is complete, and is being checked and written.
    is_whole: bool,
}

impl Upload {
    fn is_of(&self, who: &ClientName) -> bool {
        (&self.by.principal, self.by.role) == (&who.principal, who.role)
    }

    /// Whether it should have come by now.
    fn is_late(&self, now: Instant) -> bool {
        !self.is_whole && now - self.begun > IDLE + Duration::from_secs(self.len / PACE)
    }
}

/// What a part has completed.
enum Uploaded {
    /// So many bytes have come.
    Part(u64),
    /// The whole log has come.
    Whole(Vec<u8>),
}

impl Imports {
    /// Takes a part. A part that has come before is ignored, and one that would leave a gap is not
    /// taken.
    fn take(&self, key: &TaskKey, by: &ClientName, part: ImportLog) -> Result<Uploaded, Rejection> {
        let now = Instant::now();
        let mut all = self.0.lock();
        all.retain(|_, coming| coming.is_whole || now - coming.heard < IDLE);
        if all.get(key).is_some_and(|coming| coming.is_whole) {
            return Err(later("the log has come, and is being written"));
        }
        let is_another = |coming: &Upload| coming.by != *by || coming.len != part.len;
        if all.get(key).is_some_and(is_another) {
            if part.from > 0 {
                let message = "somebody else brings this log now, or another one";
                return Err(Rejection::new(Code::IdempotencyConflict, message));
            }
            all.remove(key);
        }
        if part.len > LOG_MAX || part.len == 0 {
            let message = format!("the log has {} bytes; 1 to {LOG_MAX} are taken in", part.len);
            return Err(Rejection::invalid("len", message));
        }
        if !all.contains_key(key) {
            make_room(&mut all, by, part.len, now)?;
        }
        let coming = all.entry(key.clone()).or_insert_with(|| Upload {
            by: by.clone(),
            len: part.len,
            lines: Vec::new(),
            begun: now,
            heard: now,
            is_whole: false,
        });
        coming.heard = now;
        let here = coming.lines.len() as u64;
        let known = here.checked_sub(part.from).and_then(|known| usize::try_from(known).ok());
        if let Some(more) = known.and_then(|known| part.lines.0.get(known..)) {
            coming.lines.extend_from_slice(more);
        }
        let here = coming.lines.len() as u64;
        if here > part.len {
            all.remove(key);
            return Err(Rejection::invalid("len", "there is more of the log than was announced"));
        }
        if here < part.len {
            return Ok(Uploaded::Part(here));
        }
        coming.is_whole = true;
        Ok(Uploaded::Whole(std::mem::take(&mut coming.lines)))
    }

    /// Removes a log that is written, or will not be.
    fn settle(&self, key: &TaskKey) {
        self.0.lock().remove(key);
    }
}

/// Sees to it that there is room for another log of so many bytes: those that are late go, if it fits without them.
fn make_room(
    all: &mut HashMap<TaskKey, Upload>,
    by: &ClientName,
    len: u64,
    now: Instant,
) -> Result<(), Rejection> {
    let check = |with_late: bool| {
        let (mut own, mut others, len) = (0, 0, len.max(LOG_MIN));
        for coming in all.values().filter(|it| with_late || !it.is_late(now)) {
            let of = if coming.is_of(by) { &mut own } else { &mut others };
            *of += coming.len.max(LOG_MIN);
        }
        if own + others + len > LOG_MAX {
            return Err(later("this node takes in as many logs as it can hold"));
        }
        if own > 0 && own + len > OF_ONE_MAX {
            return Err(later("this node takes in as many logs of one principal as it may"));
        }
        Ok(())
    };
    if check(true).is_err() {
        check(false)?;
        all.retain(|_, coming| !coming.is_late(now));
    }
    Ok(())
}

/// A complete log that is being checked and written. Dropping this removes it from [`Imports`],
/// however that went.
struct Settling<'a>(&'a Imports, &'a TaskKey);

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        self.0.settle(self.1);
    }
}

impl Gate {
    /// Takes a part of a log, and answers.
    pub(super) fn import(
        self: &Arc<Self>,
        name: ClientName,
        partition: u32,
        bytes: &[u8],
        reply: String,
    ) {
        let part = self.admit_part(&name, bytes);
        let gate = Arc::clone(self);
        tokio::spawn(async move {
            let imported = match part {
                Ok((part, _permits)) => gate.take_in(name, partition, part).await,
                Err(refused) => Err(refused),
            };
            let answer = Answer::from(imported);
            say_answer(&gate.intake, &reply, &answer).await;
        });
    }

    /// Reads a part, and counts it as a create of as many bytes (LIVE-03). It stays in memory until the index has been
    /// asked: there are as many as there are permits to read, and one principal has as many as it has for creates.
    fn admit_part(
        &self,
        name: &ClientName,
        bytes: &[u8],
    ) -> Result<(ImportLog, (ImportPermit, OwnedSemaphorePermit)), Rejection> {
        if name.role != Role::Orchestrator {
            let message = "an observer looks and never commands";
            return Err(Rejection::new(Code::ToolNotAvailable, message));
        }
        let leave = self.leave_to_read()?;
        let part = decode::<ImportLog>(bytes)?;
        let (agent, session) = (name.agent().map_err(Rejection::from)?, name.session.clone());
        let link = self.scheduler.client(name.role, agent, session);
        let permit = self.scheduler.admit_import(link.caller())?;
        self.rates.create(name.role, &name.principal, tasks_of(bytes.len(), part.from == 0))?;
        Ok((part, (permit, leave)))
    }

    async fn take_in(
        &self,
        name: ClientName,
        partition: u32,
        part: ImportLog,
    ) -> Result<Imported, Rejection> {
        let (session_id, task_id) = (name.session.clone(), part.task_id.clone());
        let key = TaskKey { session_id, task_id };
        self.check_partition(&key, partition)?;
        let journal = &self.fence.journal;
        if journal.entry(&key).await.map_err(|_| not_owner())?.is_some() {
            return Err(exists(&key));
        }
        let (len, lines) = match self.imports.take(&key, &name, part)? {
            Uploaded::Part(received) => return Ok(Imported { received, version: None }),
            Uploaded::Whole(lines) => (lines.len() as u64, lines),
        };
        let settling = Settling(&self.imports, &key);
        let version = self.write_whole(&key, lines).await?;
        drop(settling);
        tracing::info!(task = %key, by = %name.principal, version, "a log was taken in");
        self.begin(&key).await;
        Ok(Imported { received: len, version })
    }

    /// Checks a log and writes it. Answers with the version of its Task.
    async fn write_whole(&self, key: &TaskKey, lines: Vec<u8>) -> Result<Option<u64>, Rejection> {
        let journal = &self.fence.journal;
        let epoch = journal.epoch(key).ok_or_else(not_owner)?;
        let judged = tokio::task::spawn_blocking({
            let key = key.clone();
            move || judge(&key, &lines, epoch)
        });
        let log =
            judged.await.map_err(|error| Rejection::invalid("lines", error.to_string()))??;
        if !log.has_ended {
            self.scheduler.check_new_task(&key.session_id, &log.maker)?;
        }
        check_log(log.commits.iter().map(AsRef::as_ref), |feature| journal.may_hold(key, feature))?;
        let events = log.commits.iter().flat_map(|commit| &commit.events);
        let blobs = events.flat_map(|event| event.body.blobs()).collect();
        self.scheduler.check_blobs(key, blobs).await?;
        let version = log.commits.last().map(|last| last.last_seq());
        let written = journal.import(key, &log.wal_name, log.commits).await;
        written.map_err(|error| not_written(key, &error))?;
        Ok(version)
    }

    /// Has an imported Task go on, if it is live.
    async fn begin(&self, key: &TaskKey) {
        for _ in 0..LOOKS {
            match self.scheduler.read(key, |_| ()).await {
                Err(refused) if refused.code == Code::TaskNotFound => {}
                _ => return,
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Why a log was not written, as far as that is known. If it may have been, the client finds out by
/// sending it again.
fn not_written(key: &TaskKey, error: &AppendError) -> Rejection {
    match error {
        AppendError::TaskExists => exists(key),
        AppendError::NotOwner => not_owner(),
        AppendError::AtCapacity => later("too much waits to be written here"),
        AppendError::Unavailable(why) => later(&format!("the log does not answer: {why}")),
        AppendError::MustReread(_) | AppendError::Unsettled(_) => {
            Rejection::in_doubt(format!("whether the log was written is not known yet: {error}"))
        }
        other => Rejection::new(Code::StorageError, other.to_string())
            .of_kind(RejectionKind::AppendFailed),
    }
}

fn exists(key: &TaskKey) -> Rejection {
    let message = format!("task {} exists in session {}", key.task_id, key.session_id);
    Rejection::new(Code::TaskIdConflict, message).with("task_id", key.task_id.as_str())
}

fn later(why: &str) -> Rejection {
    Rejection::new(Code::Unavailable, why).with("retry_after_ms", 1_000)
}

fn not_owner() -> Rejection {
    let message = "this node does not own the task";
    Rejection::new(Code::NotOwner, message).with("retry_after_ms", 100)
}

#[cfg(test)]
mod tests {
    use tenure_wire::bus::V;
    use tenure_wire::bus::request::RawBytes;
    use tenure_wire::bus::subject::Token;

    use super::*;

    fn by(principal: &str) -> ClientName {
        let principal = Token::new(principal).unwrap();
        ClientName { role: Role::Orchestrator, session: "s".parse().unwrap(), principal }
    }

    fn key() -> TaskKey {
        TaskKey { session_id: "s".parse().unwrap(), task_id: "t".parse().unwrap() }
    }

    fn part(len: u64, from: u64, lines: &[u8]) -> ImportLog {
        ImportLog {
            v: V,
            task_id: "t".parse().unwrap(),
            len,
            from,
            lines: RawBytes(lines.to_vec()),
        }
    }

    fn take(imports: &Imports, who: &str, part: ImportLog) -> Result<(u64, bool), Code> {
        match imports.take(&key(), &by(who), part) {
            Ok(Uploaded::Part(here)) => Ok((here, false)),
            Ok(Uploaded::Whole(lines)) => Ok((lines.len() as u64, true)),
            Err(refused) => Err(refused.code),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn parts_may_come_twice_and_gaps_are_told() {
        let imports = Imports::default();
        assert_eq!(take(&imports, "a", part(6, 2, b"cd")), Ok((0, false)), "nothing is here");
        assert_eq!(take(&imports, "a", part(6, 0, b"ab")), Ok((2, false)));
        assert_eq!(take(&imports, "a", part(6, 0, b"ab")), Ok((2, false)), "it comes twice");
        assert_eq!(take(&imports, "a", part(6, 4, b"ef")), Ok((2, false)), "a gap");
        assert_eq!(take(&imports, "b", part(6, 2, b"cd")), Err(Code::IdempotencyConflict));
        assert_eq!(take(&imports, "a", part(6, 0, b"abcd")), Ok((4, false)));
        assert_eq!(take(&imports, "a", part(6, 4, b"ef")), Ok((6, true)));
        for from in [0, 4] {
            let written = take(&imports, "a", part(6, from, b"ef"));
            assert_eq!(written, Err(Code::Unavailable), "it is being written");
        }
        imports.settle(&key());
        assert_eq!(take(&imports, "a", part(6, 4, b"ef")), Ok((0, false)), "it is gone");
    }

    /// A log whose write failed can be sent again; if the outcome of the write is not known, the answer asks to repeat
    /// it (WAL-09).
    #[test]
    fn a_log_may_come_again_whatever_became_of_writing_it() {
        let imports = Imports::default();
        assert_eq!(take(&imports, "a", part(2, 0, b"ab")), Ok((2, true)));
        let writing = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let key = key();
            let _settling = Settling(&imports, &key);
            panic!("on purpose");
        }));
        assert!(writing.is_err());
        assert_eq!(take(&imports, "a", part(2, 0, b"ab")), Ok((2, true)));

        let told = |error| not_written(&key(), &error);
        for unknown in [AppendError::MustReread("x".into()), AppendError::Unsettled("x".into())] {
            let told = told(unknown);
            assert_eq!((told.code, told.is_ambiguous()), (Code::Unavailable, true));
        }
        for passing in [AppendError::AtCapacity, AppendError::Unavailable("x".into())] {
            assert_eq!(told(passing).code, Code::Unavailable);
        }
        let failed = told(AppendError::Failed("x".into()));
        assert_eq!((failed.code, failed.is_ambiguous()), (Code::StorageError, false));
    }

    /// The bound is for all logs on their way together: the longest comes alone, until it is
    /// written.
    #[tokio::test(start_paused = true)]
    async fn the_longest_log_is_taken_in_alone() {
        let (imports, other) =
            (Imports::default(), TaskKey { task_id: "u".parse().unwrap(), ..key() });
        let of_other = || match imports.take(&other, &by("b"), part(1, 0, b"x")) {
            Ok(_) => Ok(()),
            Err(refused) => Err(refused.code),
        };
        assert_eq!(take(&imports, "a", part(LOG_MAX + 1, 0, b"ab")), Err(Code::ValidationError));
        assert_eq!(take(&imports, "a", part(LOG_MAX, 0, b"ab")), Ok((2, false)));
        assert_eq!(of_other(), Err(Code::Unavailable), "there is no room beside it");
        imports.0.lock().get_mut(&key()).unwrap().is_whole = true;
        tokio::time::advance(IDLE).await;
        assert_eq!(of_other(), Err(Code::Unavailable), "it is being written");
        imports.settle(&key());
        assert_eq!(of_other(), Ok(()));
    }

    fn key_of(task: &str) -> TaskKey {
        TaskKey { task_id: task.parse().unwrap(), ..key() }
    }

    /// Mechanisms 15: the logs of one principal leave room for those of others, and who brings them so slowly that they
    /// never come makes room.
    #[tokio::test(start_paused = true)]
    async fn one_principal_leaves_room_for_the_logs_of_others() {
        let imports = Imports::default();
        let begin = |who: &str, task: &str, len: u64| match imports.take(
            &key_of(task),
            &by(who),
            part(len, 0, b"x"),
        ) {
            Ok(_) => Ok(()),
            Err(refused) => Err(refused.code),
        };
        let third = OF_ONE_MAX / 3;
        for task in ["a", "b", "c"] {
            assert_eq!(begin("eve", task, third), Ok(()));
        }
        assert_eq!(begin("eve", "d", 1), Err(Code::Unavailable), "it has its part");
        assert_eq!(begin("bob", "e", LOG_MAX - OF_ONE_MAX), Ok(()));
        assert_eq!(begin("ann", "f", 2), Err(Code::Unavailable), "all is taken");
        let late = IDLE + Duration::from_secs(third / PACE + 1);
        for at in 0..late.as_secs() / 30 + 1 {
            tokio::time::advance(Duration::from_secs(30)).await;
            for task in ["a", "b", "c"] {
                let next = part(third, at + 1, b"x");
                assert!(imports.take(&key_of(task), &by("eve"), next).is_ok(), "a byte at a time");
            }
        }
        assert_eq!(begin("zoe", "z", 2), Ok(()));
        assert_eq!(begin("bob", "g", LOG_MAX), Err(Code::Unavailable), "it fits in no case");
        let still = imports.take(&key_of("a"), &by("eve"), part(third, 0, b"x"));
        assert!(
            matches!(still, Ok(Uploaded::Part(here)) if here > 1),
            "so nothing makes room for it"
        );
        assert_eq!(begin("ann", "f", LOG_MAX / 2), Ok(()));
        let again = imports.take(&key_of("a"), &by("eve"), part(third, 5, b"x"));
        assert!(matches!(again, Ok(Uploaded::Part(0))), "it begins again");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_much_is_refused_and_what_lies_idle_is_dropped() {
        let imports = Imports::default();
        assert_eq!(take(&imports, "a", part(LOG_MAX + 1, 0, b"")), Err(Code::ValidationError));
        assert_eq!(take(&imports, "a", part(2, 0, b"abc")), Err(Code::ValidationError));
        assert_eq!(take(&imports, "a", part(4, 0, b"ab")), Ok((2, false)));
        tokio::time::advance(IDLE).await;
        assert_eq!(take(&imports, "b", part(4, 2, b"cd")), Ok((0, false)));
    }
}
