//! Lanes of reads: who reads next, and how much each principal may read.
//!
//! A read begins when it has a turn. There are so many turns at a time, of which one principal has a few at most;
//! who waits stands in the lane of its principal, and the lanes take turns. So however many reads one principal
//! sends, those of another wait for a few of them. What a read takes, in time of a processor and in bytes that are
//! sent, is charged to its principal, which gets so much of both each second; a principal that has used up more is
//! refused for as long as it takes to get that again. Leases have no lanes. Commands, reports and claims wait here
//! only if a long log, or one on another node, is read for them ([`CallerTurns`]).

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use smol_str::SmolStr;
use tenure_core::status::Role;
use tenure_core::{Code, Rejection, RejectionKind};
use tenure_ports::map::IdMap;
use tenure_scheduler::{ReadHold, ReadTurns};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// For how many seconds a principal that reads nothing saves up what it does not use.
const SAVED_SECONDS: u64 = 4;

/// How much is read at a time, and by one principal. The node refuses what is above with `unavailable`, and says
/// when to come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimits {
    /// How many reads are under way at a time.
    pub at_once: usize,
    /// How many of them one principal has.
    pub of_one_at_once: usize,
    /// How many reads of whole logs or of all Tasks are under way at a time. Of these one principal has one.
    pub whole_at_once: usize,
    /// How many reads of one principal wait for their turn.
    pub of_one_waiting: usize,
    /// For how many milliseconds of each second one principal has a processor.
    pub busy_ms_per_second: u64,
    /// How many bytes are sent to one principal each second.
    pub bytes_per_second: u64,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self {
            at_once: 16,
            of_one_at_once: 4,
            whole_at_once: 4,
            of_one_waiting: 1_024,
            busy_ms_per_second: 750,
            bytes_per_second: 64 << 20,
        }
    }
}

/// The key of a lane: a principal in a role, whichever connections and sessions it uses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LaneKey(Role, SmolStr);

impl LaneKey {
    pub(crate) fn of(role: Role, principal: &str) -> Self {
        Self(role, principal.into())
    }
}

/// What principals may still read, in microseconds and bytes.
#[derive(Debug)]
pub(crate) struct ReadBudgets {
    limits: ReadLimits,
    left: Mutex<IdMap<LaneKey, BudgetLeft>>,
}

#[derive(Debug, Clone, Copy)]
struct BudgetLeft {
    busy: i64,
    bytes: i64,
    at: Instant,
}

impl ReadBudgets {
    pub(crate) fn new(limits: ReadLimits) -> Self {
        Self { limits, left: Mutex::default() }
    }

    /// The microseconds and bytes that a principal gets in so many seconds.
    fn given(&self, seconds: f64) -> (i64, i64) {
        let rates = [self.limits.busy_ms_per_second * 1_000, self.limits.bytes_per_second];
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // Rates are small.
        let [busy, bytes] = rates.map(|rate| (rate as f64 * seconds) as i64);
        (busy, bytes)
    }

    #[allow(clippy::cast_precision_loss)] // As above.
    fn most(&self) -> (i64, i64) {
        self.given(SAVED_SECONDS as f64)
    }

    fn refilled(&self, left: BudgetLeft, now: Instant) -> BudgetLeft {
        let seconds = now.saturating_duration_since(left.at).as_secs_f64();
        let ((busy, bytes), (busy_max, bytes_max)) = (self.given(seconds), self.most());
        let busy = left.busy.saturating_add(busy).min(busy_max);
        BudgetLeft { busy, bytes: left.bytes.saturating_add(bytes).min(bytes_max), at: now }
    }

    /// Refuses a principal that has read more than it may, until it may read again.
    fn check(&self, who: &LaneKey, now: Instant) -> Result<(), Rejection> {
        let Some(left) = self.left.lock().get(who).copied() else { return Ok(()) };
        let left = self.refilled(left, now);
        let (busy, bytes) = self.given(1.0);
        let (what, lacks, rate) = match (left.busy < 0, left.bytes < 0) {
            (false, false) => return Ok(()),
            (true, _) => ("busy_ms_per_second", left.busy, busy),
            (false, true) => ("bytes_per_second", left.bytes, bytes),
        };
        let wait_ms = lacks.unsigned_abs().saturating_mul(1_000) / rate.unsigned_abs().max(1);
        let message = "this principal reads more than its share; read less, or come again later";
        Err(Rejection::new(Code::Unavailable, message)
            .of_kind(RejectionKind::Overloaded)
            .with("limit", what)
            .with("retry_after_ms", wait_ms.clamp(10, 5_000)))
    }

    /// Charges a principal for what a read took.
    fn charge(&self, who: &LaneKey, busy: Duration, bytes: usize, now: Instant) {
        let (busy_max, bytes_max) = self.most();
        let full = BudgetLeft { busy: busy_max, bytes: bytes_max, at: now };
        let mut all = self.left.lock();
        let left = all.get(who).map_or(full, |left| self.refilled(*left, now));
        let busy = i64::try_from(busy.as_micros()).unwrap_or(i64::MAX);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let (busy, bytes) = (left.busy.saturating_sub(busy), left.bytes.saturating_sub(bytes));
        all.insert(who.clone(), BudgetLeft { busy, bytes, at: now });
    }

    /// Carries out a read, and charges a principal for the time for which it has a processor.
    pub(crate) async fn metered<T>(&self, who: &LaneKey, read: impl Future<Output = T>) -> T {
        let mut read = pin!(read);
        poll_fn(|cx| {
            let begun = Instant::now();
            let polled = read.as_mut().poll(cx);
            let now = Instant::now();
            self.charge(who, now - begun, 0, now);
            polled
        })
        .await
    }

    /// Forgets principals that have all that they may save up.
    pub(crate) fn sweep(&self) {
        let (now, most) = (Instant::now(), self.most());
        self.left.lock().retain(|_, left| {
            let left = self.refilled(*left, now);
            (left.busy, left.bytes) != most
        });
    }
}

/// The lanes of one kind of reads.
#[derive(Debug)]
pub(crate) struct ReadLanes {
    at_once: usize,
    of_one_at_once: usize,
    of_one_waiting: usize,
    budgets: Arc<ReadBudgets>,
    table: Mutex<LaneTable>,
}

#[derive(Debug, Default)]
struct LaneTable {
    lanes: IdMap<LaneKey, ReadLane>,
    /// The lanes in which a read waits that may begin, in the order of their turns.
    turns: VecDeque<LaneKey>,
    under_way: usize,
}

#[derive(Debug, Default)]
struct ReadLane {
    under_way: usize,
    waiting: VecDeque<oneshot::Sender<ReadTurn>>,
    has_turn: bool,
}

/// The right of a principal to read, until it is dropped.
#[derive(Debug)]
pub(crate) struct ReadTurn {
    lanes: Arc<ReadLanes>,
    who: LaneKey,
}

impl ReadLanes {
    /// The lanes of reads that are not of whole logs.
    pub(crate) fn of_parts(budgets: &Arc<ReadBudgets>) -> Arc<Self> {
        let ReadLimits { at_once, of_one_at_once, .. } = budgets.limits;
        Self::new(budgets, at_once, of_one_at_once)
    }

    /// The lanes of reads of whole logs, or of all Tasks.
    pub(crate) fn of_whole(budgets: &Arc<ReadBudgets>) -> Arc<Self> {
        Self::new(budgets, budgets.limits.whole_at_once, 1)
    }

    fn new(budgets: &Arc<ReadBudgets>, at_once: usize, of_one_at_once: usize) -> Arc<Self> {
        let (of_one_waiting, table) = (budgets.limits.of_one_waiting, Mutex::default());
        let budgets = Arc::clone(budgets);
        Arc::new(Self { at_once, of_one_at_once, of_one_waiting, budgets, table })
    }

    /// Waits for the turn of a principal, for as long as `most`.
    ///
    /// # Errors
    /// `unavailable`: it has read more than it may, or too many of its reads wait, or for too long.
    pub(crate) async fn turn(
        self: &Arc<Self>,
        who: LaneKey,
        most: Duration,
    ) -> Result<ReadTurn, Rejection> {
        self.budgets.check(&who, Instant::now())?;
        let came = match self.ask(who)? {
            Ok(turn) => return Ok(turn),
            Err(waits) => timeout(most, waits).await,
        };
        came.ok().and_then(Result::ok).ok_or_else(tenure_scheduler::overloaded)
    }

    /// A turn, or where it will come.
    fn ask(
        self: &Arc<Self>,
        who: LaneKey,
    ) -> Result<Result<ReadTurn, oneshot::Receiver<ReadTurn>>, Rejection> {
        let table = &mut *self.table.lock();
        let lane = table.lanes.entry(who.clone()).or_default();
        let may_begin = lane.under_way < self.of_one_at_once;
        if may_begin && table.under_way < self.at_once {
            (lane.under_way, table.under_way) = (lane.under_way + 1, table.under_way + 1);
            return Ok(Ok(ReadTurn { lanes: Arc::clone(self), who }));
        }
        if lane.waiting.len() >= self.of_one_waiting {
            lane.waiting.retain(|waiting| !waiting.is_closed());
        }
        if lane.waiting.len() >= self.of_one_waiting {
            return Err(tenure_scheduler::overloaded());
        }
        let (turn, waits) = oneshot::channel();
        lane.waiting.push_back(turn);
        if may_begin && !std::mem::replace(&mut lane.has_turn, true) {
            table.turns.push_back(who);
        }
        Ok(Err(waits))
    }

    /// Ends a turn, and gives it to the next.
    fn release(self: &Arc<Self>, who: &LaneKey) {
        let mut unheard = Vec::new(); // These are dropped without the lock, as dropping them takes it.
        let mut guard = self.table.lock();
        let table = &mut *guard;
        table.under_way -= 1;
        if let Some(lane) = table.lanes.get_mut(who) {
            lane.under_way -= 1;
        }
        self.queue(table, who);
        while table.under_way < self.at_once {
            let Some(next) = table.turns.pop_front() else { break };
            let Some(lane) = table.lanes.get_mut(&next) else { continue };
            lane.has_turn = false;
            while let Some(waiting) = lane.waiting.pop_front() {
                if waiting.is_closed() {
                    continue; // Whoever waited has gone.
                }
                lane.under_way += 1;
                table.under_way += 1;
                let turn = ReadTurn { lanes: Arc::clone(self), who: next.clone() };
                unheard.extend(waiting.send(turn).err());
                break;
            }
            self.queue(table, &next);
        }
        drop(guard);
    }

    /// Has a lane wait for its next turn if a read waits there that may begin. Removes an empty lane.
    fn queue(&self, table: &mut LaneTable, who: &LaneKey) {
        let Some(lane) = table.lanes.get_mut(who) else { return };
        if lane.under_way == 0 && lane.waiting.is_empty() {
            table.lanes.remove(who);
        } else if lane.under_way < self.of_one_at_once
            && !lane.waiting.is_empty()
            && !std::mem::replace(&mut lane.has_turn, true)
        {
            table.turns.push_back(who.clone());
        }
    }
}

impl ReadTurn {
    /// Carries out a read, and charges its principal for the time for which it has a processor.
    pub(crate) async fn metered<T>(&self, read: impl Future<Output = T>) -> T {
        self.lanes.budgets.metered(&self.who, read).await
    }

    /// Charges the principal for what was sent.
    pub(crate) fn note_sent(&self, bytes: usize) {
        self.lanes.budgets.charge(&self.who, Duration::ZERO, bytes, Instant::now());
    }
}

impl ReadHold for ReadTurn {
    fn charge(&self, busy: Duration) {
        self.lanes.budgets.charge(&self.who, busy, 0, Instant::now());
    }
}

impl Drop for ReadTurn {
    fn drop(&mut self) {
        self.lanes.release(&self.who);
    }
}

/// How long a request waits until the log of its Task may be read.
const TURN_MAX: Duration = Duration::from_secs(2);

/// The turns of callers whose commands, reports and claims have logs read (LIVE-04).
#[derive(Debug)]
pub(crate) struct CallerTurns(pub(crate) Arc<ReadLanes>);

impl ReadTurns for CallerTurns {
    fn turn<'a>(
        &'a self,
        role: Role,
        principal: &'a str,
    ) -> BoxFuture<'a, Result<Arc<dyn ReadHold>, Rejection>> {
        async move {
            let turn = self.0.turn(LaneKey::of(role, principal), TURN_MAX).await?;
            Ok(Arc::new(turn) as Arc<dyn ReadHold>)
        }
        .boxed()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test that cannot go on has failed.
mod tests {
    use super::*;

    fn lanes(limits: ReadLimits) -> Arc<ReadLanes> {
        ReadLanes::of_parts(&Arc::new(ReadBudgets::new(limits)))
    }

    fn who(name: &str) -> LaneKey {
        LaneKey::of(Role::Observer, name)
    }

    fn few() -> ReadLimits {
        ReadLimits { at_once: 3, of_one_at_once: 2, of_one_waiting: 100, ..ReadLimits::default() }
    }

    /// Mechanisms 16: a principal with a hundred reads has two of them at a time, and another that comes later
    /// waits for none of those that wait.
    #[tokio::test]
    async fn lanes_take_turns() {
        let lanes = lanes(few());
        let mut under_way: VecDeque<ReadTurn> = VecDeque::new();
        let mut waiting: Vec<(&str, oneshot::Receiver<ReadTurn>)> = Vec::new();
        for name in ["a"; 102].into_iter().chain(["b", "b", "c"]) {
            match lanes.ask(who(name)).unwrap() {
                Ok(turn) => under_way.push_back(turn),
                Err(waits) => waiting.push((name, waits)),
            }
        }
        let begun: Vec<_> = under_way.iter().map(|turn| turn.who.1.as_str()).collect();
        assert_eq!(begun, ["a", "a", "b"], "the third place was left for another");
        assert!(lanes.ask(who("a")).is_err(), "so many wait at most");
        let mut order = String::new();
        while let Some(over) = under_way.pop_front() {
            drop(over);
            waiting.retain_mut(|(name, waits)| match waits.try_recv() {
                Ok(turn) => {
                    order.push_str(name);
                    under_way.push_back(turn);
                    false
                }
                Err(_) => true,
            });
        }
        assert_eq!((order.len(), waiting.len()), (102, 0));
        assert!(order[..5].contains('b') && order[..5].contains('c'), "{order}");
        let table = lanes.table.lock();
        assert!(table.lanes.is_empty() && table.turns.is_empty() && table.under_way == 0);
    }

    /// Reads whose callers have gone take no turn, and leave nothing behind.
    #[tokio::test]
    async fn who_has_gone_takes_no_turn() {
        let lanes = lanes(few());
        let turns: Vec<_> = (0..2).map(|_| lanes.ask(who("a")).unwrap().unwrap()).collect();
        let gone = lanes.ask(who("a")).unwrap().unwrap_err();
        let mut waits = lanes.ask(who("a")).unwrap().unwrap_err();
        drop(gone);
        drop(turns);
        drop(waits.try_recv().unwrap());
        let unheard = lanes.ask(who("a")).unwrap().unwrap();
        drop(unheard);
        assert!(lanes.table.lock().lanes.is_empty());
        let held: Vec<_> = (0..2).map(|_| lanes.ask(who("a")).unwrap().unwrap()).collect();
        let late = lanes.turn(who("a"), Duration::from_millis(1)).await.unwrap_err();
        assert_eq!(late.code, Code::Unavailable, "it waits for so long at most");
        drop(held);
        assert!(lanes.table.lock().lanes.is_empty());
    }

    /// A principal that has used up more than it may is refused until it may read again; others are not.
    #[tokio::test]
    async fn each_principal_has_its_share() {
        let limits = ReadLimits { busy_ms_per_second: 100, bytes_per_second: 1_000, ..few() };
        let budgets = ReadBudgets::new(limits);
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        budgets.charge(&who("a"), Duration::from_millis(400), 4_000, now);
        budgets.check(&who("a"), now).unwrap();
        budgets.charge(&who("a"), Duration::from_millis(50), 0, now);
        budgets.charge(&who("b"), Duration::ZERO, 4_500, now);
        for (name, limit) in [("a", "busy_ms_per_second"), ("b", "bytes_per_second")] {
            let refused = budgets.check(&who(name), now).unwrap_err();
            assert_eq!(refused.code, Code::Unavailable);
            assert_eq!(refused.kind(), Some(RejectionKind::Overloaded));
            assert_eq!(refused.details["limit"], limit);
            assert_eq!(refused.details["retry_after_ms"], 500);
            budgets.check(&who(name), now + second / 2).unwrap();
        }
        budgets.check(&who("c"), now).unwrap();
        budgets.charge(&who("a"), second, 0, now + 100 * second);
        assert!(budgets.check(&who("a"), now + 100 * second).is_err(), "it saves up only so much");
    }

    /// docs/operations.md has the limits that are in force where nobody sets others.
    #[test]
    fn operators_can_look_the_limits_up() {
        let doc = include_str!("../../../docs/operations.md");
        let limits = ReadLimits::default();
        let rows = [
            format!("| reads under way | {} |\n", limits.at_once),
            format!("| of one principal | {} |\n", limits.of_one_at_once),
            format!("lists with ended Tasks) | {} |", limits.whole_at_once),
            format!(
                "| {} ms a second, saved up for {SAVED_SECONDS} s |",
                limits.busy_ms_per_second
            ),
            format!("| {} MiB a second, saved up", limits.bytes_per_second >> 20),
            format!("| {} bytes | it is cut", tenure_ports::journal::INDEX_TITLE_BYTES_MAX),
        ];
        for row in rows {
            let row = row.trim_end();
            assert!(doc.contains(row), "no row `{row}`");
        }
        assert_eq!(limits.of_one_waiting, 1_024, "the table says 1,024");
    }

    /// What nobody uses is forgotten, and the time of a processor is charged while it is used.
    #[tokio::test]
    async fn time_is_charged_as_it_is_used() {
        let lanes = lanes(few());
        let turn = lanes.ask(who("a")).unwrap().unwrap();
        let busy = async { std::thread::sleep(Duration::from_millis(20)) };
        turn.metered(busy).await;
        let most = lanes.budgets.most().0;
        let left = lanes.budgets.left.lock()[&who("a")].busy;
        assert!(left <= most - 20_000, "{left} of {most}");
        let full = BudgetLeft { busy: most, bytes: lanes.budgets.most().1, at: Instant::now() };
        lanes.budgets.left.lock().insert(who("b"), full);
        lanes.budgets.sweep();
        let left = lanes.budgets.left.lock();
        assert!(left.contains_key(&who("a")) && !left.contains_key(&who("b")));
    }
}
