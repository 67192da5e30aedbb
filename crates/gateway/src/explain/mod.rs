//! `silverback explain`: shows how a request would be handled. It queries the running gateway, or the store if none
//! runs, or a declarative configuration.

mod invalid;
mod text;

use crate::check;
use crate::cli::ExplainArgs;
use crate::client::{ApiClient, ClientError};
use crate::commands::{Failure, resolved_settings, say, warn};
use crate::control::{explain, rebuild};
use crate::declarative_file;
use crate::plane;
use crate::settings::Settings;
use crate::start;
use admin::explain::{Explanation, Question};
use model::{EntityKind, Object};
use plugin::NodeIdentity;
use serde_json::{Map, Value, json};
use std::path::Path;
use store::Store;

pub(crate) fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let settings = resolved_settings(&args.output.settings)?;
    let body = question(args);
    let question = read(&body, args)?;
    let explanation = match &args.config {
        Some(file) => of_document(file, &settings, &question, args)?,
        None => match ApiClient::connect(&settings.prefix) {
            Ok(client) => of_gateway(&client, &body, args)?,
            Err(ClientError::NotRunning(_)) if Store::exists(&settings.store.path) => {
                of_store(&settings, &question, args)?
            }
            Err(error @ ClientError::NotRunning(_)) => {
                return Err(nothing_to_ask(&error, &settings));
            }
            Err(error) => return Err(Failure::new(error)),
        },
    };
    if args.output.json {
        let shown = serde_json::to_string_pretty(&explanation).map_err(Failure::new)?;
        return say(&format!("{shown}\n"));
    }
    say(&text::explanation(&explanation))
}

fn nothing_to_ask(error: &ClientError, settings: &Settings) -> Failure {
    Failure::new(format!(
        "{error}. There is no store in {} either. To explain with a declarative configuration, name its file with --config",
        settings.store.path.display()
    ))
}

/// Builds the body of `POST /router/explain`.
fn question(args: &ExplainArgs) -> Value {
    let mut headers = Map::new();
    for (name, value) in &args.headers {
        let values = headers.entry(name.as_str()).or_insert_with(|| json!([]));
        if let Some(values) = values.as_array_mut() {
            values.push(value.as_str().into());
        }
    }
    json!({
        "method": args.method,
        "url": args.url,
        "headers": headers,
        "source": args.source,
        "destination": args.destination,
        "sni": args.sni,
        "route": args.route,
        "consumer": args.consumer,
        "closest": args.closest,
    })
}

fn of_gateway(
    client: &ApiClient,
    body: &Value,
    args: &ExplainArgs,
) -> Result<Explanation, Failure> {
    let headers = [("content-type", "application/json")];
    let answer = client.request("POST", "/router/explain", &headers, body.to_string());
    let answer = answer.map_err(Failure::new)?;
    if answer.is_success() {
        return serde_json::from_slice(&answer.body).map_err(Failure::new);
    }
    Err(match answer.json() {
        Some(error) => invalid::failure(&error, args),
        None => Failure::new(format!("the gateway answers with status {}", answer.status)),
    })
}

fn of_store(
    settings: &Settings,
    question: &Question,
    args: &ExplainArgs,
) -> Result<Explanation, Failure> {
    let build = plane::build_settings(settings, NodeIdentity::default())?;
    let inspection = start::inspect(&settings.store)?;
    let view = inspection.view().map_err(Failure::new)?;
    let snapshot =
        rebuild::whole(&view, None, &build).map_err(|error| Failure::new(error.message))?;
    let configured = explain::InStore(&view);
    explain::of(&snapshot, build.router.flavor, question, &configured)
        .map_err(|error| invalid::failure(&error.to_json(), args))
}

fn of_document(
    file: &Path,
    settings: &Settings,
    question: &Question,
    args: &ExplainArgs,
) -> Result<Explanation, Failure> {
    let build = plane::build_settings(settings, NodeIdentity::default())?;
    let text = declarative_file::read_file(file).map_err(Failure::new)?;
    let mut configured = explain::InDocument::default();
    let mut warnings = Vec::new();
    let compiled = check::compile(&text, &settings.model, &build, &mut warnings, &mut |put| {
        let bytes = put.entity.as_slice();
        match put.kind {
            EntityKind::Plugins => configured.plugins.push(check::decode(bytes)?),
            EntityKind::Consumers => configured.consumers.push(check::decode(bytes)?),
            _ => {}
        }
        Ok(())
    });
    warnings.iter().for_each(|warning| warn(warning));
    let snapshot = compiled?;
    explain::of(&snapshot, build.router.flavor, question, &configured)
        .map_err(|error| invalid::failure(&error.to_json(), args))
}

fn read(body: &Value, args: &ExplainArgs) -> Result<Question, Failure> {
    let body: Object = match serde_json::from_value(body.clone()).map_err(Failure::new)? {
        model::Value::Object(body) => body,
        _ => Object::new(),
    };
    Question::read(body).map_err(|error| invalid::failure(&error.to_json(), args))
}
