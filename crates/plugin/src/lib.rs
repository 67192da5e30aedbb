//! The plugin API: the phases of a plugin, the view it has of requests and responses, the changes it can make, and what
//! the node offers to it. This crate is the boundary between the data plane (`proxy`), which runs plugins, and
//! `plugins`, which contains the bundled ones.
//!
//! A plugin implements [`Plugin`]. The contexts are divided by purpose: [`Request`] is the request with the changes that
//! plugins have made to it, [`RequestState`] is what plugins have found out and tell each other, [`Answer`] is the
//! response on its way to the client, and [`Node`] is what outlives requests and configurations.
//!
//! Not here: the choice and order of the instances for a request (`proxy::plugins`), the writing of responses
//! (`proxy::respond`), and the storage of consumers and credentials (implementations of [`Entities`]).

#![forbid(unsafe_code)]

pub mod args;
pub mod auth;
pub mod base64;
pub mod body;
mod configured;
mod def;
mod edits;
mod endpoint;
mod entities;
mod handler;
mod log;
mod multipart;
mod node;
pub mod notice;
pub mod redact;
mod request;
mod response;
mod route_slot;
mod stored;
mod stream;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod timed;
pub mod trace;
mod worker_part;

pub use body::{Multipart, ParsedBody, RequestBody};
pub use configured::{Configured, ConfiguredName, ConfiguredNames, NoNames, Scope, ScopeSet};
pub use def::{
    BUNDLED_VERSION, BuildCx, BuildError, Filtered, Flow, Implementation, Lack, LuaSettings,
    NodeIdentity, Phases, Plugin, PluginDef, PluginError, Risk, Scopes, Shortcoming, Step,
    UntrustedLua, Wait, downcast,
};
pub use edits::{
    HeaderChange, HeaderEdits, HeaderLine, HeaderValue, LineValue, TargetEdits, UpstreamEdits,
};
pub use endpoint::{
    Endpoint, EndpointAnswer, EndpointHandler, EndpointOperation, EndpointReply, EndpointRequest,
};
pub use entities::{
    Decode, DecodeAll, Decoded, Entities, Entity, EntityKey, LookupError, NoEntities, Owned,
    ParentKey,
};
pub use handler::{Handler, Maker, OwnSlot, OwnStates};
pub use log::{Frame, Latencies, LogCx, LogEntry, Reason, RecordError, Try, TryEnd, write_entity};
pub use node::{
    BODY_BUFFER, CACHE_SIZE, Connections, CountConnections, Node, NodeParts, WriteMetrics,
};
pub use request::{
    BodyLimit, Capture, Client, Consumer, Credential, EntityRef, Field, InternalRedirect, LogField,
    LogFieldMode, Request, RequestCx, RequestState, RoutedUri, Scheme, ToldCredential, cookie_in,
};
pub use response::{Answer, Chunk, Origin, Response, ResponseBody, ResponseCx};
pub use route_slot::RouteSlot;
pub use services;
pub use stored::Stored;
pub use stream::{
    CertificateCx, EndedStreamCx, StreamConfigured, StreamCx, StreamEnd, StreamEntry, StreamFlow,
    StreamProtocol, StreamSession, StreamStep, StreamWait, TlsInfo,
};
pub use timed::Timed;
pub use trace::{Instrumentations, Trace, TraceId, Tracing};
pub use worker_part::{Life, PerWorker, free_ended_parts, parts_here};

/// Compiles and runs the code of the page about writing plugins.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/writing-plugins.md")]
struct WritingPlugins;
