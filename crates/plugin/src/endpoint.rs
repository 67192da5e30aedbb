//! Paths of the Admin API that a plugin serves itself, such as `/proxy-cache`. The endpoints of a plugin's entities are
//! not among them: the Admin API derives those from their schemas.

use crate::Node;
use bytes::Bytes;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

/// A path of the Admin API with its methods.
#[derive(Clone)]
pub struct Endpoint {
    /// The plugin. The Admin API has the path only while the plugin is enabled on the node.
    pub plugin: Cow<'static, str>,
    /// The path, with parameters such as `{key}` as whole segments.
    pub path: Cow<'static, str>,
    pub operations: Vec<EndpointOperation>,
}

/// A method of an [`Endpoint`]. HEAD is answered by GET, and OPTIONS by the Admin API.
#[derive(Clone)]
pub struct EndpointOperation {
    pub method: &'static str,
    /// What it does, as one line of the OpenAPI document: "Delete all cached responses".
    pub summary: Cow<'static, str>,
    pub handle: EndpointHandler,
}

/// Handles a request. It runs on the thread that serves the whole Admin API, so it must not block: what takes long
/// belongs into a future that waits for another thread.
pub type EndpointHandler = Arc<dyn Fn(EndpointRequest, Arc<Node>) -> EndpointReply + Send + Sync>;

/// A request for an [`Endpoint`], after its caller was allowed to make it.
#[derive(Debug, Clone, Default)]
pub struct EndpointRequest {
    pub method: String,
    /// Parameters of the path, percent-decoded.
    pub parameters: Vec<(String, String)>,
    /// Arguments of the query in their order. An argument without `=` has no value.
    pub query: Vec<(String, Option<String>)>,
    pub body: Bytes,
}

/// A response of an [`Endpoint`], or the future of one. The future is dropped if the client leaves.
pub enum EndpointReply {
    Ready(EndpointAnswer),
    Wait(Pin<Box<dyn Future<Output = EndpointAnswer> + Send>>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointAnswer {
    /// A status from 200 to 599. Another number becomes 500.
    pub status: u16,
    /// The body as JSON text, or none.
    pub body: Option<Bytes>,
}

impl Endpoint {
    /// A path without methods. [`Endpoint::on`] adds them.
    pub fn new(plugin: impl Into<Cow<'static, str>>, path: impl Into<Cow<'static, str>>) -> Self {
        Self {
            plugin: plugin.into(),
            path: path.into(),
            operations: Vec::new(),
        }
    }

    /// Adds a method.
    pub fn on(
        mut self,
        method: &'static str,
        summary: impl Into<Cow<'static, str>>,
        handle: impl Fn(EndpointRequest, Arc<Node>) -> EndpointReply + Send + Sync + 'static,
    ) -> Self {
        self.operations.push(EndpointOperation {
            method,
            summary: summary.into(),
            handle: Arc::new(handle),
        });
        self
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods = self.operations.iter().map(|operation| operation.method);
        formatter
            .debug_struct("Endpoint")
            .field("plugin", &self.plugin)
            .field("path", &self.path)
            .field("methods", &methods.collect::<Vec<_>>())
            .finish()
    }
}

impl EndpointRequest {
    /// Returns a parameter of the path; empty if the path has no such parameter.
    pub fn parameter(&self, name: &str) -> &str {
        let found = self.parameters.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    /// Returns the first value of a query argument; empty for an argument without `=`.
    pub fn query(&self, name: &str) -> Option<&str> {
        let (_, value) = self.query.iter().find(|(known, _)| known == name)?;
        Some(value.as_deref().unwrap_or_default())
    }
}

impl EndpointAnswer {
    /// A response without a body.
    pub fn empty(status: u16) -> Self {
        Self { status, body: None }
    }

    /// A response with a value as its JSON. A value that JSON cannot express gives status 500.
    pub fn json(status: u16, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(text) => Self {
                status,
                body: Some(text.into()),
            },
            Err(error) => Self::message(500, &format!("the response cannot be written: {error}")),
        }
    }

    /// A response with a text in Kong's form: `{"message": …}`.
    pub fn message(status: u16, text: &str) -> Self {
        let body = serde_json::json!({ "message": text }).to_string();
        Self {
            status,
            body: Some(body.into()),
        }
    }
}

impl From<EndpointAnswer> for EndpointReply {
    fn from(answer: EndpointAnswer) -> Self {
        Self::Ready(answer)
    }
}
