//! A header line as offsets into the buffer of its head, and the header names that the gateway handles itself.

/// A header name that the gateway handles itself. All other names are [`KnownHeader::Other`], and their headers are
/// forwarded unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownHeader {
    Other,
    Authorization,
    Connection,
    ContentLength,
    /// `Content_Length` or `Transfer_Encoding`: CGI-like programs cannot distinguish them from the real headers.
    LengthLookalike,
    ContentType,
    Date,
    Expect,
    Host,
    KeepAlive,
    Proxy,
    ProxyConnection,
    Server,
    Te,
    Trailer,
    TransferEncoding,
    Upgrade,
    Via,
    /// `X-Accel-Buffering`, with which an upstream turns the buffering of its response on or off.
    XAccelBuffering,
    XForwardedFor,
    XForwardedHost,
    XForwardedPath,
    XForwardedPort,
    XForwardedPrefix,
    XForwardedProto,
    /// `X-Kong-Request-Debug`, or one of the two headers that belong to it.
    XKongRequestDebug,
    XKongRequestId,
    XRealIp,
}

impl KnownHeader {
    /// Classifies a name. It compares lengths first, so that most names cost only one comparison.
    #[inline]
    pub fn classify(name: &[u8]) -> Self {
        match name.len() {
            2 if is(name, b"TE") => Self::Te,
            3 if is(name, b"Via") => Self::Via,
            4 if is(name, b"Host") => Self::Host,
            4 if is(name, b"Date") => Self::Date,
            5 if is(name, b"Proxy") => Self::Proxy,
            6 if is(name, b"Server") => Self::Server,
            6 if is(name, b"Expect") => Self::Expect,
            7 if is(name, b"Upgrade") => Self::Upgrade,
            7 if is(name, b"Trailer") => Self::Trailer,
            9 if is(name, b"X-Real-IP") => Self::XRealIp,
            10 if is(name, b"Connection") => Self::Connection,
            10 if is(name, b"Keep-Alive") => Self::KeepAlive,
            12 if is(name, b"Content-Type") => Self::ContentType,
            13 if is(name, b"Authorization") => Self::Authorization,
            14 if is(name, b"Content-Length") => Self::ContentLength,
            14 if is(name, b"Content_Length") => Self::LengthLookalike,
            15 if is(name, b"X-Forwarded-For") => Self::XForwardedFor,
            16 if is(name, b"X-Forwarded-Host") => Self::XForwardedHost,
            16 if is(name, b"X-Forwarded-Port") => Self::XForwardedPort,
            16 if is(name, b"X-Forwarded-Path") => Self::XForwardedPath,
            16 if is(name, b"Proxy-Connection") => Self::ProxyConnection,
            17 if is(name, b"Transfer-Encoding") => Self::TransferEncoding,
            17 if is(name, b"Transfer_Encoding") => Self::LengthLookalike,
            17 if is(name, b"X-Forwarded-Proto") => Self::XForwardedProto,
            17 if is(name, b"X-Accel-Buffering") => Self::XAccelBuffering,
            17 if is(name, b"X-Kong-Request-Id") => Self::XKongRequestId,
            18 if is(name, b"X-Forwarded-Prefix") => Self::XForwardedPrefix,
            20 if is(name, b"X-Kong-Request-Debug") => Self::XKongRequestDebug,
            24 if is(name, b"X-Kong-Request-Debug-Log") => Self::XKongRequestDebug,
            26 if is(name, b"X-Kong-Request-Debug-Token") => Self::XKongRequestDebug,
            _ => Self::Other,
        }
    }
}

/// Whether the name is `usual`, compared without case. The usual spelling is compared as machine words. Other spellings
/// are compared byte by byte, and only if the first letter matches.
#[inline(always)]
fn is<const N: usize>(name: &[u8], usual: &[u8; N]) -> bool {
    let same = <&[u8; N]>::try_from(name).is_ok_and(|name| name == usual);
    same || (name[0] | 0x20 == usual[0] | 0x20 && name.eq_ignore_ascii_case(usual))
}

/// Position of a header line in the buffer of its head.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub(super) name_start: u32,
    pub(super) value_start: u32,
    pub(super) value_len: u32,
    pub(super) name_len: u16,
    pub(super) known: KnownHeader,
    /// Whether the header is for this hop only and is not forwarded. The `Connection` header names it, or it is a second
    /// `Content-Type` that differs from the first one.
    pub(super) hop: bool,
}

impl Field {
    #[inline]
    pub(super) fn value_of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.value_start as usize..][..self.value_len as usize]
    }
}

/// Whether two header names are equal, compared without case. Compares eight letters at a time: names are short, and the
/// standard library compares what is shorter than 16 bytes one by one.
#[inline]
pub fn is_same_name(one: &[u8], other: &[u8]) -> bool {
    let (Some(last), Some(other_last)) = (one.last_chunk(), other.last_chunk()) else {
        return one.eq_ignore_ascii_case(other);
    };
    let words = one.as_chunks().0.iter().zip(other.as_chunks().0);
    one.len() == other.len()
        && is_same_word(last, other_last)
        && words
            .into_iter()
            .all(|(one, other)| is_same_word(one, other))
}

/// Whether eight letters are equal, compared without case.
#[inline]
fn is_same_word(one: &[u8; 8], other: &[u8; 8]) -> bool {
    const EACH: u64 = u64::from_ne_bytes([1; 8]);
    const TOP: u64 = EACH * 0x80;
    let (one, other) = (u64::from_ne_bytes(*one), u64::from_ne_bytes(*other));
    let differs = one ^ other;
    // The case of a letter is its bit 0x20. Two other characters may differ in this bit alone: `[` and `{`.
    if differs & !(EACH * 0x20) != 0 {
        return false;
    }
    let small = (one | (EACH * 0x20)) & !TOP;
    let from_a = small + EACH * u64::from(0x80 - b'a');
    let after_z = small + EACH * u64::from(0x80 - b'z' - 1);
    let letters = from_a & !after_z & !one & TOP;
    (differs << 2) & !letters == 0
}

/// Whether a comma-separated header value contains a token, compared without case.
pub fn list_contains(value: &[u8], token: &[u8]) -> bool {
    value
        .split(|&byte| byte == b',')
        .any(|item| item.trim_ascii().eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use super::is_same_name;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn names_are_compared_as_by_the_standard_library(
            one in prop::collection::vec(any::<u8>(), 0..40),
            flips in prop::collection::vec((0_usize..40, prop::sample::select(vec![0x20_u8, 0x20, 0x20, 1, 0x80])), 0..4),
        ) {
            let mut other = one.clone();
            for (at, bit) in flips {
                if let Some(byte) = other.get_mut(at) {
                    *byte ^= bit;
                }
            }
            prop_assert_eq!(is_same_name(&one, &other), one.eq_ignore_ascii_case(&other));
        }
    }

    #[test]
    fn each_pair_of_bytes_is_compared_as_by_the_standard_library() {
        for one in 0..=u8::MAX {
            for other in 0..=u8::MAX {
                let names = (
                    [b'a', one, b'-', b'x', b'y', b'z', b'A', b'0', one],
                    [b'A', other, b'-', b'x', b'Y', b'z', b'A', b'0', other],
                );
                let expected = one.eq_ignore_ascii_case(&other);
                assert_eq!(
                    is_same_name(&names.0, &names.1),
                    expected,
                    "{one} and {other}"
                );
            }
        }
    }
}
