//! Appends to a stream at an expected place, and finds out what became of the append.
//!
//! An append of unknown outcome (no answer, a broken connection) is repeated, the same bytes at the same place, until
//! it is acknowledged, or refused while the message at that place is ours (then it had been stored before) or
//! another's (then it never will be). Reading the stream alone proves nothing: the message may still be on its way
//! (mechanisms 1).
//!
//! Step 6 of the walk in docs/architecture.md.

use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use async_nats::{Client, HeaderMap, Message, StatusCode, Subscriber, header};
use bytes::Bytes;
use futures::StreamExt as _;
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::request::{RequestError, within};

/// The server's code for an expectation that is not met.
const WRONG_LAST_SEQUENCE: u64 = 10_071;
/// The same, found while another append was being replicated.
const WRONG_LAST_SEQUENCE_IN_FLIGHT: u64 = 10_164;

/// A deposed leader answers from an old state until it learns that it was deposed, which takes a
/// moment once the two can reach each other. The loss of acknowledged data stops a partition, so it is
/// believed only if for so long every refusal, and every read of the stream beside it, confirms it.
const LOST_AFTER: Duration = Duration::from_secs(4);

/// A refusal for another reason may come from a deposed leader while the new one stores the
/// message. So it is believed only if it is repeated after so long, and the stream still ends where
/// it did.
const REFUSED_AFTER: Duration = Duration::from_millis(500);

/// After so many refusals in a row an append is given up: the server is there, and refuses.
const REFUSALS_MAX: u32 = 10;

/// How long an append may take before it is sent again. Its server, or the leader behind that, may
/// be frozen; by then the connection may be to another server, or another may lead.
const UNHEARD: Duration = Duration::from_secs(1);

/// How often a missing connection is checked.
const LOOK: Duration = Duration::from_millis(10);

/// How long storing a mebibyte may take: a long append is not sent again before it could be stored.
const SLOWEST: Duration = Duration::from_secs(1);

/// The first and the longest wait before an append of unknown outcome is repeated, and the longest after a refusal.
const REPEAT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));
const REPEAT_REFUSED: Duration = Duration::from_secs(1);

/// What became of an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AppendOutcome {
    /// It is stored; the sequence of its last message.
    Stored(u64),
    /// Another's message stands at its place: it never will be stored.
    Superseded,
    /// It was refused for another reason: it is not stored, and the place is free.
    Refused(String),
    /// The stream ends before a message that was acknowledged earlier.
    Lost {
        /// The last message of the stream.
        last: u64,
    },
    /// Repeating it would not decide its outcome: the next owner's record will.
    Unsettled(String),
}

/// Appends to one stream.
pub(crate) struct Appender {
    client: Client,
    stream: Stream<()>,
    subject: String,
    inbox: String,
    acks: Subscriber,
    /// The number of the last message that asked for an answer.
    asked: u64,
    ack_timeout: Duration,
}

impl std::fmt::Debug for Appender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Appender").field("subject", &self.subject).finish_non_exhaustive()
    }
}

/// The server's answer to an append.
#[derive(Debug, Deserialize)]
struct AppendReply {
    #[serde(default)]
    seq: u64,
    error: Option<Refusal>,
}

#[derive(Debug, Deserialize)]
struct Refusal {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

/// What stands at a place of a stream, compared with our message.
#[derive(Debug, PartialEq, Eq)]
enum Occupant {
    Same,
    Other,
    Empty,
}

/// The result of one try.
enum Tried {
    Stored(u64),
    /// The stream does not end at the expected place; the place where it ends, if the server says
    /// so.
    WrongPlace(Option<u64>),
    Refused(String),
    Unknown(String),
}

impl Appender {
    pub(crate) async fn new(
        client: Client,
        stream: Stream<()>,
        subject: String,
        ack_timeout: Duration,
    ) -> Result<Self, RequestError> {
        let inbox = client.new_inbox();
        let acks = client.subscribe(format!("{inbox}.*"));
        let acks = within(ack_timeout, "no answer to a subscription", acks).await?;
        Ok(Self { client, stream, subject, inbox, acks, asked: 0, ack_timeout })
    }

    /// Appends messages, all or none of them, behind message `expected`.
    pub(crate) async fn append(&mut self, expected: u64, messages: &[Bytes]) -> AppendOutcome {
        let (mut wait, mut was_unknown) = (REPEAT.0, false);
        let (mut refusals, mut lost_since, mut refused_since) = (0, None, None);
        let first = self.asked + 1;
        loop {
            match self.try_append(expected, messages, first).await {
                Tried::Stored(seq) => return AppendOutcome::Stored(seq),
                Tried::WrongPlace(Some(last)) if last < expected => {
                    let since = *lost_since.get_or_insert_with(Instant::now);
                    if self.last_seq().await.is_none_or(|seen| seen >= expected) {
                        lost_since = None;
                    } else if since.elapsed() >= LOST_AFTER {
                        return AppendOutcome::Lost { last };
                    }
                }
                Tried::WrongPlace(_) => {
                    if let Some(outcome) = look(&*self, expected, messages).await {
                        return outcome;
                    }
                }
                Tried::Refused(why) => {
                    (refusals, lost_since) = (refusals + 1, None);
                    let since = *refused_since.get_or_insert_with(Instant::now);
                    // If an earlier try had no answer, it may still be stored: then only the
                    // message at the place decides.
                    if !was_unknown
                        && since.elapsed() >= REFUSED_AFTER
                        && self.last_seq().await == Some(expected)
                    {
                        return AppendOutcome::Refused(why);
                    }
                    if refusals >= REFUSALS_MAX {
                        return AppendOutcome::Unsettled(why);
                    }
                }
                Tried::Unknown(why) => {
                    (refusals, lost_since, refused_since) = (0, None, None);
                    let subject = &self.subject;
                    match std::mem::replace(&mut was_unknown, true) {
                        false => tracing::warn!(%subject, expected, why, "an append is repeated"),
                        true => tracing::debug!(%subject, expected, why, "it is repeated again"),
                    }
                }
            }
            sleep(wait).await;
            wait = (wait * 2).min(if refusals > 0 { REPEAT_REFUSED } else { REPEAT.1 });
        }
    }

    /// Tries once. `first` is the number of the append's first try: a late answer to an earlier try
    /// that says that it is stored is as good.
    async fn try_append(&mut self, expected: u64, messages: &[Bytes], first: u64) -> Tried {
        let bytes: usize = messages.iter().map(Bytes::len).sum();
        let deadline = Instant::now()
            + self.ack_timeout.min(UNHEARD)
            + SLOWEST * u32::try_from(bytes >> 20).unwrap_or(u32::MAX);
        // Without this wait the client library would buffer each repetition until there is a
        // connection.
        let sent = timeout_at(deadline, async {
            connected(&self.client).await;
            self.send(expected, messages).await
        });
        let sent = sent.await;
        match sent {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Tried::Unknown(error.to_string()),
            Err(_) => return Tried::Unknown("it could not be sent".into()),
        }
        let asked = format!("{}.{}", self.inbox, self.asked);
        loop {
            match timeout_at(deadline, self.acks.next()).await {
                Ok(Some(answer)) if *answer.subject == *asked => return read(&answer),
                Ok(Some(answer)) => {
                    let number = answer.subject.rsplit('.').next().and_then(|n| n.parse().ok());
                    let is_own = number.is_some_and(|number: u64| number >= first);
                    if let (true, Tried::Stored(seq)) = (is_own, read(&answer)) {
                        return Tried::Stored(seq);
                    }
                }
                Ok(None) => return Tried::Unknown("the connection was closed".into()),
                Err(_) => return Tried::Unknown("it was not acknowledged in time".into()),
            }
        }
    }

    async fn send(&mut self, expected: u64, messages: &[Bytes]) -> Result<(), RequestError> {
        self.asked += 1;
        let reply = format!("{}.{}", self.inbox, self.asked);
        let batch = (messages.len() > 1).then(|| self.client.new_inbox());
        let Some((last, before)) = messages.split_last() else {
            return Err(RequestError::failed("nothing"));
        };
        for (at, message) in before.iter().enumerate() {
            let headers = headers(expected, at, batch.as_deref(), false);
            let sent =
                self.client.publish_with_headers(self.subject.clone(), headers, message.clone());
            sent.await.map_err(RequestError::failed)?;
        }
        let headers = headers(expected, before.len(), batch.as_deref(), true);
        let subject = self.subject.clone();
        let sent =
            self.client.publish_with_reply_and_headers(subject, reply, headers, last.clone());
        sent.await.map_err(RequestError::failed)
    }
}

impl Stored for Appender {
    async fn last_seq(&self) -> Option<u64> {
        let info = timeout(self.ack_timeout, self.stream.get_info()).await;
        Some(info.ok()?.ok()?.state.last_sequence)
    }

    async fn message(&self, at: u64) -> Option<Option<Bytes>> {
        let found = timeout(self.ack_timeout, self.stream.get_raw_message(at)).await;
        match found.ok()? {
            Ok(found) => Some(Some(found.payload)),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Some(None),
            Err(error) => {
                tracing::debug!(subject = %self.subject, at, %error, "not seen");
                None
            }
        }
    }
}

/// What a stream holds, according to its leader.
trait Stored {
    /// The last message; none if nobody answers.
    async fn last_seq(&self) -> Option<u64>;

    /// The message at a place, or that there is none; none if nobody answers.
    async fn message(&self, at: u64) -> Option<Option<Bytes>>;
}

/// Decides by the message at the expected place; none if there is no message yet, or nobody
/// answers. Only another's message there proves that ours never will be stored.
async fn look(stream: &impl Stored, expected: u64, messages: &[Bytes]) -> Option<AppendOutcome> {
    match is_at(stream, expected + 1, messages.first()?).await? {
        Occupant::Same => {}
        Occupant::Other => return Some(AppendOutcome::Superseded),
        Occupant::Empty => {
            return Some(AppendOutcome::Unsettled("the message at its place is gone".into()));
        }
    }
    let end = expected + messages.len() as u64;
    if messages.len() == 1 {
        return Some(AppendOutcome::Stored(end));
    }
    // A server that died may have stored a part of a batch. If nobody answers, it may be dying.
    match is_at(stream, end, messages.last()?).await? {
        Occupant::Same => Some(AppendOutcome::Stored(end)),
        Occupant::Other | Occupant::Empty => {
            Some(AppendOutcome::Unsettled("only a part of a batch is stored".into()))
        }
    }
}

/// Whose message stands at a place; none if nobody answers, or the place may still be filled. A
/// place counts as empty only if it is still empty once the stream is known to go beyond it: a
/// message on its way may have come between the two questions.
async fn is_at(stream: &impl Stored, at: u64, message: &Bytes) -> Option<Occupant> {
    let mut found = stream.message(at).await?;
    if found.is_none() {
        if stream.last_seq().await? < at {
            return None;
        }
        found = stream.message(at).await?;
    }
    Some(match found {
        Some(found) if found == *message => Occupant::Same,
        Some(_) => Occupant::Other,
        None => Occupant::Empty,
    })
}

async fn connected(client: &Client) {
    while client.connection_state() != State::Connected {
        sleep(LOOK).await;
    }
}

/// Only the first message of a batch states its place.
fn headers(expected: u64, at: usize, batch: Option<&str>, is_last: bool) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if at == 0 {
        headers.insert(header::NATS_EXPECTED_LAST_SEQUENCE, expected.to_string());
    }
    if let Some(id) = batch {
        // An id may have at most 64 characters.
        let id = id.rsplit('.').next().unwrap_or(id);
        headers.insert(header::NATS_BATCH_ID, id);
        headers.insert(header::NATS_BATCH_SEQUENCE, (at + 1).to_string());
        if is_last {
            headers.insert(header::NATS_BATCH_COMMIT, header::NATS_BATCH_COMMIT_FINAL);
        }
    }
    headers
}

fn read(answer: &Message) -> Tried {
    if answer.status == Some(StatusCode::NO_RESPONDERS) {
        return Tried::Unknown("no server answers for the stream".into());
    }
    match serde_json::from_slice::<AppendReply>(&answer.payload) {
        Ok(AppendReply { error: None, seq }) if seq > 0 => Tried::Stored(seq),
        Ok(AppendReply { error: Some(refusal), .. }) => match refusal.err_code {
            WRONG_LAST_SEQUENCE => Tried::WrongPlace(place_named(&refusal.description)),
            WRONG_LAST_SEQUENCE_IN_FLIGHT => Tried::WrongPlace(None),
            code => Tried::Refused(format!("{} ({code})", refusal.description)),
        },
        Ok(_) => Tried::Unknown("an answer without a sequence".into()),
        Err(error) => Tried::Unknown(format!("an answer that cannot be read: {error}")),
    }
}

/// The place in a text like `wrong last sequence: 17`.
fn place_named(description: &str) -> Option<u64> {
    description.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use parking_lot::Mutex;

    use super::*;

    /// A stream with given answers to one question after the other.
    #[derive(Default)]
    struct Told {
        messages: Mutex<VecDeque<Option<Option<&'static str>>>>,
        last_seqs: Mutex<VecDeque<Option<u64>>>,
    }

    impl Stored for Told {
        async fn last_seq(&self) -> Option<u64> {
            self.last_seqs.lock().pop_front().expect("it is not asked more often")
        }

        async fn message(&self, _: u64) -> Option<Option<Bytes>> {
            let told = self.messages.lock().pop_front().expect("it is not asked more often");
            told.map(|message| message.map(Bytes::from))
        }
    }

    /// What `look` decides for an append behind message 7.
    async fn seen(
        messages: &[Option<Option<&'static str>>],
        last_seqs: &[Option<u64>],
        ours: &[&'static str],
    ) -> Option<AppendOutcome> {
        let told = Told {
            messages: Mutex::new(messages.iter().copied().collect()),
            last_seqs: Mutex::new(last_seqs.iter().copied().collect()),
        };
        let ours: Vec<Bytes> = ours.iter().map(|message| Bytes::from(*message)).collect();
        let outcome = look(&told, 7, &ours).await;
        assert!(told.messages.lock().is_empty() && told.last_seqs.lock().is_empty());
        outcome
    }

    /// Mechanisms 1: a message that arrives between two questions counts as stored.
    #[tokio::test]
    async fn an_append_that_lands_between_two_looks_is_stored() {
        let (not_there, ours) = (Some(None), Some(Some("ours")));
        let outcome = seen(&[not_there, ours], &[Some(8)], &["ours"]).await;
        assert_eq!(outcome, Some(AppendOutcome::Stored(8)));
        let parts = ["first", "ours"];
        let first = Some(Some("first"));
        let outcome = seen(&[not_there, first, not_there, ours], &[Some(8), Some(9)], &parts).await;
        assert_eq!(outcome, Some(AppendOutcome::Stored(9)));
    }

    /// Mechanisms 1: only another's message at its place proves that an append never will be
    /// stored.
    #[tokio::test]
    async fn an_append_never_was_only_where_another_stands() {
        let (not_there, other) = (Some(None), Some(Some("other")));
        let never = Some(AppendOutcome::Superseded);
        assert_eq!(seen(&[other], &[], &["ours"]).await, never);
        assert_eq!(seen(&[not_there, other], &[Some(8)], &["ours"]).await, never);
        // The message may still come, or nobody answers.
        assert_eq!(seen(&[not_there], &[Some(7)], &["ours"]).await, None);
        assert_eq!(seen(&[not_there], &[None], &["ours"]).await, None);
        assert_eq!(seen(&[None], &[], &["ours"]).await, None);
        assert_eq!(seen(&[not_there, None], &[Some(8)], &["ours"]).await, None);
        // The message may have been there.
        let gone = seen(&[not_there, not_there], &[Some(8)], &["ours"]).await;
        assert!(matches!(gone, Some(AppendOutcome::Unsettled(_))), "{gone:?}");
    }

    /// Mechanisms 1, 10: a batch of which only a part is there counts neither as stored nor as not
    /// stored.
    #[tokio::test]
    async fn a_part_of_a_batch_settles_nothing() {
        let (not_there, first) = (Some(None), Some(Some("first")));
        let parts = ["first", "ours"];
        let of = async |last: &[Option<Option<&'static str>>], seqs: &[Option<u64>]| {
            seen(&[&[first], last].concat(), seqs, &parts).await
        };
        for last in [&[Some(Some("other"))][..], &[not_there, not_there]] {
            let seqs = if last.len() > 1 { &[Some(9)][..] } else { &[] };
            let outcome = of(last, seqs).await;
            assert!(matches!(outcome, Some(AppendOutcome::Unsettled(_))), "{outcome:?}");
        }
        assert_eq!(of(&[not_there], &[Some(8)]).await, None, "it may yet come");
        assert_eq!(of(&[None], &[]).await, None);
    }

    #[test]
    fn a_refusal_names_where_the_stream_ends() {
        assert_eq!(place_named("wrong last sequence: 17"), Some(17));
        assert_eq!(place_named("wrong last sequence"), None);
    }
}
