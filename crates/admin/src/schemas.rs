//! `/schemas/*`: returns schemas, and validates entities without writing them.
//! Source: kong/api/routes/kong.lua.

use crate::body::Body;
use crate::infer::infer;
use crate::request::Call;
use crate::respond::{ApiResult, Failure, json, message};
use axum::http::StatusCode;
use model::schema::registry;
use model::{EntityKind, Object};

pub(crate) fn entity(call: &Call<'_>) -> ApiResult {
    let kind = kind(call)?;
    let flavor = call.control.context().flavor;
    let schema = registry().entity(kind).schema_json(flavor);
    Ok(json(StatusCode::OK, &schema))
}

pub(crate) fn plugin(call: &Call<'_>) -> ApiResult {
    let name = call.parameter("name");
    let schema = registry().plugin(name).ok_or_else(|| no_plugin(name))?;
    Ok(json(StatusCode::OK, &schema.schema_json()))
}

/// The deprecated endpoint, which returns only the fields of `config`.
pub(crate) fn plugin_config(call: &Call<'_>) -> ApiResult {
    let name = call.parameter("name");
    let schema = registry().plugin(name).ok_or_else(|| no_plugin(name))?;
    let mut schema = schema.schema_json();
    let fields = schema["fields"]
        .as_array_mut()
        .and_then(|fields| fields.iter_mut().find_map(|field| field.get_mut("config")))
        .map(|config| config["fields"].take())
        .unwrap_or_else(|| serde_json::json!([]));
    Ok(json(
        StatusCode::OK,
        &serde_json::json!({ "fields": fields }),
    ))
}

fn no_plugin(name: &str) -> Failure {
    missing(format!("No plugin named '{name}'"))
}

pub(crate) fn vault(call: &Call<'_>) -> ApiResult {
    let name = call.parameter("name");
    let schema = registry()
        .entity(EntityKind::Vaults)
        .subschema_json(name)
        .ok_or_else(|| missing(format!("No vault named '{name}'")))?;
    Ok(json(StatusCode::OK, &schema))
}

pub(crate) fn filter(call: &Call<'_>) -> ApiResult {
    let name = call.parameter("name");
    Err(missing(format!("Filter '{name}' not found")))
}

pub(crate) fn validate_entity(call: &Call<'_>) -> ApiResult {
    validate(call, kind(call)?)
}

/// Runs schema and entity checks. Uniqueness and references are not checked.
pub(crate) fn validate(call: &Call<'_>, kind: EntityKind) -> ApiResult {
    let entity = match call.body()? {
        Body::Form(mut fields) => {
            infer(kind, &mut fields, None);
            fields
        }
        Body::Json(fields) => fields,
        Body::None | Body::Yaml(_) => Object::new(),
    };
    registry()
        .entity(kind)
        .complete(entity, &call.control.context())?;
    Ok(message(StatusCode::OK, "schema validation successful"))
}

fn kind(call: &Call<'_>) -> Result<EntityKind, Failure> {
    let name = call.parameter("name");
    EntityKind::from_name(name).ok_or_else(|| missing(format!("No entity named '{name}'")))
}

fn missing(text: String) -> Failure {
    Failure::Message(StatusCode::NOT_FOUND, text.into())
}
