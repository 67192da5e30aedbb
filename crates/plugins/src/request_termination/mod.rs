//! request-termination: responds in place of the upstream, either to all requests or only to those with a trigger.
//! Source of the behaviour: kong/plugins/request-termination/handler.lua.

mod checks;
mod config;
mod echo;
pub(crate) mod source;

use config::Config;
use plugin::{
    BuildCx, BuildError, Field, NodeIdentity, Phases, Plugin, PluginDef, PluginError, RequestBody,
    RequestCx, Response, Scopes, Step,
};

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<RequestTermination>("request-termination", 2, Phases::ACCESS, Scopes::ALL)
}

struct RequestTermination {
    trigger: Option<compact_str::CompactString>,
    answer: Termination,
}

enum Termination {
    Fixed(Response),
    Echo(Box<Echo>),
}

struct Echo {
    status: u16,
    message: Option<String>,
    node: NodeIdentity,
}

impl Plugin for RequestTermination {
    type Config = Config;
    type Own = ();

    fn build(config: Config, cx: &BuildCx<'_>) -> Result<Self, BuildError> {
        let status = config.status_code;
        let message = config
            .message
            .or(default_message(status).map(str::to_owned));
        let answer = match (config.echo, config.body, message) {
            (true, _, message) => Termination::Echo(Box::new(Echo {
                status,
                message,
                node: cx.identity.clone(),
            })),
            (false, Some(body), _) => {
                let response = Response::new(status, body);
                Termination::Fixed(match config.content_type {
                    Some(content_type) => response.with_header("Content-Type", content_type),
                    None => response,
                })
            }
            (false, None, Some(message)) => Termination::Fixed(Response::message(status, &message)),
            (false, None, None) => Termination::Fixed(Response::page(status)),
        };
        Ok(Self {
            trigger: config.trigger,
            answer,
        })
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        (): &'a mut (),
    ) -> Result<Step<'a>, PluginError> {
        if let Some(trigger) = &self.trigger
            && cx.request.header_field(trigger) == Field::Absent
            && cx.request.query_field(trigger) == Field::Absent
        {
            return Ok(Step::Continue);
        }
        let response = match &self.answer {
            Termination::Fixed(response) => response.clone(),
            Termination::Echo(_) if matches!(cx.request.body, RequestBody::Unread) => {
                return Ok(Step::ReadBody);
            }
            Termination::Echo(echo) => echo.answer(&cx)?,
        };
        Ok(Step::Respond(response))
    }
}

/// Returns the default message of a status, if it has one.
fn default_message(status: u16) -> Option<&'static str> {
    match status {
        401 => Some("Unauthorized"),
        404 => Some("Not found"),
        405 => Some("Method not allowed"),
        500 => Some("An unexpected error occurred"),
        502 => Some("Bad Gateway"),
        503 => Some("Service unavailable"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
