//! History: lists and compares revisions, and rolls back to one of them. Kong has no equivalent.

pub(crate) mod answer;
mod ended;
mod selection;

use crate::body::{self, Body};
use crate::control::Refusal;
use crate::endpoints;
use crate::entities::find;
use crate::paging::{self, Offset, escape, offset_after};
use crate::proposal::{carry_out, propose};
use crate::render;
use crate::request::{self, Call};
use crate::respond::{ApiResult, Failure, json_bytes};
use crate::shown::{Entity, Page};
use crate::time;
use answer::{Action, Change, Diff, Listed, NotRestored, RolledBack, Shown};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use bytes::Bytes;
use ended::{EndedTokens, owns_tokens};
use futures_util::FutureExt;
use model::schema::{Context, registry};
use model::{EntityKind, Object, Value};
use selection::Selected;
use serde::Serialize;
use std::sync::Arc;
use store::{
    ChangeLogError, ChangeSet, Counts, Difference, History, Origin, Period, Revision, Store,
    Transaction, View,
};
use tokens::TokenStore;
use uuid::Uuid;

type Query = [(String, Option<String>)];

/// `GET /revisions`
pub(crate) fn list(call: &Call<'_>) -> ApiResult {
    let context = call.control.context();
    let view = call.control.store().view()?;
    Ok(ok(all(&view, &context, &call.query)?))
}

/// `GET /revisions/{revision}`
pub(crate) fn show(call: &Call<'_>) -> ApiResult {
    let (revision, context) = (call.parameter("revision"), call.control.context());
    let view = call.control.store().view()?;
    Ok(ok(one(&view, &context, revision, &call.query)?))
}

/// `GET /revisions/{from}/diff/{to}`
pub(crate) fn diff(call: &Call<'_>) -> ApiResult {
    let ends = [call.parameter("from"), call.parameter("to")];
    let context = call.control.context();
    let view = call.control.store().view()?;
    Ok(ok(between(&view, &context, ends, &call.query)?))
}

/// `GET /services/{services}/revisions`
pub(crate) fn of_entity(call: &Call<'_>, kind: EntityKind) -> ApiResult {
    let context = call.control.context();
    let entity = (kind, call.parameter(kind.name()));
    let view = call.control.store().view()?;
    let base = endpoints::base(kind).unwrap_or("/");
    let path = format!("{base}/{}/revisions", escape(entity.1));
    let out = history_of(&view, &context, entity, &path, &call.query)?;
    Ok(ok(out))
}

fn ok(out: Vec<u8>) -> axum::response::Response {
    json_bytes(StatusCode::OK, out)
}

fn written(answer: &impl Serialize) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(answer).map_err(Failure::internal)
}

/// Returns the status and body of a `GET` below `/revisions`, for a store that no gateway serves.
pub fn read(view: &View<'_>, context: &Context, path: &str) -> (u16, Vec<u8>) {
    in_memory(read_path(view, context, path))
}

fn in_memory(answer: ApiResult) -> (u16, Vec<u8>) {
    let answer = answer.unwrap_or_else(IntoResponse::into_response);
    let status = answer.status().as_u16();
    let body = axum::body::to_bytes(answer.into_body(), usize::MAX).now_or_never();
    let body = body.expect("the body is in memory").unwrap_or_default();
    (status, body.to_vec())
}

fn read_path(view: &View<'_>, context: &Context, path: &str) -> ApiResult {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let query = request::query(query)?;
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    Ok(ok(match segments.as_slice() {
        ["revisions"] => all(view, context, &query)?,
        ["revisions", revision] => one(view, context, revision, &query)?,
        ["revisions", from, "diff", to] => between(view, context, [from, to], &query)?,
        _ => return Err(Failure::not_found()),
    }))
}

fn all(view: &View<'_>, context: &Context, query: &Query) -> Result<Vec<u8>, Failure> {
    match (argument(query, "entity_type"), argument(query, "entity_id")) {
        (None, None) => {}
        (Some(name), Some(id)) => {
            let kind = endpoints::kind_named(name, endpoints::has_history)
                .map_err(|problem| bad("entity_type", &problem))?;
            return history_of(view, context, (kind, id), "/revisions", query);
        }
        (Some(_), None) => return Err(bad("entity_id", "required with entity_type")),
        (None, Some(_)) => return Err(bad("entity_type", "required with entity_id")),
    }
    let page = paging::page(query, false)?;
    let (before, period) = (before(&page.offset)?, period(query)?);
    let history = view.history()?;
    let found = history.revisions(before, period, page.size)?;
    let listed = found.items.iter().map(|info| Listed {
        revision: info.into(),
        change: None,
    });
    let offset = found.next.map(|next| next.to_string());
    written(&page_of(listed.collect(), "/revisions", offset, query))
}

/// Lists the revisions that changed an entity, each with the change. A name that no entity has now means the entity
/// that had it last.
fn history_of(
    view: &View<'_>,
    context: &Context,
    (kind, key): (EntityKind, &str),
    path: &str,
    query: &Query,
) -> Result<Vec<u8>, Failure> {
    let id = match find::parse_id(key) {
        Some(id) => Some(id),
        None => id_by_key(view, kind, key)?,
    };
    let id = id.ok_or_else(|| nothing_named(kind, key))?;
    let page = paging::page(query, false)?;
    let (before, period) = (before(&page.offset)?, period(query)?);
    let history = view.history()?;
    let found = history.revisions_of(kind, id, before, period, page.size)?;
    let listed = found.items.iter().map(|(info, difference)| {
        Ok(Listed {
            revision: info.into(),
            change: Some(change(context, difference)?),
        })
    });
    let listed: Result<Vec<Listed>, Failure> = listed.collect();
    let offset = found.next.map(|next| next.to_string());
    written(&page_of(listed?, path, offset, query))
}

/// The response if no entity has this name, and none had it in the kept history.
fn nothing_named(kind: EntityKind, key: &str) -> Failure {
    let entity = format!("{}/{key}", endpoints::kind_name(kind));
    let text = format!("there is no {entity}, neither now nor in the kept history");
    Failure::Message(StatusCode::NOT_FOUND, text.into())
}

/// Returns the entity that has this name now, or the one that had it last.
fn id_by_key(view: &View<'_>, kind: EntityKind, key: &str) -> Result<Option<Uuid>, Failure> {
    let Some(field) = registry().entity(kind).endpoint_key.as_deref() else {
        return Ok(None);
    };
    let current = view.id_by_unique(kind, field, key);
    if let Some(id) = current.map_err(Failure::internal)? {
        return Ok(Some(id));
    }
    let history = view.history().map_err(Failure::internal)?;
    let had = |state: &[u8]| find::decode(state).is_ok_and(|entity| entity.str(field) == Some(key));
    history.last_with(kind, had).map_err(Failure::internal)
}

fn one(
    view: &View<'_>,
    context: &Context,
    number: &str,
    query: &Query,
) -> Result<Vec<u8>, Failure> {
    let revision = revision("revision", number)?;
    let page = paging::page(query, false)?;
    let from = match &page.offset {
        Offset::Start => 0,
        Offset::After(key) => key.parse().map_err(|_| paging::invalid_offset(key))?,
        Offset::Invalid(bad) => return Err(bad.error().into()),
    };
    let history = view.history()?;
    let info = history.info(revision).map_err(missing)?;
    let changes = history
        .changes(revision, from, page.size)
        .map_err(missing)?;
    let next = from.saturating_add(changes.len());
    let more = (next as u64) < info.counts.total();
    let offset = more.then(|| next.to_string());
    let path = format!("/revisions/{revision}");
    written(&Shown {
        revision: (&info).into(),
        changes: page_of(all_changes(context, &changes)?, &path, offset, query),
    })
}

fn between(
    view: &View<'_>,
    context: &Context,
    [from, to]: [&str; 2],
    query: &Query,
) -> Result<Vec<u8>, Failure> {
    let (from, to) = (revision("from", from)?, revision("to", to)?);
    let page = paging::page(query, false)?;
    let after = match &page.offset {
        Offset::Start => None,
        Offset::After(key) => Some(parse_place(key).ok_or_else(|| paging::invalid_offset(key))?),
        Offset::Invalid(bad) => return Err(bad.error().into()),
    };
    let history = view.history()?;
    let mut differences = history.diff(from, to, after).map_err(missing)?;
    let found: Vec<Difference<'_>> = differences
        .by_ref()
        .take(page.size)
        .collect::<Result<_, _>>()?;
    let more = differences.next().is_some();
    let last = found.last().filter(|_| more).map(place);
    let path = format!("/revisions/{from}/diff/{to}");
    written(&Diff {
        from: from.0,
        to: to.0,
        changes: page_of(all_changes(context, &found)?, &path, last, query),
    })
}

/// Text form of a diff's offset: type and id of the last entity on the previous page.
fn place(last: &Difference<'_>) -> String {
    format!("{}/{}", last.kind.name(), last.id)
}

fn parse_place(key: &str) -> Option<(EntityKind, Uuid)> {
    let (kind, id) = key.split_once('/')?;
    Some((EntityKind::from_name(kind)?, find::parse_id(id)?))
}

fn all_changes(context: &Context, changes: &[Difference<'_>]) -> Result<Vec<Change>, Failure> {
    let changes = changes.iter();
    changes
        .map(|difference| change(context, difference))
        .collect()
}

fn change(context: &Context, difference: &Difference<'_>) -> Result<Change, Failure> {
    let state = |bytes: &[u8]| {
        Entity::written(|out| {
            let entity = find::decode(bytes)?;
            render::fields(out, context, difference.kind, &entity);
            Ok(())
        })
    };
    Ok(Change {
        action: match (difference.before, difference.after) {
            (None, _) => Action::Create,
            (_, None) => Action::Delete,
            _ => Action::Update,
        },
        kind: difference.kind.name(),
        id: difference.id,
        before: difference.before.map(state).transpose()?,
        after: difference.after.map(state).transpose()?,
    })
}

/// Returns a page of a list. Its link to the next page repeats the arguments of the query.
fn page_of<T>(data: Vec<T>, path: &str, last: Option<String>, query: &Query) -> Page<T> {
    let offset = last.as_deref().map(offset_after);
    let repeated = query.iter().filter(|(name, _)| name != "offset");
    let repeated = repeated.map(|(name, value)| (&**name, value.as_deref().unwrap_or_default()));
    Page::new(data, path, offset, repeated)
}

/// Parses the offset in a list of revisions, which is the last revision on the previous page.
fn before(offset: &Offset) -> Result<Option<Revision>, Failure> {
    match offset {
        Offset::Start => Ok(None),
        Offset::After(key) => {
            let number = key.parse().map_err(|_| paging::invalid_offset(key))?;
            Ok(Some(Revision(number)))
        }
        Offset::Invalid(bad) => Err(bad.error().into()),
    }
}

fn period(query: &Query) -> Result<Period, Failure> {
    let bound = |name, default| match argument(query, name) {
        None => Ok(default),
        Some(text) => time::parse(text).ok_or_else(|| {
            bad(
                name,
                "expected a time, as RFC 3339 or as seconds since 1970",
            )
        }),
    };
    Ok(Period {
        since_ms: bound("since", Period::ALWAYS.since_ms)?,
        until_ms: bound("until", Period::ALWAYS.until_ms)?,
    })
}

fn argument<'q>(query: &'q Query, name: &str) -> Option<&'q str> {
    let (_, value) = query.iter().find(|(key, _)| key == name)?;
    Some(value.as_deref().unwrap_or(""))
}

fn revision(name: &str, text: &str) -> Result<Revision, Failure> {
    match text.parse() {
        Ok(number) if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(Revision(number)),
        _ => Err(bad(name, "expected a revision's number")),
    }
}

fn bad(name: &str, text: &str) -> Failure {
    Failure::bad_request(format!("{name}: {text}"))
}

fn missing(error: ChangeLogError) -> Failure {
    let status = match error {
        ChangeLogError::Unknown { .. } => StatusCode::NOT_FOUND,
        ChangeLogError::NotKept { .. } => StatusCode::GONE,
        ChangeLogError::Store(error) => return error.into(),
    };
    Failure::Message(status, error.to_string().into())
}

/// The body of `POST /revisions/{revision}/rollback`.
#[derive(Debug, Default)]
struct Request {
    message: Option<String>,
    expected_revision: Option<Revision>,
    dry_run: bool,
    /// The entities to restore; all if empty.
    entities: Vec<Selected>,
}

/// `POST /revisions/{revision}/rollback`: restores all entities of an earlier revision, or the chosen ones, and creates
/// a revision with the result. This works with `database = off` too: there, too, the gateway serves the configuration
/// from the store, and the content of a revision includes the hash of the configuration.
pub(crate) async fn rollback(call: &Call<'_>) -> ApiResult {
    let to = revision("revision", call.parameter("revision"))?;
    let request = Request::read(call.json_body()?)?;
    let size = paging::page(&call.query, false)?.size;
    let origin = request.origin(call.origin.clone(), to);
    let names = request.names();
    let work = go_back(to, request.entities, call.control.context(), size);
    let (expected, dry_run) = (request.expected_revision, request.dry_run);
    let ((head, undone), made) = propose(call, origin, expected, dry_run, work).await?;
    let tokens = call.control.oauth2_tokens().filter(|_| dry_run);
    let (store, now) = (call.control.store().clone(), call.control.context().now);
    // Tokens are read from the disk.
    let count = move || undone.with_ended(&store, tokens, now);
    let undone = tokio::task::spawn_blocking(count).await;
    let undone = undone.map_err(Failure::internal)??;
    let answer = undone.answer([head, to, made], names, dry_run, &call.query);
    Ok(ok(written(&answer)?))
}

/// Rolls back a store that no gateway serves, like `POST /revisions/{revision}/rollback` with a JSON body. `check` can
/// refuse the resulting state. `tokens` are looked at by dry runs. Returns status and body of the response.
pub fn roll_back(
    store: &Store,
    tokens: Option<Arc<dyn TokenStore>>,
    context: &Context,
    rollback: (Revision, &[u8]),
    check: &mut dyn FnMut(&View<'_>) -> Result<(), model::Error>,
) -> (u16, Vec<u8>) {
    in_memory(roll_back_stored(store, tokens, context, rollback, check))
}

fn roll_back_stored(
    store: &Store,
    tokens: Option<Arc<dyn TokenStore>>,
    context: &Context,
    (to, body): (Revision, &[u8]),
    check: &mut dyn FnMut(&View<'_>) -> Result<(), model::Error>,
) -> ApiResult {
    let body = Bytes::copy_from_slice(body);
    let Body::Json(body) = body::decode(Some("application/json"), &body)? else {
        return Err(Failure::UnsupportedMediaType);
    };
    let request = Request::read(body)?;
    let origin = request.origin(Origin::program("command line"), to);
    let how = (origin, request.expected_revision, request.dry_run);
    let size = paging::page(&[], false)?.size;
    let names = request.names();
    let work = go_back(to, request.entities, context.clone(), size);
    let ((head, undone), made) = carry_out(store, check, how, work)?;
    let tokens = tokens.filter(|_| request.dry_run);
    let undone = undone.with_ended(store, tokens, context.now)?;
    let answer = undone.answer([head, to, made], names, request.dry_run, &[]);
    Ok(ok(written(&answer)?))
}

/// Applies the changes that restore `to`, or only `entities` of it; returns the previous head and a summary.
fn go_back(
    to: Revision,
    entities: Vec<Selected>,
    context: Context,
    size: usize,
) -> impl FnMut(&mut Transaction<'_>) -> Result<(Revision, Undone), Refusal> + Send {
    move |transaction| {
        let head = transaction.head();
        if !entities.is_empty() {
            let (changes, not_restored) =
                selection::changes_to(&transaction.view()?, to, &entities)?;
            transaction.apply(&changes)?;
            let undone = Undone::pending(transaction, &context)?;
            let undone = Undone {
                not_restored,
                ..undone
            };
            return Ok((head, undone));
        }
        let (changes, mut undone) = {
            let view = transaction.view()?;
            let history = view.history()?;
            let changes = history.changes_to(to).map_err(missing)?;
            (changes, Undone::of(&history, to, &context, size)?)
        };
        undone.deleted_owners = deleted_owners(&changes);
        transaction.apply(&changes)?;
        Ok((head, undone))
    }
}

/// The changes that a rollback makes: their counts, and the first page of them in full.
struct Undone {
    counts: Counts,
    changes: Vec<Change>,
    /// The offset of the next page.
    last: Option<String>,
    /// The entities that stay deleted although they were deleted together with a restored one.
    not_restored: Vec<NotRestored>,
    /// The deleted clients and services, with which OAuth2 tokens end.
    deleted_owners: Vec<(EntityKind, Uuid)>,
    ended_tokens: Option<EndedTokens>,
}

fn deleted_owners(changes: &ChangeSet) -> Vec<(EntityKind, Uuid)> {
    let deleted = changes.changes.iter().filter_map(|change| match change {
        store::Change::Delete { kind, id } if owns_tokens(*kind) => Some((*kind, *id)),
        _ => None,
    });
    deleted.collect()
}

impl Undone {
    /// Returns the response. Its link to the next page leads to the diff between the previous head and `to`.
    fn answer(
        self,
        [head, to, made]: [Revision; 3],
        entities: Vec<String>,
        dry_run: bool,
        query: &Query,
    ) -> RolledBack {
        let Counts {
            created,
            updated,
            deleted,
        } = self.counts;
        let path = format!("/revisions/{head}/diff/{to}");
        RolledBack {
            revision: made.0,
            rolled_back_to: to.0,
            entities,
            not_restored: self.not_restored,
            dry_run,
            ended_oauth2_tokens: self.ended_tokens,
            created,
            updated,
            deleted,
            changes: page_of(self.changes, &path, self.last, query),
        }
    }

    /// Adds the OAuth2 tokens that end.
    fn with_ended(
        self,
        store: &Store,
        tokens: Option<Arc<dyn TokenStore>>,
        now: i64,
    ) -> Result<Self, Failure> {
        let Some(tokens) = tokens else {
            return Ok(self);
        };
        let ended_tokens = ended::count(store, &*tokens, &self.deleted_owners, now)?;
        Ok(Self {
            ended_tokens,
            ..self
        })
    }

    fn of(
        history: &History<'_>,
        to: Revision,
        context: &Context,
        size: usize,
    ) -> Result<Self, Refusal> {
        let mut counts = Counts::default();
        let mut first = Vec::new();
        for difference in history.diff(history.newest(), to, None).map_err(missing)? {
            let difference = difference?;
            count(&mut counts, &difference);
            if first.len() < size {
                first.push(difference);
            }
        }
        let more = first.len() as u64 != counts.total();
        Ok(Self {
            counts,
            changes: all_changes(context, &first)?,
            last: first.last().filter(|_| more).map(place),
            not_restored: Vec::new(),
            deleted_owners: Vec::new(),
            ended_tokens: None,
        })
    }

    /// Summarises the changes of the pending revision, after a rollback of single entities. One page contains all
    /// changes. The diff between the previous head and `to` cannot provide further pages, because it also contains
    /// changes of other entities.
    fn pending(transaction: &Transaction<'_>, context: &Context) -> Result<Self, Refusal> {
        let (pending, view) = (transaction.pending(), transaction.view()?);
        let mut counts = Counts::default();
        let mut changes = Vec::with_capacity(pending.len());
        let mut deleted_owners = Vec::new();
        for touched in &pending {
            let difference = Difference {
                kind: touched.kind,
                id: touched.id,
                before: touched.old.as_deref(),
                after: view.get(touched.kind, touched.id)?,
            };
            count(&mut counts, &difference);
            if difference.after.is_none() && owns_tokens(touched.kind) {
                deleted_owners.push((touched.kind, touched.id));
            }
            changes.push(change(context, &difference)?);
        }
        Ok(Self {
            counts,
            changes,
            last: None,
            not_restored: Vec::new(),
            deleted_owners,
            ended_tokens: None,
        })
    }
}

fn count(counts: &mut Counts, difference: &Difference<'_>) {
    let counter = match (difference.before, difference.after) {
        (None, _) => &mut counts.created,
        (_, None) => &mut counts.deleted,
        _ => &mut counts.updated,
    };
    *counter += 1;
}

impl Request {
    fn origin(&self, asked: Origin, to: Revision) -> Origin {
        let given = self.message.clone().or(asked.message);
        let default = || match self.entities.as_slice() {
            [] => format!("rollback to revision {to}"),
            [one] => format!("rollback of {one} to revision {to}"),
            several => format!("rollback of {} entities to revision {to}", several.len()),
        };
        Origin {
            message: Some(given.unwrap_or_else(default)),
            ..asked
        }
    }

    fn names(&self) -> Vec<String> {
        self.entities.iter().map(ToString::to_string).collect()
    }

    fn read(body: Object) -> Result<Self, Failure> {
        let mut request = Self::default();
        for (name, value) in body {
            match (name.as_str(), value) {
                (_, Value::Null) => {}
                ("message", Value::String(text)) => request.message = Some(text.to_string()),
                ("message", _) => return Err(bad("message", "expected a string")),
                ("dry_run", Value::Bool(dry_run)) => request.dry_run = dry_run,
                ("dry_run", _) => return Err(bad("dry_run", "expected a boolean")),
                ("entities", value) => request.entities = selection::read(&value)?,
                ("expected_revision", value) => {
                    let number = value.as_int().and_then(|number| u64::try_from(number).ok());
                    let number = number
                        .ok_or_else(|| bad("expected_revision", "expected a revision's number"))?;
                    request.expected_revision = Some(Revision(number));
                }
                (name, _) => return Err(bad(name, "unknown field")),
            }
        }
        Ok(request)
    }
}
