//! Which actor is a Task's: looked up by everybody, changed by those who start and end actors.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;
use ractor::{ActorId, ActorRef};
use tenure_ports::journal::TaskKey;

use crate::task::Msg;

/// Shards: enough that two threads seldom meet.
const SHARDS: usize = 64;

/// Actors of Tasks by key.
#[derive(Debug)]
pub(crate) struct Directory {
    shards: Vec<Mutex<HashMap<TaskKey, ActorRef<Msg>>>>,
    hash: RandomState,
}

impl Directory {
    pub(crate) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, hash: RandomState::new() }
    }

    fn shard(&self, key: &TaskKey) -> &Mutex<HashMap<TaskKey, ActorRef<Msg>>> {
        let hashed = usize::try_from(self.hash.hash_one(key) % SHARDS as u64).unwrap_or(0);
        &self.shards[hashed]
    }

    /// The Task's actor; `start` makes it if there is none. At most one exists at a time.
    pub(crate) fn get_or<E>(
        &self,
        key: &TaskKey,
        start: impl FnOnce() -> Result<ActorRef<Msg>, E>,
    ) -> Result<ActorRef<Msg>, E> {
        let mut shard = self.shard(key).lock();
        if let Some(actor) = shard.get(key) {
            return Ok(actor.clone());
        }
        let actor = start()?;
        shard.insert(key.clone(), actor.clone());
        Ok(actor)
    }

    /// The Task's actor, if there is one.
    pub(crate) fn get(&self, key: &TaskKey) -> Option<ActorRef<Msg>> {
        self.shard(key).lock().get(key).cloned()
    }

    /// Forgets this actor, so that whoever asks next starts another.
    pub(crate) fn remove(&self, key: &TaskKey, actor: &ActorRef<Msg>) -> bool {
        let mut shard = self.shard(key).lock();
        let is_it = shard.get(key).is_some_and(|a| a.get_id() == actor.get_id());
        if is_it {
            shard.remove(key);
        }
        is_it
    }

    /// All actors.
    pub(crate) fn all(&self) -> Vec<(TaskKey, ActorRef<Msg>)> {
        let copy = |(key, actor): (&TaskKey, &ActorRef<Msg>)| (key.clone(), actor.clone());
        self.shards.iter().flat_map(|s| s.lock().iter().map(copy).collect::<Vec<_>>()).collect()
    }

    /// Forgets a failed actor, and answers whose it was.
    pub(crate) fn remove_id(&self, id: ActorId) -> Option<TaskKey> {
        self.shards.iter().find_map(|shard| {
            let mut shard = shard.lock();
            let key = shard.iter().find(|(_, a)| a.get_id() == id).map(|(key, _)| key.clone())?;
            shard.remove(&key);
            Some(key)
        })
    }
}
