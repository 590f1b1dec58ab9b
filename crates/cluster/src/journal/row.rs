//! What the index would say of a Task that has no row there, from the heads of its frames.

use tenure_ports::journal::{ReadError, TaskKey};
use tenure_wire::stored::frame::CommitHead;

use super::index::{Found, Index, Newest, Row, fallback};
use super::read::Frames;

impl Frames<'_> {
    /// The row of the Task whose newest frame stands at one of the places; none if all of them are
    /// those of others. Every head of its chain is looked at, its lines are not.
    pub(super) async fn row(self, key: &TaskKey, among: &[u64]) -> Result<Option<Row>, ReadError> {
        for &at in among.iter().rev() {
            match self.heads(key, at).await {
                Ok(heads) if heads.is_empty() => {}
                Ok(heads) => return self.row_of(key, at, heads).await,
                // Nobody else has the hash, as a rule: it is this Task that cannot be read.
                Err(ReadError::Damaged { .. }) => return Ok(Some(unreadable(key, at))),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    async fn row_of(
        self,
        key: &TaskKey,
        newest: u64,
        heads: Vec<CommitHead>,
    ) -> Result<Option<Row>, ReadError> {
        let (mut chain, mut prev) = (Vec::new(), heads[0].prev);
        chain.push((newest, heads));
        while prev > 0 {
            let heads = match self.heads(key, prev).await {
                Ok(heads) => heads,
                Err(ReadError::Damaged { .. }) => break,
                Err(error) => return Err(error),
            };
            let Some(first) = heads.first() else { break };
            let at = std::mem::replace(&mut prev, first.prev);
            chain.push((at, heads));
        }
        let mut index = Index::new(usize::MAX);
        for (at, heads) in chain.iter().rev() {
            heads.iter().for_each(|head| index.take(key, head, *at));
        }
        match index.find(key) {
            Found::Row(row) => Ok(Some(*row)),
            Found::Among(_) => Ok(None),
        }
    }

    /// What a frame says of a Task's commits.
    async fn heads(self, key: &TaskKey, at: u64) -> Result<Vec<CommitHead>, ReadError> {
        let frame = self.opened(at).await?;
        Ok(frame.commits_of(key).map(|(head, _)| head.clone()).collect())
    }
}

/// The last event of a Task that cannot be known: nothing follows it, and a read finds the damage.
const UNKNOWN: u64 = u64::MAX - 1;

/// The row of a Task whose newest frame is damaged.
fn unreadable(key: &TaskKey, stream_seq: u64) -> Row {
    Row {
        newest: Newest { wal_seq: UNKNOWN, stream_seq },
        title: String::new(),
        wal_name: fallback(key),
        created_at: 0,
        updated_at: 0,
        ended: None,
        archived: false,
        damaged: true,
        unkept: 0,
        state: None,
    }
}
