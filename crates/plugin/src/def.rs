//! The trait that a plugin implements, the results of its phases, and a plugin's definition.

use crate::handler::{Erased, Handler, Maker};
use crate::log::LogCx;
use crate::node::Node;
use crate::request::{InternalRedirect, Request, RequestCx};
use crate::response::{Chunk, Response, ResponseCx};
use crate::stream::{CertificateCx, EndedStreamCx, StreamCx, StreamStep};
use crate::trace::{Trace, Tracing};
use crate::worker_part::{Life, PerWorker};
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::BitOr;
use std::pin::Pin;
use std::sync::Arc;

/// A plugin with one configuration. It is built with the snapshot and shared by all requests that it applies to.
///
/// Configured plugins with equal configurations share one object, so an object has no state that a request changes.
/// State that belongs to the configured plugin is in the node ([`Node`]), under a key that the plugin chooses. State of
/// one request is in [`Plugin::Own`].
///
/// At most one instance per plugin name runs for a request. It is chosen when the plugin's turn comes in `access`, and
/// the later phases run the same instances. Phases that the instance does not have ([`Plugin::phases`]) are not called.
/// The contract of each phase is in `docs/writing-plugins.md`.
pub trait Plugin: Send + Sync + Sized + 'static {
    /// The configuration that the plugin's schema has completed.
    type Config: DeserializeOwned;

    /// The plugin's own state of one request. The instance of a global `rewrite` and that of a route's `access` share
    /// it. `()` costs nothing.
    type Own: Default + Send + 'static;

    /// Builds the plugin. Building has no effect on the node, because snapshots are also built to check a
    /// configuration, and then thrown away. It must report every error of the configuration, so that none appears
    /// while requests are processed.
    fn build(config: Self::Config, cx: &BuildCx<'_>) -> Result<Self, BuildError>;

    /// Returns the phases that this configuration uses. `defined` are those of the plugin's definition.
    fn phases(&self, defined: Phases) -> Phases {
        defined
    }

    /// Starts the plugin when a snapshot with it is published, before requests use it. It runs once, and before the
    /// plugins that the snapshot replaces are dropped. Dropping the plugin must end what was started here.
    fn start(&self, _node: &Arc<Node>) {}

    /// Runs before the request is routed, for global instances only. Routing sees what it changes. Whatever ends the
    /// request here ends it at once.
    fn rewrite<'a>(
        &'a self,
        _cx: RequestCx<'a, '_>,
        _own: &'a mut Self::Own,
    ) -> Result<Step<'a>, PluginError> {
        Ok(Step::Continue)
    }

    /// Whether the plugin traces requests, so that [`Self::begin_trace`] runs.
    fn traces(&self) -> bool {
        false
    }

    /// Runs before the access phase of all plugins, if [`Self::traces`] says so, and tells the trace which spans to record.
    /// It does not run for a request that has no route, nor for an instance of a single consumer.
    fn begin_trace(&self, _request: &Request<'_>, _trace: &mut Trace, _node: &Node) {}

    /// Runs when the route is known and before the upstream is contacted. It may change the request for the upstream,
    /// end the request with its own response, or wait. An error ends the request with status 500.
    fn access<'a>(
        &'a self,
        _cx: RequestCx<'a, '_>,
        _own: &'a mut Self::Own,
    ) -> Result<Step<'a>, PluginError> {
        Ok(Step::Continue)
    }

    /// Runs for every piece of the client's body on its way to the upstream. The last piece is marked, and it may be
    /// empty. It cannot wait. An error ends the request with status 500 if the response has not begun, and otherwise
    /// closes the connection.
    fn request_body(
        &self,
        _request: &Request<'_>,
        _own: &mut Self::Own,
        _chunk: &mut Chunk,
    ) -> Result<(), PluginError> {
        Ok(())
    }

    /// Runs when the whole response of the upstream is in memory, before `header_filter`. An instance with this phase
    /// makes the gateway read the whole response, except where the connection is upgraded or carries gRPC.
    fn response<'a>(
        &'a self,
        _cx: ResponseCx<'a, '_>,
        _own: &'a mut Self::Own,
    ) -> Result<Step<'a>, PluginError> {
        Ok(Step::Continue)
    }

    /// Runs when the head of the response is known, whether an upstream, a plugin or the gateway produced it. It cannot
    /// wait. An error closes the connection.
    fn header_filter(
        &self,
        _cx: &mut ResponseCx<'_, '_>,
        _own: &mut Self::Own,
    ) -> Result<Filtered, PluginError> {
        Ok(Filtered::Continue)
    }

    /// Runs for every piece of the response body; the last piece is marked. It does not run if the response cannot have
    /// a body (HEAD, 101, 204, 304). It cannot wait. An error closes the connection.
    fn body_filter(
        &self,
        _cx: &mut ResponseCx<'_, '_>,
        _own: &mut Self::Own,
        _chunk: &mut Chunk,
    ) -> Result<(), PluginError> {
        Ok(())
    }

    /// Runs once for every request, after the response was sent. It must not wait; plugins put slow work into a queue.
    fn log(&self, _cx: &mut LogCx<'_, '_>, _own: &mut Self::Own) {}

    /// Runs during a TLS handshake, when the client hello is known, for global instances only. The handshake waits for
    /// it, within its time limit. It runs once per connection, before the certificate is selected. An error or
    /// [`StreamStep::Close`] ends the handshake.
    fn certificate<'a>(&'a self, _cx: CertificateCx<'a>) -> Result<StreamStep<'a>, PluginError> {
        Ok(StreamStep::Continue)
    }

    /// Runs when the route of a TCP, TLS or UDP session is known and before the upstream is contacted. If the gateway
    /// terminates TLS, it runs after the handshake. An error closes the session with status 500.
    fn preread<'a>(&'a self, _cx: StreamCx<'a>) -> Result<StreamStep<'a>, PluginError> {
        Ok(StreamStep::Continue)
    }

    /// Runs once for every TCP, TLS or UDP session, after its end. For a session that ended before `preread`, only
    /// global instances run. It must not wait.
    fn log_stream(&self, _cx: &mut EndedStreamCx<'_>) {}

    /// Returns what a request needs so that `access` lets it pass, and the status that it gets otherwise. Explanations
    /// show it after "needs". `None` if the plugin refuses no request, or if this cannot be said briefly.
    fn needs(&self) -> Option<String> {
        None
    }

    /// Runs on each worker of the data plane before it serves, whether or not the plugin is configured.
    fn init_worker(_node: &Arc<Node>, _worker: usize) {}

    /// Runs with each publication, before requests use the snapshot, with all configured instances of the plugin. They
    /// are searched among those of all plugins while they are taken.
    fn configure(_node: &Arc<Node>, _instances: &mut dyn Iterator<Item = &Self>) {}
}

/// The result of `rewrite`, `access` and `response`.
pub enum Step<'a> {
    Continue,
    /// Goes on without this plugin: none of its later phases runs for the request. Only in `access`.
    Leave,
    /// Ends the request with this response, as Kong's delayed response. `access` of later plugins does not run, but
    /// their instances are chosen and their later phases run.
    Respond(Response),
    /// Ends the request at once, as nginx's `ngx.exit`: no further instance is chosen. The later phases run for those
    /// that were chosen before.
    Exit(Response),
    /// Begins the request anew, as nginx's internal redirect: the rewrite phase, routing and the access phase run again.
    /// Only in `rewrite` and `access`.
    InternalRedirect(InternalRedirect),
    /// Reads the request's body into memory, and then calls the phase of this instance again. The plugin has seen that
    /// the body is [`crate::RequestBody::Unread`]; it is not so in the second call. Only in `rewrite` and `access`.
    ReadBody,
    /// The result needs a wait, for instance for another server. This costs one allocation, which is little next to the
    /// wait.
    Wait(Wait<'a>),
}

/// The wait of a [`Step::Wait`].
pub struct Wait<'a> {
    pub future: Pin<Box<dyn Future<Output = Result<Flow, PluginError>> + Send + 'a>>,
    /// Whether the wait ends when the client leaves. Otherwise the plugin finishes what it does, as in Kong.
    pub ends_with_client: bool,
}

impl<'a> Step<'a> {
    /// Waits for a future, also if the client leaves in the meantime.
    pub fn wait(future: impl Future<Output = Result<Flow, PluginError>> + Send + 'a) -> Self {
        Self::Wait(Wait {
            future: Box::pin(future),
            ends_with_client: false,
        })
    }

    /// Waits for a future. If the client leaves in the meantime, the future is dropped.
    pub fn wait_for_client(
        future: impl Future<Output = Result<Flow, PluginError>> + Send + 'a,
    ) -> Self {
        Self::Wait(Wait {
            future: Box::pin(future),
            ends_with_client: true,
        })
    }
}

/// The result of a [`Step::Wait`]. The values mean the same as those of [`Step`].
#[derive(Debug, Clone)]
pub enum Flow {
    Continue,
    Respond(Response),
    Exit(Response),
    InternalRedirect(InternalRedirect),
    ReadBody,
}

impl Flow {
    /// Refuses a response whose status no final response has. After 1xx, the client would wait for another response, or
    /// with 101 send something that is not HTTP. A status has three digits.
    pub fn with_final_status(self) -> Result<Self, PluginError> {
        match &self {
            Self::Respond(response) | Self::Exit(response)
                if !(200..1000).contains(&response.status) =>
            {
                Err(PluginError::not_final(response.status))
            }
            _ => Ok(self),
        }
    }
}

impl From<Flow> for Step<'_> {
    fn from(flow: Flow) -> Self {
        match flow {
            Flow::Continue => Self::Continue,
            Flow::Respond(response) => Self::Respond(response),
            Flow::Exit(response) => Self::Exit(response),
            Flow::InternalRedirect(redirect) => Self::InternalRedirect(redirect),
            Flow::ReadBody => Self::ReadBody,
        }
    }
}

/// The result of `header_filter`.
#[derive(Debug, Clone)]
pub enum Filtered {
    Continue,
    /// Replaces the status and the body, and sets the headers of this response. The upstream's other headers stay, and
    /// its body is discarded. The `header_filter` of later plugins still runs.
    Replace(Response),
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

    /// A plugin has chosen a status that no final response has.
    pub fn not_final(status: u16) -> Self {
        Self::new(format!(
            "it sets the status {status}, which no final response has"
        ))
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

impl From<crate::entities::LookupError> for PluginError {
    fn from(error: crate::entities::LookupError) -> Self {
        Self::caused_by("looking up an entity failed", error)
    }
}

/// A set of phases.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Phases(u16);

impl Phases {
    pub const NONE: Phases = Phases(0);
    pub const CERTIFICATE: Phases = Phases(1);
    pub const REWRITE: Phases = Phases(1 << 1);
    pub const ACCESS: Phases = Phases(1 << 2);
    pub const REQUEST_BODY: Phases = Phases(1 << 3);
    pub const RESPONSE: Phases = Phases(1 << 4);
    pub const HEADER_FILTER: Phases = Phases(1 << 5);
    pub const BODY_FILTER: Phases = Phases(1 << 6);
    /// The log phase of HTTP requests and of streams.
    pub const LOG: Phases = Phases::LOG_WITHOUT_HEAD.with(Phases::SENT_HEAD);
    /// The log phase of a plugin that does not read [`crate::LogEntry::response_head`], which is not kept for it.
    pub const LOG_WITHOUT_HEAD: Phases = Phases(1 << 7);
    /// No phase, but part of [`Self::LOG`]: the head of the response is kept for the log phase.
    pub const SENT_HEAD: Phases = Phases(1 << 9);
    pub const PREREAD: Phases = Phases(1 << 8);
    /// No phase: the header filter does nothing, but has a span in requests whose spans are recorded. It runs only for them.
    pub const HEADER_SPAN: Phases = Phases(1 << 10);
    /// The phases of a request after access.
    pub const LATER: Phases = Phases::REQUEST_BODY
        .with(Phases::RESPONSE)
        .with(Phases::HEADER_FILTER)
        .with(Phases::HEADER_SPAN)
        .with(Phases::BODY_FILTER)
        .with(Phases::LOG);

    /// The names of the phases, in the order in which they run.
    const NAMES: [&str; 9] = [
        "certificate",
        "rewrite",
        "access",
        "request_body",
        "response",
        "header_filter",
        "body_filter",
        "log",
        "preread",
    ];

    pub const fn with(self, other: Phases) -> Phases {
        Phases(self.0 | other.0)
    }

    pub const fn without(self, other: Phases) -> Phases {
        Phases(self.0 & !other.0)
    }

    /// Whether the two sets have a phase in common.
    #[inline]
    pub const fn intersects(self, other: Phases) -> bool {
        self.0 & other.0 != 0
    }

    /// The names of the phases in the set, in the order in which they run.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let named = Self::NAMES.into_iter().enumerate();
        named.filter_map(move |(bit, name)| (self.0 >> bit & 1 == 1).then_some(name))
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
        formatter.debug_set().entries(self.names()).finish()
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

/// The version that Kong 3.9.1 reports for each of its bundled plugins.
pub const BUNDLED_VERSION: &str = "3.9.1";

/// All properties of a plugin that are not configuration.
pub struct PluginDef {
    pub name: Cow<'static, str>,
    pub version: Cow<'static, str>,
    /// Plugins with a higher priority run earlier. Equal priorities are ordered by name, descending.
    pub priority: i32,
    /// All phases of the plugin. An instance may use fewer of them.
    pub phases: Phases,
    pub scopes: Scopes,
    pub implementation: Implementation,
    /// Finds the setting of a configuration that the plugin does not implement. `None` if it implements all settings.
    pub shortcoming: Option<fn(&model::Value) -> Option<Shortcoming>>,
    /// Finds a setting that works as in Kong, but that probably does something that its author does not intend. `None` if
    /// there is no such setting.
    pub risk: Option<fn(&model::Value) -> Option<Risk>>,
}

impl PluginDef {
    /// The definition of a plugin that is part of the program.
    pub fn bundled<P: Plugin>(
        name: &'static str,
        priority: i32,
        phases: Phases,
        scopes: Scopes,
    ) -> Self {
        Self {
            name: name.into(),
            version: BUNDLED_VERSION.into(),
            priority,
            phases,
            scopes,
            implementation: Implementation::Ready(Arc::new(Erased::<P>(PhantomData))),
            shortcoming: None,
            risk: None,
        }
    }

    /// Sets the function that finds a setting with an effect that is probably not intended.
    #[must_use]
    pub fn with_risk(self, find: fn(&model::Value) -> Option<Risk>) -> Self {
        Self {
            risk: Some(find),
            ..self
        }
    }

    /// Sets the function that finds a setting of a configuration that the plugin does not implement.
    #[must_use]
    pub fn with_shortcoming(self, find: fn(&model::Value) -> Option<Shortcoming>) -> Self {
        Self {
            shortcoming: Some(find),
            ..self
        }
    }

    /// Whether a configured plugin takes part in requests. Disabled plugins, those for other protocols and those in scopes
    /// that their plugin refuses are as if absent.
    pub fn applies(&self, plugin: &model::entities::Plugin) -> bool {
        let is_http = plugin.protocols.iter().any(|protocol| protocol.is_http());
        plugin.enabled && is_http && self.allows_scope_of(plugin)
    }

    /// Whether a configured plugin takes part in TCP, TLS and UDP sessions. A session has no consumer.
    pub fn applies_to_streams(&self, plugin: &model::entities::Plugin) -> bool {
        let is_stream = plugin.protocols.iter().any(|protocol| !protocol.is_http());
        plugin.enabled && is_stream && plugin.consumer.is_none() && self.allows_scope_of(plugin)
    }

    /// Whether the plugin accepts the scope of a configured plugin.
    pub fn allows_scope_of(&self, plugin: &model::entities::Plugin) -> bool {
        (plugin.route.is_none() || self.scopes.route)
            && (plugin.service.is_none() || self.scopes.service)
            && (plugin.consumer.is_none() || self.scopes.consumer)
    }
}

impl fmt::Debug for PluginDef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "plugin {}", self.name)
    }
}

#[derive(Clone)]
pub enum Implementation {
    Ready(Arc<dyn Maker>),
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

/// A setting that a plugin does not implement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shortcoming {
    /// The setting, such as `the policy cluster`.
    pub setting: &'static str,
    /// What the plugin does instead, as a sentence without full stop. `None` if it refuses all requests that it applies
    /// to.
    pub instead: Option<&'static str>,
}

/// A setting that works, but probably not as its author intends. The text is a sentence without full stop that says what
/// the setting does, such as `origins: every website may read responses`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Risk(pub &'static str);

/// Information for building plugins.
pub struct BuildCx<'a> {
    pub identity: &'a NodeIdentity,
    pub lua: &'a LuaSettings,
    /// The life of the instance that is built.
    pub life: &'a Arc<Life>,
}

impl BuildCx<'_> {
    /// Returns a part of the plugin that each worker has for itself.
    pub fn per_worker<T: 'static>(&self) -> PerWorker<T> {
        PerWorker::new(self.life)
    }
}

/// Which Lua code in configurations of plugins may run, and what it sees.
#[derive(Debug, Clone, Default)]
pub struct LuaSettings {
    pub untrusted: UntrustedLua,
    /// Modules that code in the sandbox may load (`untrusted_lua_sandbox_requires`).
    pub sandbox_requires: Arc<[String]>,
    /// Globals that code in the sandbox sees in addition, such as `os.getenv` (`untrusted_lua_sandbox_environment`).
    pub sandbox_environment: Arc<[String]>,
}

/// Whether expressions and code in configurations of plugins may run (`untrusted_lua`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UntrustedLua {
    Off,
    #[default]
    Sandbox,
    On,
}

/// What plugins know about this node before it runs: its identity, and what it records about requests.
#[derive(Debug, Clone, Default)]
pub struct NodeIdentity {
    pub tracing: Tracing,
    pub id: String,
    pub hostname: String,
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("its configuration cannot be read: {0}")]
    Config(String),
    #[error("{field}: {reason}")]
    Field {
        field: Cow<'static, str>,
        reason: String,
    },
}

impl BuildError {
    /// An error of one field, which is named by its path below `config`.
    pub fn field(field: impl Into<Cow<'static, str>>, reason: impl fmt::Display) -> Self {
        Self::Field {
            field: field.into(),
            reason: reason.to_string(),
        }
    }

    /// Reads a plugin's config struct from a configuration that its schema has completed.
    pub fn read_config<T: DeserializeOwned>(config: &model::Value) -> Result<T, BuildError> {
        model::value::from_value(config).map_err(|error| BuildError::Config(error.to_string()))
    }
}

/// Returns the plugin behind an instance, if it is of this type.
pub fn downcast<P: Plugin>(handler: &dyn Handler) -> Option<&P> {
    handler.as_any().downcast_ref()
}
