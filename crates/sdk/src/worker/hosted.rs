//! The command of a worker that has one instead of handlers: the host of a model, for instance. The worker starts it
//! for each Run of its pool, and the command does the rest with the tools of a worker
//! ([`run_tools`](super::run_tools)).
//!
//! A Run of a Task that gives its Steps out by itself is born with its claim: its command finds the Step claimed. Under
//! a Run that an orchestrator has dispatched, the command looks at the Steps in the scope and claims one. In both cases
//! the worker holds the lease, and the last word on the Step is the command's. A command that ends without a claim has
//! found nothing (DISP-12). With any exit code but 0 it has failed, and the worker declines the Run (RUN-12). One that
//! ends without a last word has failed its Step, as its exit code says, or with the code 0 as RUN-04 says.

use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tenure_core::id::{CommandId, StepId, TaskId};
use tenure_core::patch::ReasonInput;
use tenure_core::record::Object;
use tenure_core::view::{ClaimResult, Look, Looked, RunOffer, StepPage};
use tenure_core::{Code, Rejection};
use tenure_ports::bus::WorkerPort as _;
use tenure_ports::journal::TaskKey;
use tokio::fs;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::attempt_files::{AttemptDir, OWN_FILE, make_dir, on_disk, write_new};
use super::builtin::{ExecSettings, LastWord, handed_on_to, report, work_on};
use super::context::StepContext;
use super::exec::{self, CommandEnd, ExecFields, ExecOutcome, ExecPaths, ExecSpec, SpecError};
use super::handler::{Handler, HandlerError};
use super::pool::{AttemptStage, PoolShared};
use super::remove::remove_tree;
use super::run_tools::{HostedTools, RUN_SOCKET_ENV, RunSocket, RunToolsOf};
use super::runs::repeated;
use super::words::reason;
use crate::secrets::SecretMask;

/// How often a worker asks for a Run under which its command has not claimed yet. The scheduler offers a Run to others
/// if its worker does not ask for it for the length of a lease, which is a second or more.
const KEEP_EVERY: Duration = Duration::from_millis(500);

/// The command that a worker has instead of handlers.
#[derive(Debug, Clone)]
pub struct RunCommand(Arc<(ExecSpec, ExecSettings)>);

impl RunCommand {
    /// A line of shell, and what it gets of its worker.
    ///
    /// # Errors
    /// The line is none.
    pub fn shell(line: &str, settings: impl Into<ExecSettings>) -> Result<Self, SpecError> {
        let run = Some(line.to_owned());
        let fields = ExecFields { run, run_tools: true, ..ExecFields::default() };
        Ok(Self(Arc::new((fields.try_into()?, settings.into()))))
    }

    /// Works on a Step that is claimed already.
    pub(super) fn handler(&self) -> Handler {
        let command = Arc::clone(&self.0);
        Arc::new(move |ctx| {
            let command = Arc::clone(&command);
            Box::pin(async move {
                let (spec, settings) = &*command;
                work_on(&ctx, (spec, SecretMask::default()), settings, LastWord::IsSaid).await
            })
        })
    }
}

/// A command that has ended, or why there was none.
type HostedEnd = Result<ExecOutcome, String>;

/// How far the command of a dispatched Run is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum HostedStage {
    /// It may claim.
    #[default]
    Looks,
    /// It has claimed a Step.
    HasClaimed,
    /// It has ended.
    Ended,
}

/// A dispatched Run, and its command.
struct HostedRun {
    shared: Arc<PoolShared>,
    run: RunOffer,
    /// The directory with what the command prints.
    dir: PathBuf,
    /// The directory below which it is.
    files: PathBuf,
    /// Held while the command claims.
    stage: Mutex<HostedStage>,
    /// The Step that the command has claimed.
    held: watch::Sender<Option<StepContext>>,
    ended: watch::Sender<Option<Arc<HostedEnd>>>,
    /// Cancelled to ask the command to end.
    stop: CancellationToken,
    /// Ends it.
    kill: CancellationToken,
}

impl PoolShared {
    /// Runs the command for a dispatched Run to its end, with the capacity that the offer took.
    pub(super) async fn host(self: Arc<Self>, run: RunOffer, command: &RunCommand) {
        let (spec, settings) = &*command.0;
        let task = settings.files.join(run.session_id.as_str()).join(run.task_id.as_str());
        let hosted = Arc::new(HostedRun {
            dir: task.join(format!("run.{}", run.run_id)), // No Step has this name, as it has no dot.
            files: settings.files.clone(),
            shared: Arc::clone(&self),
            run,
            stage: Mutex::default(),
            held: watch::Sender::new(None),
            ended: watch::Sender::new(None),
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
        });
        let keeping = AbortOnDropHandle::new(tokio::spawn(Arc::clone(&hosted).keep()));
        let ended = Arc::clone(&hosted).carry_out(spec, &settings.handed_on).await;
        drop(keeping);
        let stage = mem::replace(&mut *hosted.stage.lock().await, HostedStage::Ended);
        let failed = failure(&ended);
        hosted.ended.send_replace(Some(Arc::new(ended)));
        let is_over = hosted.stop.is_cancelled();
        if hosted.held().is_none() {
            match failed.as_ref().filter(|_| !is_over) {
                Some(why) => {
                    let (run, why, dir) = (hosted.run.run_id, &why.message, hosted.dir.display());
                    tracing::warn!(%run, %why, %dir, "the command of a run has failed without a claim");
                }
                None => remove(&hosted.dir).await,
            }
        }
        match stage {
            HostedStage::HasClaimed => {} // Its Attempt has the capacity.
            // The worker leaves, or the Run is over. This does not mean that the command found nothing.
            _ if is_over => self.free_capacity(),
            _ => self.leave(&hosted.run, failed).await,
        }
    }
}

/// Removes the directory of a command. What cannot be removed stays.
async fn remove(dir: &Path) {
    let dir = dir.to_owned();
    let _ = on_disk(move || remove_tree(&dir)).await;
}

/// Why a command has failed, unless it has ended with the code 0.
fn failure(ended: &HostedEnd) -> Option<ReasonInput> {
    let (message, details) = match ended {
        Err(why) => (why.clone(), None),
        Ok(outcome) => match outcome.ended {
            CommandEnd::Exited(0) => return None,
            CommandEnd::Exited(code) => {
                let details = Object::from_iter([("exit_status".to_owned(), code.into())]);
                (format!("the command exited with {code}"), Some(details))
            }
            CommandEnd::Signaled(signal) => {
                let details = Object::from_iter([("signal".to_owned(), signal.into())]);
                (format!("the command died of signal {signal}"), Some(details))
            }
            CommandEnd::TimedOut => ("the command took longer than its timeout".into(), None),
            CommandEnd::Cancelled => ("the command was asked to end".into(), None),
        },
    };
    Some(reason("exec_failed", &message, details, None))
}

/// Whether there is still something to do under the Run, as a page of its Steps says.
fn goes_on(page: &StepPage) -> Result<(), Rejection> {
    match page.task_status.is_some_and(|status| status.is_terminal()) {
        true => Err(over("the task has ended")),
        false => Ok(()),
    }
}

impl HostedRun {
    /// Asks for the Run as long as nothing is claimed under it. Has the command end if the worker leaves, or the Run or
    /// its Task is over.
    async fn keep(self: Arc<Self>) {
        while self.held().is_none() {
            let asked = match self.shared.is_accepting() {
                true => {
                    let asked = self.shared.port().query(&self.run, 0).await;
                    asked.and_then(|page| goes_on(&page))
                }
                false => Err(over("the worker leaves")),
            };
            if asked.is_err_and(|no| !no.code.is_retryable()) && self.held().is_none() {
                return self.stop.cancel();
            }
            sleep(KEEP_EVERY).await;
        }
    }

    async fn carry_out(self: Arc<Self>, spec: &ExecSpec, handed_on: &[String]) -> HostedEnd {
        let cannot = |error: io::Error| format!("the command of a run cannot begin: {error}");
        let (dir, paths) = (self.dir.clone(), self.paths(&self.dir));
        let (files, made, inputs) = (self.files.clone(), dir.clone(), paths.inputs.clone());
        let prepare = move || {
            make_dir(&files, &made)?;
            write_new(&inputs, b"{}", OWN_FILE)
        };
        on_disk(prepare).await.map_err(cannot)?;
        let first = watch::Sender::new(None);
        let tools = RunToolsOf::Run(Arc::new(Arc::clone(&self)));
        let socket =
            RunSocket::open(tools, SecretMask::default(), first.subscribe()).map_err(cannot)?;
        let own = [
            ("TENURE_SESSION_ID", self.run.session_id.to_string()),
            ("TENURE_TASK_ID", self.run.task_id.to_string()),
            ("TENURE_RUN_ID", self.run.run_id.to_string()),
            (RUN_SOCKET_ENV, socket.path().to_string_lossy().into_owned()),
        ];
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        let env: Vec<_> = handed_on_to(spec, handed_on).chain(own).collect();
        let ended = tokio::select! {
            ended = exec::run_known(spec, &paths, &env, (&self.stop, &first)) => {
                ended.map_err(|error| error.to_string())
            }
            () = self.kill.cancelled() => Err("the command was ended by force".to_owned()),
        };
        let is_quiet = ended.as_ref().is_ok_and(|it| it.stdout_bytes == 0 && it.stderr_bytes == 0);
        if is_quiet && self.held().is_none() {
            remove(&dir).await;
        }
        ended
    }

    /// The Step that the command has claimed.
    fn held(&self) -> Option<StepContext> {
        self.held.borrow().clone()
    }

    /// The files of the command, in a directory.
    fn paths(&self, dir: &Path) -> ExecPaths {
        ExecPaths {
            stdout: dir.join("stdout.log"),
            stderr: dir.join("stderr.log"),
            output: self.dir.join("output.json"),
            inputs: self.dir.join("inputs.json"),
        }
    }

    /// Has what the command prints in the directory of its Attempt too, where all look for it (ART-09).
    async fn show(&self, ctx: &StepContext) -> io::Result<ExecPaths> {
        let (session_id, task_id) = (self.run.session_id.clone(), self.run.task_id.clone());
        let task = TaskKey { session_id, task_id };
        let place = AttemptDir::new(&self.files, &task, ctx.step_id(), ctx.attempt());
        let (files, dir) = (self.files.clone(), place.path().to_owned());
        on_disk(move || make_dir(&files, &dir)).await?;
        let (from, to) = (self.paths(&self.dir), self.paths(place.path()));
        for (from, to) in [(&from.stdout, &to.stdout), (&from.stderr, &to.stderr)] {
            let _ = fs::remove_file(to).await; // Such a directory is of an earlier Task with this id.
            fs::hard_link(from, to).await?;
        }
        Ok(to)
    }

    /// Holds the Step that the command has claimed, until the command has ended.
    async fn hold(self: Arc<Self>, ctx: StepContext) -> Result<(), HandlerError> {
        let _kill = self.kill.clone().drop_guard(); // Whoever drops this ends the command.
        let shown = self.show(&ctx).await;
        if let Err(error) = &shown {
            tracing::warn!(run = %self.run.run_id, %error, "what a command prints stays with its run");
        }
        let mut ended = self.ended.subscribe();
        tokio::select! {
            () = ctx.cancellation().cancelled() => self.stop.cancel(),
            _ = ended.wait_for(Option::is_some) => {}
        }
        let ended = ended.wait_for(Option::is_some).await?.clone();
        let paths = match shown {
            Ok(paths) => {
                remove(&self.dir).await;
                for log in [&paths.stdout, &paths.stderr] {
                    if fs::metadata(log).await.is_ok_and(|log| log.len() == 0) {
                        let _ = fs::remove_file(log).await;
                    }
                }
                paths
            }
            Err(_) => self.paths(&self.dir),
        };
        match ended.as_deref() {
            Some(Ok(outcome)) => report(&ctx, &paths, outcome, LastWord::IsSaid).await,
            Some(Err(why)) if !ctx.has_said() => Ok(ctx.fail("exec_failed", why, None)?),
            _ => Ok(()),
        }
    }

    /// Claims a Step, and begins it.
    async fn claim_first(
        self: Arc<Self>,
        task: TaskId,
        step: StepId,
    ) -> Result<ClaimResult, Rejection> {
        let mut stage = self.stage.lock().await;
        if let Some(ctx) = self.held() {
            return ctx.claim_another(&task, step).await;
        }
        if *stage != HostedStage::Looks || self.stop.is_cancelled() {
            return Err(over("the command is to end"));
        }
        let offer = RunOffer { task_id: task, ..self.run.clone() };
        let command = CommandId::new(Uuid::now_v7().to_string())?;
        let shared = &self.shared;
        shared.early.lock().begin();
        let claimed = repeated(|| shared.port().claim(&offer, &step, &command)).await;
        let (begins, mut begun) = mpsc::channel(1);
        if let Ok(claim) = &claimed {
            let hosted = Arc::clone(&self);
            let handler: Handler = Arc::new(move |ctx| {
                hosted.held.send_replace(Some(ctx.clone()));
                let _ = begins.try_send(()); // It is called once.
                Box::pin(Arc::clone(&hosted).hold(ctx))
            });
            *stage = HostedStage::HasClaimed;
            shared.begin(claim.clone(), AttemptStage::Kept, Some(handler));
        }
        shared.early.lock().end();
        let claim = claimed?;
        match begun.recv().await {
            Some(()) => Ok(claim),
            None => {
                self.stop.cancel(); // The command has nothing to do.
                Err(over("the step was over before it began"))
            }
        }
    }
}

fn over(why: &str) -> Rejection {
    Rejection::new(Code::RunEnded, why)
}

impl HostedTools for Arc<HostedRun> {
    fn offer(&self) -> &RunOffer {
        &self.run
    }

    fn held(&self) -> Option<StepContext> {
        HostedRun::held(self)
    }

    fn look(&self, task: TaskId, look: Look) -> BoxFuture<'static, Result<Looked, Rejection>> {
        let (shared, run_id) = (Arc::clone(&self.shared), self.run.run_id);
        let task = TaskKey { session_id: self.run.session_id.clone(), task_id: task };
        Box::pin(async move { repeated(|| shared.port().look(&task, run_id, look.clone())).await })
    }

    fn claim(
        &self,
        task: TaskId,
        step: StepId,
    ) -> BoxFuture<'static, Result<ClaimResult, Rejection>> {
        // The claim goes on if the command ends meanwhile, so that the worker holds the Step that is claimed.
        let claiming = tokio::spawn(Arc::clone(self).claim_first(task, step));
        Box::pin(async move {
            claiming.await.unwrap_or_else(|error| {
                Err(Rejection::new(Code::Unavailable, format!("the claim has broken off: {error}")))
            })
        })
    }
}
