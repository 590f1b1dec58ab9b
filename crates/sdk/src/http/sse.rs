//! Reads Server-Sent Events (`text/event-stream` of the HTML standard) from the bytes of a stream.

/// The longest line, and the longest data of an event, of a gateway or an agent.
const LENGTH_MAX: usize = 1 << 20;

/// An event of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// Its name; empty: it has none.
    pub(crate) name: String,
    /// Its place in the stream, if it names one.
    pub(crate) id: Option<String>,
    /// What it says: the `data` lines, with line breaks between them.
    pub(crate) data: String,
}

/// A line or an event is too long.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Puts events together from bytes, however these are cut.
#[derive(Debug)]
pub(crate) struct SseReader {
    /// The longest line, and the longest data of an event.
    length_max: usize,
    /// The beginning of a line.
    line: Vec<u8>,
    event: SseEvent,
    has_data: bool,
}

impl Default for SseReader {
    fn default() -> Self {
        Self::of_length(LENGTH_MAX)
    }
}

impl SseReader {
    /// A reader of events of so many bytes at most.
    pub(crate) fn of_length(length_max: usize) -> Self {
        let (line, event, has_data) = Default::default();
        Self { length_max, line, event, has_data }
    }

    /// Takes the next bytes, and returns the events that end in them.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, TooLong> {
        let mut events = Vec::new();
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
            self.begin_line(&rest[..at])?;
            rest = &rest[at + 1..];
            let line = std::mem::take(&mut self.line);
            let line = String::from_utf8_lossy(&line);
            events.extend(self.take_line(line.strip_suffix('\r').unwrap_or(&line))?);
        }
        self.begin_line(rest)?;
        Ok(events)
    }

    fn begin_line(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.line.len() + bytes.len() > self.length_max {
            return Err(TooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Takes a line. An empty one ends an event; one without data is none.
    fn take_line(&mut self, line: &str) -> Result<Option<SseEvent>, TooLong> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return Ok(Some(event).filter(|_| std::mem::take(&mut self.has_data)));
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => self.event.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                if self.event.data.len() + value.len() >= self.length_max {
                    return Err(TooLong);
                }
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            _ => {} // Comments and pauses.
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "retry: 2000\nid: 4\n\n:\n\nevent: hint\ndata: {\"a\":1}\n\n\
        event: hint\r\ndata: one\r\ndata:  two\r\n\r\ndata: h\u{e4}user\nid: 5\n\nevent: none\n\ndata\n\n";

    fn event(name: &str, data: &str) -> SseEvent {
        SseEvent { name: name.into(), data: data.into(), id: None }
    }

    /// However a network cuts the bytes, the same events come out.
    #[test]
    fn events_are_put_together() {
        let expected = [
            event("hint", "{\"a\":1}"),
            event("hint", "one\n two"),
            SseEvent { id: Some("5".into()), ..event("", "h\u{e4}user") },
            event("", ""),
        ];
        for size in 1..=STREAM.len() {
            let mut reader = SseReader::default();
            let read = STREAM.as_bytes().chunks(size).map(|bytes| reader.read(bytes).unwrap());
            assert_eq!(read.flatten().collect::<Vec<_>>(), expected, "{size}");
        }
    }

    #[test]
    fn an_event_may_come_to_its_limit_and_no_further() {
        let line = |length: usize| format!("data:{}", "x".repeat(length));
        let most = LENGTH_MAX - "data:".len();
        assert_eq!(
            SseReader::default().read(format!("{}\n\n", line(most)).as_bytes()).unwrap().len(),
            1
        );
        assert_eq!(SseReader::default().read(line(most + 1).as_bytes()), Err(TooLong));
        let mut reader = SseReader::default();
        let half = format!("{}\n", line(LENGTH_MAX / 2));
        assert_eq!(reader.read(half.as_bytes()), Ok(vec![]));
        assert_eq!(reader.read(half.as_bytes()), Err(TooLong));
    }
}
