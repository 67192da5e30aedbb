//! ip-restriction: admits or refuses clients by their address, for requests and for TCP, TLS and UDP sessions. Source of
//! the behaviour: kong/plugins/ip-restriction/handler.lua.

mod config;
mod ranges;

use config::Config;
use model::schema::PluginSource;
use plugin::{
    BuildCx, BuildError, Phases, Plugin, PluginDef, PluginError, RequestCx, Response, Scopes, Step,
    StreamCx, StreamEnd, StreamStep,
};
use ranges::Ranges;
use std::net::IpAddr;

pub(crate) const SOURCE: PluginSource =
    PluginSource::plain("ip-restriction", include_str!("schema.json"));

pub(crate) fn def() -> PluginDef {
    let phases = Phases::ACCESS.with(Phases::PREREAD);
    PluginDef::bundled::<IpRestriction>("ip-restriction", 990, phases, Scopes::ALL)
}

struct IpRestriction {
    allow: Ranges,
    deny: Ranges,
    /// Status of a refusal. `None` if the configured one is not an error, which gives 500 as in Kong.
    status: Option<u16>,
    message: Option<String>,
}

impl Plugin for IpRestriction {
    type Config = Config;
    type Own = ();

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        let list = |entries: &Option<Vec<String>>| entries.clone().unwrap_or_default();
        let is_error = |status: &f64| (400.0..600.0).contains(status) && status.fract() == 0.0;
        Ok(Self {
            allow: Ranges::compile("allow", &list(&config.allow))?,
            deny: Ranges::compile("deny", &list(&config.deny))?,
            // The cast is exact.
            status: match config.status {
                None => Some(403),
                Some(status) => is_error(&status).then_some(status as u16),
            },
            message: config.message,
        })
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        (): &'a mut (),
    ) -> Result<Step<'a>, PluginError> {
        let address = cx.request.client.ip;
        if self.admits(address) {
            return Ok(Step::Continue);
        }
        Ok(Step::Respond(match self.status {
            Some(status) => Response::error(status, self.reason(address)),
            None => Response::unexpected_error(),
        }))
    }

    fn preread<'a>(&'a self, cx: StreamCx<'a>) -> Result<StreamStep<'a>, PluginError> {
        let address = cx.session.client.ip;
        if self.admits(address) {
            return Ok(StreamStep::Continue);
        }
        // A session cannot end with another status.
        let status = self
            .status
            .filter(|status| matches!(status, 400 | 403 | 500 | 502 | 503));
        Ok(StreamStep::Close(StreamEnd {
            status: status.unwrap_or(500),
            message: self.reason(address),
        }))
    }

    fn needs(&self) -> Option<String> {
        let status = self.status.unwrap_or(500);
        let rule = match (self.allow.is_empty(), self.deny.is_empty()) {
            (true, true) => return None,
            (false, true) => "an address in `allow`",
            (true, false) => "an address that is not in `deny`",
            (false, false) => "an address in `allow` that is not in `deny`",
        };
        Some(format!("{rule}, else {status}"))
    }
}

impl IpRestriction {
    fn admits(&self, address: IpAddr) -> bool {
        !self.deny.contains(address) && (self.allow.is_empty() || self.allow.contains(address))
    }

    fn reason(&self, address: IpAddr) -> String {
        match &self.message {
            Some(message) => message.clone(),
            None => format!("IP address not allowed: {address}"),
        }
    }
}

#[cfg(test)]
mod tests;
