//! Prints logs that this machine has not: their workers read them, as long as they are there (ART-09).

use tenure_core::id::TaskId;
use tenure_core::task::Attempt;
use tenure_core::{Code, Rejection};
use tenure_wire::bus::output::{OUTPUT_PAGE_MAX, OutputPage, OutputStream, ReadOutput};

use super::find::AwayLog;
use super::printer::{LogPrinter, line_start};
use crate::answer::{Failure, Stream};
use crate::place::AnyClient;

/// A place behind the end of every file: whoever reads there learns the size alone.
const END: u64 = (1 << 53) - 1;

/// Asks the workers of a Task, through its owner.
pub(super) struct WorkerReader {
    client: AnyClient,
    task: TaskId,
}

/// A log that only its worker can read, and how far it was printed.
pub(super) struct FarLog {
    pub(super) away: AwayLog,
    /// How many of its last lines to begin with; none when it has begun, or begins at the start.
    tail: Option<u64>,
    /// How many bytes were printed, or passed over.
    at: u64,
    /// What was read behind those: the beginning of a line.
    unprinted: Vec<u8>,
}

/// What came of a look at such a log.
#[derive(Debug)]
pub(super) enum Shown {
    /// All that there is was printed, and whether that was anything.
    Printed(bool),
    /// The worker has no such file.
    Absent,
    /// The worker cannot be asked.
    Away(Rejection),
    /// Whoever reads what is printed has left.
    Left,
}

impl WorkerReader {
    pub(super) const fn new(client: AnyClient, task: TaskId) -> Self {
        Self { client, task }
    }

    async fn page(
        &self,
        attempt: &Attempt,
        stream: Stream,
        from: u64,
    ) -> Result<OutputPage, Failure> {
        let stream = match stream {
            Stream::Stdout => OutputStream::Stdout,
            Stream::Stderr => OutputStream::Stderr,
        };
        let asked = ReadOutput { attempt_id: attempt.attempt_id, stream, from };
        Ok(self.client.read_output(&self.task, asked).await?)
    }
}

impl FarLog {
    pub(super) const fn new(away: AwayLog, tail: Option<u64>) -> Self {
        Self { away, tail, at: 0, unprinted: Vec::new() }
    }

    /// Prints on, as far as the log goes now. Where lines are told apart, the last one waits for its end, unless
    /// the log is over.
    pub(super) async fn print(
        &mut self,
        reader: &WorkerReader,
        printer: &LogPrinter,
        attempt: &Attempt,
        is_over: bool,
    ) -> Result<Shown, Failure> {
        match self.print_pages(reader, printer, attempt, is_over).await {
            Err(failure) => match failure.refusal().filter(|refused| is_away(refused)) {
                Some(refused) => Ok(Shown::Away(refused.clone())),
                None => Err(failure),
            },
            shown => shown,
        }
    }

    async fn print_pages(
        &mut self,
        reader: &WorkerReader,
        printer: &LogPrinter,
        attempt: &Attempt,
        is_over: bool,
    ) -> Result<Shown, Failure> {
        if let Some(lines) = self.tail {
            let Some(at) = self.start_of_tail(reader, attempt, lines).await? else {
                return Ok(Shown::Absent);
            };
            (self.at, self.tail) = (at, None);
        }
        let mut has_printed = false;
        loop {
            let from = self.at + self.unprinted.len() as u64;
            let page = reader.page(attempt, self.away.log.stream, from).await?;
            let Some(size) = page.size_bytes else { return Ok(Shown::Absent) };
            if from > size {
                // The worker empties a log that got too long, and the command goes on at its beginning.
                self.at = 0;
                self.unprinted.clear();
                continue;
            }
            let data = page.data.0;
            let is_end = data.is_empty() || from + data.len() as u64 >= size;
            self.unprinted.extend(data);
            let (mut rest, is_last) = (self.unprinted.as_slice(), is_over && is_end);
            let printed = printer.print_all(attempt, &self.away.log, &mut rest, is_last)?;
            let Some(printed) = printed else { return Ok(Shown::Left) };
            has_printed |= printed > 0;
            self.at += printed as u64;
            self.unprinted.drain(..printed);
            if is_end {
                return Ok(Shown::Printed(has_printed));
            }
        }
    }

    /// Where its last lines begin; none if there is no such file.
    async fn start_of_tail(
        &self,
        reader: &WorkerReader,
        attempt: &Attempt,
        lines: u64,
    ) -> Result<Option<u64>, Failure> {
        let stream = self.away.log.stream;
        let Some(size) = reader.page(attempt, stream, END).await?.size_bytes else {
            return Ok(None);
        };
        if lines == 0 {
            return Ok(Some(size));
        }
        // The last byte ends the last line, or belongs to it.
        let (mut end, mut left) = (size.saturating_sub(1), lines);
        while end > 0 {
            let begin = end.saturating_sub(OUTPUT_PAGE_MAX as u64);
            let mut block = reader.page(attempt, stream, begin).await?.data.0;
            block.truncate(usize::try_from(end - begin).unwrap_or(usize::MAX));
            if let Some(at) = line_start(&block, &mut left) {
                return Ok(Some(begin + at as u64));
            }
            end = begin;
        }
        Ok(Some(0))
    }
}

/// Whether the worker cannot be asked: it has gone, or it or the node is of an older version.
fn is_away(refused: &Rejection) -> bool {
    match refused.code {
        Code::WorkerGone => true,
        Code::ValidationError => refused.names_field("operation"),
        Code::Unavailable => refused.details.contains_key("feature"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EVOLVE-02: an older node does not know the operation, and an older worker does not have the feature. Then
    /// the command says where the files are, as for a worker that has gone.
    #[test]
    fn whoever_cannot_be_asked_is_away() {
        let refused = |code| Rejection::new(code, "no");
        let of_old_node = Rejection::invalid("operation", "there is no operation \"read_output\"");
        for away in [
            refused(Code::WorkerGone),
            of_old_node,
            refused(Code::Unavailable).with("feature", "output"),
        ] {
            assert!(is_away(&away), "{away}");
        }
        let unknown = Rejection::invalid("attempt_id", "there is no such attempt");
        for other in [refused(Code::Unavailable), refused(Code::TaskNotFound), unknown] {
            assert!(!is_away(&other), "{other}");
        }
    }
}
