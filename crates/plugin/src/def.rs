//! The plugin trait, what its phases answer, and the entry a plugin has in the table of plugins.

use crate::log::LogEntry;
use crate::request::RequestCx;
use crate::response::{Chunk, Response, ResponseCx};
use std::fmt;
use std::ops::BitOr;
use std::pin::Pin;
use std::sync::Arc;

/// One configured plugin: built with the snapshot, shared by every request it applies to.
///
/// Per request and plugin name at most one instance runs, chosen when its turn comes in `access`; the later phases run the
/// instances chosen there. Phases that a [`PluginDef`] does not declare are never called. `certificate`, `rewrite` and
/// `response` join them, like `access`, with the first plugin that has them.
pub trait Plugin: Send + Sync {
    /// Runs once a route is known and before the upstream is contacted. May change what goes upstream, end the request with
    /// an answer of its own, or wait. An error ends the request with status 500.
    fn access<'a>(&'a self, _cx: &'a mut RequestCx<'_>) -> Result<Step<'a>, PluginError> {
        Ok(Step::Continue)
    }

    /// Runs when the head of the answer is known, whether it came from an upstream or was produced here. Cannot wait. An
    /// error is logged and changes nothing.
    fn header_filter(&self, _cx: &mut ResponseCx<'_>) -> Result<(), PluginError> {
        Ok(())
    }

    /// Runs for every piece of the answer's body, the last one marked; not at all where the answer can have none (HEAD,
    /// 204, 304). Cannot wait. An error is logged.
    fn body_filter(&self, _cx: &mut ResponseCx<'_>, _chunk: &mut Chunk) -> Result<(), PluginError> {
        Ok(())
    }

    /// Runs when the answer is through. Never waits: what is slow is put into a queue.
    fn log(&self, _entry: &LogEntry<'_>) {}

    /// Whether `access` looks at the request's body. The data plane reads the body when the first such instance is about to
    /// run, so that a request which an earlier plugin refuses costs no memory for its body.
    fn request_body(&self) -> BodyUse {
        BodyUse::Stream
    }
}

/// What `access` answers.
pub enum Step<'a> {
    Continue,
    /// The request ends with this answer; `access` of later plugins does not run, their later phases do.
    Respond(Response),
    /// The answer needs a wait (a database, another server). One allocation, next to a network trip.
    Wait(Wait<'a>),
}

/// The future of [`Step::Wait`].
pub type Wait<'a> = Pin<Box<dyn Future<Output = Result<Flow, PluginError>> + Send + 'a>>;

/// How a [`Step::Wait`] ends.
pub enum Flow {
    Continue,
    Respond(Response),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BodyUse {
    /// The body streams to the upstream; [`RequestCx::body`] is not read.
    Stream,
    /// The body is read into memory before `access`, within the limit of the data plane.
    Buffered,
}

/// Something went wrong that is not the client's fault: it is logged, and the client sees only Kong's 500.
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

/// The scopes that a plugin may be configured for. A refused scope is also ignored when the instance is looked up.
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

/// One plugin of the static table: everything that is not configuration.
pub struct PluginDef {
    pub name: &'static str,
    /// Higher runs earlier; equal ones by name, descending.
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
        plugin.enabled
            && is_http
            && (plugin.route.is_none() || self.scopes.route)
            && (plugin.service.is_none() || self.scopes.service)
            && (plugin.consumer.is_none() || self.scopes.consumer)
    }
}

/// Whether configurations that are equal may be served by one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// The instance is a function of `config` alone and keeps no state: ten thousand equal configurations are one object.
    EqualConfigs,
    /// The instance has state of its own, such as counters or a queue. It lives on while its id and config stay the same.
    PerInstance,
}

pub enum Implementation {
    Ready(BuildFn),
    /// The schema is known, so that existing configurations load, but the plugin does not work yet. Loading says so.
    Later {
        lack: Lack,
        /// What users have to do without, in a sentence.
        without: &'static str,
    },
}

/// What a configuration lacks while a plugin of it does not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// The plugin only observes or saves work. Requests pass as if it were absent.
    Feature,
    /// The plugin refuses, limits or changes requests or answers, or runs code. Until it works, all requests that it applies
    /// to are refused.
    Protection,
}

/// Types the completed configuration and does all compiling, so that running cannot discover a bad one.
pub type BuildFn =
    fn(&model::entities::Plugin, &BuildCx<'_>) -> Result<Arc<dyn Plugin>, BuildError>;

/// What a plugin may know of the node that it is built on.
pub struct BuildCx<'a> {
    pub node: &'a Node,
}

/// The identity of this process, as plugins show it.
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
    /// Reads a plugin's own struct from a configuration that its schema has completed.
    pub fn read_config<T: serde::de::DeserializeOwned>(
        plugin: &model::entities::Plugin,
    ) -> Result<T, BuildError> {
        model::value::from_value(model::Value::clone(&plugin.config))
            .map_err(|error| BuildError::Config(error.to_string()))
    }
}
