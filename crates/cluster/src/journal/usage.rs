//! How much the streams of a node take, and how much more they may.

use std::collections::BTreeSet;

use tenure_ports::observer::{LogCapacity, LogSample};

use super::JetStreamJournal;
use crate::request::{RequestError, within};

impl JetStreamJournal {
    /// How much the logs of these partitions take, and the place that is closest to full: one of their streams, or the
    /// account of the server in which they are. If neither has a bound, this answers no place.
    ///
    /// # Errors
    /// The server does not answer, or refuses.
    pub async fn usage(&self, partitions: &BTreeSet<u32>) -> Result<LogSample, RequestError> {
        let mut sample = LogSample::default();
        let mut note = |limit: Option<u64>, used: u64| {
            let Some(limit) = limit.filter(|limit| *limit > 0) else { return };
            let room = LogCapacity { limit, free: limit.saturating_sub(used) };
            sample.tightest = Some(sample.tightest.map_or(room, |tightest| tightest.tighter(room)));
        };
        let mut bytes = 0;
        for partition in partitions {
            let name = self.settings.stream(*partition);
            let asked = self.context.get_stream(&name);
            let stream = within(self.settings.timeout, "no answer about a stream", asked).await?;
            let info = stream.cached_info();
            note(u64::try_from(info.config.max_bytes).ok(), info.state.bytes);
            bytes += info.state.bytes;
        }
        let asked = self.context.query_account();
        let account = within(self.settings.timeout, "no answer about the account", asked).await?;
        let limit = account.limits.max_storage.and_then(|limit| u64::try_from(limit).ok());
        note(limit, account.storage);
        sample.bytes = bytes;
        Ok(sample)
    }
}
