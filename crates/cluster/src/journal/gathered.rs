//! What goes into one append: the commits that waited, in one frame, or one long log in several.
//!
//! A reader fetches a frame as a whole. Were a long log one frame, each page of it would cost the whole
//! log.
//!
//! Step 6 of the walk in docs/architecture.md.

use bytes::Bytes;
use tenure_ports::journal::TaskKey;
use tenure_ports::map::IdSet;
use tenure_wire::stored::frame::{
    Chunk, CommitHead, FRAME_VERSION, FrameError, Header, encode_header,
};

use super::writer::{AppendRequest, AppendWaiter};

/// Bounds the frames of one log: there are at most about twice as many. Each frame may need one message more
/// than its bytes fill, and a server takes at most 1,000 messages as one append.
const FRAMES: usize = 64;

/// The commits of one append.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) heads: Vec<CommitHead>,
    /// The lines of all commits, of one request each, and how many bytes they have.
    lines: Vec<Bytes>,
    pub(super) bytes: usize,
    pub(super) tasks: IdSet<TaskKey>,
    pub(super) replies: Vec<AppendWaiter>,
}

/// The commits of one frame.
#[derive(Debug)]
pub(super) struct NewFrame {
    heads: Vec<CommitHead>,
    lines: Vec<Bytes>,
    bytes: usize,
}

/// The frames of one append.
pub(super) struct EncodedFrames {
    pub(super) messages: Vec<Bytes>,
    /// The heads of each frame, with the message that ends it.
    pub(super) placed: Vec<(Vec<CommitHead>, u64)>,
}

impl Gathered {
    pub(super) fn add(&mut self, request: AppendRequest, prev: u64) {
        let AppendRequest { key, heads, lines, reply, .. } = request;
        self.heads.extend(heads.into_iter().map(|head| head.in_frame(&key, prev)));
        self.bytes += lines.len();
        self.lines.push(lines);
        self.tasks.insert(key);
        self.replies.push(reply);
    }

    /// Its frames, and those who wait for them. There is one frame, unless a request is longer than a
    /// message; then nothing else was gathered.
    pub(super) fn into_frames(self, message_bytes: usize) -> (Vec<NewFrame>, Vec<AppendWaiter>) {
        let Self { heads, mut lines, bytes, replies, .. } = self;
        if bytes <= message_bytes {
            return (vec![NewFrame { heads, lines, bytes }], replies);
        }
        let bytes_max = (message_bytes / 2).max(bytes / FRAMES); // The heads need room too.
        let mut rest = lines.pop().unwrap_or_default();
        let mut frames: Vec<NewFrame> = Vec::new();
        for head in heads {
            let lines = rest.split_to(head.len as usize);
            match frames.last_mut().filter(|frame| frame.bytes + lines.len() <= bytes_max) {
                Some(frame) => {
                    frame.bytes += lines.len();
                    frame.heads.push(head);
                    frame.lines.push(lines);
                }
                None => {
                    let (bytes, heads, lines) = (lines.len(), vec![head], vec![lines]);
                    frames.push(NewFrame { heads, lines, bytes });
                }
            }
        }
        (frames, replies)
    }
}

/// Encodes frames that are appended behind message `last`. Where there are several, they have one Task's
/// commits, and each is the one before the next in the Task's chain.
///
/// # Errors
/// A header cannot be serialized, or is too long.
pub(super) fn encode_frames(
    frames: Vec<NewFrame>,
    epoch: u64,
    last: u64,
    message_bytes: usize,
) -> Result<EncodedFrames, FrameError> {
    let (mut messages, mut placed) = (Vec::new(), Vec::<(Vec<CommitHead>, u64)>::new());
    for NewFrame { mut heads, lines, bytes } in frames {
        if let Some(&(_, before)) = placed.last() {
            heads.iter_mut().for_each(|head| head.prev = before);
        }
        let header = Header::Commits { version: FRAME_VERSION, epoch, commits: heads };
        let mut frame = encode_header(&header, bytes)?;
        lines.iter().for_each(|lines| frame.extend_from_slice(lines));
        messages.extend(in_messages(frame, message_bytes));
        let Header::Commits { commits, .. } = header else { unreachable!("as made above") };
        placed.push((commits, last + messages.len() as u64));
    }
    Ok(EncodedFrames { messages, placed })
}

/// A frame as one message, or in chunks.
fn in_messages(frame: Vec<u8>, message_bytes: usize) -> Vec<Bytes> {
    if frame.len() <= message_bytes {
        return vec![frame.into()];
    }
    let parts: Vec<&[u8]> = frame.chunks(message_bytes).collect();
    let of = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    let chunk = |(index, part): (u32, &&[u8])| Bytes::from(Chunk { index, of, part }.encode());
    (0..).zip(&parts).map(chunk).collect()
}
