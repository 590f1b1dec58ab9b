//! `tenure lease list`

use serde::Serialize;
use tenure_wire::bus::operate::LeaseRow;

use crate::answer::{Exit, Failure, Shape, Sheet, Tone, human, number, output, text, toned};
use crate::place::FleetArgs;

#[derive(Serialize)]
struct LeaseListing {
    leases: Vec<LeaseRow>,
}

pub(super) fn run(args: &FleetArgs) -> Result<Exit, Failure> {
    let leases = args.ask(async |client| Ok(client.leases().await?))?;
    let listing = LeaseListing { leases };
    args.output.answer(&listing, Shape::many("leases", "attempt_id"), || {
        if listing.leases.is_empty() {
            output::say(format_args!("no lease in session {}: nothing runs", args.session));
            return Ok(());
        }
        sheet(&listing.leases).print()
    })
}

fn sheet(leases: &[LeaseRow]) -> Sheet {
    let mut sheet = Sheet::new(&["TASK", "STEP", "TRY", "WORKER", "LEASE", "ATTEMPT"]);
    for row in leases {
        let lease = match row.left_ms {
            None => toned("none", Tone::Bad),
            Some(0) => toned("has ended", Tone::Bad),
            Some(left) => number(human::duration(left)),
        };
        let (step, ordinal, worker) = match &row.open {
            Some(open) => {
                (text(&open.step_id), number(open.ordinal), text(human::worker(&open.worker_id)))
            }
            None => (toned("not open", Tone::Bad), text(""), text("")),
        };
        let (task, attempt) = (toned(&row.task_id, Tone::Strong), text(row.attempt_id));
        sheet.row([task, step, ordinal, worker, lease, attempt]);
    }
    sheet
}
