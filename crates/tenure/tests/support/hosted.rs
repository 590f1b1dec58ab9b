//! Hosts of models that speak to `tenure mcp`: a process that they have started, or one at two pipes.

#![allow(dead_code)] // Each test binary uses its part.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::ops::{Deref, DerefMut};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::Place;

/// A conversation of MCP 2026-07-28 over two streams.
pub(crate) struct Spoken {
    input: Option<Box<dyn Write + Send>>,
    output: BufReader<Box<dyn Read + Send>>,
    next_id: u64,
}

impl Spoken {
    pub(crate) fn over(
        input: impl Write + Send + 'static,
        output: impl Read + Send + 'static,
    ) -> Self {
        let output: Box<dyn Read + Send> = Box::new(output);
        Self { input: Some(Box::new(input)), output: BufReader::new(output), next_id: 1 }
    }

    pub(crate) fn send(&mut self, message: &Value) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{message}").unwrap();
        input.flush().unwrap();
    }

    pub(crate) fn request(&mut self, method: &str, mut params: Value) -> u64 {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// The next message: whatever is on standard output is one.
    pub(crate) fn message(&mut self) -> Option<Value> {
        let mut line = String::new();
        let bytes = self.output.read_line(&mut line).unwrap();
        (bytes > 0)
            .then(|| serde_json::from_str(&line).unwrap_or_else(|_| panic!("no message: {line}")))
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        loop {
            let message = self.message().expect("it goes on");
            if message["id"] == id {
                return message;
            }
        }
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments }))["result"].clone()
    }

    pub(crate) fn done(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_ne!(result["isError"], true, "{tool}: {result}");
        result["structuredContent"].clone()
    }

    /// The code of the refusal of a call.
    pub(crate) fn refused(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{tool}: {result}");
        result["structuredContent"]["error"]["code"].as_str().unwrap().to_owned()
    }

    /// Closes the input, and returns what still came.
    pub(crate) fn finish(&mut self) -> Vec<Value> {
        drop(self.input.take());
        std::iter::from_fn(|| self.message()).collect()
    }
}

/// A process of `tenure mcp` and the host that has started it.
pub(crate) struct Hosted {
    pub(crate) child: Child,
    spoken: Spoken,
}

impl Hosted {
    pub(crate) fn start(place: &Place, args: &[&str]) -> Self {
        let mut command = place.command(&[&["mcp"], args].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, spoken: Spoken::over(input, output) }
    }

    /// Closes its input, and returns its exit code, what it still said, and how long it took.
    pub(crate) fn close(mut self) -> (Option<i32>, Vec<Value>, Duration) {
        let begun = Instant::now();
        let rest = self.finish();
        (self.child.wait().unwrap().code(), rest, begun.elapsed())
    }
}

impl Deref for Hosted {
    type Target = Spoken;

    fn deref(&self) -> &Spoken {
        &self.spoken
    }
}

impl DerefMut for Hosted {
    fn deref_mut(&mut self) -> &mut Spoken {
        &mut self.spoken
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
