//! `tenure top`: shows the present state of a cluster, and the rates of its work.
//!
//! [`feed`] asks the cluster again and again, [`model`] puts the answers together and computes
//! rates from two of them, [`screen`] makes lines of that, and [`ui`] has what the user has chosen.
//! Only [`terminal`] uses a terminal. Without one, `tenure top` prints the same as text or as JSON.

mod feed;
mod model;
mod screen;
mod snapshot;
mod terminal;
mod ui;

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use tenure_core::id::SessionId;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use self::feed::FeedMessage;
use self::model::Model;
use self::screen::ScreenInput;
use self::snapshot::TopSnapshot;
use self::terminal::Screen;
use self::ui::{Ui, Wish};
use crate::answer::{Exit, Failure, Stream, human, output};
use crate::place::LookArgs;
use crate::runtime::{StopSignals, one_thread};

/// The shortest time between two requests: it waits a quarter of a second for nodes, so more would
/// tell nothing new.
const EVERY_MIN: Duration = Duration::from_millis(200);

/// How often to draw the screen again if nothing happens, because it shows how old the answers are.
const LOOK: Duration = Duration::from_secs(1);

/// How long a cluster may take to answer everything once.
const WHOLE: Duration = Duration::from_secs(10);

/// The width of text without a terminal.
const WIDTH: usize = 120;

const AFTER_HELP: &str = "\
Keys: q, Esc, Ctrl-C leave; Tab or left and right choose a section; j, k, up, down, PgUp,
PgDn, g, G scroll it; p stands still; ? explains the columns. The sickest stand on top.";

/// Watch a cluster: nodes, pools, workers, and what has run longest.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    cluster: LookArgs,

    /// Session whose attempts are shown
    #[arg(long, value_name = "NAME", env = "TENURE_SESSION", default_value = "default")]
    session: SessionId,

    /// How often the cluster is asked, such as 500ms or 5s
    #[arg(long, value_name = "TIME", value_parser = every, default_value = "1s")]
    every: Duration,

    /// Print everything once and leave: as text, or as -o says
    #[arg(long)]
    once: bool,

    /// Print everything as JSON instead: once, or a line each time
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT")]
    output: Option<TopFormat>,

    /// With -o jsonl: leave after so many lines
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// How everything is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TopFormat {
    /// Everything, once
    Json,
    /// Everything each time, on a line
    Jsonl,
}

fn every(text: &str) -> Result<Duration, String> {
    let every = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match every < EVERY_MIN {
        true => Err(format!("at least {}", humantime::format_duration(EVERY_MIN))),
        false => Ok(every),
    }
}

/// Shows the screen, or prints.
pub(crate) fn run(args: &TopArgs) -> Result<Exit, Failure> {
    if args.count.is_some() && args.output != Some(TopFormat::Jsonl) {
        return Err(Failure::new(Exit::Usage, "--count goes with -o jsonl"));
    }
    let is_live = args.output.is_none() && !args.once;
    if is_live && !Stream::Stdout.is_terminal() {
        return Err(Failure::new(Exit::Usage, "a live view needs a terminal, and stdout is none")
            .help("--once or -o json prints it once, -o jsonl a line each time"));
    }
    let runtime = one_thread()?;
    let ended = runtime.block_on(async {
        let mut stop = StopSignals::listen()?;
        let caller = tokio::select! {
            caller = args.cluster.caller() => caller?,
            () = stop.asked() => return Ok(Exit::Interrupted),
        };
        let model = Model::new(caller.address(), args.session.clone());
        let news = feed::start(caller, args.session.clone(), args.every);
        match args.output {
            None if is_live => live(args.every, model, news, &mut stop).await,
            Some(TopFormat::Jsonl) if !args.once => tokio::select! {
                ended = lines(model, news, args.count) => ended,
                () = stop.asked() => Ok(Exit::Interrupted),
            },
            format => tokio::select! {
                ended = once(model, news, format) => ended,
                () = stop.asked() => Ok(Exit::Interrupted),
            },
        }
    });
    runtime.shutdown_background(); // Do not wait for requests under way.
    ended
}

impl Model {
    fn take(&mut self, news: FeedMessage) -> Result<(), Failure> {
        match news {
            FeedMessage::Nodes(Ok(heard)) => self.note_nodes(heard, Instant::now()),
            FeedMessage::Nodes(Err(silence)) => self.note_silence(silence.message),
            FeedMessage::Leases(leases) => self.note_leases(leases, Instant::now()),
            FeedMessage::Refused(failure) => return Err(failure),
        }
        Ok(())
    }

    fn now(&self) -> TopSnapshot {
        self.snapshot(Instant::now(), human::now())
    }
}

/// The failure if the feed ends before its receiver, which would be a defect.
fn silenced() -> Failure {
    Failure::new(Exit::Unavailable, "the cluster is no longer asked")
}

/// Shows the whole screen until the user leaves.
async fn live(
    every: Duration,
    mut model: Model,
    mut news: mpsc::Receiver<FeedMessage>,
    stop: &mut StopSignals,
) -> Result<Exit, Failure> {
    let has_colour = Stream::Stdout.has_colour();
    let mut screen = Screen::open().map_err(Failure::cannot(DRAW))?;
    let mut events = terminal::events();
    let mut ui = Ui::new();
    let mut snapshot = model.now();
    loop {
        let mut shown = ui.shown;
        let view = ScreenInput { snapshot: &snapshot, ui: &ui, every: Some(every), has_colour };
        let drawn = screen.draw(|frame| shown = screen::draw(frame, &view));
        drawn.map_err(Failure::cannot(DRAW))?;
        ui.shown = shown;
        tokio::select! {
            () = stop.asked() => return Ok(Exit::Ok),
            event = events.recv() => {
                let Some(event) = event else { return Ok(Exit::Ok) };
                let event = event.map_err(Failure::cannot("read from the terminal"))?;
                if ui.take(&event) == Wish::Leave {
                    return Ok(Exit::Ok);
                }
            }
            heard = news.recv() => model.take(heard.ok_or_else(silenced)?)?,
            () = sleep(LOOK) => {}
        }
        if !ui.is_paused {
            snapshot = model.now();
        }
    }
}

/// Prints everything once, with the rates, which need two answers.
async fn once(
    mut model: Model,
    mut news: mpsc::Receiver<FeedMessage>,
    format: Option<TopFormat>,
) -> Result<Exit, Failure> {
    let told = timeout(WHOLE, async {
        while !model.is_whole() {
            model.take(news.recv().await.ok_or_else(silenced)?)?;
        }
        Ok::<_, Failure>(())
    });
    if let Ok(told) = told.await {
        told?; // Otherwise print what is known.
    }
    model.is_heard().map_err(|why| Failure::new(Exit::Unavailable, why).help(SERVE))?;
    match format {
        Some(TopFormat::Json) => output::print_json(&model.now())?,
        Some(TopFormat::Jsonl) => drop(output::print_line(&model.now())?),
        None => output::print(screen::text(&model.now(), width()))?,
    }
    Ok(Exit::Ok)
}

/// What a broken terminal does not allow: completes "cannot ...".
const DRAW: &str = "draw on the terminal";

const SERVE: &str = "does a node serve the cluster? `tenure serve` runs one";

/// The width of the terminal, if there is one.
fn width() -> usize {
    let size = ratatui::crossterm::terminal::size();
    let is_terminal = Stream::Stdout.is_terminal();
    size.ok().filter(|_| is_terminal).map_or(WIDTH, |(width, _)| width.into())
}

/// Prints a line for each time that it asked the cluster, even if there was no answer.
async fn lines(
    mut model: Model,
    mut news: mpsc::Receiver<FeedMessage>,
    count: Option<u64>,
) -> Result<Exit, Failure> {
    let mut said = 0;
    while count.is_none_or(|count| said < count) {
        let heard = news.recv().await.ok_or_else(silenced)?;
        let is_turn = matches!(heard, FeedMessage::Nodes(_));
        model.take(heard)?;
        if is_turn {
            if !output::print_line(&model.now())? {
                return Ok(Exit::Ok);
            }
            said += 1;
        }
    }
    Ok(Exit::Ok)
}
