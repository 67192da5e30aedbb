//! Entities: the look-up by id or by a unique field, lists of ids, and who the client is.

use super::{Cx, FOUND, NO_REQUEST, NONE};
use compact_str::CompactString;
use model::EntityKind;
use model::entities::Consumer;
use plugin::{Credential, ToldCredential};
use serde::Deserialize;
use std::net::IpAddr;
use std::sync::Arc;
use uuid::Uuid;

/// Maximum number of ids that one call returns.
const MAX_IDS: i32 = 1000;

/// Returns the number of the kind with this name, or [`NONE`].
pub(super) fn kind(_: &mut Cx, name: &[u8]) -> i32 {
    let kind = std::str::from_utf8(name)
        .ok()
        .and_then(EntityKind::from_name);
    kind.map_or(NONE, |kind| kind.number().into())
}

fn numbered(kind: i32) -> Option<EntityKind> {
    u8::try_from(kind).ok().and_then(EntityKind::from_number)
}

fn parse(id: &[u8]) -> Option<Uuid> {
    Uuid::try_parse_ascii(id).ok()
}

/// Returns the entity with this id as JSON, without fields that have no value.
pub(super) fn get(cx: &mut Cx, kind: i32, id: &[u8]) -> i32 {
    match (numbered(kind), parse(id)) {
        (Some(kind), Some(id)) => write(cx, kind, id),
        _ => NONE,
    }
}

fn write(cx: &mut Cx, kind: EntityKind, id: Uuid) -> i32 {
    let target = cx.target;
    let Some(node) = target.node() else {
        return NONE;
    };
    match node.entities.logged(kind, id) {
        Ok(Some(text)) => cx.made(|out| out.extend_from_slice(&text)),
        Ok(None) => NONE,
        Err(error) => cx.refuse(error),
    }
}

/// Returns the id of the entity with this value of a unique field.
pub(super) fn id_of(cx: &mut Cx, kind: i32, field: &[u8], value: &[u8]) -> i32 {
    let (field, value) = (std::str::from_utf8(field), std::str::from_utf8(value));
    let target = cx.target;
    let (Some(kind), Ok(field), Ok(value), Some(node)) =
        (numbered(kind), field, value, target.node())
    else {
        return NONE;
    };
    match node.entities.id_of(kind, field, value) {
        Ok(Some(id)) => {
            cx.made(|out| out.extend_from_slice(id.hyphenated().to_string().as_bytes()))
        }
        Ok(None) => NONE,
        Err(error) => cx.refuse(error),
    }
}

/// Makes a list of the ids of a kind after an id, which may be empty, and returns their number.
pub(super) fn ids_after(cx: &mut Cx, kind: i32, most: i32, after: &[u8]) -> i32 {
    let target = cx.target;
    let (Some(kind), Some(node)) = (numbered(kind), target.node()) else {
        return NONE;
    };
    let most = usize::try_from(most.clamp(0, MAX_IDS)).unwrap_or(0);
    match node.entities.ids_after(kind, parse(after), most) {
        Ok(ids) => {
            cx.list.clear();
            for id in &ids {
                cx.list.name(id.hyphenated().to_string().as_bytes());
            }
            i32::try_from(ids.len()).unwrap_or(MAX_IDS)
        }
        Err(error) => cx.refuse(error),
    }
}

/// Returns the credential of the request as JSON. Its kind is not known, so it is looked up in all kinds that plugins
/// have added.
pub(super) fn credential(cx: &mut Cx) -> i32 {
    let target = cx.target;
    let credential = target.state().and_then(|state| state.credential.as_ref());
    let Some(id) = credential.map(|credential| credential.id) else {
        return NONE;
    };
    let of_plugins = |kind: &EntityKind| kind.number() >= EntityKind::FIRST_OF_PLUGINS;
    for kind in EntityKind::all().filter(of_plugins) {
        match write(cx, kind, id) {
            NONE => {}
            code => return code,
        }
    }
    NONE
}

/// The fields of a credential that count, as Lua code gives them.
#[derive(Default, Deserialize)]
struct Given {
    id: Option<CompactString>,
    consumer_id: Option<CompactString>,
}

/// Sets the consumer and the credential, which are JSON. What is empty is removed. As in Kong, any table is a credential.
pub(super) fn authenticate(cx: &mut Cx, consumer: &[u8], credential: &[u8]) -> i32 {
    let Some(state) = cx.target.state_mut() else {
        return NO_REQUEST;
    };
    let consumer: Option<Consumer> = serde_json::from_slice(consumer).ok();
    let forgets_groups = state.set_consumer(consumer.map(Arc::new));
    (state.credential, state.told_credential) = (None, None);
    if !credential.is_empty() {
        let given: Given = serde_json::from_slice(credential).unwrap_or_default();
        let consumer = given.consumer_id.and_then(|id| parse(id.as_bytes()));
        let told = ToldCredential::new(given.id, consumer);
        state.credential = Some(Credential { id: told.id });
        state.told_credential = Some(told);
    }
    if forgets_groups && let Some(edits) = cx.target.edits_mut() {
        edits.headers.remove("X-Authenticated-Groups");
    }
    FOUND
}

/// Returns whether an address is one of `trusted_ips`. If these are all addresses, any text is.
pub(super) fn is_trusted(cx: &mut Cx, address: &[u8]) -> i32 {
    let target = cx.target;
    let Some(node) = target.node() else {
        return NONE;
    };
    let all = |is_v4: bool| {
        let mut blocks = node.trusted_ips.iter();
        blocks.any(|block| block.bits() == 0 && block.address().is_ipv4() == is_v4)
    };
    if all(true) && all(false) {
        return FOUND;
    }
    let address = std::str::from_utf8(address)
        .ok()
        .and_then(|text| text.parse::<IpAddr>().ok());
    i32::from(address.is_some_and(|address| node.trusts(address)))
}
