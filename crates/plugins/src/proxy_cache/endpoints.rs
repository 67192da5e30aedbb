//! The paths of the Admin API that show and remove stored responses. Source: kong/plugins/proxy-cache/api.lua.

use super::entry::Entry;
use super::key::CacheKey;
use super::storage::{Item, Storage};
use super::{NAME, zones};
use model::EntityKind;
use plugin::{Endpoint, EndpointAnswer, EndpointReply, EndpointRequest, Node, Stored};
use serde::{Serialize, Serializer};
use std::collections::HashMap;
use std::sync::Arc;
use uuid::Uuid;

/// The format of stored responses that Kong 3.9.1 shows.
const VERSION: u32 = 1;

pub(crate) fn endpoints() -> [Endpoint; 3] {
    [
        Endpoint::new(NAME, "/proxy-cache").on(
            "DELETE",
            "Delete all stored responses",
            |_, node| {
                apart(move || {
                    zones::storages(&node)
                        .iter()
                        .for_each(|all| all.purge_all());
                    EndpointAnswer::empty(204)
                })
            },
        ),
        Endpoint::new(NAME, "/proxy-cache/{cache_key}")
            .on("GET", "Show a stored response", |request, node| {
                show(request, &node, zones::storages(&node))
            })
            .on("DELETE", "Delete a stored response", |request, node| {
                delete(&request, &node, &zones::storages(&node))
            }),
        Endpoint::new(NAME, "/proxy-cache/{plugin_id}/caches/{cache_key}")
            .on(
                "GET",
                "Show a stored response of a plugin",
                |request, node| {
                    let storages = of_plugin(&request, &node);
                    storages.map_or_else(failed, |storages| show(request, &node, storages))
                },
            )
            .on(
                "DELETE",
                "Delete a stored response of a plugin",
                |request, node| {
                    let storages = of_plugin(&request, &node);
                    storages.map_or_else(failed, |storages| delete(&request, &node, &storages))
                },
            ),
    ]
}

/// Runs what may take long on a thread of its own.
fn apart(work: impl FnOnce() -> EndpointAnswer + Send + 'static) -> EndpointReply {
    EndpointReply::Wait(Box::pin(async move {
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|error| EndpointAnswer::message(500, &error.to_string()))
    }))
}

fn failed(answer: EndpointAnswer) -> EndpointReply {
    answer.into()
}

/// Returns the storage of a plugin, or the response if there is no such plugin.
fn of_plugin(
    request: &EndpointRequest,
    node: &Arc<Node>,
) -> Result<Vec<Arc<Storage>>, EndpointAnswer> {
    let not_found = || EndpointAnswer::empty(404);
    let id = Uuid::try_parse(request.parameter("plugin_id")).map_err(|_| not_found())?;
    let plugin = node.entities.object(EntityKind::Plugins, id);
    let plugin = plugin.map_err(|error| EndpointAnswer::message(500, &error.to_string()))?;
    let plugin = plugin.filter(|plugin| plugin.str("name") == Some(NAME));
    let config = plugin
        .as_ref()
        .and_then(|plugin| plugin.get("config")?.as_object());
    let memory = config.and_then(|config| config.get("memory")?.as_object());
    let zone = memory.and_then(|memory| memory.str("dictionary_name"));
    zone.map(|zone| vec![zones::storage(node, zone)])
        .ok_or_else(not_found)
}

fn now(node: &Node) -> u64 {
    node.clock.since_epoch().as_secs()
}

fn show(request: EndpointRequest, node: &Node, storages: Vec<Arc<Storage>>) -> EndpointReply {
    let (key, now) = (CacheKey::parse(request.parameter("cache_key")), now(node));
    let mut storages = storages.iter();
    let found = key.and_then(|key| storages.find_map(|storage| found(storage, &key, now)));
    match found {
        Some(entry) => apart(move || EndpointAnswer::json(200, &Shown::from(&entry))),
        None => EndpointAnswer::empty(404).into(),
    }
}

/// Returns the response of a key. With `rfc9111`, the key that clients see is that of all responses of a URI. Of these,
/// the one that was stored last is shown.
fn found(storage: &Storage, key: &CacheKey, now: u64) -> Option<Entry> {
    match storage.item(key, now)? {
        Item::Response(entry) => Some(entry),
        Item::Family(family) => storage.get(&family.latest, now),
    }
}

fn delete(request: &EndpointRequest, node: &Node, storages: &[Arc<Storage>]) -> EndpointReply {
    let (key, now) = (CacheKey::parse(request.parameter("cache_key")), now(node));
    let purged = |key: CacheKey| {
        let purged = storages.iter().filter(|storage| storage.purge(&key, now));
        purged.count() > 0
    };
    let status = if key.is_some_and(purged) { 204 } else { 404 };
    EndpointAnswer::empty(status).into()
}

/// A stored response as Kong shows it. Bytes that are no text are replaced.
#[derive(Serialize)]
struct Shown<'a> {
    status: u16,
    #[serde(serialize_with = "lines")]
    headers: &'a Stored,
    body: String,
    body_len: usize,
    timestamp: u64,
    ttl: u64,
    version: u32,
}

impl<'a> From<&'a Entry> for Shown<'a> {
    fn from(entry: &'a Entry) -> Self {
        Self {
            status: entry.status,
            headers: &entry.stored,
            body: text(&entry.stored.pieces().concat()),
            body_len: entry.stored.body_length(),
            timestamp: entry.stored_at,
            ttl: entry.ttl,
            version: VERSION,
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Writes header lines as an object, in the order of their names' first lines. A name with several lines has a list.
fn lines<S: Serializer>(stored: &Stored, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Values {
        One(String),
        Several(Vec<String>),
    }
    let mut values: HashMap<String, Vec<String>> = HashMap::new();
    for (name, value) in stored.header_pairs() {
        let same = values.entry(name.to_ascii_lowercase());
        same.or_default().push(text(value));
    }
    let names = stored.marked_pairs().filter(|(_, _, is_first)| *is_first);
    serializer.collect_map(names.map(|(name, _, _)| {
        let mut values = values
            .remove(&name.to_ascii_lowercase())
            .unwrap_or_default();
        let values = match values.len() {
            1 => Values::One(values.remove(0)),
            _ => Values::Several(values),
        };
        (name, values)
    }))
}
