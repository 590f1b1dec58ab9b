//! `tenure attempt get`: an Attempt in full.

use clap::Args;
use tenure_core::id::{Millis, Ref};
use tenure_core::view::{AttemptView, View};

use crate::answer::{Exit, Failure, Shape, Sheet, Tone, human, status, toned};
use crate::place::OfTask;

/// Show an attempt.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    of: OfTask,

    /// Id of the attempt or how only it begins, or STEP_ID for its newest, or STEP_ID/N for the Nth
    #[arg(value_name = "ATTEMPT")]
    attempt: String,
}

pub(super) fn run(args: &GetArgs) -> Result<Exit, Failure> {
    let (data, loaded) = args.of.load()?;
    data.look(&loaded, |view, known| {
        let attempt = find(view, &args.attempt).ok_or_else(|| {
            let message = format!("no attempt `{}` in task {}", args.attempt, loaded.key);
            let help = format!("`tenure attempt list {}` shows them", loaded.key);
            Failure::new(Exit::NotFound, message).help(help)
        })?;
        let attempt = AttemptView::of(view, attempt, known);
        let shape = Shape::one("attempt_id");
        args.of.look.output.answer(&attempt, shape, || fields(&attempt, known.now).print())
    })
}

/// The Attempt that `name` means: by its id, or by its Step and number.
fn find<'a>(view: &View<'a>, name: &str) -> Option<&'a tenure_core::task::Attempt> {
    let (step, ordinal) = match name.rsplit_once('/') {
        Some((step, ordinal)) => (step, Some(ordinal.parse::<u32>().ok()?)),
        None => (name, None),
    };
    let of_step = view.attempts().filter(|a| a.step_id.as_str() == step);
    let of_step = of_step.filter(|a| ordinal.is_none_or(|n| n == a.ordinal));
    if let Some(newest) = of_step.max_by_key(|a| a.ordinal) {
        return Some(newest);
    }
    let mut begins = view.attempts().filter(|a| a.attempt_id.to_string().starts_with(name));
    begins.next().filter(|_| begins.next().is_none())
}

/// An Attempt in full.
fn fields(attempt: &AttemptView, now: Millis) -> Sheet {
    let refs = |refs: &[Ref]| {
        let names: Vec<String> = refs.iter().map(|one| human::cut(one.as_str(), 200)).collect();
        names.join("\n")
    };
    let why = attempt.error.as_ref().map(|why| format!("{}: {}", why.code, why.message));
    let mut sheet = Sheet::bare();
    sheet.field("attempt", attempt.attempt_id);
    sheet.field("step", format_args!("{}, attempt {}", attempt.step_id, attempt.ordinal));
    sheet.row([toned("status", Tone::Faint), status::cell(attempt.normalized_status)]);
    sheet.field("outcome", attempt.outcome.map(|outcome| outcome.to_string()).unwrap_or_default());
    sheet.field("why", why.unwrap_or_default());
    sheet.field("worker", &attempt.worker_id);
    sheet.field("run", attempt.run_id);
    sheet.field("fencing token", attempt.fencing_token);
    sheet.field("started", human::local_and_ago(attempt.started_at, now));
    sheet.field("took", human::between(attempt.started_at, attempt.ended_at.unwrap_or(now)));
    sheet.field("said", attempt.completion_summary.as_deref().unwrap_or_default());
    sheet.field("given", refs(&attempt.input_refs));
    sheet.field("made", refs(&attempt.output_refs));
    sheet.field("checkpoints", refs(&attempt.checkpoint_refs));
    sheet
}
