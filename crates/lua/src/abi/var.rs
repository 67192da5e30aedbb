//! The variables of nginx (`ngx.var`) that the gateway knows.

use super::{Cx, NO_REQUEST, NONE};
use crate::target::Raw;
use data_encoding::BASE64;
use model::uri::Slashes;
use net::http1::Version;
use plugin::{EndedStreamCx, LogEntry, Request, StreamProtocol};
use std::io::Write;
use std::net::IpAddr;

/// The version of nginx in Kong 3.9.
const NGINX_VERSION: &str = "1.25.3";

/// Returns a variable. The name is in lower case.
pub(super) fn get(cx: &mut Cx, name: &[u8]) -> i32 {
    let target = cx.target;
    let Ok(name) = std::str::from_utf8(name) else {
        return NONE;
    };
    let Some(request) = target.request() else {
        return match target.stream() {
            Some(ended) => of_stream(cx, ended, name),
            None => NO_REQUEST,
        };
    };
    if let Some(code) = prefixed(cx, &target, request, name) {
        return code;
    }
    let on = |yes: bool, text: &'static str| if yes { text } else { "" };
    match name {
        "request_method" => cx.text(request.method_bytes()),
        "request_uri" => cx.text(request.head.target_bytes()),
        "uri" | "document_uri" => {
            let internal = target
                .state()
                .and_then(|state| state.internal_path.as_ref());
            if let Some(path) = internal {
                return cx.text(path);
            }
            let path = model::uri::normalize(request.head.path_bytes(), Slashes::Merge);
            let decoded: Vec<u8> = percent_encoding::percent_decode(&path).collect();
            cx.made(|out| out.extend_from_slice(&decoded))
        }
        "args" | "query_string" => cx.text_or_none(args(request)),
        "is_args" => {
            cx.text(on(args(request).is_some_and(|args| !args.is_empty()), "?").as_bytes())
        }
        "host" => cx.made(|out| out.extend_from_slice(&host(request))),
        "scheme" => cx.text(request.scheme.name().as_bytes()),
        "https" => cx.text(on(request.scheme.name() == "https", "on").as_bytes()),
        "server_protocol" => cx.text(protocol(request).as_bytes()),
        "server_port" => shown(cx, request.port),
        "server_addr" => request.local.map_or(NONE, |address| shown(cx, address)),
        "connection_requests" => shown(cx, request.connection_requests),
        "server_name" => cx.text(b"kong"),
        "remote_addr" => shown(cx, request.client.ip),
        "remote_port" => shown(cx, request.client.port),
        "realip_remote_addr" => shown(cx, request.peer.ip()),
        "realip_remote_port" => shown(cx, request.peer.port()),
        "binary_remote_addr" => cx.made(|out| match request.client.ip {
            IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
        }),
        "remote_user" => match remote_user(request) {
            Some(user) => cx.made(|out| out.extend_from_slice(&user)),
            None => NONE,
        },
        "content_type" => cx.text_or_none(request.header("content-type")),
        "content_length" => cx.text_or_none(request.header("content-length")),
        "request" => cx.made(|out| {
            out.extend_from_slice(request.head.method_bytes());
            out.push(b' ');
            out.extend_from_slice(request.head.target_bytes());
            let _ = write!(out, " {}", protocol(request));
        }),
        "request_body" => cx.text_or_none(request.body_bytes().map(|body| &**body)),
        "request_length" => match target.entry() {
            Some(entry) => shown(cx, entry.request_size),
            None => shown(cx, head_size(request)),
        },
        "request_id" | "kong_request_id" => cx.text(request.request_id.as_bytes()),
        "http2" => cx.text(
            on(
                request.http2,
                if request.tls.is_some() { "h2" } else { "h2c" },
            )
            .as_bytes(),
        ),
        "nginx_version" => cx.text(NGINX_VERSION.as_bytes()),
        "pid" => shown(cx, std::process::id()),
        "hostname" => match target.node() {
            Some(node) => cx.text(node.identity.hostname.as_bytes()),
            None => NONE,
        },
        "status" => match (target.answer(), target.entry()) {
            (Some(answer), _) => shown(cx, answer.status),
            (None, Some(entry)) => shown(cx, entry.status),
            (None, None) => cx.text(b"000"),
        },
        "limit_rate" => cx.text(b"0"),
        "kong_proxy_mode" => cx.text(if request.is_grpc { b"grpc" } else { b"http" }),
        "upstream_uri" => upstream_uri(cx, &target, request),
        "upstream_scheme" => match &request.upstream.target {
            Some(edits) if edits.scheme.is_some() => {
                cx.text_or_none(edits.scheme.map(|scheme| scheme.name().as_bytes()))
            }
            _ => NONE,
        },
        "ssl_protocol" => cx.text_or_none(request.tls.map(|tls| tls.version.as_bytes())),
        "ssl_cipher" => cx.text_or_none(request.tls.map(|tls| tls.cipher.as_bytes())),
        "ssl_client_verify" => cx.text_or_none(request.tls.map(|tls| tls.client_verify.as_bytes())),
        "ssl_server_name" => cx.text_or_none(request.sni.map(str::as_bytes)),
        "request_completion" => cx.text(on(target.entry().is_some(), "OK").as_bytes()),
        _ => match target.entry() {
            Some(entry) => of_entry(cx, entry, name),
            None => of_upstream(cx, &target, name),
        },
    }
}

/// Returns a variable of a session that has ended. Source: nginx, ngx_stream_variables.c and ngx_stream_core_module.c.
fn of_stream(cx: &mut Cx, ended: &EndedStreamCx<'_>, name: &str) -> i32 {
    let (session, entry) = (ended.session, ended.entry);
    match name {
        "protocol" => cx.text(match session.protocol {
            StreamProtocol::Udp => b"UDP",
            StreamProtocol::Tcp | StreamProtocol::Tls | StreamProtocol::TlsPassthrough => b"TCP",
        }),
        "status" => shown(cx, entry.status),
        "bytes_received" => shown(cx, entry.received),
        "bytes_sent" => shown(cx, entry.sent),
        "session_time" => shown(
            cx,
            format_args!("{:.3}", entry.latencies.request.as_secs_f64()),
        ),
        "remote_addr" => shown(cx, session.client.ip),
        "remote_port" => shown(cx, session.client.port),
        "realip_remote_addr" => shown(cx, session.peer.ip()),
        "realip_remote_port" => shown(cx, session.peer.port()),
        "server_port" => shown(cx, session.port),
        "ssl_preread_server_name" | "ssl_server_name" => {
            cx.text_or_none(session.sni.map(str::as_bytes))
        }
        "ssl_protocol" => cx.text_or_none(session.tls.map(|tls| tls.version.as_bytes())),
        "ssl_cipher" => cx.text_or_none(session.tls.map(|tls| tls.cipher.as_bytes())),
        "ssl_client_verify" => cx.text_or_none(session.tls.map(|tls| tls.client_verify.as_bytes())),
        "hostname" => cx.text(ended.node.identity.hostname.as_bytes()),
        "pid" => shown(cx, std::process::id()),
        "nginx_version" => cx.text(NGINX_VERSION.as_bytes()),
        _ => NONE,
    }
}

/// Returns a variable whose name has a prefix and the name of an argument, a cookie or a header.
fn prefixed(cx: &mut Cx, target: &Raw, request: &Request<'_>, name: &str) -> Option<i32> {
    if let Some(name) = name.strip_prefix("arg_") {
        let query = args(request).unwrap_or_default();
        let mut pairs = query.split(|byte| *byte == b'&').filter_map(|pair| {
            let equals = memchr::memchr(b'=', pair)?;
            Some((&pair[..equals], &pair[equals + 1..]))
        });
        let found = pairs.find(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
        return Some(cx.text_or_none(found.map(|(_, value)| value)));
    }
    if let Some(name) = name.strip_prefix("cookie_") {
        return Some(cx.text_or_none(request.cookie(name)));
    }
    if let Some(name) = name.strip_prefix("http_") {
        let pairs = request.header_pairs();
        let found = joined(
            pairs.map(|(name, value)| (name.as_bytes(), value)),
            name,
            b"; ",
        );
        return Some(found_header(cx, found));
    }
    if let Some(name) = name.strip_prefix("sent_http_") {
        let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        super::list::each_response_header(target, &mut |name, value| {
            pairs.push((name.to_vec(), value.to_vec()));
        });
        let found = joined(
            pairs.iter().map(|(name, value)| (&**name, &**value)),
            name,
            b", ",
        );
        return Some(found_header(cx, found));
    }
    let name = name.strip_prefix("upstream_http_")?;
    let pairs = target
        .upstream()
        .into_iter()
        .flat_map(|head| head.headers());
    let found = joined(
        pairs.map(|(name, value)| (name.as_bytes(), value)),
        name,
        b", ",
    );
    Some(found_header(cx, found))
}

fn found_header(cx: &mut Cx, found: Option<Vec<u8>>) -> i32 {
    match found {
        Some(value) => cx.made(|out| out.extend_from_slice(&value)),
        None => NONE,
    }
}

/// Returns the values of all headers with a name in which `_` stands for `-`. Cookies are joined by their own separator.
fn joined<'h>(
    pairs: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    name: &str,
    cookies: &[u8],
) -> Option<Vec<u8>> {
    let separator: &[u8] = if name == "cookie" { cookies } else { b", " };
    let is_same = |other: &[u8]| {
        let dashed = |byte: &u8| {
            if *byte == b'-' {
                b'_'
            } else {
                byte.to_ascii_lowercase()
            }
        };
        other.iter().map(dashed).eq(name.bytes())
    };
    let mut values = pairs
        .filter(|(other, _)| is_same(other))
        .map(|(_, value)| value);
    let mut all = values.next()?.to_vec();
    for value in values {
        all.extend_from_slice(separator);
        all.extend_from_slice(value);
    }
    Some(all)
}

/// The query, after changes. Only a changed one can be empty.
fn args<'r>(request: &'r Request<'_>) -> Option<&'r [u8]> {
    match &request.upstream.query {
        Some(query) => Some(query),
        None => request.head.query_bytes().filter(|query| !query.is_empty()),
    }
}

/// The host of the request, also after a change of its header.
fn host(request: &Request<'_>) -> Vec<u8> {
    let changed = match request.upstream.headers.drops("host") {
        true => request.header("host"),
        false => None,
    };
    let Some(changed) = changed else {
        return request.host.as_bytes().to_vec();
    };
    // The brackets of an IPv6 address have colons within them.
    let port = memchr::memrchr(b':', changed).filter(|at| !changed[*at..].contains(&b']'));
    changed[..port.unwrap_or(changed.len())].to_ascii_lowercase()
}

fn protocol(request: &Request<'_>) -> &'static str {
    match request.head.version() {
        _ if request.http2 => "HTTP/2.0",
        Version::Http11 => "HTTP/1.1",
        Version::Http10 => "HTTP/1.0",
    }
}

fn remote_user(request: &Request<'_>) -> Option<Vec<u8>> {
    let value = request.header("authorization")?;
    let (scheme, rest) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let mut decoded = BASE64.decode(rest.trim_ascii()).ok()?;
    let colon = memchr::memchr(b':', &decoded)?;
    decoded.truncate(colon);
    Some(decoded)
}

/// The bytes of the head as the client has sent it, more or less: how it has separated names and values is not kept.
fn head_size(request: &Request<'_>) -> usize {
    let head = request.head;
    let line = head.method_bytes().len() + head.target_bytes().len() + protocol(request).len() + 4;
    let headers = head
        .headers()
        .map(|(name, value)| name.len() + value.len() + 4);
    line + headers.sum::<usize>() + 2
}

/// The path for the upstream. The query is added to it when the request is sent.
fn upstream_uri(cx: &mut Cx, target: &Raw, request: &Request<'_>) -> i32 {
    let is_sent = target.upstream().is_some() || target.entry().is_some();
    let query = request.upstream_query().filter(|_| is_sent);
    cx.made(|out| {
        out.extend_from_slice(request.upstream_path());
        if let Some(query) = query {
            out.push(b'?');
            out.extend_from_slice(query);
        }
    })
}

fn of_upstream(cx: &mut Cx, target: &Raw, name: &str) -> i32 {
    match (name, target.upstream()) {
        ("upstream_status", Some(head)) => shown(cx, head.status()),
        _ => NONE,
    }
}

/// Returns a variable of the log phase.
fn of_entry(cx: &mut Cx, entry: &LogEntry<'_>, name: &str) -> i32 {
    let seconds = |time: std::time::Duration| format!("{:.3}", time.as_secs_f64());
    match name {
        "request_time" => shown(cx, seconds(entry.latencies.request)),
        "bytes_sent" => shown(cx, entry.response_size),
        "body_bytes_sent" => shown(
            cx,
            entry.response_size.saturating_sub(entry.response_head_size),
        ),
        "upstream_status" => entry
            .upstream_status
            .map_or(NONE, |status| shown(cx, status)),
        "upstream_addr" => {
            let tried = entry.tries.iter().filter_map(|one| one.address);
            let all: Vec<String> = tried.map(|address| address.to_string()).collect();
            if all.is_empty() {
                NONE
            } else {
                shown(cx, all.join(", "))
            }
        }
        "upstream_header_time" => entry
            .latencies
            .upstream
            .map_or(NONE, |time| shown(cx, seconds(time))),
        "upstream_response_time" => match entry.latencies.upstream {
            Some(time) => shown(cx, seconds(time + entry.latencies.receive)),
            None => NONE,
        },
        _ => NONE,
    }
}

fn shown(cx: &mut Cx, value: impl std::fmt::Display) -> i32 {
    cx.made(|out| {
        let _ = write!(out, "{value}");
    })
}
