//! Cuts a create that is too long for one message into a draft and patches (mechanisms 10,
//! IDEM-07).
//!
//! The parts depend only on the content of the create: a repeated create makes the same parts under the
//! same ids, whoever sends it, so it continues where an earlier one was broken off.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use tenure_core::command::create::CreateTask;
use tenure_core::creation::Creation;
use tenure_core::id::{CommandId, Digest, DigestForm, StepId, system_agent};
use tenure_core::patch::{Operation, StepInput};
use tenure_core::{Command, Rejection};
use tenure_wire::bus::encode;
use tenure_wire::digest::{DigestError, digest_command};

/// The bytes that a patch needs for a Step beside the Step itself.
const AROUND_A_STEP: usize = 32;

/// A create in parts, in the order in which they are sent.
#[derive(Debug)]
pub(super) struct CreateParts {
    /// A draft with the first Steps; the whole create, if one part is enough.
    pub(super) first: CreateTask,
    /// Patches that add the other Steps, and the ids of these commands.
    pub(super) rest: Vec<(CommandId, Command)>,
}

/// Cuts a create into parts of about `most` bytes. A Step comes after those that it
/// depends on, and otherwise in its place.
pub(super) fn cut(input: CreateTask, most: usize) -> Result<CreateParts, Rejection> {
    let of_digest = |error: DigestError| Rejection::invalid("steps", error.to_string());
    let draft = input.draft.unwrap_or(false);
    let whole = u32::try_from(input.steps.len()).unwrap_or(u32::MAX);
    let mut first = input;
    let steps = in_order(std::mem::take(&mut first.steps));
    let mut parts: Vec<Vec<StepInput>> = vec![Vec::new()];
    let mut bytes = encode(&first)?.len();
    for step in steps {
        let more = encode(&step)?.len() + AROUND_A_STEP;
        if bytes + more > most {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += more;
        if let Some(part) = parts.last_mut() {
            part.push(step);
        }
    }
    let mut parts = parts.into_iter();
    first.steps = parts.next().unwrap_or_default();
    let rest: Vec<Command> = parts.map(patch).collect();
    // In the newest form it does not matter who asks.
    let anybody = system_agent();
    let digests = rest.iter().map(|it| digest_command(DigestForm::NEWEST, &anybody, it));
    let digests: Vec<Digest> = digests.collect::<Result<_, _>>().map_err(of_digest)?;
    let creation = Creation { digest: Creation::digest_of(digests), draft, steps: whole };
    if !rest.is_empty() {
        first = CreateTask { creation: Some(creation), draft: Some(true), ..first };
    }
    let rest = (1..).zip(rest).map(|(number, command)| Ok((creation.part(number)?, command)));
    Ok(CreateParts { rest: rest.collect::<Result<_, Rejection>>()?, first })
}

fn patch(steps: Vec<StepInput>) -> Command {
    let operations = steps.into_iter().map(|step| Operation::AddStep { reason: None, step });
    Command::TaskUpdate { operations: operations.collect() }
}

/// Steps in their order, but each behind those that it depends on. Steps that depend on each other
/// stay at the end, where the scheduler refuses them.
fn in_order(steps: Vec<StepInput>) -> Vec<StepInput> {
    let places: HashMap<StepId, usize> =
        steps.iter().enumerate().map(|(at, step)| (step.step_id.clone(), at)).collect();
    let mut unmet = vec![0_usize; steps.len()];
    let mut dependents = vec![Vec::new(); steps.len()];
    for (at, step) in steps.iter().enumerate() {
        for on in step.depends_on_step_ids.iter().filter_map(|id| places.get(id)) {
            unmet[at] += 1;
            dependents[*on].push(at);
        }
    }
    let free = unmet.iter().enumerate().filter(|(_, unmet)| **unmet == 0);
    let mut free: BinaryHeap<_> = free.map(|(at, _)| Reverse(at)).collect();
    let mut steps: Vec<_> = steps.into_iter().map(Some).collect();
    let mut ordered = Vec::with_capacity(steps.len());
    while let Some(Reverse(at)) = free.pop() {
        ordered.extend(steps[at].take());
        for dependent in std::mem::take(&mut dependents[at]) {
            unmet[dependent] -= 1;
            if unmet[dependent] == 0 {
                free.push(Reverse(dependent));
            }
        }
    }
    ordered.extend(steps.into_iter().flatten());
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(id: &str, after: &[&str]) -> StepInput {
        let id_of = |text: &str| StepId::new(text).unwrap();
        StepInput {
            assignee: None,
            claim_only_by: None,
            ext: None,
            depends_on_step_ids: after.iter().copied().map(id_of).collect(),
            handler: None,
            input: None,
            inputs_from: None,
            required: None,
            retry_policy: None,
            step_id: id_of(id),
            summary: "x".repeat(1000).into(),
            title: id.into(),
            worker_pool_id: None,
        }
    }

    fn create(steps: Vec<StepInput>) -> CreateTask {
        CreateTask { steps, title: "t".into(), ..CreateTask::default() }
    }

    fn ids<'a>(steps: impl IntoIterator<Item = &'a StepInput>) -> Vec<&'a str> {
        steps.into_iter().map(|step| step.step_id.as_str()).collect()
    }

    fn added((_, command): &(CommandId, Command)) -> Vec<&str> {
        let Command::TaskUpdate { operations } = command else { panic!("{command:?}") };
        let mut steps = Vec::new();
        for operation in operations {
            let Operation::AddStep { step, .. } = operation else { panic!("{operation:?}") };
            steps.push(step.step_id.as_str());
        }
        steps
    }

    #[test]
    fn a_long_create_becomes_a_draft_and_patches() {
        let steps = vec![step("a", &[]), step("b", &["a"]), step("c", &[]), step("d", &[])];
        let CreateParts { first, rest } = cut(create(steps.clone()), 2500).unwrap();
        let creation = first.creation.unwrap();
        assert_eq!((first.draft, creation.draft, creation.steps), (Some(true), false, 4));
        assert_eq!(ids(&first.steps), ["a", "b"]);
        assert_eq!(rest.iter().map(added).collect::<Vec<_>>(), [["c", "d"]]);
        assert_eq!(rest[0].0, creation.part(1).unwrap());
        let digest_of = |steps| cut(create(steps), 2500).unwrap().first.creation.unwrap().digest;
        assert_eq!(digest_of(steps.clone()), creation.digest);
        let mut changed = steps;
        changed[3].title = "changed".into();
        assert_ne!(digest_of(changed), creation.digest);
    }

    #[test]
    fn a_draft_that_was_asked_for_stays_one_and_what_fits_is_not_cut() {
        let steps = vec![step("a", &[]), step("b", &[]), step("c", &[])];
        let draft = CreateTask { draft: Some(true), ..create(steps.clone()) };
        assert!(cut(draft.clone(), 2500).unwrap().first.creation.unwrap().draft);
        let whole = cut(draft.clone(), 1 << 20).unwrap();
        assert_eq!((whole.first, whole.rest.len()), (draft, 0));
        assert_eq!(cut(create(steps), 1 << 20).unwrap().first.draft, None);
    }

    #[test]
    fn a_step_comes_after_those_it_waits_for() {
        let steps = vec![step("a", &["d"]), step("b", &[]), step("c", &["a"]), step("d", &[])];
        assert_eq!(ids(&in_order(steps)), ["b", "d", "a", "c"]);
        let ordered = vec![step("a", &[]), step("b", &["a"]), step("c", &["elsewhere"])];
        assert_eq!(ids(&in_order(ordered)), ["a", "b", "c"]);
    }

    #[test]
    fn steps_that_wait_for_each_other_are_not_lost() {
        let steps = vec![step("a", &["b"]), step("b", &["a"]), step("c", &[])];
        assert_eq!(ids(&in_order(steps)), ["c", "a", "b"]);
    }

    #[test]
    fn a_step_longer_than_a_part_goes_alone() {
        let CreateParts { first, rest, .. } = cut(create(vec![step("a", &[])]), 100).unwrap();
        assert!(first.steps.is_empty());
        assert_eq!(rest.iter().map(added).collect::<Vec<_>>(), [["a"]]);
    }
}
