//! request-size-limiting: refuses requests with large bodies. Source of the behaviour:
//! kong/plugins/request-size-limiting/handler.lua.
//!
//! Kong reads a body without a length to its end and then measures it. Here the gateway counts it as it arrives
//! ([`BodyLimit`]), so nothing is read after the limit, and a body need not be in memory or on disk.

mod config;

use config::Config;
use model::schema::PluginSource;
use net::http1::{Framing, KnownHeader};
use plugin::{
    BodyLimit, BuildCx, BuildError, Phases, Plugin, PluginDef, PluginError, Request, RequestBody,
    RequestCx, Response, Scopes, Step,
};

pub(crate) const SOURCE: PluginSource =
    PluginSource::plain("request-size-limiting", include_str!("schema.json"));

pub(crate) fn def() -> PluginDef {
    let name = "request-size-limiting";
    PluginDef::bundled::<RequestSizeLimiting>(name, 951, Phases::ACCESS, Scopes::ALL)
}

struct RequestSizeLimiting {
    /// Maximum payload in bytes. `None` for a negative limit, which every body exceeds.
    most: Option<u64>,
    requires_length: bool,
}

impl Plugin for RequestSizeLimiting {
    type Config = Config;
    type Own = ();

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        Ok(Self {
            most: u64::try_from(config.bytes()).ok(),
            requires_length: config.require_content_length,
        })
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        (): &'a mut (),
    ) -> Result<Step<'a>, PluginError> {
        let request = cx.request;
        let head = request.head;
        let is_stated = head.known(KnownHeader::ContentLength).next().is_some();
        let is_chunked = head.framing() == Framing::Chunked && !request.http2;
        if self.requires_length && !is_stated && !is_chunked {
            let refusal = Response::error(411, "A valid Content-Length header is required");
            return Ok(Step::Respond(refusal));
        }
        let is_too_large = match (head.framing(), &request.body) {
            // A body of no length is as long as a limit of zero allows.
            (Framing::None, _) => is_stated && self.most.is_none(),
            (Framing::Length(length), _) => self.is_less_than(length),
            (_, RequestBody::Whole(body)) => self.is_less_than(body.len() as u64),
            (Framing::Chunked | Framing::Close, _) => match self.most {
                None => true,
                Some(most) => {
                    let refusal = refusal(request);
                    cx.state.body_limit = Some(Box::new(BodyLimit { most, refusal }));
                    false
                }
            },
        };
        if is_too_large {
            return Ok(Step::Respond(refusal(request)));
        }
        Ok(Step::Continue)
    }

    fn needs(&self) -> Option<String> {
        let most = self.most.unwrap_or_default();
        Some(format!("a body of at most {most} bytes, else 413"))
    }
}

impl RequestSizeLimiting {
    /// Whether the limit is less than this.
    fn is_less_than(&self, length: u64) -> bool {
        self.most.is_none_or(|most| length > most)
    }
}

/// Returns the response to a body that is too large. A client that waits for permission to send it gets another status.
fn refusal(request: &Request<'_>) -> Response {
    let expected = request.header("expect").map(<[u8]>::trim_ascii);
    let waits = expected.is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"));
    let status = if waits { 417 } else { 413 };
    Response::error(status, "Request size limit exceeded")
}

#[cfg(test)]
mod tests;
