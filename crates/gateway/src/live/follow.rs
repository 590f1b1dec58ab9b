//! [`FollowedEvents`]: the frames of a Task's public events for one reader, from any place on.
//!
//! A reader joins the feed of the Task ([`Feeds`]) and is told from which place on it gets everything. What lies
//! before that place it reads from the log, page by page. A reader that was too slow for the feed does the
//! same again from where it stands, so nothing is lost to it.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use tenure_core::Rejection;
use tenure_core::id::TaskId;
use tenure_ports::ClientPort;
use tenure_sdk::client::Client;
use tenure_wire::bus::event::{EventPage, ReadEvents};

use super::check_since;
use super::feed::{FeedBatch, FeedNews, FeedSender, FeedTopic, Feeds, Subscriber};
use super::place::EventPlace;
use super::stream::Gap;
use super::tempo::Tempo;
use super::writer::{EventFrames, has_all};

/// How many events a feed gathers at most before it sends them.
const EVENTS_MAX: usize = 256;

/// What follows the first page that a reader got.
type FollowingPages = BoxStream<'static, Result<EventPage, Rejection>>;

/// The public events of a Task, as one reader gets them.
pub(super) struct FollowedEvents<P> {
    client: Client<P>,
    task: TaskId,
    feeds: Arc<Feeds>,
    /// The reader has the events up to this place.
    at: EventPlace,
    /// What the reader gets next.
    ready: Bytes,
    /// Whether it then has everything there will be.
    is_over: bool,
    /// Whether it had all of that before it came.
    had_all: bool,
    /// Whether the log has no event at the place that the reader named.
    gap: Option<Gap>,
    /// The Task's version, or an earlier one.
    version: u64,
    joined: Option<Subscriber>,
    /// For a feed that begins with this reader: the pages behind `version`, if the first page reached that far.
    following: Option<FollowingPages>,
}

impl<P: ClientPort> FollowedEvents<P> {
    /// Reads the first events behind `since`.
    ///
    /// # Errors
    /// There is no such Task, the caller may not read it, or the place is behind the end of its log.
    pub(super) async fn begin(
        client: Client<P>,
        task: TaskId,
        feeds: Arc<Feeds>,
        since: EventPlace,
    ) -> Result<Self, Rejection> {
        let topic = topic(&client, &task);
        let (page, following) = if feeds.find(&topic).is_some() {
            (client.ask(&task, ReadEvents { after: since.complete() }).await?, None)
        } else {
            let (page, following) = client.follow(&task, since.complete()).await?;
            let has_all = page.through >= page.version;
            (page, has_all.then(|| following.boxed()))
        };
        check_since(since.seq, page.version)?;
        let batch = written(&page);
        let is_there = |(place, _): &(EventPlace, usize)| *place == since;
        let is_known = !since.names_one() || batch.places.iter().any(is_there);
        let mut followed = Self {
            client,
            task,
            feeds,
            at: since,
            ready: Bytes::new(),
            is_over: false,
            had_all: has_all(&page) && batch.last().is_none_or(|last| last <= since),
            gap: (!is_known).then_some(Gap::PlaceUnknown),
            version: page.version,
            joined: None,
            following,
        };
        followed.take_page(&page, &batch);
        Ok(followed)
    }

    /// Whether the Task has ended, and the reader had all its events before.
    pub(super) const fn had_all(&self) -> bool {
        self.had_all
    }

    /// The frames, after those of `start`, to the end of the Task.
    pub(super) fn frames(mut self, mut start: Vec<u8>) -> impl Stream<Item = Bytes> + Send {
        if let Some(gap) = self.gap {
            gap.write(&mut start);
        }
        start.extend_from_slice(&self.ready);
        self.ready = start.into();
        stream::unfold(self, async |mut followed| {
            let bytes = followed.next().await?;
            Some((bytes, followed))
        })
    }

    /// The next frames; none at the end. The end is unmarked if the log cannot be read any more: the reader
    /// connects again and learns why.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if !self.ready.is_empty() {
                return Some(std::mem::take(&mut self.ready));
            }
            if self.is_over {
                return None;
            }
            match self.joined.take() {
                None => self.joined = Some(self.join()),
                Some(joined) if self.at < joined.sent => {
                    self.joined = Some(joined);
                    self.read_on().await?;
                }
                Some(joined) => self.hear(joined).await,
            }
        }
    }

    /// Joins the feed of the Task. A new feed begins behind everything that was read.
    fn join(&mut self) -> Subscriber {
        let from = self.version.max(self.at.complete());
        let pages = self
            .following
            .take()
            .unwrap_or_else(|| self.client.event_pages(&self.task, from).boxed());
        let task = self.task.clone();
        let run = move |sender| feed(pages, task, sender);
        self.feeds.join(topic(&self.client, &self.task), EventPlace::behind(from), run)
    }

    /// Takes the next batch of the feed.
    async fn hear(&mut self, mut joined: Subscriber) {
        match joined.next().await {
            FeedNews::Batch(batch) => {
                self.take_batch(&batch);
                self.joined = Some(joined);
            }
            FeedNews::Missed => {} // It joins again, and reads what it missed.
            FeedNews::Over => self.is_over = true,
        }
    }

    /// Reads the next page of the log. None if it cannot be read, or has nothing: then it is not the log that
    /// the feed reads, and the reader had better connect again.
    async fn read_on(&mut self) -> Option<()> {
        let known = self.at;
        match self.client.ask(&self.task, ReadEvents { after: known.complete() }).await {
            Ok(page) => self.take_page(&page, &written(&page)),
            Err(refused) => tracing::debug!(task = %self.task, %refused, "a stream of events ends"),
        }
        (self.at > known || self.is_over).then_some(())
    }

    fn take_page(&mut self, page: &EventPage, batch: &FeedBatch) {
        self.take_batch(batch);
        self.at = self.at.max(EventPlace::behind(page.through));
        self.version = self.version.max(page.version);
    }

    fn take_batch(&mut self, batch: &FeedBatch) {
        self.ready = batch.behind(self.at);
        self.at = self.at.max(batch.last().unwrap_or(self.at));
        self.is_over |= batch.is_last;
    }
}

/// A page of the log as frames.
fn written(page: &EventPage) -> FeedBatch {
    let mut writer = EventFrames::default();
    writer.page(page);
    writer.take()
}

fn topic<P: ClientPort>(client: &Client<P>, task: &TaskId) -> FeedTopic {
    FeedTopic::Task(client.port().session().clone(), task.clone())
}

/// The feed of a Task: sends the public events of these pages, and after the last the frame of the end.
async fn feed(pages: FollowingPages, task: TaskId, sender: FeedSender) {
    let mut pages = pages.fuse();
    let (mut writer, mut tempo) = (EventFrames::default(), Tempo::new());
    loop {
        let mut gathered = 0;
        let goes_out = |page: &Result<EventPage, Rejection>| {
            gathered += page.as_ref().map_or(0, |page| page.events.len());
            gathered >= EVENTS_MAX || page.as_ref().map_or(true, has_all)
        };
        let Some(gathered) = tempo.gather(&mut pages, goes_out).await else { return };
        for page in gathered {
            match page {
                Ok(page) => writer.page(&page),
                Err(refused) => {
                    tracing::debug!(%task, %refused, "the feed of a task ends");
                    return; // Its readers connect again, and each learns why.
                }
            }
        }
        tempo.sent_to(sender.readers());
        sender.send(writer.take());
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::super::double::{TestClient, waiting_task};
    use super::*;

    /// A reader from the start that has everything so far, and waits.
    async fn reader(
        client: &TestClient,
        task: &TaskId,
        feeds: &Arc<Feeds>,
    ) -> BoxStream<'static, Bytes> {
        let (client, task, feeds) = (client.clone(), task.clone(), Arc::clone(feeds));
        let begun = FollowedEvents::begin(client, task, feeds, EventPlace::default()).await;
        let mut frames = begun.unwrap().frames(Vec::new()).boxed();
        let first = frames.next().await.unwrap();
        assert!(first.starts_with(b"id: 1.1\n"), "it is told of no gap: {first:?}");
        assert!(frames.next().now_or_never().is_none());
        frames
    }

    /// A reader that was too slow for the feed gets what it missed from the log.
    #[tokio::test]
    async fn a_slow_reader_misses_nothing() {
        let (client, task, _) = waiting_task().await;
        let feeds = Arc::default();
        let mut quick = reader(&client, &task, &feeds).await;
        let slow = reader(&client, &task, &feeds).await;
        assert_eq!(feeds.count(), 1);
        let mut seen = Vec::new();
        for _ in 0..40 {
            client.pause(&task, "test").await.unwrap();
            seen.push(quick.next().await.unwrap());
            client.resume(&task, "test").await.unwrap();
            seen.push(quick.next().await.unwrap());
        }
        client.cancel(&task, "test").await.unwrap();
        seen.extend(quick.collect::<Vec<_>>().await);
        let late: Vec<Bytes> = slow.collect().await;
        let text = |frames: &[Bytes]| String::from_utf8(frames.concat()).unwrap();
        assert_eq!(text(&seen), text(&late));
        assert!(text(&late).trim_end().ends_with('}') && text(&late).contains("event: end"));
        assert_eq!(feeds.count(), 0, "the feed ended with its readers");
    }

    #[tokio::test]
    async fn a_reader_of_an_ended_task_needs_no_feed() {
        let (client, task, _) = waiting_task().await;
        client.cancel(&task, "test").await.unwrap();
        let version = client.wait_for_end(&task).await.unwrap().version;
        let feeds = Arc::<Feeds>::default();
        for (since, has_all) in [(0, false), (version, true)] {
            let since = EventPlace::behind(since);
            let (client, task, feeds) = (client.clone(), task.clone(), Arc::clone(&feeds));
            let begun = FollowedEvents::begin(client, task, feeds, since).await.unwrap();
            assert_eq!(begun.had_all(), has_all);
            let frames = begun.frames(Vec::new()).collect::<Vec<_>>().await.concat();
            let text = String::from_utf8(frames).unwrap();
            assert_eq!(text.contains("task.created"), !has_all);
            assert_eq!(text.matches("event: end").count(), 1, "{text}");
        }
        assert_eq!(feeds.count(), 0);
    }
}
