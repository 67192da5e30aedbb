//! request-transformer: changes path, method, headers, body and query of the request for the upstream. Source of the
//! behaviour: kong/plugins/request-transformer/access.lua.
//!
//! All values are computed before the first change is made, so that templates see the request as it was before.

mod arguments;
mod body;
mod checks;
mod config;
mod direct;
mod headers;
mod lua;
mod request;
mod rules;
pub(crate) mod source;
mod template;

use body::{BodyError, Kind};
use bytes::Bytes;
use compact_str::CompactString;
use config::Config;
use direct::Direct;
use headers::{Changes, HeaderError};
use plugin::{
    BuildCx, BuildError, Phases, Plugin, PluginDef, PluginError, Request, RequestBody, RequestCx,
    Response, Scopes, Step, UntrustedLua, args,
};
use request::{RequestParts, View};
use rules::Rules;
use std::cell::RefCell;
use template::Expressions;

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<RequestTransformer>(
        "request-transformer",
        801,
        Phases::ACCESS,
        Scopes::ALL,
    )
}

/// The methods that nginx knows. Kong answers 500 if another one is configured.
const METHODS: [&str; 15] = [
    "GET",
    "HEAD",
    "PUT",
    "POST",
    "DELETE",
    "OPTIONS",
    "MKCOL",
    "COPY",
    "MOVE",
    "PROPFIND",
    "PROPPATCH",
    "LOCK",
    "UNLOCK",
    "PATCH",
    "TRACE",
];

struct RequestTransformer {
    method: Option<Method>,
    rules: Rules,
    /// The rules, if they can be applied without further ado.
    direct: Option<Direct>,
}

struct Method {
    name: CompactString,
    is_known: bool,
    /// Whether the arguments of a form become arguments of the query, because requests with this method have no body.
    moves_form: bool,
}

impl Method {
    fn new(name: String) -> Self {
        Self {
            is_known: METHODS.contains(&&*name),
            moves_form: matches!(&*name, "GET" | "HEAD" | "TRACE"),
            name: name.into(),
        }
    }
}

impl Plugin for RequestTransformer {
    type Config = Config;
    type Own = ();

    fn build(config: Config, cx: &BuildCx<'_>) -> Result<Self, BuildError> {
        let expressions = match cx.lua.untrusted {
            UntrustedLua::Off => Expressions::Off,
            UntrustedLua::Sandbox | UntrustedLua::On => Expressions::Allowed(cx),
        };
        let rules = Rules::compile(&config, expressions);
        let method = config.http_method.map(Method::new);
        Ok(Self {
            direct: match method {
                None => Direct::of(&rules),
                Some(_) => None,
            },
            rules,
            method,
        })
    }

    fn phases(&self, defined: Phases) -> Phases {
        let rules = &self.rules;
        let is_empty = self.method.is_none()
            && rules.uri.is_none()
            && rules.headers.is_empty()
            && rules.body.is_empty()
            && rules.query.is_empty();
        if is_empty { Phases::NONE } else { defined }
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        (): &'a mut (),
    ) -> Result<Step<'a>, PluginError> {
        if let Some(direct) = &self.direct {
            direct.apply(cx.request);
            return Ok(Step::Continue);
        }
        let shared = std::mem::take(&mut cx.state.shared);
        let computed = {
            let parts = RefCell::new(RequestParts {
                state: cx.state,
                configured: cx.configured,
                node: cx.node,
            });
            self.compute(&View {
                request: cx.request,
                shared: &shared,
                interpreter: &parts,
            })
        };
        cx.state.shared = shared;
        match computed {
            Ok(edits) => {
                edits.apply(cx.request);
                Ok(Step::Continue)
            }
            Err(NoEdits::NeedsBody) => Ok(Step::ReadBody),
            Err(NoEdits::Refused(status)) => Ok(Step::Respond(Response::status_error(status))),
            Err(NoEdits::Failed(error)) => Err(error),
        }
    }
}

/// Why the rules give no changes.
#[derive(Debug)]
enum NoEdits {
    /// The body has to be read first.
    NeedsBody,
    /// There are rules for the body, and it cannot be read. If it passed without them, a client could keep a field that
    /// the rules remove, for instance by making the body larger.
    Refused(u16),
    Failed(PluginError),
}

impl From<PluginError> for NoEdits {
    fn from(error: PluginError) -> Self {
        Self::Failed(error)
    }
}

/// The changes to one request.
#[derive(Default)]
struct Edits {
    path: Option<String>,
    method: Option<CompactString>,
    headers: headers::OwnedChanges,
    body: Option<Vec<u8>>,
    query: Option<String>,
}

impl RequestTransformer {
    fn compute(&self, view: &View<'_>) -> Result<Edits, NoEdits> {
        let mut edits = Edits {
            path: self.path(view)?,
            ..Edits::default()
        };
        let mut query = None;
        if let Some(method) = &self.method {
            if !method.is_known {
                let reason = format!("config.http_method: invalid method: {}", method.name);
                return Err(PluginError::new(reason).into());
            }
            edits.method = Some(method.name.clone());
            if method.moves_form && has_form(view.request) {
                if must_read(view.request) {
                    return Err(NoEdits::NeedsBody);
                }
                query = merged_query(view.request);
            }
        }
        let changes = if self.rules.headers.is_empty() {
            Changes::default()
        } else {
            match headers::transform(&self.rules.headers, view, view) {
                Ok(changes) => changes,
                Err(HeaderError::Broken(_)) => return Err(NoEdits::Refused(400)),
                Err(error) => return Err(failed(error).into()),
            }
        };
        if let Some(kind) = self.body_kind(view.request, &changes) {
            if must_read(view.request) {
                return Err(NoEdits::NeedsBody);
            }
            let Some(body) = view.request.body_bytes() else {
                return Err(NoEdits::Refused(413));
            };
            let content_type = content_type(view.request, &changes).unwrap_or_default();
            match body::transform(&self.rules.body, kind, content_type, body, view) {
                Ok(body) => edits.body = body,
                Err(BodyError::Unreadable) => return Err(NoEdits::Refused(400)),
                Err(error) => return Err(failed(error).into()),
            }
        }
        edits.headers = changes.into_owned();
        edits.query = self.query(view, query)?;
        Ok(edits)
    }

    fn path(&self, view: &View<'_>) -> Result<Option<String>, PluginError> {
        let Some(uri) = &self.rules.uri else {
            return Ok(None);
        };
        let path = uri.render(view).map_err(|error| {
            PluginError::caused_by("failed to render config.replace.uri", error)
        })?;
        if path.first() != Some(&b'/') {
            return Err(PluginError::new(
                "config.replace.uri: path must start with /",
            ));
        }
        Ok(Some(args::escape_path(&path)))
    }

    /// The kind of the body, if there are rules for it. Rules for headers may have changed the type.
    fn body_kind(&self, request: &Request<'_>, changes: &Changes<'_>) -> Option<Kind> {
        if self.rules.body.is_empty() {
            return None;
        }
        Kind::of(content_type(request, changes)?)
    }

    /// Returns the changed query. `merged` is the query with the arguments of a form, if it has got some.
    fn query(
        &self,
        view: &View<'_>,
        merged: Option<String>,
    ) -> Result<Option<String>, PluginError> {
        if self.rules.query.is_empty() {
            return Ok(merged);
        }
        let before = merged
            .as_deref()
            .map_or(view.request.query(), str::as_bytes);
        let mut arguments = args::parse_all(before).collect();
        arguments::transform(&self.rules.query, &mut arguments, false, view).map_err(failed)?;
        Ok(Some(arguments::encode(arguments)))
    }
}

impl Edits {
    fn apply(self, request: &mut Request<'_>) {
        let upstream = &mut request.upstream;
        for (name, change) in self.headers {
            upstream.headers.make(name, change);
        }
        if self.path.is_some() {
            upstream.path = self.path;
        }
        if self.method.is_some() {
            upstream.method = self.method;
        }
        if self.query.is_some() {
            upstream.query = self.query.map(String::into_bytes);
        }
        if let Some(body) = self.body {
            upstream.body = Some(Bytes::from(body));
        }
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> PluginError {
    PluginError::caused_by("a rule cannot be applied", error)
}

fn must_read(request: &Request<'_>) -> bool {
    request.body_bytes().is_none() && matches!(request.body, RequestBody::Unread)
}

fn has_form(request: &Request<'_>) -> bool {
    request.header("content-type").and_then(Kind::of) == Some(Kind::Form)
}

fn content_type<'s>(request: &'s Request<'_>, changes: &'s Changes<'_>) -> Option<&'s [u8]> {
    changes.value("content-type", || request.header("content-type"))
}

/// Returns the query with the arguments of the form after its own, or `None` if the form has none.
fn merged_query(request: &Request<'_>) -> Option<String> {
    let form = request.body_bytes()?;
    let mut added = args::parse_all(form).peekable();
    added.peek()?;
    let query = args::parse_all(request.query());
    Some(arguments::encode(query.chain(added).collect()))
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
