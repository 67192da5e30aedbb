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
pub use plugin::trace::Format;
use plugin::trace::TraceId;
use std::cell::RefCell;

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

    /// Whether the server's span is the client's: client and server share one span in some systems.
    pub fn shares_span(&self) -> bool {
        let shares = matches!(self.format, Format::B3 | Format::B3Single | Format::Jaeger);
        shares && self.span.is_some()
    }
}

thread_local! {
    static IDS: RefCell<Option<RandomIds>> = const { RefCell::new(None) };
}

/// Random ids. Trace ids are made of two sequences with independent seeds, so that those of many nodes do not meet.
pub struct RandomIds {
    low: SpanIds,
    high: Rng,
}

impl RandomIds {
    /// Draws from the ids of this thread.
    #[inline]
    pub fn draw<T>(draw: impl FnOnce(&mut Self) -> T) -> T {
        IDS.with_borrow_mut(|ids| draw(ids.get_or_insert_with(Self::new)))
    }

    #[cold]
    fn new() -> Self {
        Self {
            low: SpanIds(Rng::with_seed(random_seed())),
            high: Rng::with_seed(random_seed()),
        }
    }

    /// Returns a trace id, which is not zero.
    #[inline]
    pub fn trace(&mut self, is_short: bool) -> TraceId {
        let high = if is_short { 0 } else { self.high.u64(..) };
        TraceId {
            number: u128::from(high) << 64 | u128::from(self.low.next_id()),
            is_short,
        }
    }

    #[inline]
    pub fn span(&mut self) -> u64 {
        self.low.next_id()
    }

    /// Returns a sequence of its own for the spans of a request.
    #[inline]
    pub fn spans(&mut self) -> SpanIds {
        SpanIds(self.low.0.fork())
    }
}

/// Random span ids.
pub struct SpanIds(Rng);

impl SpanIds {
    /// Returns a span id, which is not zero.
    #[inline]
    pub fn next_id(&mut self) -> u64 {
        self.0.u64(..).max(1)
    }
}
