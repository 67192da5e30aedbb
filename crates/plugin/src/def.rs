//! The plugin trait, the results of its phases, and a plugin's entry in the table of plugins.

use crate::log::LogEntry;
use crate::request::RequestCx;
use crate::response::{Chunk, Response, ResponseCx};
use std::fmt;
use std::ops::BitOr;
use std::pin::Pin;
use std::sync::Arc;

/// A configured plugin. It is built with the snapshot and shared by all requests that it applies to.
///
/// At most one instance per plugin name runs for a request. It is chosen when the plugin's turn comes in `access`, and
/// the later phases run the same instances. Phases that a [`PluginDef`] does not declare are never called. The phases
/// `certificate`, `rewrite` and `response` have no method yet; each will be added with the first plugin that needs it.
pub trait Plugin: Send + Sync {
    /// Runs when the route is known and before the upstream is contacted. It may change the request for the upstream,
    /// end the request with its own response, or wait. An error ends the request with status 500.
    fn access<'a>(&'a self, _cx: &'a mut RequestCx<'_>) -> Result<Step<'a>, PluginError> {
        Ok(Step::Continue)
    }

    /// Runs when the head of the response is known, whether an upstream, a plugin or the gateway produced it. It cannot
    /// wait. An error is only logged.
    fn header_filter(&self, _cx: &mut ResponseCx<'_>) -> Result<(), PluginError> {
        Ok(())
    }

    /// Runs for every piece of the response body; the last piece is marked. It does not run if the response cannot have
    /// a body (HEAD, 204, 304). It cannot wait. An error is only logged.
    fn body_filter(&self, _cx: &mut ResponseCx<'_>, _chunk: &mut Chunk) -> Result<(), PluginError> {
        Ok(())
    }

    /// Runs after the response was sent. It must not wait; plugins put slow work into a queue.
    fn log(&self, _entry: &LogEntry<'_>) {}

    /// Returns whether `access` reads the request body. The data plane reads the body just before the first such
    /// instance runs, so that a request refused by an earlier plugin needs no memory for its body.
    fn request_body(&self) -> BodyUse {
        BodyUse::Stream
    }

    /// Returns what a request needs so that `access` lets it pass, and the status that it gets otherwise. Explanations
    /// show it after "needs". `None` if the plugin refuses no request, or if this cannot be said briefly.
    fn needs(&self) -> Option<String> {
        None
    }
}

/// The result of `access`.
pub enum Step<'a> {
    Continue,
    /// Ends the request with this response. `access` of later plugins does not run, but their later phases do.
    Respond(Response),
    /// The result needs a wait, for instance for another server. This costs one allocation, which is little next to the
    /// wait.
    Wait(Wait<'a>),
}

/// The future in [`Step::Wait`], which resolves to the result of `access`.
pub type Wait<'a> = Pin<Box<dyn Future<Output = Result<Flow, PluginError>> + Send + 'a>>;

/// The result of a [`Step::Wait`].
pub enum Flow {
    Continue,
    Respond(Response),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BodyUse {
    /// The body is streamed to the upstream. `access` does not read [`RequestCx::body`].
    Stream,
    /// The body is read into memory before `access`, within the limit of the data plane.
    Buffered,
}

/// A failure that the client did not cause. It is logged, and the client gets only Kong's response with status 500.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct PluginError {
    context: String,
    #[source]
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl PluginError {
    pub fn new(context: impl Into<String>) -> Self {
        Self {
            context: context.into(),
            cause: None,
        }
    }

    pub fn caused_by(
        context: impl Into<String>,
        cause: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self {
            context: context.into(),
            cause: Some(Box::new(cause)),
        }
    }
}

impl From<crate::lookup::LookupError> for PluginError {
    fn from(error: crate::lookup::LookupError) -> Self {
        Self::caused_by("looking up an entity failed", error)
    }
}

/// A set of phases.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Phases(u8);

impl Phases {
    pub const NONE: Phases = Phases(0);
    pub const CERTIFICATE: Phases = Phases(1);
    pub const REWRITE: Phases = Phases(1 << 1);
    pub const ACCESS: Phases = Phases(1 << 2);
    pub const HEADER_FILTER: Phases = Phases(1 << 3);
    pub const BODY_FILTER: Phases = Phases(1 << 4);
    pub const LOG: Phases = Phases(1 << 5);
    /// The phases after access.
    pub const LATER: Phases = Phases(1 << 3 | 1 << 4 | 1 << 5);

    pub const fn with(self, other: Phases) -> Phases {
        Phases(self.0 | other.0)
    }

    /// Whether the two sets have a phase in common.
    pub const fn intersects(self, other: Phases) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Phases {
    type Output = Phases;

    fn bitor(self, other: Phases) -> Phases {
        self.with(other)
    }
}

impl fmt::Debug for Phases {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 6] = [
            "certificate",
            "rewrite",
            "access",
            "header_filter",
            "body_filter",
            "log",
        ];
        let named = NAMES.iter().enumerate();
        formatter
            .debug_set()
            .entries(named.filter_map(|(bit, name)| (self.0 >> bit & 1 == 1).then_some(name)))
            .finish()
    }
}

/// The scopes for which a plugin may be configured. Other scopes are also ignored when instances are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scopes {
    pub route: bool,
    pub service: bool,
    pub consumer: bool,
}

impl Scopes {
    pub const ALL: Scopes = Scopes {
        route: true,
        service: true,
        consumer: true,
    };
    pub const NO_CONSUMER: Scopes = Scopes {
        route: true,
        service: true,
        consumer: false,
    };
    pub const GLOBAL: Scopes = Scopes {
        route: false,
        service: false,
        consumer: false,
    };
}

/// The entry of a plugin in the static table: all its properties that are not configuration.
pub struct PluginDef {
    pub name: &'static str,
    /// Plugins with a higher priority run earlier. Equal priorities are ordered by name, descending.
    pub priority: i32,
    pub phases: Phases,
    pub scopes: Scopes,
    pub sharing: Sharing,
    pub implementation: Implementation,
}

impl PluginDef {
    /// Whether a configured plugin takes part in requests. Disabled plugins, those for other protocols and those in scopes
    /// that their plugin refuses are as if absent.
    pub fn applies(&self, plugin: &model::entities::Plugin) -> bool {
        let is_http = plugin.protocols.iter().any(|protocol| protocol.is_http());
        plugin.enabled && is_http && self.allows_scope_of(plugin)
    }

    /// Whether the plugin accepts the scope of a configured plugin.
    pub fn allows_scope_of(&self, plugin: &model::entities::Plugin) -> bool {
        (plugin.route.is_none() || self.scopes.route)
            && (plugin.service.is_none() || self.scopes.service)
            && (plugin.consumer.is_none() || self.scopes.consumer)
    }
}

/// Whether equal configurations may share one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// The instance depends only on `config` and has no state, so that equal configurations share one.
    EqualConfigs,
    /// The instance has its own state, such as counters or a queue. It is kept as long as its id and config stay the
    /// same.
    PerInstance,
}

pub enum Implementation {
    Ready(BuildFn),
    /// The plugin is not implemented, but its schema is known, so that existing configurations load. A warning is
    /// logged then.
    Later {
        lack: Lack,
        /// A sentence for users about the missing feature.
        without: &'static str,
    },
}

/// The effect on requests of a plugin that is not implemented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// The plugin only observes requests or saves work. Requests are processed as if it were absent.
    Feature,
    /// The plugin refuses, limits or changes requests or responses, or runs code. All requests that it applies to are
    /// refused until it is implemented.
    Protection,
}

/// Builds an instance from a configuration that its schema has completed. It must report every error in the
/// configuration, so that none appears while requests are processed.
pub type BuildFn =
    fn(&model::entities::Plugin, &BuildCx<'_>) -> Result<Arc<dyn Plugin>, BuildError>;

/// Information about the node for building plugins.
pub struct BuildCx<'a> {
    pub node: &'a Node,
}

/// The identity of this node, as plugins show it.
#[derive(Debug, Clone, Default)]
pub struct Node {
    pub id: String,
    pub hostname: String,
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("its configuration cannot be read: {0}")]
    Config(String),
    #[error("{field}: {reason}")]
    Field { field: &'static str, reason: String },
}

impl BuildError {
    /// Reads the plugin's config struct from a configuration that its schema has completed.
    pub fn read_config<T: serde::de::DeserializeOwned>(
        plugin: &model::entities::Plugin,
    ) -> Result<T, BuildError> {
        model::value::from_value(model::Value::clone(&plugin.config))
            .map_err(|error| BuildError::Config(error.to_string()))
    }
}
