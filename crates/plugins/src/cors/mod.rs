//! cors: lets scripts of other origins use a service, and answers the preflight requests of their browsers. Source of
//! the behaviour: kong/plugins/cors/handler.lua.

mod config;
mod origins;

use crate::number;
use config::Config;
use model::Value;
use model::schema::PluginSource;
use origins::{Origins, normal};
use plugin::{
    BuildCx, BuildError, Filtered, HeaderEdits, HeaderLine, HeaderValue, Phases, Plugin, PluginDef,
    PluginError, Request, RequestCx, Response, ResponseCx, Risk, Scopes, Step,
};

pub(crate) const SOURCE: PluginSource = PluginSource::plain("cors", include_str!("schema.json"));

pub(crate) fn def() -> PluginDef {
    let phases = Phases::ACCESS.with(Phases::HEADER_FILTER);
    PluginDef::bundled::<Cors>("cors", 2_000, phases, Scopes::NO_CONSUMER).with_risk(risk)
}

const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";

struct Cors {
    origins: Origins,
    credentials: bool,
    private_network: bool,
    preflight_continue: bool,
    allows_credentials: HeaderLine,
    varies_by_origin: HeaderLine,
    /// `Access-Control-Allow-Origin: *`.
    allows_all: HeaderLine,
    /// The line of the only origin.
    allows_fixed: Option<HeaderLine>,
    /// `Access-Control-Expose-Headers`.
    exposed: Option<HeaderLine>,
    /// `Access-Control-Allow-Headers`. `None` for what the request asks for.
    headers: Option<HeaderLine>,
    /// `Access-Control-Allow-Methods`.
    methods: Option<HeaderLine>,
    /// `Access-Control-Max-Age`.
    max_age: Option<HeaderLine>,
}

/// Whether the request is a preflight request. Its response gets no further headers.
#[derive(Default)]
struct Own {
    is_preflight: bool,
}

/// How a response says on what it depends.
#[derive(Debug, Clone, Copy)]
enum Vary {
    Set,
    Add,
}

impl Plugin for Cors {
    type Config = Config;
    type Own = Own;

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        let list = |name: &str, listed: Option<Vec<String>>| {
            let listed = listed.filter(|listed| !listed.is_empty());
            listed.map(|listed| HeaderLine::new(name, &HeaderValue::from_text(&listed.join(","))))
        };
        let fixed = |name: &str, value| HeaderLine::new(name, &HeaderValue::from_static(value));
        let origins = Origins::compile(config.origins.as_deref().unwrap_or_default())?;
        Ok(Self {
            allows_credentials: fixed("Access-Control-Allow-Credentials", "true"),
            varies_by_origin: fixed("Vary", "Origin"),
            allows_all: fixed(ALLOW_ORIGIN, "*"),
            allows_fixed: match &origins {
                Origins::Fixed(origin) => Some(HeaderLine::new(ALLOW_ORIGIN, origin)),
                Origins::All | Origins::Listed(_) => None,
            },
            origins,
            credentials: config.credentials,
            private_network: config.private_network,
            preflight_continue: config.preflight_continue,
            exposed: list("Access-Control-Expose-Headers", config.exposed_headers),
            headers: list("Access-Control-Allow-Headers", config.headers),
            methods: list("Access-Control-Allow-Methods", config.methods),
            max_age: config.max_age.map(|age| {
                HeaderLine::new(
                    "Access-Control-Max-Age",
                    &HeaderValue::Text(number::text(age)),
                )
            }),
        })
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        own: &'a mut Own,
    ) -> Result<Step<'a>, PluginError> {
        let request = &*cx.request;
        if request.method_bytes() != b"OPTIONS"
            || request.header("origin").is_none()
            || request.header("access-control-request-method").is_none()
        {
            return Ok(Step::Continue);
        }
        own.is_preflight = true;
        if self.preflight_continue {
            return Ok(Step::Continue);
        }
        Ok(Step::Respond(self.preflight(request)))
    }

    fn header_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: &mut Own,
    ) -> Result<Filtered, PluginError> {
        if own.is_preflight {
            return Ok(Filtered::Continue);
        }
        let headers = &mut cx.answer.headers;
        self.allow(cx.request, headers, Vary::Add);
        if let Some(exposed) = &self.exposed {
            headers.set_line(exposed);
        }
        Ok(Filtered::Continue)
    }
}

impl Cors {
    fn preflight(&self, request: &Request<'_>) -> Response {
        let mut response = Response::new(200, "");
        let headers = &mut response.headers;
        self.allow(request, headers, Vary::Set);
        if let Some(allowed) = &self.headers {
            headers.set_line(allowed);
        } else if let Some(asked) = request.header("access-control-request-headers") {
            let asked = HeaderValue::from_untrusted(asked);
            headers.set("Access-Control-Allow-Headers", asked);
        }
        if let Some(methods) = &self.methods {
            headers.set_line(methods);
        }
        if let Some(age) = &self.max_age {
            headers.set_line(age);
        }
        let asks = request.header("access-control-request-private-network");
        if self.private_network && asks == Some(b"true") {
            let yes = HeaderValue::from_static("true");
            headers.set("Access-Control-Allow-Private-Network", yes);
        }
        response
    }

    /// Sets the headers that preflight requests and other requests have in common.
    fn allow(&self, request: &Request<'_>, headers: &mut HeaderEdits, vary: Vary) {
        let allows_all = self.allow_origin(request, headers, vary);
        if !self.credentials {
            return;
        }
        if allows_all {
            // Browsers refuse `*` for requests with credentials.
            let Some(origin) = request.header("origin") else {
                return;
            };
            headers.set(ALLOW_ORIGIN, HeaderValue::from_untrusted(origin));
            // A list with a star has set it already.
            if matches!(self.origins, Origins::All) {
                self.vary(headers, vary);
            }
        }
        headers.set_line(&self.allows_credentials);
    }

    /// Sets the origin that may read the response. Returns whether that is every origin.
    fn allow_origin(&self, request: &Request<'_>, headers: &mut HeaderEdits, vary: Vary) -> bool {
        if let Some(fixed) = &self.allows_fixed {
            self.vary(headers, vary);
            headers.set_line(fixed);
            return false;
        }
        let Origins::Listed(listed) = &self.origins else {
            headers.set_line(&self.allows_all);
            return true;
        };
        self.vary(headers, vary);
        match request.header("origin") {
            Some(_) if listed.has_star => {
                headers.set_line(&self.allows_all);
                return true;
            }
            Some(origin) => {
                let origin = normal(origin);
                if self.origins.admits(&origin) {
                    headers.set(ALLOW_ORIGIN, HeaderValue::from_untrusted(&origin.origin));
                    return false;
                }
            }
            None => {}
        }
        headers.remove(ALLOW_ORIGIN);
        false
    }

    /// Says that the response depends on the origin.
    fn vary(&self, headers: &mut HeaderEdits, vary: Vary) {
        match vary {
            Vary::Set => headers.set_line(&self.varies_by_origin),
            Vary::Add => headers.add_line(&self.varies_by_origin),
        }
    }
}

/// Finds origins that let more sites read responses than their author probably intends.
fn risk(config: &Value) -> Option<Risk> {
    let config = config.as_object()?;
    let entries = config.get("origins").and_then(Value::as_array);
    let entries = entries.into_iter().flatten().filter_map(Value::as_str);
    let entries: Vec<String> = entries.map(str::to_owned).collect();
    let sends_credentials = config.get("credentials") == Some(&Value::Bool(true));
    if sends_credentials && (entries.is_empty() || entries.iter().any(|entry| entry == "*")) {
        return Some(Risk(
            "every website may send requests with the credentials of its visitors and read the responses, because \
             `credentials` is true and `origins` allows all",
        ));
    }
    let origins = Origins::compile(&entries).ok()?;
    let admits_null = match &origins {
        Origins::All | Origins::Fixed(_) => entries == ["null"],
        Origins::Listed(listed) => !listed.has_star && origins.admits(&normal(b"null")),
    };
    admits_null.then_some(Risk(
        "an entry of `origins` matches the origin null, which every website can have in a sandboxed frame",
    ))
}

#[cfg(test)]
mod tests;
