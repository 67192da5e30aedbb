//! The keys of the tables. Entries that are listed together have keys with a common prefix, so that a list is one range
//! of a table.
//!
//! | table | key | value |
//! |---|---|---|
//! | entities | kind, id | MessagePack |
//! | unique | kind, field, 0, text | id; for credentials also the credential and its consumer |
//! | children | kind, field, 0, parent id, id | |
//! | tags | text of the tag, kind, id | the tag when its text is hashed |
//! | kind_tags | kind, text of the tag, id | |
//! | meta | name | value |
//! | meta | 255, kind, id | the revision in which the entity was created |
//! | journal | revision, 0 | the head of the revision's record |
//! | journal | revision, number from 1 | keys of entities that the revision changed |
//! | touched | kind, id, revision | the entity before the revision; empty if it did not exist |
//!
//! LMDB allows keys of 511 bytes. A text that is longer than [`MAX_TEXT`], or contains the terminator byte, is replaced
//! by its SHA-256 hash. Lookups of such a text in the table `unique` also compare the entity's own field.

use aws_lc_rs::digest::{SHA256, digest};
use model::EntityKind;
use uuid::Uuid;

/// Maximum length of a text that is stored in the key itself. The rest of the key has room for the type, the longest
/// field name, two ids and the markers.
pub(crate) const MAX_TEXT: usize = 400;

pub(crate) const ENTITY_KEY_LENGTH: usize = 17;

/// Pseudo field for the composite cache key. No schema has a field of that name.
pub(crate) const CACHE_KEY: &str = "@cache_key";

const PLAIN: u8 = 1;
const HASHED: u8 = 2;
const END: u8 = 0;

pub(crate) type EntityKey = [u8; ENTITY_KEY_LENGTH];

pub(crate) fn entity(kind: EntityKind, id: Uuid) -> EntityKey {
    let mut key = [0; ENTITY_KEY_LENGTH];
    key[0] = kind.number();
    key[1..].copy_from_slice(id.as_bytes());
    key
}

pub(crate) const CREATED_KEY_LENGTH: usize = 1 + ENTITY_KEY_LENGTH;

/// Marks keys of the table `meta` that are no names. No text in UTF-8 has this byte.
const CREATED: u8 = 0xff;

/// Returns the key for the revision in which an entity was created.
pub(crate) fn created(entity: &EntityKey) -> [u8; CREATED_KEY_LENGTH] {
    let mut key = [CREATED; CREATED_KEY_LENGTH];
    key[1..].copy_from_slice(entity);
    key
}

/// Parses the entity in a key of the table `meta`; `None` if the key is a name.
pub(crate) fn parse_created(key: &[u8]) -> Option<&[u8]> {
    key.strip_prefix(&[CREATED])
}

/// Returns two numbers that sort like the key and are fast to compare.
pub(crate) fn order(key: &EntityKey) -> (u8, u128) {
    let [kind, id @ ..] = *key;
    (kind, u128::from_be_bytes(id))
}

/// Parses the type and id in an entity's key; `None` if this program does not know the type.
pub(crate) fn parse_entity(key: &[u8]) -> Option<(EntityKind, Uuid)> {
    let (kind, id) = key.split_first()?;
    Some((EntityKind::from_number(*kind)?, Uuid::from_slice(id).ok()?))
}

/// Writes the prefix that all entries of a field share.
pub(crate) fn field(key: &mut Vec<u8>, kind: EntityKind, field: &str) {
    key.clear();
    key.push(kind.number());
    key.extend_from_slice(field.as_bytes());
    key.push(END);
}

pub(crate) fn unique(key: &mut Vec<u8>, kind: EntityKind, name: &str, value: &[u8]) {
    field(key, kind, name);
    text(key, value);
}

/// Writes the key of a composite cache key. Its parts encode their lengths, so zero bytes in it do not require a hash.
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

/// Whether a key of the table `unique` is that of a composite cache key.
pub(crate) fn is_cache_key(key: &[u8], kind: EntityKind) -> bool {
    let name = key.strip_prefix(&[kind.number()]);
    let rest = name.and_then(|name| name.strip_prefix(CACHE_KEY.as_bytes()));
    rest.is_some_and(|rest| rest.first() == Some(&END))
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
    key.push(kind.number());
    text(key, tag.as_bytes());
}

/// Whether keys contain the hash of this text instead of the text itself.
pub(crate) fn is_hashed(value: &[u8]) -> bool {
    value.len() > MAX_TEXT || value.contains(&END)
}

/// Appends a text, or its hash. A terminator follows the text, so that no encoded text is a prefix of another one.
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

/// Parses the tag in a key of the table `tags`, and returns the rest of the key. The text is `None` if it is hashed.
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

/// Piece number of the head of a revision's record.
pub(crate) const HEAD_PIECE: u32 = 0;

pub(crate) fn journal(revision: u64, piece: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&revision.to_be_bytes());
    key[8..].copy_from_slice(&piece.to_be_bytes());
    key
}

/// Parses the revision and the piece number in a key of the table `journal`.
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

/// Returns the revision in a key of the table `touched`, if the key belongs to this entity.
pub(crate) fn touched_by(key: &[u8], entity: &EntityKey) -> Option<u64> {
    let revision = key.strip_prefix(entity.as_slice())?;
    Some(u64::from_be_bytes(revision.try_into().ok()?))
}

/// Parses the id and the revision in a key of the table `touched`.
pub(crate) fn parse_touched(key: &[u8]) -> Option<(Uuid, u64)> {
    let (entity, revision) = key.split_at_checked(ENTITY_KEY_LENGTH)?;
    let (_, id) = parse_entity(entity)?;
    Some((id, u64::from_be_bytes(revision.try_into().ok()?)))
}

/// Appends a part of a composite cache key. Different lists of parts always have different encodings.
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
