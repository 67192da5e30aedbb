//! The response that shows the request as it reached the gateway.

use super::Echo;
use model::declarative::DEFAULT_WORKSPACE;
use model::uri::{Slashes, normalize};
use model::{EntityKind, Object, Value};
use plugin::body::{collect_values, text_value};
use plugin::{Capture, EntityRef, PluginError, Request, RequestCx, Response, args};
use std::collections::BTreeMap;

impl Echo {
    pub(super) fn answer(&self, cx: &RequestCx<'_, '_>) -> Result<Response, PluginError> {
        let mut body = Object::new();
        push(
            &mut body,
            "message",
            self.message.as_deref().map(Value::from),
        );
        body.push("kong", self.node());
        body.push("request", request(cx.request));
        let route = entity(cx, EntityKind::Routes, cx.request.route)?;
        push(&mut body, "matched_route", route);
        let service = entity(cx, EntityKind::Services, cx.request.service)?;
        push(&mut body, "matched_service", service);
        Ok(Response::json(self.status, &body))
    }

    fn node(&self) -> Value {
        let mut node = Object::new();
        node.push("node_id", Value::from(&*self.node.id));
        node.push("worker_pid", Value::Int(i64::from(std::process::id())));
        node.push("hostname", Value::from(&*self.node.hostname));
        Value::Object(node)
    }
}

fn push(object: &mut Object, name: &'static str, value: Option<Value>) {
    if let Some(value) = value {
        object.push(name, value);
    }
}

fn request(cx: &Request<'_>) -> Value {
    let mut request = Object::new();
    request.push("scheme", Value::from(cx.scheme.name()));
    request.push("host", Value::from(cx.host));
    request.push("port", Value::Int(i64::from(cx.port)));
    request.push("headers", headers(cx));
    request.push("query", query(cx));
    let parsed = cx.parse_body().map(|body| body.to_value());
    push(&mut request, "body", parsed);
    let raw = cx.body_bytes().map(|body| text_value(body));
    push(&mut request, "raw_body", raw);
    request.push("method", Value::from(cx.method()));
    let path = normalize(cx.head.path().as_bytes(), Slashes::Merge);
    request.push("path", text_value(&path));
    request.push("uri_captures", captures(cx));
    Value::Object(request)
}

fn headers(cx: &Request<'_>) -> Value {
    let pairs: Vec<(String, Value)> = cx
        .first_header_pairs()
        .map(|(name, value)| (name.to_ascii_lowercase(), text_value(value)))
        .collect();
    collect_values(
        pairs
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.clone())),
    )
}

fn query(cx: &Request<'_>) -> Value {
    let args: Vec<args::Arg<'_>> = args::parse(cx.query()).collect();
    collect_values(args.iter().map(|arg| {
        let value = arg.value.as_deref().map_or(Value::Bool(true), text_value);
        (&*arg.name, value)
    }))
}

fn captures(cx: &Request<'_>) -> Value {
    let named = cx.captures.iter().filter_map(|capture| {
        let name = capture.name.as_ref()?;
        Some((name.as_bytes(), Value::from(&*capture.value)))
    });
    let mut captures = Object::new();
    captures.push("named", collect_values(named));
    captures.push("unnamed", numbered(&cx.captures));
    Value::Object(captures)
}

/// Returns the values of the groups, ordered by number. Named groups have a number too. As in Kong, the list ends
/// before the first group that did not take part in the match.
fn numbered(captures: &[Capture]) -> Value {
    let by_number = captures.iter().filter(|capture| capture.name.is_none());
    let by_number: BTreeMap<usize, &str> = by_number
        .map(|capture| (capture.number, &*capture.value))
        .collect();
    let list = (1..).map_while(|number| by_number.get(&number));
    Value::Array(list.map(|value| Value::from(*value)).collect())
}

fn entity(
    cx: &RequestCx<'_, '_>,
    kind: EntityKind,
    reference: Option<EntityRef<'_>>,
) -> Result<Option<Value>, PluginError> {
    let Some(reference) = reference else {
        return Ok(None);
    };
    let entity = cx.node.entities.object(kind, reference.id)?;
    Ok(entity.map(|mut entity| {
        entity.insert("ws_id", Value::from(&*DEFAULT_WORKSPACE.to_string()));
        Value::Object(entity)
    }))
}
