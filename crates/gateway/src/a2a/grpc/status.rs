//! Refusals as statuses of gRPC.

use std::collections::HashMap;

use axum::Router;
use axum::middleware::map_response;
use axum::response::Response;
use tenure_core::Rejection;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::a2a::error::{A2aError, DOMAIN};

/// The most characters of a message: it goes as a header, of which clients take some 8 KiB.
const MESSAGE_MAX: usize = 1_000;

/// An error with its details.
pub(super) fn to_status(error: &A2aError) -> Status {
    let texts: HashMap<_, _> = error.metadata.clone().into_iter().collect();
    let details = ErrorDetails::with_error_info(error.reason.name(), DOMAIN, texts);
    let message: String = error.message.chars().take(MESSAGE_MAX).collect();
    let code = Code::from_i32(error.reason.grpc_status() as i32);
    Status::with_error_details(code, message, details)
}

/// The same routes, whose refusals by the guard before them are statuses.
pub(crate) fn with_refusals(routes: Router) -> Router {
    routes.layer(map_response(async |mut response: Response| {
        match response.extensions_mut().remove::<Rejection>() {
            Some(refused) => to_status(&A2aError::from(refused)).into_http(),
            None => response,
        }
    }))
}
