//! A shared journal.

use std::future::Future;
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

use tenure_core::Commit;
use tenure_core::id::{SessionId, WalName};
use tokio::sync::mpsc;

use super::{
    AppendError, EncodedSnapshot, EndedLog, Entry, Journal, ReadError, SnapshotRequest, TaskKey,
};

/// A shared journal is a journal.
impl<J: Journal> Journal for Arc<J> {
    fn create(
        &self,
        key: &TaskKey,
        wal_name: &WalName,
        commits: Vec<Arc<Commit>>,
    ) -> impl Future<Output = Result<(), AppendError>> + Send {
        J::create(self, key, wal_name, commits)
    }

    fn append(
        &self,
        key: &TaskKey,
        after: u64,
        commits: Vec<Arc<Commit>>,
    ) -> impl Future<Output = Result<(), AppendError>> + Send {
        J::append(self, key, after, commits)
    }

    fn append_within_capacity(
        &self,
        key: &TaskKey,
        after: u64,
        commits: Vec<Arc<Commit>>,
    ) -> impl Future<Output = Result<(), AppendError>> + Send {
        J::append_within_capacity(self, key, after, commits)
    }

    fn log_bytes(&self, key: &TaskKey) -> Option<u64> {
        J::log_bytes(self, key)
    }

    fn wal_path(&self, key: &TaskKey, wal_name: &WalName) -> Option<String> {
        J::wal_path(self, key, wal_name)
    }

    fn read<F>(
        &self,
        key: &TaskKey,
        after: u64,
        each: F,
    ) -> impl Future<Output = Result<(), ReadError>> + Send
    where
        F: FnMut(Commit) -> ControlFlow<()> + Send + 'static,
    {
        J::read(self, key, after, each)
    }

    fn read_part<F>(
        &self,
        key: &TaskKey,
        events: RangeInclusive<u64>,
        each: F,
    ) -> impl Future<Output = Result<(), ReadError>> + Send
    where
        F: FnMut(Commit) -> ControlFlow<()> + Send + 'static,
    {
        J::read_part(self, key, events, each)
    }

    fn entry(
        &self,
        key: &TaskKey,
    ) -> impl Future<Output = Result<Option<Entry>, ReadError>> + Send {
        J::entry(self, key)
    }

    fn ended(&self, key: &TaskKey) -> impl Future<Output = Option<EndedLog>> + Send {
        J::ended(self, key)
    }

    fn entries(
        &self,
        session: Option<&SessionId>,
    ) -> impl Future<Output = Result<Vec<Entry>, ReadError>> + Send {
        J::entries(self, session)
    }

    fn live(&self) -> impl Future<Output = Result<Vec<TaskKey>, ReadError>> + Send {
        J::live(self)
    }

    fn wanted(&self) -> Option<mpsc::Receiver<SnapshotRequest>> {
        J::wanted(self)
    }

    fn keep(&self, key: &TaskKey, folded: EncodedSnapshot) -> impl Future<Output = ()> + Send {
        J::keep(self, key, folded)
    }

    fn kept(
        &self,
        key: &TaskKey,
        until: u64,
    ) -> impl Future<Output = Option<EncodedSnapshot>> + Send {
        J::kept(self, key, until)
    }

    fn forget_snapshot(&self, key: &TaskKey) {
        J::forget_snapshot(self, key);
    }

    fn release(&self, key: &TaskKey) {
        J::release(self, key);
    }

    fn may_hold(&self, key: &TaskKey, feature: &str) -> bool {
        J::may_hold(self, key, feature)
    }

    fn epoch(&self, key: &TaskKey) -> Option<u64> {
        J::epoch(self, key)
    }
}
