//! Prints logs piece by piece, so that their size does not matter.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom, Take};
use std::path::Path;

use serde::Serialize;
use tenure_core::id::StepId;
use tenure_core::task::Attempt;

use super::find::CommandLog;
use crate::answer::{Exit, Failure, Paint, Stream, Tone, harmless, output};
use crate::show::printable;

/// How many bytes to read or write at once.
const CHUNK: usize = 64 << 10;
/// A longer line is printed as several.
const LINE_MAX: u64 = 1 << 20;

/// How to print logs.
#[derive(Debug)]
pub(super) struct LogPrinter {
    /// As JSON, an object for each line.
    pub(super) is_json: bool,
    /// Only logs of one Step: nothing says of which each line is.
    pub(super) is_alone: bool,
}

/// One line as JSON.
#[derive(Serialize)]
struct LogLine<'a> {
    step_id: &'a StepId,
    attempt: u32,
    stream: Stream,
    line: &'a str,
}

impl LogPrinter {
    /// Prints a log from this offset on, as far as it goes now. Where lines are told apart, it leaves the
    /// last one for later if that has no end yet, unless the log is over.
    ///
    /// Returns where to go on; none if the reader has left.
    pub(super) fn print(
        &self,
        attempt: &Attempt,
        log: &CommandLog,
        from: u64,
        is_over: bool,
    ) -> Result<Option<u64>, Failure> {
        // The worker empties a log that got too long, and the command goes on at its beginning.
        let is_cut = std::fs::metadata(&log.path).is_ok_and(|log| log.len() < from);
        let from = if is_cut { 0 } else { from };
        let Some(mut input) = open(log, from).map_err(unread(&log.path))? else {
            return Ok(Some(from));
        };
        let printed = self.print_all(attempt, log, &mut input, is_over)?;
        Ok(printed.map(|bytes| from + bytes as u64))
    }

    /// The same of what is read from elsewhere. Returns how many bytes were printed.
    pub(super) fn print_all<R: BufRead>(
        &self,
        attempt: &Attempt,
        log: &CommandLog,
        input: &mut R,
        is_over: bool,
    ) -> Result<Option<usize>, Failure> {
        let is_raw = self.is_alone && !self.is_json;
        let to = if is_raw { log.stream } else { Stream::Stdout };
        let is_terminal = to.is_terminal();
        if is_raw && !is_terminal {
            return copy(input, log);
        }
        let layout =
            LineLayout { printer: self, attempt, log, prefix: self.prefix(attempt), is_terminal };
        let (mut at, mut line, mut out) = (0, Vec::new(), Vec::new());
        loop {
            line.clear();
            let mut bounded = input.by_ref().take(LINE_MAX);
            let read = bounded.read_until(b'\n', &mut line);
            read.map_err(|error| unread(&log.path)(error))?;
            let next = input.fill_buf().map_err(|error| unread(&log.path)(error))?;
            let is_piece = line.len() as u64 == LINE_MAX && !next.is_empty();
            if is_piece && next.first() == Some(&b'\n') {
                line.push(b'\n'); // The line is as long as a piece: its end is no line of its own.
                input.consume(1);
            }
            let is_whole = is_over || line.ends_with(b"\n") || is_piece;
            let is_end = line.is_empty() || !is_whole;
            if !is_end {
                at += line.len();
                layout.add(&line, &mut out)?;
            }
            if is_end || out.len() >= CHUNK {
                if !output::write(to, &out)? {
                    return Ok(None);
                }
                out.clear();
            }
            if is_end {
                return Ok(Some(at));
            }
        }
    }

    /// What stands before each line of an Attempt.
    fn prefix(&self, attempt: &Attempt) -> String {
        if self.is_alone {
            return String::new();
        }
        let name = format!("{}|", attempt.step_id);
        Paint::of(Stream::Stdout).text(Tone::Faint, name) + " "
    }
}

/// How to write the lines of one log.
struct LineLayout<'a> {
    printer: &'a LogPrinter,
    attempt: &'a Attempt,
    log: &'a CommandLog,
    prefix: String,
    is_terminal: bool,
}

impl LineLayout<'_> {
    /// Adds a line, which has its end unless it is the last one.
    fn add(&self, line: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let lossy = String::from_utf8_lossy(text);
        if self.printer.is_json {
            let told = LogLine {
                step_id: &self.attempt.step_id,
                attempt: self.attempt.ordinal,
                stream: self.log.stream,
                line: &lossy,
            };
            let told = serde_json::to_string(&told)
                .map_err(|error| Failure::caused(Exit::Unavailable, &error))?;
            out.extend_from_slice(harmless(&told).as_bytes());
            out.push(b'\n');
            return Ok(());
        }
        out.extend_from_slice(self.prefix.as_bytes());
        match self.is_terminal {
            true => out.extend_from_slice(printable(&lossy).as_bytes()),
            false => out.extend_from_slice(text),
        }
        if !self.printer.is_alone || text.len() < line.len() {
            out.push(b'\n');
        }
        Ok(())
    }
}

/// Copies the bytes of a log as they are.
fn copy(input: &mut impl BufRead, log: &CommandLog) -> Result<Option<usize>, Failure> {
    let mut at = 0;
    loop {
        let chunk = input.fill_buf().map_err(unread(&log.path))?;
        let size = chunk.len();
        if size == 0 {
            return Ok(Some(at));
        }
        if !output::write(log.stream, chunk)? {
            return Ok(None);
        }
        input.consume(size);
        at += size;
    }
}

/// What a file has now behind an offset; none if there is no such file. Of a file that grows faster than it
/// is read this has an end, too.
fn open(log: &CommandLog, from: u64) -> io::Result<Option<BufReader<Take<File>>>> {
    let Some(mut file) = log.open()? else { return Ok(None) };
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(from))?;
    Ok(Some(BufReader::with_capacity(CHUNK, file.take(size.saturating_sub(from)))))
}

/// Where to begin: at the start, or at the last lines if only so many are asked for.
pub(super) fn start(log: &CommandLog, tail: Option<u64>) -> Result<u64, Failure> {
    let Some(lines) = tail else { return Ok(0) };
    let file = log.open().map_err(unread(&log.path))?;
    let start = file.map_or(Ok(0), |mut file| start_of_tail(&mut file, lines));
    start.map_err(unread(&log.path))
}

/// Where the last lines of a file begin: it reads backwards, and no more than it needs.
fn start_of_tail(file: &mut File, lines: u64) -> io::Result<u64> {
    let size = file.metadata()?.len();
    if lines == 0 {
        return Ok(size);
    }
    // The last byte ends the last line, or belongs to it.
    let (mut end, mut left) = (size.saturating_sub(1), lines);
    let mut block = Vec::with_capacity(CHUNK);
    while end > 0 {
        let begin = end.saturating_sub(CHUNK as u64);
        file.seek(SeekFrom::Start(begin))?;
        block.clear();
        file.by_ref().take(end - begin).read_to_end(&mut block)?;
        if let Some(at) = line_start(&block, &mut left) {
            return Ok(begin + at as u64);
        }
        end = begin;
    }
    Ok(0)
}

/// Where the line behind the last `left` newlines of a block begins. If there are fewer, `left` is less by those.
pub(super) fn line_start(block: &[u8], left: &mut u64) -> Option<usize> {
    for (at, _) in block.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
        *left -= 1;
        if *left == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// For `map_err`: the failure to read a log.
fn unread(path: &Path) -> impl FnOnce(io::Error) -> Failure {
    Failure::cannot(format!("read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn tail(text: &str, lines: u64) -> String {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let at = start_of_tail(&mut file, lines).unwrap();
        text[usize::try_from(at).unwrap()..].to_owned()
    }

    #[test]
    fn the_last_lines_are_found_from_the_end() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc\n");
        assert_eq!(tail("a\nb\nc", 2), "b\nc", "the last line has no end yet");
        assert_eq!([tail("a\nb\n", 0), tail("a\nb\n", 9), tail("", 3)], ["", "a\nb\n", ""]);
        assert_eq!(tail("\n\n\n", 2), "\n\n");
        let long = format!("first\n{}\n", "x".repeat(3 * CHUNK));
        assert_eq!(tail(&long, 1).len(), 3 * CHUNK + 1);
        assert_eq!(tail(&long, 2).len(), long.len());
    }
}
