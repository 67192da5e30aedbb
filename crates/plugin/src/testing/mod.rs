//! A harness that tests plugins alone, without connections, routes and a store. It is compiled with the feature
//! `testing`, which only tests enable.
//!
//! A [`Case`] is one or more configured plugins on a [`FakeEntities`] node. Each [`Call`] of it runs a request through
//! all phases, and its [`Outcome`] shows what the upstream, the client and the log phase get. Instances live as long as
//! the case, so that several requests in a row meet the same plugins and the same node.
//!
//! ```
//! use plugin::testing::{Case, Upstream};
//! use plugin::{
//!     BuildCx, BuildError, Filtered, Phases, Plugin, PluginDef, PluginError, ResponseCx, Scopes,
//! };
//! use serde_json::json;
//!
//! #[derive(serde::Deserialize)]
//! struct Config {
//!     text: String,
//! }
//!
//! struct Greeting(Config);
//!
//! impl Plugin for Greeting {
//!     type Config = Config;
//!     type Own = ();
//!
//!     fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
//!         Ok(Self(config))
//!     }
//!
//!     fn header_filter(
//!         &self,
//!         cx: &mut ResponseCx<'_, '_>,
//!         (): &mut (),
//!     ) -> Result<Filtered, PluginError> {
//!         cx.answer.headers.set("X-Greeting", &*self.0.text);
//!         Ok(Filtered::Continue)
//!     }
//! }
//!
//! let def = PluginDef::bundled::<Greeting>("greeting", 1, Phases::HEADER_FILTER, Scopes::ALL);
//! // A plugin with a schema uses `Case::new`, which completes the configuration.
//! let case = Case::complete(def, json!({"text": "hello"}));
//! let outcome = case
//!     .request("GET /a?x=1")
//!     .header("Accept", "text/plain")
//!     .answered(Upstream::new(200).body("from the upstream"))
//!     .run_now();
//! assert_eq!(outcome.client.header("x-greeting"), Some("hello"));
//! assert_eq!(outcome.client.body, "from the upstream");
//! ```
//!
//! The phases run as `proxy::plugins::Chain` and the sessions around it run them. This crate cannot use the chain
//! itself, because the chain walks the plans of a snapshot. A test of the data plane compares the two. What only the
//! data plane does is left out: routing, the choice of a target, forwarding headers, Kong's own headers, and the formats
//! of errors (they are JSON here, whatever the client accepts).

mod answering;
mod call;
mod case;
mod entities;
mod outcome;
mod run;
#[cfg(test)]
mod tests;

pub use call::{Call, Upstream};
pub use case::{Case, ROUTE, SERVICE, completed, refusal};
pub use entities::FakeEntities;
pub use outcome::{Failure, Headers, Logged, Outcome, Received, Sent};
