//! The head of a revision's record: its time, its author and the number of its changes. The changed entities are in the
//! pieces after the head, so that listing revisions does not read them.

use crate::change::{Origin, Revision};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Data about a revision, without its changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevisionInfo {
    pub revision: Revision,
    /// Milliseconds since 1970. Never less than in the previous revision, even if the clock is set back.
    pub at_ms: u64,
    pub origin: Origin,
    pub counts: Counts,
}

/// Numbers of entities that a revision changed. Cascading deletions count as deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub created: u64,
    pub updated: u64,
    pub deleted: u64,
}

impl Counts {
    pub fn total(&self) -> u64 {
        self.created + self.updated + self.deleted
    }
}

/// Named values before a revision; `None` if a value did not exist.
pub(crate) type MetaBefore = Vec<(String, Option<Vec<u8>>)>;

pub(crate) fn encode(
    at_ms: u64,
    counts: Counts,
    origin: &Origin,
    meta: &[(String, Option<Vec<u8>>)],
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(128);
    for number in [at_ms, counts.created, counts.updated, counts.deleted] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    let Origin {
        source,
        actor,
        request_id,
        message,
    } = origin;
    put_bytes(&mut bytes, source.as_bytes());
    for text in [actor, request_id, message] {
        put_optional(&mut bytes, text.as_ref().map(String::as_bytes));
    }
    for (name, old) in meta {
        put_bytes(&mut bytes, name.as_bytes());
        put_optional(&mut bytes, old.as_deref());
    }
    bytes
}

fn put_optional(record: &mut Vec<u8>, bytes: Option<&[u8]>) {
    record.push(u8::from(bytes.is_some()));
    if let Some(bytes) = bytes {
        put_bytes(record, bytes);
    }
}

fn put_bytes(record: &mut Vec<u8>, bytes: &[u8]) {
    record.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    record.extend_from_slice(bytes);
}

/// Returns the time of a revision, from the head of its record.
pub(crate) fn time(head: &[u8]) -> Option<u64> {
    take_u64(&mut &*head)
}

pub(crate) fn info(revision: u64, head: &[u8]) -> Option<RevisionInfo> {
    Some(decode(revision, head)?.0)
}

pub(crate) fn meta(head: &[u8]) -> Option<MetaBefore> {
    let (_, mut rest) = decode(0, head)?;
    let mut meta = MetaBefore::new();
    while !rest.is_empty() {
        let name = take_text(&mut rest)?;
        let old = take_optional(&mut rest)?.map(<[u8]>::to_vec);
        meta.push((name, old));
    }
    Some(meta)
}

/// Decodes the head up to the named values. Also returns the remaining bytes, which encode the named values.
fn decode(revision: u64, mut rest: &[u8]) -> Option<(RevisionInfo, &[u8])> {
    let info = RevisionInfo {
        revision: Revision(revision),
        at_ms: take_u64(&mut rest)?,
        counts: Counts {
            created: take_u64(&mut rest)?,
            updated: take_u64(&mut rest)?,
            deleted: take_u64(&mut rest)?,
        },
        origin: Origin {
            source: take_text(&mut rest)?,
            actor: take_optional_text(&mut rest)?,
            request_id: take_optional_text(&mut rest)?,
            message: take_optional_text(&mut rest)?,
        },
    };
    Some((info, rest))
}

fn take<'b>(rest: &mut &'b [u8], length: usize) -> Option<&'b [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(take(rest, 8)?.try_into().ok()?))
}

fn take_bytes<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
    take(rest, length as usize)
}

fn take_optional<'b>(rest: &mut &'b [u8]) -> Option<Option<&'b [u8]>> {
    match take(rest, 1)? {
        [0] => Some(None),
        [1] => Some(Some(take_bytes(rest)?)),
        _ => None,
    }
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    String::from_utf8(take_bytes(rest)?.to_vec()).ok()
}

fn take_optional_text(rest: &mut &[u8]) -> Option<Option<String>> {
    match take_optional(rest)? {
        None => Some(None),
        Some(bytes) => Some(Some(String::from_utf8(bytes.to_vec()).ok()?)),
    }
}

pub(crate) fn now_ms() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    whole_ms(elapsed.unwrap_or_default())
}

pub(crate) fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_decodes_as_encoded_and_half_of_it_is_refused() {
        let origin = Origin {
            source: "127.0.0.1:4".to_owned(),
            actor: Some("ci".to_owned()),
            request_id: None,
            message: Some("wär".to_owned()),
        };
        let counts = Counts {
            created: 1,
            updated: 0,
            deleted: 70_000,
        };
        let before = vec![
            ("hash".to_owned(), Some(b"1".to_vec())),
            ("new".to_owned(), None),
        ];
        let head = encode(1_700_000_000_123, counts, &origin, &before);
        let expected = RevisionInfo {
            revision: Revision(7),
            at_ms: 1_700_000_000_123,
            origin,
            counts,
        };
        assert_eq!(info(7, &head), Some(expected));
        assert_eq!(meta(&head), Some(before));
        assert_eq!(time(&head), Some(1_700_000_000_123));
        let whole = encode(0, counts, &Origin::default(), &[]).len();
        for length in 0..whole {
            assert_eq!(info(7, &head[..length]), None, "{length}");
        }
    }
}
