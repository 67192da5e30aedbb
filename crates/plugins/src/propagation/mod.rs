//! Trace contexts in the headers of requests, for opentelemetry and zipkin: reads the context that a client sends, in one
//! of several formats, and writes the one that the upstream gets. Source: kong/observability/tracing/propagation/.
//!
//! The headers are collected in one pass, and most requests have none of them. Whatever a client sends, the work is
//! bounded by the size of the head, and ids have 16 and 8 bytes.

pub mod b3;
mod config;
pub mod fields;
mod formats;
mod inject;
#[cfg(test)]
mod tests;

pub use config::{Config, HeaderType, Propagation};
pub use inject::Outgoing;

use fastrand::Rng;
use net::id::random_seed;
use plugin::trace::{IdForm, TraceId};
use serde::Deserialize;
use std::cell::RefCell;

/// The format of the headers of a trace context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    W3c,
    B3,
    B3Single,
    Jaeger,
    Ot,
    Datadog,
    Aws,
    Gcp,
}

impl Format {
    /// The form of the trace id in log records.
    pub(super) fn id_form(self) -> IdForm {
        match self {
            Self::W3c => IdForm::W3c,
            Self::B3 | Self::B3Single => IdForm::B3,
            Self::Jaeger => IdForm::Jaeger,
            Self::Ot => IdForm::Ot,
            Self::Datadog => IdForm::Datadog,
            Self::Aws => IdForm::Aws,
            Self::Gcp => IdForm::Gcp,
        }
    }

    /// Whether the client's span is also the gateway's: client and server share one span in these systems.
    fn shares_span(self) -> bool {
        matches!(self, Self::B3 | Self::B3Single | Self::Jaeger)
    }
}

/// The trace context that a client has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incoming {
    pub format: Format,
    pub trace: Option<TraceId>,
    /// The client's span.
    pub span: Option<u64>,
    /// The parent of the client's span.
    pub parent: Option<u64>,
    /// Whether the client samples the trace, if it has decided.
    pub sampled: Option<bool>,
    /// Whether the client asks for a debug trace (b3).
    pub debug: bool,
}

impl Incoming {
    fn new(format: Format) -> Self {
        Self {
            format,
            trace: None,
            span: None,
            parent: None,
            sampled: None,
            debug: false,
        }
    }

    /// Whether the server's span is the client's.
    pub fn shares_span(&self) -> bool {
        self.format.shares_span() && self.span.is_some()
    }
}

thread_local! {
    /// Two sequences with independent seeds, so that trace ids of many nodes do not meet.
    static IDS: RefCell<[Rng; 2]> = RefCell::new([(); 2].map(|()| Rng::with_seed(random_seed())));
}

/// Returns a random trace id, which is not zero.
pub fn random_trace(is_short: bool) -> TraceId {
    let low = random_span();
    let high = match is_short {
        true => 0,
        false => IDS.with_borrow_mut(|[_, high]| high.u64(..)),
    };
    TraceId {
        number: u128::from(high) << 64 | u128::from(low),
        is_short,
    }
}

/// Returns a random span id, which is not zero.
pub fn random_span() -> u64 {
    IDS.with_borrow_mut(|[low, _]| low.u64(1..))
}
