//! Short names of Tasks: `last`, and the beginning of an id that no other Task's begins with.

use tenure_core::id::RunId;
use tenure_core::{Code, Rejection};
use tenure_ports::ClientPort as _;
use tenure_ports::client::Listing;
use tenure_ports::erased::ErasedClient;
use tenure_ports::journal::{Entry, TaskKey};
use tenure_sdk::client::Client;

use crate::answer::{Failure, did_you_mean};

/// The longest answer of a cluster with a Task without its lists, in bytes.
pub(crate) const HEADER_BYTES: usize = 64 << 10;
/// The newest Task of the session.
const LAST: &str = "last";
/// The shortest beginning of an id that may stand for it.
const PREFIX_MIN: usize = 4;
/// A name of this length is a whole id, such as a UUID.
const WHOLE_MIN: usize = 36;

/// The Task that `name` stands for among these, if it is not itself the name of one.
///
/// # Errors
/// Some Tasks are unknown, so that the name may stand for one of them.
pub(crate) fn meant(name: &TaskKey, known: &Listing) -> Result<Option<TaskKey>, Failure> {
    match newest(name, known)? {
        Some(newest) => Ok(Some(newest)),
        None => Ok(beginning(name, &known.entries)),
    }
}

/// The newest Task, if the name is `last`. Commands accept no other short name, because a command
/// on the wrong Task cannot be undone.
pub(crate) fn newest(name: &TaskKey, known: &Listing) -> Result<Option<TaskKey>, Failure> {
    if !known.missing_partitions.is_empty() {
        let message = format!("which task {name} is cannot be said now: some do not answer");
        let refused = Rejection::new(Code::Unavailable, message);
        return Err(Failure::absent(refused).help("try again, or name it in full"));
    }
    let here = of_session(name, &known.entries);
    if !is_last(name) || here.clone().any(|entry| entry.key == *name) {
        return Ok(None);
    }
    let newest = here.max_by(|a, b| (a.created_at, &a.key).cmp(&(b.created_at, &b.key)));
    Ok(newest.map(|entry| entry.key.clone()))
}

/// Whether the name is `last`, which means the newest Task unless a Task has this name.
pub(crate) fn is_last(name: &TaskKey) -> bool {
    name.task_id.as_str() == LAST
}

/// Whether the name may be short for the id of a Task that has ended. If not, only live Tasks are looked at, for a
/// suggestion: a list of all Tasks has a cluster read its streams.
fn may_stand_for_another(name: &TaskKey) -> bool {
    is_last(name) || (PREFIX_MIN..WHOLE_MIN).contains(&name.task_id.as_str().len())
}

fn beginning(name: &TaskKey, entries: &[Entry]) -> Option<TaskKey> {
    let id = name.task_id.as_str();
    let mut begins = of_session(name, entries).filter(|e| e.key.task_id.as_str().starts_with(id));
    match (begins.next(), begins.next()) {
        (Some(only), None) if id.len() >= PREFIX_MIN && only.key != *name => Some(only.key.clone()),
        _ => None,
    }
}

fn of_session<'a>(
    name: &'a TaskKey,
    entries: &'a [Entry],
) -> impl Iterator<Item = &'a Entry> + Clone {
    entries.iter().filter(|entry| entry.key.session_id == name.session_id)
}

/// The shortest beginning of a Run's id that may stand for it: ids begin with the time, so many
/// share a shorter one.
const RUN_PREFIX_MIN: usize = 8;

/// The Run of this id, or the only one whose id begins so.
pub(crate) fn run(name: &str, known: impl Iterator<Item = RunId>) -> Option<RunId> {
    let mut begins = known.filter(|run| run.to_string().starts_with(name));
    let only = begins.next().filter(|_| begins.next().is_none());
    only.filter(|_| name.len() >= RUN_PREFIX_MIN)
}

/// The failure for a Run that does not exist, or if the ids of several begin so.
pub(crate) fn no_run(name: &str, key: &TaskKey) -> Failure {
    let message = match name.len() {
        RUN_PREFIX_MIN.. => {
            format!("no run `{name}`, or more than one that begins so, in task {key}")
        }
        _ => format!("`{name}` is no id of a run: {RUN_PREFIX_MIN} characters of one at least"),
    };
    let refusal = Rejection::new(Code::RunNotFound, message).with("run_id", name);
    Failure::absent(refusal).help(format!("`tenure runs list {key} --all` shows its runs"))
}

/// Finds out whether there is a Task of this name, or which one it stands for.
pub(crate) async fn find(client: &Client<ErasedClient>, name: TaskKey) -> Result<TaskKey, Failure> {
    match client.port().log(&name.task_id, u64::MAX).await {
        Err(refused) if refused.code == Code::TaskNotFound => {
            let known = client.list(may_stand_for_another(&name)).await?;
            meant(&name, &known)?.ok_or_else(|| {
                let refused = Failure::from(refused);
                let names = of_session(&name, &known.entries).map(|e| e.key.task_id.as_str());
                match did_you_mean(name.task_id.as_str(), names) {
                    Some(help) => refused.help(help),
                    None => refused,
                }
            })
        }
        Err(refused) => Err(refused.into()),
        Ok(_) => Ok(name),
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::id::{SessionId, TaskId, WalName};
    use tenure_sdk::client::passes;

    use super::*;

    fn key(session: &str, id: &str) -> TaskKey {
        TaskKey { session_id: SessionId::new(session).unwrap(), task_id: TaskId::new(id).unwrap() }
    }

    fn entry(session: &str, id: &str, created_at: i64) -> Entry {
        Entry {
            key: key(session, id),
            wal_name: WalName::new(id).unwrap(),
            title: id.to_owned(),
            labels: Default::default(),
            created_at,
            updated_at: created_at,
            ended: None,
            archived: false,
            damaged: false,
        }
    }

    #[test]
    fn short_names_mean_one_task_of_the_session_or_none() {
        let all = [
            entry("s", "nightly-1", 1),
            entry("s", "nightly-22", 9),
            entry("s", "import", 5),
            entry("t", "import-all", 20),
        ];
        let mut known = Listing { entries: all.to_vec(), missing_partitions: Vec::new() };
        let means =
            |id: &str| meant(&key("s", id), &known).unwrap().map(|key| key.task_id.to_string());
        assert_eq!(means("last").as_deref(), Some("nightly-22"));
        assert_eq!(means("impo").as_deref(), Some("import"), "the other is of another session");
        assert_eq!(means("nightly-2").as_deref(), Some("nightly-22"));
        assert_eq!(means("nightly"), None, "there are two");
        assert_eq!(means("imp"), None, "too short");
        assert_eq!(means("import"), None, "it is a name itself");
        assert_eq!(meant(&key("u", "last"), &known).unwrap(), None);
        assert_eq!(newest(&key("s", "impo"), &known).unwrap(), None, "commands want it in full");
        known.missing_partitions.push(3);
        let refused = meant(&key("s", "last"), &known).unwrap_err();
        assert!(refused.refusal().is_some_and(passes), "whoever waits asks again: {refused:?}");
    }
}
