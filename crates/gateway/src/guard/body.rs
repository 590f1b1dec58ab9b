//! Bounds the memory of the bodies of requests: of each, of those of one caller, and of all together.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use smol_str::SmolStr;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::denial::Denial;
use crate::problem::HttpProblem;

/// The part of the memory for bodies that those of one caller may take: with it, three others find memory.
const OF_ONE: usize = 4;

/// The bytes of which all bodies that are being read or worked on may take so many.
#[derive(Debug, Clone)]
pub(super) struct BodyMemory {
    all: Arc<Semaphore>,
    of_one_max: usize,
    of: Arc<Mutex<HashMap<SmolStr, Weak<Semaphore>>>>,
    each_max: usize,
}

/// What one body takes, and what is made of it. It is given back when this is dropped, which is when its request
/// is answered.
#[derive(Debug, Clone)]
pub(crate) struct BodyShare {
    all: Arc<Semaphore>,
    /// What the caller may take.
    own: Arc<Semaphore>,
    state: Arc<Mutex<ShareState>>,
}

#[derive(Debug, Default)]
struct ShareState {
    taken: Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)>,
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
        let of_one_max = all_max.div_ceil(OF_ONE).max(each_max).min(Semaphore::MAX_PERMITS);
        Self { all, of_one_max, of: Arc::default(), each_max }
    }

    /// The memory that a caller may take; none: there is only one caller, who may take all.
    fn own(&self, caller: Option<&str>) -> Arc<Semaphore> {
        let Some(caller) = caller else { return Arc::clone(&self.all) };
        let mut all = self.of.lock();
        if let Some(own) = all.get(caller).and_then(Weak::upgrade) {
            return own;
        }
        all.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(self.of_one_max));
        all.insert(caller.into(), Arc::downgrade(&own));
        own
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
    pub(super) fn share(&self, caller: Option<&str>) -> BodyShare {
        BodyShare { all: Arc::clone(&self.all), own: self.own(caller), state: Arc::default() }
    }

    /// The same body of this caller, which ends with an error once it takes too much.
    pub(super) fn weigh(&self, body: Body, caller: Option<&str>) -> (Body, BodyShare) {
        let share = self.share(caller);
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
        let permits = u32::try_from(bytes).map_err(|_| self.deny(Denial::TooManyBodies))?;
        let (all, own) = (Arc::clone(&self.all), Arc::clone(&self.own));
        // The only caller may take all of it.
        let of_own = if Arc::ptr_eq(&all, &own) { 0 } else { permits };
        let own = own.try_acquire_many_owned(of_own);
        let own = own.map_err(|_| self.deny(Denial::TooManyOwnBodies))?;
        let all = all.try_acquire_many_owned(permits);
        let all = all.map_err(|_| self.deny(Denial::TooManyBodies))?;
        let mut state = self.state.lock();
        match &mut state.taken {
            Some((of_all, of_own)) => {
                of_all.merge(all);
                of_own.merge(own);
            }
            None => state.taken = Some((all, own)),
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
        let (body, share) = memory.weigh(body, None);
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

    /// Mechanisms 15: a caller whose bodies do not end takes its own part, and others have theirs.
    #[tokio::test]
    async fn the_bodies_of_one_caller_are_bounded() {
        let memory = BodyMemory::new(40, 10);
        let read = async |caller: &str| {
            let (body, share) = memory.weigh(chunks(&[5, 5]), Some(caller));
            (body.collect().await.is_ok(), share)
        };
        let (is_read, held) = read("eve").await;
        assert!(is_read);
        let (is_read, share) = read("eve").await;
        assert_eq!((is_read, share.denied()), (false, Some(Denial::TooManyOwnBodies)));
        assert_eq!(share.grow(1).unwrap_err().status(), 429);
        let (of_bob, of_ann, of_kim) = (read("bob").await, read("ann").await, read("kim").await);
        assert!(of_bob.0 && of_ann.0 && of_kim.0);
        assert_eq!(read("lea").await.1.denied(), Some(Denial::TooManyBodies));
        drop((held, share));
        assert!(read("eve").await.0);
        drop((of_bob, of_ann, of_kim));
        assert!(read("lea").await.0);
        assert_eq!(memory.of.lock().len(), 1, "who has left is forgotten");
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
