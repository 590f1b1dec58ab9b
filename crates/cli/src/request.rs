//! Reads and checks a task file, and names its Task so that a later command finds it again.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};
use sha2::{Digest as _, Sha256};
use smol_str::SmolStr;
use tenure_core::id::NAME_MAX;
use tenure_sdk::worker::delegate::A2A;
use tenure_sdk::worker::tool::MCP;
use tenure_taskfile::{
    self, HANDLER_EXEC, HANDLER_NOOP, HANDLER_SLEEP, Mode, Plan, PlanStep, ReadOptions, WhenFailing,
};
use uuid::Uuid;

use crate::answer::{Exit, Failure};

/// Metadata key of a Task: the file it was made from.
const FILE_KEY: &str = "tenure.file";
/// Metadata key of a Task: the digest of that file.
const DIGEST_KEY: &str = "tenure.digest";

/// The name of the standard input, where a file is named.
pub(crate) const STDIN: &str = "-";

/// The handlers of `tenure run`; the last one only with servers of tools.
const HANDLERS: [&str; 5] = [HANDLER_EXEC, HANDLER_NOOP, HANDLER_SLEEP, A2A, MCP];

/// The handlers of `tenure run`, with servers of tools or without.
pub(crate) fn handlers(has_tools: bool) -> &'static [&'static str] {
    let [without @ .., _] = &HANDLERS;
    if has_tools { &HANDLERS } else { without }
}

/// A task file that can be run.
#[derive(Debug)]
pub(crate) struct RunnablePlan {
    /// Its content.
    pub(crate) plan: Plan,
    /// The file, and the digest of its content.
    pub(crate) origin: Origin,
}

/// The origin of a Task, from its metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Absolute, without links; empty if the Task was submitted to a cluster.
    pub(crate) file: String,
    /// SHA-256 of the plan: comments, notation and layout of the file do not count, the values of
    /// variables do.
    pub(crate) digest: String,
}

impl RunnablePlan {
    /// Reads a task file, for any command.
    pub(crate) fn open(
        file: &Path,
        vars: &[(String, String)],
        time_scale: Option<f64>,
    ) -> Result<Self, Failure> {
        let options =
            ReadOptions { format: None, vars: vars.iter().cloned().collect(), time_scale };
        let plan = match file == Path::new(STDIN) {
            true => tenure_taskfile::parse(&stdin()?, STDIN, &options)?,
            false => tenure_taskfile::read(file, &options)?,
        };
        let origin = Origin { file: place(file), digest: digest(&plan)? };
        Ok(Self { plan, origin })
    }

    /// The same, and refuses what `tenure run` could never carry out.
    pub(crate) fn open_to_run(
        file: &Path,
        vars: &[(String, String)],
        time_scale: Option<f64>,
        handlers: &[&str],
    ) -> Result<Self, Failure> {
        let request = Self::open(file, vars, time_scale)?;
        check_dispatch(&request.plan)?;
        check_handlers(&request.plan, handlers)?;
        check_claimers(&request.plan)?;
        Ok(request)
    }

    /// The id the file gives, if it gives one.
    pub(crate) fn task_id(&self) -> Option<&str> {
        self.plan.task_id.as_deref()
    }

    /// The beginning of the ids that this command makes for Tasks of the file, by which they are found
    /// again: the id that the file gives, or else its name, and a dash.
    pub(crate) fn id_prefix(&self) -> String {
        let stem = self.task_id().map_or_else(
            || id_stem(Path::new(&self.origin.file)),
            str::to_owned, // Only `--new` and `--retry-failed` make such Tasks.
        );
        id_prefix(&stem)
    }

    /// The plan of a new Task, with its id and origin written in.
    pub(crate) fn into_plan(self, is_new: bool, on_failure: Option<WhenFailing>) -> Plan {
        let file = self.origin.file.clone();
        let mut plan = self.named(is_new);
        plan.metadata.insert(FILE_KEY.into(), file.into());
        plan.on_failure = on_failure.or(plan.on_failure);
        plan
    }

    /// The plan of a Task with an id: that of the file, unless a new one is wanted. It does not
    /// contain the path of the file, so the same file is the same Task from wherever it is
    /// submitted.
    pub(crate) fn named(self, is_new: bool) -> Plan {
        let id = match self.plan.task_id.as_deref().filter(|_| !is_new) {
            Some(id) => id.to_owned(),
            None => fresh_id(self.id_prefix()),
        };
        let Self { mut plan, origin } = self;
        plan.task_id = Some(id);
        plan.metadata.insert(DIGEST_KEY.into(), origin.digest.into());
        plan
    }
}

impl Origin {
    /// The origin in the metadata of a Task.
    pub(crate) fn of(metadata: Option<&Map<String, Json>>) -> Option<Self> {
        let text = |key| metadata?.get(key)?.as_str().map(str::to_owned);
        Some(Self { file: text(FILE_KEY).unwrap_or_default(), digest: text(DIGEST_KEY)? })
    }
}

fn stdin() -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let most = tenure_taskfile::limits::FILE_BYTES_MAX + 1; // One more than allowed, so that it shows.
    std::io::stdin().take(most).read_to_end(&mut bytes).map_err(Failure::cannot("read stdin"))?;
    Ok(bytes)
}

fn check_dispatch(plan: &Plan) -> Result<(), Failure> {
    match plan.dispatch {
        Mode::Auto => Ok(()),
        Mode::Manual => {
            let message = "with `dispatch: manual` nobody starts the steps: `tenure run` has no \
                           orchestrator that would";
            Err(Failure::new(Exit::Usage, message).help("leave `dispatch` out, or write `auto`"))
        }
    }
}

/// Refuses a Step whose handler this command does not have, because the Step would only fail later.
fn check_handlers(plan: &Plan, handlers: &[&str]) -> Result<(), Failure> {
    let unknown = plan.steps.iter().find(|step| !handlers.contains(&step.handler.as_str()));
    let Some(step) = unknown else { return Ok(()) };
    let (id, handler) = (&step.id, &step.handler);
    let message = format!("step `{id}` needs the handler `{handler}`, which `tenure run` has not");
    let help = match handler.as_str() {
        MCP => "--mcp-servers FILE names the servers whose tools it may call".to_owned(),
        _ => {
            format!("it has {}; a program that embeds Tenure can have its own", handlers.join(", "))
        }
    };
    Err(Failure::new(Exit::Usage, message).help(help))
}

/// Refuses a Step that only the workers of a named principal may claim (CLAIM-13): those of `tenure run` have no
/// such name, and it would wait for ever.
fn check_claimers(plan: &Plan) -> Result<(), Failure> {
    let named = |step: &PlanStep| step.claim_only_by.clone().or(plan.claim_only_by.clone());
    let Some((step, name)) = plan.steps.iter().find_map(|step| Some((step, named(step)?))) else {
        return Ok(());
    };
    let id = &step.id;
    let message =
        format!("step `{id}` is for the workers of `{name}` alone, and `tenure run` has none");
    Err(Failure::new(Exit::Usage, message)
        .help("leave out claim_only_by, or submit it to a cluster"))
}

/// The file without links and dots, so that the same file is the same text.
fn place(file: &Path) -> String {
    if file == Path::new(STDIN) {
        return STDIN.into();
    }
    let absolute = || std::path::absolute(file).unwrap_or_else(|_| PathBuf::from(file));
    file.canonicalize().unwrap_or_else(|_| absolute()).display().to_string()
}

fn digest(plan: &Plan) -> Result<String, Failure> {
    let mut hash = Hasher(Sha256::new());
    serde_json::to_writer(&mut hash, plan).map_err(|e| Failure::caused(Exit::Usage, &e))?;
    Ok(hash.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

struct Hasher(Sha256);

impl std::io::Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Letters of the random end of an id: no two of them look alike.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// A billion per stem: plenty, and short enough to type.
const LETTERS_OF_ID: usize = 6;

/// As much of a name as leaves place for the random end.
fn id_prefix(stem: &str) -> String {
    format!("{}-", &stem[..stem.len().min(NAME_MAX - LETTERS_OF_ID - 1)])
}

fn fresh_id(mut id: String) -> String {
    let mut random = Uuid::new_v4().as_u128();
    for _ in 0..LETTERS_OF_ID {
        id.push(char::from(LETTERS[(random % 32) as usize]));
        random /= 32;
    }
    id
}

/// The name of a file in the letters of an id.
fn id_stem(file: &Path) -> String {
    let name = file.file_stem().map(|stem| stem.to_string_lossy().to_lowercase());
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let mut stem: String = name.unwrap_or_default().chars().map(legal).collect();
    stem.truncate(NAME_MAX - LETTERS_OF_ID - 1);
    match stem.trim_matches('-') {
        "" => "task".into(),
        stem => stem.into(),
    }
}

/// A variable, as `--var` gives it.
pub(crate) fn variable(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    match key.trim() {
        "" => Err("the name before `=` is empty".into()),
        key => Ok((key.to_owned(), value.to_owned())),
    }
}

/// A label, as `--label` gives it (LABEL-01).
pub(crate) fn label(text: &str) -> Result<(SmolStr, SmolStr), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    match key {
        "" => Err("the key before `=` is empty".into()),
        key => Ok((key.into(), value.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_made_of_the_file_name() {
        assert_eq!(id_stem(Path::new("/a/Nightly Build.yaml")), "nightly-build");
        assert_eq!(id_stem(Path::new("-")), "task");
        assert_eq!(id_stem(Path::new("/a/ünïcode.yaml")), "n-code");
        let long = "x".repeat(200);
        let id = fresh_id(id_prefix(&id_stem(Path::new(&long))));
        assert!(tenure_core::id::TaskId::new(&id).is_ok(), "{id}");
    }
}
