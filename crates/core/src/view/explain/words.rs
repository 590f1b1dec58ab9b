//! Writes a reason as one line for people.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::super::summary::unfinished;
use super::{Case, DependencyState, Evidence};
use crate::eligibility::Obstacle;
use crate::record::Reason;

/// How many Steps one line names.
const NAMED_MAX: usize = 5;

impl Case<'_, '_> {
    pub(super) fn words(&self, code: Obstacle, evidence: &Evidence) -> String {
        use Obstacle as O;
        let id = self.step.id();
        match (code, evidence) {
            (O::TaskDraft, _) => match unfinished(self.view) {
                Some(reason) => reason.message,
                None => "the task is a draft and was not submitted".into(),
            },
            (O::TaskFailing, Evidence::Task { reason, .. }) => {
                let why = because(reason.as_deref());
                format!("the task is failing and gives out no more steps{why}")
            }
            (_, Evidence::Task { task_status, reason }) => {
                format!("the task is {task_status}{}", because(reason.as_deref()))
            }
            (_, Evidence::Closing { intent, .. }) => {
                format!("the task is being closed (intent {intent})")
            }
            (O::NeedsDispatch, _) => {
                format!(
                    "step {id} is ready; its task gives nothing out by itself, and no run may claim it"
                )
            }
            (O::RunnableNow, _) if self.run.is_none() && self.known.means.is_none() => {
                format!("step {id} is ready; whether a worker has room for it is not known here")
            }
            (O::RunnableNow, _) => format!("step {id} can be claimed now"),
            (_, Evidence::Step { step_status, reason, wait_kind, .. }) => match wait_kind {
                Some(kind) => {
                    format!("step {id} is blocked, waiting for {kind}{}", because(reason.as_ref()))
                }
                None => format!("step {id} is {step_status}{}", because(reason.as_ref())),
            },
            (_, Evidence::Assigned { claim_only_by }) => {
                format!("only {claim_only_by} may claim step {id}")
            }
            (O::DependencyUnsatisfiable, Evidence::Dependencies { roots, more_roots, .. }) => {
                format!("step {id} waits in vain: {}", list(roots, *more_roots))
            }
            (_, Evidence::Dependencies { roots, more_roots, .. }) if !roots.is_empty() => {
                format!("step {id} waits for {}", list(roots, *more_roots))
            }
            (_, Evidence::Dependencies { .. }) => format!("step {id} is about to become ready"),
            (_, Evidence::Until { in_ms, .. }) => format!("step {id} is tried again in {in_ms} ms"),
            (_, Evidence::Held { holder, .. }) => format!(
                "step {id} is held by {} under run {} (lease {})",
                holder.claimed_by_agent_id, holder.claimed_by_run_id, holder.lease_state
            ),
            (O::LeasesUnavailable, Evidence::Trouble { trouble }) => {
                format!("no lease can be had: {trouble}")
            }
            (_, Evidence::Trouble { trouble }) => format!("the log takes no writes: {trouble}"),
            (_, Evidence::Pool { worker_id: Some(worker), worker_pool_id: pool, .. }) => {
                let only = match self.whom.worker {
                    Some(_) => String::new(),
                    None => format!(", and no other may claim step {id}"),
                };
                match code {
                    O::NoWorkerInPool => format!("worker {worker} is not in pool {pool}{only}"),
                    O::NoWorkerServesSession => {
                        let session = &self.view.head().spec.session_id;
                        format!("worker {worker} does not serve session {session}{only}")
                    }
                    O::NoWorkerWithHandler => {
                        let handler = &self.step.spec.handler;
                        format!("worker {worker} does not have handler {handler}{only}")
                    }
                    _ => format!("worker {worker} is busy{only}"),
                }
            }
            (O::NoWorkerInPool, Evidence::Pool { worker_pool_id, .. }) => {
                format!("no worker of pool {worker_pool_id} has asked for work")
            }
            (O::NoWorkerServesSession, Evidence::Pool { worker_pool_id: pool, workers, .. }) => {
                let session = &self.view.head().spec.session_id;
                format!("no worker of pool {pool} serves session {session} ({workers} known)")
            }
            (O::NoWorkerWithHandler, Evidence::Pool { worker_pool_id: pool, workers, .. }) => {
                let handler = &self.step.spec.handler;
                format!("no worker of pool {pool} has handler {handler} ({workers} known)")
            }
            (_, Evidence::Pool { worker_pool_id: pool, workers, able, .. }) if able < workers => {
                let handler = &self.step.spec.handler;
                format!(
                    "all workers of pool {pool} with handler {handler} are busy ({able} of {workers})"
                )
            }
            (_, Evidence::Pool { worker_pool_id, workers, .. }) => {
                format!("all workers of pool {worker_pool_id} are busy ({workers} known)")
            }
            (_, Evidence::Run { run_id, run_state, .. }) => {
                format!("run {run_id} ({run_state}) may not, or no longer, claim step {id}")
            }
        }
    }
}

fn because(reason: Option<&Reason>) -> String {
    match reason {
        Some(reason) if reason.message == reason.code => format!(": {}", reason.code),
        Some(reason) if reason.message.is_empty() => format!(": {}", reason.code),
        Some(reason) => format!(": {} ({})", reason.message, reason.code),
        None => String::new(),
    }
}

/// A list such as `a (failed: lost), b (cancelled) and 3 more`.
fn list(steps: &[DependencyState], more: usize) -> String {
    let one = |s: &DependencyState| match &s.code {
        Some(code) => format!("{} ({}: {code})", s.step_id, s.status),
        None => format!("{} ({})", s.step_id, s.status),
    };
    let named: Vec<String> = steps.iter().take(NAMED_MAX).map(one).collect();
    match steps.len().saturating_sub(NAMED_MAX) + more {
        0 => named.join(", "),
        rest => format!("{} and {rest} more", named.join(", ")),
    }
}
