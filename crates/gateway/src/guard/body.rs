//! What the bodies of requests may take: each, and all together.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::denial::Denial;
use crate::problem::HttpProblem;

/// The bytes of which all bodies that are being read or worked on may take so many.
#[derive(Debug, Clone)]
pub(super) struct BodyMemory {
    all: Arc<Semaphore>,
    each_max: usize,
}

/// What one body takes, and what is made of it. It is given back when this is dropped, which is when its request
/// is answered.
#[derive(Debug, Clone)]
pub(crate) struct BodyShare {
    all: Arc<Semaphore>,
    state: Arc<Mutex<ShareState>>,
}

#[derive(Debug, Default)]
struct ShareState {
    taken: Option<OwnedSemaphorePermit>,
    denied: Option<Denial>,
}

/// Why a body ends before its end. The guard answers what [`BodyShare::denied`] says.
#[derive(Debug, thiserror::Error)]
#[error("the body has more bytes than there is room for")]
struct BodyCutOff;

impl BodyMemory {
    /// `all_max` bytes for all bodies, `each_max` of them for one.
    pub(super) fn new(all_max: usize, each_max: usize) -> Self {
        let all = Arc::new(Semaphore::new(all_max.min(Semaphore::MAX_PERMITS)));
        Self { all, each_max }
    }

    /// Refuses a body that says it is too long, before any of it is read.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), Denial> {
        let said = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let said = said.and_then(|length| length.parse::<u64>().ok()).unwrap_or(0);
        if said > self.each_max as u64 {
            return Err(Denial::BodyTooLarge(self.each_max));
        }
        Ok(())
    }

    /// A share of the memory of which nothing is taken yet.
    pub(super) fn share(&self) -> BodyShare {
        BodyShare { all: Arc::clone(&self.all), state: Arc::default() }
    }

    /// The same body, which ends with an error once it takes too much.
    pub(super) fn weigh(&self, body: Body) -> (Body, BodyShare) {
        let share = self.share();
        if body.is_end_stream() {
            return (body, share);
        }
        let weighed = WeighedBody {
            inner: body,
            left: self.each_max,
            each_max: self.each_max,
            share: share.clone(),
        };
        (Body::new(weighed), share)
    }
}

impl BodyShare {
    /// Why the body was cut off, if it was.
    pub(super) fn denied(&self) -> Option<Denial> {
        self.state.lock().denied.clone()
    }

    /// Takes as many bytes more, for what the body becomes once it is read.
    ///
    /// # Errors
    /// 503: the bodies of other requests take all the memory that there is.
    pub(crate) fn grow(&self, bytes: usize) -> Result<(), HttpProblem> {
        Ok(self.take(bytes)?)
    }

    fn take(&self, bytes: usize) -> Result<(), Denial> {
        let permits = u32::try_from(bytes).ok();
        let taken = permits.and_then(|it| Arc::clone(&self.all).try_acquire_many_owned(it).ok());
        let more = taken.ok_or_else(|| self.deny(Denial::TooManyBodies))?;
        let mut state = self.state.lock();
        match &mut state.taken {
            Some(taken) => taken.merge(more),
            None => state.taken = Some(more),
        }
        Ok(())
    }

    /// Notes why the request is refused.
    fn deny(&self, denial: Denial) -> Denial {
        self.state.lock().denied = Some(denial.clone());
        denial
    }
}

#[derive(Debug)]
struct WeighedBody {
    inner: Body,
    left: usize,
    each_max: usize,
    share: BodyShare,
}

impl WeighedBody {
    fn take(&mut self, bytes: usize) -> Result<(), Denial> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| self.share.deny(Denial::BodyTooLarge(self.each_max)))?;
        self.share.take(bytes)
    }
}

impl HttpBody for WeighedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
            && self.take(data.len()).is_err()
        {
            return Poll::Ready(Some(Err(axum::Error::new(BodyCutOff))));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::BodyExt as _;

    use super::*;

    /// A body whose length nobody knows beforehand.
    fn chunks(lengths: &[usize]) -> Body {
        let chunks: Vec<_> = lengths
            .iter()
            .map(|&length| Ok::<_, axum::Error>(Bytes::from(vec![0; length])))
            .collect();
        Body::from_stream(stream::iter(chunks))
    }

    async fn read(memory: &BodyMemory, body: Body) -> (Option<usize>, BodyShare) {
        let (body, share) = memory.weigh(body);
        let whole = body.collect().await.ok();
        (whole.map(|whole| whole.to_bytes().len()), share)
    }

    #[tokio::test]
    async fn a_body_may_have_its_limit_and_not_a_byte_more() {
        let memory = BodyMemory::new(100, 10);
        let (whole, share) = read(&memory, chunks(&[4, 6])).await;
        assert_eq!((whole, share.denied()), (Some(10), None));
        let (whole, share) = read(&memory, chunks(&[4, 7])).await;
        assert_eq!((whole, share.denied()), (None, Some(Denial::BodyTooLarge(10))));
    }

    #[tokio::test]
    async fn all_bodies_together_are_bounded_until_their_requests_are_answered() {
        let memory = BodyMemory::new(25, 10);
        let (first, _kept) = read(&memory, chunks(&[10])).await;
        let (second, kept) = read(&memory, chunks(&[5, 5])).await;
        assert_eq!((first, second), (Some(10), Some(10)));
        let (third, share) = read(&memory, chunks(&[5, 1])).await;
        assert_eq!((third, share.denied()), (None, Some(Denial::TooManyBodies)));
        drop((kept, share));
        assert_eq!(read(&memory, chunks(&[10])).await.0, Some(10));
    }

    #[tokio::test]
    async fn what_is_made_of_a_body_takes_its_share_too() {
        let memory = BodyMemory::new(25, 10);
        let (_, share) = read(&memory, chunks(&[10])).await;
        share.grow(15).unwrap();
        assert_eq!(read(&memory, chunks(&[1])).await.1.denied(), Some(Denial::TooManyBodies));
        assert_eq!(share.grow(1).unwrap_err().status(), 503);
        assert_eq!(share.denied(), Some(Denial::TooManyBodies));
        drop(share);
        assert_eq!(read(&memory, chunks(&[10])).await.0, Some(10));
    }

    #[test]
    fn a_length_that_is_too_great_is_refused_before_anything_is_read() {
        let memory = BodyMemory::new(100, 10);
        let said = |length: &str| {
            let headers = [(CONTENT_LENGTH, length.parse().unwrap())].into_iter().collect();
            memory.check(&headers)
        };
        assert_eq!(memory.check(&HeaderMap::new()), Ok(()));
        assert_eq!(said("10"), Ok(()));
        for too_much in ["11", "1073741824"] {
            assert_eq!(said(too_much), Err(Denial::BodyTooLarge(10)));
        }
    }
}
