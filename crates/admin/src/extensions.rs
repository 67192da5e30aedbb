//! Requests for endpoints that plugins serve.

use crate::request::Call;
use crate::respond::{ApiResult, Failure, empty, json_bytes};
use axum::http::StatusCode;
use plugin::{EndpointReply, EndpointRequest};
use std::sync::Arc;

/// Answers a request for the endpoint at this position.
pub(crate) async fn answer(call: &Call<'_>, at: usize) -> ApiResult {
    let extensions = call.app.extensions().ok_or_else(Failure::not_found)?;
    let mut operations = extensions.endpoints[at].operations.iter();
    // HEAD was turned into GET before, and the methods of the endpoint are known to contain this one.
    let operation = operations
        .find(|operation| operation.method == call.method)
        .ok_or_else(Failure::method_not_allowed)?;
    let request = EndpointRequest {
        method: call.method.to_owned(),
        parameters: call.parameters.clone(),
        query: call.query.clone(),
        body: call.bytes.clone(),
    };
    let answer = match (operation.handle)(request, Arc::clone(&extensions.node)) {
        EndpointReply::Ready(answer) => answer,
        EndpointReply::Wait(answer) => answer.await,
    };
    let status = StatusCode::from_u16(answer.status).ok();
    let status = status.filter(|status| (200..600).contains(&status.as_u16()));
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Ok(match answer.body {
        Some(body) => json_bytes(status, body),
        None => empty(status),
    })
}
