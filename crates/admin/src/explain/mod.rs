//! `POST /router/explain`: explains which route a request gets and why, which plugins run, and where the request goes.
//! Kong has no equivalent.

mod answer;
pub(crate) mod conflicts;
pub(crate) mod question;

pub use answer::{
    Asked, Candidate, Explanation, GatewayAnswer, Named, Plugin, Reason, Seen, Service, Upstream,
    Verdict,
};
pub use conflicts::{Among, Cause, Conflicts, Example, Never, Search, Subsystem, Tie};
pub use question::{Protocol, Question};

use crate::request::Call;
use crate::respond::{ApiResult, Failure, json_bytes};
use axum::http::StatusCode;
use model::{Error, Object, Value};

pub(crate) async fn explain(call: &Call<'_>) -> ApiResult {
    let question = Question::read(call.json_body()?)?;
    let explanation = call.control.explain(question).await?;
    let bytes = serde_json::to_vec(&explanation).map_err(Failure::internal)?;
    Ok(json_bytes(StatusCode::OK, bytes))
}

/// The error for an entity that the request names but that does not exist.
pub fn unknown(field: &'static str, name: &str) -> Error {
    let problem = format!("no {field} has the id or name {name}");
    Error::schema_violation(Object::from_iter([(field, Value::from(problem))]))
}
