//! The one whose service is to stay as it is: a session, and a pool with a worker of its own.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use async_nats::{Client, Subscriber};
use futures::StreamExt as _;
use rmpv::Value;
use serde_json::{Value as Json, json};
use tenure_tests::cluster::PATIENCE;
use tenure_tests::cluster::client::{Log, command, wait};
use tenure_tests::cluster::message::{Answer, list, number, text, write};
use tenure_tests::cluster::tasks::{noop, task};
use tokio::time::{sleep, timeout};

use super::http;
use super::stage::{Stage, token};

/// Where the victim asks about Tasks of the one partition.
const COMMANDS: &str = "tenure.v1.orchestrator.main.orchestrator-1.cmd.0";

/// A Task that takes longer counts as one that took so long.
const TASK_MAX: Duration = Duration::from_secs(20);

/// How long an answer is waited for before the request is sent again.
pub(super) const ANSWER: Duration = Duration::from_secs(2);

/// The Task whose one Step is in hand all the time.
const HELD: &str = "held";

/// How the victim comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Over NATS.
    Nats,
    /// Over HTTP, through the gateway that the attacker uses.
    Gateway,
    /// Over MACP, through the gateway that the attacker uses.
    #[cfg(feature = "grpc")]
    Macp,
}

/// A client of the victim's.
pub(crate) struct Victim {
    nats: Client,
    events: Subscriber,
    http: u16,
    #[cfg(feature = "grpc")]
    agent: super::macp::MacpAgent,
    made: u64,
}

impl Victim {
    /// Connects, and hands in a Task whose Step holds a lease from then on.
    pub(crate) fn start(stage: &Stage) -> Result<Self> {
        let (nats, events) = wait(async {
            let nats = stage.connect("orchestrator-1").await?;
            let events = nats.subscribe("tenure.v1.event.main.*").await?;
            Ok::<_, anyhow::Error>((nats, events))
        })?;
        let victim = Self {
            nats,
            events,
            http: stage.http,
            #[cfg(feature = "grpc")]
            agent: wait(super::macp::MacpAgent::connect(stage, "victim"))?,
            made: 0,
        };
        let run = json!({"data": json!({"run": "sleep 100000"}).to_string()});
        let step = json!({"step_id": "a", "title": "a", "handler": "exec", "input": run});
        wait(victim.create(&task(HELD, &[step])))?;
        let begun = Instant::now();
        while victim.log(HELD)?.claims("a").is_empty() {
            ensure!(begun.elapsed() < PATIENCE, "nobody holds the step");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(victim)
    }

    /// Makes one Task after another for so long, and answers how long each took from its creation to its end.
    pub(crate) fn measure(&mut self, way: Way, lasts: Duration) -> Result<Vec<Duration>> {
        let (begun, mut took) = (Instant::now(), Vec::new());
        while begun.elapsed() < lasts {
            self.made += 1;
            let id = format!("t{}", self.made);
            let since = Instant::now();
            let done = match way {
                Way::Nats => wait(async { timeout(TASK_MAX, self.complete(&id)).await }),
                Way::Gateway => Ok(self.complete_over_http(&id)),
                #[cfg(feature = "grpc")]
                Way::Macp => wait(async { timeout(TASK_MAX, self.hold_session()).await }),
            };
            match done {
                Ok(done) => done.with_context(|| format!("{id} after {:?}", since.elapsed()))?,
                Err(_) => println!("{id} did not end within {TASK_MAX:?}"),
            }
            took.push(since.elapsed());
        }
        took.sort_unstable();
        Ok(took)
    }

    /// No lease was lost: the Step in hand is still that of its first Attempt.
    pub(crate) fn check_leases(&self) -> Result<()> {
        let log = self.log(HELD)?;
        let (claims, lost) = (log.claims("a").len(), log.events("task_step_lease_expired"));
        ensure!(claims == 1 && lost.is_empty(), "{claims} claims, and lost leases: {lost:?}");
        Ok(())
    }

    async fn complete(&mut self, id: &str) -> Result<()> {
        self.create(&task(id, &[noop("a", &[])])).await?;
        loop {
            // Hints are not repeated: without one the victim looks itself.
            match timeout(ANSWER, self.events.next()).await {
                Ok(Some(hint)) if hint.subject.ends_with(&format!(".{id}")) => {
                    let said = rmpv::decode::read_value(&mut hint.payload.as_ref())?;
                    match text(&said, "ended") {
                        Some("completed") => return Ok(()),
                        Some(other) => anyhow::bail!("{id}: {other}"),
                        None => {}
                    }
                }
                Ok(other) => {
                    other.context("no more events")?;
                }
                Err(_) if self.log_of(id).await?.has_ended() => return Ok(()),
                Err(_) => {}
            }
        }
    }

    fn complete_over_http(&self, id: &str) -> Result<()> {
        let (begun, token) = (Instant::now(), token("victim"));
        let ask = |method: &str, path: &str, body: Option<&Json>| {
            http::ask(self.http, Some(&token), method, path, body)
        };
        let made = task(id, &[noop("a", &[])]);
        let mut version = 0;
        loop {
            ensure!(begun.elapsed() < TASK_MAX, "it did not end within {TASK_MAX:?}");
            let (status, body) = match version {
                0 => ask("POST", "/v1/sessions/main/tasks", Some(&made))?,
                _ => {
                    let path = format!("/v1/sessions/main/tasks/{id}?wait=2s&since={version}");
                    ask("GET", &path, None)?
                }
            };
            match status {
                200 | 201 => {
                    let said: Json = serde_json::from_str(&body)?;
                    if said["native_status"] == "completed" || said["status"] == "completed" {
                        return Ok(());
                    }
                    version = said["version"].as_u64().unwrap_or(1);
                }
                204 => {}
                429 | 503 => std::thread::sleep(Duration::from_millis(50)),
                other => anyhow::bail!("{other}: {body}"),
            }
        }
    }

    /// Starts a session, and cancels it. What comes too early is sent again.
    #[cfg(feature = "grpc")]
    async fn hold_session(&self) -> Result<()> {
        let (id, begun) = (self.agent.session_id(self.made), Instant::now());
        let mut is_begun = false;
        loop {
            let code = match is_begun {
                false => self.agent.start(&id).await?,
                true => self.agent.cancel(&id).await?,
            };
            match (&*code, is_begun) {
                ("ok", true) => return Ok(()),
                ("ok", false) => is_begun = true,
                _ => {
                    ensure!(begun.elapsed() < TASK_MAX, "{id}: {code}");
                    sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }

    async fn create(&self, input: &Json) -> Result<()> {
        self.ask(&command("task_create", None, input)).await.map(|_| ())
    }

    /// Asks until there is an answer for good.
    async fn ask(&self, body: &Json) -> Result<Value> {
        let (bytes, begun) = (write(body)?, Instant::now());
        loop {
            let asked = self.nats.request(COMMANDS, bytes.clone().into());
            let answer = match timeout(ANSWER, asked).await {
                Ok(Ok(message)) => Answer::read(&message.payload)?,
                Ok(Err(_)) | Err(_) => Answer::Silence,
            };
            match answer {
                Answer::Done(ok) => return Ok(ok),
                Answer::Refused(refusal) if !refusal.retryable => return Err(refusal.into()),
                other => ensure!(begun.elapsed() < PATIENCE, "{other:?}: {body}"),
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn log(&self, task: &str) -> Result<Log> {
        wait(self.log_of(task))
    }

    async fn log_of(&self, task: &str) -> Result<Log> {
        let body = json!({"v": 1, "operation": "read_log", "task_id": task, "input": {"after": 0}});
        let page = self.ask(&body).await?;
        let mut log = Log {
            status: text(&page, "status").context("no status")?.to_owned(),
            version: number(&page, "version").context("no version")?,
            ..Log::default()
        };
        for commit in list(&page, "commits") {
            log.lines.extend_from_slice(commit.as_slice().context("commits are bytes")?);
        }
        Ok(log)
    }
}
