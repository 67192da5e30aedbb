//! Encodes and decodes the protocol of the event socket, for both sides; `docs/design/0010-events.md` describes it.
//! This module does no I/O. Decoding is strict. It accepts only bytes that encoding a frame would produce. Any other
//! bytes are an error, which closes the connection.

use model::EntityKind;
use std::borrow::Cow;
use std::time::Duration;
use store::{Changed, Effect, Origin, RevisionInfo};
use uuid::Uuid;

/// The first bytes that a client sends.
pub const MAGIC: [u8; 8] = *b"SBEVENTS";
pub const VERSION: u16 = 1;
/// Length of a client's opening: magic, version, kind of start, revision.
pub const OPENING: usize = 8 + 2 + 1 + 8;

/// Maximum time between two frames from the same side.
pub const HEARTBEAT: Duration = Duration::from_secs(5);
/// Time after which a silent side counts as dead.
pub const SILENCE: Duration = Duration::from_secs(15);

/// Maximum length of a frame, without its length prefix.
pub const MAX_FRAME: usize = 1 << 16;
/// Maximum length of a text in bytes. Longer texts are truncated. A frame has room for four texts.
pub const MAX_TEXT: usize = 8192;
/// Maximum length of an entity type's name.
const MAX_KIND: usize = 64;
/// Number of changes that always fit into a frame.
pub const CHANGES_AT_ONCE: usize = (MAX_FRAME - 1) / (1 + 1 + MAX_KIND + 16);
/// Size of a frame's length prefix.
const PREFIX: usize = 4;

/// The revision with which a subscriber starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The revision after the one that is live when the server accepts the subscriber.
    Now,
    /// The revision after this one.
    After(u64),
}

/// A frame. Clients send only heartbeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame<'b> {
    /// The first frame: the protocol version, and the revision after which the subscriber starts.
    Welcome {
        version: u16,
        after: u64,
    },
    Revision(Head<'b>),
    /// Changes of the preceding `Revision` frame, which has their total number. They may be spread over several frames.
    Changes(Vec<Change<'b>>),
    /// The revisions from `from` to `to`, both included, are no longer kept.
    Gap {
        from: u64,
        to: u64,
    },
    Heartbeat,
    /// The last frame.
    End {
        reason: Reason,
        text: Cow<'b, str>,
    },
}

/// A revision without its changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head<'b> {
    pub revision: u64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    pub source: Cow<'b, str>,
    pub actor: Option<Cow<'b, str>>,
    pub request_id: Option<Cow<'b, str>>,
    pub message: Option<Cow<'b, str>>,
    /// Number of changes that follow.
    pub changes: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change<'b> {
    pub effect: Effect,
    /// Name of the entity's collection. It is a text, because a newer server may have entity types that the client does
    /// not know.
    pub kind: Cow<'b, str>,
    pub id: Uuid,
}

/// The reason why the server ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// The process ends, or another process has taken over.
    Leaving = 1,
    /// There are too many subscribers.
    Crowded = 2,
    /// The server does not support the client's version.
    Version = 3,
    /// The requested start is newer than the newest revision, so it must be from another store.
    Unknown = 4,
    /// The client has violated the protocol.
    Malformed = 5,
    /// The rest of a revision is no longer kept.
    Lost = 6,
    /// The store cannot be read.
    Unreadable = 7,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the magic number of another protocol")]
    Magic,
    #[error("unsupported protocol version {0}")]
    Version(u16),
    #[error("a frame that is empty or longer than {MAX_FRAME} bytes")]
    Length,
    #[error("a frame of an unknown kind")]
    Kind,
    #[error("a frame with malformed content")]
    Content,
}

const WELCOME: u8 = 1;
const REVISION: u8 = 2;
const CHANGES: u8 = 3;
const GAP: u8 = 4;
const HEARTBEAT_KIND: u8 = 5;
const END: u8 = 6;

const CREATED: u8 = 1;
const UPDATED: u8 = 2;
const DELETED: u8 = 3;

/// Encodes the opening of a client.
pub fn encode_opening(start: Start) -> [u8; OPENING] {
    let (from, revision) = match start {
        Start::Now => (0, 0),
        Start::After(revision) => (1, revision),
    };
    let mut bytes = [0; OPENING];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_be_bytes());
    bytes[10] = from;
    bytes[11..].copy_from_slice(&revision.to_be_bytes());
    bytes
}

pub fn decode_opening(bytes: &[u8; OPENING]) -> Result<Start, Malformed> {
    let mut rest = bytes.strip_prefix(&MAGIC).ok_or(Malformed::Magic)?;
    let version = take_u16(&mut rest)?;
    if version != VERSION {
        return Err(Malformed::Version(version));
    }
    let from = take_u8(&mut rest)?;
    match (from, take_u64(&mut rest)?) {
        (0, 0) => Ok(Start::Now),
        (1, revision) => Ok(Start::After(revision)),
        _ => Err(Malformed::Content),
    }
}

/// Decodes the first frame of `bytes`; returns it with its length. `None` means that more bytes are needed.
pub fn decode(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, Malformed> {
    let Some((prefix, rest)) = bytes.split_first_chunk() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*prefix) as usize;
    if length == 0 || length > MAX_FRAME {
        return Err(Malformed::Length);
    }
    let Some(mut content) = rest.get(..length) else {
        return Ok(None);
    };
    let frame = match take_u8(&mut content)? {
        WELCOME => Frame::Welcome {
            version: take_u16(&mut content)?,
            after: take_u64(&mut content)?,
        },
        REVISION => Frame::Revision(take_head(&mut content)?),
        CHANGES => Frame::Changes(take_changes(&mut content)?),
        GAP => take_gap(&mut content)?,
        HEARTBEAT_KIND => Frame::Heartbeat,
        END => Frame::End {
            reason: take_reason(&mut content)?,
            text: take_text(&mut content)?,
        },
        _ => return Err(Malformed::Kind),
    };
    if !content.is_empty() {
        return Err(Malformed::Content);
    }
    Ok(Some((frame, PREFIX + length)))
}

/// Appends a frame. Texts that are too long are truncated. The caller passes at most [`CHANGES_AT_ONCE`] changes.
pub fn encode(frame: &Frame<'_>, bytes: &mut Vec<u8>) {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; PREFIX]);
    match frame {
        Frame::Welcome { version, after } => {
            bytes.push(WELCOME);
            bytes.extend_from_slice(&version.to_be_bytes());
            bytes.extend_from_slice(&after.to_be_bytes());
        }
        Frame::Revision(head) => {
            bytes.push(REVISION);
            put_head(bytes, head);
        }
        Frame::Changes(changes) => {
            bytes.push(CHANGES);
            changes.iter().for_each(|change| put_change(bytes, change));
        }
        Frame::Gap { from, to } => {
            bytes.push(GAP);
            bytes.extend_from_slice(&from.to_be_bytes());
            bytes.extend_from_slice(&to.to_be_bytes());
        }
        Frame::Heartbeat => bytes.push(HEARTBEAT_KIND),
        Frame::End { reason, text } => {
            bytes.extend_from_slice(&[END, *reason as u8]);
            put_text(bytes, text);
        }
    }
    let length = bytes.len() - start - PREFIX;
    debug_assert!(length <= MAX_FRAME, "a frame of {length} bytes");
    bytes[start..start + PREFIX].copy_from_slice(&(length as u32).to_be_bytes());
}

impl<'b> From<&'b RevisionInfo> for Head<'b> {
    fn from(info: &'b RevisionInfo) -> Self {
        let Origin {
            source,
            actor,
            request_id,
            message,
        } = &info.origin;
        let optional = |text: &'b Option<String>| text.as_deref().map(Cow::from);
        Self {
            revision: info.revision.0,
            at_ms: info.at_ms,
            source: source.into(),
            actor: optional(actor),
            request_id: optional(request_id),
            message: optional(message),
            changes: u32::try_from(info.counts.total()).unwrap_or(u32::MAX),
        }
    }
}

impl From<&Changed> for Change<'static> {
    fn from(changed: &Changed) -> Self {
        Self {
            effect: changed.effect,
            kind: changed.kind.name().into(),
            id: changed.id,
        }
    }
}

impl Head<'_> {
    pub fn into_owned(self) -> Head<'static> {
        Head {
            revision: self.revision,
            at_ms: self.at_ms,
            source: owned(self.source),
            actor: self.actor.map(owned),
            request_id: self.request_id.map(owned),
            message: self.message.map(owned),
            changes: self.changes,
        }
    }
}

impl Change<'_> {
    pub fn into_owned(self) -> Change<'static> {
        Change {
            effect: self.effect,
            // Known names are static and need no copy.
            kind: match EntityKind::from_name(&self.kind) {
                Some(kind) => kind.name().into(),
                None => owned(self.kind),
            },
            id: self.id,
        }
    }
}

fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
    text.into_owned().into()
}

fn put_head(bytes: &mut Vec<u8>, head: &Head<'_>) {
    bytes.extend_from_slice(&head.revision.to_be_bytes());
    bytes.extend_from_slice(&head.at_ms.to_be_bytes());
    put_text(bytes, &head.source);
    for text in [&head.actor, &head.request_id, &head.message] {
        bytes.push(u8::from(text.is_some()));
        if let Some(text) = text {
            put_text(bytes, text);
        }
    }
    bytes.extend_from_slice(&head.changes.to_be_bytes());
}

fn put_change(bytes: &mut Vec<u8>, change: &Change<'_>) {
    bytes.push(match change.effect {
        Effect::Created => CREATED,
        Effect::Updated => UPDATED,
        Effect::Deleted => DELETED,
    });
    // Names of entity types are far shorter than `MAX_KIND`.
    let name = &change.kind.as_bytes()[..change.kind.len().min(MAX_KIND)];
    bytes.push(name.len() as u8);
    bytes.extend_from_slice(name);
    bytes.extend_from_slice(change.id.as_bytes());
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    let text = &text[..text.floor_char_boundary(MAX_TEXT)];
    bytes.extend_from_slice(&(text.len() as u16).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

fn take_head<'b>(rest: &mut &'b [u8]) -> Result<Head<'b>, Malformed> {
    Ok(Head {
        revision: take_u64(rest)?,
        at_ms: take_u64(rest)?,
        source: take_text(rest)?,
        actor: take_optional(rest)?,
        request_id: take_optional(rest)?,
        message: take_optional(rest)?,
        changes: take_u32(rest)?,
    })
}

fn take_changes<'b>(rest: &mut &'b [u8]) -> Result<Vec<Change<'b>>, Malformed> {
    let mut changes = Vec::new();
    while changes.is_empty() || !rest.is_empty() {
        if changes.len() == CHANGES_AT_ONCE {
            return Err(Malformed::Content);
        }
        changes.push(take_change(rest)?);
    }
    Ok(changes)
}

fn take_change<'b>(rest: &mut &'b [u8]) -> Result<Change<'b>, Malformed> {
    let effect = match take_u8(rest)? {
        CREATED => Effect::Created,
        UPDATED => Effect::Updated,
        DELETED => Effect::Deleted,
        _ => return Err(Malformed::Content),
    };
    let length = usize::from(take_u8(rest)?);
    let name = take(rest, length)?;
    let is_name = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
    if length == 0 || length > MAX_KIND || !name.iter().all(is_name) {
        return Err(Malformed::Content);
    }
    let id = take(rest, 16)?;
    Ok(Change {
        effect,
        kind: text(name)?,
        id: Uuid::from_slice(id).map_err(|_| Malformed::Content)?,
    })
}

fn take_gap(rest: &mut &[u8]) -> Result<Frame<'static>, Malformed> {
    let (from, to) = (take_u64(rest)?, take_u64(rest)?);
    if from > to {
        return Err(Malformed::Content);
    }
    Ok(Frame::Gap { from, to })
}

fn take_reason(rest: &mut &[u8]) -> Result<Reason, Malformed> {
    const ALL: [Reason; 7] = [
        Reason::Leaving,
        Reason::Crowded,
        Reason::Version,
        Reason::Unknown,
        Reason::Malformed,
        Reason::Lost,
        Reason::Unreadable,
    ];
    let number = take_u8(rest)?;
    let known = ALL.into_iter().find(|reason| *reason as u8 == number);
    known.ok_or(Malformed::Content)
}

fn take_optional<'b>(rest: &mut &'b [u8]) -> Result<Option<Cow<'b, str>>, Malformed> {
    match take_u8(rest)? {
        0 => Ok(None),
        1 => Ok(Some(take_text(rest)?)),
        _ => Err(Malformed::Content),
    }
}

fn take_text<'b>(rest: &mut &'b [u8]) -> Result<Cow<'b, str>, Malformed> {
    let length = usize::from(take_u16(rest)?);
    if length > MAX_TEXT {
        return Err(Malformed::Content);
    }
    text(take(rest, length)?)
}

fn text(bytes: &[u8]) -> Result<Cow<'_, str>, Malformed> {
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed::Content)?;
    Ok(text.into())
}

fn take<'b>(rest: &mut &'b [u8], length: usize) -> Result<&'b [u8], Malformed> {
    let (taken, after) = rest.split_at_checked(length).ok_or(Malformed::Content)?;
    *rest = after;
    Ok(taken)
}

fn take_array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Malformed> {
    let (taken, after) = rest.split_first_chunk().ok_or(Malformed::Content)?;
    *rest = after;
    Ok(*taken)
}

fn take_u8(rest: &mut &[u8]) -> Result<u8, Malformed> {
    let [byte] = take_array(rest)?;
    Ok(byte)
}

fn take_u16(rest: &mut &[u8]) -> Result<u16, Malformed> {
    take_array(rest).map(u16::from_be_bytes)
}

fn take_u32(rest: &mut &[u8]) -> Result<u32, Malformed> {
    take_array(rest).map(u32::from_be_bytes)
}

fn take_u64(rest: &mut &[u8]) -> Result<u64, Malformed> {
    take_array(rest).map(u64::from_be_bytes)
}
