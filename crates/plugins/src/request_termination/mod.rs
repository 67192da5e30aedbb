//! request-termination: responds in place of the upstream, either to all requests or only to those with a trigger.
//! Source of the behaviour: kong/plugins/request-termination/handler.lua.

mod checks;
mod config;
mod echo;
pub(crate) mod source;

use bytes::Bytes;
use config::Config;
use plugin::{
    BodyUse, BuildCx, BuildError, Field, Implementation, Node, Phases, Plugin, PluginDef,
    PluginError, RequestCx, Response, Scopes, Sharing, Step,
};
use std::sync::Arc;

pub(crate) static DEF: PluginDef = PluginDef {
    name: "request-termination",
    priority: 2,
    phases: Phases::ACCESS,
    scopes: Scopes::ALL,
    sharing: Sharing::EqualConfigs,
    implementation: Implementation::Ready(build),
};

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
    node: Node,
}

fn build(
    plugin: &model::entities::Plugin,
    cx: &BuildCx<'_>,
) -> Result<Arc<dyn Plugin>, BuildError> {
    let config: Config = BuildError::read_config(plugin)?;
    let status = config.status_code;
    let message = config
        .message
        .or(default_message(status).map(str::to_owned));
    let answer = match (config.echo, config.body, message) {
        (true, _, message) => Termination::Echo(Box::new(Echo {
            status,
            message,
            node: cx.node.clone(),
        })),
        (false, Some(body), _) => {
            let response = Response::new(status, body);
            Termination::Fixed(match config.content_type {
                Some(content_type) => response.with_header("Content-Type", content_type),
                None => response,
            })
        }
        (false, None, Some(message)) => Termination::Fixed(Response::message(status, &message)),
        (false, None, None) => Termination::Fixed(Response::new(status, Bytes::new())),
    };
    Ok(Arc::new(RequestTermination {
        trigger: config.trigger,
        answer,
    }))
}

impl Plugin for RequestTermination {
    fn access<'a>(&'a self, cx: &'a mut RequestCx<'_>) -> Result<Step<'a>, PluginError> {
        if let Some(trigger) = &self.trigger
            && cx.header_field(trigger) == Field::Absent
            && cx.query_field(trigger) == Field::Absent
        {
            return Ok(Step::Continue);
        }
        let response = match &self.answer {
            Termination::Fixed(response) => response.clone(),
            Termination::Echo(echo) => echo.answer(cx)?,
        };
        Ok(Step::Respond(response))
    }

    fn request_body(&self) -> BodyUse {
        match self.answer {
            Termination::Fixed(_) => BodyUse::Stream,
            Termination::Echo(_) => BodyUse::Buffered,
        }
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
