//! Requests and answers over HTTP: what a client sends to a gateway at
//! `POST /v1/sessions/<session>/call`.
//!
//! The body is the [`Request`](super::request::Request) that goes to the owner of a partition on the
//! bus, and the answer is the one of the bus. Two things differ. HTTP carries longer messages
//! ([`CALL_MAX`]); and the gateway asks all partitions where the bus asks one, and says which of
//! them did not answer.

use serde::{Deserialize, Serialize};
use tenure_core::Rejection;

use super::{Answer, V};

/// The media type of both.
pub const MEDIA_TYPE: &str = "application/msgpack";

/// The longest request and the longest answer, in bytes. It is for a Task that is created whole;
/// everything else comes in pages or parts that are much shorter.
pub const CALL_MAX: usize = 16 << 20;

/// About how many bytes of commits or entries an answer has, and how many of one commit.
pub const PAGE_BYTES: usize = 4 << 20;

/// An answer of the bus, with the partitions that gave none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallAnswer<T> {
    /// The version.
    pub v: V,
    /// The result.
    #[serde(default = "super::none", skip_serializing_if = "Option::is_none")]
    pub ok: Option<T>,
    /// The refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Rejection>,
    /// Partitions that did not answer (OWN-08).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_partitions: Vec<u32>,
}

impl<T> CallAnswer<T> {
    /// The answer to a request that all partitions have answered.
    pub fn of(result: Result<T, Rejection>) -> Self {
        let Answer { v, ok, error } = Answer::from(result);
        Self { v, ok, error, missing_partitions: Vec::new() }
    }

    /// The result, and the partitions that did not answer.
    ///
    /// # Errors
    /// The refusal, or `unavailable` for an answer that says nothing.
    pub fn into_result(self) -> Result<(T, Vec<u32>), Rejection> {
        let Self { v, ok, error, missing_partitions } = self;
        Ok((Answer { v, ok, error }.into_result()?, missing_partitions))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{decode, encode};
    use super::*;

    /// Where every partition has answered, the answer is byte for byte the one of the bus.
    #[test]
    fn an_answer_is_that_of_the_bus() {
        for result in [Ok(7_u8), Err(Rejection::invalid("limit", "it is 0"))] {
            let of_bus = encode(&Answer::from(result.clone())).unwrap();
            assert_eq!(encode(&CallAnswer::of(result)).unwrap(), of_bus);
        }
    }

    #[test]
    fn a_reader_of_the_bus_passes_over_missing_partitions() {
        let answer = CallAnswer { missing_partitions: vec![3], ..CallAnswer::of(Ok(7_u8)) };
        let bytes = encode(&answer).unwrap();
        assert_eq!(decode::<Answer<u8>>(&bytes).unwrap().into_result(), Ok(7));
        assert_eq!(decode::<CallAnswer<u8>>(&bytes).unwrap().into_result(), Ok((7, vec![3])));
    }
}
