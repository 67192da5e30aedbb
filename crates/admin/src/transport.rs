//! Steps that all endpoints share. Requests are authenticated first. A HEAD request gets the response to GET without
//! the body. Each response gets Kong's headers (`Server`, `X-Kong-Admin-Latency`, CORS).

use crate::access::Exchange;
use crate::audit::{Audited, Later};
use crate::auth::Caller;
use crate::control::{Api, Node};
use crate::receive;
use crate::respond::Failure;
use crate::state::App;
use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_LENGTH, ORIGIN, SERVER,
    VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::time::Instant;

static ADMIN_LATENCY: HeaderName = HeaderName::from_static("x-kong-admin-latency");

/// Time at which the processing of a request began, after its body was received. Stored as an extension of the
/// response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Started(pub(crate) Instant);

/// The outermost layer of the router.
pub(crate) async fn exchange(State(app): State<App>, request: Request, next: Next) -> Response {
    let logged = Exchange::begin(&app, &request);
    let origin = request.headers().get(ORIGIN).cloned();
    let head = request.method() == Method::HEAD;
    let (mut parts, body) = request.into_parts();
    let (caller, admitted) = Caller::admit(&app, &parts);
    let audited = Audited::begin(&app, &parts, &caller);
    parts.extensions.insert(caller);
    if head {
        parts.method = Method::GET;
    }
    let answered = async move {
        match admitted {
            Ok(()) => next.run(Request::from_parts(parts, body)).await,
            Err(refused) => {
                receive::drain(&parts, body).await;
                refused.response()
            }
        }
    };
    let mut response = match audited {
        Some(audited) => write(audited, answered).await,
        None => answered.await,
    };
    let node = app.control().node();
    let started = response.extensions().get::<Started>().copied();
    decorate(response.headers_mut(), node, started);
    // Kong's Status API has no CORS.
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

/// Executes a write and records its outcome in the audit log, whether or not the client waits for it.
async fn write(
    audited: Audited,
    answered: impl Future<Output = Response> + Send + 'static,
) -> Response {
    let written = tokio::spawn(async move {
        let mut response = answered.await;
        // Do not leave `Later` in the response: an import waits for the `Audited` before it sends the last line of its
        // response.
        let later = response.extensions_mut().remove::<Later>();
        audited.end_with(&response, later);
        response
    });
    let written = written.await;
    written.unwrap_or_else(|error| Failure::internal(error).into_response())
}

/// Turns the response to GET into the response to HEAD. The headers stay the same, including `Content-Length`, but the
/// body is removed (RFC 9110, section 8.6).
fn keep_head_only(response: &mut Response) {
    let body = std::mem::take(response.body_mut());
    if let Some(length @ 1..) = body.size_hint().exact() {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
}

fn decorate(headers: &mut HeaderMap, node: &Node, started: Option<Started>) {
    if node.server_header
        && let Ok(server) = HeaderValue::from_str(&format!("kong/{}", node.kong_version))
    {
        headers.insert(SERVER, server);
    }
    if node.latency_header {
        let latency = started.map_or(0, |Started(started)| started.elapsed().as_millis());
        let latency = u64::try_from(latency).unwrap_or(u64::MAX);
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

/// Returns the request's origin if it is on the list, otherwise the first origin on the list. If the list is empty,
/// every origin is allowed.
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
