//! What a patch would do: `POST …/patch?plan=true`. It is decided here by the code of the core, on a copy
//! of the Task.

use tenure_core::view::{PatchPlan, Premises, plan_patch};
use tenure_core::{Caller, Command, Rejection};
use tenure_ports::ClientPort;
use tenure_sdk::client::Client;
use tenure_wire::bus::request::RequestHead;

use super::fold::LogReplica;

/// Plans a patch for this caller.
///
/// # Errors
/// Those of the patch; the log of the Task cannot be read.
pub(super) async fn of<P: ClientPort>(
    client: &Client<P>,
    caller: &Caller,
    head: &RequestHead,
    command: Command,
) -> Result<PatchPlan, Rejection> {
    let Command::TaskUpdate { operations } = command else {
        return Err(Rejection::invalid("operation", "only a patch can be planned"));
    };
    let Some(task) = &head.task_id else {
        return Err(Rejection::invalid("task_id", "a patch is of a task"));
    };
    let folded = LogReplica::read(client, task).await?;
    let limits = folded.limits();
    folded.look(|task, known| {
        let premises = Premises {
            caller,
            expected_version: head.expected_version,
            expected_spec_version: head.expected_spec_version,
            limits: &limits,
            known,
        };
        plan_patch(task, operations, &premises)
    })
}
