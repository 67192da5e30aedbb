//! `/oauth2_tokens/import` and `/oauth2_tokens/export`: all OAuth2 tokens, one JSON object per line. An import is received
//! and written in parts, so it takes little memory, however long it is.

use crate::audit::Later;
use crate::control::Control;
use crate::entities::oauth2_tokens::{self, RowError};
use crate::entities::reference_to;
use crate::peer::{Connection, Permit};
use crate::request::Call;
use crate::respond::{ApiResult, Failure, json, message};
use crate::state::App;
use crate::stream::{Interrupted, Slot};
use crate::transfer::{LINES, failed, line_by_line};
use axum::body::{Body, BodyDataStream};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use model::EntityKind;
use model::schema::registry;
use model::{Object, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::View;
use tokens::{ImportOutcome, Imported, Listed, StoreError, TokenStore};
use tokio::runtime::Handle;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::spawn_blocking;

/// Rows that are written at a time.
const BATCH: usize = 1000;
/// Largest line in bytes.
const MAX_LINE: usize = 64 << 10;
/// Refused lines of which the summary tells the reason.
const MAX_ERRORS: usize = 1000;
/// Time between two reports of the progress.
const REPORT: Duration = Duration::from_secs(1);
/// Pause before a part is written again, if too many others write.
const PAUSE: Duration = Duration::from_millis(50);
/// Rows that are read at a time for an export.
const PART: usize = 1000;

/// What has become of the lines of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Lines that are done, and survive a crash. An import that broke off goes on with `skip` set to this number.
    pub lines: u64,
    pub imported: u64,
    /// Tokens that were there already.
    pub present: u64,
    /// Tokens that were known, and have been replaced, revoked or deleted. They stay so.
    pub ended: u64,
    /// Tokens whose time is over.
    pub expired: u64,
    pub refused: u64,
    /// The first refused lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<RefusedLine>,
}

/// A line that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedLine {
    /// The number of the line, from 1.
    pub line: u64,
    pub reason: String,
}

impl Summary {
    fn refuse(&mut self, line: u64, reason: String) {
        self.refused += 1;
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(RefusedLine { line, reason });
        }
    }

    fn add(&mut self, line: u64, outcome: ImportOutcome) {
        match outcome {
            ImportOutcome::Imported => self.imported += 1,
            ImportOutcome::Present => self.present += 1,
            ImportOutcome::Ended => self.ended += 1,
            ImportOutcome::Expired => self.expired += 1,
            ImportOutcome::OtherContent | ImportOutcome::OtherId => {
                self.refuse(line, refusal(outcome).to_owned());
            }
        }
    }
}

/// Nobody needs an expired token that cannot be refreshed. So it ends with its access token, if it ends at all.
fn ending(mut row: Imported) -> Imported {
    if row.refresh_token.is_none() && row.expires_in > 0 {
        let access = row.created_at.saturating_add(row.expires_in);
        row.ends = row.ends.map(|ends| ends.min(access));
    }
    row
}

/// Says why a row was refused.
fn refusal(outcome: ImportOutcome) -> &'static str {
    match outcome {
        ImportOutcome::OtherContent => "a token with this id and another content exists",
        _ => "another token has the same access_token or refresh_token",
    }
}

/// What has become of the tokens of a declarative configuration.
#[derive(Debug, Default)]
pub struct TokensOfDocument {
    pub imported: usize,
    pub present: usize,
    /// Sentences about tokens that were refused.
    pub warnings: Vec<String>,
}

impl TokensOfDocument {
    fn refuse(&mut self, warning: String) {
        if self.warnings.len() < MAX_ERRORS {
            self.warnings.push(warning);
        }
    }
}

/// Imports the tokens of a declarative configuration, whose other entities are committed. What is there already stays, also
/// if it has ended.
pub fn import_entities(
    store: &store::Store,
    tokens: &dyn TokenStore,
    entities: &[Vec<u8>],
    now: i64,
) -> Result<TokensOfDocument, Failure> {
    let mut done = TokensOfDocument::default();
    let Some(kind) = oauth2_tokens::kind() else {
        return Ok(done);
    };
    for part in entities.chunks(BATCH) {
        let mut rows = Vec::with_capacity(part.len());
        let view = store.view()?;
        for entity in part {
            let entity: Object = model::codec::decode(entity).map_err(Failure::internal)?;
            match oauth2_tokens::row_of(&view, kind, &entity, now) {
                Ok(row) => rows.push(ending(row)),
                Err(RowError::Store(error)) => return Err(error.into()),
                Err(error) => done.refuse(format!("an OAuth2 token was not imported: {error}")),
            }
        }
        drop(view);
        let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
        for (id, outcome) in ids.into_iter().zip(tokens.import(rows, now).wait()?) {
            match outcome {
                ImportOutcome::Imported => done.imported += 1,
                ImportOutcome::Present => done.present += 1,
                ImportOutcome::Ended | ImportOutcome::Expired => {}
                ImportOutcome::OtherContent | ImportOutcome::OtherId => {
                    let reason = refusal(outcome);
                    done.refuse(format!("the OAuth2 token {id} was not imported: {reason}"));
                }
            }
        }
    }
    Ok(done)
}

/// An import in progress.
struct Import {
    control: Arc<dyn Control>,
    tokens: Arc<dyn TokenStore>,
    kind: EntityKind,
    summary: Summary,
    /// Number of the last line that was read.
    line: u64,
    skip: u64,
    /// The rows of the next part, with the numbers of their lines.
    rows: Vec<Imported>,
    numbers: Vec<u64>,
}

/// Splits a body into lines.
#[derive(Default)]
struct Splitter {
    /// The beginning of a line.
    rest: Vec<u8>,
    /// Whether the line is too long, so that its rest is left out.
    is_too_long: bool,
}

impl Splitter {
    /// Takes bytes until the end of a line. Returns whether the line is complete.
    fn take(&mut self, bytes: &mut &[u8]) -> bool {
        let end = memchr::memchr(b'\n', bytes);
        let (line, rest) = match end {
            Some(end) => (&bytes[..end], &bytes[end + 1..]),
            None => (*bytes, &bytes[bytes.len()..]),
        };
        *bytes = rest;
        self.is_too_long |= self.rest.len() + line.len() > MAX_LINE;
        if !self.is_too_long {
            self.rest.extend_from_slice(line);
        }
        end.is_some()
    }
}

impl Import {
    /// Reads and writes all lines. If this fails, the summary says how far it came.
    async fn run(
        &mut self,
        mut body: BodyDataStream,
        pause: Duration,
        watch: impl Fn(&Summary),
    ) -> Result<(), Failure> {
        let mut splitter = Splitter::default();
        let mut reported = Instant::now();
        loop {
            let next = tokio::time::timeout(pause, body.next()).await;
            let Ok(next) = next else {
                let text = format!("nothing of the request body arrived for {pause:?}");
                return Err(Failure::Message(StatusCode::REQUEST_TIMEOUT, text.into()));
            };
            let Some(chunk) = next else {
                break;
            };
            let chunk =
                chunk.map_err(|_| Failure::bad_request("the request body cannot be read"))?;
            let mut bytes = &chunk[..];
            while !bytes.is_empty() {
                if !splitter.take(&mut bytes) {
                    continue;
                }
                self.read(&std::mem::take(&mut splitter))?;
                if self.rows.len() == BATCH {
                    self.write().await?;
                    if reported.elapsed() >= REPORT {
                        watch(&self.summary);
                        reported = Instant::now();
                    }
                }
            }
        }
        if !splitter.rest.is_empty() || splitter.is_too_long {
            self.read(&splitter)?;
        }
        self.write().await
    }

    fn read(&mut self, line: &Splitter) -> Result<(), Failure> {
        self.line += 1;
        if self.line <= self.skip || !line.is_too_long && line.rest.trim_ascii().is_empty() {
            return Ok(());
        }
        match self.row(line) {
            Ok(row) => {
                self.rows.push(row);
                self.numbers.push(self.line);
                Ok(())
            }
            Err(RowError::Store(error)) => Err(error.into()),
            Err(RowError::Invalid(error)) => {
                self.summary.refuse(self.line, error.message);
                Ok(())
            }
        }
    }

    fn row(&self, line: &Splitter) -> Result<Imported, RowError> {
        let refused = |text: String| {
            let error = model::Error::new(model::ErrorCode::SchemaViolation, text);
            RowError::Invalid(Box::new(error))
        };
        if line.is_too_long {
            return Err(refused(format!("the line is longer than {MAX_LINE} bytes")));
        }
        let parsed: Result<Object, _> = serde_json::from_slice(&line.rest);
        let mut entity = parsed.map_err(|_| refused("the line is not a JSON object".to_owned()))?;
        for field in ["id", "access_token"] {
            // These would be made up, and another import would not find them.
            if entity.get(field).is_none_or(Value::is_null) {
                return Err(refused(format!("{field}: required field missing")));
            }
        }
        entity.remove("ws_id");
        for field in ["credential", "service"] {
            // Declarative configurations have ids alone.
            let id = entity
                .str(field)
                .and_then(|id| uuid::Uuid::try_parse(id).ok());
            if let Some(id) = id {
                entity.insert(field, reference_to(id));
            }
        }
        let ttl = entity.remove("ttl").filter(|ttl| !ttl.is_null());
        if let Some(Value::Float(seconds)) = entity.get("created_at") {
            let whole = Value::Int(seconds.floor() as i64);
            entity.insert("created_at", whole);
        }
        let context = self.control.context();
        let completed = registry().entity(self.kind).complete(entity, &context);
        let mut entity = completed.map_err(|error| RowError::Invalid(Box::new(error)))?;
        if let Some(ttl) = ttl {
            if !matches!(ttl, Value::Int(0..) | Value::Float(_)) {
                return Err(refused("ttl: expected a number of seconds".to_owned()));
            }
            entity.insert("ttl", ttl);
        }
        let view = self.control.store().view()?;
        let row = oauth2_tokens::row_of(&view, self.kind, &entity, context.now)?;
        Ok(ending(row))
    }

    /// Writes the rows that were read.
    async fn write(&mut self) -> Result<(), Failure> {
        let now = self.control.context().now;
        let rows = std::mem::take(&mut self.rows);
        let outcomes = loop {
            if rows.is_empty() {
                break Vec::new();
            }
            match self.tokens.import(rows.clone(), now).get().await {
                Err(StoreError::Busy) => tokio::time::sleep(PAUSE).await,
                done => break done?,
            }
        };
        for (line, outcome) in self.numbers.drain(..).zip(outcomes) {
            self.summary.add(line, outcome);
        }
        self.summary.lines = self.line;
        Ok(())
    }
}

/// `POST /oauth2_tokens/import`
pub(crate) async fn import(
    app: &App,
    query: &[(String, Option<String>)],
    parts: &Parts,
    body: Body,
) -> Response {
    let begun = begin(app, query);
    let mut import = match begun {
        Ok(import) => import,
        Err(failure) => {
            crate::receive::drain(parts, body).await;
            return failure.into_response();
        }
    };
    let connection = Connection::of(&parts.extensions);
    let pause = connection.map(|connection| connection.limits.body);
    let pause = pause.unwrap_or(Duration::MAX);
    let permit: Option<Permit> = match connection.map(|connection| connection.permits.import()) {
        Some(None) => {
            crate::receive::drain(parts, body).await;
            let text = "too many imports of OAuth2 tokens are in progress; try again later";
            return message(StatusCode::SERVICE_UNAVAILABLE, text);
        }
        permit => permit.flatten(),
    };
    let accept = parts.headers.get(ACCEPT);
    let wants_lines = accept.is_some_and(|accept| {
        let accept = accept.to_str().unwrap_or_default();
        accept.contains(LINES)
    });
    let (lines, told) = unbounded_channel();
    let progress = lines.clone();
    let runtime = Handle::current();
    // It has a thread of its own, because decoding lines takes long.
    let done = spawn_blocking(move || {
        let _permit = permit;
        let watch = move |summary: &Summary| {
            if wants_lines {
                let brief = Summary {
                    errors: Vec::new(),
                    ..summary.clone()
                };
                let _ = progress.send(json!({ "progress": brief }));
            }
        };
        let outcome = runtime.block_on(import.run(body.into_data_stream(), pause, watch));
        (import.summary, outcome)
    });
    if !wants_lines {
        return match done.await {
            Ok((summary, Ok(()))) => json(StatusCode::OK, &summary),
            Ok((summary, Err(failure))) => {
                let (status, mut answer) = failed(failure).await;
                answer["summary"] = json!(summary);
                json(status, &answer)
            }
            Err(error) => Failure::internal(error).into_response(),
        };
    }
    let (later, audited) = Later::channel();
    tokio::spawn(async move {
        let (status, last) = match done.await {
            Ok((summary, Ok(()))) => (StatusCode::OK, json!({ "summary": summary })),
            Ok((summary, Err(failure))) => {
                let (status, mut answer) = failed(failure).await;
                answer["summary"] = json!(summary);
                (status, answer)
            }
            Err(error) => failed(Failure::internal(error)).await,
        };
        if let Ok(audited) = audited.await {
            audited.end(status, None);
        }
        let _ = lines.send(last);
    });
    let kind = [(CONTENT_TYPE, HeaderValue::from_static(LINES))];
    let mut response = (StatusCode::OK, kind, line_by_line(told)).into_response();
    response.extensions_mut().insert(later);
    response
}

fn begin(app: &App, query: &[(String, Option<String>)]) -> Result<Import, Failure> {
    let given = query.iter().find(|(name, _)| name == "skip");
    let skip = match given.map(|(_, value)| value.as_deref().unwrap_or_default().parse()) {
        None => 0,
        Some(Ok(skip)) => skip,
        Some(Err(_)) => return Err(Failure::bad_request("skip: expected a number of lines")),
    };
    let control = app.shared();
    let (Some(tokens), Some(kind)) = (control.oauth2_tokens(), oauth2_tokens::kind()) else {
        return Err(oauth2_tokens::no_store());
    };
    Ok(Import {
        control,
        tokens,
        kind,
        summary: Summary::default(),
        line: 0,
        skip,
        rows: Vec::new(),
        numbers: Vec::new(),
    })
}

/// Calls `each` with every token as an entity, page by page. No page keeps an old state of a store. Tokens of deleted
/// entities are left out.
pub fn for_each_token<'s, E: From<StoreError> + From<store::StoreError>>(
    view: &dyn Fn() -> Result<View<'s>, store::StoreError>,
    tokens: &dyn TokenStore,
    now: i64,
    each: &mut dyn FnMut(EntityKind, Object) -> Result<(), E>,
) -> Result<(), E> {
    let Some(kind) = oauth2_tokens::kind() else {
        return Ok(());
    };
    let mut after = None;
    loop {
        let page = tokens.list(Listed::All, after, PART, now).wait()?;
        let view = view()?;
        for token in page.tokens {
            if oauth2_tokens::is_owned(&view, kind, &token)? {
                each(kind, oauth2_tokens::entity_of(&token))?;
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// `GET /oauth2_tokens/export`. `ttl` is the time at which a token ends, so that it ends then wherever it is imported.
pub(crate) async fn export(call: &Call<'_>) -> ApiResult {
    let tokens = call.control.oauth2_tokens();
    let tokens = tokens.ok_or_else(oauth2_tokens::no_store)?;
    let store = call.control.store().clone();
    let now = call.control.context().now;
    let slot = Slot::take(call, "/oauth2_tokens/export")?;
    let directory = store.directory().to_owned();
    let lines = HeaderValue::from_static(LINES);
    let answer = slot.answer(&directory, lines, move |chunks| {
        let mut line = Vec::new();
        for_each_token::<Interrupted>(&|| store.view(), &*tokens, now, &mut |kind, entity| {
            line.clear();
            registry().entity(kind).write_json(&entity, &mut line);
            line.push(b'\n');
            Ok(chunks.write_all(&line)?)
        })
    });
    answer.await
}
