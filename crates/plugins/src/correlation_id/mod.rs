//! correlation-id: gives each request a header with an id, unless the client has sent one. Source of the behaviour:
//! kong/plugins/correlation-id/handler.lua.

mod config;
mod ids;

use crate::headers::check_name;
use compact_str::CompactString;
use config::{Config, Generator};
use ids::Id;
use model::Value;
use model::schema::PluginSource;
use plugin::{
    BuildCx, BuildError, Filtered, HeaderValue, LogField, LogFieldMode, Node, Phases, Plugin,
    PluginDef, PluginError, Request, RequestCx, ResponseCx, Scopes, Step,
};

pub(crate) const SOURCE: PluginSource =
    PluginSource::plain("correlation-id", include_str!("schema.json"));

pub(crate) fn def() -> PluginDef {
    let phases = Phases::ACCESS.with(Phases::HEADER_FILTER);
    PluginDef::bundled::<CorrelationId>("correlation-id", 100_001, phases, Scopes::ALL)
}

struct CorrelationId {
    header: Option<CompactString>,
    generator: Generator,
    echoes: bool,
}

/// The id of a request, if the response gets it too.
#[derive(Default)]
struct Own {
    id: Option<Id>,
}

impl Plugin for CorrelationId {
    type Config = Config;
    type Own = Own;

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        check_name("header_name", config.header_name.as_deref())?;
        Ok(Self {
            header: config.header_name,
            generator: config.generator,
            echoes: config.echo_downstream,
        })
    }

    fn phases(&self, defined: Phases) -> Phases {
        match (&self.header, self.echoes) {
            (None, _) => Phases::NONE,
            (Some(_), true) => defined,
            (Some(_), false) => Phases::ACCESS,
        }
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        own: &'a mut Own,
    ) -> Result<Step<'a>, PluginError> {
        let Some(name) = &self.header else {
            return Ok(Step::Continue);
        };
        let id = match sent(cx.request, name) {
            Some(id) => id,
            None => {
                let id = self.generate(cx.request, cx.node);
                cx.request.upstream.headers.set(name, &id);
                id
            }
        };
        if !cx.state.is_unlogged {
            cx.state.log_fields.push(LogField {
                key: CompactString::const_new("correlation_id"),
                value: Some(Value::String(CompactString::from_utf8_lossy(id.as_bytes()))),
                mode: LogFieldMode::Set,
            });
        }
        if self.echoes {
            own.id = Some(id);
        }
        Ok(Step::Continue)
    }

    fn header_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: &mut Own,
    ) -> Result<Filtered, PluginError> {
        if let Some(name) = &self.header {
            // Without an id, the request was answered before the access phase.
            let id = own.id.take().or_else(|| sent(cx.request, name));
            let id = id.unwrap_or_else(|| self.generate(cx.request, cx.node));
            cx.answer.headers.set(name, &id);
        }
        Ok(Filtered::Continue)
    }
}

impl CorrelationId {
    fn generate(&self, request: &Request<'_>, node: &Node) -> Id {
        match self.generator {
            Generator::Uuid => ids::random(),
            Generator::Counter => ids::counted(),
            Generator::Tracker => ids::tracker(request, node),
        }
    }
}

/// Returns the id that the client has sent.
fn sent(request: &Request<'_>, name: &str) -> Option<Id> {
    let value = request.first_header_field(name)?;
    (!value.is_empty()).then(|| Id::Sent(HeaderValue::from_untrusted(value)))
}

#[cfg(test)]
mod tests;
