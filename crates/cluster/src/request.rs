//! Asking a server, for no longer than a time of our own, and why that went wrong.

use std::error::Error;
use std::time::Duration;

use tokio::time::timeout;

/// Why a server, of NATS or of Redis, did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// It did not answer in time. The text says so.
    #[error("{0}")]
    Silent(String),
    /// It refused, the connection broke, or its answer could not be read.
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
}

impl RequestError {
    /// With what the server says, or the library that speaks to it; a text will do.
    pub fn failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Failed(error.into())
    }
}

/// The answer of a server, if it comes within this time. `silence` is what is said if it does not.
///
/// # Errors
/// See [`RequestError`].
pub async fn within<T, E>(
    time: Duration,
    silence: impl Into<String>,
    asked: impl IntoFuture<Output = Result<T, E>>,
) -> Result<T, RequestError>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    match timeout(time, asked).await {
        Ok(answer) => answer.map_err(RequestError::failed),
        Err(_) => Err(RequestError::Silent(silence.into())),
    }
}
