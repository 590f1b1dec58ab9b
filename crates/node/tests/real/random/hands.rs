//! Workers that do what comes to their mind: claim what they see or what they do not, look around, report
//! well or badly, twice or never, and meddle with what others hold.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use parking_lot::Mutex;
use serde_json::json;
use tenure_core::command::{GiveBack, RunOutcome, StepReport};
use tenure_core::id::{AttemptId, CommandId, RunId, SessionId, StepId, TaskId};
use tenure_core::status::StepStatus;
use tenure_core::view::{
    BoardInput, ClaimResult, ListInput, Look as Asked, Looked, QueryInput, RunOffer,
};
use tenure_core::{Code, Rejection};
use tenure_ports::ClientPort;
use tenure_ports::bus::{Credit, Delivery, Holding, Recorded, WorkerPort};
use tenure_ports::journal::TaskKey;
use tenure_sdk::client::Client;
use uuid::Uuid;

use super::dice::Dice;
use super::judge::Ask;
use super::notes::{Call, Done, Look, Notes, words_in};

/// What is noted of every Task, by whoever finds its name.
pub(super) type Books = Arc<Mutex<HashMap<TaskId, Arc<Notes>>>>;

/// A Step that there never is.
const NOWHERE: &str = "step99z";

/// How often a worker says what room it has.
const OFTEN: Duration = Duration::from_millis(400);

pub(super) struct Hand<W, C> {
    pub(super) port: W,
    /// To ask how far a Task has come.
    pub(super) client: Client<C>,
    pub(super) books: Books,
    pub(super) dice: Dice,
    pub(super) seen: u64,
    pub(super) said: u64,
    /// Attempts that it has had.
    pub(super) mine: Vec<AttemptId>,
}

impl<W: WorkerPort, C: ClientPort> Hand<W, C> {
    pub(super) async fn work(mut self, mut inbox: UnboundedReceiver<Delivery>) {
        self.has_room();
        loop {
            match tokio::time::timeout(OFTEN, inbox.next()).await {
                Ok(Some(Delivery::Run(offer))) => {
                    self.seen += 1;
                    self.offered(&offer).await;
                }
                Ok(Some(Delivery::Grant(claim))) => {
                    self.seen += 1;
                    self.holds(&claim).await;
                }
                Ok(None) => return,
                Ok(Some(_)) | Err(_) => {}
            }
            self.has_room();
        }
    }

    fn has_room(&mut self) {
        self.said += 1;
        self.port.credit(Credit { free: 1, seen: self.seen, lost: 0, number: self.said });
    }

    fn notes(&self, task: &TaskId) -> Arc<Notes> {
        Arc::clone(self.books.lock().get(task).expect("a task that is noted"))
    }

    /// The version of a Task after something was refused.
    async fn version(&self, notes: &Notes, task: &TaskId) -> u64 {
        let page = self.client.steps(task, QueryInput { limit: Some(1), ..QueryInput::default() });
        let version = page.await.map_or(u64::MAX, |page| page.version);
        notes.see(if version == u64::MAX { 0 } else { version });
        version
    }

    async fn note(
        &self,
        task: &TaskId,
        (ask, command, from): (Ask, Option<String>, u64),
        answer: Result<u64, Rejection>,
    ) {
        let notes = self.notes(task);
        let to = match &answer {
            Ok(version) => *version,
            Err(_) => self.version(&notes, task).await,
        };
        if answer.is_ok() {
            notes.see(to);
        }
        let answer = answer.map(|version| Done { version, events: None });
        let (expected, again) = (None, false);
        notes.calls.lock().push(Call { ask, command, expected, from, to, again, answer });
    }

    async fn offered(&mut self, offer: &RunOffer) {
        let run = offer.run_id.to_string();
        let scope: Vec<String> = offer
            .allowed_step_ids
            .iter()
            .flat_map(|ids| ids.iter())
            .map(ToString::to_string)
            .collect();
        let shown = serde_json::to_string(offer).unwrap();
        for (kind, n) in words_in(&shown) {
            let known = kind == "step" && scope.contains(&format!("step{n}z"));
            assert!(known, "an offer says too much: {shown}");
        }
        match self.dice.below(10) {
            0 => return,
            1 => return self.leaves(offer, false).await,
            2 => return self.leaves(offer, true).await,
            _ => {}
        }
        let page = match self.port.query(offer, 0).await {
            Ok(page) => page,
            Err(refused) => return says_nothing_of_others(&refused, &[]),
        };
        let notes = self.notes(&offer.task_id);
        notes.see(page.version);
        let shown: Vec<String> = page.steps.iter().map(|s| s.spec.step_id.to_string()).collect();
        let (version, said) = (page.version, serde_json::to_value(&page).unwrap());
        let look = Look { run: Some(run), version, said, ready: Some(shown.clone()) };
        notes.looks.lock().push(look);
        if self.dice.one_in(3) {
            let other = [NOWHERE.to_owned(), format!("step{:02}z", self.dice.below(8))];
            let other = self.dice.of(&other);
            if let Some(claim) = self.claims(offer, &other).await {
                return self.holds_under(offer, &claim).await;
            }
        }
        if self.dice.one_in(4) {
            self.looks((&offer.session_id, &offer.task_id), offer.run_id).await;
        }
        let Some(step) = self.dice.any(&shown) else { return self.leaves(offer, false).await };
        if let Some(claim) = self.claims(offer, &step).await {
            self.holds_under(offer, &claim).await;
        }
    }

    async fn leaves(&mut self, offer: &RunOffer, declines: bool) {
        let from = self.notes(&offer.task_id).seen();
        let run = offer.run_id.to_string();
        let why = declines.then(|| serde_json::from_value(json!({"message": "no time"})).unwrap());
        let answer = self.port.leave(offer, why, None).await;
        let ask = if declines { Ask::Decline { run } } else { Ask::EndRun };
        if answer.as_ref().is_err_and(|no| no.code == Code::PermissionDenied) {
            return; // Another has it by now.
        }
        let answer = answer.map(|recorded| recorded.version);
        self.note(&offer.task_id, (ask, None, from), answer).await;
    }

    async fn claims(&mut self, offer: &RunOffer, step: &str) -> Option<ClaimResult> {
        let from = self.notes(&offer.task_id).seen();
        let command: CommandId = Uuid::now_v7().to_string().parse().unwrap();
        let id = step.parse().unwrap();
        let answer = self.port.claim(offer, &id, &command).await;
        if let Err(refused) = &answer {
            let scope = offer.allowed_step_ids.iter().flat_map(|ids| ids.iter());
            let named: Vec<&str> = scope.map(|id| id.as_str()).chain([step]).collect();
            says_nothing_of_others(refused, &named);
        }
        let ask = Ask::Claim { run: offer.run_id.to_string(), step: step.to_owned() };
        let version = answer.as_ref().map(|claim| claim.fencing_token).map_err(Clone::clone);
        let named = Some(command.to_string());
        self.note(&offer.task_id, (ask, named, from), version).await;
        let claim = answer.ok()?;
        if self.dice.one_in(4)
            && let Ok(again) = self.port.claim(offer, &id, &command).await
        {
            assert_eq!(again, claim, "CLAIM-15");
        }
        Some(claim)
    }

    /// A Run claims once, whatever became of that.
    async fn holds_under(&mut self, offer: &RunOffer, claim: &ClaimResult) {
        if self.dice.one_in(6) {
            let other = format!("step{:02}z", self.dice.below(8));
            assert!(self.claims(offer, &other).await.is_none(), "a second claim");
        }
        self.holds(claim).await;
    }

    async fn holds(&mut self, claim: &ClaimResult) {
        let run = Some(claim.run_id.to_string());
        self.notes(&claim.task_id).look(run, claim.fencing_token, claim);
        let held = Holding::of(claim);
        self.mine.push(held.attempt_id);
        self.notes(&claim.task_id).held.lock().push((held.clone(), claim.step.step_id.clone()));
        let pause = Duration::from_millis(self.dice.below(40) as u64);
        tokio::time::sleep(pause).await;
        if self.dice.one_in(2) {
            let _ = self.reports(claim, &held, (Some(StepStatus::Running), false)).await;
        }
        if self.dice.one_in(3) {
            let _ = self.reports(claim, &held, (None, false)).await;
        }
        if self.dice.one_in(4) {
            self.looks((&claim.session_id, &claim.task_id), claim.run_id).await;
        }
        if self.dice.one_in(4) {
            self.meddles(&claim.task_id).await;
        }
        let last = match self.dice.below(16) {
            0 => return, // Not a word more.
            1 => return self.ends(claim, &held).await,
            2 => return self.releases(claim, &held).await,
            3..=4 => StepStatus::Failed,
            5..=6 => StepStatus::Blocked,
            7 => StepStatus::Cancelled,
            _ => StepStatus::Completed,
        };
        let first = self.reports(claim, &held, (Some(last), false)).await;
        if self.dice.one_in(2)
            && let Ok(first) = first
            && let Ok(again) = self.reports(claim, &held, (Some(last), true)).await
        {
            assert_eq!(again.version, first.version, "said twice, it is recorded once");
        }
        if self.dice.one_in(3) {
            let _ = self.reports(claim, &held, (Some(StepStatus::Running), false)).await;
        }
    }

    /// GET-04, LIST-08, PROMPT-06: what is said under a Run is noted, to be held against the log.
    async fn looks(&mut self, (session, task): (&SessionId, &TaskId), run: RunId) {
        let key = TaskKey { session_id: session.clone(), task_id: task.clone() };
        let look = match self.dice.below(3) {
            0 => Asked::TaskGet,
            1 => Asked::TaskList(ListInput { include_terminal: true, ..ListInput::default() }),
            _ => Asked::TaskBoardSummary(BoardInput::default()),
        };
        let looked = match self.port.look(&key, run, look).await {
            Ok(looked) => looked,
            Err(refused) => return says_nothing_of_others(&refused, &[]),
        };
        let version = match &looked {
            Looked::Task(task) => Some(task.version),
            Looked::List(page) => page.tasks.first().map(|task| task.version),
            Looked::Steps(page) => Some(page.version),
            Looked::Board(lines) => Some(lines.version),
        };
        if let Some(version) = version {
            self.notes(task).look(Some(run.to_string()), version, &looked);
        }
    }

    /// PERM-13, REPORT-03: nobody has a say in what another holds or held, ended Tasks included. Whatever
    /// happens meanwhile, the answer is the same: what may be said instead is only that nobody knows.
    async fn meddles(&mut self, task: &TaskId) {
        let others: Vec<(Holding, StepId)> = {
            let notes = self.notes(task);
            let held = notes.held.lock();
            let is_others = |(held, _): &&(Holding, StepId)| !self.mine.contains(&held.attempt_id);
            held.iter().filter(is_others).cloned().collect()
        };
        let Some((held, step)) = self.dice.any(&others) else { return };
        let answer = match self.dice.below(3) {
            0 => {
                let report = StepReport {
                    attempt_id: Some(held.attempt_id),
                    fencing_token: Some(held.fencing_token),
                    status: Some(StepStatus::Completed),
                    ..StepReport::on(step.clone())
                };
                self.port.report(&held, report, None).await
            }
            1 => self.port.release(&held, GiveBack::default(), None).await,
            _ => self.port.end_run(&held, RunOutcome::Finished, None, None).await,
        };
        let refused = answer.expect_err("it is another's");
        let is_named = refused.code == Code::PermissionDenied || refused.code.is_retryable();
        assert!(is_named, "{refused:?}");
        says_nothing_of_others(&refused, &[step.as_str()]);
    }

    async fn reports(
        &mut self,
        claim: &ClaimResult,
        held: &Holding,
        (status, again): (Option<StepStatus>, bool),
    ) -> Result<Recorded, Rejection> {
        let from = self.notes(&claim.task_id).seen();
        let id = &claim.step.step_id;
        let mut report = StepReport {
            attempt_id: Some(held.attempt_id),
            fencing_token: Some(held.fencing_token),
            status,
            ..StepReport::on(id.clone())
        };
        let text = id.as_str().replace("step", "text");
        report.result_summary = Some(text.replace("text", "made"));
        if status == Some(StepStatus::Completed) {
            report.output = serde_json::from_value(json!({"data": format!("\"{id}\"")})).ok();
        }
        if matches!(status, Some(StepStatus::Failed | StepStatus::Blocked)) {
            report.reason = serde_json::from_value(json!({"code": "why", "message": text})).ok();
        }
        let answer = self.port.report(held, report, None).await;
        if let Err(refused) = &answer {
            says_nothing_of_others(refused, &[id.as_str()]);
        }
        let status = status.map(|status| status.to_string());
        let ask = Ask::Report { attempt: held.attempt_id.to_string(), status, again };
        let version = answer.as_ref().map(|done| done.version).map_err(Clone::clone);
        self.note(&claim.task_id, (ask, None, from), version).await;
        answer
    }

    async fn ends(&mut self, claim: &ClaimResult, held: &Holding) {
        let from = self.notes(&claim.task_id).seen();
        let outcome = self.dice.of(RunOutcome::ALL);
        let answer = self.port.end_run(held, outcome, None, None).await;
        let answer = answer.map(|done| done.version);
        self.note(&claim.task_id, (Ask::EndRun, None, from), answer).await;
    }

    async fn releases(&mut self, claim: &ClaimResult, held: &Holding) {
        let from = self.notes(&claim.task_id).seen();
        let answer =
            self.port.release(held, GiveBack::default(), None).await.map(|done| done.version);
        let ask = Ask::Release { attempt: held.attempt_id.to_string() };
        self.note(&claim.task_id, (ask, None, from), answer).await;
    }
}

/// PERM-16: a refusal names no Step but those that the worker knows.
fn says_nothing_of_others(refused: &Rejection, known: &[&str]) {
    let said = format!("{refused} {}", serde_json::to_string(refused).unwrap());
    for (kind, n) in words_in(&said) {
        let is_known = kind == "step" && known.contains(&format!("step{n}z").as_str());
        assert!(is_known, "a refusal says too much: {said}");
    }
}
