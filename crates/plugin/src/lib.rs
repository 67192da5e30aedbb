//! The plugin API: the phases of a plugin, the view it has of requests and responses, and the changes it can make. This
//! crate is the boundary between the data plane (`proxy`), which runs plugins, and `plugins`, which contains the
//! bundled ones.
//!
//! Not here: the choice and order of the instances for a request (`proxy::plan`), the writing of responses
//! (`proxy::respond`), and the storage of consumers and credentials (implementations of [`Lookup`]).

#![forbid(unsafe_code)]

pub mod args;
pub mod auth;
pub mod base64;
pub mod body;
mod def;
mod edits;
mod log;
mod lookup;
mod multipart;
pub mod notice;
mod request;
mod response;

pub use body::{ParsedBody, RequestBody};
pub use def::{
    BodyUse, BuildCx, BuildError, BuildFn, Flow, Implementation, Lack, Node, Phases, Plugin,
    PluginDef, PluginError, Scopes, Sharing, Step, Wait,
};
pub use edits::{HeaderChange, HeaderEdits, HeaderValue, UpstreamEdits};
pub use log::{Latencies, LogEntry, Try, TryEnd};
pub use lookup::{KeyOwner, Lookup, LookupError, NoLookup};
pub use request::{Capture, Client, Consumer, Credential, EntityRef, Field, RequestCx, Scheme};
pub use response::{Chunk, Origin, Response, ResponseBody, ResponseCx};
