//! What is measured over HTTP, and what it has to reach.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value as Json, json};
use tokio::task::JoinSet;

use super::agent::{self, AgentPlace};
use super::house::House;
use super::line::{Line, get, post, stream};
use super::mcp;

/// Connections that make Tasks at a time.
pub(crate) const LINES: usize = 64;

/// Tasks of one Step.
const TASKS: usize = 20_000;

/// Readers of one Task.
const READERS: usize = 5_000;

/// How long the readers are watched.
const WATCHED: Duration = Duration::from_secs(15);

/// Something that a program does over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Visit {
    /// 20,000 Tasks of one Step over 64 connections, beside the same by a program in Rust.
    Tasks,
    /// A lone Task, from its creation to the event that ends it.
    Lone,
    /// The same with a worker over HTTP.
    Worker,
    /// `GET` of a Task.
    Get,
    /// 5,000 readers of the events of one Task.
    Readers,
    /// Messages to an agent that speaks A2A, 64 at a time, each of which is answered when its task has ended.
    Agent,
    /// The same, one after another.
    AgentLone,
    /// From the report of an artifact by an agent to the event in the stream of its caller.
    AgentStream,
    /// A call of a tool over MCP that reads a Task.
    McpRead,
    /// One that makes a Task.
    McpWrite,
    /// Sessions of MACP of five messages, 64 at a time.
    #[cfg(feature = "grpc")]
    Macp,
    /// The same, one after another.
    #[cfg(feature = "grpc")]
    MacpLone,
    /// One session with thousands of messages: what its last ones cost beside its first.
    #[cfg(feature = "grpc")]
    MacpLong,
}

/// A figure of a repetition.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) wanted: &'static str,
}

pub(super) fn figure(
    name: &'static str,
    value: f64,
    unit: &'static str,
    wanted: &'static str,
) -> Figure {
    Figure { name, value, unit, wanted }
}

impl Visit {
    pub(crate) const ALL: &'static [Self] = &[
        Self::Tasks,
        Self::Lone,
        Self::Worker,
        Self::Get,
        Self::Readers,
        Self::Agent,
        Self::AgentLone,
        Self::AgentStream,
        Self::McpRead,
        Self::McpWrite,
    ];

    /// `tenure dev` lets in fewer connections than there are readers.
    pub(crate) const OF_DIRECTORY: &'static [Self] = &[
        Self::Tasks,
        Self::Lone,
        Self::Worker,
        Self::Get,
        Self::Agent,
        Self::AgentLone,
        Self::AgentStream,
        Self::McpRead,
        Self::McpWrite,
    ];

    /// What can be measured of any agent.
    pub(crate) const OF_AGENT: &'static [Self] = &[Self::Agent, Self::AgentLone, Self::AgentStream];

    pub(crate) async fn measure(self, house: &House) -> Result<Vec<Figure>> {
        match self {
            Self::Tasks => tasks(house).await,
            Self::Lone => {
                let times = lone(house, "lone", "default", 500).await?;
                Ok(percentiles(["lone", "lone p99"], times, "must 3, goal 2"))
            }
            Self::Worker => worker(house).await,
            Self::Get => gets(house).await,
            Self::Readers => readers(house).await,
            Self::Agent | Self::AgentLone | Self::AgentStream => own_agent(self, house).await,
            Self::McpRead => mcp::reads(house).await,
            Self::McpWrite => mcp::writes(house).await,
            #[cfg(feature = "grpc")]
            Self::Macp => super::macp::rate(house).await,
            #[cfg(feature = "grpc")]
            Self::MacpLone => super::macp::lone(house).await,
            #[cfg(feature = "grpc")]
            Self::MacpLong => super::macp::long(house).await,
        }
    }

    /// Whether MACP has to be spoken for it.
    pub(crate) fn is_of_macp(self) -> bool {
        #[cfg(feature = "grpc")]
        return matches!(self, Self::Macp | Self::MacpLone | Self::MacpLong);
        #[cfg(not(feature = "grpc"))]
        false
    }

    /// Measures an agent elsewhere.
    pub(crate) async fn measure_agent(self, agent: &AgentPlace) -> Result<Vec<Figure>> {
        agent::warm_up(agent).await?;
        match self {
            Self::Agent => Ok(agent::rate(agent).await?.0),
            Self::AgentLone => agent::lone(agent).await,
            Self::AgentStream => agent::streamed(agent).await,
            _ => bail!("an agent alone has no {self:?}"),
        }
    }
}

/// Measures the agent of the house.
async fn own_agent(visit: Visit, house: &House) -> Result<Vec<Figure>> {
    let (worker, agent) = (house.echo().await?, house.agent());
    let figures = match visit {
        Visit::Agent => agent_rate(house, &agent).await?,
        _ => visit.measure_agent(&agent).await?,
    };
    worker.leave().await?;
    Ok(figures)
}

/// The rate of messages, and what each costs the gateway and this process with the worker.
#[allow(clippy::cast_precision_loss)]
async fn agent_rate(house: &House, agent: &AgentPlace) -> Result<Vec<Figure>> {
    agent::warm_up(agent).await?;
    let before = house.processes().cpu()?;
    let (mut figures, count) = agent::rate(agent).await?;
    let after = house.processes().cpu()?;
    let cpu = |kind: &str| (after[kind] - before[kind]) * 1e3 / count as f64;
    figures.push(figure("agent cpu door", cpu(house.door), "us of processor a message", ""));
    figures.push(figure("agent cpu load", cpu("load"), "us of processor a message", ""));
    Ok(figures)
}

/// Below this are the Tasks of the session.
const ALL_TASKS: &str = "/v1/sessions/bench/tasks";

/// A Task of one Step.
fn task(id: &str, pool: &str) -> Vec<u8> {
    let step = json!({"step_id": "s0", "title": "s0", "summary": "s0", "handler": "noop"});
    let task = json!({"task_id": id, "title": id, "summary": id, "steps": [step],
                      "default_worker_pool_id": pool});
    post(ALL_TASKS, task.to_string().as_bytes())
}

#[allow(clippy::cast_precision_loss)]
async fn tasks(house: &House) -> Result<Vec<Figure>> {
    let rust = house.rust_rate().await?;
    create(house, "warm", 200).await?;
    let before = house.processes().cpu()?;
    let (created, ended) = create(house, "t", TASKS).await?;
    let after = house.processes().cpu()?;
    let rate = TASKS as f64 / ended;
    let cpu = |kind: &str| (after[kind] - before[kind]) * 1e3 / TASKS as f64;
    Ok(vec![
        figure("tasks in rust", rust, "tasks/s", ""),
        figure("tasks", rate, "tasks/s", ""),
        figure("tasks created", TASKS as f64 / created, "tasks/s", ""),
        figure("tasks of rust", 100.0 * rate / rust, "% of the rate in rust", "must 60, goal 85"),
        figure("tasks cpu door", cpu(house.door), "us of processor a task", ""),
        figure("tasks cpu load", cpu("load"), "us of processor a task", ""),
    ])
}

/// Makes so many Tasks and waits for the end of all. Seconds until the last is made, and until all have
/// ended.
async fn create(house: &House, name: &str, count: usize) -> Result<(f64, f64)> {
    let requests: Vec<Vec<u8>> =
        (0..count).map(|i| task(&format!("{name}{i}"), "default")).collect();
    let requests = Rc::new(RefCell::new(requests));
    let mut running = JoinSet::new();
    let begun = Instant::now();
    for _ in 0..LINES {
        let (requests, mut line) = (Rc::clone(&requests), Line::open(house.port).await?);
        running.spawn_local(async move {
            loop {
                let Some(request) = requests.borrow_mut().pop() else { return Ok(()) };
                let answer = line.ask(&request).await?;
                ensure!(answer.status == 201, "{}", String::from_utf8_lossy(&answer.body));
            }
        });
    }
    while let Some(done) = running.join_next().await {
        done??;
    }
    let created = begun.elapsed().as_secs_f64();
    let mut line = Line::open(house.port).await?;
    while waiting(&mut line).await? > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let all = begun.elapsed().as_secs_f64();
    check(&mut line, name, count).await?;
    Ok((created, all))
}

/// Steps of the pool that wait or run.
async fn waiting(line: &mut Line) -> Result<u64> {
    let stats = line.ask(&get("/v1/stats/pools?session=bench")).await?.json()?;
    let pools = stats["pools"].as_array().context("no pools")?;
    let pool = pools.iter().find(|pool| pool["pool"] == "default");
    Ok(pool.map_or(0, |pool| pool["wanted"].as_u64().unwrap_or(u64::MAX)))
}

/// Fails unless some of these Tasks have completed.
async fn check(line: &mut Line, name: &str, count: usize) -> Result<()> {
    for at in (0..count).step_by(count / 100) {
        let task = line.ask(&get(&format!("{ALL_TASKS}/{name}{at}"))).await?.json()?;
        ensure!(task["status"] == "completed", "nothing waits, and this has not ended: {task}");
    }
    Ok(())
}

thread_local! {
    /// So that no Task has the name of an earlier one.
    static NAMED: Cell<usize> = const { Cell::new(0) };
}

pub(super) fn fresh(name: &str) -> String {
    NAMED.set(NAMED.get() + 1);
    format!("{name}-{}", NAMED.get())
}

/// One Task after another, from the request that makes it until its stream of events says that it has ended.
async fn lone(house: &House, name: &str, pool: &str, count: usize) -> Result<Vec<Duration>> {
    let (mut line, mut events) = (Line::open(house.port).await?, Line::open(house.port).await?);
    let mut times = Vec::new();
    for at in 0..count + 20 {
        let id = fresh(name);
        let (create, follow) = (task(&id, pool), stream(&format!("{ALL_TASKS}/{id}/events")));
        let begun = Instant::now();
        let answer = line.ask(&create).await?;
        ensure!(answer.status == 201, "{}", String::from_utf8_lossy(&answer.body));
        events.begin(&follow).await?;
        events.until(b"event: end").await?;
        let took = begun.elapsed();
        events.until(b"\r\n0\r\n\r\n").await?;
        if at >= 20 {
            times.push(took); // The first pay for what later ones find made.
        }
    }
    Ok(times)
}

pub(super) fn percentiles(
    names: [&'static str; 2],
    mut times: Vec<Duration>,
    wanted: &'static str,
) -> Vec<Figure> {
    times.sort();
    let at = |place: usize| times[place.min(times.len() - 1)].as_secs_f64() * 1e3;
    vec![
        figure(names[0], at(times.len() / 2), "ms (p50)", wanted),
        figure(names[1], at(times.len() * 99 / 100), "ms (p99)", ""),
    ]
}

async fn gets(house: &House) -> Result<Vec<Figure>> {
    let mut line = Line::open(house.port).await?;
    let id = fresh("read");
    ensure!(line.ask(&task(&id, "nobody")).await?.status == 201, "it is not made");
    let request = get(&format!("{ALL_TASKS}/{id}"));
    let mut times = Vec::new();
    for _ in 0..1_000 {
        let begun = Instant::now();
        let answer = line.ask(&request).await?;
        times.push(begun.elapsed());
        ensure!(answer.status == 200, "{}", String::from_utf8_lossy(&answer.body));
    }
    Ok(percentiles(["get", "get p99"], times, "must 1"))
}

/// A worker over HTTP, of one Step at a time, in this process.
async fn worker(house: &House) -> Result<Vec<Figure>> {
    let mut asks = Line::open(house.port).await?;
    let joins = json!({"handlers": ["noop"], "concurrency": 1, "boot": fresh("boot")});
    let root = "/v1/pools/far/workers";
    let joined = asks.ask(&post(root, joins.to_string().as_bytes())).await?.json()?;
    let link = format!("{root}/{}", joined["link"].as_str().context("no link")?);
    let mut reports = Line::open(house.port).await?;
    let serve = tokio::task::spawn_local(async move {
        let mut after = 0;
        loop {
            let page = get(&format!("{link}/deliveries?wait=20s&after={after}"));
            let page = asks.ask(&page).await?.json()?;
            after = page["last"].as_u64().context("no last")?;
            for delivery in page["deliveries"].as_array().into_iter().flatten() {
                let grant = &delivery["grant"];
                let Some(attempt) = grant["attempt_id"].as_str() else { continue };
                let report = report(grant);
                let path = format!("{link}/attempts/{attempt}/report");
                let answer = reports.ask(&post(&path, report.to_string().as_bytes())).await?;
                answer.json()?;
            }
        }
    });
    let measured = async {
        let times = lone(house, "far", "far", 500).await?;
        Ok(percentiles(["http worker", "http worker p99"], times, "must 4"))
    };
    tokio::select! {
        measured = measured => measured,
        broken = serve => broken?,
    }
}

fn report(grant: &Json) -> Json {
    let mut report = json!({"status": "completed", "step_id": grant["step"]["step_id"]});
    for field in ["session_id", "task_id", "run_id", "fencing_token"] {
        report[field] = grant[field].clone();
    }
    report
}

/// What readers of one Task cost, while nothing happens and while it changes each second.
#[allow(clippy::cast_precision_loss)]
async fn readers(house: &House) -> Result<Vec<Figure>> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    let mut line = Line::open(house.port).await?;
    let id = fresh("watched");
    ensure!(line.ask(&task(&id, "nobody")).await?.status == 201, "it is not made");
    let kb_before = house.processes().settled_kb(house.door).await?;
    let request = stream(&format!("{ALL_TASKS}/{id}/events"));
    let mut all = JoinSet::new();
    for _ in 0..READERS {
        let mut reader = Line::open(house.port).await?;
        reader.begin(&request).await?;
        all.spawn_local(reader.drain());
    }
    let kb = house.processes().settled_kb(house.door).await? - kb_before;
    let quiet = share_of_core(house, WATCHED, async || Ok(())).await?;
    let note = json!({"progress": {"current_step": "still at it"}});
    let note = post(&format!("{ALL_TASKS}/{id}/progress"), note.to_string().as_bytes());
    let line = Rc::new(tokio::sync::Mutex::new(line));
    let busy = share_of_core(house, WATCHED, async || {
        line.lock().await.ask(&note).await?.json()?;
        Ok(())
    })
    .await?;
    ensure!(all.len() == READERS, "readers were cut off");
    ensure!(all.try_join_next().is_none(), "a reader was cut off");
    Ok(vec![
        figure("readers memory", kb / READERS as f64, "KB a connection", "must 20"),
        figure("readers quiet", quiet, "% of a core", "must 10"),
        figure("readers of a change a s", busy, "% of a core", ""),
    ])
}

/// What share of a core the gateway takes while something is done each second.
async fn share_of_core(
    house: &House,
    time: Duration,
    each_second: impl AsyncFn() -> Result<()>,
) -> Result<f64> {
    let before = house.processes().cpu()?[house.door];
    let begun = Instant::now();
    while begun.elapsed() < time {
        each_second().await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let spent = house.processes().cpu()?[house.door] - before;
    Ok(spent / begun.elapsed().as_secs_f64() / 10.0) // Of 1,000 ms a second, in percent.
}
