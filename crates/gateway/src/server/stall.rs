//! [`StallGuard`]: ends a connection whose other end does not read what it is sent, or reads it too slowly.
//!
//! Time counts only while something waits to be taken: a stream may be quiet for as long as it likes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How much of what waits has to be taken in the time that there is for it, if not all of it. In 30 s this is
/// slower than any line, and faster than who wants to hold an answer for ever.
const TAKEN_MIN: usize = 64 << 10;

/// A connection that fails once its writes have waited for too long.
#[derive(Debug)]
pub(super) struct StallGuard<T> {
    inner: T,
    patience: Duration,
    /// `None`: everything has been taken, or as much as has to be.
    waiting: Option<WaitingWrites>,
}

/// What is sent and waits to be taken.
#[derive(Debug)]
struct WaitingWrites {
    until: Pin<Box<Sleep>>,
    taken: usize,
}

impl<T> StallGuard<T> {
    pub(super) fn new(inner: T, patience: Duration) -> Self {
        Self { inner, patience, waiting: None }
    }

    /// Passes on how much a write came to, or fails if that was too little for too long.
    fn judge_write(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if polled.is_pending() {
            return self.wait(cx);
        }
        if let (Some(waiting), Poll::Ready(Ok(bytes))) = (&mut self.waiting, &polled) {
            waiting.taken += bytes;
            self.waiting = self.waiting.take().filter(|it| it.taken < TAKEN_MIN);
        }
        polled
    }

    /// Passes on that everything has been taken, or fails if that takes too long.
    fn judge_all(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        if polled.is_pending() {
            return self.wait(cx);
        }
        self.waiting = None;
        polled
    }

    fn wait<R>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<R>> {
        let patience = self.patience;
        let begin = || WaitingWrites { until: Box::pin(sleep(patience)), taken: 0 };
        ready!(self.waiting.get_or_insert_with(begin).until.as_mut().poll(cx));
        let message = "the other end does not read what it is sent";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for StallGuard<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, into)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for StallGuard<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.judge_write(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, parts);
        self.judge_write(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        self.judge_all(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.judge_all(cx, polled)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn who_reads_nothing_is_given_up() {
        let (here, _there) = duplex(4);
        let mut guarded = StallGuard::new(here, PATIENCE);
        let before = tokio::time::Instant::now();
        let failed = guarded.write_all(b"more than four").await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        assert_eq!(before.elapsed().as_secs(), PATIENCE.as_secs());
    }

    /// Reads so many bytes at a time, each time after most of the patience.
    async fn read_slowly(mut from: impl AsyncRead + Unpin, bytes: usize) {
        let mut some = vec![0; bytes];
        loop {
            sleep(PATIENCE * 2 / 3).await;
            if from.read_exact(&mut some).await.is_err() {
                return;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_a_byte_now_and_then_is_given_up() {
        let (here, there) = duplex(1);
        tokio::spawn(read_slowly(there, 1));
        let mut guarded = StallGuard::new(here, PATIENCE);
        let before = tokio::time::Instant::now();
        let failed = guarded.write_all(b"abcde").await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        assert_eq!(before.elapsed().as_secs(), PATIENCE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_slowly_and_enough_is_waited_for() {
        let (here, there) = duplex(TAKEN_MIN);
        tokio::spawn(read_slowly(there, TAKEN_MIN));
        let mut guarded = StallGuard::new(here, PATIENCE);
        guarded.write_all(&vec![0; 5 * TAKEN_MIN]).await.unwrap();
    }

    /// A stream of events has little to say, and nothing for a long time.
    #[tokio::test(start_paused = true)]
    async fn who_has_taken_all_has_all_the_time_again() {
        let (here, there) = duplex(1);
        tokio::spawn(read_slowly(there, 1));
        let mut guarded = StallGuard::new(here, PATIENCE);
        for _ in 0..5 {
            guarded.write_all(b"ab").await.unwrap();
            guarded.flush().await.unwrap();
            sleep(10 * PATIENCE).await;
        }
    }
}
