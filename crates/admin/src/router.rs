//! Builds an axum router from the table of endpoints, and dispatches matched paths to their handlers.

use crate::auth;
use crate::body;
use crate::control::{Api, Control};
use crate::endpoints::{self, Action, Endpoint};
use crate::peer::{Connection, Heavy, Permit, Permits};
use crate::proposal::Preview;
use crate::receive;
use crate::request::{self, Call};
use crate::respond::{ApiResult, Failure, empty, message};
use crate::state::App;
use crate::transport::{self, Started};
use crate::{
    changes, config, entities, explain, extensions, metrics, node, openapi, profiles, reload,
    revisions, schemas, status, tags, token_transfer, transfer,
};
use axum::Router;
use axum::body::{Bytes, HttpBody};
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request};
use axum::http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_REQUEST_HEADERS, ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, RETRY_AFTER,
    WARNING,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;
use store::Origin;
use tokio::runtime::Handle;

/// The Admin API over `control`. Must be called on a tokio runtime.
pub fn router(control: Arc<dyn Control>) -> Router {
    let role = control.node().role;
    let app = App::new(control, Api::Admin);
    let mut endpoints = endpoints::all(role, app.extensions());
    endpoints.extend(endpoints::own());
    assemble(app, endpoints)
}

/// The Status API over `control`.
pub fn status_router(control: Arc<dyn Control>) -> Router {
    let database = control.database();
    assemble(
        App::new(control, Api::Status),
        endpoints::of_status(database),
    )
}

fn assemble(app: App, endpoints: Vec<Endpoint>) -> Router {
    let mut router = Router::new();
    for endpoint in endpoints.into_iter().chain([endpoints::robots()]) {
        let handler = handler(&app, &endpoint);
        if endpoint.path != "/" {
            // Kong ignores a trailing slash.
            router = router.route(&format!("{}/", endpoint.path), handler.clone());
        }
        router = router.route(&endpoint.path, handler);
    }
    router
        .fallback(unknown_path)
        .layer(from_fn_with_state(app, transport::exchange))
}

async fn unknown_path(request: Request) -> Response {
    let (parts, body) = request.into_parts();
    receive::drain(&parts, body).await;
    Failure::not_found().into_response()
}

fn handler(app: &App, endpoint: &Endpoint) -> axum::routing::MethodRouter {
    let (app, methods, action) = (app.clone(), endpoint.methods.clone(), endpoint.action);
    any(
        move |params: Result<RawPathParams, RawPathParamsRejection>, request: Request| {
            serve(app, (methods, action), params, request)
        },
    )
}

/// Handles a request. The body is received only if the response depends on it.
async fn serve(
    app: App,
    (methods, action): (Cow<'static, [&'static str]>, Action),
    params: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let has_body = !body.is_end_stream();
    let asked = match Asked::read(&methods, action, params, &parts, has_body) {
        Ok(asked) => asked,
        Err(response) => {
            receive::drain(&parts, body).await;
            return *response;
        }
    };
    if action == Action::ImportTokens {
        return token_transfer::import(&app, &asked.query, &parts, body).await;
    }
    let bytes = match receive::whole(&app, action, &parts, body).await {
        Ok(bytes) => bytes,
        Err(response) => return response,
    };
    let permits = Connection::of(&parts.extensions).map(|connection| connection.permits.clone());
    let permit = match permits.as_ref().map(Permits::request) {
        Some(None) => return too_many(&parts),
        Some(permit) => permit,
        None => None,
    };
    let started = Started(Instant::now());
    let heavy = heavy(action, &parts, bytes.len());
    let answered = async move {
        let answered = answer(&app, action, asked, &parts, bytes).await;
        answered.unwrap_or_else(Failure::into_response)
    };
    let mut response = match (heavy, permits) {
        (Some(heavy), Some(permits)) => {
            let heavy = permits.heavy(heavy).await;
            off_thread(answered, [permit, heavy]).await
        }
        _ => answered.await,
    };
    response.extensions_mut().insert(started);
    response
}

/// Minimum size of a body that counts as expensive to decode and validate.
const HEAVY_BODY: usize = 64 << 10;

/// Returns the type of an expensive request, which may take long enough to delay other requests; `None` for others.
/// A list page can contain a thousand entities of any size. A validation compiles regexes, and a body of a few
/// kilobytes can contain thousands of them.
fn heavy(action: Action, parts: &Parts, body: usize) -> Option<Heavy> {
    let lists = matches!(
        action,
        Action::Collection(_)
            | Action::Children(_)
            | Action::AllTargets
            | Action::UpstreamHealth
            | Action::Revisions
            | Action::Revision
            | Action::RevisionDiff
            | Action::EntityRevisions(_)
    );
    let validates = matches!(
        action,
        Action::ValidateEntity | Action::ValidatePlugin | Action::ValidateVault
    );
    if validates {
        Some(Heavy::Validation)
    } else if body > HEAVY_BODY || lists && parts.method == Method::GET {
        Some(if auth::writes(parts) {
            Heavy::Write
        } else {
            Heavy::Read
        })
    } else {
        None
    }
}

/// Handles a request on another thread, so that the thread that serves all connections is not blocked. The work
/// continues if the client disconnects, so the request keeps its slots until the work ends.
async fn off_thread(
    answered: impl Future<Output = Response> + Send + 'static,
    permits: [Option<Permit>; 2],
) -> Response {
    let runtime = Handle::current();
    let work = move || {
        let _places = permits;
        runtime.block_on(answered)
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Failure::internal(error).into_response())
}

fn too_many(request: &Parts) -> Response {
    let limit = Connection::of(&request.extensions).map_or(0, |one| one.limits.requests);
    let text = format!("{limit} requests are in progress, which is the limit");
    let mut response = message(StatusCode::SERVICE_UNAVAILABLE, &text);
    let seconds = HeaderValue::from_static("1");
    response.headers_mut().insert(RETRY_AFTER, seconds);
    response
}

/// A request head that is valid for its endpoint.
struct Asked {
    origin: Origin,
    parameters: Vec<(String, String)>,
    query: Vec<(String, Option<String>)>,
}

impl Asked {
    /// Checks the request head. If the head alone determines the response, returns that response as the error.
    fn read(
        methods: &[&'static str],
        action: Action,
        params: Result<RawPathParams, RawPathParamsRejection>,
        parts: &Parts,
        has_body: bool,
    ) -> Result<Self, Box<Response>> {
        let Ok(params) = params else {
            return Err(Failure::bad_request("the path is not valid UTF-8")
                .into_response()
                .into());
        };
        if action == Action::Disabled {
            return Err(Failure::not_found().into_response().into());
        }
        if parts.method == Method::OPTIONS {
            return Err(options(methods, &parts.headers).into());
        }
        let asked = Self {
            origin: request::origin(parts).map_err(boxed)?,
            parameters: (params.iter())
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            query: request::query(parts.uri.query().unwrap_or("")).map_err(boxed)?,
        };
        let method = parts.method.as_str();
        if matches!(method, "POST" | "PUT" | "PATCH") {
            // Without `Content-Length` the body may turn out to be empty, and an empty body needs no content type.
            let content_type = header(parts, CONTENT_TYPE);
            let is_fine = body::accepts(content_type, !has_body, action.takes_yaml())
                || action == Action::ImportTokens && content_type.is_some_and(is_lines);
            let may_be_empty =
                content_type.is_none() && !parts.headers.contains_key(CONTENT_LENGTH);
            if !is_fine && !may_be_empty {
                return Err(action.unsupported_type().into_response().into());
            }
        }
        if !methods.contains(&method) {
            let mut response = Failure::method_not_allowed().into_response();
            response.headers_mut().insert(ALLOW, allowed(methods));
            return Err(response.into());
        }
        Ok(asked)
    }
}

fn is_lines(content_type: &str) -> bool {
    content_type.starts_with(transfer::LINES)
}

fn boxed(failure: Failure) -> Box<Response> {
    failure.into_response().into()
}

fn header(parts: &Parts, name: HeaderName) -> Option<&str> {
    parts.headers.get(name)?.to_str().ok()
}

async fn answer(app: &App, action: Action, asked: Asked, parts: &Parts, bytes: Bytes) -> ApiResult {
    let call = Call {
        app,
        control: app.control(),
        origin: asked.origin,
        made: OnceLock::new(),
        preview: Preview::default(),
        warnings: Mutex::default(),
        method: parts.method.as_str(),
        parameters: asked.parameters,
        query: asked.query,
        content_type: header(parts, CONTENT_TYPE),
        accept: header(parts, ACCEPT),
        accept_encoding: header(parts, ACCEPT_ENCODING),
        bytes,
        permits: Connection::of(&parts.extensions).map(|connection| &connection.permits),
        is_local: Connection::of(&parts.extensions).is_some_and(|connection| connection.is_local()),
    };
    if matches!(call.method, "POST" | "PUT" | "PATCH") {
        call.check_content_type(action)?;
    }
    let mut response = dispatch(&call, action).await?;
    let warnings = call.warnings.into_inner();
    for warning in warnings.unwrap_or_else(PoisonError::into_inner) {
        if let Some(value) = warning_header(&warning) {
            response.headers_mut().append(WARNING, value);
        }
    }
    if let Some(made) = call.made.into_inner() {
        response.extensions_mut().insert(made);
    }
    Ok(response)
}

/// Maximum number of characters in the text of a warning, because names in it come from the client.
const MAX_WARNING_CHARACTERS: usize = 1000;

/// The value of a `Warning` header. A `-` replaces the name of the agent, which is not needed here (RFC 7234,
/// section 5.5).
fn warning_header(text: &str) -> Option<HeaderValue> {
    let allowed = |character: char| match character {
        '"' | '\\' => '\'',
        control if control.is_control() => ' ',
        other => other,
    };
    let mut short: String = text
        .chars()
        .take(MAX_WARNING_CHARACTERS)
        .map(allowed)
        .collect();
    if text.chars().nth(MAX_WARNING_CHARACTERS).is_some() {
        short.push('…');
    }
    HeaderValue::from_bytes(format!("299 - \"{short}\"").as_bytes()).ok()
}

async fn dispatch(call: &Call<'_>, action: Action) -> ApiResult {
    match action {
        Action::Root => node::root(call),
        Action::Status => node::status(call),
        Action::DnsStatus => node::dns_status(call),
        Action::Ready => status::ready(call).await,
        Action::Endpoints => node::endpoints(call),
        Action::OpenApi => Ok(openapi::show(call.app)),
        Action::Timers => node::timers(call),
        Action::LogLevel => node::log_level(call),
        Action::SetLogLevel => node::set_log_level(call),
        Action::Cache => node::cache_purge(),
        Action::CacheKey => node::cache_key(call),
        Action::EnabledPlugins => node::enabled_plugins(call),
        Action::Reload => reload::handle(call).await,
        Action::CpuProfile => profiles::cpu(call).await,
        Action::HeapProfile => profiles::heap(),
        Action::Metrics => metrics::show(call).await,
        Action::Config => config::handle(call).await,
        Action::Import => transfer::import(call).await,
        Action::Export => transfer::show(call).await,
        Action::ExportTokens => token_transfer::export(call).await,
        Action::ImportTokens => Err(Failure::not_found()),
        Action::Schema => schemas::entity(call),
        Action::PluginSchema => schemas::plugin(call),
        Action::PluginConfigSchema => schemas::plugin_config(call),
        Action::VaultSchema => schemas::vault(call),
        Action::FilterSchema => schemas::filter(call),
        Action::ValidateEntity => schemas::validate_entity(call),
        Action::ValidatePlugin => schemas::validate(call, model::EntityKind::Plugins),
        Action::ValidateVault => schemas::validate(call, model::EntityKind::Vaults),
        Action::Tags => tags::all(call),
        Action::Tag => tags::one(call),
        Action::Collection(kind) => entities::collection(call, kind).await,
        Action::Entity(kind) => entities::entity(call, kind).await,
        Action::Children(relation) => entities::children(call, relation).await,
        Action::Child(relation) => entities::child(call, relation).await,
        Action::Referenced(relation) => entities::referenced(call, relation).await,
        Action::AllTargets => entities::all_targets(call),
        Action::UpstreamHealth => entities::health::upstream(call),
        Action::SetTargetHealth { healthy } => entities::health::set_target(call, healthy),
        Action::OfPlugin(at) => extensions::answer(call, at).await,
        Action::ControlPlaneOnly => Err(Failure::bad_request(
            "this endpoint is only available when Kong is configured to run as Control Plane for the cluster",
        )),
        Action::WasmOnly => Err(Failure::bad_request(
            "this endpoint is only available when wasm is enabled",
        )),
        Action::Disabled => Err(Failure::not_found()),
        Action::Changes => changes::apply(call).await,
        Action::Conflicts => explain::conflicts::list(call).await,
        Action::Explain => explain::explain(call).await,
        Action::Revisions => revisions::list(call),
        Action::Revision => revisions::show(call),
        Action::RevisionDiff => revisions::diff(call),
        Action::Rollback => revisions::rollback(call).await,
        Action::EntityRevisions(kind) => revisions::of_entity(call, kind),
        Action::Robots => Ok("User-agent: *\nDisallow: /".into_response()),
    }
}

fn options(methods: &[&str], request: &HeaderMap) -> Response {
    let allow = allowed(methods);
    let headers = request
        .get(ACCESS_CONTROL_REQUEST_HEADERS)
        .cloned()
        .unwrap_or(HeaderValue::from_static("Content-Type"));
    let mut response = empty(StatusCode::NO_CONTENT);
    response.headers_mut().extend([
        (ALLOW, allow.clone()),
        (ACCESS_CONTROL_ALLOW_METHODS, allow),
        (ACCESS_CONTROL_ALLOW_HEADERS, headers),
    ]);
    response
}

fn allowed(methods: &[&str]) -> HeaderValue {
    HeaderValue::from_str(&endpoints::allow(methods)).expect("methods are ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::{Semaphore, oneshot};

    #[tokio::test]
    async fn work_continues_and_keeps_its_slot_when_the_client_disconnects() {
        let permits = Arc::new(Semaphore::new(1));
        let permit = Arc::clone(&permits).try_acquire_owned().ok();
        let (begin, begun) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let work = async move {
            begin.send(()).expect("the test waits for the start");
            ended.await.expect("the test ends the work");
            Response::default()
        };
        tokio::select! {
            _ = off_thread(work, [permit, None]) => panic!("the work ended before the test allowed it"),
            begun = begun => begun.expect("the work starts"),
        }
        assert_eq!(permits.available_permits(), 0);
        end.send(()).expect("the work is still running");
        drop(permits.acquire().await.expect("a permit"));
    }

    #[test]
    fn a_warning_is_one_short_header_whatever_its_text() {
        let header = warning_header("`a\"b\\c\nd` is given twice").expect("a header");
        assert_eq!(header.as_bytes(), b"299 - \"`a'b'c d` is given twice\"");
        let long = warning_header(&"é".repeat(9000)).expect("a header");
        assert!(long.as_bytes().ends_with("é…\"".as_bytes()));
        assert_eq!(long.len(), "299 - \"…\"".len() + 2 * MAX_WARNING_CHARACTERS);
    }
}
