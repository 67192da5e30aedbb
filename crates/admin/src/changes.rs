//! `POST /changes`: any number of creates, updates and deletes as one revision. Kong has no equivalent: there, clients
//! can observe a partly applied change.

use crate::control::{Control, Database, Refusal};
use crate::endpoints;
use crate::entities::find::Selector;
use crate::entities::write::{self, Action, Input, Write};
use crate::explain::conflicts;
use crate::proposal::propose;
use crate::render;
use crate::request::Call;
use crate::respond::{ApiResult, Failure, UNREADABLE_STORE, json_bytes};
use crate::shown::Entity;
use axum::http::StatusCode;
use model::declarative::MAX_OF_DOCUMENT;
use model::schema::VaultReferences;
use model::{EntityKind, Error, ErrorCode, Object, Value};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use store::{CommitError, Revision, Transaction};
use uuid::Uuid;

/// The request body, after its structure has been checked.
struct Request {
    changes: Vec<Result<Change, String>>,
    message: Option<String>,
    expected_revision: Option<Revision>,
    dry_run: bool,
}

#[derive(Clone)]
struct Change {
    verb: Verb,
    kind: EntityKind,
    /// Id or endpoint key of the entity; `None` to create one.
    key: Option<String>,
    data: Object,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Verb {
    Create,
    Upsert,
    Update,
    Delete,
}

impl Verb {
    const ALL: [Self; 4] = [Self::Create, Self::Upsert, Self::Update, Self::Delete];

    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Upsert => "upsert",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

pub(crate) async fn apply(call: &Call<'_>) -> ApiResult {
    let body = call.json_body()?;
    if call.control.database() == Database::Off {
        let message = "cannot apply changes when not using a database";
        return Err(Error::new(ErrorCode::OperationUnsupported, message).into());
    }
    let request = Request::read(body).map_err(Failure::bad_request)?;
    let Request {
        changes,
        message,
        expected_revision,
        dry_run,
    } = request;
    let control = call.app.shared();
    let mut origin = call.origin.clone();
    origin.message = message.or(origin.message);
    let (written, revision) = propose(
        call,
        origin,
        expected_revision,
        dry_run,
        move |transaction| apply_all(&changes, &*control, transaction),
    )
    .await?;
    let Written {
        shown,
        routes,
        plugins,
        references,
    } = written;
    conflicts::warn(call, routes).await;
    write::warn_of_plugins(call, &plugins);
    call.warn(references.notices().collect());
    let answer = Applied {
        revision: revision.0,
        dry_run,
        changes: shown,
    };
    let out = serde_json::to_vec(&answer).map_err(Failure::internal)?;
    Ok(json_bytes(StatusCode::OK, out))
}

/// The applied changes.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Applied {
    revision: u64,
    dry_run: bool,
    changes: Vec<Made>,
}

/// A change and the entity that results from it; `entity` is null after a delete.
#[derive(Debug, Serialize, JsonSchema)]
struct Made {
    action: Verb,
    /// Type of the entity, such as `services`.
    #[serde(rename = "type")]
    kind: &'static str,
    entity: Option<Entity>,
}

/// The entities that changes have written.
#[derive(Default)]
struct Written {
    /// The written entities, for the response.
    shown: Vec<Made>,
    routes: Vec<Uuid>,
    plugins: Vec<Object>,
    references: VaultReferences,
}

/// Applies each change to the state after the previous change. Returns the written entities.
///
/// After an invalid change the remaining ones are still tried, so that the error lists up to [`MAX_OF_DOCUMENT`]
/// problems.
fn apply_all(
    changes: &[Result<Change, String>],
    control: &dyn Control,
    transaction: &mut Transaction<'_>,
) -> Result<Written, Refusal> {
    let mut errors = Vec::new();
    let (mut told, mut tried) = (0, 0);
    let mut refuse = |index, failure: &Failure| {
        let error = problem(index, failure);
        told += error["problems"].as_array().map_or(1, Vec::len);
        errors.push(error);
        told >= MAX_OF_DOCUMENT
    };
    let mut written = Written::default();
    for (index, change) in changes.iter().enumerate() {
        let result = match change {
            Ok(change) => change.apply(control, transaction, &mut written),
            Err(text) => Err(Failure::bad_request(text.clone()).into()),
        };
        tried += 1;
        let is_enough = match result {
            Ok(()) => false,
            Err(Refusal::Failure(failure)) => refuse(index, &failure),
            Err(Refusal::Commit(CommitError::Violations(violations))) => violations
                .iter()
                .any(|one| refuse(index, &one.to_error().into())),
            Err(error) => return Err(error),
        };
        if is_enough {
            break;
        }
    }
    if errors.is_empty() {
        return Ok(written);
    }
    let (count, all) = (errors.len(), changes.len());
    let counted = |number: usize, word: &str| match number {
        1 => format!("1 {word}"),
        _ => format!("{number} {word}s"),
    };
    let (count, of_all) = (counted(count, "error"), counted(all, "change"));
    let message = if tried == all {
        format!("nothing was changed: {count} in {of_all}")
    } else {
        format!(
            "nothing was changed: {count} in the first {tried} of {of_all}; the others were not tried"
        )
    };
    let refused = json!({"message": message, "errors": errors});
    Err(Failure::Json(StatusCode::BAD_REQUEST, refused).into())
}

impl Change {
    fn apply(
        &self,
        control: &dyn Control,
        transaction: &mut Transaction<'_>,
        written: &mut Written,
    ) -> Result<(), Refusal> {
        let selector = |change: &Self| {
            let key = change.key.as_deref().unwrap_or_default();
            Selector::parse(control, change.kind, key)
        };
        let write = Write {
            kind: self.kind,
            action: match self.verb {
                Verb::Create => Action::Insert,
                Verb::Upsert => Action::Upsert(selector(self)?),
                Verb::Update => Action::Update(selector(self)?),
                Verb::Delete => Action::Delete(selector(self)?),
            },
            input: Input::json(self.data.clone()),
            link: None,
        };
        let found = write::apply(&write, control, transaction)?;
        let entity = found.as_ref().map(|found| {
            let view = transaction.view()?;
            Entity::written(|out| render::entity(out, control, &view, self.kind, found))
        });
        written.shown.push(Made {
            action: self.verb,
            kind: self.kind.name(),
            entity: entity.transpose()?,
        });
        if let Some(found) = &found {
            written.references.look_at(self.kind, &found.entity);
        }
        match (self.kind, found) {
            (EntityKind::Routes, Some(found)) => written.routes.push(found.id),
            (EntityKind::Plugins, Some(found)) => written.plugins.push(found.entity),
            _ => {}
        }
        Ok(())
    }
}

/// One error: the index of the change, the paths of the invalid fields, and the error that Kong would have returned.
fn problem(index: usize, failure: &Failure) -> serde_json::Value {
    let at = format!("changes[{index}]");
    let (error, paths) = match failure {
        Failure::Error(error) => {
            let mut paths = Vec::new();
            // With other error codes, `fields` contains keys of entities instead of error texts.
            if let ErrorCode::SchemaViolation | ErrorCode::ForeignKeysUnresolved = error.code
                && let Some(fields) = &error.fields
            {
                collect(
                    &format!("{at}.data"),
                    &Value::Object(fields.clone()),
                    &mut paths,
                );
            }
            (error.to_json(), paths)
        }
        Failure::InvalidUnique { field, text } => {
            let path = json!({"path": format!("{at}.key"), "message": text});
            (
                json!({"name": format!("invalid unique {field}"), "message": text}),
                vec![path],
            )
        }
        Failure::Message(_, text) => (json!({"message": text}), Vec::new()),
        Failure::Json(_, value) => (value.clone(), Vec::new()),
        Failure::UnreadableStore(_) => (json!({"message": UNREADABLE_STORE}), Vec::new()),
        Failure::UnsupportedMediaType | Failure::Internal(_) => (
            json!({"message": "An unexpected error occurred"}),
            Vec::new(),
        ),
    };
    let paths = if paths.is_empty() {
        vec![json!({"path": at, "message": error["message"]})]
    } else {
        paths
    };
    json!({"change": index, "problems": paths, "error": error})
}

/// Collects the texts in a tree of problems, each with its path. Array indexes start at 0, as in JSON.
fn collect(path: &str, problems: &Value, found: &mut Vec<serde_json::Value>) {
    match problems {
        Value::Object(fields) => {
            for (name, problem) in fields.iter() {
                match (name, problem) {
                    // The field `@entity` lists the problems of the entity as a whole.
                    ("@entity", Value::Array(texts)) => {
                        texts.iter().for_each(|text| collect(path, text, found));
                    }
                    _ => collect(&format!("{path}.{name}"), problem, found),
                }
            }
        }
        Value::Array(items) => {
            for (index, problem) in items.iter().enumerate() {
                collect(&format!("{path}[{index}]"), problem, found);
            }
        }
        Value::Null => {}
        text => found.push(json!({"path": path, "message": text})),
    }
}

impl Request {
    fn read(body: Object) -> Result<Self, String> {
        let mut request = Self {
            changes: Vec::new(),
            message: None,
            expected_revision: None,
            dry_run: false,
        };
        let mut given = None;
        for (name, value) in body {
            match (name.as_str(), value) {
                (_, Value::Null) => {}
                ("changes", Value::Array(changes)) => given = Some(changes),
                ("changes", _) => return Err("changes: expected an array".to_owned()),
                ("message", Value::String(text)) => request.message = Some(text.to_string()),
                ("message", _) => return Err("message: expected a string".to_owned()),
                ("dry_run", Value::Bool(dry_run)) => request.dry_run = dry_run,
                ("dry_run", _) => return Err("dry_run: expected a boolean".to_owned()),
                ("expected_revision", value) => {
                    let number = value.as_int().and_then(|number| u64::try_from(number).ok());
                    let number = number.ok_or("expected_revision: expected a revision's number")?;
                    request.expected_revision = Some(Revision(number));
                }
                (name, _) => return Err(format!("{name}: unknown field")),
            }
        }
        let given = given.ok_or("changes: required field missing")?;
        let read = |(index, change)| {
            Change::read(change).map_err(|text| format!("changes[{index}]{text}"))
        };
        request.changes = given.into_iter().enumerate().map(read).collect();
        Ok(request)
    }
}

impl Change {
    fn read(change: Value) -> Result<Self, String> {
        let Value::Object(change) = change else {
            return Err(": expected an object".to_owned());
        };
        let (mut verb, mut kind, mut key, mut data) = (None, None, None, Object::new());
        for (name, value) in change {
            match (name.as_str(), value) {
                (_, Value::Null) => {}
                ("action", Value::String(text)) => {
                    let known = Verb::ALL.into_iter().find(|verb| verb.name() == &*text);
                    let known =
                        known.ok_or(".action: expected one of: create, upsert, update, delete")?;
                    verb = Some(known);
                }
                ("type", Value::String(text)) => kind = Some(writable(&text)?),
                ("key", Value::String(text)) => key = Some(text.to_string()),
                ("data", Value::Object(fields)) => data = fields,
                ("data", _) => return Err(".data: expected an object".to_owned()),
                ("action" | "type" | "key", _) => {
                    return Err(format!(".{name}: expected a string"));
                }
                (name, _) => return Err(format!(".{name}: unknown field")),
            }
        }
        let verb = verb.ok_or(".action: required field missing")?;
        let kind = kind.ok_or(".type: required field missing")?;
        if verb == Verb::Upsert && key.is_none() {
            key = data.str("id").map(str::to_owned);
        }
        match (verb, &key) {
            (Verb::Create, Some(_)) => {
                Err(".key: not allowed with create; set the fields in data".to_owned())
            }
            (Verb::Create, None) | (_, Some(_)) => Ok(Self {
                verb,
                kind,
                key,
                data,
            }),
            (_, None) => Err(".key: required field missing".to_owned()),
        }
    }
}

/// Finds an entity type that the Admin API can write.
fn writable(name: &str) -> Result<EntityKind, String> {
    let is_writable = |kind| {
        endpoints::base(kind).is_some()
            && endpoints::has_history(kind)
            && kind != EntityKind::FilterChains
    };
    endpoints::kind_named(name, is_writable).map_err(|problem| format!(".type: {problem}"))
}
