//! The handlers of a worker: the functions that run Steps, by name.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tenure_core::id::{BadId, HandlerName};

use super::context::StepContext;

/// The error of a handler, of any type. The Step then fails with code `unhandled_exception`
/// (CTX-03).
pub type HandlerError = Box<dyn std::error::Error + Send + Sync>;

type Running = Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send>>;

/// A handler as the pool stores it.
pub(super) type Handler = Arc<dyn Fn(StepContext) -> Running + Send + Sync>;

/// The handlers of a worker.
#[derive(Clone, Default)]
pub struct Handlers {
    by_name: HashMap<HandlerName, Handler>,
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

impl Handlers {
    /// An empty set of handlers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an async handler. It must not block its thread; [`blocking`](Self::blocking) may.
    ///
    /// # Errors
    /// The name is not a handler name.
    pub fn on<F, Fut>(mut self, name: &str, handler: F) -> Result<Self, BadId>
    where
        F: Fn(StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let boxed: Handler = Arc::new(move |ctx| Box::pin(handler(ctx)));
        self.by_name.insert(HandlerName::new(name)?, boxed);
        Ok(self)
    }

    /// Adds a handler that blocks its thread: it runs on a thread for blocking work, so its lease
    /// is renewed meanwhile.
    ///
    /// # Errors
    /// The name is not a handler name.
    pub fn blocking<F>(self, name: &str, handler: F) -> Result<Self, BadId>
    where
        F: Fn(StepContext) -> Result<(), HandlerError> + Send + Sync + 'static,
    {
        let handler = Arc::new(handler);
        self.on(name, move |ctx| {
            let handler = Arc::clone(&handler);
            async move {
                match tokio::task::spawn_blocking(move || handler(ctx)).await {
                    Ok(result) => result,
                    Err(error) => match error.try_into_panic() {
                        Ok(panic) => std::panic::resume_unwind(panic),
                        Err(error) => Err(error.into()),
                    },
                }
            }
        })
    }

    pub(super) fn get(&self, name: &HandlerName) -> Option<&Handler> {
        self.by_name.get(name)
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &HandlerName> {
        self.by_name.keys()
    }
}
