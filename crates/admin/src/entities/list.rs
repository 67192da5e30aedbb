//! Pages of entities: whole collections, children of a parent, and lists with special rules.

use crate::control::{Control, Database};
use crate::entities::find::{self, Found};
use crate::paging::{self, Encoding, Offset, Page, Tags, escape, offset_after_id};
use crate::render;
use crate::request::Call;
use crate::respond::{ApiResult, Failure, json_bytes};
use crate::shown::{self, Entity};
use axum::http::StatusCode;
use model::{EntityKind, Error};
use std::fmt;
use store::{TagFilter, View};
use uuid::Uuid;

/// The entities of a page, and the offset of the next page.
pub(crate) struct Listed {
    pub(crate) entities: Vec<Found>,
    pub(crate) offset: Option<String>,
}

/// `GET /services`
pub(crate) fn collection(call: &Call<'_>, kind: EntityKind) -> ApiResult {
    if kind == EntityKind::Consumers
        && let Some(custom_id) = call.query("custom_id")
    {
        return consumer_by_custom_id(call, custom_id);
    }
    let page = paging::page(&call.query, true)?;
    let view = call.control.store().view()?;
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
    let read = view.page(kind, after, page.size, filter)?;
    Listed::of(control, kind, read, page.size)
}

/// `GET /services/{service}/routes`
pub(crate) fn children(
    call: &Call<'_>,
    view: &View<'_>,
    relation: crate::endpoints::Relation,
    parent: Uuid,
) -> ApiResult {
    let nested = crate::endpoints::nested(relation.child);
    let path = format!("{}/{nested}", parent_path(call, relation));
    by_id(call, view, relation, parent, &path)
}

/// Path of the list's parent, with the name or id that the client used. Links to next pages repeat it.
fn parent_path(call: &Call<'_>, relation: crate::endpoints::Relation) -> String {
    let base = crate::endpoints::base(relation.parent).unwrap_or("/");
    format!("{base}/{}", escape(call.parameter(relation.parent.name())))
}

/// `GET /upstreams/{upstream}/targets/all`.
pub(crate) fn all_targets(call: &Call<'_>, view: &View<'_>, upstream: Uuid) -> ApiResult {
    let path = format!("{}/targets/all", parent_path(call, super::TARGETS));
    by_id(call, view, super::TARGETS, upstream, &path)
}

/// Lists the children of an entity, ordered by id.
fn by_id(
    call: &Call<'_>,
    view: &View<'_>,
    relation: crate::endpoints::Relation,
    parent: Uuid,
    path: &str,
) -> ApiResult {
    let page = paging::page(&call.query, false)?;
    let kind = relation.child;
    let listed = match start(call.control, &page.offset)? {
        Some(after) => {
            let read = view.children(kind, relation.field, parent, after, page.size)?;
            Listed::of(call.control, kind, read, page.size)?
        }
        None => Listed::nothing(),
    };
    answer(call.control, view, kind, listed, path, &[])
}

/// Returns the id after which a page starts (`Some(None)` for the first page). Without a database, an invalid offset
/// may give an empty page instead of an error; then this returns `None`.
fn start(control: &dyn Control, offset: &Offset) -> Result<Option<Option<Uuid>>, Failure> {
    match offset {
        Offset::Start => Ok(Some(None)),
        Offset::After(key) => match Uuid::try_parse(key) {
            Ok(id) => Ok(Some(Some(id))),
            Err(_) => invalid(control, paging::invalid_offset(key)),
        },
        // Kong reports this error without a database too.
        Offset::Invalid(bad) if bad.encoding == Encoding::Base64 => Err(bad.error().into()),
        Offset::Invalid(bad) => invalid(control, bad.error()),
    }
}

fn invalid(control: &dyn Control, error: Error) -> Result<Option<Option<Uuid>>, Failure> {
    match control.database() {
        Database::Off => Ok(None),
        Database::Lmdb => Err(error.into()),
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
        // Without a database Kong does not check for more entities after a full page, so the next page may be empty.
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

/// Renders a page. Its link `next` consists of `path`, the offset and the `repeated` arguments.
fn answer(
    control: &dyn Control,
    view: &View<'_>,
    kind: EntityKind,
    listed: Listed,
    path: &str,
    repeated: &[(&str, Option<&str>)],
) -> ApiResult {
    let shown =
        |found: &Found| Entity::written(|out| render::entity(out, control, view, kind, found));
    let data: Vec<_> = listed
        .entities
        .iter()
        .map(shown)
        .collect::<Result<_, _>>()?;
    let repeated = repeated
        .iter()
        .filter_map(|(name, value)| Some((*name, (*value)?)));
    let page = shown::Page::new(data, path, listed.offset, repeated);
    let body = serde_json::to_vec(&page).map_err(Failure::internal)?;
    Ok(json_bytes(StatusCode::OK, body))
}

fn consumer_by_custom_id(call: &Call<'_>, custom_id: &str) -> ApiResult {
    const KIND: EntityKind = EntityKind::Consumers;
    if custom_id.is_empty() {
        return Err(Failure::bad_request("custom_id must be an unempty string"));
    }
    let view = call.control.store().view()?;
    let id = view.id_by_unique(KIND, "custom_id", custom_id)?;
    let found = id.map_or(Ok(None), |id| find::by_id(&view, KIND, id))?;
    let listed = Listed {
        entities: found.into_iter().collect(),
        offset: None,
    };
    answer(call.control, &view, KIND, listed, "/consumers", &[])
}

/// `GET /upstreams/{upstream}/targets`.
pub(crate) fn targets(call: &Call<'_>, view: &View<'_>, upstream: Uuid) -> ApiResult {
    let listed = page_of_targets(call, view, upstream)?;
    let path = format!("{}/targets", parent_path(call, super::TARGETS));
    answer(call.control, view, EntityKind::Targets, listed, &path, &[])
}

/// Lists targets, newest first. No index has this order, so each page reads the creation times of all targets of the
/// upstream.
pub(crate) fn page_of_targets(
    call: &Call<'_>,
    view: &View<'_>,
    upstream: Uuid,
) -> Result<Listed, Failure> {
    let page = paging::page(&call.query, false)?;
    let read = view.children(EntityKind::Targets, "upstream", upstream, None, usize::MAX)?;
    let mut targets = Vec::with_capacity(read.entities.len());
    for (id, bytes) in read.entities {
        targets.push((TargetPosition::of(id, bytes)?, bytes));
    }
    targets.sort_unstable_by_key(|(place, _)| std::cmp::Reverse(*place));
    let start = match call.query("offset").map(|text| (text, Start::parse(text))) {
        None => 0,
        Some((_, Some(Start::At(position)))) => position,
        Some((_, Some(Start::After(last)))) => targets.partition_point(|(place, _)| *place >= last),
        Some(_) if call.control.database() == Database::Off => usize::MAX,
        Some((text, None)) => return Err(paging::invalid_offset(text).into()),
    };
    let rest = targets.get(start..).unwrap_or_default();
    let shown = &rest[..page.size.min(rest.len())];
    let last = shown.last().filter(|_| shown.len() < rest.len());
    let found = |(place, bytes): &(TargetPosition, &[u8])| {
        let (id, entity) = (place.id, find::decode(bytes)?);
        Ok(Found { id, entity })
    };
    Ok(Listed {
        entities: shown.iter().map(found).collect::<Result<_, Failure>>()?,
        offset: last.map(|(place, _)| place.to_string()),
    })
}

/// The position of a target in the list, which does not change when other targets are created or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TargetPosition {
    /// Milliseconds since 1970.
    created: u64,
    id: Uuid,
}

/// The decoded `offset` of a list of targets. An index in the list is accepted too, because Kong's offset is one.
#[derive(Debug, PartialEq)]
enum Start {
    At(usize),
    After(TargetPosition),
}

/// Number of decimal digits of the largest id. Smaller ids are padded with zeros.
const ID_DIGITS: usize = 39;

impl TargetPosition {
    fn of(id: Uuid, target: &[u8]) -> Result<Self, Failure> {
        #[derive(serde::Deserialize)]
        struct Age {
            #[serde(default)]
            created_at: f64,
        }
        let age: Age = model::codec::decode(target).map_err(Failure::internal)?;
        let created = (age.created_at * 1000.0).round() as u64;
        Ok(Self { created, id })
    }
}

/// Writes the position as a number, because Kong's offsets of targets are numbers too.
impl fmt::Display for TargetPosition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}{:0ID_DIGITS$}",
            self.created,
            self.id.as_u128()
        )
    }
}

impl Start {
    fn parse(text: &str) -> Option<Self> {
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        match text.len().checked_sub(ID_DIGITS) {
            None | Some(0) => text.parse().ok().map(Self::At),
            Some(end) => {
                let (created, id) = text.split_at(end);
                Some(Self::After(TargetPosition {
                    created: created.parse().ok()?,
                    id: Uuid::from_u128(id.parse().ok()?),
                }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_a_target_is_its_position_as_a_number() {
        for id in [Uuid::nil(), Uuid::from_u128(7), Uuid::max()] {
            let place = TargetPosition {
                created: 1_790_000_000_250,
                id,
            };
            assert_eq!(Start::parse(&place.to_string()), Some(Start::After(place)));
        }
        assert_eq!(Start::parse("2"), Some(Start::At(2)));
        for text in ["", "x", "-1", "1.5", "WyJhIl0", &"9".repeat(80)] {
            assert_eq!(Start::parse(text), None, "{text}");
        }
    }
}
