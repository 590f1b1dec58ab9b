//! Whether this node is still the one who writes a partition, by what its stream says.

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

    /// Whether this node was still the owner of a partition when it was asked: what a refusal or a
    /// read needs to know while the lease on the partition is not certain (mechanisms 4). It asks the
    /// leader of the stream. Where another owner's record is found, the partition is stepped down
    /// from (OWN-03).
    ///
    /// # Errors
    /// The stream does not answer, or what it says does not tell.
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
        // An append of this node may be stored and not acknowledged yet; else it is another's. There
        // is one writer per epoch, so that the newest message tells.
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
