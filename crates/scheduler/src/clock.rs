//! Time and ids for the core, which has neither (mechanisms 17).
//!
//! There are two lines of time. The *steady* line is monotonic: it counts what has passed by the
//! runtime's clock, which tests steer, and adds the time in which the machine was suspended. Nobody
//! can set it, and all waits are counted on it. The *clock* gives the time of day. It begins with
//! the system's clock, and then advances with the steady line. Somebody may set the system's clock,
//! so the scheduler follows such a change only where something else confirms it. In a cluster this
//! is Redis' clock, which the keeper of partitions asks anyway. In a single process it is that the
//! system's clock has stayed as it was set for a while.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tenure_core::Stamp;
use tenure_core::id::{AttemptId, CommitId, Millis, RunId};
use tokio::time::Instant;
use uuid::Uuid;

/// By how much two clocks must differ before the scheduler concludes that one was set, or the
/// machine suspended. A smaller difference may come from how they count, and from how long reading
/// them takes.
const APART: Millis = 1_000;

/// How far the system's clock and another's may differ and still confirm each other.
const AGREE: Duration = Duration::from_secs(5);

/// For how long a set system's clock must stay as it is before the scheduler follows it where no
/// other clock is asked.
const STAYS: Duration = Duration::from_secs(60);

/// The clocks of the machine, besides the runtime's.
pub trait Machine: fmt::Debug + Send + Sync {
    /// Unix milliseconds by the system's clock, which may be set at any time.
    fn wall(&self) -> Millis;

    /// The time since a fixed moment; it never steps. It includes suspensions where the system
    /// reports them (Linux, Android). Elsewhere a suspension looks as if the system's clock had
    /// been set.
    fn passed(&self) -> Duration;

    /// How much of [`passed`](Self::passed) the machine was suspended.
    fn suspended(&self) -> Duration;
}

/// The machine that this runs on.
#[derive(Debug, Clone, Copy)]
pub struct ThisMachine {
    seen: std::time::Instant,
}

impl ThisMachine {
    /// Its clocks.
    pub fn new() -> Self {
        Self { seen: std::time::Instant::now() }
    }
}

impl Default for ThisMachine {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine for ThisMachine {
    fn wall(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        millis(since)
    }

    fn passed(&self) -> Duration {
        boot_and_awake().map_or_else(|| self.seen.elapsed(), |(boot, _)| boot)
    }

    fn suspended(&self) -> Duration {
        boot_and_awake().map_or(Duration::ZERO, |(boot, awake)| boot.saturating_sub(awake))
    }
}

/// The time since the machine was started, and the part of it in which it was not suspended. They
/// are read in this order so that the time between the two readings does not count as a suspension.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_and_awake() -> Option<(Duration, Duration)> {
    use nix::time::ClockId;
    let boot = ClockId::CLOCK_BOOTTIME.now().ok()?;
    let awake = ClockId::CLOCK_MONOTONIC.now().ok()?;
    Some((boot.into(), awake.into()))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn boot_and_awake() -> Option<(Duration, Duration)> {
    None
}

fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}

/// Both lines of time of a scheduler; see the module's text.
#[derive(Debug)]
pub(crate) struct Clock {
    machine: Arc<dyn Machine>,
    started: Instant,
    /// How long the machine had been suspended when this clock was started.
    suspended_before: Duration,
    /// How long the machine has been suspended since then, in milliseconds; tokio's clock stood
    /// still meanwhile.
    suspended: AtomicI64,
    /// By how much the clock is ahead of the steady line.
    ahead: AtomicI64,
    /// The last setting of the system's clock that the scheduler follows.
    followed: Mutex<ClockFollow>,
    /// The clock was set since [`look`](Self::look) last asked.
    was_set: AtomicBool,
}

#[derive(Debug)]
struct ClockFollow {
    /// By how much the followed clock is ahead of [`Machine::passed`].
    ahead: Millis,
    /// By how much the system's clock differs from the followed one, and since when: somebody set
    /// it.
    doubt: Option<(Millis, Duration)>,
}

impl Clock {
    /// Starts with the system's time.
    pub(crate) fn new(machine: Arc<dyn Machine>) -> Self {
        let wall = machine.wall();
        let followed = ClockFollow { ahead: wall - millis(machine.passed()), doubt: None };
        Self {
            started: Instant::now(),
            suspended_before: machine.suspended(),
            suspended: AtomicI64::new(0),
            ahead: AtomicI64::new(wall),
            followed: Mutex::new(followed),
            was_set: AtomicBool::new(false),
            machine,
        }
    }

    /// Unix milliseconds now.
    pub(crate) fn now(&self) -> Millis {
        self.at(self.passed())
    }

    /// What the clock says at a given moment of the steady line.
    fn at(&self, passed: Millis) -> Millis {
        passed.saturating_add(self.ahead.load(Ordering::Relaxed))
    }

    /// The steady line: milliseconds since this clock was started.
    pub(crate) fn passed(&self) -> Millis {
        millis(self.started.elapsed()).saturating_add(self.suspended.load(Ordering::Relaxed))
    }

    /// The tokio instant of a moment of the steady line. For a moment that has passed, the instant
    /// has passed too.
    pub(crate) fn instant_of(&self, passed: Millis) -> Instant {
        let awake = passed.saturating_sub(self.suspended.load(Ordering::Relaxed));
        self.started + Duration::from_millis(u64::try_from(awake).unwrap_or(0))
    }

    /// Time, fresh ids and randomness for one decision on a Task. `lead` is by how much the Task's
    /// steady line is ahead of this one.
    pub(crate) fn stamp(&self, lead: Millis) -> Stamp {
        let (commit, attempt) = (Uuid::now_v7(), Uuid::now_v7());
        let passed = self.passed();
        Stamp {
            now: self.at(passed),
            steady: passed.saturating_add(lead),
            commit_id: CommitId(commit),
            run_id: RunId(Uuid::now_v7()),
            attempt_id: AttemptId(attempt),
            random: attempt.as_u64_pair().1,
        }
    }

    /// By how much the steady line of a Task that was last written to at `updated_at` is ahead of
    /// this one. The Task's line goes on from `updated_at`, or from now if that is later.
    pub(crate) fn lead(&self, updated_at: Millis) -> Millis {
        let passed = self.passed();
        self.at(passed).max(updated_at).saturating_sub(passed)
    }

    /// How far a steady line with this lead is ahead of the clock.
    pub(crate) fn steady_ahead(&self, lead: Millis) -> Millis {
        lead.saturating_sub(self.ahead.load(Ordering::Relaxed))
    }

    /// Reads the machine's clocks. Answers whether either line jumped since the last look, compared
    /// with tokio's clock: what is due on that line is then due at another instant.
    pub(crate) fn look(&self, is_alone: bool) -> bool {
        let was_suspended = self.note_suspension();
        if is_alone {
            self.follow_what_stays();
        }
        self.was_set.swap(false, Ordering::AcqRel) || was_suspended
    }

    fn note_suspension(&self) -> bool {
        let suspended = millis(self.machine.suspended().saturating_sub(self.suspended_before));
        let is_news = suspended.saturating_sub(self.suspended.load(Ordering::Relaxed)) > APART;
        if is_news {
            self.suspended.fetch_max(suspended, Ordering::Relaxed);
        }
        is_news
    }

    /// Follows a system's clock that was set and has stayed so. Used where no other clock is asked.
    fn follow_what_stays(&self) {
        let passed = self.machine.passed();
        let mut followed = self.followed.lock();
        let apart = self.machine.wall() - millis(passed) - followed.ahead;
        if apart.abs() <= APART {
            followed.doubt = None;
            return;
        }
        match followed.doubt {
            Some((doubted, since)) if (apart - doubted).abs() <= APART => {
                if passed.saturating_sub(since) >= STAYS {
                    self.follow(&mut followed, apart);
                }
            }
            _ => followed.doubt = Some((apart, passed)),
        }
    }

    /// Another clock said `there`, and its answer took `took`. The system's clock is followed if it
    /// agrees.
    pub(crate) fn compare(&self, there: Millis, took: Duration) {
        let mut followed = self.followed.lock();
        let passed = self.machine.passed();
        let wall = self.machine.wall();
        if millis(self.machine.passed().saturating_sub(passed)) > APART {
            return; // The process was held up between the two readings, so they cannot be compared.
        }
        let apart = wall - millis(passed) - followed.ahead;
        let agree = wall.abs_diff(there) <= millis(AGREE + took).unsigned_abs();
        if agree && apart.abs() > APART {
            self.follow(&mut followed, apart);
        }
    }

    fn follow(&self, followed: &mut ClockFollow, apart: Millis) {
        tracing::warn!(apart_ms = apart, "the system's clock was set, and is followed");
        *followed = ClockFollow { ahead: followed.ahead + apart, doubt: None };
        self.ahead.fetch_add(apart, Ordering::Relaxed);
        self.was_set.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Millis = 3_600_000;

    /// A machine whose clocks the test sets: the system's, the time passed, the time suspended.
    #[derive(Debug, Default)]
    struct Hands(Mutex<(Millis, Duration, Duration)>);

    impl Hands {
        /// Lets so much time pass, on tokio's clock too.
        async fn pass(&self, seconds: u64) {
            let passed = Duration::from_secs(seconds);
            tokio::time::advance(passed).await;
            let mut hands = self.0.lock();
            hands.0 += millis(passed);
            hands.1 += passed;
        }

        fn set_wall(&self, by: Millis) {
            self.0.lock().0 += by;
        }

        fn suspend(&self, seconds: u64) {
            let mut hands = self.0.lock();
            let slept = Duration::from_secs(seconds);
            *hands = (hands.0 + millis(slept), hands.1 + slept, hands.2 + slept);
        }
    }

    impl Machine for Hands {
        fn wall(&self) -> Millis {
            self.0.lock().0
        }

        fn passed(&self) -> Duration {
            self.0.lock().1
        }

        fn suspended(&self) -> Duration {
            self.0.lock().2
        }
    }

    fn clock() -> (Arc<Hands>, Clock) {
        let hands = Arc::new(Hands::default());
        hands.set_wall(500 * HOUR);
        (Arc::clone(&hands), Clock::new(hands))
    }

    /// Mechanisms 17: a system's clock that is set for a moment moves nothing.
    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_off_for_a_moment_is_not_followed() {
        let (hands, clock) = clock();
        for by in [2 * HOUR, -2 * HOUR] {
            let (now, passed) = (clock.now(), clock.passed());
            hands.set_wall(by);
            for _ in 0..59 {
                assert!(!clock.look(true));
                hands.pass(1).await;
            }
            hands.set_wall(-by);
            hands.pass(1).await;
            assert!(!clock.look(true));
            assert_eq!((clock.now() - now, clock.passed() - passed), (60_000, 60_000));
        }
    }

    /// Mechanisms 17: where no other clock is asked, a system's clock that stays as it was set is
    /// followed, forward and back; waits are not affected.
    #[tokio::test(start_paused = true)]
    async fn a_clock_that_stays_set_is_followed() {
        let (hands, clock) = clock();
        for by in [2 * HOUR, -2 * HOUR] {
            let (now, passed) = (clock.now(), clock.passed());
            hands.set_wall(by);
            for _ in 0..60 {
                assert!(!clock.look(true));
                hands.pass(1).await;
            }
            assert!(clock.look(true));
            assert!(!clock.look(true), "told once");
            assert_eq!((clock.now() - now, clock.passed() - passed), (by + 60_000, 60_000));
            assert_eq!(clock.now(), hands.wall());
        }
    }

    /// Mechanisms 17: another clock that agrees confirms the system's; the system's is never
    /// followed against it.
    #[tokio::test(start_paused = true)]
    async fn a_second_clock_bears_the_systems_out_or_contradicts_it() {
        let (hands, clock) = clock();
        let right = hands.wall();
        hands.set_wall(10 * 60_000);
        for _ in 0..200 {
            clock.compare(right, Duration::ZERO);
            assert!(!clock.look(false), "contradicted, however long that takes");
        }
        assert_eq!(clock.now(), right);
        hands.set_wall(-10 * 60_000);
        clock.compare(right, Duration::ZERO);
        assert!(!clock.look(false));
        for by in [-HOUR, 2 * HOUR] {
            hands.set_wall(by);
            clock.compare(hands.wall() + 5_100, Duration::from_millis(200));
            assert!(clock.look(false));
            assert_eq!(clock.now(), hands.wall());
        }
    }

    /// Mechanisms 17: a suspension of the machine counts as passed time on both lines, and not as a
    /// set clock.
    #[tokio::test(start_paused = true)]
    async fn what_was_slept_through_has_passed() {
        let (hands, clock) = clock();
        let (now, due) = (clock.now(), clock.passed() + 5_000);
        assert_eq!(clock.instant_of(due) - Instant::now(), Duration::from_secs(5));
        hands.suspend(3_600);
        assert!(clock.look(true));
        assert!(!clock.look(true));
        assert_eq!((clock.now() - now, clock.passed()), (HOUR, HOUR));
        assert!(clock.instant_of(due) <= Instant::now());
        let due = clock.passed() + 5_000;
        assert_eq!(clock.instant_of(due) - Instant::now(), Duration::from_secs(5));
    }

    /// Mechanisms 17: a Task's waits go on from its last event where the clock is behind that
    /// event, and from the clock where it is not.
    #[tokio::test(start_paused = true)]
    async fn a_task_goes_on_from_its_last_event() {
        let (hands, clock) = clock();
        let steady = |lead| clock.stamp(lead).steady;
        assert_eq!(steady(clock.lead(clock.now() - HOUR)), clock.now());
        let ahead = clock.lead(clock.now() + HOUR);
        assert_eq!(steady(ahead), clock.now() + HOUR);
        assert_eq!(clock.steady_ahead(ahead), HOUR);
        hands.pass(7).await;
        assert_eq!(steady(ahead), clock.now() + HOUR);
    }
}
