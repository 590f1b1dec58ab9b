//! Built-in handlers: `noop`, `sleep`, `exec`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value as Json};
use smol_str::SmolStr;
use tenure_core::id::{ArtifactId, BadId, HandlerName};
use tenure_core::record::{ArtifactInput, Value};
use tenure_core::status::{ArtifactKind, ArtifactState};
use tenure_wire::json;
use tokio::sync::watch;

use super::attempt_files::{AttemptFiles, Lack, on_disk};
use super::context::StepContext;
use super::exec::{self, CommandEnd, ExecError, ExecOutcome, ExecPaths, ExecSpec, OutputError};
use super::handler::{HandlerError, Handlers};
use super::run_tools::{RUN_SOCKET_ENV, RunSocket, RunToolsOf};
use crate::secrets::{SecretError, SecretMask, SecretSources, fill_in};

/// Name of the handler that does nothing.
pub const NOOP: &str = HandlerName::NOOP;
/// Name of the handler that waits.
pub const SLEEP: &str = "sleep";
/// Name of the handler that runs a command.
pub const EXEC: &str = "exec";

/// After this time a command or a wait is long enough to be called running.
const LONG: Duration = Duration::from_millis(100);

/// The longest input of `exec` in which secrets are looked for: no system takes arguments that are longer.
const SPEC_BYTES_MAX: usize = 1 << 20;

/// How long a command that was stopped waits until its logs are recorded. They are a courtesy.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);

/// What the handler `exec` gets of its worker.
#[derive(Debug, Clone)]
pub struct ExecSettings {
    /// The directory below which the output files of commands go.
    pub files: PathBuf,
    /// Names of variables of this process that commands get although they may hold a login: those of Tenure and
    /// headers for telemetry, which they do not inherit.
    pub handed_on: Vec<String>,
    /// Where the secrets are that Steps may name in `env` and `command`.
    pub secrets: SecretSources,
}

/// Output files below a directory, no variable handed on, and no secrets.
impl From<PathBuf> for ExecSettings {
    fn from(files: PathBuf) -> Self {
        Self { files, handed_on: Vec::new(), secrets: SecretSources::default() }
    }
}

impl Handlers {
    /// Adds `noop`, `sleep` and `exec`. `settings` are those of `exec`, or just its directory.
    ///
    /// # Errors
    /// Never, as the names are valid.
    pub fn with_builtins(self, settings: impl Into<ExecSettings>) -> Result<Self, BadId> {
        self.with_builtins_in(None, settings)
    }

    /// As [`with_builtins`](Self::with_builtins), for commands of one Task: they run in the directory `cwd`
    /// instead of this program's, and a step's own directory is counted from there (STORE-17).
    ///
    /// # Errors
    /// Never, as the names are valid.
    pub fn with_builtins_in(
        self,
        cwd: Option<String>,
        settings: impl Into<ExecSettings>,
    ) -> Result<Self, BadId> {
        self.with_builtins_where(move |_| ready(cwd.clone()), settings)
    }

    /// As [`with_builtins_in`](Self::with_builtins_in), for commands of many Tasks: `cwd` says of each Step in
    /// which directory the commands of its Task run.
    ///
    /// # Errors
    /// Never, as the names are valid.
    pub fn with_builtins_where<F, Fut>(
        self,
        cwd: F,
        settings: impl Into<ExecSettings>,
    ) -> Result<Self, BadId>
    where
        F: Fn(StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Option<String>> + Send + 'static,
    {
        let given = Arc::new((cwd, settings.into()));
        self.on(NOOP, noop)?.on(SLEEP, sleep)?.on(EXEC, move |ctx| {
            let given = Arc::clone(&given);
            async move {
                let (cwd, settings) = &*given;
                let cwd = cwd(ctx.clone()).await;
                run_command(&ctx, cwd.as_deref(), settings).await
            }
        })
    }
}

async fn noop(ctx: StepContext) -> Result<(), HandlerError> {
    Ok(ctx.complete(None)?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sleep {
    ms: u64,
}

async fn sleep(ctx: StepContext) -> Result<(), HandlerError> {
    let Sleep { ms } = match ctx.input_json() {
        Ok(input) => input,
        Err(error) => return Ok(bad_input(&ctx, "sleep takes {\"ms\": N}", &error)?),
    };
    let waits = said_if_long(&ctx, tokio::time::sleep(Duration::from_millis(ms)));
    tokio::select! {
        () = waits => Ok(ctx.complete(None)?),
        () = ctx.cancellation().cancelled() => Ok(()),
    }
}

/// Does work, and reports that it has begun (S05) if it lasts: for shorter work the event would cost more than
/// it says.
pub(super) async fn said_if_long<T>(ctx: &StepContext, work: impl Future<Output = T>) -> T {
    let says = async {
        tokio::time::sleep(LONG).await;
        let _ = ctx.start().await; // Whoever cannot be told yet learns of the end.
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        biased; // Work that is done is not reported as begun.
        done = work => done,
        never = says => match never {},
    }
}

/// Fails the Step for good, because an input that can never work is not worth another try.
fn bad_input(
    ctx: &StepContext,
    expected: &str,
    error: &dyn std::fmt::Display,
) -> Result<(), super::context::Refused> {
    ctx.reject(&format!("{expected}: {error}"))
}

async fn run_command(
    ctx: &StepContext,
    cwd: Option<&str>,
    settings: &ExecSettings,
) -> Result<(), HandlerError> {
    let (spec, mask) = match read_spec(ctx, &settings.secrets).await {
        Ok((spec, mask)) => (cwd.into_iter().fold(spec, ExecSpec::within), mask),
        Err(NoSpec::Secret(error)) => return Ok(without_secret(ctx, &error)?),
        Err(NoSpec::Form(error)) => {
            return Ok(bad_input(ctx, "exec takes a command or a shell line", &error)?);
        }
    };
    work_on(ctx, (&spec, mask), settings, LastWord::ExitCode).await
}

/// What ends a Step whose command has sent no final report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastWord {
    /// Its exit code.
    ExitCode,
    /// Only an exit code that is an error: with the code 0 the command had to send the final report.
    IsSaid,
}

/// Works on a Step by a command.
pub(super) async fn work_on(
    ctx: &StepContext,
    (spec, mask): (&ExecSpec, SecretMask),
    settings: &ExecSettings,
    last: LastWord,
) -> Result<(), HandlerError> {
    let handed_on = ctx.clone();
    let inputs = match ctx.dependencies().is_empty() {
        true => None,
        false => Some(on_disk(move || inputs_of(&handed_on)).await?),
    };
    let files = match AttemptFiles::make(ctx, &settings.files, inputs).await {
        Ok(files) => files,
        Err(why) => return Ok(lacking(ctx, why)?),
    };
    let paths = &files.paths;
    let mut environment = environment(ctx, &settings.handed_on, spec);
    let first = watch::Sender::new(None);
    let tools = match spec.has_run_tools() {
        true => {
            let tools = RunToolsOf::Step(ctx.clone());
            match RunSocket::open(tools, mask.clone(), first.subscribe()) {
                Ok(tools) => Some(tools),
                Err(error) => {
                    let is_shortage = exec::is_shortage(&error);
                    let what = format!("cannot open a socket for the tools of the run: {error}");
                    return Ok(lacking(ctx, Lack { what, is_shortage })?);
                }
            }
        }
        false => None,
    };
    environment.extend(tools.iter().flat_map(|tools| of_run(ctx, tools)));
    let run = exec::run_known(spec, paths, &environment, (ctx.cancellation(), &first));
    let written = [&*paths.stdout, &*paths.stderr, &*paths.output];
    let ended = mask.clone().over(&written[..2], said_if_long(ctx, run)).await;
    if !mask.is_empty() {
        mask.clone().over(&written[2..], ready(())).await; // What is read of it is masked by itself.
    }
    drop(tools); // From here on the command can report nothing.
    files.tidy(ended.as_ref().is_ok_and(|outcome| outcome.ended == CommandEnd::Exited(0))).await;
    match ended {
        Ok(outcome) => report(ctx, paths, &masked(outcome, &mask), last).await,
        Err(error) if error.is_of_worker() => {
            let (what, is_shortage) = (mask.text(with_cause(spec, &error)), error.is_shortage());
            Ok(lacking(ctx, Lack { what, is_shortage })?)
        }
        Err(ExecError::Output(error @ OutputError::TooLarge)) => {
            Ok(ctx.fail_too_large(&error.to_string(), &paths.output)?)
        }
        Err(error) => {
            let message = mask.text(with_cause(spec, &error));
            match error.is_retryable() {
                true => Ok(ctx.fail("exec_failed", &message, None)?),
                false => Ok(ctx.reject(&message)?),
            }
        }
    }
}

/// Why there is no command to run.
enum NoSpec {
    /// The input is none.
    Form(serde_json::Error),
    /// It names a secret that is not here.
    Secret(SecretError),
}

/// The command with the values of the secrets that it names, and the mask of these values. An input without a
/// reference is read only once.
async fn read_spec(
    ctx: &StepContext,
    secrets: &SecretSources,
) -> Result<(ExecSpec, SecretMask), NoSpec> {
    let error = match ctx.input_json::<ExecSpec>() {
        Ok(spec) => return Ok((spec, SecretMask::default())),
        Err(error) => error,
    };
    let is_short = ctx.input().and_then(Value::data).is_some_and(|it| it.len() <= SPEC_BYTES_MAX);
    let Some(mut input) = is_short.then(|| ctx.input_json::<Json>().ok()).flatten() else {
        return Err(NoSpec::Form(error));
    };
    let given = fill_in(places(&mut input), secrets).await.map_err(NoSpec::Secret)?;
    if given.is_empty() {
        return Err(NoSpec::Form(error));
    }
    let spec = serde_json::from_value(input).map_err(NoSpec::Form)?;
    Ok((spec, given.mask()))
}

/// Where an input may refer to a secret: the values of `env`, and `command` behind the program.
fn places(input: &mut Json) -> Vec<&mut Json> {
    let mut places = Vec::new();
    for (name, value) in input.as_object_mut().into_iter().flatten() {
        match (name.as_str(), value) {
            ("env", Json::Object(env)) => places.extend(env.values_mut()),
            ("command", Json::Array(words)) => places.extend(words.iter_mut().skip(1)),
            _ => {}
        }
    }
    places
}

/// Fails the Step for a secret: for good, unless a place where secrets are does not answer.
pub(super) fn without_secret(
    ctx: &StepContext,
    error: &SecretError,
) -> Result<(), super::context::Refused> {
    match error.is_retryable() {
        true => ctx.fail(error.code(), &error.to_string(), None),
        false => ctx.fail_for_good(error.code(), &error.to_string(), None),
    }
}

/// What a command left, without the secrets that it was given.
fn masked(outcome: ExecOutcome, mask: &SecretMask) -> ExecOutcome {
    let output = outcome.output.map(|output| mask.json(output));
    ExecOutcome { tail: mask.text(outcome.tail), output, ..outcome }
}

/// The error with what the system said.
fn with_cause(spec: &ExecSpec, error: &ExecError) -> String {
    match error {
        ExecError::Start { source, .. } => {
            format!("{error}: {}", exec::why_not_started(spec, source))
        }
        _ => std::error::Error::source(error)
            .map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")),
    }
}

/// Gives the Step back, because the command could not begin for lack of a resource that another
/// worker may have (LEASE-18).
fn lacking(ctx: &StepContext, lack: Lack) -> Result<(), super::context::Refused> {
    let (task, step, Lack { what, is_shortage }) = (ctx.task_id(), ctx.step_id(), lack);
    tracing::warn!(task, %step, "the step goes back, as this worker cannot run it: {what}");
    match is_shortage {
        true => ctx.give_back_lacking(what),
        false => ctx.give_back(None),
    }
}

/// The outputs that other steps hand on, as one JSON object, by step id. An output that is not JSON
/// becomes a text. They may have many megabytes, so none becomes a tree of values.
fn inputs_of(ctx: &StepContext) -> io::Result<Vec<u8>> {
    let mut all = BTreeMap::new();
    for dependency in ctx.dependencies() {
        let output = dependency.output.as_ref().map_or(Ok(Cow::Borrowed(RawValue::NULL)), as_json);
        all.insert(dependency.step_id.as_str(), output?);
    }
    Ok(serde_json::to_vec(&all)?)
}

/// An output as JSON: as it was written, if it is sound, else as a text.
fn as_json(value: &Value) -> serde_json::Result<Cow<'_, RawValue>> {
    let Some(data) = value.data() else { return Ok(Cow::Borrowed(RawValue::NULL)) };
    if value.content_type == Value::JSON && json::check(data).is_ok() {
        return serde_json::from_slice(data).map(Cow::Borrowed);
    }
    to_raw_value(&String::from_utf8_lossy(data)).map(Cow::Owned)
}

/// The variables that a command gets beside those of its Step and those that it inherits.
fn environment(ctx: &StepContext, handed_on: &[String], spec: &ExecSpec) -> Vec<(String, String)> {
    let handed_on = handed_on_to(spec, handed_on);
    let trace = ctx.traceparent().map(|trace| ("TRACEPARENT", trace.to_owned()));
    let own = [
        ("TENURE_TASK_ID", ctx.task_id().to_owned()),
        ("TENURE_SESSION_ID", ctx.session_id().to_owned()),
        ("TENURE_STEP_ID", ctx.step_id().to_string()),
        ("TENURE_ATTEMPT", ctx.attempt().to_string()),
    ];
    let own = own.into_iter().chain(trace).map(|(name, value)| (name.to_owned(), value));
    handed_on.chain(own).collect()
}

/// The variables of this process that a command gets by name. The Step's own value of such a variable comes first.
pub(super) fn handed_on_to<'a>(
    spec: &'a ExecSpec,
    handed_on: &'a [String],
) -> impl Iterator<Item = (String, String)> + 'a {
    let handed_on = handed_on.iter().filter(move |name| !spec.env().contains_key(*name));
    handed_on.filter_map(|name| Some((name.clone(), std::env::var(name).ok()?)))
}

/// The variables by which a command finds the tools of its Run.
fn of_run(ctx: &StepContext, tools: &RunSocket) -> [(String, String); 2] {
    [
        ("TENURE_RUN_ID".to_owned(), ctx.claim().run_id.to_string()),
        (RUN_SOCKET_ENV.to_owned(), tools.path().to_string_lossy().into_owned()),
    ]
}

/// Reports how a command has ended, and where it has left what it printed.
pub(super) async fn report(
    ctx: &StepContext,
    paths: &ExecPaths,
    outcome: &ExecOutcome,
    last: LastWord,
) -> Result<(), HandlerError> {
    let logs = [
        (&paths.stdout, ArtifactKind::Stdout, outcome.stdout_bytes),
        (&paths.stderr, ArtifactKind::Stderr, outcome.stderr_bytes),
    ];
    for (path, kind, size) in logs.into_iter().filter(|(.., size)| *size > 0) {
        ctx.attach(log(path, kind, size)?);
    }
    match outcome.ended {
        // What it has said of its Step itself counts, however it has ended then.
        _ if ctx.has_said() => {}
        CommandEnd::Exited(0) if last == LastWord::IsSaid => {
            send_logs(ctx).await; // Without a final report the Run ends as RUN-04 says.
            return Ok(());
        }
        CommandEnd::Exited(0) => {
            ctx.complete(outcome.output.as_ref().map(|data| Value::json(data.clone())))?;
        }
        CommandEnd::Exited(code) => {
            let details = Map::from_iter([("exit_status".to_owned(), code.into())]);
            ctx.fail("exit_status", &format!("the command exited with {code}"), Some(details))?;
        }
        CommandEnd::Signaled(signal) => {
            let details = Map::from_iter([("signal".to_owned(), signal.into())]);
            ctx.fail(
                "exit_status",
                &format!("the command died of signal {signal}"),
                Some(details),
            )?;
        }
        CommandEnd::TimedOut => {
            ctx.fail("worker_timeout", "the command took longer than its timeout", None)?;
        }
        CommandEnd::Cancelled => {
            send_logs(ctx).await; // No final report: the Run ends as cancelled (CANCEL-08).
            return Ok(());
        }
    }
    if !outcome.tail.is_empty() {
        ctx.summarise_output(&outcome.tail)?;
    }
    Ok(())
}

/// Says where the command has left what it printed, if the scheduler still takes it (TERM-23).
async fn send_logs(ctx: &StepContext) {
    let _ = tokio::time::timeout(LAST_WORDS_MAX, ctx.send_attached()).await;
}

fn log(path: &Path, kind: ArtifactKind, size: u64) -> Result<ArtifactInput, BadId> {
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(ArtifactInput {
        artifact_id: ArtifactId::new(uuid::Uuid::now_v7().to_string())?,
        name,
        description: None,
        media_type: Some(SmolStr::new_static("text/plain")),
        kind,
        uri: Some(path.display().to_string()),
        data: None,
        size_bytes: Some(size),
        digest: None,
        state: ArtifactState::Available,
    })
}
