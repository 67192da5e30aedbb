//! What every exchange has in common, whatever the endpoint: the body is read within its limit, HEAD is GET without a
//! body, and each answer carries Kong's headers (`Server`, `X-Kong-Admin-Latency`, CORS).

use crate::access::Exchange;
use crate::audit::Audited;
use crate::auth::{Caller, Refused};
use crate::control::{Api, Node};
use crate::peer::{Connection, Place};
use crate::respond::{Failure, message};
use crate::state::App;
use axum::body::{Body, BodyDataStream, HttpBody};
use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_ORIGIN, CONNECTION, CONTENT_LENGTH,
    ORIGIN, RETRY_AFTER, SERVER, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use std::time::{Duration, Instant};

static ADMIN_LATENCY: HeaderName = HeaderName::from_static("x-kong-admin-latency");

/// A body is gathered into one buffer, whose first size is no more than this whatever the client announces. Memory that
/// is not written to yet costs nothing; growing a buffer costs a copy and, for a moment, both sizes.
const FIRST_BUFFER: usize = 64 << 20;

/// What is read and thrown away of a body that is too large.
const DRAIN_LIMIT: usize = 256 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// The outermost layer.
pub(crate) async fn exchange(State(app): State<App>, request: Request, next: Next) -> Response {
    let logged = Exchange::begin(&app, &request);
    let origin = request.headers().get(ORIGIN).cloned();
    let head = request.method() == Method::HEAD;
    let (mut parts, body) = request.into_parts();
    let (caller, admitted) = Caller::admit(&app, &parts);
    let audited = Audited::begin(&app, &parts, &caller);
    parts.extensions.insert(caller);
    let request = Request::from_parts(parts, body);
    let (started, mut response) = match receive_of(&app, request, admitted).await {
        Ok(request) => (Instant::now(), work_on(request, next).await),
        Err(refused) => (Instant::now(), refused),
    };
    if let Some(audited) = audited {
        audited.end_with(&response);
    }
    let node = app.control().node();
    decorate(response.headers_mut(), node, started);
    // Kong's Status API knows no other origins.
    if app.api() == Api::Admin {
        allow_origin(response.headers_mut(), node, origin);
    }
    if head {
        keep_head_only(&mut response);
    }
    match logged {
        Some(exchange) => exchange.end_with(response),
        None => response,
    }
}

/// The whole request, of somebody who may make it.
async fn receive_of(
    app: &App,
    request: Request,
    admitted: Result<(), Refused>,
) -> Result<Request, Response> {
    if let Err(refused) = admitted {
        drain(request.into_body().into_data_stream()).await;
        return Err(refused.response());
    }
    receive(app, request).await
}

/// Passes a request on, unless there are too many.
async fn work_on(request: Request, next: Next) -> Response {
    let _place: Option<Place> = match Connection::of(request.extensions()) {
        None => None,
        Some(connection) => match connection.places.request() {
            Some(place) => Some(place),
            None => return too_many(connection.limits.requests),
        },
    };
    next.run(request).await
}

/// HEAD is answered with GET's headers, the length of the body that is left out included (RFC 9110, 8.6).
fn keep_head_only(response: &mut Response) {
    let body = std::mem::take(response.body_mut());
    if let Some(length @ 1..) = body.size_hint().exact() {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
}

/// The request with its whole body at hand, so that latency counts from here and handlers do no I/O.
async fn receive(app: &App, request: Request) -> Result<Request, Response> {
    let limits = Connection::of(request.extensions()).map(|connection| connection.limits);
    let pause = limits.unwrap_or_default().body;
    let (mut parts, body) = request.into_parts();
    if parts.method == Method::HEAD {
        parts.method = Method::GET;
    }
    let node = app.control().node();
    let limit = match parts.uri.path().trim_end_matches('/') {
        "/config" | "/changes" | "/import" => node.max_config_size,
        _ => node.max_body_size,
    };
    let announced = parts
        .headers
        .get("content-length")
        .and_then(|length| length.to_str().ok()?.parse().ok())
        .unwrap_or(0);
    let body = body.into_data_stream();
    let bytes = gather(body, announced, limit, pause).await?;
    Ok(Request::from_parts(parts, Body::from(bytes)))
}

async fn gather(
    mut stream: BodyDataStream,
    announced: usize,
    limit: Option<usize>,
    pause: Duration,
) -> Result<Bytes, Response> {
    let limit = limit.unwrap_or(usize::MAX);
    if announced > limit {
        drain(stream).await;
        return Err(too_large(limit));
    }
    let mut buffer = BytesMut::with_capacity(announced.min(FIRST_BUFFER));
    loop {
        let next = tokio::time::timeout(pause, stream.next()).await;
        let Some(chunk) = next.map_err(|_| too_slow(pause))? else {
            break;
        };
        let chunk = chunk
            .map_err(|_| Failure::bad_request("the request body cannot be read").into_response())?;
        if buffer.len() + chunk.len() > limit {
            drop(buffer);
            drain(stream).await;
            return Err(too_large(limit));
        }
        buffer.extend_from_slice(&chunk);
    }
    Ok(buffer.freeze())
}

/// Reads on for a while: most clients read an answer only after they have sent everything, and closing on them would
/// make the kernel throw the answer away.
async fn drain(mut stream: BodyDataStream) {
    let rest = async {
        let mut left = DRAIN_LIMIT;
        while let Some(Ok(chunk)) = stream.next().await {
            match left.checked_sub(chunk.len()) {
                Some(less) => left = less,
                None => break,
            }
        }
    };
    // Whether it came to its end changes nothing about the answer.
    let _ = tokio::time::timeout(DRAIN_TIME, rest).await;
}

fn too_large(limit: usize) -> Response {
    message(
        StatusCode::PAYLOAD_TOO_LARGE,
        &format!("request body is larger than the limit of {limit} bytes"),
    )
}

fn too_slow(pause: Duration) -> Response {
    let text = format!("nothing of the request body has come for {pause:?}");
    closing(message(StatusCode::REQUEST_TIMEOUT, &text))
}

fn too_many(limit: usize) -> Response {
    let text = format!("{limit} requests are being worked on, which is the limit");
    let mut response = message(StatusCode::SERVICE_UNAVAILABLE, &text);
    let seconds = HeaderValue::from_static("1");
    response.headers_mut().insert(RETRY_AFTER, seconds);
    response
}

/// No other request can follow on the connection.
fn closing(mut response: Response) -> Response {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
}

fn decorate(headers: &mut HeaderMap, node: &Node, started: Instant) {
    if node.server_header
        && let Ok(server) = HeaderValue::from_str(&format!("kong/{}", node.kong_version))
    {
        headers.insert(SERVER, server);
    }
    if node.latency_header {
        let latency = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        headers.insert(ADMIN_LATENCY.clone(), HeaderValue::from(latency));
    }
}

fn allow_origin(headers: &mut HeaderMap, node: &Node, origin: Option<HeaderValue>) {
    if !node.gui_origins.is_empty() {
        headers.insert(VARY, HeaderValue::from_static("Origin"));
    }
    headers.insert(
        ACCESS_CONTROL_ALLOW_ORIGIN,
        allowed_origin(&node.gui_origins, origin),
    );
    headers.insert(
        ACCESS_CONTROL_ALLOW_CREDENTIALS,
        HeaderValue::from_static("true"),
    );
}

/// With a list, an origin on it, else the list's first; without one, whoever asks.
fn allowed_origin(list: &[String], origin: Option<HeaderValue>) -> HeaderValue {
    let any = HeaderValue::from_static("*");
    let Some(first) = list.first() else {
        return origin.unwrap_or(any);
    };
    match origin {
        Some(origin) if list.iter().any(|one| origin == *one) => origin,
        _ => HeaderValue::from_str(first).unwrap_or(any),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_list_the_asking_origin_is_allowed() {
        let asking = HeaderValue::from_static("http://a.test");
        assert_eq!(allowed_origin(&[], Some(asking.clone())), asking);
        assert_eq!(allowed_origin(&[], None), "*");
    }

    #[test]
    fn with_a_list_others_get_its_first_entry() {
        let list = ["http://gui.test".to_owned(), "http://b.test".to_owned()];
        let origin = |text| Some(HeaderValue::from_static(text));
        assert_eq!(
            allowed_origin(&list, origin("http://b.test")),
            "http://b.test"
        );
        assert_eq!(
            allowed_origin(&list, origin("http://evil.test")),
            "http://gui.test"
        );
        assert_eq!(allowed_origin(&list, None), "http://gui.test");
    }
}
