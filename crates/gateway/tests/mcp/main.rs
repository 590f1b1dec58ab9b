//! MCP at `/mcp`, over HTTP as a host of models speaks it: through the whole server, with logins.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bounds;
mod house;
mod offered;
mod older;
mod served;
mod talk;
