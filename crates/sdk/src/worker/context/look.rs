//! What a handler may ask about its Task.

use tenure_core::id::Ref;
use tenure_core::record::Blob;
use tenure_core::view::board::compose;
use tenure_core::view::{Board, BoardInput, Look, Looked, QueryInput, StepPage, WorkerTask};
use tenure_core::{Code, Rejection};

use super::{Refused, StepContext};

/// The longest answer of a person.
const ANSWER_MAX: usize = 1 << 20;

impl StepContext {
    /// `agent.task_get`: the Task as far as this Run may see it (GET-04).
    ///
    /// # Errors
    /// No scheduler answers, or the answer is longer than a message may be.
    pub async fn task(&self) -> Result<WorkerTask, Refused> {
        match self.look(Look::TaskGet).await? {
            Looked::Task(task) => Ok(*task),
            _ => Err(misread()),
        }
    }

    /// `agent.task_query_steps`: a page of the Steps that this Run may see (QUERY).
    ///
    /// # Errors
    /// As [`task`](Self::task), or `validation_error` for the input.
    pub async fn query_steps(&self, input: QueryInput) -> Result<StepPage, Refused> {
        match self.look(Look::TaskQuerySteps(input)).await? {
            Looked::Steps(page) => Ok(page),
            _ => Err(misread()),
        }
    }

    /// PROMPT-06: a short text about the Task, for the context of a model, as far as this Run may
    /// see it; in so many tokens at most, by default as many as the scheduler allows.
    ///
    /// # Errors
    /// `validation_error` for too few tokens or more than the scheduler allows, or no scheduler
    /// answers.
    pub async fn board(&self, token_budget: Option<usize>) -> Result<Board, Refused> {
        let input = BoardInput { token_budget };
        match self.look(Look::TaskBoardSummary(input)).await? {
            Looked::Board(lines) => {
                let lines = [lines];
                Ok(compose(&lines, input.budget_of(&lines)))
            }
            _ => Err(misread()),
        }
    }

    /// As [`answers`](Self::answers), with those that are too long to stand in a reference: these are blobs.
    ///
    /// # Errors
    /// A blob cannot be read.
    pub async fn all_answers(&self) -> Result<Vec<String>, Refused> {
        Ok(self.said_by_people().await?.into_iter().map(|(_, text)| text).collect())
    }

    /// The same, each with the reference that it is or that names it.
    pub(in crate::worker) async fn said_by_people(&self) -> Result<Vec<(Ref, String)>, Refused> {
        let mut all = Vec::new();
        for reference in self.said_refs() {
            let text = match Blob::hash_in(reference.as_str()) {
                Some(hash) => {
                    let bytes = self.shared.reporter.blob(self.claim(), hash).await?;
                    // Any other reference is no answer of a person.
                    std::str::from_utf8(&bytes)
                        .ok()
                        .filter(|it| it.len() <= ANSWER_MAX)
                        .map(str::to_owned)
                }
                None => crate::answer::of_ref(reference),
            };
            all.extend(text.map(|text| (reference.clone(), text)));
        }
        Ok(all)
    }

    async fn look(&self, look: Look) -> Result<Looked, Refused> {
        self.shared.reporter.look(self.claim(), look).await
    }
}

/// The error for an answer that belongs to another query.
fn misread() -> Rejection {
    Rejection::new(Code::Unavailable, "the answer is not what was asked for")
}
