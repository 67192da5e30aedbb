//! From the table of endpoints to an axum router, and from a matched path to its handler.

use crate::control::{Api, Control};
use crate::endpoints::{self, Action, Endpoint};
use crate::proposal::Preview;
use crate::request::{self, Call};
use crate::respond::{Answer, Failure, empty};
use crate::state::App;
use crate::{
    changes, config, entities, explain, metrics, node, openapi, revisions, schemas, status, tags,
    transfer, transport,
};
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{DefaultBodyLimit, RawPathParams};
use axum::http::header::{
    ACCEPT, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_REQUEST_HEADERS, ALLOW, CONTENT_TYPE, WARNING,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use std::sync::{Arc, OnceLock};

/// The whole Admin API over `control`. Must be run on a tokio runtime.
pub fn router(control: Arc<dyn Control>) -> Router {
    let role = control.node().role;
    let mut endpoints = endpoints::all(role);
    endpoints.extend(endpoints::own());
    assemble(App::new(control, Api::Admin), endpoints)
}

/// The Status API over the same.
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
            // A trailing slash is tolerated.
            router = router.route(&format!("{}/", endpoint.path), handler.clone());
        }
        router = router.route(&endpoint.path, handler);
    }
    router
        .fallback(|| async { Failure::not_found() })
        // The transport has read the body within its own limit.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(app, transport::exchange))
}

fn handler(app: &App, endpoint: &Endpoint) -> axum::routing::MethodRouter {
    let (app, methods, action) = (app.clone(), endpoint.methods, endpoint.action);
    any(
        move |params: Result<RawPathParams, RawPathParamsRejection>, parts: Parts, bytes: Bytes| async move {
            let Ok(params) = params else {
                return Failure::bad_request("the path is not valid UTF-8").into_response();
            };
            if parts.method == Method::OPTIONS && action != Action::Disabled {
                return options(methods, &parts.headers);
            }
            let parameters = params
                .iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect();
            answer(&app, methods, action, &parts, parameters, bytes)
                .await
                .unwrap_or_else(Failure::into_response)
        },
    )
}

async fn answer(
    app: &App,
    methods: &[&str],
    action: Action,
    parts: &Parts,
    parameters: Vec<(String, String)>,
    bytes: Bytes,
) -> Answer {
    let header = |name| parts.headers.get(name)?.to_str().ok();
    let call = Call {
        app,
        control: app.control(),
        origin: request::origin(parts)?,
        made: OnceLock::new(),
        preview: Preview::default(),
        warnings: OnceLock::new(),
        method: parts.method.as_str(),
        parameters,
        query: request::query(parts.uri.query().unwrap_or(""))?,
        content_type: header(CONTENT_TYPE),
        accept: header(ACCEPT),
        bytes,
    };
    if matches!(action, Action::Disabled) {
        return Err(Failure::not_found());
    }
    if matches!(call.method, "POST" | "PUT" | "PATCH") {
        call.check_content_type(matches!(action, Action::Config | Action::Import))?;
    }
    if !methods.contains(&call.method) {
        let mut response = Failure::method_not_allowed().into_response();
        response.headers_mut().insert(ALLOW, allowed(methods));
        return Ok(response);
    }
    let mut response = dispatch(&call, action).await?;
    for warning in call.warnings.into_inner().unwrap_or_default() {
        // RFC 9111 section 5.5: what is not said by a cache has no agent.
        let text = warning.replace(['"', '\\'], "'");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
    if let Some(made) = call.made.into_inner() {
        response.extensions_mut().insert(made);
    }
    Ok(response)
}

async fn dispatch(call: &Call<'_>, action: Action) -> Answer {
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
        Action::Metrics => Ok(metrics::show(call.control)),
        Action::Config => config::handle(call).await,
        Action::Import => transfer::import(call).await,
        Action::Export => transfer::show(call),
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
