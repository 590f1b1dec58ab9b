//! Finds out from a partition's stream whether this node still owns the partition.

use std::sync::atomic::Ordering;

use tenure_wire::stored::frame::{Header, decode};

use super::JetStreamJournal;
use super::read::Frames;
use super::tail::StreamError;

impl JetStreamJournal {
    /// Whether the log of a partition answers this node, whoever owns it.
    pub(crate) async fn answers(&self, partition: u32) -> bool {
        let stream = self.context.get_stream_no_info(self.settings.stream(partition)).await;
        let Ok(stream) = stream else { return false };
        stream.get_info().await.is_ok()
    }

    /// Whether this node still owned a partition when it asked. A refusal or a read needs to know
    /// this while the lease on the partition is not certain (mechanisms 4). This asks the leader of
    /// the stream. If it finds another owner's record, this node leaves the partition (OWN-03).
    ///
    /// # Errors
    /// The stream does not answer, or its answer does not decide it.
    pub async fn confirm(&self, partition: u32) -> Result<bool, StreamError> {
        let found = self.partitions.lock().get(partition as usize).cloned().flatten();
        let Some(found) = found.filter(|p| self.owned.epoch(partition) == Some(p.epoch)) else {
            return Ok(false);
        };
        let name = self.settings.stream(partition);
        let known = found.last_seq.load(Ordering::Acquire);
        let frames = self.frames(&found.stream, &name, None);
        let last = frames.last_seq().await?;
        if last < known {
            return Err(StreamError::Short { stream: name, last, acknowledged: known });
        }
        if last == known {
            return Ok(true);
        }
        // The last message may be an append of this node that is not acknowledged yet, or another
        // owner's. The newest message decides it, as each epoch has only one writer.
        let frames = Frames { asks_leader: true, ..frames };
        let frame = frames.ending_at(last).await?;
        let frame = decode(&frame);
        let frame = frame.map_err(|error| StreamError::Frame { stream: name, at: last, error })?;
        let epoch = match frame.header {
            Header::Commits { epoch, .. } => epoch,
            Header::Owner { .. } => last,
        };
        if epoch != found.epoch {
            tracing::info!(partition, epoch, own = found.epoch, "another node owns the partition");
            self.step_down(partition, found.epoch);
        }
        Ok(epoch == found.epoch)
    }
}
