//! Notices for users about configured plugins that are not implemented, or whose configuration uses a setting that is
//! not implemented or is risky. The log, `silverback check` and the Admin API use the same words.

use crate::def::{Implementation, Lack, PluginDef, Risk, Shortcoming};
use model::EntityKind;
use model::entities::Plugin;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use uuid::Uuid;

/// Maximum number of names in a notice. This limit and the next one keep a notice short.
const MAX_NAMES: usize = 5;
/// Maximum number of characters of a name in a notice.
const MAX_NAME_BYTES: usize = 64;

/// A plugin that does not do what is configured, or probably not what is intended, and the entities that it is
/// configured for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub plugin: Cow<'static, str>,
    cause: Cause,
    pub lack: Lack,
    traffic: Traffic,
    /// Whether the plugin is configured without a scope, so that it applies to all requests or streams.
    is_global: bool,
    routes: Vec<String>,
    services: Vec<String>,
    consumers: Vec<String>,
    /// Number of further scopes that are not named.
    more: usize,
}

/// The reason for a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    /// The plugin is not implemented.
    Plugin,
    /// A setting is not implemented.
    Setting(Shortcoming),
    Risk(Risk),
}

/// The traffic that a notice is about. A plugin that applies to both is reported for requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Traffic {
    Requests,
    Streams,
}

/// Returns notices about the plugins of `table` that are configured but do not do what is configured, sorted by plugin
/// name. `name` returns the name of an entity. An entity without a name is shown by its id.
pub fn of<'p>(
    table: &[Arc<PluginDef>],
    configured: impl IntoIterator<Item = &'p Plugin>,
    name: impl Fn(EntityKind, Uuid) -> Option<String>,
) -> Vec<Notice> {
    let mut notices: BTreeMap<(&str, Cause, Traffic), Notice> = BTreeMap::new();
    for plugin in configured {
        // The table is short and most changes configure at most one plugin, so building a map would cost more.
        let Some(def) = table.iter().find(|def| *def.name == *plugin.name) else {
            continue;
        };
        let traffic = match (def.applies(plugin), def.applies_to_streams(plugin)) {
            (true, _) => Traffic::Requests,
            (false, true) => Traffic::Streams,
            (false, false) => continue,
        };
        for (lack, cause) in causes(def, plugin) {
            let notice = notices.entry((&def.name, cause, traffic));
            let notice = notice.or_insert_with(|| Notice {
                plugin: def.name.clone(),
                cause,
                lack,
                traffic,
                is_global: false,
                routes: Vec::new(),
                services: Vec::new(),
                consumers: Vec::new(),
                more: 0,
            });
            notice.add(plugin, &name);
        }
    }
    notices.into_values().collect()
}

/// Whether configured plugins with this definition can get a notice. For others, their configuration need not be read.
pub fn is_possible(def: &PluginDef) -> bool {
    let is_later = matches!(def.implementation, Implementation::Later { .. });
    is_later || def.shortcoming.is_some() || def.risk.is_some()
}

/// Returns the reasons for notices about a configured plugin.
fn causes(def: &PluginDef, plugin: &Plugin) -> impl Iterator<Item = (Lack, Cause)> {
    let later = match def.implementation {
        Implementation::Later { lack, .. } => Some((lack, Cause::Plugin)),
        Implementation::Ready(_) => None,
    };
    let shortcoming = def.shortcoming.and_then(|find| find(&plugin.config));
    let setting = shortcoming.map(|shortcoming| {
        let lack = match shortcoming.instead {
            Some(_) => Lack::Feature,
            None => Lack::Protection,
        };
        (lack, Cause::Setting(shortcoming))
    });
    let risk = def.risk.and_then(|find| find(&plugin.config));
    let risk = risk.map(|risk| (Lack::Feature, Cause::Risk(risk)));
    later.into_iter().chain(setting).chain(risk)
}

/// Shortens a name and replaces its control characters, because a notice becomes a log line or a response header.
fn shown(name: &str) -> String {
    let plain = |character: char| {
        if character.is_control() {
            ' '
        } else {
            character
        }
    };
    let mut shown: String = name.chars().take(MAX_NAME_BYTES).map(plain).collect();
    if name.chars().nth(MAX_NAME_BYTES).is_some() {
        shown.push('…');
    }
    shown
}

impl Notice {
    fn add(&mut self, plugin: &Plugin, name: impl Fn(EntityKind, Uuid) -> Option<String>) {
        let route = plugin.route.map(|id| (EntityKind::Routes, id.0));
        let service = plugin.service.map(|id| (EntityKind::Services, id.0));
        let consumer = plugin.consumer.map(|id| (EntityKind::Consumers, id.0));
        let mut scope = route.into_iter().chain(service).chain(consumer);
        let Some((kind, id)) = scope.next() else {
            self.is_global = true;
            return;
        };
        if self.routes.len() + self.services.len() + self.consumers.len() == MAX_NAMES {
            self.more += 1;
            return;
        }
        let name =
            |kind, id: Uuid| name(kind, id).map_or_else(|| id.to_string(), |name| shown(&name));
        let mut text = name(kind, id);
        for (kind, id) in scope {
            let role = match kind {
                EntityKind::Services => "service",
                _ => "consumer",
            };
            text = format!("{text} with {role} {}", name(kind, id));
        }
        let names = match kind {
            EntityKind::Routes => &mut self.routes,
            EntityKind::Services => &mut self.services,
            _ => &mut self.consumers,
        };
        names.push(text);
    }

    fn scopes(&self) -> String {
        if self.is_global {
            let all = match self.traffic {
                Traffic::Requests => "all requests",
                Traffic::Streams => "all streams",
            };
            return all.to_owned();
        }
        let groups = [
            ("routes", &self.routes),
            ("services", &self.services),
            ("consumers", &self.consumers),
        ];
        let groups = groups.into_iter().filter(|(_, names)| !names.is_empty());
        let groups = groups.map(|(kind, names)| format!("{kind}: {}", names.join(", ")));
        let text = groups.collect::<Vec<_>>().join("; ");
        match self.more {
            0 => text,
            more => format!("{text} and {more} more"),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (plugin, scopes) = (&self.plugin, self.scopes());
        let instead = match self.cause {
            Cause::Risk(Risk(effect)) => {
                return write!(formatter, "plugin {plugin}: {effect} ({scopes})");
            }
            Cause::Setting(Shortcoming { setting, instead }) => {
                write!(formatter, "plugin {plugin} does not implement {setting}: ")?;
                instead
            }
            Cause::Plugin => {
                write!(formatter, "plugin {plugin} is not implemented: ")?;
                None
            }
        };
        match (self.lack, self.traffic) {
            (Lack::Protection, Traffic::Requests) => {
                write!(formatter, "every request it applies to ({scopes}) gets 500")
            }
            (Lack::Protection, Traffic::Streams) => {
                write!(formatter, "every stream it applies to ({scopes}) is closed")
            }
            (Lack::Feature, _) => {
                write!(
                    formatter,
                    "{} ({scopes})",
                    instead.unwrap_or("it is ignored")
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::def::{Phases, Scopes};
    use serde_json::{Value, json};

    fn def(name: &'static str, lack: Lack, scopes: Scopes) -> Arc<PluginDef> {
        Arc::new(PluginDef {
            name: name.into(),
            version: "1".into(),
            priority: 1,
            phases: Phases::ACCESS,
            scopes,
            implementation: Implementation::Later { lack, without: "" },
            shortcoming: None,
            risk: None,
        })
    }

    fn guard() -> Arc<PluginDef> {
        def("guard", Lack::Protection, Scopes::NO_CONSUMER)
    }

    fn log() -> Arc<PluginDef> {
        def("log", Lack::Feature, Scopes::ALL)
    }

    struct Limit;

    impl crate::Plugin for Limit {
        type Config = serde::de::IgnoredAny;
        type Own = ();

        fn build(
            _: serde::de::IgnoredAny,
            _: &crate::BuildCx<'_>,
        ) -> Result<Self, crate::BuildError> {
            Ok(Self)
        }
    }

    /// A plugin that does not implement two of its settings.
    fn limit() -> Arc<PluginDef> {
        let def = PluginDef::bundled::<Limit>("limit", 1, Phases::ACCESS, Scopes::ALL);
        let def = def.with_shortcoming(|config| match config.as_object()?.str("store")? {
            "remote" => Some(Shortcoming {
                setting: "the store remote",
                instead: None,
            }),
            "shared" => Some(Shortcoming {
                setting: "the store shared",
                instead: Some("it keeps all here"),
            }),
            _ => None,
        });
        let def = def.with_risk(|config| match config.as_object()?.str("store")? {
            "shared" => Some(Risk("store: everybody reads it")),
            _ => None,
        });
        Arc::new(def)
    }

    fn plugin(name: &str, scope: &Value) -> Plugin {
        let id = |kind: &str| scope[kind].as_u64().map(|id| Uuid::from_u128(id.into()));
        let entity = json!({
            "id": Uuid::nil(), "name": name, "instance_name": null,
            "enabled": scope["enabled"].as_bool().unwrap_or(true),
            "protocols": scope["protocols"].as_array().cloned().unwrap_or(vec!["http".into()]),
            "config": {"store": scope["store"]},
            "route": id("route"), "service": id("service"), "consumer": id("consumer"),
        });
        serde_json::from_value(entity).expect("a plugin")
    }

    fn notices(configured: &[(&str, Value)]) -> Vec<String> {
        model::schema::install(&[]).expect("the schemas of the model are right");
        let plugins: Vec<Plugin> = (configured.iter())
            .map(|(name, scope)| plugin(name, scope))
            .collect();
        let name = |kind: EntityKind, id: Uuid| {
            let number = id.as_u128();
            (number < 100).then(|| format!("{}{number}", &kind.name()[..1]))
        };
        let found = of(&[guard(), log(), limit()], &plugins, name);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_notice_says_what_happens_and_where() {
        let cases = [
            (
                vec![("guard", json!({"route": 1}))],
                "plugin guard is not implemented: every request it applies to (routes: r1) gets 500",
            ),
            (
                vec![("log", json!({"route": 1})), ("log", json!({}))],
                "plugin log is not implemented: it is ignored (all requests)",
            ),
            (
                vec![
                    ("log", json!({"consumer": 3})),
                    ("log", json!({"service": 2})),
                    ("log", json!({"route": 1, "consumer": 4})),
                    ("log", json!({"route": 300})),
                ],
                "plugin log is not implemented: it is ignored (routes: r1 with consumer c4, \
                 00000000-0000-0000-0000-00000000012c; services: s2; consumers: c3)",
            ),
        ];
        for (configured, wanted) in cases {
            assert_eq!(notices(&configured), [wanted], "{configured:?}");
        }
    }

    #[test]
    fn a_notice_has_a_limited_number_of_names() {
        let all: Vec<_> = (0..8).map(|id| ("log", json!({"route": id}))).collect();
        let wanted =
            "plugin log is not implemented: it is ignored (routes: r0, r1, r2, r3, r4 and 3 more)";
        assert_eq!(notices(&all), [wanted]);
    }

    #[test]
    fn a_name_in_a_notice_is_short_and_stays_in_one_line() {
        let long = "a\r\nb".to_owned() + &"é".repeat(300_000);
        let configured = [plugin("log", &json!({"route": 1}))];
        let found = of(&[log()], &configured, |_, _| Some(long.clone()));
        let name = "a  b".to_owned() + &"é".repeat(60) + "…";
        let wanted = format!("plugin log is not implemented: it is ignored (routes: {name})");
        assert_eq!(found[0].to_string(), wanted);
    }

    #[test]
    fn plugins_that_take_no_part_get_no_notice() {
        let absent = [
            ("guard", json!({"enabled": false})),
            ("guard", json!({"protocols": ["tcp"], "consumer": 1})),
            ("limit", json!({"store": "own"})),
            ("limit", json!({"store": "remote", "enabled": false})),
            ("guard", json!({"consumer": 1})),
            ("other", json!({})),
        ];
        assert_eq!(notices(&absent), [""; 0]);
    }
    #[test]
    fn a_plugin_that_applies_to_streams_only_gets_a_notice_about_streams() {
        let configured = [
            ("guard", json!({"route": 1, "protocols": ["tcp"]})),
            ("guard", json!({"route": 2, "protocols": ["http", "tcp"]})),
            ("log", json!({"protocols": ["tls", "udp"]})),
        ];
        let wanted = [
            "plugin guard is not implemented: every request it applies to (routes: r2) gets 500",
            "plugin guard is not implemented: every stream it applies to (routes: r1) is closed",
            "plugin log is not implemented: it is ignored (all streams)",
        ];
        assert_eq!(notices(&configured), wanted);
    }

    #[test]
    fn a_setting_that_is_not_implemented_or_risky_gets_a_notice() {
        let configured = [
            ("limit", json!({"store": "remote", "route": 1})),
            ("limit", json!({"store": "shared"})),
            ("limit", json!({"store": "remote", "service": 2})),
        ];
        let wanted = [
            "plugin limit does not implement the store remote: every request it applies to (routes: r1; services: s2) \
             gets 500",
            "plugin limit does not implement the store shared: it keeps all here (all requests)",
            "plugin limit: store: everybody reads it (all requests)",
        ];
        assert_eq!(notices(&configured), wanted);
    }
}
