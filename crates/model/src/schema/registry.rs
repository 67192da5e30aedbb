//! All schemas of the program, loaded once.

use super::definition::Record;
use super::transformations::Transformation;
use super::{EntitySchema, ForeignField, Table, data, loader};
use crate::EntityKind;
use serde_json::Value as Json;
use std::sync::LazyLock;

#[derive(Debug)]
pub struct Registry {
    /// Entity schemas in the order of [`EntityKind::ALL`].
    entities: Vec<EntitySchema>,
    /// Plugin schemas, sorted by name.
    plugins: Vec<PluginSchema>,
    /// Positions in `plugins` in execution order.
    order: Vec<usize>,
}

#[derive(Debug)]
pub struct PluginSchema {
    pub name: &'static str,
    pub priority: i32,
    pub phases: Vec<String>,
    pub(super) definition: Json,
}

pub fn registry() -> &'static Registry {
    static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::load);
    &REGISTRY
}

impl Registry {
    pub fn entity(&self, kind: EntityKind) -> &EntitySchema {
        let at = EntityKind::ALL.iter().position(|one| *one == kind);
        &self.entities[at.expect("ALL has every kind")]
    }

    pub fn by_name(&self, name: &str) -> Option<&EntitySchema> {
        self.entities.iter().find(|schema| schema.name == name)
    }

    pub fn entities(&self) -> impl Iterator<Item = &EntitySchema> {
        self.entities.iter()
    }

    pub fn plugin(&self, name: &str) -> Option<&PluginSchema> {
        let at = self
            .plugins
            .binary_search_by(|plugin| plugin.name.cmp(name))
            .ok()?;
        Some(&self.plugins[at])
    }

    /// The plugins in execution order: by descending priority, then by descending name.
    pub fn plugins(&self) -> impl Iterator<Item = &PluginSchema> {
        self.order.iter().map(|&at| &self.plugins[at])
    }

    fn load() -> Self {
        let mut plugins: Vec<_> = data::PLUGINS
            .iter()
            .map(|(name, text)| PluginSchema::load(name, text))
            .collect();
        plugins.sort_by_key(|plugin| plugin.name);
        let mut order: Vec<_> = (0..plugins.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse((plugins[at].priority, plugins[at].name)));
        let entities = EntityKind::ALL
            .into_iter()
            .map(|kind| EntitySchema::load(kind, &plugins))
            .collect();
        Self {
            entities,
            plugins,
            order,
        }
    }
}

impl PluginSchema {
    fn load(name: &'static str, text: &str) -> Self {
        let definition = parse(name, text);
        let priority = definition["priority"].as_i64().unwrap_or_default();
        Self {
            name,
            priority: i32::try_from(priority).expect("a priority"),
            phases: strings(&definition["phases"]),
            definition,
        }
    }
}

impl EntitySchema {
    fn load(kind: EntityKind, plugins: &[PluginSchema]) -> Self {
        let (_, text) = data::ENTITIES
            .iter()
            .find(|(name, _)| *name == kind.name())
            .expect("every entity has a data file");
        let definition = parse(kind.name(), text);
        let tables = match kind {
            EntityKind::Plugins => vec![plugin_table(&definition, plugins)],
            EntityKind::Routes => route_tables(&definition),
            _ => vec![table(loader::record(&definition), &definition)],
        };
        let base = &tables[0].base;
        let optional = |key: &str| definition[key].as_str().map(str::to_owned);
        let flag = |key: &str, default| definition[key].as_bool().unwrap_or(default);
        Self {
            kind,
            name: kind.name(),
            primary_key: strings(&definition["primary_key"]),
            endpoint_key: optional("endpoint_key"),
            cache_key: strings(&definition["cache_key"]),
            unique: unique(base),
            foreign: ForeignField::of(base),
            ttl: flag("ttl", false),
            workspaceable: flag("workspaceable", false),
            db_export: flag("db_export", true),
            admin_api_path: optional("admin_api_path"),
            admin_api_nested_name: optional("admin_api_nested_name"),
            plugin: optional("plugin"),
            subschema_key: optional("subschema_key"),
            subschema_error: optional("subschema_error")
                .unwrap_or_else(|| "unknown type: %s".into()),
            transformations: strings(&definition["transformations"])
                .iter()
                .map(|name| Transformation::from_name(name).expect("a known transformation"))
                .collect(),
            tables,
            definition,
        }
    }
}

fn parse(name: &str, text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("schema of {name}: {error}"))
}

fn strings(list: &Json) -> Vec<String> {
    let texts = list.as_array().into_iter().flatten();
    texts.filter_map(Json::as_str).map(str::to_owned).collect()
}

fn unique(record: &Record) -> Vec<String> {
    let is_reference =
        |field: &&super::definition::Field| matches!(field.kind, super::Kind::Foreign(_));
    record
        .fields
        .iter()
        .filter(|field| field.unique && !is_reference(field))
        .map(|field| field.name.to_string())
        .collect()
}

/// Compiles the table of an entity. Its subschemas, if any, are selected by the keys in `subschemas_by_key`, or else by
/// their names.
fn table(base: Record, definition: &Json) -> Table {
    let mut names = Vec::new();
    let mut subschemas = Vec::new();
    for (name, definition) in definition["subschemas"].as_object().into_iter().flatten() {
        names.push(name.as_str());
        subschemas.push(loader::specialize(&base, definition));
    }
    let position = |wanted: &str| {
        let at = names.iter().position(|name| *name == wanted);
        at.expect("a key names a subschema")
    };
    let mut keys: Vec<_> = match definition["subschemas_by_key"].as_object() {
        Some(by_key) => by_key
            .iter()
            .map(|(key, name)| (key.into(), position(name.as_str().unwrap_or_default())))
            .collect(),
        None => names
            .iter()
            .enumerate()
            .map(|(at, name)| ((*name).into(), at))
            .collect(),
    };
    keys.sort();
    Table {
        base,
        keys,
        subschemas,
        elsewhere: Vec::new(),
    }
}

fn plugin_table(definition: &Json, plugins: &[PluginSchema]) -> Table {
    let base = loader::record(definition);
    let subschemas = plugins
        .iter()
        .map(|plugin| loader::specialize(&base, &plugin.definition))
        .collect();
    let keys = plugins
        .iter()
        .enumerate()
        .map(|(at, plugin)| (plugin.name.into(), at))
        .collect();
    Table {
        base,
        keys,
        subschemas,
        elsewhere: Vec::new(),
    }
}

/// Compiles the tables of routes, one per flavor. The data file describes `traditional_compatible`. For the other
/// flavors it lists the differences.
fn route_tables(definition: &Json) -> Vec<Table> {
    let base = loader::record(definition);
    let flavor = |name: &str| {
        let changes = &definition["flavors"][name];
        let mut definition = definition.clone();
        if changes.get("subschemas").is_some() {
            definition["subschemas"] = changes["subschemas"].clone();
        }
        table(loader::specialize(&base, changes), &definition)
    };
    let mut tables = vec![
        flavor("traditional"),
        table(base.clone(), definition),
        flavor("expressions"),
    ];
    for at in 0..tables.len() {
        let others = tables.iter().flat_map(|table| &table.base.fields);
        let own = &tables[at].base;
        let elsewhere = others.filter(|field| own.position(&field.name).is_none());
        tables[at].elsewhere = elsewhere.cloned().collect();
    }
    tables
}
