//! `GET /debug/pprof/profile` and `GET /debug/pprof/heap`: profiles of the running program. The paths are those that
//! tools for pprof and continuous profilers ask by default.

use crate::request::Call;
use crate::respond::{ApiResult, Failure};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::IntoResponse;

/// Prefix of the paths. Their requests slow the node down, so the role read-only may not send them.
pub(crate) const PATHS: &str = "/debug/pprof/";

/// Why there is no profile of the heap, and what to do.
const NO_HEAP: &str = "this program has no heap profile: its allocator (mimalloc) does not record which code allocates. \
    `perf record -e page-faults --call-graph dwarf -p PID` on the machine shows which code makes memory grow; \
    `process_resident_memory_bytes`, `silverback_lua_memory_bytes` and `silverback_store_bytes` of /metrics show how much";

/// A wanted profile of CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfileOrder {
    /// Duration. `None` for the usual one.
    pub seconds: Option<u32>,
    /// Samples per second. `None` for the usual number.
    pub frequency: Option<u32>,
    pub format: ProfileFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProfileFormat {
    /// Compressed protobuf.
    Pprof,
    /// A flame graph.
    Svg,
    /// A line of text for each stack.
    Folded,
}

impl ProfileFormat {
    const NAMES: [(&str, Self); 3] = [
        ("pprof", Self::Pprof),
        ("svg", Self::Svg),
        ("folded", Self::Folded),
    ];

    fn content_type(self) -> &'static str {
        match self {
            Self::Pprof => "application/octet-stream",
            Self::Svg => "image/svg+xml",
            Self::Folded => "text/plain; charset=utf-8",
        }
    }

    /// Browsers show a picture, and save the other formats.
    fn disposition(self) -> &'static str {
        match self {
            Self::Pprof => "attachment; filename=\"profile.pb.gz\"",
            Self::Svg | Self::Folded => "inline",
        }
    }
}

pub(crate) async fn cpu(call: &Call<'_>) -> ApiResult {
    let order = ProfileOrder {
        seconds: number(call, "seconds")?,
        frequency: number(call, "frequency")?,
        format: format(call)?,
    };
    let bytes = call.control.profile(order).await?;
    let headers = [
        (CONTENT_TYPE, order.format.content_type()),
        (CONTENT_DISPOSITION, order.format.disposition()),
        (CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, bytes).into_response())
}

pub(crate) fn heap() -> ApiResult {
    Err(Failure::Message(
        StatusCode::NOT_IMPLEMENTED,
        NO_HEAP.into(),
    ))
}

fn number(call: &Call<'_>, name: &str) -> Result<Option<u32>, Failure> {
    let Some(text) = call.query(name) else {
        return Ok(None);
    };
    let parsed = text.parse().map(Some);
    parsed.map_err(|_| Failure::bad_request(format!("{name} must be a whole number")))
}

fn format(call: &Call<'_>) -> Result<ProfileFormat, Failure> {
    let text = call.query("format").unwrap_or("pprof");
    let known = ProfileFormat::NAMES.iter().find(|(name, _)| *name == text);
    known
        .map(|(_, format)| *format)
        .ok_or_else(|| Failure::bad_request("format must be pprof, svg or folded"))
}
