//! A caller of agents over A2A 1.0, written from the protocol alone, and a receiver of callbacks.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value as Json, json};
use tenure_tests::cluster::PATIENCE;

/// A message of one text.
pub(crate) fn message(text: &str) -> Json {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let id = format!("m{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]})
}

/// The parameters of a message to a task that is there, whose sender does not wait.
pub(crate) fn follow_up(task: &str, text: &str) -> Json {
    let mut message = message(text);
    message["taskId"] = task.into();
    json!({"message": message, "configuration": {"returnImmediately": true}})
}

/// The id of a task.
pub(crate) fn id_of(task: &Json) -> Result<String> {
    Ok(task["id"].as_str().with_context(|| format!("no task: {task}"))?.to_owned())
}

/// An update in a word or two.
pub(crate) fn in_short(update: &Json) -> String {
    if let Some(name) = update["artifactUpdate"]["artifact"]["name"].as_str() {
        return format!("artifact {name}");
    }
    let state = update["statusUpdate"]["status"]["state"].as_str().unwrap_or("another update");
    state.trim_start_matches("TASK_STATE_").to_lowercase()
}

/// Somebody who speaks to agents at one gateway.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgentCaller {
    /// Where the gateway listens.
    pub(crate) port: u16,
}

impl AgentCaller {
    /// The answer to a request: it has a result or an error.
    pub(crate) fn ask(self, agent: &str, method: &str, params: &Json) -> Result<Json> {
        let mut answer = String::new();
        self.send(agent, method, params, None)?.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").context("the answer has no end of a head")?;
        serde_json::from_str(body).with_context(|| answer.clone())
    }

    /// The result of a request.
    pub(crate) fn result(self, agent: &str, method: &str, params: &Json) -> Result<Json> {
        let mut answer = self.ask(agent, method, params)?;
        ensure!(answer.get("error").is_none(), "{method}: {answer}");
        Ok(answer["result"].take())
    }

    /// Begins a task, and does not wait for anything to come of it.
    pub(crate) fn begin(self, agent: &str, text: &str) -> Result<String> {
        let asked = json!({"message": message(text), "configuration": {"returnImmediately": true}});
        id_of(&self.result(agent, "SendMessage", &asked)?["task"])
    }

    /// A task as it is now.
    pub(crate) fn get(self, agent: &str, task: &str) -> Result<Json> {
        self.result(agent, "GetTask", &json!({"id": task}))
    }

    /// Sends a message, and hears what comes of it.
    pub(crate) fn send_streaming(self, agent: &str, asked: &Json) -> Result<UpdateReader> {
        UpdateReader::open(self.send(agent, "SendStreamingMessage", asked, None)?)
    }

    /// Hears what happens to a task behind this event.
    pub(crate) fn resume(self, agent: &str, task: &str, last: &str) -> Result<UpdateReader> {
        let asked = json!({"id": task});
        UpdateReader::open(self.send(agent, "SubscribeToTask", &asked, Some(last))?)
    }

    /// Sends a request of JSON-RPC. In HTTP/1.0 the answer ends with its connection, and has no chunks.
    fn send(
        self,
        agent: &str,
        method: &str,
        params: &Json,
        last: Option<&str>,
    ) -> Result<TcpStream> {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let (body, port) = (body.to_string(), self.port);
        let last = last.map(|last| format!("Last-Event-ID: {last}\r\n")).unwrap_or_default();
        let request = format!(
            "POST /a2a/{agent} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nA2A-Version: 1.0\r\n{last}\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut way = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        way.set_read_timeout(Some(PATIENCE))?;
        way.write_all(request.as_bytes())?;
        Ok(way)
    }
}

/// Reads a stream of updates.
#[derive(Debug)]
pub(crate) struct UpdateReader(BufReader<TcpStream>);

/// The place of an update, and what it says.
pub(crate) type Placed = (String, Json);

impl UpdateReader {
    fn open(way: TcpStream) -> Result<Self> {
        let (mut way, mut head, mut line) = (BufReader::new(way), String::new(), String::new());
        while way.read_line(&mut line)? > 2 {
            head.push_str(&line);
            line.clear();
        }
        if !head.contains("text/event-stream") {
            let mut body = String::new();
            way.read_to_string(&mut body)?;
            bail!("no stream: {head}{body}");
        }
        Ok(Self(way))
    }

    /// The next update. None when the stream, or its gateway, has ended; half an update is none.
    pub(crate) fn next(&mut self) -> Result<Option<Placed>> {
        let (mut place, mut update) = (String::new(), None);
        loop {
            let mut line = String::new();
            match self.0.read_line(&mut line) {
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
                read => read?,
            };
            let Some(line) = line.strip_suffix('\n') else { return Ok(None) };
            if let Some(id) = line.strip_prefix("id: ") {
                id.clone_into(&mut place);
            } else if let Some(data) = line.strip_prefix("data: ") {
                let mut answer: Json = serde_json::from_str(data)?;
                ensure!(answer.get("error").is_none(), "the stream breaks off: {answer}");
                update = Some(answer["result"].take());
            } else if let Some(update) = update.take().filter(|_| line.is_empty()) {
                return Ok(Some((place, update)));
            }
        }
    }

    /// All updates to the end of the stream.
    pub(crate) fn rest(mut self) -> Result<Vec<Placed>> {
        let mut all = Vec::new();
        while let Some(next) = self.next()? {
            all.push(next);
        }
        Ok(all)
    }
}

/// What a receiver was sent, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Callbacks(Arc<Mutex<Vec<Json>>>);

impl Callbacks {
    /// All of it.
    pub(crate) fn all(&self) -> MutexGuard<'_, Vec<Json>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A receiver of callbacks. When it is dropped, nobody listens any more.
#[derive(Debug)]
pub(crate) struct CallbackReceiver {
    port: u16,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl CallbackReceiver {
    /// Listens on this port, and notes what comes.
    pub(crate) fn open(port: u16, callbacks: &Callbacks) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let stops = Arc::new(AtomicBool::new(false));
        let (is_over, callbacks) = (Arc::clone(&stops), callbacks.clone());
        let thread = std::thread::spawn(move || {
            for way in listener.incoming() {
                if is_over.load(Ordering::Acquire) {
                    return;
                }
                // What breaks off is sent again.
                if let Ok(update) = way.map_err(Into::into).and_then(take) {
                    callbacks.all().push(update);
                }
            }
        });
        Ok(Self { port, stops, thread: Some(thread) })
    }

    /// The configuration that names it.
    pub(crate) fn config(&self) -> Json {
        json!({"url": format!("http://127.0.0.1:{}/hook", self.port)})
    }
}

impl Drop for CallbackReceiver {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Release);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)); // It wakes up.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Takes one update, and acknowledges it.
fn take(way: TcpStream) -> Result<Json> {
    way.set_read_timeout(Some(Duration::from_secs(5)))?;
    let (mut way, mut length, mut line) = (BufReader::new(way), 0, String::new());
    while way.read_line(&mut line)? > 2 {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse()?;
        }
        line.clear();
    }
    let mut body = vec![0; length];
    way.read_exact(&mut body)?;
    let update = serde_json::from_slice(&body)?;
    let answer = "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
    way.get_mut().write_all(answer.as_bytes())?;
    Ok(update)
}
