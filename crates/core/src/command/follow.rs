//! FACT-02: the commands that a gateway gives with a fact, and that are carried out in the commit that keeps the fact.

use alloc::format;
use alloc::vec::Vec;

use serde::{Deserialize, Deserializer};

use super::report::check_content_fields;
use super::tx::Did;
use super::validate::fact;
use super::{Close, Command, Complete, Cx, Dispatch, KeepFact, StepReport, Tx, Why, check_tool};
use crate::limits::Limits;
use crate::patch::Operation;
use crate::reject::Rejection;
use crate::task::Made;

/// How many commands may follow from a fact.
const FOLLOWING_MAX: usize = 4;

/// What may follow from a fact, as it is read: no fact is among it, so that whatever somebody sends is not nested.
#[derive(Deserialize)]
#[serde(tag = "operation", content = "input", rename_all = "snake_case")]
enum ReadCommand {
    TaskUpdate { operations: Vec<Operation> },
    TaskUpdateStep(StepReport),
    TaskComplete(Complete),
    TaskFail(Close),
    TaskCancel(Close),
    DispatchWorker(Dispatch),
    SubmitTask(Why),
    PauseTask(Why),
    ResumeTask(Why),
}

impl From<ReadCommand> for Command {
    fn from(read: ReadCommand) -> Self {
        match read {
            ReadCommand::TaskUpdate { operations } => Self::TaskUpdate { operations },
            ReadCommand::TaskUpdateStep(report) => Self::TaskUpdateStep(report),
            ReadCommand::TaskComplete(complete) => Self::TaskComplete(complete),
            ReadCommand::TaskFail(close) => Self::TaskFail(close),
            ReadCommand::TaskCancel(close) => Self::TaskCancel(close),
            ReadCommand::DispatchWorker(dispatch) => Self::DispatchWorker(dispatch),
            ReadCommand::SubmitTask(why) => Self::SubmitTask(why),
            ReadCommand::PauseTask(why) => Self::PauseTask(why),
            ReadCommand::ResumeTask(why) => Self::ResumeTask(why),
        }
    }
}

/// Reads the commands that follow from a fact.
pub(super) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Command>, D::Error> {
    Ok(Vec::<ReadCommand>::deserialize(from)?.into_iter().map(Command::from).collect())
}

impl Command {
    /// The commands that follow from it, if it keeps a fact.
    pub(super) fn following(&self) -> &[Self] {
        match self {
            Self::TaskFact(fact) => &fact.then,
            _ => &[],
        }
    }

    /// Whether the command may follow from a fact.
    const fn may_follow(&self) -> bool {
        matches!(
            self,
            Self::TaskUpdate { .. }
                | Self::TaskUpdateStep(_)
                | Self::TaskComplete(_)
                | Self::TaskFail(_)
                | Self::TaskCancel(_)
                | Self::DispatchWorker(_)
                | Self::SubmitTask(_)
                | Self::PauseTask(_)
                | Self::ResumeTask(_)
        )
    }

    /// With debug assertions: asserts that a decision refuses with a code of the command, or of a command that follows
    /// from it.
    pub(super) fn check_refusal<T>(&self, decided: &Result<T, Rejection>) {
        let code = decided.as_ref().err().map(|refused| refused.code);
        let of_following = |it: &Self| code.is_some_and(|code| it.operation().may_refuse(code));
        if !self.following().iter().any(of_following) {
            self.operation().check_refusal(decided);
        }
    }
}

impl KeepFact {
    /// K2, K3: the commands that follow are few, of the kinds that may, and each is one of the caller's.
    pub(super) fn check_following(&self, cx: &Cx<'_>) -> Result<(), Rejection> {
        if self.then.len() > FOLLOWING_MAX {
            let message = format!("{} commands; at most {FOLLOWING_MAX}", self.then.len());
            return Err(Rejection::invalid("then", message));
        }
        let makes_run = |it: &&Command| matches!(it, Command::DispatchWorker(_));
        if self.then.iter().filter(makes_run).count() > 1 {
            return Err(Rejection::invalid("then", "one fact dispatches one run"));
        }
        self.then.iter().try_for_each(|command| {
            if !command.may_follow() || command.may_wait() {
                let operation = command.operation();
                let message = format!("{operation} does not follow from a fact, or waits");
                return Err(Rejection::invalid("then", message));
            }
            check_tool(cx.caller, command.operation())?;
            command.validate(cx)?;
            check_content_fields(cx, command)
        })
    }
}

/// K3: the facts that a create brings are few, and nothing follows from them.
pub(super) fn check_first(facts: &[KeepFact], limits: &Limits) -> Result<(), Rejection> {
    if facts.len() > FOLLOWING_MAX {
        let message = format!("{} facts; at most {FOLLOWING_MAX}", facts.len());
        return Err(Rejection::invalid("facts", message));
    }
    facts.iter().try_for_each(|given| {
        if given.then.is_empty() {
            return fact(given, limits);
        }
        Err(Rejection::invalid("facts", "nothing follows from a fact that a create brings"))
    })
}

impl Tx<'_, '_> {
    /// Carries out what follows from a fact: each command under the rules of its own, by the state that those before
    /// it have left. If one is refused, so is the fact.
    pub(super) fn follow(&mut self, then: &[Command]) -> Result<Did, Rejection> {
        let mut did = Did::DONE;
        for command in then {
            self.task.check_rights(self.cx, command)?;
            self.task.check_open(self.cx, command)?;
            self.task.check_whole(self.cx, command)?;
            let made = self.run(command)?.made;
            if did.made == Made::Nothing {
                did.made = made;
            }
        }
        Ok(did)
    }
}
