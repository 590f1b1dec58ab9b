//! How much a second each principal may send to a node, so that one cannot take the node, its log or its connections
//! from the others.
//!
//! Each rate is a bucket of tokens: it fills at the rate up to some seconds' worth, and a message passes while the
//! bucket is not empty, even if it takes more than is left. What does not pass is refused as `unavailable`, with the
//! time after which it passes, and whoever sent it repeats it: nothing is lost. A refusal costs the node a look at the
//! subject, not at the message. Refusals have a bucket too: beyond it a message gets no answer, as one that was lost,
//! and is repeated all the same.
//!
//! Step 3 of the walk in docs/architecture.md.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_core::command::StepReport;
use tenure_core::status::{Role, StepStatus};
use tenure_core::{Code, Rejection, RejectionKind};
use tenure_ports::map::IdMap;
use tenure_wire::bus::subject::Token;
use tenure_wire::bus::worker::{Report, Word};
use tokio::time::Instant;

/// For how many seconds of its rate a principal may send at once.
const BURST_S: u64 = 2;

/// How many refusals a second a principal gets.
const REFUSALS: u64 = 100;

/// A request that writes counts as the creation of one Task for each time that it has so many bytes.
const BYTES_OF_TASK: usize = 512;

/// How many principals a node remembers with what they have sent lately. A principal more takes the place of those
/// that have sent nothing for [`BURST_S`]. If there are none, those for whom there is no place share the rate of one:
/// they are served, take nothing from those that are remembered, and are no way around the rates.
const PRINCIPALS_MAX: usize = 16_384;

/// How often a node looks at all that it remembers for a place, at most: so a principal more costs no such look.
const SWEPT_AFTER: Duration = Duration::from_secs(1);

/// The shortest pause that a refusal asks for, and the longest.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(8));

/// How much one principal may send to a node each second, on average over some seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateSettings {
    /// Bytes of messages, of whatever kind.
    pub traffic: u64,
    /// Tasks that it creates. A create counts as one for each 512 bytes that it has, and so does another command that
    /// has 1,024 at least: what it writes stands in the log.
    pub creates: u64,
    /// Reports of a worker that end no Step: progress, and Steps and Runs that it gives back.
    pub reports: u64,
    /// Bytes of such reports, as each stands in the log for good.
    pub report_bytes: u64,
}

impl Default for RateSettings {
    /// Several times what one principal needs to keep a node of two processors busy.
    fn default() -> Self {
        Self { traffic: 64 << 20, creates: 50_000, reports: 20_000, report_bytes: 8 << 20 }
    }
}

/// A bucket of tokens.
#[derive(Debug, Clone, Copy)]
struct TokenBucket {
    /// How many are in it; negative where a message took more than were left.
    left: f64,
    at: Instant,
}

impl TokenBucket {
    fn full(rate: u64, now: Instant) -> Self {
        Self { left: burst(rate), at: now }
    }

    fn fill(&mut self, rate: u64, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (passed.mul_add(as_f64(rate), self.left)).min(burst(rate));
        self.at = now;
    }

    /// Takes so many tokens. Answers how long until there are some, if there are none.
    fn take(&mut self, rate: u64, tokens: u64, now: Instant) -> Result<(), Duration> {
        self.fill(rate, now);
        if self.left > 0.0 {
            self.left -= as_f64(tokens);
            return Ok(());
        }
        let seconds = (1.0 - self.left) / as_f64(rate.max(1));
        Err(Duration::try_from_secs_f64(seconds).unwrap_or(RETRY_AFTER.1))
    }

    /// Takes so many tokens, whether they are there or not.
    fn spend(&mut self, rate: u64, tokens: u64, now: Instant) {
        self.fill(rate, now);
        self.left -= as_f64(tokens);
    }

    fn is_full(&self, rate: u64, now: Instant) -> bool {
        let mut then = *self;
        then.fill(rate, now);
        then.left >= burst(rate)
    }
}

#[allow(clippy::cast_precision_loss)] // Of rates and lengths: nobody counts 2^53 bytes a second.
fn as_f64(tokens: u64) -> f64 {
    tokens as f64
}

fn burst(rate: u64) -> f64 {
    as_f64(rate.saturating_mul(BURST_S)).max(1.0)
}

/// What a principal has sent lately.
#[derive(Debug)]
struct PrincipalRates {
    traffic: TokenBucket,
    /// Heartbeats, apart from all else: a worker that sends too much must still be able to keep what it holds.
    beats: TokenBucket,
    creates: TokenBucket,
    reports: TokenBucket,
    report_bytes: TokenBucket,
    refusals: TokenBucket,
}

/// What all principals have sent to a node lately.
#[derive(Debug)]
pub(crate) struct RateTable {
    settings: RateSettings,
    all: Mutex<Principals>,
    /// How many messages and reports were refused.
    refused: AtomicU64,
}

/// Principals, with what they have sent lately.
#[derive(Debug, Default)]
struct Principals {
    known: IdMap<(Role, Token), PrincipalRates>,
    /// What the principals for whom there was no place have sent together.
    others: Option<PrincipalRates>,
    /// When the node last looked for principals that have sent nothing lately.
    swept: Option<Instant>,
    /// How many principals were looked at in all, which shows what the looks cost.
    #[cfg(test)]
    looked_at: usize,
}

impl Principals {
    /// What is charged for a message of this principal, and whether it shares that with others.
    fn of(
        &mut self,
        who: (Role, Token),
        settings: &RateSettings,
        now: Instant,
    ) -> (&mut PrincipalRates, bool) {
        let full = || PrincipalRates::full(settings, now);
        let is_full = self.known.len() >= PRINCIPALS_MAX;
        if is_full && !self.known.contains_key(&who) && !self.make_room(settings, now) {
            return (self.others.get_or_insert_with(full), true);
        }
        (self.known.entry(who).or_insert_with(full), false)
    }

    /// Forgets principals that have sent nothing lately, unless that was done just now. Answers whether there is a
    /// place.
    fn make_room(&mut self, settings: &RateSettings, now: Instant) -> bool {
        if self.swept.is_some_and(|at| now.saturating_duration_since(at) < SWEPT_AFTER) {
            return false;
        }
        self.swept = Some(now);
        #[cfg(test)]
        {
            self.looked_at += self.known.len();
        }
        self.known.retain(|_, sent| !sent.is_idle(settings, now));
        self.known.len() < PRINCIPALS_MAX
    }
}

/// The refusal of what does not pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OverRate {
    what: &'static str,
    option: &'static str,
    rate: u64,
    wait: Duration,
    /// Whether the sender shares the rate with others.
    is_shared: bool,
    /// Whether the sender is told.
    pub(crate) is_told: bool,
}

impl RateTable {
    pub(crate) fn new(settings: RateSettings) -> Self {
        Self { settings, all: Mutex::default(), refused: AtomicU64::new(0) }
    }

    /// Counts a message of so many bytes.
    pub(crate) fn message(
        &self,
        role: Role,
        who: &Token,
        bytes: usize,
        is_heartbeat: bool,
    ) -> Result<(), OverRate> {
        let rate = self.settings.traffic;
        self.charge(role, who, |sent, now| {
            let bucket = if is_heartbeat { &mut sent.beats } else { &mut sent.traffic };
            bucket
                .take(rate, bytes as u64, now)
                .map_err(|wait| ("bytes", "rate-traffic", rate, wait))
        })
    }

    /// Counts the creation of so many Tasks.
    pub(crate) fn create(&self, role: Role, who: &Token, tasks: u64) -> Result<(), OverRate> {
        let rate = self.settings.creates;
        self.charge(role, who, |sent, now| {
            sent.creates
                .take(rate, tasks, now)
                .map_err(|wait| ("tasks", "rate-creates", rate, wait))
        })
    }

    /// Counts so many Tasks that were created already: what follows is refused for them.
    pub(crate) fn created(&self, role: Role, who: &Token, tasks: u64) {
        let rate = self.settings.creates;
        let counted = self.charge(role, who, |sent, now| {
            sent.creates.spend(rate, tasks, now);
            Ok(())
        });
        debug_assert!(counted.is_ok(), "nothing is refused here");
    }

    /// Counts a report of a worker, whose message has so many bytes for each report. A result of a Step always
    /// passes: there is one for each Step that the worker was given.
    pub(crate) fn report(
        &self,
        who: &Token,
        report: &Report,
        bytes: usize,
    ) -> Result<(), OverRate> {
        if ends_step(&report.word) {
            return Ok(());
        }
        let RateSettings { reports, report_bytes, .. } = self.settings;
        self.charge(Role::Worker, who, |sent, now| {
            let one = sent.reports.take(reports, 1, now);
            one.map_err(|wait| ("reports that end no step", "rate-reports", reports, wait))?;
            let bytes = sent.report_bytes.take(report_bytes, bytes as u64, now);
            bytes.map_err(|wait| {
                ("bytes of reports that end no step", "rate-report-bytes", report_bytes, wait)
            })
        })
    }

    /// Whether a principal may be told now that a message of it is not handled.
    pub(crate) fn may_tell(&self, role: Role, who: &Token) -> bool {
        let mut all = self.all.lock();
        // No message of an unknown principal was handled lately: it shares its refusals with those for whom there is
        // no place.
        let Principals { known, others, .. } = &mut *all;
        let sent = known.get_mut(&(role, who.clone())).or(others.as_mut());
        sent.is_none_or(|sent| sent.refusals.take(REFUSALS, 1, Instant::now()).is_ok())
    }

    /// How many messages and reports were refused since the node began.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn charge(
        &self,
        role: Role,
        who: &Token,
        take: impl FnOnce(
            &mut PrincipalRates,
            Instant,
        ) -> Result<(), (&'static str, &'static str, u64, Duration)>,
    ) -> Result<(), OverRate> {
        if role == Role::System {
            return Ok(()); // Nodes have no rates: they ask each other only what they need.
        }
        let now = Instant::now();
        let mut all = self.all.lock();
        let (sent, is_shared) = all.of((role, who.clone()), &self.settings, now);
        let Err((what, option, rate, wait)) = take(sent, now) else { return Ok(()) };
        let is_told = sent.refusals.take(REFUSALS, 1, now).is_ok();
        drop(all);
        let refused = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        if refused.is_power_of_two() {
            tracing::warn!(
                principal = who.as_str(),
                what,
                rate,
                refused,
                "a principal is over its rate"
            );
        }
        let wait = wait.clamp(RETRY_AFTER.0, RETRY_AFTER.1);
        Err(OverRate { what, option, rate, wait, is_shared, is_told })
    }
}

impl PrincipalRates {
    fn full(settings: &RateSettings, now: Instant) -> Self {
        Self {
            traffic: TokenBucket::full(settings.traffic, now),
            beats: TokenBucket::full(settings.traffic, now),
            creates: TokenBucket::full(settings.creates, now),
            reports: TokenBucket::full(settings.reports, now),
            report_bytes: TokenBucket::full(settings.report_bytes, now),
            refusals: TokenBucket::full(REFUSALS, now),
        }
    }

    /// Whether nothing of it need be remembered.
    fn is_idle(&self, settings: &RateSettings, now: Instant) -> bool {
        self.traffic.is_full(settings.traffic, now)
            && self.beats.is_full(settings.traffic, now)
            && self.creates.is_full(settings.creates, now)
            && self.reports.is_full(settings.reports, now)
            && self.report_bytes.is_full(settings.report_bytes, now)
    }
}

impl From<OverRate> for Rejection {
    fn from(OverRate { what, option, rate, wait, is_shared, .. }: OverRate) -> Self {
        let who = match is_shared {
            false => "this one has sent more",
            true => {
                "so many principals send at once that those that came last share the rate of one, and have sent more"
            }
        };
        let message = format!(
            "a node takes {rate} {what} a second from one principal, and {who}: repeat it later, send less, or have \
             the nodes take more (--{option})"
        );
        let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let refused = Self::new(Code::Unavailable, message).of_kind(RejectionKind::Overloaded);
        refused.with("rate", rate).with("retry_after_ms", ms)
    }
}

/// How many creations a request of so many bytes counts as: one that makes a Task, or another command.
pub(crate) fn tasks_of(bytes: usize, is_create: bool) -> u64 {
    match (bytes / BYTES_OF_TASK) as u64 {
        // Short commands cost what their bytes cost.
        0 | 1 => is_create.into(),
        tasks => tasks,
    }
}

/// Whether a report is the result of a Step or of a Run.
fn ends_step(word: &Word) -> bool {
    match word {
        Word::TaskUpdateStep(StepReport { status, .. }) => matches!(
            status,
            Some(
                StepStatus::Completed
                    | StepStatus::Failed
                    | StepStatus::Blocked
                    | StepStatus::Cancelled
            )
        ),
        Word::EndRun { .. } => true,
        Word::DeclineRun { .. } | Word::ReleaseStep { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tenure_core::command::RunOutcome;
    use tenure_core::id::{RunId, SessionId, TaskId};

    use super::*;

    const FEW: RateSettings =
        RateSettings { traffic: 1_000, creates: 10, reports: 10, report_bytes: 1_000 };

    fn name(of: &str) -> Token {
        Token::new(of).unwrap()
    }

    fn report(word: Word) -> Report {
        let (session_id, task_id) = (SessionId::new("s").unwrap(), TaskId::new("t").unwrap());
        Report { session_id, task_id, run_id: RunId(uuid::Uuid::nil()), word }
    }

    fn passed(rates: &RateTable, who: &str, tries: usize) -> usize {
        (0..tries).filter(|_| rates.create(Role::Orchestrator, &name(who), 1).is_ok()).count()
    }

    /// LIVE-03: what one principal sends costs that principal. Others have all of their rate meanwhile, and it
    /// has its own again when the time has passed that the refusal names.
    #[tokio::test(start_paused = true)]
    async fn a_principal_has_its_rate_and_no_more() {
        let rates = RateTable::new(FEW);
        assert_eq!(passed(&rates, "eve", 1_000), 20);
        assert_eq!(passed(&rates, "bob", 10), 10);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(passed(&rates, "eve", 1_000), 10);
        assert_eq!(rates.refused(), 1_970);
        let over = rates.create(Role::Orchestrator, &name("eve"), 1).unwrap_err();
        let refused = Rejection::from(over);
        assert!(refused.code.is_retryable() && !refused.is_ambiguous(), "{refused}");
        assert!(refused.message.contains("--rate-creates"), "{refused}");
        let ms = refused.details["retry_after_ms"].as_u64().unwrap();
        tokio::time::advance(Duration::from_millis(ms)).await;
        assert_eq!(passed(&rates, "eve", 1), 1);
    }

    /// A message that is longer than all that may come at once passes when nothing else has, and is paid for later.
    #[tokio::test(start_paused = true)]
    async fn a_long_message_passes_and_is_paid_for() {
        let rates = RateTable::new(FEW);
        let send = |bytes| rates.message(Role::Worker, &name("eve"), bytes, false).is_ok();
        assert!(send(12_000) && !send(1), "it is ten thousand over");
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(!send(1));
        assert!(rates.message(Role::Worker, &name("eve"), 100, true).is_ok(), "a heartbeat passes");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(send(1));
    }

    /// LIVE-03: who creates long Tasks creates fewer of them, and a long command counts as they do.
    #[tokio::test(start_paused = true)]
    async fn a_long_task_counts_as_several() {
        assert_eq!([0, 1_023, 1_024, 1 << 20].map(|bytes| tasks_of(bytes, true)), [1, 1, 2, 2_048]);
        assert_eq!(
            [0, 1_023, 1_024, 1 << 20].map(|bytes| tasks_of(bytes, false)),
            [0, 0, 2, 2_048]
        );
        let rates = RateTable::new(FEW);
        // Those that were made already are paid for later, whatever there was.
        assert_eq!(passed(&rates, "ann", 100), 20);
        rates.created(Role::Orchestrator, &name("ann"), 40);
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!((passed(&rates, "ann", 1), rates.refused()), (0, 81));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(passed(&rates, "ann", 1), 1);
        let long = || rates.create(Role::Orchestrator, &name("eve"), tasks_of(5 << 10, true));
        assert_eq!((0..100).filter(|_| long().is_ok()).count(), 2, "of ten Tasks each");
        assert_eq!(passed(&rates, "bob", 10), 10);
    }

    /// LIVE-03: progress is limited, and the result of a Step never is.
    #[tokio::test(start_paused = true)]
    async fn results_always_pass() {
        let rates = RateTable::new(FEW);
        let progress = report(Word::DeclineRun { reason: None });
        let sent = |report: &Report| rates.report(&name("eve"), report, 10).is_ok();
        assert_eq!((0..1_000).filter(|_| sent(&progress)).count(), 20);
        let over = (0..200).map(|_| rates.report(&name("eve"), &progress, 10).unwrap_err());
        assert!(over.into_iter().any(|over| !over.is_told), "refusals have a rate too");
        let result = report(Word::EndRun { outcome: RunOutcome::Finished, result: None });
        assert_eq!((0..1_000).filter(|_| sent(&result)).count(), 1_000);
    }

    /// The node forgets principals that have sent nothing lately.
    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded() {
        let rates = RateTable::new(FEW);
        for n in 0..PRINCIPALS_MAX {
            rates.create(Role::Orchestrator, &name(&format!("p{n}")), 1).unwrap();
        }
        tokio::time::advance(Duration::from_secs(BURST_S)).await;
        rates.create(Role::Orchestrator, &name("another"), 1).unwrap();
        assert_eq!(rates.all.lock().known.len(), 1);
    }

    /// LIVE-03: while more principals send than a node remembers, those that are remembered have their rates, those
    /// for whom there is no place share one, and a principal more costs no look at all the others.
    #[tokio::test(start_paused = true)]
    async fn principals_without_a_place_share_a_rate() {
        let rates = RateTable::new(FEW);
        for n in 0..PRINCIPALS_MAX {
            assert_eq!(passed(&rates, &format!("p{n}"), 1), 1);
        }
        let others: usize = (0..20_000).map(|n| passed(&rates, &format!("q{n}"), 1)).sum();
        assert_eq!(others, 20, "as many as pass of one");
        let over = rates.create(Role::Orchestrator, &name("q1"), 1).unwrap_err();
        assert!(Rejection::from(over).message.contains("share the rate"), "{over:?}");
        assert_eq!(passed(&rates, "p7", 100), 19, "who is remembered has what is left of its own");
        let all = |rates: &RateTable| {
            let all = rates.all.lock();
            (all.known.len(), all.looked_at)
        };
        assert_eq!(all(&rates), (PRINCIPALS_MAX, PRINCIPALS_MAX), "one look at each");
        tokio::time::advance(Duration::from_secs(BURST_S)).await;
        assert_eq!((passed(&rates, "q1", 100), passed(&rates, "q2", 100)), (20, 20));
        assert_eq!(all(&rates), (2, 2 * PRINCIPALS_MAX));
    }
}
