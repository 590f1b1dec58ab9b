//! The file of agents, as TOML: the agents that a gateway serves (`[[agents]]`), and the tools that are handlers
//! ([`offers`](crate::offers), `[[tools]]`). Both say in the same fields what does their work.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use tenure_core::command::create::CreateTask;
use tenure_core::id::{BadId, HandlerName, Millis, PoolId, StepId};
use tenure_core::patch::StepInput;
use tenure_core::record::RetryPolicy;
use tenure_core::retry_policy::Limit;

use crate::unquoted::read_toml;

/// The most bytes of a file of agents: a longer one is certainly a mistake.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Why a file of agents cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AgentsFileError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The file is longer than any that was written by hand.
    #[error("{} has more than {FILE_BYTES_MAX} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// The file is not the TOML that it should be.
    #[error("{} cannot be understood: {why}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        why: String,
    },
    /// The entry of an agent is wrong.
    #[error("agent {agent}: {why}")]
    Agent {
        /// Its name, or its place in the file.
        agent: String,
        /// What is wrong with it.
        why: String,
    },
    /// The entry of a tool is wrong.
    #[error("tool {tool}: {why}")]
    Tool {
        /// Its name, or its place in the file.
        tool: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Reads the file of a template: the Task that it describes, or why it describes none.
pub type ReadTemplate<'a> = &'a dyn Fn(&Path) -> Result<CreateTask, String>;

/// A file of agents as it was read.
#[derive(Debug)]
pub struct AgentsFile {
    path: PathBuf,
    text: String,
    changed_at: Option<Millis>,
}

impl AgentsFile {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or it is too long.
    pub fn read(path: &Path) -> Result<Self, AgentsFileError> {
        let failed = |source| AgentsFileError::Read { path: path.to_owned(), source };
        let mut text = String::new();
        let file = File::open(path).map_err(failed)?;
        let changed_at = file.metadata().and_then(|about| about.modified()).ok().and_then(millis);
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(AgentsFileError::TooLong { path: path.to_owned() });
        }
        Ok(Self { path: path.to_owned(), text, changed_at })
    }

    /// What it says.
    ///
    /// # Errors
    /// It is not the TOML that it should be.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, AgentsFileError> {
        read_toml(&self.text).map_err(|why| AgentsFileError::Form { path: self.path.clone(), why })
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// When it was changed last, if the file system says so.
    pub const fn changed_at(&self) -> Option<Millis> {
        self.changed_at
    }

    /// Where files of templates are looked for: beside it.
    fn beside(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }
}

/// A time of the system.
fn millis(at: SystemTime) -> Option<Millis> {
    let since = at.duration_since(UNIX_EPOCH).ok()?;
    Millis::try_from(since.as_millis()).ok()
}

/// What an entry says of its work.
#[derive(Debug, Clone, Copy)]
pub struct WorkFields<'a> {
    /// The name of the entry, and of its handler if it says no other.
    pub name: &'a str,
    /// The handler.
    pub handler: Option<&'a str>,
    /// The pool whose workers run it.
    pub pool: Option<&'a str>,
    /// How often it may fail before the Task does; 1 if it is not said.
    pub attempts: Option<u32>,
    /// The longest time for one try, such as `10m`.
    pub timeout: Option<&'a str>,
    /// The file of the Task that does the work instead.
    pub template: Option<&'a Path>,
    /// The Step of the template that gets the input.
    pub input_to: Option<&'a str>,
    /// What the field of that Step is called.
    pub input_field: &'static str,
}

/// What does the work of an agent or of a tool.
#[derive(Debug, Clone)]
pub enum EntryWork {
    /// A Task of one Step, with the input.
    Handler {
        /// The handler of the Step.
        handler: HandlerName,
        /// The pool whose workers run it; none: that of the scheduler.
        pool: Option<PoolId>,
        /// How often it may fail before the Task does.
        attempts: u32,
        /// The longest time for one try, in milliseconds.
        timeout_ms: Option<u64>,
    },
    /// A copy of a Task, one Step of which gets the input.
    Template {
        /// The Task, without an id.
        task: Box<CreateTask>,
        /// The Step that gets the input.
        input_to: StepId,
    },
}

impl WorkFields<'_> {
    /// The work. A file of a template is looked for beside the file of agents.
    ///
    /// # Errors
    /// The fields do not go together, or why the template cannot be used.
    pub fn work(
        self,
        file: &AgentsFile,
        read_template: ReadTemplate<'_>,
    ) -> Result<EntryWork, String> {
        let said = |bad: BadId| bad.to_string();
        let Some(template) = self.template else {
            if self.input_to.is_some() {
                return Err(format!("{} goes with template", self.input_field));
            }
            let handler = HandlerName::new(self.handler.unwrap_or(self.name)).map_err(said)?;
            let pool = self.pool.map(PoolId::new).transpose().map_err(said)?;
            let attempts = self.attempts.unwrap_or(1);
            if attempts == 0 {
                return Err("attempts counts from 1".into());
            }
            let timeout_ms = self.timeout.map(timeout_ms).transpose()?;
            return Ok(EntryWork::Handler { handler, pool, attempts, timeout_ms });
        };
        let says_itself = [self.handler.is_some(), self.pool.is_some()];
        if says_itself.contains(&true) || self.attempts.is_some() || self.timeout.is_some() {
            let why = "a template says itself which handlers and pools run it, how often, how long";
            return Err(why.into());
        }
        let task = Box::new(read_template(&file.beside().join(template))?);
        let named = self.input_to.map(StepId::new).transpose().map_err(said)?;
        let input_to = self.step_of(&task, named)?;
        Ok(EntryWork::Template { task, input_to })
    }

    /// The Step that gets the input: the one that is named, or the only one of the template that waits for no other.
    fn step_of(&self, task: &CreateTask, named: Option<StepId>) -> Result<StepId, String> {
        if let Some(named) = named {
            let is_there = task.steps.iter().any(|step| step.step_id == named);
            let absent = format!("the template has no step {named}");
            return is_there.then_some(named).ok_or(absent);
        }
        let mut first = task.steps.iter().filter(|step| step.depends_on_step_ids.is_empty());
        match (first.next(), first.next()) {
            (Some(only), None) => Ok(only.step_id.clone()),
            _ => Err(format!("{} has to say which step of the template gets it", self.input_field)),
        }
    }
}

fn timeout_ms(text: &str) -> Result<u64, String> {
    let wrong = |why: String| format!("timeout {text:?}: {why}");
    let time: Duration =
        humantime::parse_duration(text).map_err(|error| wrong(error.to_string()))?;
    match u64::try_from(time.as_millis()) {
        Ok(0) | Err(_) => Err(wrong("at least 1ms".into())),
        Ok(millis) => Ok(millis),
    }
}

impl EntryWork {
    /// A Task that does it, without an id. `give` makes the Step that gets the input of what the Step is without it.
    /// `only` is the id of the one Step of a handler.
    pub fn task(&self, only: StepId, give: impl Fn(StepInput) -> StepInput) -> CreateTask {
        match self {
            Self::Handler { handler, pool, attempts, timeout_ms } => {
                let step = StepInput { handler: Some(handler.clone()), ..StepInput::bare(only) };
                let retry_policy = RetryPolicy {
                    max_attempts: Some(Limit::Of(*attempts)),
                    start_to_close_ms: timeout_ms.map(Limit::Of),
                    ..RetryPolicy::default()
                };
                CreateTask {
                    default_worker_pool_id: pool.clone(),
                    retry_policy: Some(Arc::new(retry_policy)),
                    steps: vec![give(step)],
                    ..CreateTask::default()
                }
            }
            Self::Template { task, input_to } => {
                let mut task = (**task).clone();
                for step in task.steps.iter_mut().filter(|step| step.step_id == *input_to) {
                    *step = give(step.clone());
                }
                task
            }
        }
    }

    /// What runs it, in words. `input` says what goes where, such as "the message goes to".
    pub fn runs(&self, input: &str) -> String {
        match self {
            Self::Handler { handler, pool: Some(pool), .. } => {
                format!("handler {handler} in pool {pool}")
            }
            Self::Handler { handler, pool: None, .. } => format!("handler {handler}"),
            Self::Template { task, input_to } => {
                format!("{} steps, {input} {input_to}", task.steps.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A file that nobody wrote by hand is refused before it is in memory, and one that is not there by its name.
    #[test]
    fn a_file_has_a_length_and_a_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agents.toml");
        let refused = |path: &Path| AgentsFile::read(path).unwrap_err().to_string();
        assert!(refused(&path).contains("agents.toml"));
        std::fs::write(&path, "#".repeat(usize::try_from(FILE_BYTES_MAX).unwrap())).unwrap();
        let file = AgentsFile::read(&path).unwrap();
        assert_eq!((file.beside(), file.changed_at().is_some()), (dir.path(), true));
        std::fs::write(&path, "#".repeat(usize::try_from(FILE_BYTES_MAX).unwrap() + 1)).unwrap();
        assert!(refused(&path).contains("more than 4194304 bytes"));
    }

    #[test]
    fn an_error_names_the_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agents.toml");
        std::fs::write(&path, "# Names.\n\nnames = 5\n").unwrap();
        let said = AgentsFile::read(&path).unwrap().parse::<BTreeMap<String, String>>();
        let said = said.unwrap_err().to_string();
        assert!(said.ends_with(": line 3: this is not what is expected: a string"), "{said}");
    }
}
