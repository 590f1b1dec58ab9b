//! A method by its name, for the bindings that have all methods at one place.

use axum::http::request::Parts;
use serde_json::Value as Json;

use super::updates::UpdateStream;
use super::{AgentCall, last_event_id};
use crate::Backend;
use crate::a2a::dialect::A2aMethod;
use crate::a2a::error::A2aError;
use crate::live::StreamPermit;

/// What a method comes to.
pub(crate) enum Performed<P> {
    /// One answer, as the version of the caller writes it.
    Answer(Json),
    /// What happens to a task, and the right to tell it.
    Updates {
        /// What happens.
        stream: UpdateStream<P>,
        /// The right to one more stream.
        permit: StreamPermit,
    },
}

impl<B: Backend> AgentCall<B> {
    /// Does what a method asks for.
    ///
    /// # Errors
    /// The parameters are not those of the method, or it is refused.
    pub(crate) async fn perform(
        &self,
        method: A2aMethod,
        params: Json,
        parts: &Parts,
    ) -> Result<Performed<B::Client>, A2aError> {
        let to = self.dialect;
        Ok(Performed::Answer(match method {
            A2aMethod::Send => to.reply(&self.send(to.params(method, params)?).await?),
            A2aMethod::Get => to.task(&self.get(&to.params(method, params)?).await?),
            A2aMethod::List => {
                let asked = to.list(to.params(method, params)?);
                to.page(&self.list(&asked).await?)
            }
            A2aMethod::Cancel => to.task(&self.cancel(&to.params(method, params)?).await?),
            A2aMethod::Stream => {
                let permit = self.permit()?;
                let stream = self.stream(to.params(method, params)?).await?;
                return Ok(Performed::Updates { stream, permit });
            }
            A2aMethod::Subscribe => {
                let (permit, since) = (self.permit()?, last_event_id(parts)?);
                let stream = self.subscribe(&to.params(method, params)?, since).await?;
                return Ok(Performed::Updates { stream, permit });
            }
            A2aMethod::PushCreate => to.push(&self.push_create(to.params(method, params)?).await?),
            A2aMethod::PushGet => to.push(&self.push_get(&to.params(method, params)?).await?),
            A2aMethod::PushList => to.pushes(&self.push_list(&to.params(method, params)?).await?),
            A2aMethod::PushDelete => {
                self.push_delete(&to.params(method, params)?).await?;
                to.deleted()
            }
            A2aMethod::ExtendedCard => self.extended_card(parts)?,
        }))
    }
}
