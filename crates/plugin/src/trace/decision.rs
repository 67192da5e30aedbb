//! What a tracing plugin has decided about the trace of a request.

use super::{IdForm, TraceId};
use serde::Deserialize;

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
    pub fn id_form(self) -> IdForm {
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
}

/// The ids of a request in its trace, and whether its spans are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    pub trace: TraceId,
    /// Whether `trace` is the client's.
    pub is_foreign: bool,
    /// The client's span, if the trace is the client's.
    pub parent: Option<u64>,
    /// The format of the client's context, if it has sent one.
    pub format: Option<Format>,
    /// Whether the client has decided about sampling.
    pub is_told: bool,
    /// Whether the client asks for a debug trace.
    pub debug: bool,
    /// The root span.
    pub root: u64,
    /// The span of the last try.
    pub last_try: u64,
    pub sampled: bool,
    /// Whether the decision was made before the access phases. It counts if that of its plugin runs.
    pub is_early: bool,
}
