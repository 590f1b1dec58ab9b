//! A bus in process on which everything is bytes on its way, as over a network (mechanisms 18).
//!
//! For tests: what a message does not carry is missed without a server too. A call goes to the end
//! inside as it arrives, and its answer comes back the same way.

mod client;
mod worker;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure_core::Rejection;
use tenure_wire::bus::{Answer, decode, encode};

pub use client::Client;
pub use worker::Worker;

/// A message as it arrives.
fn crossed<T: Serialize + DeserializeOwned>(message: &T) -> Result<T, Rejection> {
    Ok(decode(&encode(message)?)?)
}

/// An answer as it arrives.
fn answered<T>(answer: Result<T, Rejection>) -> Result<T, Rejection>
where
    T: Serialize + DeserializeOwned,
{
    crossed(&Answer::from(answer))?.into_result()
}

/// What was said is read as something else.
fn misread() -> Rejection {
    Rejection::invalid("operation", "another operation arrives than was sent")
}
