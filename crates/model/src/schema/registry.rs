//! The registry of all schemas: those of this crate's entities, and those that plugins bring.
//!
//! A registry is a value, built by [`Registry::new`]. The program builds one at start and makes it the one of the
//! process ([`install`]). Handles of kinds ([`EntityKind`]), decoded configurations, rules of the store and paths of the
//! Admin API all refer to the same schemas, and stores outlive none of them. So a parameter with the registry would run
//! through several hundred functions, always with the same value, and two registries in one process could only
//! disagree about the numbers of kinds. A process that installs none has no schemas: nothing falls back to a part of
//! them, because a gateway without a plugin's schema would refuse the plugin's entities.

use super::data;
use super::definition::{Auto, Field, Record};
use super::loader::{Loaded, Loader};
use super::source::{Checks, EntitySource, PluginSource, SchemaError};
use super::{EntitySchema, ForeignField, Kind, Table};
use crate::EntityKind;
use serde_json::Value as Json;
use std::sync::OnceLock;

#[derive(Debug)]
pub struct Registry {
    /// Entity schemas in the order of `kinds`.
    entities: Vec<EntitySchema>,
    /// The kinds, each after those that it refers to.
    kinds: Vec<EntityKind>,
    /// Positions in `entities` by the numbers of kinds.
    positions: [Option<u8>; EntityKind::LIMIT],
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

static INSTALLED: OnceLock<Registry> = OnceLock::new();

/// Builds the registry of this process, unless that has happened. Fails if a schema has a mistake, or if the registry
/// of the process has other plugins.
pub fn install(sources: &[PluginSource]) -> Result<&'static Registry, SchemaError> {
    let registry = match INSTALLED.get() {
        Some(registry) => registry,
        None => {
            let built = Registry::new(sources)?;
            INSTALLED.get_or_init(|| built)
        }
    };
    let is_missing = |source: &&PluginSource| registry.plugin(source.name).is_none();
    match sources.iter().find(is_missing) {
        Some(source) => Err(SchemaError::new(
            source.name,
            "this process has already installed other schemas",
        )),
        None => Ok(registry),
    }
}

/// The registry of this process. Panics if none is installed.
pub fn registry() -> &'static Registry {
    installed().expect("the program has installed its schemas")
}

/// The registry of this process, if one is installed.
pub(crate) fn installed() -> Option<&'static Registry> {
    // Tests of this crate cannot use the bundled plugins, which depend on it. Their schemas are those of this crate.
    #[cfg(test)]
    install(&[]).expect("the schemas of this crate are right");
    INSTALLED.get()
}

impl Registry {
    /// Builds a registry from the entities of this crate and from what plugins bring.
    pub fn new(sources: &[PluginSource]) -> Result<Self, SchemaError> {
        let mut sources = sources.to_vec();
        sources.sort_by_key(|source| source.name);
        if let Some(pair) = sources.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(SchemaError::new(pair[0].name, "the plugin occurs twice"));
        }
        for source in &sources {
            if let Some(name) = source.checks.ambiguous() {
                let problem = format!("there is another function with the name {name}");
                return Err(SchemaError::new(source.name, problem));
            }
        }
        let own = data::ENTITIES.iter().map(|source| (source, None));
        let brought = sources
            .iter()
            .flat_map(|plugin| plugin.entities.iter().map(move |one| (one, Some(plugin))));
        let mut entities: Vec<(&EntitySource, Option<&PluginSource>)> =
            own.chain(brought).collect();
        check_kinds(&entities)?;
        entities.sort_by_key(|(source, _)| source.kind);
        let kinds: Vec<(&'static str, EntityKind)> = entities
            .iter()
            .map(|(source, _)| (source.name, source.kind))
            .collect();
        let plugins = sources
            .iter()
            .map(PluginSchema::load)
            .collect::<Result<Vec<_>, SchemaError>>()?;
        let mut schemas = Vec::new();
        for (source, plugin) in entities {
            let loader = Loader {
                checks: plugin.map_or(&Checks::NONE, |plugin| &plugin.checks),
                kinds: &kinds,
            };
            let schema = EntitySchema::load(source, plugin, loader, &sources, &plugins);
            schemas.push(schema?);
        }
        let entities = sorted(schemas)?;
        let kinds: Vec<EntityKind> = entities.iter().map(|schema| schema.kind).collect();
        let mut positions = [None; EntityKind::LIMIT];
        for (at, kind) in (0..).zip(&kinds) {
            positions[kind.index()] = Some(at);
        }
        let mut order: Vec<_> = (0..plugins.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse((plugins[at].priority, plugins[at].name)));
        Ok(Self {
            entities,
            kinds,
            positions,
            plugins,
            order,
        })
    }

    /// Whether the registry has a kind with this number.
    pub fn has(&self, kind: EntityKind) -> bool {
        self.positions
            .get(kind.index())
            .is_some_and(Option::is_some)
    }

    pub fn entity(&self, kind: EntityKind) -> &EntitySchema {
        let at = self.positions.get(kind.index()).copied().flatten();
        &self.entities[usize::from(at.expect("the registry has the kind of every handle"))]
    }

    pub fn by_name(&self, name: &str) -> Option<&EntitySchema> {
        self.entities.iter().find(|schema| schema.name == name)
    }

    /// The kinds, ordered so that each one comes after the kinds that it refers to.
    pub fn kinds(&self) -> &[EntityKind] {
        &self.kinds
    }

    /// The schemas, in the order of [`kinds`](Self::kinds).
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
}

/// Checks that names and numbers of kinds are unique, and that the kinds of plugins have numbers of their range.
fn check_kinds(entities: &[(&EntitySource, Option<&PluginSource>)]) -> Result<(), SchemaError> {
    for (at, (source, plugin)) in entities.iter().enumerate() {
        let problem = |text: &str| Err(SchemaError::new(source.name, text));
        let lowest = plugin.map_or(1, |_| EntityKind::FIRST_OF_PLUGINS);
        if source.kind.number() < lowest || source.kind.index() >= EntityKind::LIMIT {
            return problem("the number of the kind is out of range");
        }
        let earlier = || entities[..at].iter().map(|(one, _)| one);
        if earlier().any(|one| one.kind == source.kind) {
            return problem("another kind has the same number");
        }
        if earlier().any(|one| one.name == source.name) {
            return problem("another kind has the same name");
        }
    }
    Ok(())
}

/// Sorts schemas so that each one comes after those that it refers to, and otherwise by the numbers of kinds.
fn sorted(mut left: Vec<EntitySchema>) -> Result<Vec<EntitySchema>, SchemaError> {
    left.sort_by_key(|schema| schema.kind);
    let mut sorted: Vec<EntitySchema> = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let is_waiting = |schema: &EntitySchema| {
            let mut foreign = schema.foreign.iter().map(|foreign| foreign.kind);
            foreign.any(|kind| kind != schema.kind && left.iter().any(|one| one.kind == kind))
        };
        let Some(at) = left.iter().position(|schema| !is_waiting(schema)) else {
            return Err(SchemaError::new(
                left[0].name,
                "its references lead back to itself",
            ));
        };
        sorted.push(left.remove(at));
    }
    Ok(sorted)
}

impl PluginSchema {
    fn load(source: &PluginSource) -> Result<Self, SchemaError> {
        let definition = parse(source.name, source.schema)?;
        let priority = definition["priority"].as_i64().unwrap_or_default();
        Ok(Self {
            name: source.name,
            priority: i32::try_from(priority)
                .map_err(|_| SchemaError::new(source.name, "the priority is out of range"))?,
            phases: strings(&definition["phases"]),
            definition,
        })
    }
}

impl EntitySchema {
    fn load(
        source: &EntitySource,
        plugin: Option<&PluginSource>,
        loader: Loader<'_>,
        sources: &[PluginSource],
        plugins: &[PluginSchema],
    ) -> Result<Self, SchemaError> {
        let problem = |text: String| SchemaError::new(source.name, text);
        let definition = parse(source.name, source.schema)?;
        let optional = |key: &str| definition[key].as_str().map(str::to_owned);
        if optional("plugin").as_deref() != plugin.map(|plugin| plugin.name) {
            return Err(problem("plugin: not the plugin that brings it".to_owned()));
        }
        let cache_key = strings(&definition["cache_key"]);
        let nested_key = optional("nested_key");
        if let Some(field) = &nested_key
            && (cache_key.len() != 2 || cache_key.last() != Some(field))
        {
            let text =
                "nested_key: the cache key is not the reference to the parent and this field";
            return Err(problem(text.to_owned()));
        }
        let tables = match source.kind {
            EntityKind::Plugins => vec![plugin_table(&definition, loader, sources, plugins)?],
            EntityKind::Routes => route_tables(&definition, loader).map_err(problem)?,
            _ => loader
                .record(&definition)
                .and_then(|base| table(base, &definition, loader))
                .map(|table| vec![table])
                .map_err(problem)?,
        };
        let base = &tables[0].base;
        let flag = |key: &str, default| definition[key].as_bool().unwrap_or(default);
        Ok(Self {
            kind: source.kind,
            name: source.name,
            primary_key: strings(&definition["primary_key"]),
            endpoint_key: optional("endpoint_key"),
            nested_key,
            cache_key,
            unique: unique(base),
            generated: generated(base),
            foreign: ForeignField::of(base),
            ttl: flag("ttl", false),
            workspaceable: flag("workspaceable", false),
            db_export: flag("db_export", true),
            is_apart: flag("apart", false),
            is_credential: flag("credential", false),
            admin_api_path: optional("admin_api_path").filter(|_| flag("generate_admin_api", true)),
            admin_api_nested_name: optional("admin_api_nested_name"),
            plugin: optional("plugin"),
            subschema_key: optional("subschema_key"),
            subschema_error: optional("subschema_error")
                .unwrap_or_else(|| "unknown type: %s".into()),
            transformations: loader.transformations(&definition).map_err(problem)?,
            tables,
            definition,
        })
    }
}

fn parse(name: &str, text: &str) -> Result<Json, SchemaError> {
    let definition: Json =
        serde_json::from_str(text).map_err(|error| SchemaError::new(name, error.to_string()))?;
    match definition["name"].as_str() {
        Some(given) if given == name => Ok(definition),
        _ => Err(SchemaError::new(name, "name: not the name of its source")),
    }
}

fn strings(list: &Json) -> Vec<String> {
    let texts = list.as_array().into_iter().flatten();
    texts.filter_map(Json::as_str).map(str::to_owned).collect()
}

fn unique(record: &Record) -> Vec<String> {
    let is_reference = |field: &&Field| matches!(field.kind, Kind::Foreign(_));
    record
        .fields
        .iter()
        .filter(|field| field.unique && !is_reference(field))
        .map(|field| field.name.to_string())
        .collect()
}

fn generated(record: &Record) -> Vec<String> {
    let fields = record.fields.iter();
    fields
        .filter(|field| field.auto == Some(Auto::RandomKey))
        .map(|field| field.name.to_string())
        .collect()
}

/// Compiles the table of an entity. Its subschemas, if any, are selected by the keys in `subschemas_by_key`, or else by
/// their names.
fn table(base: Record, definition: &Json, loader: Loader<'_>) -> Loaded<Table> {
    let mut names = Vec::new();
    let mut subschemas = Vec::new();
    for (name, definition) in definition["subschemas"].as_object().into_iter().flatten() {
        names.push(name.as_str());
        subschemas.push(loader.specialize(&base, definition)?);
    }
    let position = |wanted: &str| {
        let at = names.iter().position(|name| *name == wanted);
        at.ok_or_else(|| format!("subschemas_by_key: unknown subschema {wanted}"))
    };
    let mut keys = match definition["subschemas_by_key"].as_object() {
        Some(by_key) => by_key
            .iter()
            .map(|(key, name)| Ok((key.into(), position(name.as_str().unwrap_or_default())?)))
            .collect::<Loaded<Vec<_>>>()?,
        None => names
            .iter()
            .enumerate()
            .map(|(at, name)| ((*name).into(), at))
            .collect(),
    };
    keys.sort();
    Ok(Table {
        base,
        keys,
        subschemas,
        elsewhere: Vec::new(),
    })
}

/// Compiles the table of plugins, with a subschema per plugin. Both lists are sorted by name.
fn plugin_table(
    definition: &Json,
    loader: Loader<'_>,
    sources: &[PluginSource],
    plugins: &[PluginSchema],
) -> Result<Table, SchemaError> {
    let base = loader
        .record(definition)
        .map_err(|problem| SchemaError::new("plugins", problem))?;
    let mut keys = Vec::new();
    let mut subschemas = Vec::new();
    for (at, (source, plugin)) in sources.iter().zip(plugins).enumerate() {
        let loader = Loader {
            checks: &source.checks,
            ..loader
        };
        let record = loader.specialize(&base, &plugin.definition);
        subschemas.push(record.map_err(|problem| SchemaError::new(plugin.name, problem))?);
        keys.push((plugin.name.into(), at));
    }
    Ok(Table {
        base,
        keys,
        subschemas,
        elsewhere: Vec::new(),
    })
}

/// Compiles the tables of routes, one per flavor. The schema describes `traditional_compatible`. For the other flavors
/// it lists the differences.
fn route_tables(definition: &Json, loader: Loader<'_>) -> Loaded<Vec<Table>> {
    let base = loader.record(definition)?;
    let flavor = |name: &str| {
        let changes = &definition["flavors"][name];
        let mut definition = definition.clone();
        if changes.get("subschemas").is_some() {
            definition["subschemas"] = changes["subschemas"].clone();
        }
        table(loader.specialize(&base, changes)?, &definition, loader)
    };
    let mut tables = vec![
        flavor("traditional")?,
        table(base.clone(), definition, loader)?,
        flavor("expressions")?,
    ];
    for at in 0..tables.len() {
        let others = tables.iter().flat_map(|table| &table.base.fields);
        let own = &tables[at].base;
        let elsewhere = others.filter(|field| own.position(&field.name).is_none());
        tables[at].elsewhere = elsewhere.cloned().collect();
    }
    Ok(tables)
}
