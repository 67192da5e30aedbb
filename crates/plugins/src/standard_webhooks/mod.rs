//! standard-webhooks: admits only messages that are signed by the rules of Standard Webhooks
//! (<https://www.standardwebhooks.com>). Source of the behaviour: kong/plugins/standard-webhooks/internal.lua.

mod config;

use crate::number;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use config::Config;
use data_encoding::BASE64;
use model::schema::PluginSource;
use plugin::{
    BuildCx, BuildError, Phases, Plugin, PluginDef, PluginError, Request, RequestBody, RequestCx,
    Response, Scopes, Step,
};

pub(crate) const SOURCE: PluginSource =
    PluginSource::plain("standard-webhooks", include_str!("schema.json"));

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<StandardWebhooks>(
        "standard-webhooks",
        760,
        Phases::ACCESS,
        Scopes::NO_CONSUMER,
    )
}

struct StandardWebhooks {
    key: hmac::Key,
    /// Maximum age of a message in seconds.
    tolerance: f64,
}

/// The headers of a message.
struct Message<'r> {
    id: &'r [u8],
    signature: &'r [u8],
    /// Unix time in seconds. 0 if it is not a number.
    time: f64,
}

impl Plugin for StandardWebhooks {
    type Config = Config;
    type Own = ();

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        Ok(Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, config.secret_v1.as_bytes()),
            tolerance: config.tolerance_second as f64,
        })
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        (): &'a mut (),
    ) -> Result<Step<'a>, PluginError> {
        let now = cx.node.clock.since_epoch().as_secs_f64();
        let message = Message::of(cx.request);
        // A time in the future is accepted, as in Kong. One that is not comparable (`nan`) is not.
        let message = message.filter(|message| now - message.time <= self.tolerance);
        let Some(message) = message else {
            return Ok(refusal());
        };
        if matches!(cx.request.body, RequestBody::Unread) {
            return Ok(Step::ReadBody);
        }
        let body = cx.request.body_bytes().filter(|body| !body.is_empty());
        match body {
            Some(body) if self.has_signed(&message, body) => Ok(Step::Continue),
            _ => Ok(refusal()),
        }
    }

    fn needs(&self) -> Option<String> {
        let needs = "a message signed by the rules of Standard Webhooks, else 400";
        Some(needs.to_owned())
    }
}

fn refusal() -> Step<'static> {
    Step::Respond(Response::status_error(400))
}

impl StandardWebhooks {
    /// Whether the signature is that of the message. A list of several signatures never is.
    fn has_signed(&self, message: &Message<'_>, body: &[u8]) -> bool {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(message.id);
        context.update(b".");
        // Kong signs the number that it has read, not the text of the header.
        context.update(number::text(message.time).as_bytes());
        context.update(b".");
        context.update(body);
        let right = format!("v1,{}", BASE64.encode(context.sign().as_ref()));
        verify_slices_are_equal(right.as_bytes(), message.signature).is_ok()
    }
}

impl<'r> Message<'r> {
    fn of(request: &'r Request<'_>) -> Option<Self> {
        let id = request.header("webhook-id")?;
        let signature = request.header("webhook-signature")?;
        let time = request.header("webhook-timestamp")?;
        Some(Self {
            id,
            signature,
            time: tonumber(time).unwrap_or(0.0),
        })
    }
}

/// Reads a number as Lua's `tonumber` does, except for fractions in hexadecimal.
fn tonumber(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?.trim_ascii();
    let digits = text.strip_prefix("0x").or(text.strip_prefix("0X"));
    match digits {
        // `from_str_radix` accepts a sign, which may only be in front of the prefix.
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            Some(u64::from_str_radix(digits, 16).ok()? as f64)
        }
        _ => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests;
