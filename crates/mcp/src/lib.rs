//! Tenure over MCP: a model, in whatever host it runs, makes Tasks, steers them and reads them.
//!
//! One server speaks MCP of 2026-07-28 and of the older versions, over HTTP below the gateway and over the
//! standard streams of `tenure mcp`. It holds no rule of the domain and no state that matters: each call becomes
//! the request that any other client would send.
//!
//! ```text
//!  rmcp ─► server ─► caller (who asks, in which session)
//!                ├─► tools ────► request of the bus ─► Client<P> ─► scheduler
//!                ├─► resources   views of a Task by its address
//!                ├─► prompts     how one writes a Task
//!                └─► offers      tools whose work is a Task, and the extension Tasks ◄─ file
//!
//!  rmcp ─► run ─► socket of the worker: the tools of a worker, for the command of a Step
//! ```
//!
//! The tools are those of the contract (5.2). Their names, fields, answers and roles come from the catalog of
//! operations ([`tenure_wire::bus::catalog`]); this crate adds what a model has to know to use them.
//!
//! A call whose caller goes away ends, and the Task goes on: nothing here cancels a Task but the tool that does so.

mod advice;
mod caller;
pub mod file;
mod follow;
mod lines;
pub mod offers;
mod prompt;
mod resource;
mod result;
mod run;
mod schema;
mod server;
mod shares;
mod stdio;
mod tools;
pub mod unquoted;

pub use rmcp;

pub use self::caller::{McpCaller, McpCallers, OneCaller};
pub use self::run::{RunServer, run_tool_names};
pub use self::server::{McpServer, McpSettings};
pub use self::shares::{Share, Shares};
pub use self::stdio::{StreamsError, serve_run_streams, serve_streams};
pub use self::tools::{ToolFilter, tool_names};
