//! Splits bytes into the lines of a head, in one pass. It accepts only what RFC 9112 allows senders: lines end in CRLF,
//! no blank precedes a colon, no line is folded, and no control characters occur.

use super::Version;
use super::field::{Field, KnownHeader};

/// Why a head was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadLine {
    Malformed,
    /// A line is too long, or there are too many lines.
    TooLong,
    Version,
}

/// Result of a scan. It is `Ok(None)` if more bytes are needed.
type Scanned<T> = Result<Option<T>, BadLine>;

/// Positions of the parts of a request line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestLine {
    pub(super) start: usize,
    /// End of the method, which begins at `start`.
    pub(super) method_end: usize,
    /// End of the target, which begins after the method and a space.
    pub(super) target_end: usize,
    pub(super) version: Version,
    pub(super) end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StatusLine {
    pub(super) version: Version,
    pub(super) status: u16,
    pub(super) reason_start: usize,
    pub(super) reason_end: usize,
    pub(super) end: usize,
}

const CRLF: &[u8; 2] = b"\r\n";

/// Scans `method SP target SP version CRLF`. One empty line may precede it, because old clients send one after a body
/// (RFC 9112 section 2.2). The target may contain bytes that are not ASCII.
#[inline]
pub(super) fn request_line(data: &[u8]) -> Scanned<RequestLine> {
    let start = if data.starts_with(CRLF) {
        CRLF.len()
    } else {
        0
    };
    if matches!(data[start..], [] | [b'\r']) {
        return Ok(None);
    }
    let method_end = start + method_length(&data[start..]);
    if !ends_in_space(data, start, method_end)? {
        return Ok(None);
    }
    let target_start = method_end + 1;
    let target_end = end_of_visible(data, target_start);
    if !ends_in_space(data, target_start, target_end)? {
        return Ok(None);
    }
    let Some((version, length)) = version_and_end(&data[target_end + 1..])? else {
        return Ok(None);
    };
    Ok(Some(RequestLine {
        start,
        method_end,
        target_end,
        version,
        end: target_end + 1 + length,
    }))
}

/// Scans `version SP code [SP reason] CRLF`.
#[inline]
pub(super) fn status_line(data: &[u8]) -> Scanned<StatusLine> {
    let Some((line, rest)) = data.split_first_chunk::<12>() else {
        return if b"HTTP/1.".starts_with(&data[..data.len().min(7)]) {
            Ok(None)
        } else {
            Err(BadLine::Malformed)
        };
    };
    let [name @ .., minor, space, hundreds, tens, ones] = line;
    if name != b"HTTP/1." || *space != b' ' {
        return Err(BadLine::Malformed);
    }
    let version = match minor {
        b'0' => Version::Http10,
        // A later minor version is processed as the latest known one (RFC 9110 section 6.2).
        b'1'..=b'9' => Version::Http11,
        _ => return Err(BadLine::Malformed),
    };
    let code = [hundreds, tens, ones];
    if !code.iter().all(|digit| digit.is_ascii_digit()) || *hundreds == b'0' {
        return Err(BadLine::Malformed);
    }
    let digits = code.map(|digit| u16::from(digit - b'0'));
    let status = digits[0] * 100 + digits[1] * 10 + digits[2];
    let reason_start = match rest.first() {
        None => return Ok(None),
        Some(b' ') => 13,
        Some(b'\r') => 12,
        Some(_) => return Err(BadLine::Malformed),
    };
    let reason_end = end_of_text(data, reason_start);
    let line = StatusLine {
        version,
        status,
        reason_start,
        reason_end,
        end: reason_end + CRLF.len(),
    };
    Ok(line_ends(data, reason_end)?.then_some(line))
}

/// Appends the header lines that begin at `at` to `fields`, up to the empty line. Returns the end of the empty line. No
/// header line may be longer than `longest`, and `fields` may get at most `most` entries.
#[inline]
pub(super) fn fields(
    data: &[u8],
    mut at: usize,
    longest: usize,
    most: usize,
    fields: &mut Vec<Field>,
) -> Scanned<usize> {
    loop {
        if data.get(at) == Some(&b'\r') {
            return Ok(line_ends(data, at)?.then_some(at + CRLF.len()));
        }
        let colon = first_colon(data, at);
        let name = &data[at..colon];
        let known = KnownHeader::classify(name);
        // The loop has no early exit, so that the compiler can check several bytes at once. An early exit would save
        // little, because names are nearly always valid.
        let is_token = || {
            let both = |ok, byte: &u8| ok & TOKEN[usize::from(*byte)];
            name.iter().fold(true, both)
        };
        if known == KnownHeader::Other && !is_token() {
            return Err(BadLine::Malformed);
        }
        if colon == data.len() {
            return Ok(None);
        }
        if name.is_empty() {
            return Err(BadLine::Malformed);
        }
        let mut value_start = colon + 1;
        while matches!(data.get(value_start), Some(b' ' | b'\t')) {
            value_start += 1;
        }
        let line_end = end_of_text(data, value_start);
        if !line_ends(data, line_end)? {
            return Ok(None);
        }
        let next = line_end + CRLF.len();
        let fits = next - at <= longest && fields.len() < most;
        let (true, Ok(name_len)) = (fits, u16::try_from(name.len())) else {
            return Err(BadLine::TooLong);
        };
        let mut value_end = line_end;
        while value_end > value_start && matches!(data[value_end - 1], b' ' | b'\t') {
            value_end -= 1;
        }
        fields.push(Field {
            name_start: at as u32,
            value_start: value_start as u32,
            value_len: (value_end - value_start) as u32,
            name_len,
            known,
            hop: false,
        });
        at = next;
    }
}

/// Whether the word from `start` to `end` is not empty and a space follows it. Returns `Ok(false)` if more bytes are
/// needed.
#[inline]
fn ends_in_space(data: &[u8], start: usize, end: usize) -> Result<bool, BadLine> {
    match data.get(end) {
        Some(b' ') if end > start => Ok(true),
        Some(_) => Err(BadLine::Malformed),
        None => Ok(false),
    }
}

/// Whether the line ends at `end` with CRLF. Returns `Ok(false)` if more bytes are needed.
#[inline]
fn line_ends(data: &[u8], end: usize) -> Result<bool, BadLine> {
    match &data[end..] {
        [b'\r', b'\n', ..] => Ok(true),
        [] | [b'\r'] => Ok(false),
        _ => Err(BadLine::Malformed),
    }
}

/// Reads the version at the end of a request line. Returns it with its length, including the line end.
#[inline]
fn version_and_end(rest: &[u8]) -> Scanned<(Version, usize)> {
    const USUAL: usize = b"HTTP/1.1\r\n".len();
    match rest.first_chunk() {
        Some(b"HTTP/1.1\r\n") => Ok(Some((Version::Http11, USUAL))),
        Some(b"HTTP/1.0\r\n") => Ok(Some((Version::Http10, USUAL))),
        _ => unusual_end(rest),
    }
}

/// Reads versions other than HTTP/1.0 and HTTP/1.1, and incomplete ones. A later minor version of HTTP/1 is processed
/// as HTTP/1.1 (RFC 9110 section 6.2). As in nginx, a minor version has one digit, or two without a leading zero.
#[cold]
fn unusual_end(rest: &[u8]) -> Scanned<(Version, usize)> {
    const NAME: &[u8] = b"HTTP/1.";
    let Some(minor) = rest.strip_prefix(NAME) else {
        return if NAME.starts_with(rest) {
            Ok(None)
        } else {
            Err(BadLine::Version)
        };
    };
    let is_digit = |byte: &&u8| byte.is_ascii_digit();
    let digits = minor.iter().take(3).take_while(is_digit).count();
    let version = match (&minor[..digits], minor) {
        (_, []) => return Ok(None),
        ([b'0'], _) => Version::Http10,
        ([_] | [b'1'..=b'9', _], _) => Version::Http11,
        _ => return Err(BadLine::Version),
    };
    let length = NAME.len() + digits;
    let ends = line_ends(rest, length)?;
    Ok(ends.then_some((version, length + CRLF.len())))
}

/// Returns the length of the method. Like nginx, the gateway accepts only upper-case letters, `-` and `_` in it. All
/// registered methods that clients send fit, and not every program treats `get` like `GET`.
#[inline]
fn method_length(data: &[u8]) -> usize {
    let other = data
        .iter()
        .position(|byte| !matches!(byte, b'A'..=b'Z' | b'-' | b'_'));
    other.unwrap_or(data.len())
}

/// Returns the position of the first byte that a value must not contain: a control character except tab.
#[inline]
fn end_of_text(data: &[u8], mut at: usize) -> usize {
    loop {
        at = first_below(data, at, b' ');
        if data.get(at) != Some(&b'\t') {
            return at;
        }
        at += 1;
    }
}

/// Returns the position of the first byte that a target must not contain: a control character or a space.
#[inline]
fn end_of_visible(data: &[u8], at: usize) -> usize {
    first_below(data, at, b'!')
}

/// Eight bytes of value 1.
const ONES: u64 = u64::from_ne_bytes([1; 8]);

/// The highest bit of each of eight bytes.
const TOPS: u64 = ONES << 7;

/// Returns the position of the first byte that satisfies `is_it`, or the end of `data`. It searches eight bytes at a
/// time: `marks` takes such a word and sets the highest bit of each candidate byte. It may mark too many bytes, which
/// `is_it` then rejects, but must not miss one.
#[inline]
fn first(
    data: &[u8],
    mut at: usize,
    marks: impl Fn(u64) -> u64,
    is_it: impl Fn(u8) -> bool,
) -> usize {
    while let Some(eight) = data.get(at..).and_then(<[u8]>::first_chunk) {
        let found = marks(u64::from_le_bytes(*eight)) & TOPS;
        if found == 0 {
            at += 8;
            continue;
        }
        let place = found.trailing_zeros() as usize / 8;
        if is_it(eight[place]) {
            return at + place;
        }
        at += place + 1;
    }
    let rest = data.get(at..).unwrap_or_default();
    let length = rest.iter().position(|&byte| is_it(byte));
    length.map_or(data.len(), |length| at + length)
}

/// Returns the position of the first byte that is less than `least` or is DEL. For bytes below 0x80, subtracting
/// `least` sets the highest bit of the smaller ones, and adding one sets it for DEL. A borrow or a carry from the byte
/// before can mark a wrong byte, but cannot hide a right one.
#[inline]
fn first_below(data: &[u8], at: usize, least: u8) -> usize {
    let less = ONES * u64::from(least);
    let marks = |word: u64| (word.wrapping_sub(less) | word.wrapping_add(ONES)) & !word;
    first(data, at, marks, |byte| byte < least || byte == 0x7f)
}

/// Whether the text is a token, such as the name of a header or of a transfer coding.
pub(super) fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|&byte| TOKEN[usize::from(byte)])
}

#[inline]
fn first_colon(data: &[u8], at: usize) -> usize {
    let marks = |word: u64| {
        let others = word ^ (ONES * u64::from(b':'));
        others.wrapping_sub(ONES) & !others
    };
    first(data, at, marks, |byte| byte == b':')
}

/// Bytes of a token (RFC 9110 section 5.6.2).
static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"!#$%&'*+-.^_`|~";
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::super::MAX_HEADERS;
    use super::*;
    use proptest::prelude::*;

    /// Method, target, version, header lines and length of a whole head.
    type Parts<'d> = (
        &'d [u8],
        &'d [u8],
        Version,
        Vec<(&'d [u8], &'d [u8])>,
        usize,
    );

    fn scanned(data: &[u8]) -> Scanned<Parts<'_>> {
        let Some(line) = request_line(data)? else {
            return Ok(None);
        };
        let mut found = Vec::new();
        let end = fields(data, line.end, usize::MAX, MAX_HEADERS, &mut found)?;
        let text = |start: u32, len: usize| &data[start as usize..start as usize + len];
        let lines = found.iter().map(|field| {
            let name = text(field.name_start, field.name_len.into());
            (name, text(field.value_start, field.value_len as usize))
        });
        let method = &data[line.start..line.method_end];
        let target = &data[line.method_end + 1..line.target_end];
        Ok(end.map(|end| (method, target, line.version, lines.collect(), end)))
    }

    /// Parses with the crate `httparse`, which also accepts bare line feeds.
    fn by_httparse(data: &[u8]) -> Scanned<Parts<'_>> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(data) {
            Ok(httparse::Status::Partial) => Ok(None),
            Ok(httparse::Status::Complete(end)) => Ok(Some((
                request.method.unwrap_or_default().as_bytes(),
                request.path.unwrap_or_default().as_bytes(),
                match request.version {
                    Some(0) => Version::Http10,
                    _ => Version::Http11,
                },
                request
                    .headers
                    .iter()
                    .map(|header| (header.name.as_bytes(), header.value))
                    .collect(),
                end,
            ))),
            Err(httparse::Error::Version) => Err(BadLine::Version),
            Err(_) => Err(BadLine::Malformed),
        }
    }

    #[test]
    fn the_first_byte_is_found_whatever_stands_before_it() {
        let is_bad = |byte: u8| byte < b' ' || byte == 0x7f;
        for (first, second) in
            (0..=255).flat_map(|first| (0..=255).map(move |second| (first, second)))
        {
            let data = [
                b'a', first, second, 0xff, b'~', 0x7f, b'a', b'a', b'a', 0xff, 0xfe, 0,
            ];
            let expected = data.iter().position(|&byte| is_bad(byte));
            assert_eq!(
                first_below(&data, 0, b' '),
                expected.unwrap_or(data.len()),
                "{data:?}"
            );
        }
    }

    /// Whether this parser refuses the method, although `httparse` may accept it, or accepts a target that `httparse`
    /// refuses because it is not UTF-8.
    fn differs_here(data: &[u8]) -> bool {
        let line = data
            .split(|&byte| byte == b'\r')
            .find(|line| !line.is_empty());
        let line = line.unwrap_or_default().trim_ascii_start();
        let other = |byte: &u8| TOKEN[usize::from(*byte)] && method_length(&[*byte]) == 0;
        let mut words = line.split(|&byte| byte == b' ');
        words.next().unwrap_or_default().iter().any(other) || !line.is_ascii()
    }

    fn has_bare_line_feed(data: &[u8]) -> bool {
        let mut before = 0;
        data.iter().any(|&byte| {
            let bare = byte == b'\n' && before != b'\r';
            before = byte;
            bare
        })
    }

    /// Whether `httparse` refuses the version, which this parser accepts.
    fn has_later_version(data: &[u8]) -> bool {
        let name = b"HTTP/1.";
        let minor = memchr::memmem::find(data, name).map(|at| &data[at + name.len()..]);
        matches!(minor, Some([b'2'..=b'9', ..] | [b'1', b'0'..=b'9', ..]))
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 2000,
            max_global_rejects: 20_000,
            ..ProptestConfig::default()
        })]

        #[test]
        fn heads_are_read_as_another_implementation_reads_them(
            mut data in "(\r\n)?(GET|A_-B|) (/[ -~]{0,12}|) HTTP/1\\.[012]\r\n([A-Za-z!-]{0,12}:[ \t]{0,2}[ -~é\t]{0,20}\r\n){0,4}\r\n"
                .prop_map(String::into_bytes),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            cut in any::<prop::sample::Index>(),
            whole in any::<bool>(),
        ) {
            for (at, byte) in changes {
                let at = at.index(data.len());
                data[at] = byte;
            }
            if !whole {
                data.truncate(cut.index(data.len()));
            }
            prop_assume!(!has_bare_line_feed(&data) && !differs_here(&data));
            prop_assume!(!has_later_version(&data));
            prop_assert_eq!(scanned(&data), by_httparse(&data));
        }
    }

    #[test]
    fn every_byte_is_judged_alike_wherever_it_stands() {
        for byte in 0..=255 {
            for at in 0..20 {
                let mut text = [b'a'; 20];
                text[at] = byte;
                let ends = |bad: bool| if bad { at } else { text.len() };
                let control = byte < b' ' || byte == 0x7f;
                assert_eq!(end_of_text(&text, 0), ends(control && byte != b'\t'));
                assert_eq!(end_of_visible(&text, 0), ends(control || byte == b' '));
            }
        }
    }
}
