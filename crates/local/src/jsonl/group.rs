//! Groups threads and creations that wait for the same directory sync.
//!
//! A sync covers everything that was there before it *started*. So those who come while a sync runs
//! wait for the next one, together.

use std::io;
use std::mem;

use parking_lot::{Condvar, Mutex};

/// Waiters that get their answers later: the thread that brings one does not block.
#[derive(Debug)]
pub(crate) struct WaiterGroup<T> {
    state: Mutex<WaiterQueue<T>>,
}

#[derive(Debug)]
struct WaiterQueue<T> {
    items: Vec<T>,
    syncing: bool,
}

impl<T> Default for WaiterGroup<T> {
    fn default() -> Self {
        Self { state: Mutex::new(WaiterQueue { items: Vec::new(), syncing: false }) }
    }
}

impl<T> WaiterGroup<T> {
    /// Adds an item. Unless another thread is syncing already, this one syncs until nobody waits,
    /// and passes each group to `done` with the result of its sync.
    pub(crate) fn join(
        &self,
        item: T,
        sync: impl Fn() -> io::Result<()>,
        done: impl Fn(Vec<T>, io::Result<()>),
    ) {
        {
            let mut state = self.state.lock();
            state.items.push(item);
            if mem::replace(&mut state.syncing, true) {
                return;
            }
        }
        let _unlead = Unlead(self);
        while let Some(items) = self.take() {
            let result = sync();
            done(items, result);
        }
    }

    /// The next group; `None` if nobody waits, which ends the lead of this thread.
    fn take(&self) -> Option<Vec<T>> {
        let mut state = self.state.lock();
        state.syncing = !state.items.is_empty();
        state.syncing.then(|| mem::take(&mut state.items))
    }
}

/// Ends the lead of a thread that panics, so that another thread can take it.
struct Unlead<'a, T>(&'a WaiterGroup<T>);

impl<T> Drop for Unlead<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.state.lock().syncing = false;
        }
    }
}

/// Waiters that block until a sync is done: for syncs that are rare.
#[derive(Debug, Default)]
pub(crate) struct Barrier {
    state: Mutex<SyncRounds>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct SyncRounds {
    started: u64,
    /// The last round that succeeded.
    succeeded: u64,
    running: bool,
}

impl Barrier {
    /// Returns after a sync that started after this call.
    pub(crate) fn wait(&self, sync: impl Fn() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.state.lock();
        let needed = state.started + 1;
        loop {
            if state.succeeded >= needed {
                return Ok(());
            }
            if state.running {
                self.ended.wait(&mut state);
                continue;
            }
            state.running = true;
            state.started += 1;
            let round = state.started;
            drop(state);
            let result = sync();
            state = self.state.lock();
            state.running = false;
            self.ended.notify_all();
            result?;
            state.succeeded = round;
        }
    }
}
