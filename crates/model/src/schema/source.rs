//! What a registry is built from: the texts of schemas, and the functions that only the schemas of one plugin use.

use super::shorthand::CONVERSIONS;
use super::transformations::TRANSFORMATIONS;
use super::{Context, Problems, validators};
use crate::EntityKind;
use crate::value::{Object, Value};
use std::collections::BTreeSet;

/// The contribution of a plugin to the registry: its schema and its entities.
#[derive(Debug, Clone, Copy)]
pub struct PluginSource {
    pub name: &'static str,
    /// The text of the plugin's `schema.json`.
    pub schema: &'static str,
    pub entities: &'static [EntitySource],
    /// The functions that the schemas of the plugin and of its entities name, besides those of this crate.
    pub checks: Checks,
}

impl PluginSource {
    /// A plugin without entities, whose schema needs only the functions of this crate.
    pub const fn plain(name: &'static str, schema: &'static str) -> Self {
        Self {
            name,
            schema,
            entities: &[],
            checks: Checks::NONE,
        }
    }
}

/// An entity that a plugin defines.
#[derive(Debug, Clone, Copy)]
pub struct EntitySource {
    /// The kind. Stores contain its number, so the number must never change.
    pub kind: EntityKind,
    /// The name of the collection.
    pub name: &'static str,
    pub schema: &'static str,
}

/// Functions by their names in schemas.
#[derive(Debug, Clone, Copy)]
pub struct Checks {
    /// Named by `validator`.
    pub validators: &'static [(&'static str, ValidatorFn)],
    /// Named by `fn` of a `custom_entity_check`.
    pub rules: &'static [(&'static str, RuleFn)],
    /// Named by `func` of a shorthand field.
    pub shorthands: &'static [Conversion],
    /// Named by `transformations` of an entity.
    pub transformations: &'static [Transformation],
}

impl Checks {
    pub const NONE: Self = Self {
        validators: &[],
        rules: &[],
        shorthands: &[],
        transformations: &[],
    };
}

impl Checks {
    /// A function with the name of another one. Schemas could not say which of the two they mean.
    pub(super) fn ambiguous(&self) -> Option<&'static str> {
        fn twice<'a>(names: impl Iterator<Item = &'a &'static str>) -> Option<&'static str> {
            let mut seen = BTreeSet::new();
            names.copied().find(|name| !seen.insert(*name))
        }
        let validators = validators::names().chain(self.validators.iter().map(|(name, _)| name));
        let rules = validators::rule_names().chain(self.rules.iter().map(|(name, _)| name));
        let shorthands = CONVERSIONS.iter().chain(self.shorthands);
        let transformations = TRANSFORMATIONS.iter().chain(self.transformations);
        twice(validators)
            .or_else(|| twice(rules))
            .or_else(|| twice(shorthands.map(|one| &one.name)))
            .or_else(|| twice(transformations.map(|one| &one.name)))
    }
}

/// Validates a single value that is not null and has the right type. A problem is a text, or a tree of texts if the
/// value is a record.
pub type ValidatorFn = fn(&Value, &Context) -> Result<(), Value>;

/// Validates several fields of an entity. The values are in the order of the check's `field_sources`. A field that is
/// not set is null.
pub type RuleFn = fn(&[&Value], &Context) -> Result<(), String>;

/// The conversion of a shorthand field that does more than moving its value.
#[derive(Debug, Clone, Copy)]
pub struct Conversion {
    pub name: &'static str,
    /// The fields that the conversion may set.
    pub fills: &'static [&'static str],
    /// Sets the fields of the input from the value of the shorthand, which may be null.
    pub apply: fn(Value, &mut Object),
}

/// A conversion of an entity to its stored form, after its validation: the hash of a secret, the digest of a
/// certificate.
#[derive(Debug, Clone, Copy)]
pub struct Transformation {
    pub name: &'static str,
    /// The field that must be given for the transformation to apply.
    pub input: &'static str,
    /// Whether the stored input differs from the given one, as the hash of a password does.
    pub replaces_input: bool,
    /// Returns the fields that must be given together, if a patch changes another input of the stored value but does
    /// not give [`input`](Self::input) again. Such a patch is refused, because the stored value would no longer match.
    /// The arguments are the patch and the existing entity.
    /// Source: kong/db/schema/init.lua (run_transformation_checks).
    pub staleness: fn(&Object, &Object) -> Option<&'static str>,
    pub apply: fn(&mut Object) -> Result<(), Problems>,
}

/// Whether a patch sets a field to a value that is neither null nor empty, for [`Transformation::staleness`].
pub fn is_given(patch: &Object, field: &str) -> bool {
    match patch.get(field) {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(_) => true,
    }
}

/// A mistake in the schemas that a registry is built from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("schema of {schema}: {problem}")]
pub struct SchemaError {
    /// The entity or plugin.
    pub schema: String,
    /// The mistake, with the path of the field.
    pub problem: String,
}

impl SchemaError {
    pub(super) fn new(schema: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            schema: schema.into(),
            problem: problem.into(),
        }
    }
}
