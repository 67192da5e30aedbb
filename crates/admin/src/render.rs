//! Entities as the Admin API shows them: every field, and what is no field of theirs (`ttl`, the `snis` of a
//! certificate). Whole configurations are written piece by piece, straight from the store.

use crate::control::Control;
use crate::entities::certificates;
use crate::entities::find::Found;
use crate::entities::target;
use crate::respond::Failure;
use crate::stream::{self, Chunks};
use crate::transfer;
use axum::body::Body;
use model::declarative::ExportFormat;
use model::schema::{Context, RouterFlavor, registry};
use model::{EntityKind, Object, Value};
use std::collections::HashMap;
use std::io;
use store::{Store, StoreError, View};
use uuid::Uuid;

/// Appends `found` as JSON.
pub(crate) fn entity(
    out: &mut Vec<u8>,
    control: &dyn Control,
    view: &View<'_>,
    kind: EntityKind,
    found: &Found,
) -> Result<(), Failure> {
    fields(out, &control.context(), kind, &found.entity);
    if kind == EntityKind::Certificates {
        let names: Vec<String> = certificates::snis(view, found.id)?
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        add_field(out, "snis", &names);
    }
    Ok(())
}

/// Appends an entity as JSON, without what is shown with it but is entities of their own.
pub(crate) fn fields(out: &mut Vec<u8>, context: &Context, kind: EntityKind, stored: &Object) {
    let schema = registry().entity(kind);
    let mut entity = std::borrow::Cow::Borrowed(stored);
    if kind == EntityKind::Targets
        && let Some(given) = stored.str("target")
    {
        let shown = Value::from(target::with_port(given));
        entity.to_mut().insert("target", shown);
    }
    let end = entity.get("ttl").and_then(Value::as_int);
    if end.is_some() {
        entity.to_mut().remove("ttl");
    }
    schema.write_json_for(&entity, context.flavor, out);
    if schema.ttl {
        // Whole seconds: the one that runs is not counted.
        let left = end.map(|end| (end - context.now - 1).max(0));
        add_field(out, "ttl", &left);
    }
}

/// Appends a field to the object that `out` ends with.
fn add_field(out: &mut Vec<u8>, name: &str, value: &impl serde::Serialize) {
    let closed = out.pop();
    debug_assert_eq!(closed, Some(b'}'));
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    json(out, &name);
    out.push(b':');
    json(out, value);
    out.push(b'}');
}

pub(crate) fn json(out: &mut Vec<u8>, value: &impl serde::Serialize) {
    serde_json::to_writer(out, value).expect("writing JSON to memory does not fail");
}

/// The answer to `POST /config`: every entity by kind and id. Some 25 MB for 50,000 entities, of which only a few chunks
/// exist at a time; the store's view keeps them consistent.
pub(crate) fn loaded_entities(
    store: Store,
    flavor: RouterFlavor,
    untransformed: Vec<(EntityKind, Uuid, Object)>,
) -> Body {
    stream::body("/config", move |chunks| {
        let replaced = untransformed
            .into_iter()
            .map(|(kind, id, entity)| ((kind, id), entity))
            .collect();
        let written = write_loaded(&store, flavor, &replaced, chunks);
        // Requests need little of what was read for the answer.
        store.release_resident_pages();
        written
    })
}

/// Why a streamed answer ends before its end.
#[derive(Debug, thiserror::Error)]
enum Interrupted {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Malformed(#[from] model::schema::Malformed),
    #[error(transparent)]
    Write(#[from] io::Error),
}

fn write_loaded(
    store: &Store,
    flavor: RouterFlavor,
    replaced: &HashMap<(EntityKind, Uuid), Object>,
    chunks: &mut Chunks,
) -> Result<(), Interrupted> {
    let view = store.view()?;
    chunks.buffer.push(b'{');
    let mut first_kind = true;
    for kind in EntityKind::ALL {
        if kind == EntityKind::Workspaces || view.count(kind)? == 0 {
            continue;
        }
        if !std::mem::take(&mut first_kind) {
            chunks.buffer.push(b',');
        }
        json(&mut chunks.buffer, &kind.name());
        chunks.buffer.extend_from_slice(b":{");
        write_kind(&view, flavor, kind, replaced, chunks)?;
        chunks.buffer.push(b'}');
    }
    chunks.buffer.push(b'}');
    Ok(())
}

fn write_kind(
    view: &View<'_>,
    flavor: RouterFlavor,
    kind: EntityKind,
    replaced: &HashMap<(EntityKind, Uuid), Object>,
    chunks: &mut Chunks,
) -> Result<(), Interrupted> {
    let schema = registry().entity(kind);
    for (index, entry) in view.iter(kind)?.enumerate() {
        let (id, bytes) = entry?;
        let out = &mut chunks.buffer;
        if index > 0 {
            out.push(b',');
        }
        out.push(b'"');
        out.extend_from_slice(id.hyphenated().encode_lower(&mut [0; 36]).as_bytes());
        out.extend_from_slice(b"\":");
        match replaced.get(&(kind, id)) {
            Some(entity) => {
                schema.write_stored_json(&model::codec::encode(entity), flavor, out)?;
            }
            None => schema.write_stored_json(bytes, flavor, out)?,
        }
        chunks.flush_when_full()?;
    }
    Ok(())
}

/// `GET /config`: the configuration as YAML, in a JSON string.
pub(crate) fn exported(store: &Store, flavor: RouterFlavor) -> Result<Vec<u8>, Failure> {
    let mut yaml = Vec::new();
    transfer::export(store, ExportFormat::Yaml, flavor, &mut yaml).map_err(Failure::internal)?;
    let yaml = String::from_utf8(yaml).map_err(Failure::internal)?;
    let mut out = Vec::with_capacity(yaml.len() + yaml.len() / 8);
    out.extend_from_slice(b"{\"config\":");
    json(&mut out, &yaml);
    out.push(b'}');
    Ok(out)
}
