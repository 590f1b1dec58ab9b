//! [`TailSearch`]: finds where the last lines of an output begin, from its end backwards.

use std::ops::Range;

use tenure_core::Rejection;
use tenure_wire::bus::output::OUTPUT_PAGE_MAX;

use super::output::OutputReader;
use crate::backend::Backend;

/// The most lines that may be asked for.
pub(super) const TAIL_MAX: u64 = 100_000;

/// How far back to look for their beginning. An output with longer lines is shown from there on.
const LOOK_BACK_MAX: u64 = 64 << 20;

/// A place behind the end of every output: whoever reads there learns its size alone.
pub(super) const LAST_PLACE: u64 = (1 << 53) - 1;

/// The search for the last lines.
#[derive(Debug)]
pub(super) struct TailSearch {
    /// How many line ends are still to be found.
    left: u64,
    /// What lies behind this byte was looked at.
    end: u64,
    /// Nothing before this byte is looked at.
    first: u64,
    /// Where the lines begin, as far as is known.
    begin: u64,
}

impl TailSearch {
    /// The last lines of an output of this size.
    pub(super) const fn of(size: u64, lines: u64) -> Self {
        let first = size.saturating_sub(LOOK_BACK_MAX);
        if lines == 0 {
            return Self { left: 0, end: size, first, begin: size };
        }
        // The last byte ends the last line, or belongs to it.
        Self { left: lines, end: size.saturating_sub(1), first, begin: first }
    }

    /// Where they begin.
    pub(super) async fn start<B: Backend>(
        mut self,
        reader: &OutputReader<B>,
    ) -> Result<u64, Rejection> {
        while let Some(block) = self.next_block() {
            let page = reader.page(block.start).await?;
            self.take(&block, &page.data.0);
        }
        Ok(self.begin)
    }

    /// Which bytes to look at next; none when the beginning is known.
    fn next_block(&self) -> Option<Range<u64>> {
        let from = self.end.saturating_sub(OUTPUT_PAGE_MAX as u64).max(self.first);
        (self.left > 0 && from < self.end).then_some(from..self.end)
    }

    /// Looks at the bytes from the start of the block on.
    fn take(&mut self, block: &Range<u64>, bytes: &[u8]) {
        self.end = block.start;
        let length = usize::try_from(block.end - block.start).unwrap_or(usize::MAX);
        let bytes = bytes.get(..length).unwrap_or(bytes);
        let ends = bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
        for (at, _) in ends {
            self.left -= 1;
            if self.left == 0 {
                self.begin = block.start + at as u64 + 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(text: &[u8], lines: u64) -> &[u8] {
        let mut tail = TailSearch::of(text.len() as u64, lines);
        while let Some(block) = tail.next_block() {
            let from = usize::try_from(block.start).unwrap();
            tail.take(&block, &text[from..text.len().min(from + OUTPUT_PAGE_MAX)]);
        }
        &text[usize::try_from(tail.begin).unwrap()..]
    }

    #[test]
    fn the_last_lines_are_found() {
        for (text, lines, found) in [
            ("", 3, ""),
            ("a", 1, "a"),
            ("a\n", 1, "a\n"),
            ("a\nb\n", 1, "b\n"),
            ("a\nb", 1, "b"),
            ("a\nb\n", 0, ""),
            ("a\n\n\n", 2, "\n\n"),
            ("a\nb\nc\n", 9, "a\nb\nc\n"),
        ] {
            assert_eq!(tail(text.as_bytes(), lines), found.as_bytes(), "{text:?} {lines}");
        }
    }

    #[test]
    fn they_are_found_across_pages_and_not_too_far_back() {
        let long = [b"first\n".as_slice(), &vec![b'x'; 2 * OUTPUT_PAGE_MAX], b"\nlast\n"].concat();
        assert_eq!(tail(&long, 1), b"last\n");
        assert_eq!(tail(&long, 2), &long[6..]);
        assert_eq!(tail(&long, 3), &long[..]);
        let huge = TailSearch::of(LOOK_BACK_MAX + 10, 1);
        assert_eq!((huge.first, huge.begin), (10, 10));
    }
}
