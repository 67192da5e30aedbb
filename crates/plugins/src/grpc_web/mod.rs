//! grpc-web: lets browsers call gRPC services. Source of the behaviour: kong/plugins/grpc-web/handler.lua.
//!
//! A binary body passes as it arrives. One in base64 or JSON is read first, so that the client learns what is wrong with
//! it. If it is too large for that, base64 is decoded in pieces.

mod codec;
mod config;
pub(crate) mod source;
mod translate;

use crate::protobuf::{Method, Services};
use bytes::Bytes;
use config::Config;
use plugin::RequestBody as Body;
use plugin::{
    BuildCx, BuildError, Chunk, Filtered, HeaderValue, Origin, Phases, Plugin, PluginDef,
    PluginError, Request, RequestCx, Response, ResponseCx, Scopes, Step, args,
};
use translate::{Encoding, RequestBody, ResponseBody};

pub(crate) fn def() -> PluginDef {
    let phases = Phases::ACCESS
        .with(Phases::REQUEST_BODY)
        .with(Phases::HEADER_FILTER)
        .with(Phases::BODY_FILTER);
    PluginDef::bundled::<GrpcWeb>("grpc-web", 3, phases, Scopes::ALL)
}

const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";

struct GrpcWeb {
    /// The services for requests in JSON. `None` if no file is configured.
    services: Option<Result<Services, String>>,
    pass_stripped_path: bool,
    allow_origin: Option<HeaderValue>,
}

/// The state of a request of gRPC-Web.
#[derive(Default)]
struct Call {
    /// The conversion of a request's body that arrives in pieces.
    request: Option<RequestBody>,
    /// The conversion of the response.
    response: Option<ResponseBody>,
    /// The content type of the request, which the response gets too.
    content_type: Option<HeaderValue>,
}

impl Plugin for GrpcWeb {
    type Config = Config;
    type Own = Call;

    fn build(config: Config, _cx: &BuildCx<'_>) -> Result<Self, BuildError> {
        // Kong accepts a file that is not there, and then fails for the requests that need it.
        let services = config
            .proto
            .map(|file| Services::compile(&file).map_err(|error| format!("config.proto: {error}")));
        Ok(Self {
            services,
            pass_stripped_path: config.pass_stripped_path.unwrap_or(false),
            allow_origin: config
                .allow_origin_header
                .map(|origin| HeaderValue::from_text(&origin)),
        })
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        own: &'a mut Call,
    ) -> Result<Step<'a>, PluginError> {
        let request = cx.request;
        if request.method() == "OPTIONS" {
            return Ok(Step::Respond(self.preflight()));
        }
        if let Some(origin) = &self.allow_origin {
            cx.state.headers.set(ALLOW_ORIGIN, origin);
        }
        let content_type = request.header("content-type").unwrap_or_default();
        let Some(encoding) = Encoding::of(content_type) else {
            return Ok(Step::Respond(refusal(415, "unsupported content type")));
        };
        let method = match encoding.json {
            false => None,
            true => match self.method(request)? {
                Ok(method) => Some(method),
                Err(response) => return Ok(Step::Respond(response)),
            },
        };
        if !encoding.is_plain() && request.body_bytes().is_none() {
            match request.body {
                Body::Unread => return Ok(Step::ReadBody),
                _ if encoding.json => return Ok(Step::Respond(Response::status_error(413))),
                _ => {}
            }
        }
        own.content_type = Some(HeaderValue::from_untrusted(content_type));
        own.response = Some(ResponseBody::new(
            encoding,
            method.map(|method| method.output.clone()),
        ));
        let mut conversion = RequestBody::new(encoding, method.map(|method| method.input.clone()));
        match request.body_bytes() {
            _ if encoding.is_plain() => {}
            None => own.request = Some(conversion),
            Some(body) => match conversion.convert(body, true) {
                Ok(body) => request.set_upstream_body(body),
                Err(error) => return Ok(Step::Respond(refusal(400, &error.to_string()))),
            },
        }
        self.prepare(request, encoding);
        Ok(Step::Continue)
    }

    fn request_body(
        &self,
        _request: &Request<'_>,
        own: &mut Call,
        chunk: &mut Chunk,
    ) -> Result<(), PluginError> {
        if let Some(conversion) = &mut own.request {
            chunk.data = conversion
                .convert(&chunk.data, chunk.last)
                .map_err(|error| PluginError::caused_by("the request cannot be decoded", error))?;
        }
        Ok(())
    }

    fn header_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: &mut Call,
    ) -> Result<Filtered, PluginError> {
        // What is no response of gRPC, such as an error of the gateway, stays as it is.
        if cx.answer.origin != Origin::Upstream || !is_grpc(cx.header("content-type")) {
            *own = Call::default();
        }
        let Some(content_type) = own.content_type.take() else {
            return Ok(Filtered::Continue);
        };
        cx.answer.headers.set("Content-Type", content_type);
        if cx.request.method() != "POST" {
            own.response = None;
        } else {
            cx.answer.headers.remove("Content-Length");
        }
        Ok(Filtered::Continue)
    }

    fn body_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: &mut Call,
        chunk: &mut Chunk,
    ) -> Result<(), PluginError> {
        let Some(conversion) = &mut own.response else {
            return Ok(());
        };
        let failed = |error| PluginError::caused_by("the response cannot be converted", error);
        let mut data = conversion.convert(&chunk.data).map_err(failed)?;
        if chunk.last {
            let end = finish(conversion, cx).map_err(failed)?;
            data = match data.is_empty() {
                true => end,
                false => [data, end].concat().into(),
            };
        }
        chunk.data = data;
        Ok(())
    }
}

impl GrpcWeb {
    /// The response to a preflight request of CORS.
    fn preflight(&self) -> Response {
        let response = Response::new(200, Bytes::from_static(b"OK"))
            .with_header(
                "Content-Type",
                HeaderValue::from_static("application/grpc-web-text+proto"),
            )
            .with_header(
                "Access-Control-Allow-Methods",
                HeaderValue::from_static("POST"),
            )
            .with_header(
                "Access-Control-Allow-Headers",
                HeaderValue::from_static("content-type,x-grpc-web,x-user-agent"),
            );
        match &self.allow_origin {
            Some(origin) => response.with_header(ALLOW_ORIGIN, origin.clone()),
            None => response,
        }
    }

    /// Finds the method that a request in JSON calls, or the response to one that calls none.
    fn method(&self, request: &Request<'_>) -> Result<Result<&Method, Response>, PluginError> {
        let services = match &self.services {
            None => {
                return Ok(Err(refusal(
                    400,
                    "transcoding requests require a .proto file defining the service",
                )));
            }
            Some(Err(error)) => return Err(PluginError::new(error.as_str())),
            Some(Ok(services)) => services,
        };
        let path = String::from_utf8_lossy(self.path(request));
        let unknown = || refusal(400, &format!("Unknown path \"{path}\""));
        Ok(services.method(&path).ok_or_else(unknown))
    }

    /// The path of the method that is called.
    fn path<'r>(&self, request: &'r Request<'_>) -> &'r [u8] {
        match self.pass_stripped_path {
            true => request.upstream_path(),
            false => request.head.path_bytes(),
        }
    }

    /// Makes the request one of gRPC.
    fn prepare(&self, request: &mut Request<'_>, encoding: Encoding) {
        if request.routed.strips && !self.pass_stripped_path {
            // nginx sends the path to gRPC services as it was received.
            request.upstream.path = Some(args::escape_path(request.head.path_bytes()));
        }
        let headers = &mut request.upstream.headers;
        headers.set("Content-Type", HeaderValue::from_static("application/grpc"));
        headers.set("TE", HeaderValue::from_static("trailers"));
        if encoding.json {
            // A compressed message could not be converted to JSON.
            headers.remove("grpc-accept-encoding");
            headers.remove("grpc-encoding");
        }
    }
}

/// Returns the end of a body. The trailers are in it, so they are not sent again after it.
fn finish(
    conversion: &ResponseBody,
    cx: &mut ResponseCx<'_, '_>,
) -> Result<Bytes, translate::TranslateError> {
    let mut trailers = std::mem::take(&mut cx.answer.trailers);
    if trailers.is_empty() {
        // A call without messages may have its status in the head.
        for name in ["grpc-status", "grpc-message", "grpc-status-details-bin"] {
            if let Some(value) = cx.header(name) {
                trailers.push((name.into(), HeaderValue::from_untrusted(value)));
            }
        }
    }
    let pairs = trailers.iter();
    conversion.finish(pairs.map(|(name, value)| (name.as_str(), value.as_bytes())))
}

fn is_grpc(content_type: Option<&[u8]>) -> bool {
    content_type.is_some_and(|name| name.starts_with(b"application/grpc"))
}

fn refusal(status: u16, reason: &str) -> Response {
    Response::new(status, reason.to_owned())
}

#[cfg(test)]
mod tests;
