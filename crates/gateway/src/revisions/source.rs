//! Source of the history: the running gateway, over its socket, or the store if no gateway runs.

use crate::client::{ApiClient, ClientError};
use crate::commands::Failure;
use crate::control::{rebuild, writer};
use crate::declarative_file;
use crate::instance::not_running;
use crate::plane;
use crate::settings::{Database, Declarative, Settings};
use crate::start::{self, Instead};
use crate::token_store;
use model::schema::Context;
use plugin::NodeIdentity;
use serde_json::Value;
use store::{Inspection, Revision, Store};

pub(super) enum Source {
    Running(ApiClient),
    Stored(Box<Stored>),
}

/// A store that no gateway of the prefix serves.
pub(super) struct Stored {
    settings: Settings,
    inspection: Inspection,
    context: Context,
}

impl Source {
    pub(super) fn open(settings: &Settings) -> Result<Self, Failure> {
        match ApiClient::connect(&settings.prefix) {
            Ok(client) => Ok(Self::Running(client)),
            Err(ClientError::NotRunning(_)) => Ok(Self::Stored(Box::new(Stored::open(settings)?))),
            Err(error) => Err(Failure::new(error)),
        }
    }

    /// Returns the response to a `GET` of the Admin API. A store is only read for it: a damaged one is reported, and
    /// stays where it is.
    pub(super) fn get(&self, path: &str) -> Result<Value, Failure> {
        match self {
            Self::Running(client) => {
                let answer = client.request("GET", path, &[], "").map_err(Failure::new)?;
                read(answer.status, &answer.body)
            }
            Self::Stored(stored) => {
                let view = stored.inspection.view().map_err(Failure::new)?;
                let (status, body) = admin::read_history(&view, &stored.context, path);
                read(status, &body)
            }
        }
    }

    /// Returns the declarative file that a gateway with `database = off` loads again at its next start or reload. Without
    /// a gateway, it is the file of the settings, or the one that wrote the newest revision.
    pub(super) fn declarative_file(&self) -> Result<Option<String>, Failure> {
        match self {
            Self::Running(_) => {
                let mut configuration = self.get("/")?["configuration"].take();
                if configuration["database"] != "off" {
                    return Ok(None);
                }
                Ok(match configuration["declarative_config"].take() {
                    Value::String(path) => Some(path),
                    _ => None,
                })
            }
            Self::Stored(stored) => {
                let database = &stored.settings.store.database;
                if let Database::Off(Declarative::File(path)) = database {
                    return Ok(Some(path.display().to_string()));
                }
                let newest = self.get("/revisions?size=1")?;
                let source = newest["data"][0]["source"].as_str();
                let path = source.and_then(declarative_file::path);
                Ok(path.map(str::to_owned))
            }
        }
    }

    pub(super) fn roll_back(self, revision: u64, body: &Value) -> Result<Value, Failure> {
        let is_dry = body["dry_run"] == true;
        let body = body.to_string();
        match self {
            Self::Running(client) => {
                let path = format!("/revisions/{revision}/rollback");
                let headers = [("content-type", "application/json")];
                let answer = client.request("POST", &path, &headers, body);
                let answer = answer.map_err(Failure::new)?;
                read(answer.status, &answer.body)
            }
            Self::Stored(stored) => {
                let Stored {
                    settings,
                    inspection,
                    context,
                } = *stored;
                let build = plane::build_settings(&settings, NodeIdentity::default())?;
                // The file is known to be undamaged, so that it is not renamed now.
                drop(inspection);
                let store = start::open_store(&settings, Instead::Nothing)?;
                let tokens = match is_dry {
                    true => token_store::open_existing(&settings)?,
                    false => None,
                };
                let (status, body) = admin::roll_back(
                    &store,
                    tokens,
                    &context,
                    (Revision(revision), body.as_bytes()),
                    // Refuse a configuration that cannot be served, because the next start would fail.
                    &mut |view| rebuild::whole(view, None, &build).map(drop),
                );
                read(status, &body)
            }
        }
    }
}

fn read(status: u16, body: &[u8]) -> Result<Value, Failure> {
    let answer: Value = serde_json::from_slice(body)
        .map_err(|error| Failure::new(format!("the answer is no JSON: {error}")))?;
    if (200..300).contains(&status) {
        return Ok(answer);
    }
    Err(Failure::new(match answer["message"].as_str() {
        Some(message) => message.to_owned(),
        None => format!("status {status}: {answer}"),
    }))
}

impl Stored {
    fn open(settings: &Settings) -> Result<Self, Failure> {
        let path = &settings.store.path;
        let shown = path.display();
        if !Store::exists(path) {
            return Err(Failure::new(format!(
                "{}. There is no store in {shown} either",
                not_running(&settings.prefix)
            )));
        }
        let is_off = settings.store.database != Database::Lmdb;
        Ok(Self {
            inspection: start::inspect(&settings.store)?,
            context: writer::context(&settings.model, is_off),
            settings: settings.clone(),
        })
    }
}
