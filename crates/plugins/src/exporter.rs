//! Sends batches of texts to an HTTP or gRPC server, for opentelemetry and zipkin: spans, log lines and metrics, which wait
//! in a queue of the node and are sent in the background. [`deliver`] is also that of http-log.

mod grpc;
#[cfg(test)]
mod tests;
mod texts;

pub(crate) use texts::Texts;

use ::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method};
use compact_str::CompactString;
use percent_encoding::percent_decode_str;
use plugin::{BuildError, Node};
use services::http::{Body, Client, Options, Request, Response, Url};
use services::queue::{Queue, QueueParams, SendError, Sender, Text};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

/// Maximum bytes read of a response body. Only errors show its beginning.
pub(crate) const MAX_BODY: usize = 64 * 1024;
/// Maximum bytes of a response body that an error shows.
const SHOWN_BODY: usize = 200;
/// Length from which on a part of a URL may be a secret.
const SHORTEST_TOKEN: usize = 5;

/// What a server gets, and which of its answers is a success.
pub(crate) trait Format: Send + Sync + 'static {
    /// Makes the body of a batch.
    fn body(&self, batch: &Arc<Vec<Text>>) -> Body;

    fn is_success(status: u16) -> bool;

    /// The part of a batch that a success leaves out, as the body of the answer says. Usually there is none.
    fn rejected(_answer: &[u8]) -> Option<Rejected> {
        None
    }
}

/// Entries that a server does not accept, now or later.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rejected {
    pub(crate) entries: usize,
    pub(crate) reason: String,
}

/// The configuration of a server.
pub(crate) struct Target<'c> {
    /// The field of the URL.
    pub(crate) field: &'static str,
    pub(crate) url: &'c str,
    pub(crate) content_type: &'static str,
    /// The path of the method if the server is called by gRPC, which replaces the path of the URL.
    pub(crate) grpc: Option<&'static str>,
    pub(crate) headers: Option<&'c BTreeMap<CompactString, CompactString>>,
    /// Milliseconds of `connect_timeout`, `send_timeout` and `read_timeout`.
    pub(crate) timeouts: [Option<u64>; 3],
}

/// A server with the queue to it.
pub(crate) struct Exporter<F> {
    server: Arc<Server<F>>,
    params: QueueParams,
    /// Plugins with the same name share the queue.
    name: String,
    queue: OnceLock<Arc<Queue<Text>>>,
}

struct Server<F> {
    url: Url,
    headers: HeaderMap,
    options: Options,
    /// Whether the server is called by gRPC.
    is_grpc: bool,
    format: F,
}

impl<F: Format> Exporter<F> {
    /// `kind` is a part of the queue's name, and `identity` what the servers get from all senders of the queue.
    pub(crate) fn new(
        target: &Target<'_>,
        format: F,
        params: QueueParams,
        (kind, identity): (&str, impl Hash),
    ) -> Result<Self, BuildError> {
        let mut url = parse(target)?;
        if let Some(method) = target.grpc {
            let found = url.with_path(method);
            url = found.map_err(|error| BuildError::field(target.field, error))?;
        }
        let mut hasher = DefaultHasher::new();
        (target.headers, target.grpc, identity).hash(&mut hasher);
        let options = Options {
            http2: target.grpc.is_some(),
            ..options(target.timeouts)
        };
        Ok(Self {
            name: format!("{}:{kind}:{:x}", target.url, hasher.finish()),
            server: Arc::new(Server {
                headers: headers(target, &url, options.timeout)?,
                options,
                url,
                is_grpc: target.grpc.is_some(),
                format,
            }),
            params,
            queue: OnceLock::new(),
        })
    }

    /// Returns the name of the queue. It can have a secret in it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the queue, which is made by the first call.
    pub(crate) fn queue(&self, plugin: &str, node: &Node) -> &Arc<Queue<Text>> {
        self.queue.get_or_init(|| {
            let (server, client) = (self.server.clone(), node.http.clone());
            let sender = Sender::of_texts(move |batch| {
                let (server, client) = (server.clone(), client.clone());
                async move { server.send(&client, &batch).await }
            });
            node.queues
                .get(plugin, &self.name, self.params.clone(), sender)
        })
    }

    /// Returns where the texts of a request are written.
    pub(crate) fn texts(&self, plugin: &str, node: &Node) -> Texts<'_> {
        Texts::new(self.queue(plugin, node), &self.params)
    }
}

impl<F: Format> Server<F> {
    async fn send(&self, client: &Client, batch: &Arc<Vec<Text>>) -> Result<(), SendError> {
        let entries = batch.iter().map(Text::entries).sum();
        let mut body = self.format.body(batch);
        if self.is_grpc {
            body = grpc::message(body).ok_or_else(|| {
                SendError::lost(entries, "the batch is too large for a message of gRPC")
            })?;
        }
        let request = Request {
            method: Method::POST,
            url: self.url.clone(),
            headers: self.headers.clone(),
            body,
            options: self.options.clone(),
        };
        let (asked, response) = call(client, request).await?;
        let answer = match self.is_grpc {
            true => grpc::answer(&asked, &response, entries)?,
            false => answer(&asked, &response, F::is_success)?,
        };
        match F::rejected(answer) {
            None => Ok(()),
            Some(Rejected { entries, reason }) => Err(SendError::lost(
                entries,
                format!(
                    "{} has rejected {entries} of the entries: {:?}",
                    asked.place(),
                    asked.shown(&reason)
                ),
            )),
        }
    }
}

/// Sends a batch. An answer that is no success is an error that shows the beginning of its body.
pub(crate) async fn deliver(
    client: &Client,
    request: Request,
    is_success: impl Fn(u16) -> bool,
) -> Result<(), SendError> {
    let (asked, response) = call(client, request).await?;
    answer(&asked, &response, is_success).map(drop)
}

/// Sends a request. Returns what was asked, and the response.
async fn call(client: &Client, request: Request) -> Result<(Asked, Response), SendError> {
    let asked = Asked {
        url: request.url.clone(),
        headers: request.headers.clone(),
    };
    match client.send(request).await {
        Ok(response) => Ok((asked, response)),
        Err(error) => Err(SendError::new(format!(
            "failed request to {}: {}",
            asked.place(),
            error.kind
        ))),
    }
}

/// What a server was asked. Both can have secrets.
struct Asked {
    url: Url,
    headers: HeaderMap,
}

impl Asked {
    /// The host and the port of the server: what messages show of its URL.
    fn place(&self) -> String {
        format!("{}:{}", self.url.host(), self.url.port())
    }

    /// Hides in a text of the server what is in the URL's path and query, and in the configured headers. They may have
    /// tokens, and many servers repeat them in their error pages.
    fn shown(&self, text: &str) -> String {
        let query = self.url.query().unwrap_or_default();
        let parts = self.url.path().split('/').chain(query.split(['&', '=']));
        let decoded = |part| percent_decode_str(part).decode_utf8_lossy();
        let parts = parts.flat_map(|part| [part.into(), decoded(part)]);
        let values = self.headers.values().filter(|value| value.is_sensitive());
        // A value can have the name of its scheme in front.
        let values = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b' '));
        let mut secrets: Vec<Cow<'_, str>> = parts
            .chain(values.map(String::from_utf8_lossy))
            .filter(|secret| secret.len() >= SHORTEST_TOKEN)
            .collect();
        // A secret can be the beginning of another one.
        secrets.sort_by_key(|secret| Reverse(secret.len()));
        secrets.dedup();
        let hide = |text: String, secret: Cow<'_, str>| text.replace(&*secret, "***");
        secrets.into_iter().fold(text.to_owned(), hide)
    }
}

/// Returns the body of a success.
fn answer<'r>(
    asked: &Asked,
    response: &'r Response,
    is_success: impl Fn(u16) -> bool,
) -> Result<&'r [u8], SendError> {
    let status = response.status.as_u16();
    if is_success(status) {
        return Ok(&response.body);
    }
    let shown = asked.shown(&String::from_utf8_lossy(&response.body));
    let shown = &shown[..shown.floor_char_boundary(SHOWN_BODY)];
    let place = asked.place();
    let error = SendError::new(format!(
        "request to {place} returned status code {status} and body {shown:?}"
    ));
    Err(match retry_after(&response.headers) {
        Some(pause) if [429, 503].contains(&status) => error.after(pause),
        _ => error,
    })
}

/// Reads `Retry-After`: seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    // A date in the past asks for nothing.
    date.duration_since(SystemTime::now()).ok()
}

fn parse(target: &Target<'_>) -> Result<Url, BuildError> {
    if target.url.starts_with("{vault://") {
        let reason = "it is a vault reference, which is not resolved yet";
        return Err(BuildError::field(target.field, reason));
    }
    Url::parse(target.url).map_err(|error| BuildError::field(target.field, error))
}

/// Returns the headers of the requests. A configured type of the content goes first.
fn headers(target: &Target<'_>, url: &Url, limit: Duration) -> Result<HeaderMap, BuildError> {
    let mut headers = HeaderMap::new();
    match target.grpc {
        Some(_) => grpc::add_headers(limit, &mut headers),
        None => {
            let content_type = HeaderValue::from_static(target.content_type);
            headers.insert(CONTENT_TYPE, content_type);
        }
    }
    if let Some(authorization) = url.basic_authorization() {
        headers.insert(AUTHORIZATION, authorization);
    }
    for (name, value) in target.headers.into_iter().flatten() {
        let refuse = |error: &dyn std::fmt::Display| {
            BuildError::field(format!("headers.{name}"), error.to_string())
        };
        let name = HeaderName::try_from(name.as_str()).map_err(|error| refuse(&error))?;
        let mut value = HeaderValue::try_from(value.as_str()).map_err(|error| refuse(&error))?;
        // Many of these are keys of the server.
        value.set_sensitive(true);
        let is_own = match target.grpc {
            Some(_) => grpc::is_own(&name),
            None => false,
        };
        if !is_own && ![HOST, CONTENT_LENGTH].contains(&name) {
            headers.insert(name, value);
        }
    }
    Ok(headers)
}

/// The client has one limit for the whole request, so it is the sum of Kong's.
fn options([connect, send, read]: [Option<u64>; 3]) -> Options {
    let limit = |milliseconds: Option<u64>| match milliseconds {
        // As in OpenResty, where 0 means its default.
        None | Some(0) => Duration::from_secs(60),
        Some(milliseconds) => Duration::from_millis(milliseconds),
    };
    Options {
        timeout: limit(connect) + limit(send) + limit(read),
        connect_timeout: limit(connect),
        verify: false,
        server_name: None,
        keepalive: Duration::from_secs(60),
        max_body: MAX_BODY,
        http2: false,
    }
}
