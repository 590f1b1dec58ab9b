//! What a worker never learns: every Step of a random Task has words of its own in all that is
//! written of it, and no answer, refusal or offer that a Run gets has a word of a Step that is not for
//! it, whatever it asks. Ids and outputs of the direct dependencies of a Step that it sees are.
//!
//! A Step outside the scope is not forbidden but absent: what is asked of it is answered as what is
//! asked of a Step that there is not, and what happens to it changes no answer.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod words;
mod world;

use serde_json::Value as Json;
use tenure_core::command::{
    AppendProgress, Close, Complete, Dispatch, GiveBack, RetrySteps, RunOutcome, StepReport, Why,
};
use tenure_core::id::{AgentId, RunId, StepId};
use tenure_core::status::StepStatus;
use tenure_core::task::Run;
use tenure_core::view::board::task_lines;
use tenure_core::view::list::{ListInput, list_entry, worker_page};
use tenure_core::view::{Known, QueryInput, RunOffer, claim_result, get_task, query_steps};
use tenure_core::{Caller, Command, Rejection, Task};

use crate::common::*;
use words::{May, holder_of, nobody, steps_of};
use world::World;

/// PERM-16, PERM-13, QUERY-03, QUERY-04, QUERY-13, GET-04, LIST-08, DISP-10, CLAIM-05, CLAIM-14,
/// PROMPT-06: over random Tasks, Runs and commands.
#[test]
fn no_run_reads_or_changes_what_is_out_of_its_scope() {
    let (mut accepted, mut hidden) = (0, 0);
    for seed in seeds(150) {
        let mut world = World::new(seed);
        for _ in 0..40 {
            world.act();
            let runs = world.runs.clone();
            let Some(run) = world.dice.any(&runs) else { continue };
            reads(&world, run);
            hidden += asks_for_what_is_hidden(&mut world, run);
            if world.task.is_terminal() && world.dice.one_in(4) {
                break;
            }
        }
        accepted += world.accepted;
    }
    if seeds(2).count() > 1 {
        assert!(accepted > 500, "workers do something: {accepted}");
        assert!(hidden > 5_000, "there is something to hide: {hidden}");
    }
}

/// All that a Run may read, as JSON; each answer is checked.
fn reads(world: &World, run_id: RunId) -> Vec<Json> {
    let task = &world.task;
    let run = task.run(run_id).unwrap();
    let caller = holder_of(task, run_id, "ant");
    let (view, known) = (task.durable(), Known::new(world.now(), &|_| None));
    let may = May::of(task, run);
    let said = |answer: Result<Json, Rejection>| {
        answer.unwrap_or_else(|refused| may.check_refusal(&refused))
    };
    let list = ListInput { include_terminal: true, ..ListInput::default() };
    let page = worker_page(Some(&view), &caller, &list, &known, &world.limits);
    let mut answers = vec![
        said(get_task(&view, &caller, &known).map(|answer| may.check(&answer))),
        said(task_lines(&view, &caller, &known).map(|answer| may.check(&answer))),
        said(list_entry(&view, &caller, &known).map(|answer| may.check(&answer))),
        said(page.map(|answer| may.check(&answer))),
    ];
    for input in queries() {
        let page = query_steps(&view, &caller, &input, &known, &world.limits);
        if let Ok(page) = &page {
            assert!(page.steps.iter().all(|s| may.see.contains(&s.spec.step_id)), "{page:?}");
        }
        answers.push(said(page.map(|answer| may.check(&answer))));
    }
    may.check(&RunOffer::of(&task.durable(), run));
    if let Some(attempt) = run.attempt.map(|at| task.attempt_at(at).attempt_id) {
        let claim = claim_result(&view, attempt);
        May::of_claim(task, run).check(&claim);
    }
    answers
}

/// Everything, page by page, by status, by pool, by holder.
fn queries() -> Vec<QueryInput> {
    let all = || QueryInput { include_terminal_steps: true, ..QueryInput::default() };
    let holder: AgentId = agent_id("ant");
    vec![
        all(),
        QueryInput::default(),
        QueryInput { statuses: Some(vec![StepStatus::Ready]), ..all() },
        QueryInput { statuses: Some(StepStatus::ALL.to_vec()), ..all() },
        QueryInput { worker_pool_id: Some(pool_id("gpu")), ..all() },
        QueryInput { claimed_by_agent_id: Some(holder), ..all() },
        QueryInput { limit: Some(1), offset: 1, ..all() },
    ]
}

/// Asks everything that can be asked of hidden Steps; answers how many there are.
fn asks_for_what_is_hidden(world: &mut World, run_id: RunId) -> usize {
    let run = world.task.run(run_id).unwrap().clone();
    let caller = holder_of(&world.task, run_id, "ant");
    let may = May::of(&world.task, &run);
    let own = run.attempt.map(|at| world.task.attempt_at(at).step_id.clone());
    let all = steps_of(&world.task).into_keys();
    let hidden: Vec<StepId> =
        all.filter(|s| !may.see.contains(s) && own.as_ref() != Some(s)).collect();
    if let Some(step) = world.dice.any(&hidden) {
        is_as_absent(world, &caller, &run, &step);
        steals_from(world, &caller, &step);
        changes_no_answer(world, run_id, &may, &step);
    }
    hidden.len()
}

/// CLAIM-05, PERM-16: a hidden Step is asked for as in vain as one that there is not.
fn is_as_absent(world: &mut World, caller: &Caller, run: &Run, step: &StepId) {
    let statuses = [world.dice.any(StepStatus::ALL), world.dice.any(StepStatus::ALL), None];
    let ask = |world: &mut World, step: &StepId| -> Vec<String> {
        let commands = of_a_step(&world.task, run, step, &statuses);
        let may = May::of(&world.task, run).naming(step);
        let refused = commands.iter().map(|command| {
            let before = world.task.version();
            let refused = world.ask(caller, command).expect_err("it is not for this run");
            assert_eq!(world.task.version(), before);
            format!("{refused:?} {}", may.check_refusal(&refused))
        });
        refused.collect()
    };
    let hidden = ask(world, step);
    let absent = ask(world, &nobody());
    let alike: Vec<String> =
        hidden.iter().map(|said| said.replace(step.as_str(), nobody().as_str())).collect();
    assert_eq!(alike, absent, "whether {step} is there shows");
}

/// Everything that a worker can say of a Step by its id.
fn of_a_step(
    task: &Task,
    run: &Run,
    step: &StepId,
    statuses: &[Option<StepStatus>],
) -> Vec<Command> {
    let mut all = vec![claim_command(run.run_id, step.as_str())];
    let own = run.attempt.map(|at| task.attempt_at(at));
    for &status in statuses {
        let report = StepReport { status, ..StepReport::on(step.clone()) };
        let (attempt_id, fencing_token) = own.map(|a| (a.attempt_id, a.fencing_token)).unzip();
        all.push(Command::TaskUpdateStep(StepReport {
            attempt_id,
            fencing_token,
            ..report.clone()
        }));
        all.push(Command::TaskUpdateStep(report));
    }
    all
}

/// PERM-13, RUN-07: the ids of another's Attempt and Run are of no use, nor is any tool that is not a
/// worker's.
fn steals_from(world: &mut World, thief: &Caller, step: &StepId) {
    let record = world.task.step(step).unwrap().clone();
    let mut commands = not_for_workers();
    let attempts = record.state.last_attempt.map(|at| world.task.attempt_at(at).clone());
    if let Some(attempt) = attempts.filter(|a| a.worker_id != thief.agent) {
        let (attempt_id, fencing_token) = (attempt.attempt_id, attempt.fencing_token);
        commands.push(GiveBack::default().of(attempt_id, fencing_token));
        let says = StepReport {
            attempt_id: Some(attempt_id),
            fencing_token: Some(fencing_token),
            status: Some(StepStatus::Completed),
            ..StepReport::on(step.clone())
        };
        commands.push(Command::TaskUpdateStep(says));
        commands.push(end_run(attempt.run_id, RunOutcome::Finished));
        commands.push(decline_run(attempt.run_id));
        if !world.task.is_terminal() && attempt.outcome.is_none() {
            commands.push(claim_command(attempt.run_id, step.as_str()));
        }
    }
    let may = May::of(&world.task, world.task.run(thief.run_id.unwrap()).unwrap()).naming(step);
    for command in commands {
        let refused = world.ask(thief, &command).expect_err("it is another's");
        may.check_refusal(&refused);
    }
}

/// Commands that no worker has (PERM-08).
fn not_for_workers() -> Vec<Command> {
    let why = Why::default;
    vec![
        patch(json!([{"op": "update_task", "title": "mine"}])),
        Command::DispatchWorker(Dispatch::to(pool_id(POOL))),
        Command::TaskComplete(Complete::default()),
        Command::TaskFail(Close::default()),
        Command::TaskCancel(Close::default()),
        Command::BlockTask(why()),
        Command::PauseTask(why()),
        Command::ArchiveTask(why()),
        Command::RetryTask(RetrySteps { reason: reason("again", ""), step_ids: None }),
        Command::AppendTaskProgress(AppendProgress {
            input_refs: vec!["mem:x".parse().unwrap()],
            ..AppendProgress::default()
        }),
    ]
}

/// What happens to a hidden Step that nothing seen depends on shows in no answer but by the version.
fn changes_no_answer(world: &mut World, run: RunId, may: &May, step: &StepId) {
    if may.depend_on.contains(step) || world.task.is_closing() || world.task.is_terminal() {
        return;
    }
    let before = reads(world, run);
    let kept = world.task.clone();
    let changed =
        patch(json!([{"op": "update_step", "step_id": step, "fields": {"title": "other"}}]));
    world.ask(&orchestrator(), &changed).expect("a title is always to be changed");
    let after = reads(world, run);
    world.task = kept;
    let same = |answers: Vec<Json>| answers.into_iter().map(without_version).collect::<Vec<_>>();
    assert_eq!(same(before), same(after), "{step} shows");
}

fn without_version(mut answer: Json) -> Json {
    if let Some(fields) = answer.as_object_mut() {
        fields.remove("version");
    }
    if let Some(tasks) = answer.get_mut("tasks").and_then(Json::as_array_mut) {
        tasks
            .iter_mut()
            .filter_map(Json::as_object_mut)
            .for_each(|task| drop(task.remove("version")));
    }
    answer
}
