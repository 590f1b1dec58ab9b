//! Servers of tools that speak MCP: a client of the versions 2026-07-28 and 2024-11-05 to 2025-11-25.
//!
//! | Module | What it is |
//! |---|---|
//! | [`settings`] | which servers there are, how each is reached, and what may be asked of it |
//! | [`answer`] | what a server answers to a call: a result, a question, or a task that goes on |
//! | `message` | the messages of JSON-RPC, and what each version writes into them |
//! | `stdio` | a server that is a program: its process, and its lines |
//! | `http` | a server at an address: one POST for each request, answered by JSON or by a stream |
//! | `link` | one of the two, and the version that is spoken over it |
//! | [`client`] | [`ToolClient`]: calls tools, and reads, answers and cancels tasks |
//!
//! The client is our own, as that of A2A is: each length and each wait has to have its end here, a program has to die
//! with its worker, and HTTP has to go the way that all other HTTP goes. A message that is too long, that is no JSON,
//! or that answers what nobody asked ends the connection, as nothing behind it can be trusted. No redirect is followed.
//! The client offers forms for questions (elicitation), and tasks. It offers no sampling and no roots.

pub mod answer;
pub mod client;
mod error;
mod http;
mod link;
mod message;
pub mod settings;
mod stdio;

pub use answer::{ServerAnswer, ToolQuestions, ToolResult, ToolTask, ToolTaskState};
pub use client::{ServerCall, ToolClient};
pub use error::ToolError;
pub use message::{ProgressSender, ToolProgress};
pub use settings::{ToolServerSettings, ToolServerWay, ToolServers, ToolToken};

#[cfg(test)]
mod tests;
