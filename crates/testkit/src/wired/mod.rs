//! A bus in process that encodes every message to bytes, as a network does (mechanisms 18).
//!
//! With it a test fails without a server too if a message lacks a field. A call reaches the inner
//! port as it arrives, and its answer comes back the same way.

mod client;
mod worker;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure_core::Rejection;
use tenure_wire::bus::{Answer, decode, encode};

pub use client::Client;
pub use worker::Worker;

/// The message after encoding and decoding.
fn crossed<T: Serialize + DeserializeOwned>(message: &T) -> Result<T, Rejection> {
    Ok(decode(&encode(message)?)?)
}

/// The answer after encoding and decoding.
fn answered<T>(answer: Result<T, Rejection>) -> Result<T, Rejection>
where
    T: Serialize + DeserializeOwned,
{
    crossed(&Answer::from(answer))?.into_result()
}

/// The refusal of a request that was decoded as another operation.
fn misread() -> Rejection {
    Rejection::invalid("operation", "another operation arrives than was sent")
}
