//! `tenure task board`: Tasks in few words, for the context of a model (PROMPT).

use clap::Args;
use tenure_core::Limits;
use tenure_core::view::{BoardInput, board};

use super::super::args::{Place, Shape};
use super::super::data::Data;
use crate::cli::exit::{Exit, Failure};
use crate::cli::output;

/// Print tasks in few words.
#[derive(Debug, Args)]
pub(crate) struct BoardArgs {
    /// Ids of the tasks, or SESSION/ID
    #[arg(value_name = "TASK_ID", required_unless_present = "template")]
    tasks: Vec<String>,

    /// How long it may be, in tokens
    #[arg(long, value_name = "N")]
    tokens: Option<usize>,

    /// Print how to write a task instead
    #[arg(long, conflicts_with_all = ["tasks", "tokens"])]
    template: bool,

    #[command(flatten)]
    place: Place,
}

pub(super) fn run(args: &BoardArgs) -> Result<Exit, Failure> {
    let board = match args.template {
        true => board::template(),
        false => board_of(args)?,
    };
    args.place
        .output
        .answer(&board, Shape::nameless(), || output::print(format_args!("{}\n", board.text)))?;
    Ok(Exit::Ok)
}

fn board_of(args: &BoardArgs) -> Result<board::Board, Failure> {
    let tokens = BoardInput { token_budget: args.tokens }.budget(&Limits::default())?;
    let data = Data::open(&args.place)?;
    let mut lines = Vec::new();
    for task in &args.tasks {
        let loaded = data.load(&args.place.key(task)?)?;
        let caller = tenure::embedded::orchestrator(loaded.key.session_id.clone())
            .map_err(|error| Failure::caused(Exit::Usage, &error))?;
        let of_task = data.look(&loaded, |view, known| board::task_lines(view, &caller, known));
        lines.push(of_task?.within(tokens));
    }
    Ok(board::compose(&lines, tokens))
}
