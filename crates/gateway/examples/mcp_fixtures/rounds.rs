//! Asking the client in an answer: the client then sends the same request again, with what it was asked.

use tenure_mcp::rmcp::ErrorData;
use tenure_mcp::rmcp::model::{
    ClientCapabilities, InputRequest, InputRequests, InputRequiredResult, InputResponses,
    RequestStateCodec,
};

use crate::data::Round;

/// What came with a request.
pub(crate) struct Given<'a> {
    pub(crate) responses: Option<&'a InputResponses>,
    pub(crate) state: Option<&'a str>,
    pub(crate) client: ClientCapabilities,
}

/// What is to be asked now, or nothing if the client has answered everything. The state that a client carries is the
/// number of the round that it was asked last.
pub(crate) fn next(
    codec: &RequestStateCodec,
    rounds: &[Round],
    given: &Given<'_>,
) -> Result<Option<InputRequiredResult>, ErrorData> {
    let last = given.state.map(|sealed| codec.open_json::<usize>(sealed)).transpose();
    let last = last
        .map_err(|_| ErrorData::invalid_params("requestState is not as it was given out", None))?;
    let mut place = last.unwrap_or(0);
    if rounds.get(place).is_some_and(|round| is_answered(round, given)) {
        place += 1;
    }
    let Some(round) = rounds.get(place) else { return Ok(None) };
    let requests: InputRequests =
        askable(round, given).map(|(key, request)| (key.clone(), request.clone())).collect();
    let state = round.sealed.then(|| codec.seal_json(&place)).transpose();
    let state = state.map_err(|why| ErrorData::internal_error(why.to_string(), None))?;
    Ok(Some(InputRequiredResult::new(Some(requests), state)))
}

/// Whether all of a round was answered. What is no object is no answer.
fn is_answered(round: &Round, given: &Given<'_>) -> bool {
    let response = |key| {
        given.responses.and_then(|all| all.get(key)).is_some_and(serde_json::Value::is_object)
    };
    let has_state = !round.sealed || given.state.is_some();
    has_state && askable(round, given).all(|(key, _)| response(key))
}

/// What of a round the client can answer, by what it has declared.
fn askable<'a>(
    round: &'a Round,
    given: &'a Given<'_>,
) -> impl Iterator<Item = (&'a String, &'a InputRequest)> {
    let client = &given.client;
    round.requests.iter().filter(move |(_, request)| match request {
        InputRequest::Elicitation(_) => client.elicitation.is_some(),
        InputRequest::CreateMessage(_) => client.sampling.is_some(),
        InputRequest::ListRoots(_) => client.roots.is_some(),
        _ => false,
    })
}
