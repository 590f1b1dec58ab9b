//! What was asked and answered while a program ran, and whether all of it fits the log in the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::Value as Json;
use tenure_core::id::StepId;
use tenure_core::{Code, Rejection};
use tenure_ports::bus::Holding;

use super::judge::{Ask, Verdict};
use super::model::{Commit, Model, text};

/// A question with its answer.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) ask: Ask,
    /// Of orchestrators, who name their commands.
    pub(super) command: Option<String>,
    pub(super) expected: Option<u64>,
    /// The state that judged it was not older, and not newer.
    pub(super) from: u64,
    pub(super) to: u64,
    /// It was said twice, as the first answer was lost: who is refused the second time may have been late
    /// the first time, and not too late.
    pub(super) again: bool,
    pub(super) answer: Result<Done, Rejection>,
}

/// What an answer says was written.
#[derive(Debug, Clone)]
pub(super) struct Done {
    pub(super) version: u64,
    pub(super) events: Option<Vec<String>>,
}

/// Something that was read under a Run, or by an orchestrator.
#[derive(Debug, Clone)]
pub(super) struct Look {
    pub(super) run: Option<String>,
    pub(super) version: u64,
    pub(super) said: Json,
    /// Ready Steps that were shown, if it was asked for those.
    pub(super) ready: Option<Vec<String>>,
}

/// All that is noted of one Task.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) calls: Mutex<Vec<Call>>,
    pub(super) looks: Mutex<Vec<Look>>,
    /// What workers have got to hold so far, and of which Step.
    pub(super) held: Mutex<Vec<(Holding, StepId)>>,
    seen: AtomicU64,
}

impl Notes {
    pub(super) fn seen(&self) -> u64 {
        self.seen.load(Ordering::SeqCst)
    }

    pub(super) fn see(&self, version: u64) {
        self.seen.fetch_max(version, Ordering::SeqCst);
    }

    pub(super) fn look(&self, run: Option<String>, version: u64, said: &impl serde::Serialize) {
        self.see(version);
        let said = serde_json::to_value(said).unwrap();
        self.looks.lock().push(Look { run, version, said, ready: None });
    }
}

/// How much of a program was judged.
#[derive(Debug, Default, Clone)]
pub(super) struct Judged {
    /// What was asked, how often it was done and how often refused.
    pub(super) asks: BTreeMap<String, (usize, usize)>,
    pub(super) looks: usize,
}

impl Judged {
    pub(super) fn all(of: &[Self]) -> Self {
        let mut all = Self::default();
        for (ask, (done, refused)) in of.iter().flat_map(|one| &one.asks) {
            let sum = all.asks.entry(ask.clone()).or_default();
            *sum = (sum.0 + done, sum.1 + refused);
        }
        all.looks = of.iter().map(|one| one.looks).sum();
        all
    }
}

/// Holds everything that was noted against the log.
pub(super) fn check(notes: &Arc<Notes>, commits: &[Commit]) -> Judged {
    let models = Model::all(commits);
    let mut judged = Judged::default();
    for call in notes.calls.lock().iter() {
        let name = format!("{:?}", call.ask);
        let name = name.split([' ', '(']).next().unwrap_or_default().to_owned();
        let asked = judged.asks.entry(name).or_default();
        match &call.answer {
            // A client says so when its patience is over: the log tells what became of it.
            Err(refused) if refused.code.is_retryable() => {
                is_right_if_written(call, commits, &models)
            }
            Err(refused) => {
                is_refused_rightly(call, refused.code, commits, &models);
                asked.1 += 1;
            }
            Ok(done) => {
                is_done_rightly(call, done, commits, &models);
                asked.0 += 1;
            }
        }
    }
    for look in notes.looks.lock().iter() {
        is_seen_rightly(look, &models);
        judged.looks += 1;
    }
    judged
}

fn between<'m>(call: &Call, models: &'m [Model]) -> impl Iterator<Item = &'m Model> + use<'m> {
    let (from, to) = (call.from, call.to);
    // A state counts from its version on, up to the next commit.
    let last_before = models.iter().rposition(|model| model.version <= from).unwrap_or(0);
    models[last_before..].iter().filter(move |model| model.version <= to.max(from))
}

/// Nobody knows whether a command was carried out whose answer was lost: if so, then once, and where it was
/// right.
fn is_right_if_written(call: &Call, commits: &[Commit], models: &[Model]) {
    let Some(command) = &call.command else { return };
    let Some(at) = commits.iter().position(|one| one.command.as_ref() == Some(command)) else {
        return;
    };
    assert!(is_lawful_at(call, at, commits, models), "written: {call:?}, after {:?}", models[at]);
    if let Some(expected) = call.expected {
        assert_eq!(models[at].version, expected, "judged at another version: {call:?}");
    }
    // What goes on until a worker has stopped ends with a commit of the same command.
    let goes_on = matches!(call.ask, Ask::Cancel | Ask::Fail | Ask::CancelRun { .. });
    let again = commits[at + 1..].iter().any(|one| one.command.as_ref() == Some(command));
    assert!(goes_on || !again, "written twice: {call:?}");
}

/// Whether a command was right where its commit stands.
fn is_lawful_at(call: &Call, at: usize, commits: &[Commit], models: &[Model]) -> bool {
    let types = commits[at].types();
    match models[at].judge(&call.ask, None) {
        Verdict::Writes(one_of) => one_of.iter().any(|event| types.contains(event)),
        Verdict::Nothing => call.command.is_none(),
        Verdict::Any => true,
        Verdict::Refused(_) => false,
    }
}

fn is_refused_rightly(call: &Call, code: Code, commits: &[Commit], models: &[Model]) {
    let verdicts: Vec<_> =
        between(call, models).map(|model| model.judge(&call.ask, call.expected)).collect();
    let fits = |verdict: &Verdict| match verdict {
        Verdict::Refused(codes) => codes.contains(&code.as_str()),
        Verdict::Any => true,
        // A Run that was left or given to another is so in memory alone.
        Verdict::Writes(_) => {
            let is_claim = matches!(call.ask, Ask::Claim { .. });
            is_claim && matches!(code, Code::PermissionDenied | Code::RunEnded)
        }
        Verdict::Nothing => false,
    };
    assert!(verdicts.iter().any(fits), "refused: {call:?}, and ought to be {verdicts:?}");
    if call.again {
        return is_right_if_written(call, commits, models);
    }
    let written = commits.iter().find(|one| call.command.is_some() && one.command == call.command);
    assert!(written.is_none(), "refused and written: {call:?} {written:?}");
}

fn is_done_rightly(call: &Call, done: &Done, commits: &[Commit], models: &[Model]) {
    let ends_at = |version: u64| models.iter().position(|model| model.version == version);
    let at = ends_at(done.version).unwrap_or_else(|| panic!("no commit ends there: {call:?}"));
    let wrote = match &call.command {
        Some(command) => commits.iter().position(|one| one.command.as_ref() == Some(command)),
        None => at.checked_sub(1),
    };
    if let Some(events) = &done.events {
        let ids = wrote.map(|at| commits[at].event_ids()).unwrap_or_default();
        assert_eq!(*events, ids, "{call:?}");
    }
    let lawful = match wrote {
        Some(at) => is_lawful_at(call, at, commits, models),
        None => between(call, models).any(|model| {
            matches!(model.judge(&call.ask, call.expected), Verdict::Nothing | Verdict::Any)
        }),
    };
    assert!(lawful, "accepted: {call:?}, after {:?}", wrote.map(|at| &models[at]));
    let Some(at) = wrote.filter(|_| !matches!(call.ask, Ask::CancelRun { .. })) else { return };
    assert_eq!(models[at + 1].version, done.version, "{call:?}");
    if let Some(expected) = call.expected {
        assert_eq!(models[at].version, expected, "judged at another version: {call:?}");
    }
}

/// What was read is what the log says of that version, and of a worker nothing beyond its Run.
fn is_seen_rightly(look: &Look, models: &[Model]) {
    let model = models.iter().find(|model| model.version == look.version);
    let model = model.unwrap_or_else(|| panic!("no commit ends there: {look:?}"));
    if let Some(ready) = &look.ready {
        let run = look.run.as_ref().unwrap();
        assert!(model.shows(run, ready), "{look:?} {model:?}");
    }
    let Some(run) = &look.run else { return is_whole(look, model) };
    let mut may: Vec<&String> = model.order.iter().filter(|id| model.sees(run, id)).collect();
    let own = model.runs[run].attempt.as_ref().map(|id| &model.attempts[id].step);
    may.extend(own);
    let scope = model.runs[run].scope.iter().flatten();
    let deps = may.iter().filter_map(|id| model.steps.get(*id)).flat_map(|step| &step.deps);
    let named: Vec<&String> = deps.chain(scope).chain(may.iter().copied()).collect();
    for (kind, n) in words_in(&look.said.to_string()) {
        let id = format!("step{n}z");
        let known = if kind == "text" { may.contains(&&id) } else { named.contains(&&id) };
        assert!(known, "{kind}{n}z is not for this run: {look:?} {model:?}");
    }
}

/// `task_get` of an orchestrator.
fn is_whole(look: &Look, model: &Model) {
    assert_eq!(look.said["native_status"], model.status.as_str(), "{look:?}");
    let steps = look.said["steps"].as_array().unwrap();
    let ids: Vec<String> = steps.iter().map(|step| text(&step["step_id"])).collect();
    assert_eq!(ids, model.order, "{look:?}");
    for step in steps {
        let known = &model.steps[&text(&step["step_id"])];
        assert_eq!(step["status"], known.status.as_str(), "{look:?} {model:?}");
        assert_eq!(step["depends_on_step_ids"], serde_json::json!(known.deps), "{look:?}");
    }
    let over = look.said["runs"].as_array().unwrap().iter().filter(|run| run["state"] == "ended");
    let lasts = model.runs.values().filter(|run| run.over).count();
    assert!(model.is_terminal() || over.count() == lasts, "{look:?} {model:?}");
}

/// Words of Steps in a text: `stepNNz` is an id, `textNNz` what is written of it, `madeNNz` what it hands
/// on.
pub(super) fn words_in(said: &str) -> Vec<(&str, &str)> {
    let at = |n: usize| said.get(n..n + 7).filter(|word| word.ends_with('z'));
    let words = (0..said.len()).filter_map(at).map(|word| (&word[..4], &word[4..6]));
    let is_word = |(kind, n): &(&str, &str)| {
        matches!(*kind, "step" | "text" | "made") && n.bytes().all(|byte| byte.is_ascii_digit())
    };
    words.filter(is_word).collect()
}
