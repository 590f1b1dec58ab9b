//! [`Feeds`]: many readers of one stream share one subscription of the backend, and the bytes of its frames.
//!
//! A feed is a task that listens to the backend, writes what it gets as frames, and sends these to a channel that
//! holds the last [`BATCHES_MAX`] batches. It begins with its first reader and ends with its last. A batch is written
//! once, however many readers there are, and all of them send the same bytes.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use tenure_core::id::{SessionId, TaskId};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender, channel};
use tokio::task::AbortHandle;

use super::place::EventPlace;

/// How many batches wait for a reader. A reader that is further behind learns that it missed some.
const BATCHES_MAX: usize = 32;

/// What a feed is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum FeedTopic {
    /// The public events of a Task.
    Task(SessionId, TaskId),
    /// Hints that Tasks of a session have changed.
    Hints(SessionId),
    /// The runtime events of a session.
    Runtime(SessionId),
}

/// Frames that go out together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FeedBatch {
    /// The frames of events that have places, then those that have none.
    pub(super) frames: Bytes,
    /// The places of the events, and where each begins in the frames.
    pub(super) places: Vec<(EventPlace, usize)>,
    /// Where the frames without a place begin.
    pub(super) placeless: usize,
    /// Whether the stream ends with this batch.
    pub(super) is_last: bool,
}

impl FeedBatch {
    /// The place of its last event, if it has one.
    pub(super) fn last(&self) -> Option<EventPlace> {
        self.places.last().map(|(place, _)| *place)
    }

    /// The frames for a reader that knows the events up to this place.
    pub(super) fn behind(&self, known: EventPlace) -> Bytes {
        let first = self.places.partition_point(|(place, _)| *place <= known);
        let from = self.places.get(first).map_or(self.placeless, |(_, from)| *from);
        self.frames.slice(from..)
    }
}

/// The feeds that have readers.
#[derive(Debug, Default)]
pub(super) struct Feeds(Mutex<HashMap<FeedTopic, Weak<Feed>>>);

impl Feeds {
    /// Joins the feed of a topic, if there is one.
    pub(super) fn find(&self, topic: &FeedTopic) -> Option<Subscriber> {
        let known = self.0.lock().get(topic).and_then(Weak::upgrade)?;
        known.subscribe()
    }

    /// Joins the feed of a topic. If there is none, one begins behind the place `from`, and is over when the
    /// future that `run` returns has ended.
    pub(super) fn join<F>(
        self: &Arc<Self>,
        topic: FeedTopic,
        from: EventPlace,
        run: impl FnOnce(FeedSender) -> F,
    ) -> Subscriber
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let known; // Declared before the lock, so that it is dropped after it: see `Feed::drop`.
        let mut all = self.0.lock();
        known = all.get(&topic).and_then(Weak::upgrade);
        if let Some(joined) = known.as_ref().and_then(Feed::subscribe) {
            return joined;
        }
        let (sender, receiver) = channel(BATCHES_MAX);
        let source: Arc<FeedChannel> =
            Arc::new(Mutex::new(Some(OpenChannel { sender, sent: from })));
        let task = tokio::spawn(run(FeedSender(Arc::clone(&source)))).abort_handle();
        let feeds = Arc::downgrade(self);
        let feed = Arc::new(Feed { topic: topic.clone(), source, task, feeds });
        all.insert(topic, Arc::downgrade(&feed));
        Subscriber { receiver, sent: from, _feed: feed }
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.lock().len()
    }
}

/// The channel of a feed; none when the feed is over.
type FeedChannel = Mutex<Option<OpenChannel>>;

#[derive(Debug)]
struct OpenChannel {
    sender: Sender<Arc<FeedBatch>>,
    /// The place of the last event that was sent.
    sent: EventPlace,
}

/// A feed, which its readers hold together.
#[derive(Debug)]
struct Feed {
    topic: FeedTopic,
    source: Arc<FeedChannel>,
    task: AbortHandle,
    feeds: Weak<Feeds>,
}

impl Feed {
    /// A reader of what is sent from now on; none if nothing will be.
    fn subscribe(self: &Arc<Self>) -> Option<Subscriber> {
        let source = self.source.lock();
        let OpenChannel { sender, sent } = source.as_ref()?;
        Some(Subscriber { receiver: sender.subscribe(), sent: *sent, _feed: Arc::clone(self) })
    }
}

impl Drop for Feed {
    /// Ends the feed when its last reader has gone. This takes the lock of all feeds: nobody who holds that
    /// lock may drop a feed.
    fn drop(&mut self) {
        self.task.abort();
        let Some(feeds) = self.feeds.upgrade() else { return };
        let mut all = feeds.0.lock();
        if all.get(&self.topic).is_some_and(|known| std::ptr::eq(known.as_ptr(), self)) {
            all.remove(&self.topic); // Another feed may have taken its place.
        }
    }
}

/// Sends the batches of a feed. When it is dropped, the feed is over.
#[derive(Debug)]
pub(super) struct FeedSender(Arc<FeedChannel>);

impl FeedSender {
    /// Sends a batch to all readers.
    pub(super) fn send(&self, batch: FeedBatch) {
        // Readers join under the same lock, so each gets all batches behind the place that it is told.
        if let Some(open) = self.0.lock().as_mut() {
            open.sent = batch.last().unwrap_or(open.sent);
            let _ = open.sender.send(Arc::new(batch)); // The last reader may just have gone.
        }
    }

    /// How many readers there are.
    pub(super) fn readers(&self) -> usize {
        self.0.lock().as_ref().map_or(0, |open| open.sender.receiver_count())
    }
}

impl Drop for FeedSender {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

/// A reader of a feed.
#[derive(Debug)]
pub(super) struct Subscriber {
    receiver: Receiver<Arc<FeedBatch>>,
    /// It gets everything behind this place.
    pub(super) sent: EventPlace,
    _feed: Arc<Feed>,
}

/// What a reader gets from a feed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FeedNews {
    /// The next batch.
    Batch(Arc<FeedBatch>),
    /// The reader was too slow, and some batches are not there any more.
    Missed,
    /// Nothing will come.
    Over,
}

impl Subscriber {
    /// The next news. Nothing is lost if the returned future is dropped.
    pub(super) async fn next(&mut self) -> FeedNews {
        match self.receiver.recv().await {
            Ok(batch) => FeedNews::Batch(batch),
            Err(RecvError::Lagged(_)) => FeedNews::Missed,
            Err(RecvError::Closed) => FeedNews::Over,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::sync::mpsc;

    use super::*;

    fn topic(task: &str) -> FeedTopic {
        FeedTopic::Task("main".parse().unwrap(), task.parse().unwrap())
    }

    fn place(text: &str) -> EventPlace {
        text.parse().unwrap()
    }

    fn batch(places: &[&str]) -> FeedBatch {
        let mut batch = FeedBatch::default();
        let mut frames = Vec::new();
        for text in places {
            batch.places.push((place(text), frames.len()));
            frames.extend_from_slice(text.as_bytes());
            frames.push(b'|');
        }
        batch.placeless = frames.len();
        FeedBatch { frames: frames.into(), ..batch }
    }

    /// A feed that sends what the test gives it.
    fn join(feeds: &Arc<Feeds>, from: &str) -> (Subscriber, mpsc::UnboundedSender<FeedBatch>) {
        let (to, mut given) = mpsc::unbounded_channel();
        let joined = feeds.join(topic("t"), place(from), |sender| async move {
            while let Some(batch) = given.recv().await {
                sender.send(batch);
            }
        });
        (joined, to)
    }

    async fn next(of: &mut Subscriber) -> Arc<FeedBatch> {
        match of.next().await {
            FeedNews::Batch(batch) => batch,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_reader_gets_the_frames_behind_its_place() {
        let mut batch = batch(&["7.1", "7.2", "9.1"]);
        batch.frames = [&batch.frames[..], b"end"].concat().into();
        for (known, left) in [
            ("0", "7.1|7.2|9.1|end"),
            ("7.1", "7.2|9.1|end"),
            ("7", "9.1|end"),
            ("8", "9.1|end"),
            ("9.1", "end"),
            ("20", "end"),
        ] {
            assert_eq!(batch.behind(place(known)), left, "{known}");
        }
        assert_eq!(FeedBatch::default().behind(place("0")), "");
    }

    #[tokio::test]
    async fn readers_share_one_feed_and_its_bytes() {
        let feeds = Arc::new(Feeds::default());
        assert!(feeds.find(&topic("t")).is_none());
        let (mut first, to) = join(&feeds, "4");
        to.send(batch(&["5.1"])).unwrap();
        let seen = next(&mut first).await;
        let (mut second, unused) = join(&feeds, "0");
        assert!(unused.is_closed(), "no second feed was begun");
        assert_eq!((first.sent, second.sent), (place("4"), place("5.1")));
        assert_eq!(seen.last(), Some(place("5.1")));
        to.send(batch(&["6.1"])).unwrap();
        let (one, two) = (next(&mut first).await, next(&mut second).await);
        assert!(Arc::ptr_eq(&one, &two));
        assert_eq!(feeds.count(), 1);
    }

    #[tokio::test]
    async fn a_feed_ends_with_its_last_reader() {
        let feeds = Arc::new(Feeds::default());
        let (first, to) = join(&feeds, "0");
        let second = feeds.find(&topic("t")).unwrap();
        drop(first);
        assert_eq!(feeds.count(), 1);
        drop(second);
        assert_eq!(feeds.count(), 0);
        to.closed().await; // Its task has gone.
    }

    /// A reader that comes when the feed is over begins a new one, which stays when the old one is dropped.
    #[tokio::test]
    async fn a_feed_that_is_over_is_replaced() {
        let feeds = Arc::new(Feeds::default());
        let (mut old, to) = join(&feeds, "0");
        to.send(batch(&["1.1"])).unwrap();
        drop(to);
        assert_eq!(next(&mut old).await.last(), Some(place("1.1")));
        assert_eq!(old.next().await, FeedNews::Over);
        assert!(feeds.find(&topic("t")).is_none());
        let new = feeds.join(topic("t"), place("1"), |_sender| pending());
        drop(old);
        assert_eq!(feeds.count(), 1);
        drop(new);
        assert_eq!(feeds.count(), 0);
    }

    #[tokio::test]
    async fn a_slow_reader_learns_that_it_missed_something() {
        let feeds = Arc::new(Feeds::default());
        let (mut slow, to) = join(&feeds, "0");
        let mut quick = feeds.find(&topic("t")).unwrap();
        for number in 1..=BATCHES_MAX + 1 {
            to.send(batch(&[&format!("{number}.1")])).unwrap();
            next(&mut quick).await;
        }
        assert_eq!(slow.next().await, FeedNews::Missed);
        assert_eq!(next(&mut slow).await.last(), Some(place("2.1")), "the channel holds the rest");
    }
}
