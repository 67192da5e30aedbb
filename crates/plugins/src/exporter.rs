//! Sends batches of texts to an HTTP server, for opentelemetry and zipkin: spans and log lines, which wait in a queue of
//! the node and are sent in the background. [`deliver`] is also that of http-log.

use ::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method};
use compact_str::CompactString;
use percent_encoding::percent_decode_str;
use plugin::{BuildError, Node};
use services::http::{Body, Client, Options, Request, Url};
use services::queue::{Queue, QueueParams, SendError, Sender, Text};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

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
}

/// The configuration of a server.
pub(crate) struct Target<'c> {
    /// The field of the URL.
    pub(crate) field: &'static str,
    pub(crate) url: &'c str,
    pub(crate) content_type: &'static str,
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
        let url = parse(target)?;
        let mut hasher = DefaultHasher::new();
        (target.headers, identity).hash(&mut hasher);
        Ok(Self {
            name: format!("{}:{kind}:{:x}", target.url, hasher.finish()),
            server: Arc::new(Server {
                headers: headers(target, &url)?,
                options: options(target.timeouts),
                url,
                format,
            }),
            params,
            queue: OnceLock::new(),
        })
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
}

impl<F: Format> Server<F> {
    async fn send(&self, client: &Client, batch: &Arc<Vec<Text>>) -> Result<(), SendError> {
        let request = Request {
            method: Method::POST,
            url: self.url.clone(),
            headers: self.headers.clone(),
            body: self.format.body(batch),
            options: self.options.clone(),
        };
        deliver(client, request, F::is_success).await
    }
}

/// Sends a batch. An answer that is no success is an error that shows the beginning of its body.
pub(crate) async fn deliver(
    client: &Client,
    request: Request,
    is_success: impl Fn(u16) -> bool,
) -> Result<(), SendError> {
    let place = format!("{}:{}", request.url.host(), request.url.port());
    let url = request.url.clone();
    let response = client.send(request).await;
    let response = response
        .map_err(|error| SendError::new(format!("failed request to {place}: {}", error.kind)))?;
    let status = response.status.as_u16();
    if is_success(status) {
        return Ok(());
    }
    let shown = without_parts(&String::from_utf8_lossy(&response.body), &url);
    let shown = &shown[..shown.floor_char_boundary(SHOWN_BODY)];
    Err(SendError::new(format!(
        "request to {place} returned status code {status} and body {shown:?}"
    )))
}

/// Hides in a text what is in a URL's path and query. They may have tokens, and many servers repeat them in their error
/// pages.
fn without_parts(text: &str, url: &Url) -> String {
    let query = url.query().unwrap_or_default();
    let parts = url.path().split('/').chain(query.split(['&', '=']));
    let mut parts: Vec<Cow<'_, str>> = parts
        .flat_map(|part| [part.into(), percent_decode_str(part).decode_utf8_lossy()])
        .filter(|part| part.len() >= SHORTEST_TOKEN)
        .collect();
    // A part can be the beginning of another one.
    parts.sort_by_key(|part| Reverse(part.len()));
    parts.dedup();
    let hide = |text: String, part: Cow<'_, str>| text.replace(&*part, "***");
    parts.into_iter().fold(text.to_owned(), hide)
}

fn parse(target: &Target<'_>) -> Result<Url, BuildError> {
    if target.url.starts_with("{vault://") {
        let reason = "it is a vault reference, which is not resolved yet";
        return Err(BuildError::field(target.field, reason));
    }
    Url::parse(target.url).map_err(|error| BuildError::field(target.field, error))
}

/// Returns the headers of the requests. A configured type of the content goes first.
fn headers(target: &Target<'_>, url: &Url) -> Result<HeaderMap, BuildError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(target.content_type));
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
        if ![HOST, CONTENT_LENGTH].contains(&name) {
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_show_nothing_of_the_path_and_the_query() {
        let url = "https://log.test/in/TOKENS/TOKEN/b%C3%BCcher/v1?k=secret&x=y";
        let url = Url::parse(url).expect("a URL");
        for (text, shown) in [
            (
                "Cannot POST /in/TOKENS/TOKEN/b\u{fc}cher/v1",
                "Cannot POST /in/***/***/***/v1",
            ),
            ("b%C3%BCcher?k=secret", "***?k=***"),
            ("plain", "plain"),
        ] {
            assert_eq!(without_parts(text, &url), shown);
        }
    }
}
