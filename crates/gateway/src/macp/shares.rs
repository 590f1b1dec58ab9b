//! [`SenderShares`]: what one sender may take of a gateway. To the nodes all senders are one principal, so that here it
//! is seen to it that one leaves something to the others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tenure_macp::{MacpCode, MacpRefusal};
use tenure_mcp::{Share, Shares};
use tokio::runtime::Handle;

use crate::api::{FoldTurn, FoldTurns};

/// How many calls of all callers are under way at most.
const UNDER_WAY_MAX: usize = 1_024;

/// How many streams follow sessions at a time: the nodes hold as many answers for one principal, and a stream without
/// one asks them ten times a second.
const FOLLOWING_MAX: usize = 2_048;

/// How many lists and watchers read at a time. One caller has two of these turns.
const TURNS_MAX: usize = 64;

/// How many bytes a second a sender may send, and for how many seconds at once: a quarter of what the nodes take of one
/// principal as they are shipped.
const BYTES_A_SECOND: f64 = 16.0 * 1_048_576.0;
const BURST_S: f64 = 2.0;

/// How many bytes each message counts as besides its own: it makes a Task, or is kept with one.
const BYTES_AROUND: usize = 512;

/// How many senders a gateway tells apart by what they have sent in the last two seconds. Those for whom there is no
/// place share the rate of one.
const SENDERS_MAX: usize = 4_096;

/// How often it is looked at all of them for a place, at most.
const SWEPT_AFTER: Duration = Duration::from_secs(1);

/// What all senders have taken.
#[derive(Debug)]
pub(crate) struct SenderShares {
    /// Calls that are not answered yet, and streams that do not tell yet what is new.
    under_way: Shares,
    /// Streams that follow a session.
    following: Shares,
    /// Whose lists and watchers read.
    turns: FoldTurns,
    sent: Mutex<SentBytes>,
    open: Mutex<OpenByInitiator>,
}

impl Default for SenderShares {
    fn default() -> Self {
        let (sent, open) = Default::default();
        let (under_way, following) = (Shares::new(UNDER_WAY_MAX), Shares::new(FOLLOWING_MAX));
        Self { under_way, following, turns: FoldTurns::of(TURNS_MAX), sent, open }
    }
}

/// The turn of a caller to read many sessions, until this is dropped. Then the caller leaves the turn for as long as it
/// had it, so that one that always reads takes at most half of the time.
#[derive(Debug)]
pub(super) struct ReadingTurn {
    turn: Option<FoldTurn>,
    begun: tokio::time::Instant,
}

impl Drop for ReadingTurn {
    fn drop(&mut self) {
        let (turn, rest) = (self.turn.take(), self.begun.elapsed());
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(rest).await;
                drop(turn);
            });
        }
    }
}

/// How many bytes each sender may still send.
#[derive(Debug, Default)]
struct SentBytes {
    known: HashMap<String, ByteBucket>,
    /// That of all for whom there is no place.
    others: Option<ByteBucket>,
    swept: Option<Instant>,
}

/// A bucket of bytes, which fills with time.
#[derive(Debug, Clone, Copy)]
struct ByteBucket {
    left: f64,
    at: Instant,
}

/// The sessions that go on, by who has started them.
#[derive(Debug, Default)]
struct OpenByInitiator {
    initiator: HashMap<String, OpenSession>,
    count: HashMap<Arc<str>, usize>,
}

#[derive(Debug)]
struct OpenSession {
    initiator: Arc<str>,
    noted: Instant,
}

impl ByteBucket {
    fn full(now: Instant) -> Self {
        Self { left: BYTES_A_SECOND * BURST_S, at: now }
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = passed.mul_add(BYTES_A_SECOND, self.left).min(BYTES_A_SECOND * BURST_S);
        self.at = now;
    }

    /// Takes bytes while there are any, even more than are left.
    fn take(&mut self, bytes: usize, now: Instant) -> bool {
        self.fill(now);
        let passes = self.left > 0.0;
        if passes {
            self.left -= f64::from(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
        passes
    }

    fn is_full(mut self, now: Instant) -> bool {
        self.fill(now);
        self.left >= BYTES_A_SECOND * BURST_S
    }
}

impl SentBytes {
    fn of(&mut self, sender: &str, now: Instant) -> &mut ByteBucket {
        if !self.known.contains_key(sender) {
            if self.known.len() >= SENDERS_MAX && !self.make_room(now) {
                return self.others.get_or_insert_with(|| ByteBucket::full(now));
            }
            self.known.insert(sender.to_owned(), ByteBucket::full(now));
        }
        self.known.entry(sender.to_owned()).or_insert_with(|| ByteBucket::full(now))
    }

    fn make_room(&mut self, now: Instant) -> bool {
        if self.swept.is_some_and(|at| now.saturating_duration_since(at) < SWEPT_AFTER) {
            return false;
        }
        self.swept = Some(now);
        self.known.retain(|_, bucket| !bucket.is_full(now));
        self.known.len() < SENDERS_MAX
    }
}

impl OpenByInitiator {
    fn remove(&mut self, session_id: &str) {
        if let Some(OpenSession { initiator, .. }) = self.initiator.remove(session_id)
            && let Some(count) = self.count.get_mut(&initiator)
        {
            *count -= 1;
            if *count == 0 {
                self.count.remove(&initiator);
            }
        }
    }
}

impl SenderShares {
    /// Takes a message of so many bytes, which is under way until the answer is dropped.
    ///
    /// # Errors
    /// RATE_LIMITED: the sender has its part already.
    pub(super) fn take(&self, sender: &str, bytes: usize) -> Result<Share, MacpRefusal> {
        self.take_at(sender, bytes, Instant::now())
    }

    fn take_at(&self, sender: &str, bytes: usize, now: Instant) -> Result<Share, MacpRefusal> {
        if !self.sent.lock().of(sender, now).take(bytes.saturating_add(BYTES_AROUND), now) {
            let message = "this sender sends more bytes a second than one may: send the message again in a second";
            return Err(MacpRefusal::new(MacpCode::RateLimited, message));
        }
        self.call(sender)
    }

    /// Takes a call that reads, which is under way until the answer is dropped.
    ///
    /// # Errors
    /// RATE_LIMITED: the caller has its part already.
    pub(super) fn call(&self, caller: &str) -> Result<Share, MacpRefusal> {
        self.under_way.take(caller).ok_or_else(|| {
            let message = "too many calls of this caller are under way: send this one again when some are answered";
            MacpRefusal::new(MacpCode::RateLimited, message)
        })
    }

    /// Takes a stream that follows a session, for as long as the answer lives.
    ///
    /// # Errors
    /// RATE_LIMITED: the caller has its part already.
    pub(super) fn follow(&self, caller: &str) -> Result<Share, MacpRefusal> {
        self.following.take(caller).ok_or_else(|| {
            let message = "too many streams of this caller follow sessions: end those of sessions that are over";
            MacpRefusal::new(MacpCode::RateLimited, message)
        })
    }

    /// Waits until a caller may read many sessions.
    ///
    /// # Errors
    /// RATE_LIMITED: its lists and watchers read all the time.
    pub(super) async fn turn(&self, caller: &str) -> Result<ReadingTurn, MacpRefusal> {
        let turn = self.turns.take(caller).await.map_err(|_| {
            let message = "other lists and watchers of this caller read: have fewer at a time, and come again later";
            MacpRefusal::new(MacpCode::RateLimited, message)
        })?;
        Ok(ReadingTurn { turn: Some(turn), begun: tokio::time::Instant::now() })
    }

    /// The same, for a watcher: it waits for as long as that takes.
    pub(super) async fn turn_of_watcher(&self, caller: &str) -> ReadingTurn {
        loop {
            if let Ok(turn) = self.turn(caller).await {
                return turn;
            }
        }
    }

    /// Whether an initiator may have one more open session, of so many at most.
    ///
    /// # Errors
    /// RATE_LIMITED.
    pub(super) fn check_open(&self, initiator: &str, most: usize) -> Result<(), MacpRefusal> {
        let open = self.open.lock().count.get(initiator).copied().unwrap_or(0);
        if open < most {
            return Ok(());
        }
        let message = format!(
            "this sender has {open} open sessions, and may have {most}: end or cancel some, or have the gateway allow \
             more (--macp-open-max)"
        );
        Err(MacpRefusal::new(MacpCode::RateLimited, message))
    }

    /// Whether a session goes on, as far as is known here.
    pub(super) fn is_open(&self, session_id: &str) -> bool {
        self.open.lock().initiator.contains_key(session_id)
    }

    /// Notes whether a session goes on, and who has started it.
    pub(super) fn note(&self, session_id: &str, initiator: &str, goes_on: bool) {
        let mut open = self.open.lock();
        if goes_on == open.initiator.contains_key(session_id) {
            return;
        }
        if goes_on {
            let known = open.count.get_key_value(initiator).map(|(name, _)| Arc::clone(name));
            let name = known.unwrap_or_else(|| Arc::from(initiator));
            let session = OpenSession { initiator: Arc::clone(&name), noted: Instant::now() };
            open.initiator.insert(session_id.to_owned(), session);
            *open.count.entry(name).or_default() += 1;
        } else {
            open.remove(session_id);
        }
    }

    /// The sessions that counted as open already at that time. Some may have ended at other gateways.
    pub(super) fn open_at(&self, time: Instant) -> Vec<String> {
        let open = self.open.lock();
        let before = open.initiator.iter().filter(|(_, session)| session.noted < time);
        before.map(|(id, _)| id.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mechanisms 15: a sender whose messages are not answered leaves a quarter to others.
    #[test]
    fn messages_under_way_are_shared() {
        let shares = SenderShares::default();
        let held: Vec<_> = std::iter::from_fn(|| shares.take("eve", 0).ok()).collect();
        assert_eq!(held.len(), UNDER_WAY_MAX / 4 * 3);
        assert_eq!(shares.take("eve", 0).unwrap_err().code, MacpCode::RateLimited);
        drop(shares.take("bob", 0).unwrap());
    }

    /// Mechanisms 15: lists and watchers of one caller read two at a time, and then leave as much time to others.
    #[tokio::test(start_paused = true)]
    async fn lists_and_watchers_take_turns() {
        let shares = SenderShares::default();
        let held = [shares.turn("eve").await.unwrap(), shares.turn("eve").await.unwrap()];
        shares.turn("bob").await.unwrap();
        let refused = shares.turn("eve").await.unwrap_err(); // This takes a while.
        assert_eq!(refused.code, MacpCode::RateLimited);
        let watching = tokio::time::Instant::now();
        let rest = watching - held[0].begun;
        drop(held);
        let turn = shares.turn_of_watcher("eve").await;
        assert!(watching.elapsed() >= rest, "{rest:?}");
        drop(turn);
        shares.turn("eve").await.unwrap();
    }

    /// Mechanisms 15: one caller's streams leave some to others.
    #[test]
    fn streams_that_follow_are_shared() {
        let shares = SenderShares::default();
        let held: Vec<_> = std::iter::from_fn(|| shares.follow("eve").ok()).collect();
        assert_eq!(held.len(), FOLLOWING_MAX / 4 * 3);
        assert_eq!(shares.follow("eve").unwrap_err().code, MacpCode::RateLimited);
        shares.follow("bob").unwrap();
    }

    /// Mechanisms 15: each sender has its rate, and who has sent nothing lately is forgotten.
    #[test]
    fn bytes_have_a_rate() {
        let (shares, begun) = (SenderShares::default(), Instant::now());
        let send = |who: &str, at: Duration| shares.take_at(who, 1 << 20, begun + at).is_ok();
        assert_eq!((0..100).filter(|_| send("eve", Duration::ZERO)).count(), 32);
        assert!(send("bob", Duration::ZERO));
        assert!(send("eve", Duration::from_secs(1)));
        for n in 1..SENDERS_MAX {
            assert!(send(&format!("p{n}"), Duration::from_secs(1)));
        }
        assert_eq!(shares.sent.lock().known.len(), SENDERS_MAX);
        let of_others = (0..100).filter(|n| send(&format!("q{n}"), Duration::from_secs(1)));
        assert_eq!(of_others.count(), 32, "as many as of one");
        assert!(send("q", Duration::from_secs(10)));
        assert_eq!(shares.sent.lock().known.len(), 1);
    }

    /// Mechanisms 15: the open sessions of one initiator are bounded, and those of another are its own.
    #[test]
    fn open_sessions_are_counted_once() {
        let shares = SenderShares::default();
        for _ in 0..2 {
            shares.note("s1", "eve", true); // It is noted again whenever it is read.
            shares.note("s2", "eve", true);
        }
        let refused = shares.check_open("eve", 2).unwrap_err();
        assert!(refused.message.contains("--macp-open-max"), "{refused}");
        assert_eq!(refused.code, MacpCode::RateLimited);
        shares.check_open("bob", 2).unwrap();
        for _ in 0..2 {
            shares.note("s1", "eve", false);
        }
        shares.check_open("eve", 2).unwrap();
        shares.note("s2", "eve", false);
        // What began later has not ended elsewhere.
        shares.note("s3", "eve", true);
        let time = Instant::now();
        shares.note("s4", "eve", true);
        assert_eq!(shares.open_at(time), ["s3"]);
        shares.note("s3", "eve", false);
        shares.note("s4", "eve", false);
        let open = shares.open.lock();
        assert!(open.count.is_empty() && open.initiator.is_empty());
    }
}
