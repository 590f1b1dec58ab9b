//! [`WrittenFrames`]: what the writer of a partition wrote last, for readers of the same node.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;
use tenure_wire::stored::frame::decode_chunk;

/// How many bytes of the frames that were written last are cached for each partition.
const WRITTEN_BYTES: usize = 128 << 10;

/// The frames that the writer of a partition wrote last, as the stream has them.
#[derive(Debug, Default)]
pub(super) struct WrittenFrames(Mutex<NewestFrames>);

#[derive(Debug, Default)]
struct NewestFrames {
    /// By the message of each, oldest first.
    frames: VecDeque<(u64, Bytes)>,
    bytes: usize,
}

impl WrittenFrames {
    /// Caches messages that have been stored, the first of them at `first`. A frame in chunks is fetched
    /// by whoever reads it.
    pub(super) fn note(&self, first: u64, messages: &[Bytes]) {
        let mut newest = self.0.lock();
        for (at, message) in (first..).zip(messages) {
            if decode_chunk(message).is_none() {
                newest.bytes += message.len();
                newest.frames.push_back((at, message.clone()));
            }
        }
        while newest.bytes > WRITTEN_BYTES
            && let Some((_, oldest)) = newest.frames.pop_front()
        {
            newest.bytes -= oldest.len();
        }
    }

    /// A frame, by its message.
    pub(super) fn find(&self, at: u64) -> Option<Bytes> {
        let newest = self.0.lock();
        let place = newest.frames.binary_search_by_key(&at, |(at, _)| *at).ok()?;
        Some(newest.frames[place].1.clone())
    }

    /// Drops a frame: the next reader fetches it.
    pub(super) fn forget(&self, at: u64) {
        let mut newest = self.0.lock();
        newest.frames.retain(|(written, _)| *written != at);
        newest.bytes = newest.frames.iter().map(|(_, frame)| frame.len()).sum();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use tenure_wire::stored::frame::{Chunk, FRAME_VERSION, Header, encode_header};

    use super::*;

    /// A frame with so many bytes of commits.
    pub(in crate::journal) fn frame_of(commits: usize) -> Bytes {
        let header = Header::Commits { version: FRAME_VERSION, epoch: 1, commits: Vec::new() };
        let mut frame = encode_header(&header, commits).unwrap();
        frame.resize(frame.len() + commits, 0);
        frame.into()
    }

    /// A part of a frame.
    pub(in crate::journal) fn chunk() -> Bytes {
        Chunk { index: 0, of: 2, part: &[0] }.encode().into()
    }

    #[test]
    fn the_frames_that_were_written_are_bounded() {
        let written = WrittenFrames::default();
        let quarter = frame_of(WRITTEN_BYTES / 4);
        for (at, count) in (0..100).zip([1, 2, 3].into_iter().chain(std::iter::repeat(3))) {
            written.note(at, std::slice::from_ref(&quarter));
            let newest = written.0.lock();
            let bytes: usize = newest.frames.iter().map(|(_, frame)| frame.len()).sum();
            assert_eq!((newest.bytes, newest.frames.len()), (bytes, count));
        }
        assert!(written.find(99).is_some() && written.find(96).is_none());
        written.note(100, &[frame_of(WRITTEN_BYTES)]);
        assert_eq!(written.0.lock().bytes, 0, "it is larger than all that is cached");
    }
}
