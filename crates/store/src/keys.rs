//! The keys of the tables. Every key starts with what is listed together, so that a list is one range of a table.
//!
//! | table | key | value |
//! |---|---|---|
//! | entities | kind, id | MessagePack |
//! | unique | kind, field, 0, text | id |
//! | children | kind, field, 0, parent id, id | |
//! | tags | text of the tag, kind, id | the tag when its text is hashed |
//! | kind_tags | kind, text of the tag, id | |
//! | meta | name | value |
//! | journal | revision, 0 | what is known of the revision |
//! | journal | revision, number from 1 | keys of entities that the revision changed |
//! | touched | kind, id, revision | the entity before the revision; nothing where there was none |
//!
//! LMDB allows keys of 511 bytes. A text that is longer than [`MAX_TEXT`], or contains the byte that ends it, is replaced
//! by its SHA-256; who looks one up compares the entity's own field as well.

use model::EntityKind;
use ring::digest::{SHA256, digest};
use uuid::Uuid;

/// Texts up to this length are part of the key as they are: kind, the longest field name, two ids and the marks fit beside it.
pub(crate) const MAX_TEXT: usize = 400;

pub(crate) const ENTITY_KEY_LENGTH: usize = 17;

/// The pseudo field of the composite cache key; no schema has a field of that name.
pub(crate) const CACHE_KEY: &str = "@cache_key";

const PLAIN: u8 = 1;
const HASHED: u8 = 2;
const END: u8 = 0;

pub(crate) type EntityKey = [u8; ENTITY_KEY_LENGTH];

pub(crate) fn entity(kind: EntityKind, id: Uuid) -> EntityKey {
    let mut key = [0; ENTITY_KEY_LENGTH];
    key[0] = kind as u8;
    key[1..].copy_from_slice(id.as_bytes());
    key
}

/// Numbers that order as the keys do, and are compared in two steps.
pub(crate) fn order(key: &EntityKey) -> (u8, u128) {
    let [kind, id @ ..] = *key;
    (kind, u128::from_be_bytes(id))
}

/// The kind and id of an entity's key; `None` for a kind this program does not know.
pub(crate) fn parse_entity(key: &[u8]) -> Option<(EntityKind, Uuid)> {
    let (kind, id) = key.split_first()?;
    Some((EntityKind::from_number(*kind)?, Uuid::from_slice(id).ok()?))
}

/// What all entries of a field share.
pub(crate) fn field(key: &mut Vec<u8>, kind: EntityKind, field: &str) {
    key.clear();
    key.push(kind as u8);
    key.extend_from_slice(field.as_bytes());
    key.push(END);
}

pub(crate) fn unique(key: &mut Vec<u8>, kind: EntityKind, name: &str, value: &[u8]) {
    field(key, kind, name);
    text(key, value);
}

/// The composite cache key: its parts mark their own ends, so zero bytes in it are no reason to hash it.
pub(crate) fn cache_key(key: &mut Vec<u8>, kind: EntityKind, value: &[u8]) {
    field(key, kind, CACHE_KEY);
    if value.len() > MAX_TEXT {
        key.push(HASHED);
        key.extend_from_slice(digest(&SHA256, value).as_ref());
    } else {
        key.push(PLAIN);
        key.extend_from_slice(value);
    }
}

pub(crate) fn children(key: &mut Vec<u8>, kind: EntityKind, name: &str, parent: Uuid) {
    field(key, kind, name);
    key.extend_from_slice(parent.as_bytes());
}

pub(crate) fn tag(key: &mut Vec<u8>, tag: &str) {
    key.clear();
    text(key, tag.as_bytes());
}

pub(crate) fn kind_tag(key: &mut Vec<u8>, kind: EntityKind, tag: &str) {
    key.clear();
    key.push(kind as u8);
    text(key, tag.as_bytes());
}

/// Whether the key of this text holds its hash.
pub(crate) fn is_hashed(value: &[u8]) -> bool {
    value.len() > MAX_TEXT || value.contains(&END)
}

/// A text with its end marked, so that no text is the beginning of another one's key.
fn text(key: &mut Vec<u8>, value: &[u8]) {
    if is_hashed(value) {
        key.push(HASHED);
        key.extend_from_slice(digest(&SHA256, value).as_ref());
    } else {
        key.push(PLAIN);
        key.extend_from_slice(value);
        key.push(END);
    }
}

/// The tag in a key of the table `tags` and what follows it; the text is `None` when it is hashed.
pub(crate) fn parse_tag(key: &[u8]) -> Option<(Option<&str>, &[u8])> {
    let (mark, rest) = key.split_first()?;
    match *mark {
        HASHED => Some((None, rest.get(32..)?)),
        PLAIN => {
            let end = rest.iter().position(|byte| *byte == END)?;
            Some((
                Some(std::str::from_utf8(&rest[..end]).ok()?),
                &rest[end + 1..],
            ))
        }
        _ => None,
    }
}

/// The place of the head of a revision's record among its pieces.
pub(crate) const HEAD_PIECE: u32 = 0;

pub(crate) fn journal(revision: u64, piece: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&revision.to_be_bytes());
    key[8..].copy_from_slice(&piece.to_be_bytes());
    key
}

/// The revision and the piece of a key of the journal.
pub(crate) fn parse_journal(key: &[u8]) -> Option<(u64, u32)> {
    let (revision, piece) = key.split_at_checked(8)?;
    let revision = u64::from_be_bytes(revision.try_into().ok()?);
    Some((revision, u32::from_be_bytes(piece.try_into().ok()?)))
}

pub(crate) type TouchedKey = [u8; ENTITY_KEY_LENGTH + 8];

pub(crate) fn touched(entity: &EntityKey, revision: u64) -> TouchedKey {
    let mut key = [0; ENTITY_KEY_LENGTH + 8];
    key[..ENTITY_KEY_LENGTH].copy_from_slice(entity);
    key[ENTITY_KEY_LENGTH..].copy_from_slice(&revision.to_be_bytes());
    key
}

/// The revision in a key of the table `touched` that is about this entity.
pub(crate) fn touched_by(key: &[u8], entity: &EntityKey) -> Option<u64> {
    let revision = key.strip_prefix(entity.as_slice())?;
    Some(u64::from_be_bytes(revision.try_into().ok()?))
}

/// One part of a composite cache key, in a form where no two lists of parts are alike.
pub(crate) fn cache_key_part(value: &mut Vec<u8>, part: Option<&[u8]>) {
    match part {
        None => value.push(0),
        Some(bytes) => {
            value.push(1);
            value.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
            value.extend_from_slice(bytes);
        }
    }
}
