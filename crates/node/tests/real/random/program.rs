//! An orchestrator that does what comes to its mind: one Task from its creation to its end.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tenure_core::Context;
use tenure_core::command::{Close, Complete, Dispatch, RetrySteps, RunAndWhy, StepReport, Why};
use tenure_core::id::{CommandId, TaskId};
use tenure_core::view::QueryInput;
use tenure_core::{Command, Rejection};
use tenure_ports::ClientPort;
use tenure_sdk::client::Client;
use uuid::Uuid;

use super::dice::Dice;
use super::hands::Books;
use super::judge::Ask;
use super::notes::{Call, Done, Notes};

const POOLS: [&str; 3] = ["default", "default", "gpu"];
const STATUSES: [&str; 7] =
    ["pending", "ready", "running", "blocked", "completed", "failed", "cancelled"];

pub(super) struct Program<C> {
    pub(super) client: Client<C>,
    /// If somebody else is to command: who does not wait long for an answer.
    pub(super) hasty: Option<Client<C>>,
    pub(super) task: TaskId,
    pub(super) notes: Arc<Notes>,
    pub(super) dice: Dice,
    /// Steps ever named.
    steps: usize,
    runs: Vec<String>,
}

fn id(n: usize) -> String {
    format!("step{n:02}z")
}

impl<C: ClientPort> Program<C> {
    pub(super) fn new(client: Client<C>, task: &str, books: &Books, seed: u64) -> Self {
        let task: TaskId = task.parse().unwrap();
        let notes = Arc::<Notes>::default();
        books.lock().insert(task.clone(), Arc::clone(&notes));
        let dice = Dice::new(seed);
        Self { client, hasty: None, task, notes, dice, steps: 0, runs: Vec::new() }
    }

    /// So many commands, and then the end, one way or another.
    pub(super) async fn run(&mut self, commands: usize) {
        self.create().await;
        self.go_on(commands).await;
        self.end().await;
    }

    /// So many commands.
    pub(super) async fn go_on(&mut self, commands: usize) {
        for _ in 0..commands {
            let pause = self.dice.below(25) as u64;
            tokio::time::sleep(Duration::from_millis(pause)).await;
            if self.dice.one_in(4) {
                let view = self.client.get(&self.task).await.unwrap();
                self.notes.look(None, view.task.version, &view);
            }
            let (ask, command) = self.command();
            self.ask(ask, command).await;
        }
    }

    pub(super) async fn create(&mut self) {
        self.steps = 2 + self.dice.below(4);
        let steps: Vec<Json> = (0..self.steps).map(|n| self.step(n)).collect();
        let policy = |is_auto| if is_auto { "auto" } else { "manual" };
        let input = json!({
            "task_id": self.task, "title": "a program", "summary": "", "steps": steps,
            "draft": self.dice.one_in(6), "dispatch": policy(self.dice.one_in(3)),
            "completion": policy(self.dice.one_in(5)),
        });
        let command = CommandId::new(Uuid::now_v7().to_string()).unwrap();
        let input: tenure_core::command::create::CreateTask =
            serde_json::from_value(input).unwrap();
        let made = self.client.create_as(command.clone(), input.clone()).await.unwrap();
        self.notes.see(made.version);
        let again = self.client.create_as(command, input).await.unwrap();
        assert_eq!((again.event_ids, again.version), (made.event_ids, made.version), "IDEM-01");
    }

    fn step(&mut self, n: usize) -> Json {
        let deps: Vec<String> = (0..n).filter(|_| self.dice.one_in(3)).map(id).collect();
        let text = format!("text{n:02}z");
        json!({"step_id": id(n), "title": text, "summary": text, "depends_on_step_ids": deps,
               "required": !self.dice.one_in(4), "worker_pool_id": self.dice.of(&POOLS)})
    }

    fn some_step(&mut self) -> String {
        let n = self.dice.below(self.steps + 1);
        id(if n == self.steps { 98 } else { n })
    }

    fn command(&mut self) -> (Ask, Command) {
        let why = Why::default;
        match self.dice.below(40) {
            0 => (Ask::Pause, Command::PauseTask(why())),
            1 => (Ask::Block, Command::BlockTask(why())),
            2..=4 => (Ask::Resume, Command::ResumeTask(why())),
            5..=7 => (Ask::Reopen, Command::ReopenTask(why())),
            8..=9 => (Ask::Submit, Command::SubmitTask(why())),
            10 => (Ask::Complete, Command::TaskComplete(Complete::default())),
            11 => (Ask::Archive, Command::ArchiveTask(why())),
            12 if self.dice.one_in(4) => (Ask::Fail, Command::TaskFail(close())),
            13 if self.dice.one_in(4) => (Ask::Cancel, Command::TaskCancel(close())),
            12..=15 => {
                let reason = serde_json::from_value(json!({"message": "again"})).unwrap();
                (Ask::Retry, Command::RetryTask(RetrySteps { reason, step_ids: None }))
            }
            16..=18 => self.write(),
            19..=25 => self.patch(),
            26 => self.cancel_run(),
            _ => self.dispatch(),
        }
    }

    fn dispatch(&mut self) -> (Ask, Command) {
        let count = 1 + self.dice.below(3);
        let scope: Vec<String> = (0..count).map(|_| id(self.dice.below(self.steps))).collect();
        let scope = (!self.dice.one_in(3)).then_some(scope);
        let given = json!({"worker_pool_id": self.dice.of(&POOLS), "allowed_step_ids": scope});
        let dispatch: Dispatch = serde_json::from_value(given).unwrap();
        (Ask::Dispatch { scope }, Command::DispatchWorker(dispatch))
    }

    fn write(&mut self) -> (Ask, Command) {
        let (step, status) = (self.some_step(), self.dice.of(&STATUSES).to_owned());
        let given = json!({"step_id": step, "status": status});
        let report: StepReport = serde_json::from_value(given).unwrap();
        (Ask::Write { step, status }, Command::TaskUpdateStep(report))
    }

    fn cancel_run(&mut self) -> (Ask, Command) {
        let nobodys = Uuid::from_u128(7).to_string();
        let run = self.dice.any(&self.runs).unwrap_or(nobodys);
        let run_id = run.parse().unwrap();
        (Ask::CancelRun { run }, Command::CancelRun(RunAndWhy { reason: None, run_id }))
    }

    fn patch(&mut self) -> (Ask, Command) {
        let count = 1 + self.dice.below(3);
        let operations: Vec<Json> = (0..count).map(|_| self.operation()).collect();
        let given = serde_json::from_value(json!(operations)).unwrap();
        (Ask::Patch(operations), Command::TaskUpdate { operations: given })
    }

    fn operation(&mut self) -> Json {
        let (step, on) = (self.some_step(), self.some_step());
        match self.dice.below(8) {
            0 | 1 if self.steps < 20 => {
                self.steps += 1;
                json!({"op": "add_step", "step": self.step(self.steps - 1)})
            }
            2 => {
                let text = step.replace("step", "text");
                json!({"op": "update_step", "step_id": step, "fields": {"title": text}})
            }
            3 => json!({"op": "add_dependency", "step_id": step, "depends_on_step_id": on}),
            4 => json!({"op": "cancel_step", "step_id": step}),
            5 => json!({"op": "delete_step", "step_id": step}),
            _ => json!({"op": "reopen_step", "step_id": step}),
        }
    }

    /// Asks, at the version it knows or at any, and sometimes once more.
    async fn ask(&mut self, ask: Ask, command: Command) {
        let from = self.notes.seen();
        // At the version that it knows, or at the one before.
        let expected = self.dice.one_in(6).then(|| from.saturating_sub(self.dice.below(2) as u64));
        let name = Uuid::now_v7().to_string();
        let around = Context {
            expected_version: expected,
            ..Context::new(CommandId::new(name.clone()).unwrap())
        };
        let client = self.hasty.as_ref().unwrap_or(&self.client);
        let mut answer = client.command_as(&self.task, around.clone(), command.clone()).await;
        let is_lost = |refused: &Rejection| self.hasty.is_some() && refused.code.is_retryable();
        let again = answer.as_ref().is_err_and(is_lost) && self.dice.one_in(2);
        if again {
            // IDEM-01: said again it is answered for good. Else the log tells what became of it.
            answer = self.client.command_as(&self.task, around.clone(), command.clone()).await;
        }
        let is_cancel = matches!(ask, Ask::CancelRun { .. });
        if let Ok(done) = &answer
            && self.dice.one_in(5)
            && !is_cancel
            && !done.event_ids.is_empty()
        {
            let again = self.client.command_as(&self.task, around, command).await.unwrap();
            assert_eq!(
                (&again.event_ids, again.version),
                (&done.event_ids, done.version),
                "IDEM-01"
            );
        }
        self.runs.extend(answer.iter().filter_map(|done| done.run_id).map(|run| run.to_string()));
        let answer = answer.map(|done| Done {
            version: done.version,
            events: (!is_cancel).then_some(done.event_ids),
        });
        let to = match &answer {
            Ok(done) => done.version,
            Err(_) => self.version().await.unwrap_or(u64::MAX),
        };
        self.notes.see(if to == u64::MAX { 0 } else { to });
        let command = Some(name);
        self.notes.calls.lock().push(Call { ask, command, expected, from, to, again, answer });
    }

    async fn version(&self) -> Result<u64, Rejection> {
        let one = QueryInput { limit: Some(1), ..QueryInput::default() };
        self.client.steps(&self.task, one).await.map(|page| page.version)
    }

    pub(super) async fn end(&mut self) {
        self.ask(Ask::Complete, Command::TaskComplete(Complete::default())).await;
        match self.dice.one_in(2) {
            true => self.ask(Ask::Fail, Command::TaskFail(close())).await,
            false => self.ask(Ask::Cancel, Command::TaskCancel(close())).await,
        }
        let ended = async {
            // One that was a draft is cancelled only.
            while !self.client.get(&self.task).await.unwrap().task.native_status.is_terminal() {
                let _ = self.client.cancel(&self.task, "enough").await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), ended).await.expect("a task always ends");
        let _ = self.version().await.map(|version| self.notes.see(version));
        for _ in 0..6 {
            let (ask, command) = self.command();
            self.ask(ask, command).await;
        }
    }

    /// The whole log, one event a line.
    pub(super) async fn log(&self) -> Vec<u8> {
        let (mut log, mut after) = (Vec::new(), 0);
        loop {
            let page = self.client.port().log(&self.task, after).await.unwrap();
            for commit in &page.commits {
                let session = self.client.port().session();
                tenure_wire::stored::encode(commit, session, &self.task, &mut log).unwrap();
                after = commit.last_seq();
            }
            if !page.more {
                return log;
            }
        }
    }
}

fn close() -> Close {
    Close { grace_ms: None, reason: None, wait: Some(false) }
}
