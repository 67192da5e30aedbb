//! bot-detection: refuses clients by their User-Agent header. Source of the behaviour:
//! kong/plugins/bot-detection/handler.lua.

mod config;
mod known;

use crate::patterns::Patterns;
use config::Config;
use expr::TooManySteps;
use model::schema::PluginSource;
use plugin::{
    BuildCx, BuildError, Phases, Plugin, PluginDef, PluginError, RequestCx, Response, Scopes, Step,
};
use std::sync::{Arc, OnceLock};

pub(crate) const SOURCE: PluginSource =
    PluginSource::plain("bot-detection", include_str!("schema.json"));

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<BotDetection>("bot-detection", 2_500, Phases::ACCESS, Scopes::NO_CONSUMER)
}

struct BotDetection {
    allow: Patterns,
    deny: Patterns,
    /// The built-in list.
    known: Arc<Patterns>,
}

impl Plugin for BotDetection {
    type Config = Config;
    type Own = ();

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        let compile = |field, entries: Option<Vec<String>>| {
            let entries = entries.unwrap_or_default();
            Patterns::compile(field, entries.iter().map(String::as_str))
        };
        Ok(Self {
            allow: compile("allow", config.allow)?,
            deny: compile("deny", config.deny)?,
            known: known()?,
        })
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        (): &'a mut (),
    ) -> Result<Step<'a>, PluginError> {
        let mut agents = cx.request.every_header_line("user-agent");
        let Some(agent) = agents.next() else {
            return Ok(Step::Continue);
        };
        let refusal = if agents.next().is_some() {
            Response::error(400, "Only one User-Agent header allowed")
        } else if self.admits(agent.trim_ascii()) {
            return Ok(Step::Continue);
        } else {
            Response::error(403, "Forbidden")
        };
        Ok(Step::Respond(refusal))
    }

    fn needs(&self) -> Option<String> {
        Some("a User-Agent header that is not one of a bot, else 403".to_owned())
    }
}

/// Returns the built-in list, compiled once for all plugins that use it.
fn known() -> Result<Arc<Patterns>, BuildError> {
    static KNOWN: OnceLock<Arc<Patterns>> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(known.clone());
    }
    let all = known::FAMILIES
        .iter()
        .chain(&known::WORDS)
        .chain(&known::NAMES);
    let all: Vec<String> = all.map(|pattern| format!("(?:{pattern})")).collect();
    let compiled = Arc::new(Patterns::compile("the built-in list", [&*all.join("|")])?);
    Ok(KNOWN.get_or_init(|| compiled).clone())
}

impl BotDetection {
    /// Whether a user agent passes. It does not if a search needs too many steps, because nobody knows then what the
    /// regexes say about it.
    fn admits(&self, agent: &[u8]) -> bool {
        self.search(agent).unwrap_or(false)
    }

    fn search(&self, agent: &[u8]) -> Result<bool, TooManySteps> {
        Ok(self.allow.search(agent)? || !(self.deny.search(agent)? || self.known.search(agent)?))
    }
}

#[cfg(test)]
mod tests;
