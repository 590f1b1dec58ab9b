//! Short names of Tasks: `last`, and the beginning of an id that no other Task's begins with.

use tenure_core::Code;
use tenure_ports::ClientPort;
use tenure_ports::journal::{Entry, TaskKey};
use tenure_sdk::client::Client;

use crate::cli::exit::{Exit, Failure};

/// The newest Task of the session.
const LAST: &str = "last";
/// Fewer letters say too little.
const PREFIX_MIN: usize = 4;

/// The Task that `name` means among these, if it is the name of none.
pub(super) fn meant(name: &TaskKey, entries: &[Entry]) -> Option<TaskKey> {
    let id = name.task_id.as_str();
    let mut here = entries.iter().filter(|entry| entry.key.session_id == name.session_id);
    if here.clone().any(|entry| entry.key == *name) {
        return None;
    }
    if id == LAST {
        let newest = here.max_by(|a, b| (a.created_at, &a.key).cmp(&(b.created_at, &b.key)));
        return newest.map(|entry| entry.key.clone());
    }
    let mut begins = here.by_ref().filter(|entry| entry.key.task_id.as_str().starts_with(id));
    match (begins.next(), begins.next()) {
        (Some(only), None) if id.len() >= PREFIX_MIN => Some(only.key.clone()),
        _ => None,
    }
}

/// The Task that `name` means, where the one of that name was not found.
pub(crate) async fn look_up<P: ClientPort>(
    client: &Client<P>,
    name: &TaskKey,
) -> Result<Option<TaskKey>, Failure> {
    Ok(meant(name, &client.list(true).await?.entries))
}

/// Finds out whether there is a Task of this name, or which one is meant.
pub(super) async fn find<P: ClientPort>(
    client: &Client<P>,
    name: TaskKey,
) -> Result<TaskKey, Failure> {
    match client.port().log(&name.task_id, u64::MAX).await {
        Err(refused) if refused.code == Code::TaskNotFound => {
            let refused = Failure::from(refused);
            look_up(client, &name).await?.ok_or(refused)
        }
        Err(refused) => Err(refused.into()),
        Ok(_) => Ok(name),
    }
}

/// Whether this is said of a Task that is not there.
pub(crate) fn is_unknown(failure: &Failure) -> bool {
    failure.exit == Exit::NotFound
}

#[cfg(test)]
mod tests {
    use tenure_core::id::{SessionId, TaskId, WalName};

    use super::*;

    fn key(session: &str, id: &str) -> TaskKey {
        TaskKey { session_id: SessionId::new(session).unwrap(), task_id: TaskId::new(id).unwrap() }
    }

    fn entry(session: &str, id: &str, created_at: i64) -> Entry {
        Entry {
            key: key(session, id),
            wal_name: WalName::new(id).unwrap(),
            title: id.to_owned(),
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
        let means = |id: &str| meant(&key("s", id), &all).map(|key| key.task_id.to_string());
        assert_eq!(means("last").as_deref(), Some("nightly-22"));
        assert_eq!(means("impo").as_deref(), Some("import"), "the other is of another session");
        assert_eq!(means("nightly-2").as_deref(), Some("nightly-22"));
        assert_eq!(means("nightly"), None, "there are two");
        assert_eq!(means("imp"), None, "too short");
        assert_eq!(means("import"), None, "it is a name itself");
        assert_eq!(meant(&key("u", "last"), &all), None);
    }
}
