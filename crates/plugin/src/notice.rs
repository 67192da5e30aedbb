//! Notices for users about configured plugins that are not implemented. The log, `silverback check` and the Admin API
//! use the same words.

use crate::def::{Implementation, Lack, PluginDef};
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

/// A plugin that is not implemented, and the entities that it is configured for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub plugin: Cow<'static, str>,
    pub lack: Lack,
    /// Whether the plugin is configured without a scope, so that it applies to all requests.
    is_global: bool,
    routes: Vec<String>,
    services: Vec<String>,
    consumers: Vec<String>,
    /// Number of further scopes that are not named.
    more: usize,
}

/// Returns one notice for each plugin of `table` that is configured but not implemented, sorted by plugin name. `name`
/// returns the name of an entity. An entity without a name is shown by its id.
pub fn of<'p>(
    table: &[Arc<PluginDef>],
    configured: impl IntoIterator<Item = &'p Plugin>,
    name: impl Fn(EntityKind, Uuid) -> Option<String>,
) -> Vec<Notice> {
    let mut notices: BTreeMap<&str, Notice> = BTreeMap::new();
    for plugin in configured {
        // The table is short and most changes configure at most one plugin, so building a map would cost more.
        let Some(def) = table.iter().find(|def| *def.name == *plugin.name) else {
            continue;
        };
        let Implementation::Later { lack, .. } = def.implementation else {
            continue;
        };
        if def.applies(plugin) {
            let notice = notices.entry(&def.name);
            let notice = notice.or_insert_with(|| Notice::new(def.name.clone(), lack));
            notice.add(plugin, &name);
        }
    }
    notices.into_values().collect()
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
    fn new(plugin: Cow<'static, str>, lack: Lack) -> Self {
        Self {
            plugin,
            lack,
            is_global: false,
            routes: Vec::new(),
            services: Vec::new(),
            consumers: Vec::new(),
            more: 0,
        }
    }

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
            return "all requests".to_owned();
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
        write!(formatter, "plugin {plugin} is not implemented: ")?;
        match self.lack {
            Lack::Protection => {
                write!(formatter, "every request it applies to ({scopes}) gets 500")
            }
            Lack::Feature => write!(formatter, "it is ignored ({scopes})"),
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
        })
    }

    fn guard() -> Arc<PluginDef> {
        def("guard", Lack::Protection, Scopes::NO_CONSUMER)
    }

    fn log() -> Arc<PluginDef> {
        def("log", Lack::Feature, Scopes::ALL)
    }

    fn plugin(name: &str, scope: &Value) -> Plugin {
        let id = |kind: &str| scope[kind].as_u64().map(|id| Uuid::from_u128(id.into()));
        let entity = json!({
            "id": Uuid::nil(), "name": name, "instance_name": null,
            "enabled": scope["enabled"].as_bool().unwrap_or(true),
            "protocols": [scope["protocol"].as_str().unwrap_or("http")],
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
        let found = of(&[guard(), log()], &plugins, name);
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
            ("guard", json!({"protocol": "tcp"})),
            ("guard", json!({"consumer": 1})),
            ("other", json!({})),
        ];
        assert_eq!(notices(&absent), [""; 0]);
    }
}
