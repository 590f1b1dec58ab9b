//! Tests of the screen in every size.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use tenure_core::Counts;
use tenure_core::id::AttemptId;
use tenure_wire::bus::operate::WaitFacts;
use uuid::Uuid;

use super::*;
use crate::pool::WaitCounts;
use crate::top::snapshot::{
    AttemptRow, LongestAttempts, NodeRow, PoolRow, Rates, WorkerRow, WorkerState,
};

fn snapshot() -> TopSnapshot {
    let rates = Rates {
        claims: 12.5,
        completed: 12.0,
        failed: 0.5,
        tasks_created: 1.0,
        ..Rates::default()
    };
    let counts = Counts { claims: 123_456, completed: 120_000, failed: 12, ..Counts::default() };
    let node = |name: &str, state, owned| NodeRow {
        node: name.into(),
        state,
        age_ms: 4_200,
        owned,
        tasks: Some(602),
        rates: (state == NodeState::Here).then_some(rates),
    };
    let pool = |name: &str, workers, waiting| PoolRow {
        pool: name.parse().unwrap(),
        workers,
        free: 2 * workers,
        waiting,
        oldest_ms: (waiting > 0).then_some(92_000),
        longest: (waiting > 0).then(|| WaitFacts {
            task_id: "nightly".parse().unwrap(),
            step_id: "train".parse().unwrap(),
            ready_ms: 92_000,
        }),
        running: Some(workers),
        steps_per_s: Some(12.5),
    };
    let worker = |n: u64| WorkerRow {
        worker: format!("worker-{n}.9f602f73cc60").parse().unwrap(),
        pool: "default".parse().unwrap(),
        state: if n == 0 { WorkerState::Silent } else { WorkerState::Here },
        free: 2,
        running: Some(n),
        unheard: 0,
        silent_ms: if n == 0 { 3_400 } else { 80 },
    };
    let attempt = AttemptRow {
        task_id: "nightly".parse().unwrap(),
        step_id: "train".parse().unwrap(),
        ordinal: 2,
        worker_id: "worker-1.9f602f73cc60".parse().unwrap(),
        attempt_id: AttemptId(Uuid::from_u128(1)),
        started_at: 0,
        running_ms: 7_500_000,
        left_ms: Some(21_000),
    };
    TopSnapshot {
        address: "nats://127.0.0.1:4222".into(),
        session: "default".parse().unwrap(),
        at: 0,
        age_ms: Some(300),
        trouble: None,
        partitions: 8,
        missing_partitions: vec![4, 5, 6, 7],
        more_workers: false,
        waits: Some(WaitCounts::from([
            ("dependency_pending".into(), 1_204),
            ("no_worker_in_pool".into(), 3),
        ])),
        tasks: 602,
        counts,
        rates: Some(rates),
        nodes: vec![
            node("n2-9f602f73", NodeState::Silent, vec![4, 5, 6, 7]),
            node("n1-380dacd2", NodeState::Here, vec![0, 1, 2, 3]),
        ],
        pools: vec![pool("gpu", 0, 3), pool("default", 30, 0)],
        workers: (0..30).map(worker).collect(),
        attempts: LongestAttempts {
            age_ms: Some(1_200),
            trouble: None,
            missing_partitions: Vec::new(),
            oldest: vec![attempt],
        },
    }
}

fn drawn(
    snapshot: &TopSnapshot,
    ui: &Ui,
    (width, height): (u16, u16),
) -> (Terminal<TestBackend>, [Shown; 4]) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let every = Some(Duration::from_secs(1));
    let view = ScreenInput { snapshot, ui, every, has_colour: true };
    let mut shown = ui.shown;
    terminal.draw(|frame| shown = draw(frame, &view)).unwrap();
    (terminal, shown)
}

fn text(terminal: &Terminal<TestBackend>) -> Vec<String> {
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(buffer.area().width.max(1).into());
    let row = |cells: &[ratatui::buffer::Cell]| cells.iter().map(|cell| cell.symbol()).collect();
    rows.map(row).map(|row: String| row.trim_end().to_owned()).collect()
}

/// The colour of a text on the screen.
fn colour(terminal: &Terminal<TestBackend>, wanted: &str) -> Color {
    let lines = text(terminal);
    let y = lines.iter().position(|line| line.contains(wanted)).unwrap();
    let x = lines[y][..lines[y].find(wanted).unwrap()].chars().count();
    let at = (u16::try_from(x).unwrap(), u16::try_from(y).unwrap());
    terminal.backend().buffer().cell(at).unwrap().fg
}

const WHOLE: &str = "\
tenure top  nats://127.0.0.1:4222                                       every 1s
nobody answers for partitions 4-7
1 node   8 partitions   602 tasks in memory   30 workers
                    CLAIMS  COMPLETED  FAILED  LOST  TASKS IN  TASKS OUT
for each second       12.5       12.0     0.5     0       1.0          0
since nodes began  123,456    120,000      12     0         0          0
waiting  1,204 dependency_pending  3 no_worker_in_pool
── nodes (2) ───────────────────────────────────────────────────────────────────
NODE         STATUS        TASKS  CLAIMS/S  DONE/S  PARTITIONS
n2-9f602f73  silent 4.2 s    602         –       –  4-7
n1-380dacd2  here            602      12.5    12.0  0-3
─▸ pools (2) ───────────────────────────────────────────────────────────────────
POOL     WORKERS  FREE  WAITING  OLDEST  RUNNING  STEPS/S  WAITS LONGEST
gpu            0     0        3  1m 32s        0     12.5  nightly/train
default       30    60        0       –       30     12.5  –
── workers ────────────────────────────────────────────── 1-3 of 30, 27 more ───
WORKER                  POOL     STATUS  RUNNING  FREE  UNHEARD  SILENT
worker-0.9f602f73cc60   default  silent        0     2        0   3.4 s
worker-1.9f602f73cc60   default  here          1     2        0   80 ms
worker-2.9f602f73cc60   default  here          2     2        0   80 ms
── running longest in session default (1) ────────────────── asked 1.2 s ago ───
TASK     STEP   TRY  WORKER                 RUNNING   LEASE
nightly  train    2  worker-1.9f602f73cc60   2h 05m  21.0 s
q leave   Tab section   j k scroll   p pause   ? help
";

#[test]
fn a_screen_of_the_usual_size_has_everything() {
    let (terminal, shown) = drawn(&snapshot(), &Ui::new(), (80, 24));
    assert_eq!(text(&terminal).join("\n") + "\n", WHOLE);
    assert_eq!(shown[Section::Workers as usize], Shown { rows: 30, room: 3 });
    for bad in ["nobody answers", "silent 4.2 s", "3  1m 32s", "silent   "] {
        assert_eq!(colour(&terminal, bad), Color::Red, "{bad}");
    }
    assert_eq!(colour(&terminal, "here"), Color::Green);
    assert_eq!(colour(&terminal, "n1-380dacd2"), Color::Reset);
}

#[test]
fn what_is_scrolled_to_is_shown() {
    let mut ui = Ui::new();
    ui.focus = Section::Workers;
    ui.first[Section::Workers as usize] = 27;
    let (terminal, _) = drawn(&snapshot(), &ui, (80, 24));
    let lines = text(&terminal);
    assert!(lines.iter().any(|line| line.contains("─▸ workers") && line.contains("28-30 of 30")));
    assert!(lines.iter().any(|line| line.starts_with("worker-29.")));
    ui.first[Section::Workers as usize] = 900; // There were more.
    let (terminal, _) = drawn(&snapshot(), &ui, (80, 24));
    assert!(text(&terminal).iter().any(|line| line.starts_with("worker-29.")));
}

#[test]
fn a_cluster_that_is_away_is_told() {
    let away =
        TopSnapshot { trouble: Some("no node answers".into()), age_ms: Some(12_300), ..snapshot() };
    let (terminal, _) = drawn(&away, &Ui::new(), (80, 24));
    assert_eq!(text(&terminal)[1], "no answer for 12.3 s: no node answers");
    assert_eq!(colour(&terminal, "no answer"), Color::Red);
    let never = TopSnapshot { age_ms: None, trouble: None, nodes: vec![], pools: vec![], ..away };
    let (terminal, _) = drawn(&never, &Ui::new(), (80, 24));
    assert_eq!(text(&terminal)[1], "asking");
    let never = TopSnapshot { trouble: Some("a\x1b[2Jb".into()), ..never };
    let (terminal, _) = drawn(&never, &Ui::new(), (80, 24));
    assert_eq!(text(&terminal)[1], "no answer yet: a\\u{1b}[2Jb");
}

#[test]
fn attempts_that_nobody_tells_of_are_missed() {
    let mut partial = snapshot();
    partial.attempts.missing_partitions = vec![4, 5, 6];
    let (terminal, _) = drawn(&partial, &Ui::new(), (80, 24));
    assert_eq!(colour(&terminal, "asked 1.2 s ago, no answer for 4-6"), Color::Red);
}

#[test]
fn the_section_in_focus_is_the_last_to_go() {
    let mut ui = Ui::new();
    ui.focus = Section::Attempts;
    let (terminal, _) = drawn(&snapshot(), &ui, (20, 7));
    let lines = text(&terminal);
    assert_eq!(lines[0], "tenure top  nats:…22");
    assert_eq!(lines[1], "nobody answers for …");
    assert!(lines.iter().any(|line| line.starts_with("nightly")), "{lines:#?}");
}

/// Nothing panics and nothing is drawn beside the screen, whatever its size.
#[test]
fn every_size_has_a_screen() {
    let (mut ui, snapshot) = (Ui::new(), snapshot());
    for has_help in [false, true] {
        ui.has_help = has_help;
        for width in (0..30).chain([79, 80, 200, 500]) {
            for height in (0..30).chain([100]) {
                let (terminal, _) = drawn(&snapshot, &ui, (width, height));
                drop(terminal);
            }
        }
    }
    let (terminal, _) = drawn(&snapshot, &ui, (160, 50));
    assert!(text(&terminal).iter().any(|line| line.contains("stand still")));
    ui.is_paused = true;
    let (terminal, _) = drawn(&snapshot, &ui, (80, 24));
    assert!(text(&terminal)[0].ends_with("paused"));
}

#[test]
fn as_text_it_has_all_rows() {
    let text = super::text(&snapshot(), 120);
    assert_eq!(text.lines().filter(|line| line.starts_with("worker-")).count(), 30);
    assert!(text.contains("── pools (2) ──") && !text.contains('▸'), "{text}");
    assert!(!text.contains('\x1b') && !text.contains("leave"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 120));
}
