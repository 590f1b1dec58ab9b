//! `tenure task board`: prints a short text about Tasks, for the context of a model (PROMPT).

use clap::Args;
use tenure_core::Limits;
use tenure_core::view::{BoardInput, TaskLines, board};
use tenure_ports::journal::TaskKey;

use crate::answer::{Exit, Failure, Shape, output};
use crate::place::{Cluster, TaskReader, ViewArgs, me};

/// Print tasks in few words.
#[derive(Debug, Args)]
pub(crate) struct BoardArgs {
    /// Ids of the tasks, or SESSION/ID
    #[arg(value_name = "TASK_ID", required_unless_present = "template")]
    tasks: Vec<String>,

    /// How long it may be, in tokens [default: as long as is configured]
    #[arg(long, value_name = "N")]
    tokens: Option<usize>,

    /// Print how to write a task instead
    #[arg(long, conflicts_with_all = ["tasks", "tokens"])]
    template: bool,

    #[command(flatten)]
    look: ViewArgs,
}

pub(super) fn run(args: &BoardArgs) -> Result<Exit, Failure> {
    let board = match args.template {
        true => board::template(),
        false => board_of(args)?,
    };
    args.look
        .output
        .answer(&board, Shape::nameless(), || output::print(format_args!("{}\n", board.text)))
}

fn board_of(args: &BoardArgs) -> Result<board::Board, Failure> {
    let input = BoardInput { token_budget: args.tokens };
    let data = TaskReader::open(&args.look.at)?;
    let mut lines = Vec::new();
    for task in &args.tasks {
        let key = args.look.at.key(task)?;
        lines.push(match data.cluster() {
            Some(cluster) => data.runtime.block_on(far(cluster, key, input))?,
            None => near(&data, &key, input)?,
        });
    }
    Ok(board::compose(&lines, input.budget_of(&lines)))
}

/// The lines of a Task in a cluster, whose nodes apply their budget.
async fn far(cluster: &Cluster, key: TaskKey, input: BoardInput) -> Result<TaskLines, Failure> {
    let (client, key) = cluster.find(key).await?;
    Ok(client.ask(&key.task_id, input).await?)
}

fn near(data: &TaskReader, key: &TaskKey, input: BoardInput) -> Result<TaskLines, Failure> {
    let tokens = input.budget(&Limits::default())?;
    let loaded = data.load(key)?;
    let caller = me(&loaded.key.session_id)?;
    let of_task = data.look(&loaded, |view, known| board::task_lines(view, &caller, known));
    Ok(of_task?.within(tokens))
}
