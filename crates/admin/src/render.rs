//! Entities as the Admin API shows them: all fields, plus values that are not stored as fields (`ttl`, the `snis` of a
//! certificate). This module also writes the responses to `/config`, which contain a whole configuration.

use crate::control::Control;
use crate::entities::certificates;
use crate::entities::find::Found;
use crate::entities::target;
use crate::respond::{ApiResult, Failure, JSON};
use crate::stream::{Chunks, Interrupted, Slot};
use crate::transfer;
use axum::http::StatusCode;
use model::declarative::ExportFormat;
use model::schema::{Context, RouterFlavor, registry};
use model::{EntityKind, Object, Value};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};
use store::{Store, View};
use uuid::Uuid;

/// Appends `found` as JSON.
pub(crate) fn entity(
    out: &mut Vec<u8>,
    control: &dyn Control,
    view: &View<'_>,
    kind: EntityKind,
    found: &Found,
) -> Result<(), Failure> {
    let mut more = Vec::new();
    if kind == EntityKind::Certificates {
        let names = certificates::snis(view, found.id)?;
        let names = names.into_iter().map(|(name, _)| Value::from(name));
        more.push(("snis", Value::Array(names.collect())));
    }
    write_with(out, &control.context(), kind, &found.entity, more);
    Ok(())
}

/// Appends the fields of an entity as JSON, without related entities such as the `snis` of a certificate.
pub(crate) fn fields(out: &mut Vec<u8>, context: &Context, kind: EntityKind, stored: &Object) {
    write_with(out, context, kind, stored, Vec::new());
}

fn write_with(
    out: &mut Vec<u8>,
    context: &Context,
    kind: EntityKind,
    stored: &Object,
    mut more: Vec<(&str, Value)>,
) {
    let schema = registry().entity(kind);
    let mut entity = Cow::Borrowed(stored);
    if kind == EntityKind::Targets
        && let Some(given) = stored.str("target")
    {
        let shown = Value::from(target::with_port(given));
        entity.to_mut().insert("target", shown);
    }
    let end = entity.get("ttl").and_then(Value::as_int);
    // Without a database, Kong shows `ttl` only for entities that have one.
    if schema.ttl && (end.is_some() || !context.dbless) {
        // Only whole seconds count, so the current second is subtracted.
        let left = end.map(|end| (end - context.now - 1).max(0));
        more.push(("ttl", left.map_or(Value::Null, Value::from)));
    }
    schema.write_json_with(&entity, context.flavor, &more, out);
}

/// Response to `POST /config`: all entities of one revision, by type and id. For 50,000 entities it takes about 25 MB.
pub(crate) async fn loaded_entities(
    slot: Slot,
    store: Store,
    flavor: RouterFlavor,
    untransformed: Vec<(EntityKind, Uuid, Object)>,
) -> ApiResult {
    let directory = store.directory().to_owned();
    let answer = slot.answer(&directory, JSON, move |chunks| {
        let replaced = untransformed
            .into_iter()
            .map(|(kind, id, entity)| ((kind, id), entity))
            .collect();
        let written = write_loaded(&store, flavor, &replaced, chunks);
        // Serving requests needs few of the pages that were read for the response.
        store.release_resident_pages();
        written
    });
    let mut response = answer.await?;
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
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
    for kind in EntityKind::all() {
        if kind == EntityKind::Workspaces || view.count(kind)? == 0 {
            continue;
        }
        if !std::mem::take(&mut first_kind) {
            chunks.buffer.push(b',');
        }
        write!(chunks.buffer, "\"{}\":{{", kind.name())?;
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
        write!(out, "\"{id}\":")?;
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

/// `GET /config`: the configuration as YAML in a JSON string.
pub(crate) async fn exported(slot: Slot, store: Store, flavor: RouterFlavor) -> ApiResult {
    let directory = store.directory().to_owned();
    let answer = slot.answer(&directory, JSON, move |chunks| {
        let mut yaml = Vec::new();
        transfer::write(&store, ExportFormat::Yaml, flavor, &mut yaml)?;
        store.release_resident_pages();
        let yaml = String::from_utf8(yaml).map_err(io::Error::other)?;
        serde_json::to_writer(chunks, &Exported { config: yaml }).map_err(io::Error::from)?;
        Ok::<_, Interrupted>(())
    });
    answer.await
}

#[derive(serde::Serialize)]
struct Exported {
    config: String,
}
