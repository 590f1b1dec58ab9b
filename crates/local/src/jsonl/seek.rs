//! Finds the place of an event in a log by binary search, since lines carry their numbers in order.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use memchr::memchr;

/// The bytes that every line begins with (`tenure_wire::stored`).
const NUMBER_KEY: &[u8] = b"{\"wal_seq\":";

/// Bytes read to find a line's start and its number.
const WINDOW: usize = 4 << 10;

/// A stretch shorter than this is read from its start.
const NEAR: u64 = 64 << 10;

/// The place of a line in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    /// Its offset.
    pub(crate) offset: u64,
    /// Its number, which is the `wal_seq` of its event.
    pub(crate) number: u64,
}

/// The first line of every log.
pub(crate) const START: Spot = Spot { offset: 0, number: 1 };

/// A line at or shortly before the one of event `seq` in the first `size` bytes. If the file does
/// not look like a log, the answer is its start, from where a reader finds out what is wrong.
pub(crate) fn near(file: &File, size: u64, seq: u64) -> io::Result<Spot> {
    let (mut low, mut high) = (START, size);
    while high.saturating_sub(low.offset) > NEAR {
        let middle = low.offset + (high - low.offset) / 2;
        match line_after(file, middle, high)? {
            Some(found) if found.number <= low.number => return Ok(START),
            Some(found) if found.number <= seq => low = found,
            Some(_) | None => high = middle,
        }
    }
    Ok(low)
}

/// The first line that begins after `from` and before `to`.
fn line_after(file: &File, from: u64, to: u64) -> io::Result<Option<Spot>> {
    let mut window = [0; WINDOW];
    let mut at = from;
    while at < to {
        let read = file.read_at(&mut window, at)?;
        if read == 0 {
            return Ok(None);
        }
        if let Some(newline) = memchr(b'\n', &window[..read]) {
            let offset = at + newline as u64 + 1;
            if offset >= to {
                return Ok(None);
            }
            let read = file.read_at(&mut window, offset)?;
            return Ok(number_of(&window[..read]).map(|number| Spot { offset, number }));
        }
        at += read as u64;
    }
    Ok(None)
}

/// The number that a line begins with.
fn number_of(line: &[u8]) -> Option<u64> {
    let digits = line.strip_prefix(NUMBER_KEY)?;
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}
