//! What a plugin is: the phases it may take part in, what it sees of a request and of an answer, and how it changes them.
//! API boundary between the data plane (`proxy`), which runs plugins, and `plugins`, which holds the bundled ones.
//!
//! Not here: which instance of a plugin applies to a request and in what order (`proxy::plan`), how an answer is written
//! (`proxy::respond`), and where consumers and credentials live (whoever implements [`Lookup`]).

#![forbid(unsafe_code)]

pub mod args;
pub mod auth;
pub mod base64;
pub mod body;
mod def;
mod edits;
mod log;
mod lookup;
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
