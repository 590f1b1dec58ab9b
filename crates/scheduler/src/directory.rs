//! The addresses of a node's Tasks. Every request looks its Task up here; the actors add and remove
//! addresses.

use std::hash::BuildHasher as _;

use parking_lot::Mutex;
use ractor::ActorId;
use tenure_ports::journal::TaskKey;
use tenure_ports::map::{IdHash, IdMap};

use crate::task::address::Address;

/// How many shards: enough that two threads seldom wait for each other.
const SHARDS: usize = 64;

/// Addresses of Tasks by key. Code that holds the lock of a shard takes no lock of an address:
/// elsewhere the two are taken in the other order.
#[derive(Debug)]
pub(crate) struct Directory {
    shards: Vec<Mutex<IdMap<TaskKey, Address>>>,
    hash: IdHash,
}

impl Directory {
    pub(crate) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, hash: IdHash::default() }
    }

    fn shard(&self, key: &TaskKey) -> &Mutex<IdMap<TaskKey, Address>> {
        let hashed = usize::try_from(self.hash.hash_one(key) % SHARDS as u64).unwrap_or(0);
        &self.shards[hashed]
    }

    /// The Task's address; `start` makes it if there is none. There is at most one at a time.
    pub(crate) fn get_or<E>(
        &self,
        key: &TaskKey,
        start: impl FnOnce() -> Result<Address, E>,
    ) -> Result<Address, E> {
        let mut shard = self.shard(key).lock();
        if let Some(address) = shard.get(key) {
            return Ok(address.clone());
        }
        let address = start()?;
        shard.insert(key.clone(), address.clone());
        Ok(address)
    }

    /// The Task's address, if it is on this node.
    pub(crate) fn get(&self, key: &TaskKey) -> Option<Address> {
        self.shard(key).lock().get(key).cloned()
    }

    /// Removes this address, so that the next request makes a new one.
    pub(crate) fn remove(&self, key: &TaskKey, address: &Address) -> bool {
        let mut shard = self.shard(key).lock();
        let is_it = shard.get(key).is_some_and(|a| a.is(address));
        if is_it {
            shard.remove(key);
        }
        is_it
    }

    /// How many Tasks there are.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum::<usize>()
    }

    pub(crate) fn all(&self) -> Vec<Address> {
        self.shards.iter().flat_map(|s| s.lock().values().cloned().collect::<Vec<_>>()).collect()
    }

    /// Closes the address of a Task whose actor has failed, if that actor was busy with the Task. It is still here, so
    /// that nobody makes another.
    pub(crate) fn close_failed(&self, key: &TaskKey, actor: ActorId) -> Option<Address> {
        let address = self.get(key).filter(|address| address.is_with(actor))?;
        address.close();
        Some(address)
    }

    /// The Task with which an actor is busy.
    pub(crate) fn of_actor(&self, id: ActorId) -> Option<TaskKey> {
        let found = self.all().into_iter().find(|address| address.is_with(id))?;
        Some(found.key().clone())
    }

    /// Removes all addresses: Tasks that rest hold a reference to the node.
    pub(crate) fn clear(&self) {
        for address in self.all() {
            address.close();
            self.remove(address.key(), &address);
        }
    }
}
