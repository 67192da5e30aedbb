//! `POST /reload`: makes the node read its settings again. Only the local socket accepts it, because the response names
//! files of the machine and compares values of variables.

use crate::request::Call;
use crate::respond::{ApiResult, Failure, json};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The settings that were given to the command `reload`. The node does not apply them. It only reports how they differ
/// from its own.
#[derive(Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Reload {
    /// The settings file. The node refuses to reload if it was started with another file.
    pub settings_file: Option<PathBuf>,
    /// Environment variables that are settings. The node warns of each variable that has another value in its own
    /// environment.
    pub variables: BTreeMap<String, String>,
    /// Whether to refuse the reload, and change nothing, if the declarative configuration has warnings.
    // Left out when false, because older nodes refuse unknown fields.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
}

/// The effects of a reload that has succeeded.
#[derive(Debug, Default)]
pub struct Reloading {
    pub warnings: Vec<String>,
    pub configuration: Option<LoadedConfiguration>,
}

/// The declarative configuration that a reload has loaded: its revision, and how many entities it has changed. They are
/// zero if the configuration was live already.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LoadedConfiguration {
    pub revision: u64,
    pub created: u64,
    pub updated: u64,
    pub deleted: u64,
}

/// The outcome of a reload.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Reloaded {
    /// Process id of the node.
    process: u32,
    /// Sentences about settings that need a restart, input that is probably a mistake, and plugins that are not
    /// implemented.
    warnings: Vec<String>,
    /// Absent if no declarative configuration was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    configuration: Option<LoadedConfiguration>,
}

pub(crate) async fn handle(call: &Call<'_>) -> ApiResult {
    if !call.is_local {
        return Err(Failure::Message(
            StatusCode::FORBIDDEN,
            "Forbidden: only the local socket (admin.sock in the prefix) accepts a reload".into(),
        ));
    }
    let reload = match &*call.bytes {
        b"" => Reload::default(),
        body => serde_json::from_slice(body)
            .map_err(|error| Failure::bad_request(format!("Cannot parse JSON body: {error}")))?,
    };
    let process = call.control.pids().master;
    match call.control.reload(reload).await {
        Ok(Reloading {
            warnings,
            configuration,
        }) => Ok(json(
            StatusCode::OK,
            &Reloaded {
                process,
                warnings,
                configuration,
            },
        )),
        Err(reason) => Err(Failure::Json(
            StatusCode::BAD_REQUEST,
            serde_json::json!({ "message": reason, "process": process }),
        )),
    }
}
