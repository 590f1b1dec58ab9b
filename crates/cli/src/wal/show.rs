//! `tenure wal show`: prints the events of a Task while it reads them, however long the log is.

use std::io::{self, Write};
use std::ops::{ControlFlow, RangeInclusive};

use clap::Args;
use serde::Deserialize;
use tenure_core::event::{Body, Event};
use tenure_core::id::Millis;

use super::describe::describe;
use crate::answer::output::{self, Paint, Stream, Tone, stream};
use crate::answer::{Exit, Failure, Format, did_you_mean, human};
use crate::place::scan::{self, Broken, LineReader, LogEnd, LogFile, NextLine};
use crate::place::{OfTask, TaskReader};

/// Longest description on a line.
const WORDS_MAX: usize = 120;

/// Print the events of a task.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    of: OfTask,

    /// From this event on
    #[arg(long, value_name = "SEQ", default_value_t = 1)]
    from: u64,

    /// Up to and with this event
    #[arg(long, value_name = "SEQ")]
    to: Option<u64>,

    /// Only events of this type (repeatable)
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = event_type)]
    types: Vec<String>,

    /// The lines as they are stored, unjudged: torn and damaged ones too
    #[arg(long)]
    raw: bool,
}

fn event_type(text: &str) -> Result<String, String> {
    let name = text.strip_prefix("step_").map(|rest| format!("task_step_{rest}"));
    let name = name.unwrap_or_else(|| text.to_owned());
    if Body::TYPES.contains(&name.as_str()) {
        return Ok(name);
    }
    let known = Body::TYPES.iter().copied();
    Err(did_you_mean(&name, known)
        .unwrap_or_else(|| format!("event types are: {}", Body::TYPES.join(", "))))
}

pub(super) fn run(args: &ShowArgs) -> Result<Exit, Failure> {
    let data = TaskReader::open(&args.of.look.at)?;
    let log = data.find(&args.of.key()?)?;
    let mut ended = Ok(LogEnd::Left);
    // A terminal gets nothing that steers it; a file or another program gets the very bytes.
    let is_copy = args.raw && !Stream::Stdout.is_terminal();
    let show = |out: &mut dyn Write| {
        if args.raw {
            return raw(out, &log, args);
        }
        ended = events(out, &log, args);
        Ok(())
    };
    match is_copy {
        true => output::copy(show)?,
        false => stream(show)?,
    }
    let ended = match ended {
        Err(Broken::Refused(error)) => {
            // A closed pipe means that the reader has seen enough.
            output::unless_closed(Err(error)).map_err(output::unwritten)?;
            LogEnd::Left
        }
        ended => ended?,
    };
    if let LogEnd::Torn { at, bytes } = ended {
        output::warn(format_args!(
            "{}:{} (byte {}): {}, {}: a write that broke off, or is going on just now",
            log.path.display(),
            at.line,
            at.offset,
            at.message,
            human::bytes(bytes)
        ));
    }
    Ok(Exit::Ok)
}

impl ShowArgs {
    fn range(&self) -> RangeInclusive<u64> {
        self.from..=self.to.unwrap_or(u64::MAX)
    }

    fn wants(&self, event_type: &str) -> bool {
        self.types.is_empty() || self.types.iter().any(|name| name == event_type)
    }
}

fn events(out: &mut dyn Write, log: &LogFile, args: &ShowArgs) -> Result<LogEnd, Broken> {
    let range = args.range();
    let rows = ColumnWriter { paint: Paint::of(Stream::Stdout) };
    let mut is_first = true;
    scan::walk(log, |placed| {
        let commit = &placed.commit;
        if commit.first_seq > *range.end() {
            return Ok(ControlFlow::Break(()));
        }
        let seqs = commit.first_seq..;
        let wanted = seqs
            .zip(&commit.events)
            .zip(placed.lines())
            .filter(|((seq, event), _)| range.contains(seq) && args.wants(event.body.event_type()));
        for ((seq, event), line) in wanted {
            if args.of.look.output == Format::Quiet {
                writeln!(out, "{seq}")?;
                continue;
            }
            if args.of.look.output.is_json() {
                write_line(out, line)?;
                continue;
            }
            if std::mem::take(&mut is_first) {
                rows.header(out)?;
            }
            rows.row(out, seq, commit.created_at, event)?;
        }
        Ok(ControlFlow::Continue(()))
    })
}

fn write_line(out: &mut dyn Write, line: &[u8]) -> io::Result<()> {
    out.write_all(line)?;
    out.write_all(b"\n")
}

/// Writes columns of a fixed width, because later rows are not known yet.
struct ColumnWriter {
    paint: Paint,
}

impl ColumnWriter {
    fn header(&self, out: &mut dyn Write) -> io::Result<()> {
        let names = format!(
            "{:>6}  {:<23}  {:<24}  {:<20}  {:<18}  WHAT",
            "SEQ", "TIME", "EVENT", "STEP", "ACTOR"
        );
        writeln!(out, "{}", self.paint.text(Tone::Faint, names))
    }

    fn row(&self, out: &mut dyn Write, seq: u64, at: Millis, event: &Event) -> io::Result<()> {
        let name = event.body.event_type();
        let step = event.step_id.as_ref().map(|id| id.as_str()).unwrap_or_default();
        let actor = human::worker(&event.actor);
        let words = human::cut(&human::one_line(&describe(event)), WORDS_MAX);
        let time = self.paint.text(Tone::Faint, format_args!("{:<23}", human::local_exact(at)));
        let event = self.paint.text(tone(&event.body), format_args!("{name:<24}"));
        let line = format!("{seq:>6}  {time}  {event}  {step:<20}  {actor:<18}  {words}");
        writeln!(out, "{}", line.trim_end())
    }
}

fn tone(body: &Body) -> Tone {
    match body {
        Body::TaskCompleted(_) | Body::StepCompleted(_) | Body::StepTakenOver(_) => Tone::Good,
        Body::TaskFailed(_) | Body::StepFailed(_) | Body::StepLeaseExpired(_) => Tone::Bad,
        Body::TaskBlocked(_)
        | Body::TaskPaused(_)
        | Body::TaskCancelRequested(_)
        | Body::StepBlocked(_)
        | Body::StepReopened(_) => Tone::Caution,
        Body::StepClaimed(_) | Body::StepStarted(_) | Body::StepUpdated(_) => Tone::Active,
        Body::TaskCancelled(_) | Body::StepCancelled(_) => Tone::Faint,
        _ => Tone::Strong,
    }
}

/// Prints the lines of the file unchanged. A line is one event (WAL-02), so its number is what
/// `--from` and `--to` name.
fn raw(out: &mut dyn Write, log: &LogFile, args: &ShowArgs) -> io::Result<()> {
    let mut lines = LineReader::open(&log.path)?;
    let range = args.range();
    loop {
        let ending = match lines.next()? {
            NextLine::End => return Ok(()),
            NextLine::Line(_) => &b"\n"[..],
            NextLine::Torn | NextLine::TooLong => b"",
        };
        if lines.number > *range.end() {
            return Ok(());
        }
        if range.contains(&lines.number) && is_wanted(args, &lines.line) {
            out.write_all(&lines.line)?;
            out.write_all(ending)?;
        }
    }
}

fn is_wanted(args: &ShowArgs, line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Typed {
        event_type: String,
    }
    args.types.is_empty()
        || serde_json::from_slice(line).is_ok_and(|Typed { event_type }| args.wants(&event_type))
}
