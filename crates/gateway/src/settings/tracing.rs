//! The settings of tracing and of request debugging.

use super::raw::RawSettings;
use super::{flag, number, texts};
use plugin::{Instrumentations, Tracing};

/// Who may ask for the timings of a request (`request_debug`).
#[derive(Debug, Clone)]
pub(crate) struct RequestDebug {
    pub(crate) is_on: bool,
    /// The token of clients on other machines. Empty: a new one at each start.
    pub(crate) token: String,
}

pub(super) fn tracing(raw: &mut RawSettings) -> Tracing {
    const SETTING: &str = "tracing_instrumentations";
    let mut instrumentations = Instrumentations::NONE;
    for name in texts(raw, SETTING) {
        match Instrumentations::parse(&name) {
            // The root span belongs to each instrumentation.
            Some(set) if !set.is_empty() => {
                instrumentations = instrumentations.with(set).with(Instrumentations::REQUEST);
            }
            Some(_) => {}
            None => raw.problem(SETTING, format!("invalid tracing type: {name}")),
        }
    }
    Tracing {
        instrumentations,
        sampling_rate: number(raw, "tracing_sampling_rate"),
    }
}

pub(super) fn request_debug(raw: &RawSettings) -> RequestDebug {
    RequestDebug {
        is_on: flag(raw, "request_debug"),
        token: raw
            .text("request_debug_token")
            .unwrap_or_default()
            .to_owned(),
    }
}
