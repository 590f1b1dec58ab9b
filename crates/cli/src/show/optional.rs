//! Says once that a Task has all it needs, and only waits for optional Steps (POL-06).

use tenure_core::view::View;

use super::words::steps;

/// How many Steps to name.
const NAMED: usize = 5;

/// Whether it was said.
#[derive(Debug, Default)]
pub(super) struct OptionalWait {
    is_said: bool,
}

impl OptionalWait {
    /// The line, at the first commit after which the Task waits.
    pub(super) fn begins(&mut self, view: &View<'_>) -> Option<String> {
        let (head, tally) = (view.head(), view.tally());
        if self.is_said || head.status.is_terminal() || tally.required == 0 {
            return None;
        }
        if view.is_closing() || !head.waits_for_optional(tally) {
            return None;
        }
        self.is_said = true;
        let open =
            || view.steps().filter(|step| !step.spec.required && !step.status().is_settled());
        let mut names: Vec<&str> = open().take(NAMED).map(|step| step.id().as_str()).collect();
        let all = open().count();
        if all > NAMED {
            names.push("…");
        }
        let all = steps(u32::try_from(all).unwrap_or(u32::MAX)).replacen(' ', " optional ", 1);
        let names = names.join(", ");
        Some(format!("all required steps are completed; the task waits for {all}: {names}"))
    }
}
