//! Schemas as data, and the engine that validates and completes entities with them.
//!
//! Each entity and each plugin's configuration is described once: the gateway's own entities in `data/`, all others in
//! the folder of their plugin ([`PluginSource`]). This description determines how input is validated, with Kong's error
//! objects. It also determines default and generated values, the JSON output, and the responses of `/schemas/*`.

mod checks;
mod constraint;
mod data;
mod definition;
mod engine;
mod json;
mod json_schema;
mod loader;
mod pattern;
mod random;
mod references;
mod registry;
mod shorthand;
mod source;
mod stored;
mod transformations;
mod validators;
mod vaults;

pub(crate) use definition::Record;
pub use json_schema::Form;
pub use random::process_secret;
pub(crate) use registry::installed;
pub use registry::{PluginSchema, Registry, install, registry};
pub use shorthand::UrlParts;
pub use source::{
    Checks, Conversion, EntitySource, PluginSource, RuleFn, SchemaError, Transformation,
    ValidatorFn, is_given,
};
pub use stored::Malformed;
pub(crate) use stored::field_of as stored_field;
pub use vaults::VaultReferences;

use crate::value::{Object, Value};
use crate::{EntityKind, Error};
use compact_str::CompactString;
use definition::Kind;
use engine::{Engine, Mode};
use std::collections::BTreeSet;

/// The errors of an entity, nested like the entity. A wrong field has a text. A record or reference has an object. A
/// list has an array, with null for valid elements. `@entity` is a list of texts about the whole entity.
pub type Problems = Object;

/// Maximum `ttl` of an entity in seconds.
pub const MAX_TTL: i64 = 100_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RouterFlavor {
    Traditional,
    #[default]
    TraditionalCompatible,
    Expressions,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum EnabledPlugins {
    /// All plugins of the program.
    #[default]
    Bundled,
    Only(BTreeSet<String>),
}

impl EnabledPlugins {
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Self::Bundled => registry().plugin(name).is_some(),
            Self::Only(names) => names.contains(name) && registry().plugin(name).is_some(),
        }
    }
}

/// The properties of the node that validation depends on, and the time.
#[derive(Debug, Clone)]
pub struct Context {
    pub flavor: RouterFlavor,
    pub plugins: EnabledPlugins,
    /// Whether there is no database. Then some plugin settings are refused, such as counters shared by nodes.
    pub dbless: bool,
    /// Time in seconds since 1970.
    pub now: i64,
    /// Time in seconds since 1970, with milliseconds as decimals, for entities that store it in this form.
    pub now_ms: f64,
    /// Whether passwords are hashed and digests computed. False when an export is imported.
    pub transform: bool,
}

impl Context {
    /// The context of a node with all plugins at the given time.
    pub fn at(now: std::time::Duration) -> Self {
        let millis = now.subsec_millis();
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        Self {
            flavor: RouterFlavor::default(),
            plugins: EnabledPlugins::default(),
            dbless: false,
            now: seconds,
            now_ms: seconds as f64 + f64::from(millis) / 1000.0,
            transform: true,
        }
    }
}

/// Effect on an entity when the entity that it refers to is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDelete {
    /// The entity is deleted too.
    Cascade,
    /// The deletion is refused.
    Restrict,
}

/// A field that refers to another entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignField {
    pub name: String,
    pub kind: EntityKind,
    pub on_delete: OnDelete,
    pub required: bool,
    /// Whether at most one entity may refer to the same target entity.
    pub unique: bool,
}

#[derive(Debug)]
pub struct EntitySchema {
    pub kind: EntityKind,
    pub name: &'static str,
    pub primary_key: Vec<String>,
    /// Field that paths of the Admin API accept in place of the id.
    pub endpoint_key: Option<String>,
    /// Field that paths below a consumer accept in place of the id, because it is unique there.
    pub nested_key: Option<String>,
    /// Fields that must be unique together.
    pub cache_key: Vec<String>,
    /// Fields, other than references, that must be unique.
    pub unique: Vec<String>,
    /// Fields that get a random value if absent.
    pub generated: Vec<String>,
    pub foreign: Vec<ForeignField>,
    /// Whether entities may have a `ttl`. The `ttl` is not a field of the schema, and validation passes it through.
    pub ttl: bool,
    pub workspaceable: bool,
    /// Whether exports and declarative configurations contain the entity.
    pub db_export: bool,
    /// Whether the entities have a store of their own. They are in no revision, and in no export of the configuration.
    pub is_apart: bool,
    /// Whether the entity is a credential: a secret, or a name for which one is looked up.
    pub is_credential: bool,
    /// Path such as `/services`; `None` for entities without an Admin API path of their own, and for those without
    /// `generate_admin_api`.
    pub admin_api_path: Option<String>,
    /// Path segment under a consumer, such as `key-auth` in `/consumers/{c}/key-auth`.
    pub admin_api_nested_name: Option<String>,
    /// The plugin that defines the entity.
    pub plugin: Option<String>,
    /// The field whose value selects the subschema.
    pub subschema_key: Option<String>,
    subschema_error: String,
    /// One table per router flavor for routes, a single one for other entities.
    tables: Vec<Table>,
    transformations: Vec<Transformation>,
    definition: serde_json::Value,
}

/// The compiled records of an entity.
#[derive(Debug)]
struct Table {
    base: Record,
    /// Subschema keys, sorted. Several keys may select the same subschema, so each has a position in `subschemas`.
    keys: Vec<(CompactString, usize)>,
    subschemas: Vec<Record>,
    /// Fields that exist only in other flavors. Entities stored under another flavor may have them. Such fields stay
    /// in the entity, after all other fields, but they are not validated and not part of responses.
    elsewhere: Vec<definition::Field>,
}

impl EntitySchema {
    /// Expands shorthands, fills in defaults, validates and transforms an entity. The result is canonical: fields in
    /// schema order, no nulls, references reduced to ids.
    pub fn complete(&self, input: Object, context: &Context) -> Result<Object, Error> {
        self.process(input, context)
            .map_err(Error::schema_violation)
    }

    /// Completes an entity as [`complete`](Self::complete) does, but returns the problems unformatted, for callers that
    /// collect them from many entities.
    pub fn process(&self, input: Object, context: &Context) -> Result<Object, Problems> {
        self.run(input, None, context)
    }

    /// Changes an entity: records are merged, other values are replaced, and null removes a value. An id in `patch` is
    /// ignored. `existing` must be canonical.
    pub fn merge(
        &self,
        existing: &Object,
        mut patch: Object,
        context: &Context,
    ) -> Result<Object, Error> {
        for key in &self.primary_key {
            patch.remove(key);
        }
        self.run(patch, Some(existing), context)
            .map_err(Error::schema_violation)
    }

    /// Whether entities are stored in a different form than given, for example with hashed passwords.
    pub fn is_transformed(&self) -> bool {
        let mut transformations = self.transformations.iter();
        transformations.any(|one| one.replaces_input)
    }

    /// Checks a single field, such as a key in a path of the Admin API.
    pub fn check_field(&self, name: &str, value: &Value, context: &Context) -> Result<(), Value> {
        let record = self.base(context.flavor);
        match record.position(name) {
            Some(index) => engine::check(&record.fields[index], value, context),
            None => Err("unknown field".into()),
        }
    }

    /// Whether the schema forbids a value in this field, given the entity's other fields.
    pub(crate) fn forbids(&self, entity: &Object, field: &str, context: &Context) -> bool {
        let table = self.table(context.flavor);
        let Ok(record) = self.select(table, entity, None, context) else {
            return false;
        };
        let field = record.position(field).map(|at| &record.fields[at]);
        field.is_some_and(definition::Field::must_be_null)
    }

    /// Adds a field to a canonical entity, which remains canonical.
    pub(crate) fn with_field(&self, mut entity: Object, name: &str, value: Value) -> Object {
        entity.insert(name, value);
        self.shown_as(&entity, RouterFlavor::default())
            .ordered(entity)
    }

    fn run(
        &self,
        mut input: Object,
        existing: Option<&Object>,
        context: &Context,
    ) -> Result<Object, Problems> {
        let table = self.table(context.flavor);
        shorthand::expand_shorthands(&table.base.shorthands, &mut input, context)?;
        let record = self.select(table, &input, existing, context)?;
        let ttl = self.take_ttl(&mut input, existing);
        let given = self.given_secrets(&input, existing);
        let stale = existing.and_then(|existing| self.stale_secret(&input, existing));
        let (known, kept) = existing.map_or((None, Vec::new()), |one| table.known_of(one));
        let existing = known.as_ref().or(existing);
        let respelled = self.respell(table, record, existing, context)?;
        let existing = respelled.as_ref().or(existing);
        let engine = Engine {
            context,
            mode: existing.map_or(Mode::Create, |_| Mode::Update),
        };
        let ignored: &[&str] = &["updated_at", "ttl"];
        let ignored = &ignored[..1 + usize::from(self.ttl)];
        let mut filled = engine
            .fill(record, input, existing, ignored, 0)
            .map_err(into_object)?;
        if let Some(fields) = stale {
            let text = format!("all or none of these fields must be set: {fields}");
            engine::entity_error(&mut filled.errors, text);
        }
        if !filled.errors.is_empty() {
            return Err(std::mem::take(&mut filled.errors));
        }
        let mut entity = record.assemble(&mut filled.slots);
        if context.transform {
            for transformation in &given {
                (transformation.apply)(&mut entity)?;
            }
            if !given.is_empty() {
                // A transformation appends its result, so the order must be restored.
                entity = record.ordered(entity);
            }
        }
        for (name, value) in kept {
            entity.push(name, value);
        }
        if let Some(ttl) = ttl {
            entity.push("ttl", ttl);
        }
        Ok(entity)
    }

    /// If an update selects another subschema, returns the existing entity with every field of the old subschema.
    /// Absent fields are null. Validation then reports each field that the new subschema does not have.
    fn respell(
        &self,
        table: &Table,
        record: &Record,
        existing: Option<&Object>,
        context: &Context,
    ) -> Result<Option<Object>, Problems> {
        let Some(existing) = existing.filter(|_| self.subschema_key.is_some()) else {
            return Ok(None);
        };
        let old = self.select(table, existing, None, context)?;
        Ok((!std::ptr::eq(old, record)).then(|| old.with_nulls(existing)))
    }

    fn take_ttl(&self, input: &mut Object, existing: Option<&Object>) -> Option<Value> {
        if !self.ttl {
            return None;
        }
        let ttl = match input.remove("ttl") {
            Some(ttl) => ttl,
            None => existing?.get("ttl")?.clone(),
        };
        (!ttl.is_null()).then_some(ttl)
    }

    /// The transformations whose input is given. The others are left out, because a stored hash must not be hashed
    /// again.
    fn given_secrets(&self, input: &Object, existing: Option<&Object>) -> Vec<Transformation> {
        let applies = |one: &&Transformation| existing.is_none() || input.contains(one.input);
        self.transformations
            .iter()
            .filter(applies)
            .copied()
            .collect()
    }

    /// Names of the fields that the patch must set together, if it sets only some of them.
    fn stale_secret(&self, patch: &Object, existing: &Object) -> Option<&'static str> {
        let mut transformations = self.transformations.iter();
        transformations.find_map(|one| (one.staleness)(patch, existing))
    }

    fn table(&self, flavor: RouterFlavor) -> &Table {
        match flavor {
            _ if self.tables.len() == 1 => &self.tables[0],
            RouterFlavor::Traditional => &self.tables[0],
            RouterFlavor::TraditionalCompatible => &self.tables[1],
            RouterFlavor::Expressions => &self.tables[2],
        }
    }

    fn base(&self, flavor: RouterFlavor) -> &Record {
        &self.table(flavor).base
    }

    /// The record that the subschema key selects. Without a valid key, the entity cannot be checked further.
    fn select<'t>(
        &self,
        table: &'t Table,
        input: &Object,
        existing: Option<&Object>,
        context: &Context,
    ) -> Result<&'t Record, Problems> {
        let Some(key) = &self.subschema_key else {
            return Ok(&table.base);
        };
        let default = || {
            let index = table.base.position(key)?;
            table.base.fields[index].default.as_ref()
        };
        let value = input
            .get(key)
            .or_else(|| existing.and_then(|existing| existing.get(key)))
            .or_else(default);
        let Some(value) = value.filter(|value| !value.is_null()) else {
            return Err(single(key, "required field missing".into()));
        };
        let selected = match value {
            Value::Array(values) => values
                .iter()
                .find_map(|value| self.subschema(table, value.as_str()?, context)),
            value => value
                .as_str()
                .and_then(|name| self.subschema(table, name, context)),
        };
        selected.ok_or_else(|| {
            let name = match value {
                Value::Array(values) => values
                    .first()
                    .map_or_else(|| "nil".to_owned(), constraint::display),
                value => constraint::display(value),
            };
            single(key, self.subschema_error.replace("%s", &name))
        })
    }

    fn subschema<'t>(&self, table: &'t Table, name: &str, context: &Context) -> Option<&'t Record> {
        if self.kind == EntityKind::Plugins
            && let EnabledPlugins::Only(names) = &context.plugins
            && !names.contains(name)
        {
            return None;
        }
        table.selected(name)
    }

    /// Returns the record of the subschema with this name, or the base record if there is none.
    pub(crate) fn record(&self, subschema: Option<&str>, flavor: RouterFlavor) -> &Record {
        let table = self.table(flavor);
        let selected = subschema.and_then(|name| table.selected(name));
        selected.unwrap_or(&table.base)
    }
}

impl Table {
    fn selected(&self, name: &str) -> Option<&Record> {
        let keys = &self.keys;
        let found = keys.binary_search_by(|(key, _)| key.as_str().cmp(name));
        Some(&self.subschemas[keys[found.ok()?].1])
    }

    /// Whether a field exists only in other flavors.
    fn is_elsewhere(&self, name: &[u8]) -> bool {
        let mut elsewhere = self.elsewhere.iter();
        elsewhere.any(|field| field.name.as_bytes() == name)
    }

    /// Finds the fields that exist only in other flavors. If there are any, the first result is the entity without
    /// them. The second result contains these fields.
    fn known_of(&self, existing: &Object) -> (Option<Object>, Vec<(CompactString, Value)>) {
        let is_elsewhere = |(name, _): &(&str, &Value)| self.is_elsewhere(name.as_bytes());
        let kept = existing.iter().filter(is_elsewhere);
        let kept: Vec<_> = kept
            .map(|(name, value)| (name.into(), value.clone()))
            .collect();
        if kept.is_empty() {
            return (None, kept);
        }
        let mut known = existing.clone();
        for (name, _) in &kept {
            known.remove(name);
        }
        (Some(known), kept)
    }
}

impl ForeignField {
    fn of(record: &Record) -> Vec<Self> {
        let reference = |field: &definition::Field| match &field.kind {
            Kind::Foreign(reference) => Some(Self {
                name: field.name.to_string(),
                kind: reference.kind,
                on_delete: reference.on_delete,
                required: field.required,
                unique: field.unique,
            }),
            _ => None,
        };
        record.fields.iter().filter_map(reference).collect()
    }
}

fn single(name: &str, text: String) -> Problems {
    [(name, text.into())].into_iter().collect()
}

fn into_object(problems: Value) -> Problems {
    match problems {
        Value::Object(object) => object,
        other => [("@entity", other)].into_iter().collect(),
    }
}
