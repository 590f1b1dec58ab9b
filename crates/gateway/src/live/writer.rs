//! [`EventFrames`]: writes the public events of a Task as frames, and notes the place of each. The frame of the
//! end, which has no place, is the last.

use tenure_wire::bus::event::{EventPage, TaskEvent};

use super::feed::FeedBatch;
use super::place::EventPlace;
use super::sse::SseFrame;
use super::stream::write_json;

/// Frames in the making.
#[derive(Debug, Default)]
pub(super) struct EventFrames {
    out: Vec<u8>,
    places: Vec<(EventPlace, usize)>,
    /// The place of the last event. The next batch counts on from it.
    last: EventPlace,
    /// Where the frame of the end begins, once it was added.
    end: Option<usize>,
}

impl EventFrames {
    /// Adds the events of a page, and the end if the Task has ended and these were the last.
    pub(super) fn page(&mut self, page: &EventPage) {
        page.events.iter().for_each(|event| self.event(event));
        if has_all(page) {
            self.end = Some(self.out.len());
            let stands = serde_json::json!({ "status": page.status, "version": page.version });
            write_json(&mut self.out, "end", &stands);
        }
    }

    /// Adds an event. The events of one `wal_seq` are given from the first on, and in order.
    fn event(&mut self, event: &TaskEvent) {
        self.last = self.last.next(event.wal_seq);
        self.places.push((self.last, self.out.len()));
        // An event came as JSON or as a message that has a form in JSON.
        let data = serde_json::to_string(event).unwrap_or_default();
        SseFrame { event: None, id: Some(&self.last.to_string()), data: &data }
            .write(&mut self.out);
    }

    /// The batch of what was added so far.
    pub(super) fn take(&mut self) -> FeedBatch {
        let (out, places) = (std::mem::take(&mut self.out), std::mem::take(&mut self.places));
        let (placeless, is_last) = (self.end.unwrap_or(out.len()), self.end.is_some());
        FeedBatch { placeless, frames: out.into(), places, is_last }
    }
}

/// Whether nothing follows this page, and nothing will.
pub(super) const fn has_all(page: &EventPage) -> bool {
    page.through >= page.version && page.status.is_terminal()
}

#[cfg(test)]
pub(super) mod tests {
    use tenure_core::status::TaskStatus;

    use super::*;

    /// An event at this place of the log.
    pub(in crate::live) fn event(wal_seq: u64, title: &str) -> TaskEvent {
        let event = serde_json::json!({
            "event_id": format!("c.{wal_seq}"), "event": "task.started",
            "native_event": "task_step_claimed", "session_id": "main", "task_id": "t",
            "wal_seq": wal_seq, "status": "running", "native_status": "running",
            "terminal": false, "actor": "ann", "created_at": 1, "data": { "title": title },
        });
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn events_are_numbered_within_their_place_in_the_log() {
        let mut writer = EventFrames::default();
        for seq in [7, 7, 9] {
            writer.event(&event(seq, "x"));
        }
        let first = writer.take();
        // The events of one commit may come in two batches.
        writer.event(&event(9, "y"));
        let second = writer.take();
        let places = |batch: &FeedBatch| -> Vec<String> {
            batch.places.iter().map(|(place, _)| place.to_string()).collect()
        };
        assert_eq!(
            (places(&first), places(&second)),
            (vec!["7.1".into(), "7.2".into(), "9.1".into()], vec!["9.2".into()])
        );
        let text = String::from_utf8(first.frames.to_vec()).unwrap();
        assert_eq!(text.matches("\n\n").count(), 3);
        let third = &text[first.places[2].1..];
        assert!(third.starts_with("id: 9.1\ndata: {\"event_id\":\"c.9\","), "{third}");
        assert_eq!(first.placeless, first.frames.len());
    }

    /// What a creator writes cannot end a line or a frame.
    #[test]
    fn titles_stay_inside_their_frame() {
        let mut writer = EventFrames::default();
        writer.event(&event(1, "a\n\nevent: end\r\ndata: <script>\u{1b}[31m é"));
        let text = String::from_utf8(writer.take().frames.to_vec()).unwrap();
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    /// A page that leaves nothing to follow brings the end with it, also to a reader that knows its events.
    #[test]
    fn the_end_has_no_place() {
        let page = |through, version, status| EventPage {
            events: vec![event(through, "x")],
            through,
            version,
            status,
        };
        let mut writer = EventFrames::default();
        for (through, version, status) in
            [(9, 12, TaskStatus::Completed), (11, 11, TaskStatus::Running)]
        {
            writer.page(&page(through, version, status));
            let batch = writer.take();
            assert_eq!((batch.placeless, batch.is_last), (batch.frames.len(), false));
        }
        writer.page(&page(12, 12, TaskStatus::Completed));
        let end = writer.take();
        assert!(end.is_last);
        let expected = "event: end\ndata: {\"status\":\"completed\",\"version\":12}\n\n";
        for known in [EventPlace::behind(12), EventPlace::behind(u64::MAX)] {
            assert_eq!(end.behind(known), expected);
        }
        assert!(end.behind(EventPlace::behind(11)).starts_with(b"id: 12.1\n"));
        assert!(end.behind(EventPlace::behind(11)).ends_with(expected.as_bytes()));
    }
}
