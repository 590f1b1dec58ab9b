//! Frames of Server-Sent Events, the media type `text/event-stream` of the HTML standard: text alone,
//! without any I/O.
//!
//! A frame is some lines `field: value` and an empty line. A reader takes what stands in several `data`
//! lines as one text with line breaks, remembers the last `id` that it saw, and sends it with its next
//! connection as `Last-Event-ID`.

use std::iter;

/// The media type of a stream.
pub(super) const MEDIA_TYPE: &str = "text/event-stream";

/// A frame that readers ignore: it shows them, and what lies between, that the connection is alive.
pub(super) const COMMENT: &[u8] = b":\n\n";

/// A frame with an event.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SseFrame<'a> {
    /// The name of the event. Without one, browsers call it `message`.
    pub(crate) event: Option<&'a str>,
    /// The place of the event in its stream. Without one, readers keep the place that they have.
    pub(crate) id: Option<&'a str>,
    /// What the event says.
    pub(crate) data: &'a str,
}

impl SseFrame<'_> {
    /// Adds the frame to `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        if let Some(event) = self.event {
            field(out, "event", event);
        }
        if let Some(id) = self.id {
            field(out, "id", id);
        }
        for line in lines(self.data) {
            field(out, "data", line);
        }
        out.push(b'\n');
    }
}

/// Adds the frame with which a stream begins: after how many milliseconds readers connect again, and, if
/// given, the `id` that they remember from the start. No event comes of it.
pub(super) fn write_start(out: &mut Vec<u8>, retry_ms: u32, id: Option<&str>) {
    field(out, "retry", &retry_ms.to_string());
    if let Some(id) = id {
        field(out, "id", id);
    }
    out.push(b'\n');
}

/// Adds a line. A line break in the value would end it, and readers ignore an `id` with a NUL: these
/// characters are left out.
fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend(value.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n' | b'\0')));
    out.push(b'\n');
}

/// The lines of a text as readers of streams see them: CR, LF and CR LF end a line.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    iter::from_fn(move || {
        let text = rest?;
        let Some(at) = text.find(['\r', '\n']) else { return rest.take() };
        let end = if text[at..].starts_with("\r\n") { at + 2 } else { at + 1 };
        rest = Some(&text[end..]);
        Some(&text[..at])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a reader understands of a frame.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Understood {
        event: String,
        id: Option<String>,
        data: String,
    }

    /// Reads frames as the HTML standard says.
    fn understand(bytes: &[u8]) -> Vec<Understood> {
        let (mut all, mut now) = (Vec::new(), Understood::default());
        for line in str::from_utf8(bytes).unwrap().replace("\r\n", "\n").split(['\r', '\n']) {
            match line.split_once(':').map(|(name, value)| (name, value.trim_start_matches(' '))) {
                None if line.is_empty() && now.data.is_empty() => now.event.clear(),
                None if line.is_empty() => {
                    now.data.pop();
                    all.push(std::mem::take(&mut now));
                }
                Some(("event", value)) => value.clone_into(&mut now.event),
                Some(("id", value)) => now.id = Some(value.to_owned()),
                Some(("data", value)) => now.data += &format!("{value}\n"),
                _ => {}
            }
        }
        all
    }

    fn written(frame: SseFrame<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        frame.write(&mut out);
        out
    }

    #[test]
    fn a_frame_is_lines_and_an_empty_line() {
        let frame = SseFrame { event: Some("task"), id: Some("7.1"), data: "{}" };
        assert_eq!(written(frame), b"event: task\nid: 7.1\ndata: {}\n\n");
        assert_eq!(written(SseFrame::default()), b"data: \n\n");
        let mut start = Vec::new();
        write_start(&mut start, 2_000, Some("now"));
        assert_eq!(start, b"retry: 2000\nid: now\n\n");
        assert_eq!(understand(&start), [], "no event comes of it");
        assert_eq!(understand(COMMENT), []);
    }

    #[test]
    fn a_reader_gets_every_line_of_a_text() {
        for (given, read) in [
            ("one", "one"),
            ("one\ntwo", "one\ntwo"),
            ("one\rtwo\r\nthree", "one\ntwo\nthree"),
            ("\n", "\n"),
            ("one\n\ntwo\n", "one\n\ntwo\n"),
            ("data: x\n\nevent: forged", "data: x\n\nevent: forged"),
            (": no comment", ": no comment"),
            ("häuser 🏠 <b>\u{1b}[31m", "häuser 🏠 <b>\u{1b}[31m"),
        ] {
            let read = Understood { data: read.into(), ..Understood::default() };
            let frame = SseFrame { data: given, ..SseFrame::default() };
            assert_eq!(understand(&written(frame)), [read], "{given:?}");
        }
    }

    #[test]
    fn names_and_places_cannot_make_lines_of_their_own() {
        let frame = SseFrame { event: Some("a\nid: 9"), id: Some("1\r\ndata: x\0"), data: "y" };
        let read =
            Understood { event: "aid: 9".into(), id: Some("1data: x".into()), data: "y".into() };
        assert_eq!(understand(&written(frame)), [read]);
    }

    /// Frames follow each other in one text, and each stands alone.
    #[test]
    fn frames_stand_alone() {
        let mut out = Vec::new();
        for data in ["one", "two"] {
            SseFrame { data, ..SseFrame::default() }.write(&mut out);
            out.extend_from_slice(COMMENT);
        }
        let read: Vec<_> = understand(&out).into_iter().map(|one| one.data).collect();
        assert_eq!(read, ["one", "two"]);
    }
}
