//! Entities as the Admin API shows them: every field, and what is no field of theirs (`ttl`, the `snis` of a
//! certificate). Whole configurations are written piece by piece, straight from the store.

use crate::control::Control;
use crate::entities::certificates;
use crate::entities::find::Found;
use crate::entities::target;
use crate::respond::Failure;
use axum::body::Body;
use bytes::Bytes;
use model::schema::{RouterFlavor, registry};
use model::{EntityKind, Object, Value};
use std::collections::HashMap;
use std::io;
use store::{Store, StoreError, View};
use tokio::sync::mpsc;
use uuid::Uuid;

/// Appends `found` as JSON.
pub(crate) fn entity(
    out: &mut Vec<u8>,
    control: &dyn Control,
    view: &View<'_>,
    kind: EntityKind,
    found: &Found,
) -> Result<(), Failure> {
    let schema = registry().entity(kind);
    let context = control.context();
    let mut entity = std::borrow::Cow::Borrowed(&found.entity);
    if kind == EntityKind::Targets
        && let Some(given) = found.entity.str("target")
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
    if kind == EntityKind::Certificates {
        let names: Vec<String> = certificates::snis(view, found.id)?
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        add_field(out, "snis", &names);
    }
    Ok(())
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

/// Bytes of a streamed answer that are in memory at once: this many chunks of this size.
const CHUNK: usize = 64 << 10;
const CHUNKS: usize = 8;

/// The answer to `POST /config`: every entity by kind and id. Some 25 MB for 50,000 entities, of which only a few chunks
/// exist at a time; the store's view keeps them consistent.
pub(crate) fn loaded_entities(
    store: Store,
    flavor: RouterFlavor,
    untransformed: Vec<(EntityKind, Uuid, Object)>,
) -> Body {
    let (sender, receiver) = mpsc::channel(CHUNKS);
    tokio::task::spawn_blocking(move || {
        let replaced = untransformed
            .into_iter()
            .map(|(kind, id, entity)| ((kind, id), entity))
            .collect();
        let mut chunks = Chunks {
            sender,
            buffer: Vec::with_capacity(CHUNK + 8192),
            flavor,
        };
        let written = write_loaded(&store, &replaced, &mut chunks);
        // Requests need little of what was read for the answer.
        store.release_resident_pages();
        match written {
            Ok(()) => {}
            Err(Interrupted::ClientGone) => {
                tracing::info!("the client went away before the whole answer to POST /config");
            }
            Err(error) => {
                tracing::error!(%error, "the answer to POST /config ends early");
                chunks.fail(error);
            }
        }
    });
    let stream = futures_util::stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|chunk| (chunk, receiver))
    });
    Body::from_stream(stream)
}

struct Chunks {
    sender: mpsc::Sender<io::Result<Bytes>>,
    buffer: Vec<u8>,
    flavor: RouterFlavor,
}

/// Why a streamed answer ends before its end.
#[derive(Debug, thiserror::Error)]
enum Interrupted {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Malformed(#[from] model::schema::Malformed),
    #[error(transparent)]
    Decode(#[from] model::codec::DecodeError),
    #[error("the client went away")]
    ClientGone,
}

impl Chunks {
    fn flush_when_full(&mut self) -> Result<(), Interrupted> {
        if self.buffer.len() < CHUNK {
            return Ok(());
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Interrupted> {
        let full = std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK + 8192));
        self.sender
            .blocking_send(Ok(Bytes::from(full)))
            .map_err(|_| Interrupted::ClientGone)
    }

    fn fail(self, error: Interrupted) {
        // A client that is gone cannot be told either.
        let _ = self.sender.blocking_send(Err(io::Error::other(error)));
    }
}

fn write_loaded(
    store: &Store,
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
        write_kind(&view, kind, replaced, chunks)?;
        chunks.buffer.push(b'}');
    }
    chunks.buffer.push(b'}');
    chunks.flush()
}

fn write_kind(
    view: &View<'_>,
    kind: EntityKind,
    replaced: &HashMap<(EntityKind, Uuid), Object>,
    chunks: &mut Chunks,
) -> Result<(), Interrupted> {
    let schema = registry().entity(kind);
    let flavor = chunks.flavor;
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
    let view = store.view().map_err(Failure::internal)?;
    let mut failure = None;
    let kinds = EntityKind::ALL
        .into_iter()
        .filter(|kind| *kind != EntityKind::Workspaces && registry().entity(*kind).db_export);
    // One entity at a time: the text is large enough.
    let entities = kinds
        .filter_map(|kind| match view.iter(kind) {
            Ok(entries) => Some(entries.map(move |entry| (kind, entry))),
            Err(_) => None,
        })
        .flatten()
        .map_while(|(kind, entry)| match stored(entry) {
            Ok(entity) => Some((kind, entity)),
            Err(error) => {
                failure = Some(error);
                None
            }
        });
    let yaml = model::declarative::export_yaml(entities, flavor);
    if let Some(error) = failure {
        return Err(Failure::internal(error));
    }
    let mut out = Vec::with_capacity(yaml.len() + yaml.len() / 8);
    out.extend_from_slice(b"{\"config\":");
    json(&mut out, &yaml);
    out.push(b'}');
    Ok(out)
}

fn stored(entry: Result<(Uuid, &[u8]), StoreError>) -> Result<Object, Interrupted> {
    let (_, bytes) = entry?;
    Ok(model::codec::decode(bytes)?)
}
