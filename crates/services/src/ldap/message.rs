//! The messages of RFC 4511 that a bind needs: the requests bind, StartTLS and unbind, and their responses.
//!
//! Elements are encoded and their headers are read by `asn1-rs`. Only definite lengths are accepted (RFC 4511, section
//! 5.1), and nothing here recurses: the nesting that a directory sends costs nothing.

use asn1_rs::{Class, FromBer, Header, Length, OctetString, SerializeResult, Tag, ToDer};

/// Maximum size of a message from a directory. Responses to binds have some hundred bytes.
pub(super) const MAX_MESSAGE: usize = 64 * 1024;
/// Maximum length of a directory's text.
const MAX_DIAGNOSTIC: usize = 512;

/// Tags of operations (RFC 4511, section 4.2 and following), of the class APPLICATION.
const BIND_REQUEST: u32 = 0;
const BIND_RESPONSE: u32 = 1;
const UNBIND_REQUEST: u32 = 2;
const EXTENDED_REQUEST: u32 = 23;
const EXTENDED_RESPONSE: u32 = 24;
/// `simple` in the choice of authentications, and `requestName` of an extended request, of the class CONTEXT SPECIFIC.
const SIMPLE: u32 = 0;
const REQUEST_NAME: u32 = 0;

/// The name of StartTLS (RFC 4511, section 4.14).
const START_TLS: &[u8] = b"1.3.6.1.4.1.1466.20037";

#[derive(Clone, Copy)]
pub(super) enum Request<'a> {
    /// A simple bind. The name is a distinguished name.
    Bind {
        name: &'a str,
        password: &'a [u8],
    },
    StartTls,
    Unbind,
}

/// A response to a bind or an extended request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response {
    /// The number of the request.
    pub(super) id: u32,
    pub(super) kind: ResponseKind,
    pub(super) code: u32,
    pub(super) diagnostic: Box<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseKind {
    Bind,
    Extended,
}

/// What is wrong with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("it is not a message of LDAP")]
    NoMessage,
    #[error("an element is cut off, or is not what it should be")]
    Element,
    #[error("it is no response to a bind or an extended request")]
    NoResponse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its answer has more than {MAX_MESSAGE} bytes")]
pub struct MessageTooLong;

/// What the first bytes of a message tell about its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// Length of the whole message.
    Whole(usize),
    /// More bytes are needed.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FramingError {
    Malformed,
    TooLong,
}

impl Request<'_> {
    /// The kind of the response. An unbind has none.
    pub(super) fn answer(self) -> Option<ResponseKind> {
        match self {
            Self::Bind { .. } => Some(ResponseKind::Bind),
            Self::StartTls => Some(ResponseKind::Extended),
            Self::Unbind => None,
        }
    }

    /// Encodes the request as a message with this number.
    pub(super) fn encode(self, id: u32) -> SerializeResult<Vec<u8>> {
        let mut message = id.to_der_vec()?;
        message.extend(self.operation()?);
        element(Class::Universal, true, Tag::Sequence, &message)
    }

    fn operation(self) -> SerializeResult<Vec<u8>> {
        let application = |constructed, tag, content: &[u8]| {
            element(Class::Application, constructed, Tag(tag), content)
        };
        match self {
            Self::Bind { name, password } => {
                let version: u32 = 3;
                let mut bind = version.to_der_vec()?;
                bind.extend(OctetString::new(name.as_bytes()).to_der_vec()?);
                let simple = element(Class::ContextSpecific, false, Tag(SIMPLE), password)?;
                bind.extend(simple);
                application(true, BIND_REQUEST, &bind)
            }
            Self::StartTls => {
                let name = element(Class::ContextSpecific, false, Tag(REQUEST_NAME), START_TLS)?;
                application(true, EXTENDED_REQUEST, &name)
            }
            Self::Unbind => application(false, UNBIND_REQUEST, &[]),
        }
    }
}

fn element(class: Class, constructed: bool, tag: Tag, content: &[u8]) -> SerializeResult<Vec<u8>> {
    let header = Header::new(class, constructed, tag, Length::Definite(content.len()));
    let mut bytes = Vec::with_capacity(content.len() + 8);
    header.write_der_header(&mut bytes)?;
    bytes.extend_from_slice(content);
    Ok(bytes)
}

/// Finds the length of the message that these bytes begin with.
pub(super) fn framing(bytes: &[u8]) -> Result<Framing, FramingError> {
    const SEQUENCE: u8 = 0x30;
    if bytes.first().is_some_and(|&first| first != SEQUENCE) {
        return Err(FramingError::Malformed);
    }
    match Header::from_ber(bytes) {
        Ok((rest, header)) => {
            let content = header.length().definite();
            let content = content.map_err(|_| FramingError::Malformed)?;
            let whole = content.saturating_add(bytes.len() - rest.len());
            if whole > MAX_MESSAGE {
                return Err(FramingError::TooLong);
            }
            Ok(Framing::Whole(whole))
        }
        Err(error) if error.is_incomplete() => Ok(Framing::Unknown),
        Err(_) => Err(FramingError::Malformed),
    }
}

impl Response {
    /// Parses a whole message. What may follow the parts that every response has is ignored: referrals, controls,
    /// credentials of SASL.
    pub(super) fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let (header, content, _) = take(message).map_err(|_| Malformed::NoMessage)?;
        if (header.class(), header.tag()) != (Class::Universal, Tag::Sequence) {
            return Err(Malformed::NoMessage);
        }
        let (id, rest) = number(content, Tag::Integer)?;
        let (operation, parts, _) = take(rest)?;
        let kind = match (operation.class(), operation.tag()) {
            (Class::Application, Tag(BIND_RESPONSE)) => ResponseKind::Bind,
            (Class::Application, Tag(EXTENDED_RESPONSE)) => ResponseKind::Extended,
            _ => return Err(Malformed::NoResponse),
        };
        let (code, parts) = number(parts, Tag::Enumerated)?;
        let (_matched, parts) = universal(parts, Tag::OctetString)?;
        let (diagnostic, _) = universal(parts, Tag::OctetString)?;
        let diagnostic = &diagnostic[..diagnostic.len().min(MAX_DIAGNOSTIC)];
        Ok(Self {
            id,
            kind,
            code,
            diagnostic: String::from_utf8_lossy(diagnostic).into(),
        })
    }
}

/// Splits off the first element: its header, its content, and what follows it.
fn take(bytes: &[u8]) -> Result<(Header<'_>, &[u8], &[u8]), Malformed> {
    let (rest, header) = Header::from_ber(bytes).map_err(|_| Malformed::Element)?;
    let length = header.length().definite().map_err(|_| Malformed::Element)?;
    let (content, rest) = rest.split_at_checked(length).ok_or(Malformed::Element)?;
    Ok((header, content, rest))
}

/// Splits off an element with a universal tag. Returns its content and what follows it.
fn universal(bytes: &[u8], tag: Tag) -> Result<(&[u8], &[u8]), Malformed> {
    let (header, content, rest) = take(bytes)?;
    if (header.class(), header.tag()) != (Class::Universal, tag) || header.is_constructed() {
        return Err(Malformed::Element);
    }
    Ok((content, rest))
}

/// Splits off a number that is not negative and has at most 31 bits, as all numbers of LDAP (RFC 4511, section 4.1.1).
fn number(bytes: &[u8], tag: Tag) -> Result<(u32, &[u8]), Malformed> {
    let (content, rest) = universal(bytes, tag)?;
    let is_negative = content.first().is_none_or(|first| first & 0x80 != 0);
    if is_negative || content.len() > 4 {
        return Err(Malformed::Element);
    }
    let number = content
        .iter()
        .fold(0, |number, &byte| number << 8 | u32::from(byte));
    Ok((number, rest))
}
