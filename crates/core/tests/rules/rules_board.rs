//! PROMPT: Tasks in few words; CTRL-10: how to write one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use crate::views;
use common::*;
use tenure_core::command::{Operator, check_tool};
use tenure_core::status::{Role, StepStatus, WaitKind};
use tenure_core::view::board::{Rank, compose, task_lines, template};
use tenure_core::view::{BoardInput, TaskLines};
use tenure_core::{Caller, Code, Command, Rejection};
use views::*;

fn lines(t: &Fixture, caller: &Caller) -> Result<TaskLines, Rejection> {
    let before = t.task.clone();
    let lines = task_lines(&t.task.durable(), caller, &known());
    assert_eq!(t.task, before, "a read changes nothing");
    lines
}

/// `rank step` of each line.
fn said(lines: &TaskLines) -> Vec<String> {
    let word = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
    lines.lines.iter().map(|(rank, text)| format!("{rank:?} {}", word(text))).collect()
}

fn ask(t: &mut Fixture, held: &Held, prompt: &str) {
    let report = tenure_core::command::StepReport {
        status: Some(StepStatus::Blocked),
        wait_kind: Some(WaitKind::Input),
        reason: Some(reason("input_required", prompt)),
        ..held.says()
    };
    t.run(&held.caller(), &Command::TaskUpdateStep(report)).unwrap();
}

/// A Task with a Step in each status that the board tells of.
fn busy() -> (Fixture, Held) {
    let mut t = Fixture::manual("done asks works mine open other@gpu later<-open");
    t.do_step("done");
    let asks = t.claim("asks");
    ask(&mut t, &asks, "which\n branch?");
    t.claim_by("bee", "works");
    let mine = t.claim("mine");
    (t, mine)
}

/// PROMPT-01, PROMPT-02: the summary has the Task, its ready, running and blocked Steps, those of the
/// caller, those that its pool may take, and what changed lately; it is a message that nobody said.
#[test]
fn the_board_tells_what_matters() {
    let (t, mine) = busy();
    let whole = lines(&t, &orchestrator()).unwrap();
    let expected = ["Blocked asks", "Running works", "Running mine", "Ready open", "Ready other"];
    assert_eq!(said(&whole), [&expected[..], &["Changed done"]].concat());
    let seen = lines(&t, &worker(WORKER, POOL, Some(mine.run_id))).unwrap();
    let expected = ["Own mine", "Blocked asks", "Running works", "Open open", "Changed done"];
    assert_eq!(said(&seen), expected);

    let board = compose(&[whole], 2_000);
    assert_eq!((board.role.as_str(), board.synthetic, board.truncated), ("user", true, false));
    let text = &board.text;
    for part in [
        "Task t [preparing] title (",
        "1 completed",
        "- blocked: asks (title of asks), waits for input: which branch?\n",
        "- at work: works (title of works), bee, attempt 1\n",
        "- ready: other (title of other)\n",
        "- lately: done completed",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("later"), "a Step that waits for others is not worth a line: {text}");
}

/// PROMPT-03, PROMPT-04: over budget blocked Steps, running ones and the caller's own are kept first,
/// and the summary is never longer than it may be.
#[test]
fn the_board_keeps_to_its_budget() {
    let mut t = Fixture::manual(&(0..60).map(|n| format!("s{n} ")).collect::<String>());
    let mine = t.claim("s59");
    let asks = t.claim("s58");
    ask(&mut t, &asks, "why?");
    t.claim_by("bee", "s57");
    let caller = worker(WORKER, POOL, Some(mine.run_id));
    let all = lines(&t, &caller).unwrap();
    assert_eq!(all.left_out, 7, "57 ready Steps, of which 50 are told");
    for tokens in 14..500 {
        let board = compose(std::slice::from_ref(&all), tokens);
        assert!(board.truncated);
        assert!(board.text.len() <= tokens * 4, "{tokens} tokens: {} bytes", board.text.len());
        let order = ["yours: s59", "blocked: s58", "at work: s57", "claim: s0 "];
        let told: Vec<bool> = order.iter().map(|part| board.text.contains(part)).collect();
        assert!(told.is_sorted_by(|a, b| a >= b), "{tokens}: {told:?}\n{}", board.text);
        // What an owner leaves out already would have been left out in the end.
        let cut = compose(&[all.clone().within(tokens)], tokens);
        assert_eq!(cut, board, "{tokens}");
    }
    let board = compose(std::slice::from_ref(&all), 80);
    assert!(board.text.contains("at work: s57"), "{}", board.text);
    assert!(board.text.ends_with("lines more, see agent.task_get\n"), "{}", board.text);
}

/// PROMPT-03: the budget is that of the configuration, or less.
#[test]
fn a_budget_is_within_the_configured_one() {
    let t = Fixture::manual("a");
    let budget = |token_budget| BoardInput { token_budget }.budget(&t.limits);
    assert_eq!(budget(None).unwrap(), 2_000);
    assert_eq!(budget(Some(14)).unwrap(), 14);
    assert_eq!(budget(Some(2_000)).unwrap(), 2_000);
    for wrong in [0, 13, 2_001] {
        let refused = budget(Some(wrong)).unwrap_err();
        assert_eq!(refused.code, Code::ValidationError);
        assert_eq!(refused.details["field"], "token_budget");
    }
}

/// PROMPT-03: whoever puts Tasks together keeps to the budgets that their owners have said.
#[test]
fn owners_say_what_the_budget_is() {
    let t = Fixture::manual("a");
    let of = |tokens| lines(&t, &orchestrator()).unwrap().within(tokens);
    let asked = |token_budget, told: &[TaskLines]| BoardInput { token_budget }.budget_of(told);
    assert_eq!(asked(None, &[of(5_000)]), 5_000);
    assert_eq!(asked(None, &[of(5_000), of(300)]), 300);
    assert_eq!(asked(Some(200), &[of(200)]), 200);
    let silent = lines(&t, &orchestrator()).unwrap();
    assert_eq!(asked(None, std::slice::from_ref(&silent)), 2_000, "an owner that says none");
    assert_eq!(asked(Some(200), &[silent]), 200);
}

/// PROMPT-04: of several Tasks, what matters most in any of them comes before the rest of all.
#[test]
fn tasks_share_a_budget_by_what_matters() {
    let (first, second) = (Fixture::manual("a b c d e f g h i j k l"), busy().0);
    let all = [lines(&first, &orchestrator()).unwrap(), lines(&second, &orchestrator()).unwrap()];
    let board = compose(&all, 100);
    assert!(board.truncated && board.text.contains("blocked: asks"), "{}", board.text);
    assert_eq!(board.text.matches("Task t [").count(), 2, "every Task has a line");
}

/// PROMPT-05: what was said and done before is not told: only the newest changes, without the log.
#[test]
fn the_board_is_no_timeline() {
    let mut t = Fixture::manual(&(0..30).map(|n| format!("s{n} ")).collect::<String>());
    (0..30).for_each(|n| t.do_step(&format!("s{n}")));
    let told = lines(&t, &orchestrator()).unwrap();
    let changed: Vec<_> = told.lines.iter().filter(|(rank, _)| *rank == Rank::Changed).collect();
    assert_eq!(changed.len(), 10);
    assert!(changed[0].1.starts_with("s29 "), "newest first: {changed:?}");
}

/// PROMPT-06: a worker is told of its scope alone; counts of the whole Task are not for it.
#[test]
fn the_board_of_a_worker_is_that_of_its_scope() {
    let (mut t, _) = busy();
    let run = t.dispatch_for(POOL, Some(&["open", "works"]));
    let told = lines(&t, &worker("fly", POOL, Some(run))).unwrap();
    assert_eq!(said(&told), ["Running works", "Open open"]);
    let text = compose(&[told], 2_000).text;
    for hidden in ["asks", "mine", "other", "later", "done", "completed"] {
        assert!(!text.contains(hidden), "{hidden} in {text}");
    }
    let stranger = lines(&t, &worker("fly", POOL, None)).unwrap_err();
    assert_eq!(stranger.code, Code::PermissionDenied);
    assert_eq!(lines(&t, &observer()).unwrap_err().code, Code::ToolNotAvailable);
}

/// CTRL-10: the guide is there for orchestrators, the same each time, and its example can be created.
#[test]
fn the_guide_to_writing_a_task_is_a_message_that_nobody_said() {
    let guide = template();
    assert_eq!((guide.role.as_str(), guide.synthetic, guide.truncated), ("user", true, false));
    assert_eq!(guide, template());
    check_tool(&orchestrator(), Operator::TaskTemplate).unwrap();
    for role in [Role::Worker, Role::Observer, Role::SubAgent] {
        let refused = check_tool(&caller("x", role), Operator::TaskTemplate).unwrap_err();
        assert_eq!(refused.code, Code::ToolNotAvailable);
    }
    let example = guide.text.split("```json").nth(1).unwrap().split("```").next().unwrap();
    let input: tenure_core::command::create::CreateTask = serde_json::from_str(example).unwrap();
    let t = Fixture::create(input, tenure_core::status::Policy::Auto);
    assert_eq!(
        t.statuses("build notes test publish"),
        "build:ready notes:ready test:pending publish:pending"
    );
}
