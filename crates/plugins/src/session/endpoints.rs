//! `/sessions` of the Admin API: the rows of the storage `kong`, as Kong shows the entities of this name. They are in a
//! store of their own and belong to no configuration, so they can be written without a database too.
//! Source: kong/api/endpoints.lua.

use super::NAME;
use super::rows::{patched, row_of, shown};
use data_encoding::BASE64URL_NOPAD;
use model::schema::Context;
use model::{Error, ErrorCode, Object, Value};
use plugin::{Endpoint, EndpointAnswer, EndpointReply, EndpointRequest, Node};
use serde_json::json;
use std::sync::Arc;
use tokens::sessions::{Expected, Put, SessionRow, SessionStore, SessionStoreError};
use uuid::Uuid;

const DEFAULT_SIZE: usize = 100;
const MAX_SIZE: usize = 1000;

/// Number of rows that are read at once.
const PART: usize = 64;

/// How often a PATCH begins again because the row was changed meanwhile.
const MAX_ATTEMPTS: usize = 10;

/// A page ends when its data is longer than this.
const MAX_BYTES: usize = 4 << 20;

pub(crate) fn endpoints() -> [Endpoint; 2] {
    [
        Endpoint::new(NAME, "/sessions")
            .on(
                "GET",
                "List the sessions of the storage `kong`",
                |request, node| apart(node, move |node, store| list(&request, node, store)),
            )
            .on("POST", "Create a session", |request, node| {
                let new = |input, _: &Node, _: &dyn SessionStore| Ok((input, Expected::Nothing));
                written(&request, node, new, 201)
            }),
        Endpoint::new(NAME, "/sessions/{sessions}")
            .on("GET", "Show a session", |request, node| {
                apart(node, move |node, store| {
                    let found = find(&request, node, store)?.ok_or_else(not_found)?;
                    Ok(EndpointAnswer::json(200, &shown(&found, &context(node))?))
                })
            })
            .on("PUT", "Create or replace a session", |request, node| {
                written(&request, node, named(&request), 200)
            })
            .on("PATCH", "Change a session", patch)
            .on("DELETE", "Delete a session", delete),
    ]
}

/// The response of a request that cannot be carried out.
pub(super) struct Refused(EndpointAnswer);

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self(EndpointAnswer::json(error.code.status(), &error.to_json()))
    }
}

impl From<SessionStoreError> for Refused {
    fn from(error: SessionStoreError) -> Self {
        match error {
            SessionStoreError::Busy | SessionStoreError::Full => {
                Self(EndpointAnswer::message(503, &error.to_string()))
            }
            SessionStoreError::TooLarge => Self(EndpointAnswer::message(413, &error.to_string())),
            error => {
                tracing::error!(%error, "the Admin API cannot use the sessions");
                Self::unexpected()
            }
        }
    }
}

impl Refused {
    pub(super) fn unexpected() -> Self {
        Self(EndpointAnswer::message(500, "An unexpected error occurred"))
    }
}

fn not_found() -> Refused {
    Refused(EndpointAnswer::message(404, "Not found"))
}

type Answered = Result<EndpointAnswer, Refused>;

fn answer(answered: Answered) -> EndpointAnswer {
    answered.unwrap_or_else(|Refused(answer)| answer)
}

fn store(node: &Node) -> Result<&Arc<dyn SessionStore>, Refused> {
    let none = || {
        Refused(EndpointAnswer::message(
            501,
            "this node has no store of sessions",
        ))
    };
    node.sessions.as_ref().ok_or_else(none)
}

fn context(node: &Node) -> Context {
    Context::at(node.clock.since_epoch())
}

fn now(node: &Node) -> u64 {
    node.clock.since_epoch().as_secs()
}

/// Runs what reads on a thread of its own, because it may wait for the disk.
fn apart(
    node: Arc<Node>,
    work: impl FnOnce(&Node, &dyn SessionStore) -> Answered + Send + 'static,
) -> EndpointReply {
    EndpointReply::Wait(Box::pin(async move {
        let work = move || answer(store(&node).and_then(|store| work(&node, &**store)));
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|error| EndpointAnswer::message(500, &error.to_string()))
    }))
}

fn list(request: &EndpointRequest, node: &Node, store: &dyn SessionStore) -> Answered {
    let size = size(request)?;
    let mut after = request.query("offset").map(parse_offset).transpose()?;
    let (context, now) = (context(node), now(node));
    let (mut data, mut bytes, mut is_last) = (Vec::new(), 0, false);
    while data.len() < size && bytes < MAX_BYTES && !is_last {
        let most = PART.min(size - data.len());
        // One row more tells whether there is a further page.
        let mut rows = store.list(after, most + 1, now)?;
        is_last = rows.len() <= most;
        rows.truncate(most);
        for row in &rows {
            bytes += row.data.as_ref().map_or(0, String::len);
            data.push(shown(row, &context)?);
            after = Some(row.id);
        }
    }
    let mut page = json!({"data": data, "next": null});
    if let Some(id) = after.filter(|_| !is_last) {
        let offset = BASE64URL_NOPAD.encode(json!([id]).to_string().as_bytes());
        let size = request.query("size").map(|_| format!("&size={size}"));
        page["next"] = format!("/sessions?offset={offset}{}", size.unwrap_or_default()).into();
        page["offset"] = offset.into();
    }
    Ok(EndpointAnswer::json(200, &page))
}

fn size(request: &EndpointRequest) -> Result<usize, Refused> {
    let Some(text) = request.query("size") else {
        return Ok(DEFAULT_SIZE);
    };
    let invalid = |text| Refused::from(Error::new(ErrorCode::InvalidSize, text));
    let number = text.trim().parse::<f64>();
    number.map_err(|_| invalid("size must be a number"))?;
    let size = text.trim().parse().ok();
    size.filter(|size| (1..=MAX_SIZE).contains(size))
        .ok_or_else(|| invalid("size must be an integer between 1 and 1000"))
}

fn parse_offset(text: &str) -> Result<Uuid, Refused> {
    let ids = BASE64URL_NOPAD.decode(text.as_bytes()).ok();
    let ids = ids.and_then(|json| serde_json::from_slice::<[Uuid; 1]>(&json).ok());
    let [id] = ids.ok_or_else(|| {
        let message = format!("'{text}' is not a valid offset: bad base64 encoding");
        Refused::from(Error::new(ErrorCode::InvalidOffset, message))
    })?;
    Ok(id)
}

/// What a segment of the path names. As in Kong, a text of 36 characters that is a UUID is an id.
fn id_of(segment: &str) -> Option<Uuid> {
    (segment.len() == 36).then(|| Uuid::try_parse(segment).ok())?
}

fn find(
    request: &EndpointRequest,
    node: &Node,
    store: &dyn SessionStore,
) -> Result<Option<SessionRow>, Refused> {
    let segment = request.parameter("sessions");
    Ok(match id_of(segment) {
        Some(id) => store.row(id, now(node))?,
        None => store.row_of(segment, now(node))?,
    })
}

fn input_of(request: &EndpointRequest) -> Result<Object, Refused> {
    if request.body.is_empty() {
        return Ok(Object::new());
    }
    let parsed = serde_json::from_slice(&request.body);
    parsed.map_err(|_| Refused(EndpointAnswer::message(400, "Cannot parse JSON body")))
}

/// Returns what completes the input of a PUT: the path names the row.
fn named(
    request: &EndpointRequest,
) -> impl FnOnce(Object, &Node, &dyn SessionStore) -> Result<(Object, Expected), Refused> + use<> {
    let segment = request.parameter("sessions").to_owned();
    move |mut input, node, store| {
        let id = match id_of(&segment) {
            Some(id) => Some(id),
            None => {
                input.insert("session_id", Value::from(&*segment));
                store.row_of(&segment, now(node))?.map(|row| row.id)
            }
        };
        let id = id.unwrap_or_else(Uuid::new_v4);
        input.insert("id", Value::from(id.to_string()));
        Ok((input, Expected::Anything))
    }
}

/// Writes a whole row. `complete` adds to the input what the path says, and returns what there must be.
fn written(
    request: &EndpointRequest,
    node: Arc<Node>,
    complete: impl FnOnce(Object, &Node, &dyn SessionStore) -> Result<(Object, Expected), Refused>
    + Send
    + 'static,
    status: u16,
) -> EndpointReply {
    let input = input_of(request);
    EndpointReply::Wait(Box::pin(async move {
        let write = async {
            let store = store(&node)?;
            let (input, expected) = complete(input?, &node, &**store)?;
            let row = row_of(input, &context(&node))?;
            let done = store.put(row.clone(), expected, now(&node)).await?;
            answer_to(done, &row, &node, status)
        };
        answer(write.await)
    }))
}

fn patch(request: EndpointRequest, node: Arc<Node>) -> EndpointReply {
    EndpointReply::Wait(Box::pin(async move {
        let write = async {
            let store = store(&node)?;
            let input = input_of(&request)?;
            for _ in 0..MAX_ATTEMPTS {
                let found = find(&request, &node, &**store)?.ok_or_else(not_found)?;
                let row = patched(&found, input.clone(), &context(&node))?;
                let expected = Expected::Same(found);
                match store.put(row.clone(), expected, now(&node)).await? {
                    Put::Changed => {}
                    done => return answer_to(done, &row, &node, 200),
                }
            }
            Err(SessionStoreError::Busy.into())
        };
        answer(write.await)
    }))
}

fn answer_to(done: Put, row: &SessionRow, node: &Node, status: u16) -> Answered {
    let violation = |code, what: &str, field: &str, value: &str| {
        let fields = Object::from_iter([(field, Value::from(value))]);
        let key = model::error::brace_notation(&Value::Object(fields.clone()));
        Err(Error::new(code, format!("{what} '{key}'"))
            .with_fields(fields)
            .into())
    };
    match done {
        Put::Done => Ok(EndpointAnswer::json(status, &shown(row, &context(node))?)),
        Put::Changed => Err(SessionStoreError::Busy.into()),
        Put::IdExists => {
            let what = "primary key violation on key";
            let id = row.id.to_string();
            violation(ErrorCode::PrimaryKeyViolation, what, "id", &id)
        }
        Put::SessionIdExists => {
            let what = "UNIQUE violation detected on";
            violation(
                ErrorCode::UniqueViolation,
                what,
                "session_id",
                &row.session_id,
            )
        }
        Put::Full => Ok(EndpointAnswer::message(
            507,
            "the store of sessions is full",
        )),
    }
}

/// Deleting what does not exist succeeds, as in Kong.
fn delete(request: EndpointRequest, node: Arc<Node>) -> EndpointReply {
    EndpointReply::Wait(Box::pin(async move {
        let delete = async {
            let (store, segment) = (store(&node)?, request.parameter("sessions"));
            match id_of(segment) {
                Some(id) => store.remove(id).await?,
                None => store.delete(segment).await?,
            }
            Ok(EndpointAnswer::empty(204))
        };
        answer(delete.await)
    }))
}
