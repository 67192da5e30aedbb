//! Pages of entities: whole collections, children of a parent, and the lists with rules of their own.

use crate::control::{Control, Database};
use crate::entities::find::{self, Found};
use crate::paging::{self, Offset, Page, Tags, escape, offset_after_id};
use crate::render;
use crate::request::Call;
use crate::respond::{Answer, Failure, json_bytes};
use axum::http::StatusCode;
use model::{EntityKind, Value};
use store::{TagFilter, View};
use uuid::Uuid;

/// The entities of one page, and the offset of the next.
pub(crate) struct Listed {
    pub(crate) entities: Vec<Found>,
    pub(crate) offset: Option<String>,
}

/// `GET /services`
pub(crate) fn collection(call: &Call<'_>, kind: EntityKind) -> Answer {
    if kind == EntityKind::Consumers
        && let Some(custom_id) = call.query("custom_id")
    {
        return consumer_by_custom_id(call, custom_id);
    }
    let page = paging::page(&call.query, true)?;
    let view = call.control.store().view().map_err(Failure::internal)?;
    let path = crate::endpoints::base(kind).unwrap_or("/");
    let tags = page.given_tags.as_deref();
    let repeated = [("tags", tags), ("size", page.given_size.as_deref())];
    let listed = match start(call.control, &page.offset)? {
        Some(after) => read(call.control, &view, kind, after, &page)?,
        None => Listed::nothing(),
    };
    answer(call.control, &view, kind, listed, path, &repeated)
}

fn read(
    control: &dyn Control,
    view: &View<'_>,
    kind: EntityKind,
    after: Option<Uuid>,
    page: &Page,
) -> Result<Listed, Failure> {
    let borrowed: Vec<&str> = match &page.tags {
        Some(Tags::All(tags) | Tags::Any(tags)) => tags.iter().map(String::as_str).collect(),
        None => Vec::new(),
    };
    let filter = match &page.tags {
        None => TagFilter::None,
        Some(Tags::All(_)) => TagFilter::All(&borrowed),
        Some(Tags::Any(_)) => TagFilter::Any(&borrowed),
    };
    let read = view
        .page(kind, after, page.size, filter)
        .map_err(Failure::internal)?;
    Listed::of(control, kind, read, page.size)
}

/// `GET /services/{service}/routes`
pub(crate) fn children(
    call: &Call<'_>,
    view: &View<'_>,
    relation: crate::endpoints::Relation,
    parent: Uuid,
) -> Answer {
    let page = paging::page(&call.query, false)?;
    let kind = relation.child;
    let listed = match start(call.control, &page.offset)? {
        Some(after) => {
            let read = view
                .children(kind, relation.field, parent, after, page.size)
                .map_err(Failure::internal)?;
            Listed::of(call.control, kind, read, page.size)?
        }
        None => Listed::nothing(),
    };
    let base = crate::endpoints::base(relation.parent).unwrap_or("/");
    let path = format!("{base}/{parent}/{}", crate::endpoints::nested(kind));
    answer(call.control, view, kind, listed, &path, &[])
}

/// Where a page starts; `None` for a page that is empty because its offset is not one of ours.
fn start(control: &dyn Control, offset: &Offset) -> Result<Option<Option<Uuid>>, Failure> {
    match offset {
        Offset::Start => Ok(Some(None)),
        Offset::After(key) => match Uuid::try_parse(key) {
            Ok(id) => Ok(Some(Some(id))),
            Err(_) => invalid(control, key),
        },
        Offset::Invalid(text) => invalid(control, text),
    }
}

fn invalid(control: &dyn Control, text: &str) -> Result<Option<Option<Uuid>>, Failure> {
    match control.database() {
        Database::Off => Ok(None),
        Database::Lmdb => Err(paging::invalid_offset(text).into()),
    }
}

impl Listed {
    fn nothing() -> Self {
        Self {
            entities: Vec::new(),
            offset: None,
        }
    }

    fn of(
        control: &dyn Control,
        kind: EntityKind,
        page: store::Page<'_>,
        size: usize,
    ) -> Result<Self, Failure> {
        let mut next = page.next;
        // Without a database Kong does not look beyond a full page: it may be followed by an empty one.
        if control.database() == Database::Off && page.entities.len() == size {
            next = page.entities.last().map(|(id, _)| *id);
        }
        let mut entities = Vec::with_capacity(page.entities.len());
        for (id, bytes) in page.entities {
            let entity = find::decode(bytes)?;
            if !find::is_expired(control, kind, &entity) {
                entities.push(Found { id, entity });
            }
        }
        Ok(Self {
            entities,
            offset: next.map(offset_after_id),
        })
    }
}

/// `next` is the path of the list with the offset, then the arguments that it repeats.
fn answer(
    control: &dyn Control,
    view: &View<'_>,
    kind: EntityKind,
    listed: Listed,
    path: &str,
    repeated: &[(&str, Option<&str>)],
) -> Answer {
    let mut out = Vec::with_capacity(512 * (listed.entities.len() + 1));
    out.extend_from_slice(b"{\"data\":[");
    for (index, found) in listed.entities.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        render::entity(&mut out, control, view, kind, found)?;
    }
    out.extend_from_slice(b"],\"next\":");
    match listed.offset {
        None => out.extend_from_slice(b"null}"),
        Some(offset) => {
            let mut next = format!("{path}?offset={}", escape(&offset));
            for (name, value) in repeated {
                if let Some(value) = value {
                    next.push_str(&format!("&{name}={}", escape(value)));
                }
            }
            render::json(&mut out, &next);
            out.extend_from_slice(b",\"offset\":");
            render::json(&mut out, &offset);
            out.push(b'}');
        }
    }
    Ok(json_bytes(StatusCode::OK, out))
}

fn consumer_by_custom_id(call: &Call<'_>, custom_id: &str) -> Answer {
    const KIND: EntityKind = EntityKind::Consumers;
    if custom_id.is_empty() {
        return Err(Failure::bad_request("custom_id must be an unempty string"));
    }
    let view = call.control.store().view().map_err(Failure::internal)?;
    let id = view
        .id_by_unique(KIND, "custom_id", custom_id)
        .map_err(Failure::internal)?;
    let found = id.map_or(Ok(None), |id| find::by_id(&view, KIND, id))?;
    let listed = Listed {
        entities: found.into_iter().collect(),
        offset: None,
    };
    answer(call.control, &view, KIND, listed, "/consumers", &[])
}

/// `GET /upstreams/{upstream}/targets`.
pub(crate) fn targets(call: &Call<'_>, view: &View<'_>, upstream: Uuid) -> Answer {
    let listed = page_of_targets(call, view, upstream)?;
    let path = format!("/upstreams/{upstream}/targets");
    answer(call.control, view, EntityKind::Targets, listed, &path, &[])
}

/// Targets newest first; the offset is a position.
pub(crate) fn page_of_targets(
    call: &Call<'_>,
    view: &View<'_>,
    upstream: Uuid,
) -> Result<Listed, Failure> {
    let page = paging::page(&call.query, false)?;
    let position = match call.query("offset") {
        None => 0,
        Some(text) => match text.parse::<usize>() {
            Ok(position) => position,
            Err(_) if call.control.database() == Database::Off => usize::MAX,
            Err(_) => return Err(paging::invalid_offset(text).into()),
        },
    };
    let targets = all_targets(view, upstream)?;
    let end = position.saturating_add(page.size);
    let offset = (end < targets.len()).then(|| end.to_string());
    Ok(Listed {
        entities: targets.into_iter().skip(position).take(page.size).collect(),
        offset,
    })
}

/// Every target of an upstream, newest first.
fn all_targets(view: &View<'_>, upstream: Uuid) -> Result<Vec<Found>, Failure> {
    let read = view
        .children(EntityKind::Targets, "upstream", upstream, None, usize::MAX)
        .map_err(Failure::internal)?;
    let mut targets = Vec::with_capacity(read.entities.len());
    for (id, bytes) in read.entities {
        let entity = find::decode(bytes)?;
        targets.push(Found { id, entity });
    }
    let created = |target: &Found| match target.entity.get("created_at") {
        Some(Value::Int(seconds)) => *seconds as f64,
        Some(Value::Float(seconds)) => *seconds,
        _ => 0.0,
    };
    targets.sort_by(|a, b| created(b).total_cmp(&created(a)).then(b.id.cmp(&a.id)));
    Ok(targets)
}
