//! The handler `a2a`: hands its Step to an agent elsewhere that speaks A2A (A2A-02, A2A-04).
//!
//! The agent's task is named in a checkpoint of the Attempt, so that another Attempt goes on with the same task when
//! the worker dies, is restarted, or the Step was blocked by a question of the agent. Messages have ids that are made
//! of the Step and not of the Attempt; before one that may have come already is sent, the agent is asked for it.

mod errand;
mod input;
mod mark;
mod outcome;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tenure_core::id::BadId;

use self::errand::Errand;
use self::input::Delegation;
use super::builtin::without_secret;
use super::context::StepContext;
use super::handler::{HandlerError, Handlers};
use crate::secrets::{SecretRef, SecretSources};

/// Name of the handler that hands its Step to an agent.
pub const A2A: &str = "a2a";

/// Which agents a worker speaks to, and as whom.
#[derive(Clone, Default)]
pub struct DelegationSettings {
    /// The hosts that may be reached; none: all.
    pub hosts: Option<Vec<String>>,
    /// The tokens that say who the caller is, by the host to which each is sent.
    pub tokens: BTreeMap<String, String>,
    /// The certificate of the authority that signed the agents' own, if the machine does not know it.
    pub ca: Option<PathBuf>,
    /// Where the secrets are that a Step may name as its token.
    pub secrets: SecretSources,
}

impl fmt::Debug for DelegationSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelegationSettings")
            .field("hosts", &self.hosts)
            .field("tokens", &self.tokens.keys())
            .field("ca", &self.ca)
            .field("secrets", &self.secrets)
            .finish()
    }
}

impl Handlers {
    /// Adds `a2a`. Whoever makes Steps decides to which address it connects: `settings` may narrow that.
    ///
    /// # Errors
    /// Never, as the name is valid.
    pub fn with_a2a(self, settings: DelegationSettings) -> Result<Self, BadId> {
        let settings = Arc::new(settings);
        self.on(A2A, move |ctx| run(ctx, Arc::clone(&settings)))
    }
}

async fn run(ctx: StepContext, settings: Arc<DelegationSettings>) -> Result<(), HandlerError> {
    let input: Delegation = match ctx.input_json() {
        Ok(input) => input,
        Err(error) => {
            let message =
                format!("a2a takes {{\"card\": URL, \"message\": TEXT or MESSAGE}}: {error}");
            return Ok(ctx.reject(&message)?);
        }
    };
    let token = match &input.token {
        None => None,
        Some(SecretRef { secret }) => match settings.secrets.read(secret).await {
            Ok(token) => Some(token),
            Err(error) => return Ok(without_secret(&ctx, &error)?),
        },
    };
    let mut errand = Errand::new(ctx.clone(), (input, token), settings);
    let ended = tokio::select! {
        ended = errand.run() => Some(ended),
        () = ctx.cancellation().cancelled() => None,
    };
    match ended {
        Some(Ok(end)) => errand.finish(end).await?,
        Some(Err(error)) => errand.fail(error).await?,
        None => errand.stop().await,
    }
    Ok(())
}
