//! response-transformer: changes headers and JSON bodies of responses, also of those that the gateway makes. Source of
//! the behaviour: kong/plugins/response-transformer/handler.lua.
//!
//! A JSON body is held until it is complete, because a rule may concern its last member. Other bodies, event streams
//! among them, pass as they arrive. So this is not done in the phase `response`, which would hold every response.

mod body;
mod config;
mod headers;
mod held;

use config::Config;
use held::{Held, Total};
use model::schema::PluginSource;
use plugin::{
    BuildCx, BuildError, Chunk, Filtered, Node, Phases, Plugin, PluginDef, PluginError, Response,
    ResponseCx, Scopes,
};
use std::sync::{Arc, OnceLock};

pub(crate) const SOURCE: PluginSource =
    PluginSource::plain("response-transformer", include_str!("schema.json"));

pub(crate) fn def() -> PluginDef {
    let phases = Phases::HEADER_FILTER.with(Phases::BODY_FILTER);
    PluginDef::bundled::<ResponseTransformer>("response-transformer", 800, phases, Scopes::ALL)
}

struct ResponseTransformer {
    headers: headers::Rules,
    json: body::Rules,
    total: OnceLock<Arc<Total>>,
}

/// The body of a response that the rules change.
#[derive(Default)]
struct Own {
    held: Option<Held>,
}

impl Plugin for ResponseTransformer {
    type Config = Config;
    type Own = Own;

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        Ok(Self {
            headers: headers::Rules::compile(&config),
            json: body::Rules::compile(&config),
            total: OnceLock::new(),
        })
    }

    fn phases(&self, defined: Phases) -> Phases {
        match (self.headers.is_empty(), self.json.is_empty()) {
            (true, true) => Phases::NONE,
            (false, true) => Phases::HEADER_FILTER,
            (_, false) => defined,
        }
    }

    fn start(&self, node: &Arc<Node>) {
        let total = || (node.shared).get_or_insert("response-transformer", "held", Total::default);
        self.total.get_or_init(total);
    }

    fn header_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: &mut Own,
    ) -> Result<Filtered, PluginError> {
        let changes_body = !self.json.is_empty() && has_json(cx);
        let length = cx.header("content-length").and_then(parsed);
        self.headers.apply(cx);
        if !changes_body {
            return Ok(Filtered::Continue);
        }
        if length.is_some_and(|length| length > held::MOST) {
            // Without the rules, the body could show what they remove.
            return Ok(Filtered::Replace(Response::status_error(502)));
        }
        cx.answer.headers.remove("Content-Length");
        let total = self.total.get();
        let total = total.ok_or_else(|| PluginError::new("it was not started"))?;
        own.held = Some(Held::new(total));
        Ok(Filtered::Continue)
    }

    fn body_filter(
        &self,
        _cx: &mut ResponseCx<'_, '_>,
        own: &mut Own,
        chunk: &mut Chunk,
    ) -> Result<(), PluginError> {
        let Some(held) = &mut own.held else {
            return Ok(());
        };
        if !held.add(&chunk.data) {
            return Err(PluginError::new("a JSON body is too large to be changed"));
        }
        chunk.data.clear();
        if chunk.last {
            let changed = self.json.transform(held.body());
            chunk.data = changed.unwrap_or_else(|| held.body().to_vec()).into();
            own.held = None;
        }
        Ok(())
    }
}

/// Whether the rules for JSON apply to a response. As in Kong, they do not to a compressed body; that one passes as it
/// arrives. The messages of gRPC are no JSON documents, whatever their type says.
fn has_json(cx: &ResponseCx<'_, '_>) -> bool {
    let encoding = cx.header("content-encoding").map(<[u8]>::trim_ascii);
    let is_plain = encoding.is_none_or(|name| name.eq_ignore_ascii_case(b"identity"));
    let mut types = cx.header_lines("content-type");
    is_plain && !cx.request.is_grpc && types.any(is_json)
}

/// Whether a list of content types has one of JSON. Source: kong/plugins/response-transformer/body_transformer.lua
/// is_json_body().
fn is_json(types: &[u8]) -> bool {
    let mut types = types.split(|byte| *byte == b',');
    types.any(|one| {
        let end = memchr::memchr(b';', one).unwrap_or(one.len());
        let name = one[..end].trim_ascii().to_ascii_lowercase();
        let subtype = name.strip_prefix(b"application/");
        subtype.is_some_and(|subtype| subtype == b"json" || subtype.ends_with(b"+json"))
    })
}

fn parsed(length: &[u8]) -> Option<usize> {
    std::str::from_utf8(length).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
