//! Asks a server within a timeout of our own, and says why that failed.

use std::error::Error;
use std::time::Duration;

use tokio::time::timeout;

/// Why a server, of NATS or of Redis, did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The server did not answer in time; the text says so.
    #[error("{0}")]
    Silent(String),
    /// The server refused, the connection broke, or the answer could not be read.
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
}

impl RequestError {
    /// A failure with the error of the server or of its client library; a text will do.
    pub fn failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Failed(error.into())
    }
}

/// The answer of a server, if it comes within this time. `silence` is the error text if it does
/// not.
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
