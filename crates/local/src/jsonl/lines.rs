//! Lines of a file, from its start and from its end, one in memory at a time.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;

use memchr::{memchr, memrchr};
use tenure_wire::stored::LINE_MAX;

use super::seek::Spot;

/// Why a line could not be read.
#[derive(Debug)]
pub(crate) enum LineFault {
    /// It is longer than any line may be.
    TooLong,
    Io(io::Error),
}

impl From<io::Error> for LineFault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Bytes read from the system at once.
const CHUNK: usize = 64 << 10;

/// Complete lines of a file, up to a byte limit.
pub(crate) struct Forward<R> {
    input: BufReader<io::Take<R>>,
    line: Vec<u8>,
    /// Number of the line last returned, from 1.
    pub(crate) number: u64,
    /// Its offset.
    pub(crate) offset: u64,
    next: u64,
}

impl<R: Read> Forward<R> {
    /// The lines in the first `limit` bytes of a file. `input` stands at the line that `from` names.
    pub(crate) fn new(input: R, from: Spot, limit: u64) -> Self {
        let input = input.take(limit.saturating_sub(from.offset));
        let input = BufReader::with_capacity(CHUNK, input);
        let (number, offset) = (from.number - 1, from.offset);
        Self { input, line: Vec::new(), number, offset, next: offset }
    }

    /// The next line without its newline; `None` if no complete line follows.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, LineFault> {
        self.line.clear();
        self.number += 1;
        self.offset = self.next;
        loop {
            let chunk = self.input.fill_buf()?;
            if chunk.is_empty() {
                return Ok(None);
            }
            let end = memchr(b'\n', chunk);
            let taken = end.unwrap_or(chunk.len());
            self.line.extend_from_slice(&chunk[..taken]);
            self.input.consume(taken + usize::from(end.is_some()));
            if self.line.len() > LINE_MAX {
                return Err(LineFault::TooLong);
            }
            if end.is_some() {
                self.next = self.offset + self.line.len() as u64 + 1;
                return Ok(Some(&self.line));
            }
        }
    }

    /// End of the last line returned, with its newline.
    pub(crate) fn end(&self) -> u64 {
        self.next
    }

    /// Whether there are bytes without a newline where the last call found no complete line.
    pub(crate) fn is_torn(&self) -> bool {
        !self.line.is_empty()
    }
}

/// Complete lines from the end of a file.
pub(crate) struct Backward<'a> {
    file: &'a File,
    /// A window of the file that starts at `start`.
    window: Vec<u8>,
    start: u64,
    /// End of the lines that were not returned yet; a newline stands before it.
    end: u64,
}

impl<'a> Backward<'a> {
    /// Starts after the last newline of the first `size` bytes.
    pub(crate) fn new(file: &'a File, size: u64) -> io::Result<Self> {
        let end = after_last_newline(file, size)?;
        Ok(Self { file, window: Vec::new(), start: end, end })
    }

    /// End of the lines that were not returned yet.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The line before those returned already, with its offset.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, &[u8])>, LineFault> {
        if self.end == 0 {
            return Ok(None);
        }
        let (from, to) = loop {
            let have = usize_of(self.end - self.start);
            self.window.truncate(have);
            let newline = have.checked_sub(1).and_then(|to| memrchr(b'\n', &self.window[..to]));
            match newline {
                Some(at) => break (at + 1, have - 1),
                None if self.start == 0 => break (0, have - 1),
                None if have > LINE_MAX + 1 => return Err(LineFault::TooLong),
                None => self.widen()?,
            }
        };
        self.end = self.start + from as u64;
        Ok(Some((self.end, &self.window[from..to])))
    }

    /// At least doubles the window towards the start of the file.
    fn widen(&mut self) -> io::Result<()> {
        let more = self.start.min(self.window.len().max(CHUNK) as u64);
        let mut window = vec![0; usize_of(more)];
        self.file.read_exact_at(&mut window, self.start - more)?;
        window.append(&mut self.window);
        self.window = window;
        self.start -= more;
        Ok(())
    }
}

/// The end of the last line. What follows the last newline is no line: torn text or a run of NULs.
fn after_last_newline(file: &File, size: u64) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK];
    let mut end = size;
    while end > 0 {
        let from = end.saturating_sub(CHUNK as u64);
        let window = &mut chunk[..usize_of(end - from)];
        file.read_exact_at(window, from)?;
        if let Some(at) = memrchr(b'\n', window) {
            return Ok(from + at as u64 + 1);
        }
        end = from;
    }
    Ok(0)
}

/// Converts a length within a window, which is always far smaller than the address space.
fn usize_of(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
