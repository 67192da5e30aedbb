//! The server that gets the records.

use super::config::{Config, Method};
use crate::exporter::{MAX_BODY, deliver};
use crate::queue_config::{NO_TIMEOUT, keepalive, time_limit};
use ::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use ::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use plugin::BuildError;
use services::http::{Body, Client, Options, Request, Url};
use services::queue::{SendError, Sender, Text};
use std::sync::Arc;

pub(super) struct Endpoint {
    method: Method,
    url: Url,
    headers: HeaderMap,
    options: Options,
    /// Whether a batch is one record and not a list.
    sends_single: bool,
}

impl Method {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
        }
    }

    fn of_http(self) -> ::http::Method {
        match self {
            Self::Post => ::http::Method::POST,
            Self::Put => ::http::Method::PUT,
            Self::Patch => ::http::Method::PATCH,
        }
    }
}

impl Endpoint {
    pub(super) fn new(config: &Config, max_batch_size: usize) -> Result<Self, BuildError> {
        let url = url(&config.http_endpoint)?;
        Ok(Self {
            method: config.method.unwrap_or_default(),
            headers: headers(config, &url)?,
            url,
            options: Options {
                timeout: time_limit(config.timeout),
                connect_timeout: NO_TIMEOUT,
                verify: false,
                server_name: None,
                keepalive: keepalive(config.keepalive),
                max_body: MAX_BODY,
                http2: false,
            },
            sends_single: max_batch_size == 1,
        })
    }

    pub(super) fn sender(self: &Arc<Self>, client: &Client) -> Sender<Text> {
        let (endpoint, client) = (self.clone(), client.clone());
        Sender::of_texts(move |batch| {
            let (endpoint, client) = (endpoint.clone(), client.clone());
            async move { endpoint.send(&client, &batch).await }
        })
    }

    async fn send(&self, client: &Client, batch: &Arc<Vec<Text>>) -> Result<(), SendError> {
        let request = Request {
            method: self.method.of_http(),
            url: self.url.clone(),
            headers: self.headers.clone(),
            body: self.body(batch),
            options: self.options.clone(),
        };
        deliver(client, request, |status| status < 300).await
    }

    /// Returns the record, or the JSON list of the records. A batch that was collected before a change of the
    /// configuration can have several records also if later ones are sent alone.
    fn body(&self, batch: &Arc<Vec<Text>>) -> Body {
        let records: usize = batch.iter().map(Text::entries).sum();
        let (start, end): (&'static [u8], &'static [u8]) = match records {
            1 if self.sends_single => (b"", b""),
            _ => (b"[", b"]"),
        };
        // Each record follows its comma, which the first one does not have in the list.
        let records = Text::pieces(batch).enumerate();
        let records = records.map(|(at, mut piece)| piece.split_off(usize::from(at == 0)));
        let pieces = [Bytes::from_static(start)].into_iter().chain(records);
        pieces.chain([Bytes::from_static(end)]).collect()
    }
}

/// Parses the URL. Its query is left out.
fn url(text: &str) -> Result<Url, BuildError> {
    const FIELD: &str = "http_endpoint";
    if text.starts_with("{vault://") {
        return Err(BuildError::field(
            FIELD,
            "it is a vault reference, which is not resolved yet",
        ));
    }
    let parsed = Url::parse(text).and_then(|url| url.with_path(url.path()));
    parsed.map_err(|error| BuildError::field(FIELD, error))
}

/// Returns the headers of the requests. The configured ones do not replace those of the plugin.
fn headers(config: &Config, url: &Url) -> Result<HeaderMap, BuildError> {
    let mut headers = HeaderMap::new();
    for (name, value) in config.headers.iter().flatten() {
        let refuse = |error: &dyn std::fmt::Display| {
            BuildError::field(format!("headers.{name}"), error.to_string())
        };
        let name = HeaderName::try_from(name.as_str()).map_err(|error| refuse(&error))?;
        let mut value = HeaderValue::try_from(value.as_str()).map_err(|error| refuse(&error))?;
        // Many of these are keys of the log server.
        value.set_sensitive(true);
        if ![HOST, CONTENT_LENGTH, CONTENT_TYPE].contains(&name) {
            headers.append(name, value);
        }
    }
    if let Some(authorization) = url.basic_authorization() {
        headers.insert(AUTHORIZATION, authorization);
    }
    if let Some(content_type) = &config.content_type {
        let value = HeaderValue::try_from(content_type.as_str());
        let value = value.map_err(|error| BuildError::field("content_type", error))?;
        headers.insert(CONTENT_TYPE, value);
    }
    Ok(headers)
}
