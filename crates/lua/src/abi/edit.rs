//! Changes to the request, to the response and to the node's answer.

use super::{Cx, FOUND, NO_REQUEST, NONE};
use bytes::Bytes;
use compact_str::CompactString;
use plugin::{HeaderEdits, HeaderValue, Request, Scheme};
use std::time::Duration;

super::numbered! {
    pub(super) enum Text {
        Method = "method",
        Path = "path",
        Query = "query",
        Body = "body",
        Scheme = "scheme",
        TargetHost = "target_host",
        Upstream = "upstream",
        Chunk = "chunk",
        WithoutArg = "without_arg",
    }
}

super::numbered! {
    pub(super) enum Number {
        Status = "status",
        TargetPort = "target_port",
        Retries = "retries",
        ConnectTimeout = "connect_timeout",
        WriteTimeout = "write_timeout",
        ReadTimeout = "read_timeout",
        TlsVerify = "tls_verify",
        TlsVerifyDepth = "tls_verify_depth",
        BufferResponse = "buffer_response",
        EndChunks = "end_chunks",
    }
}

super::numbered! {
    /// The message whose headers are changed.
    pub(super) enum Message {
        Request = "request",
        Response = "response",
    }
}

super::numbered! {
    pub(super) enum Change {
        Set = "set",
        Add = "add",
        Remove = "remove",
    }
}

/// Sets a text of the request for the upstream, or the piece of the response's body.
pub(super) fn set_text(cx: &mut Cx, what: i32, text: &[u8]) -> i32 {
    let Some(what) = Text::numbered(what) else {
        return NONE;
    };
    cx.keep(text.len());
    if what == Text::Chunk {
        return match cx.target.chunk_mut() {
            Some(chunk) => {
                chunk.data = Bytes::copy_from_slice(text);
                FOUND
            }
            None => NO_REQUEST,
        };
    }
    let configured = cx.target.configured().is_some_and(|configured| {
        what == Text::Upstream
            && std::str::from_utf8(text).is_ok_and(|name| configured.has_upstream(name))
    });
    if what == Text::WithoutArg {
        let changed = cx
            .target
            .change_request(|request| remove_query_arg(request, text));
        return changed.map_or(NO_REQUEST, |()| FOUND);
    }
    let Some(edits) = cx.target.edits_mut() else {
        return NO_REQUEST;
    };
    let lossy = || String::from_utf8_lossy(text).into_owned();
    match what {
        Text::Method => edits.method = Some(CompactString::from_utf8_lossy(text)),
        Text::Path => edits.path = Some(lossy()),
        Text::Query => edits.query = Some(text.to_vec()),
        Text::Body => edits.body = Some(Bytes::copy_from_slice(text)),
        Text::Scheme => {
            edits.target_mut().scheme = Some(match text {
                b"https" => Scheme::Https,
                _ => Scheme::Http,
            });
        }
        // The port follows (`Number::TargetPort`).
        Text::TargetHost => edits
            .target_mut()
            .set_address(CompactString::from_utf8_lossy(text), 0),
        Text::Upstream if configured => {
            edits
                .target_mut()
                .set_upstream(CompactString::from_utf8_lossy(text));
        }
        Text::Upstream | Text::Chunk | Text::WithoutArg => return NONE,
    }
    FOUND
}

fn remove_query_arg(request: &mut Request<'_>, name: &[u8]) {
    if !request.query().is_empty()
        && let Ok(name) = std::str::from_utf8(name)
    {
        request.remove_query_arg(name);
        let query = request.upstream.query.take();
        request.upstream.query = query.map(|query| rewritten(&query));
    }
}

pub(super) fn set_number(cx: &mut Cx, what: i32, number: f64) -> i32 {
    let Some(what) = Number::numbered(what) else {
        return NONE;
    };
    match what {
        Number::Status => {
            return match cx.target.answer_mut() {
                Some(answer) => {
                    answer.status = number as u16;
                    FOUND
                }
                None => NO_REQUEST,
            };
        }
        Number::EndChunks => {
            return match cx.target.chunk_mut() {
                Some(chunk) => {
                    chunk.last = number != 0.0;
                    FOUND
                }
                None => NO_REQUEST,
            };
        }
        _ => {}
    }
    let Some(edits) = cx.target.edits_mut() else {
        return NO_REQUEST;
    };
    let time = || Duration::try_from_secs_f64(number.clamp(0.0, 1e9) / 1000.0).ok();
    match what {
        Number::TargetPort => {
            if let Some((_, port)) = &mut edits.target_mut().address {
                *port = number as u16;
            }
        }
        Number::Retries => edits.target_mut().retries = Some(number as u16),
        Number::ConnectTimeout => edits.target_mut().connect_timeout = time(),
        Number::WriteTimeout => edits.target_mut().write_timeout = time(),
        Number::ReadTimeout => edits.target_mut().read_timeout = time(),
        Number::TlsVerify => edits.target_mut().tls_verify = Some(number != 0.0),
        Number::TlsVerifyDepth => edits.target_mut().tls_verify_depth = Some(number as u8),
        Number::BufferResponse => edits.buffer_response = number != 0.0,
        Number::Status | Number::EndChunks => return NONE,
    }
    FOUND
}

/// Changes a header of the request for the upstream or of the response to the client. Before there is a response, the
/// change is kept for it.
pub(super) fn set_header(cx: &mut Cx, of: i32, change: i32, name: &[u8], value: &[u8]) -> i32 {
    let (Some(of), Some(change)) = (Message::numbered(of), Change::numbered(change)) else {
        return NONE;
    };
    cx.keep(name.len() + value.len());
    let edits = match of {
        Message::Request => match cx.target.edits_mut() {
            Some(edits) => &mut edits.headers,
            None => return NO_REQUEST,
        },
        Message::Response => {
            let has_answer = cx.target.answer().is_some();
            let edits = match has_answer {
                true => cx.target.answer_mut().map(|answer| &mut answer.headers),
                false => cx.target.state_mut().map(|state| &mut state.headers),
            };
            match edits {
                Some(edits) => edits,
                None => return NO_REQUEST,
            }
        }
    };
    // OpenResty and Kong write dashes for underscores in names of a response's headers.
    let dashed: Vec<u8>;
    let name = match of {
        Message::Response if name.contains(&b'_') => {
            dashed = name
                .iter()
                .map(|byte| if *byte == b'_' { b'-' } else { *byte })
                .collect();
            &dashed
        }
        _ => name,
    };
    // A response has one content type, so nginx replaces it.
    let is_one = of == Message::Response && name.eq_ignore_ascii_case(b"content-type");
    let change = if is_one && change == Change::Add {
        Change::Set
    } else {
        change
    };
    match of {
        // nginx escapes what it sends to a service.
        Message::Request if !name.iter().copied().all(is_token) => {
            change_header(edits, change, escaped(name).as_bytes(), value);
        }
        _ => change_header(edits, change, name, value),
    }
    FOUND
}

/// Changes a header. A name that no header may have is ignored, as nginx ignores it in a response.
pub(super) fn change_header(edits: &mut HeaderEdits, change: Change, name: &[u8], value: &[u8]) {
    if name.is_empty() || !name.iter().copied().all(is_token) {
        return;
    }
    let name = CompactString::from_utf8_lossy(name);
    match change {
        Change::Set => edits.set(name, HeaderValue::from_untrusted(value)),
        Change::Add => edits.add(name, HeaderValue::from_untrusted(value)),
        Change::Remove => edits.remove(name),
    }
}

/// Whether a byte may be in the name of a header.
fn is_token(byte: u8) -> bool {
    const TOKEN: [bool; 256] = {
        let mut table = [false; 256];
        let mut byte = 0;
        while byte < 256 {
            let is_symbol = matches!(
                byte as u8,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
            table[byte] = is_symbol || (byte as u8).is_ascii_alphanumeric();
            byte += 1;
        }
        table
    };
    TOKEN[usize::from(byte)]
}

/// Escapes the bytes that the name of a header may not have.
fn escaped(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len() + 8);
    for byte in name {
        match is_token(*byte) {
            true => out.push(char::from(*byte)),
            false => out.extend(['%', hex(byte >> 4), hex(byte & 15)]),
        }
    }
    out
}

fn hex(digit: u8) -> char {
    char::from(b"0123456789ABCDEF"[usize::from(digit & 15)])
}

/// Writes the arguments as Kong's `clear_query_arg` does: a blank is `+`, and each argument has a value. They are in
/// encoded form.
fn rewritten(query: &[u8]) -> Vec<u8> {
    let mut out = String::with_capacity(query.len() + 1);
    for arg in String::from_utf8_lossy(query).split('&') {
        if arg.is_empty() {
            continue;
        }
        if !out.is_empty() {
            out.push('&');
        }
        out.push_str(&arg.replace("%20", "+"));
        if !arg.contains('=') {
            out.push('=');
        }
    }
    out.into_bytes()
}
