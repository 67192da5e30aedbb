//! Describes entities as JSON Schema (2020-12, the dialect of OpenAPI 3.1). The schemas are generated from the records
//! that validate the entities.
//!
//! Every entity that the engine accepts or writes should be valid under these schemas. They are less strict than the
//! engine. Checks over several fields are described in words, and validator functions only by their name, as `format`.

use super::checks::Check;
use super::constraint::Constraint;
use super::definition::{Auto, Effect, Field, Kind, Record, Reference};
use super::pattern::{Pattern, escape_ecma};
use super::{EntitySchema, MAX_TTL, RouterFlavor, registry};
use crate::value::Value;
use serde_json::{Map, Value as Json, json};

/// The kind of message in which an entity is described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The entity in a response of the Admin API: every field is present, null if not set.
    Shown,
    /// The entity in a request that creates or replaces it.
    Given,
    /// The entity in a request that changes it: records are merged, other values are replaced.
    Patch,
}

impl EntitySchema {
    /// Returns the JSON Schema of the entity. Fields that a subschema defines, such as a plugin's `config`, may have
    /// any content.
    pub fn json_schema(&self, form: Form, flavor: RouterFlavor) -> Json {
        self.described_by(self.base(flavor), form)
    }

    /// Returns the JSON Schema of the entity with the subschema `name`.
    pub fn variant_json_schema(&self, name: &str, form: Form, flavor: RouterFlavor) -> Json {
        let mut schema = self.described_by(self.record(Some(name), flavor), form);
        if let Some(key) = &self.subschema_key {
            schema["properties"][key] = json!({ "type": "string", "const": name });
        }
        schema
    }

    /// Returns the names of the entity's subschemas, sorted.
    pub fn variants(&self, flavor: RouterFlavor) -> impl Iterator<Item = &str> {
        self.table(flavor).keys.iter().map(|(key, _)| key.as_str())
    }

    fn described_by(&self, record: &Record, form: Form) -> Json {
        let mut schema = object(record, form);
        if self.ttl {
            schema["properties"]["ttl"] = match form {
                Form::Shown => json!({
                    "type": ["integer", "null"], "minimum": 0,
                    "description": "Remaining lifetime in seconds; null if the entity does not expire.",
                }),
                Form::Given | Form::Patch => json!({
                    "type": ["integer", "null"], "minimum": 0, "maximum": MAX_TTL,
                    "description": "Lifetime in seconds; with 0 or null the entity does not expire.",
                }),
            };
            let required = schema.get_mut("required").and_then(Json::as_array_mut);
            if let (Form::Shown, Some(required)) = (form, required) {
                required.push("ttl".into());
            }
        }
        schema
    }
}

fn object(record: &Record, form: Form) -> Json {
    let mut properties = Map::new();
    let (mut required, mut either) = (Vec::new(), Vec::new());
    for one in &record.fields {
        let name = one.name.as_str();
        properties.insert(name.to_owned(), field(one, form));
        if form == Form::Given && must_be_given(one) {
            let shorthands = record.shorthands.iter().filter(|other| other.fills(name));
            let ways: Vec<&str> = shorthands.map(|other| other.field.name.as_str()).collect();
            if ways.is_empty() {
                required.push(name);
            } else {
                either.push(any_required([name].into_iter().chain(ways)));
            }
        } else if form == Form::Shown && !one.own {
            required.push(name);
        }
    }
    for shorthand in &record.shorthands {
        let name = shorthand.field.name.as_str();
        let is_shown = matches!(shorthand.effect, Effect::ReplacedBy(_));
        if properties.contains_key(name) || form == Form::Shown && !is_shown {
            continue;
        }
        let mut schema = nullable(value(&shorthand.field, form));
        match shorthand.effect {
            Effect::Function(_) => schema["writeOnly"] = true.into(),
            Effect::Into(_) | Effect::ReplacedBy(_) => schema["deprecated"] = true.into(),
        }
        properties.insert(name.to_owned(), schema);
    }
    let mut schema =
        json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    add(&mut schema, either);
    if form != Form::Shown {
        let rules: Vec<String> = record.checks.iter().flat_map(rules).collect();
        if !rules.is_empty() {
            schema["description"] = rules.join(" ").into();
        }
    }
    schema
}

/// Whether a new entity must have the field.
fn must_be_given(field: &Field) -> bool {
    let has_value = field.default.is_some() || field.auto.is_some();
    match &field.kind {
        Kind::Record(record) => {
            field.required && !has_value && record.fields.iter().any(must_be_given)
        }
        _ => field.required && !has_value,
    }
}

fn field(field: &Field, form: Form) -> Json {
    let mut schema = value(field, form);
    let may_be_null = match (form, field.auto) {
        // The Admin API shows a computed value for such a field, which is never null.
        (Form::Shown, _) if field.transient => false,
        (Form::Shown, Some(Auto::Uuid | Auto::UpdatedAt)) => false,
        (Form::Given, Some(_)) => true,
        _ => !field.required,
    };
    if may_be_null {
        schema = nullable(schema);
    }
    if form == Form::Given
        && let Some(default) = &field.default
    {
        schema["default"] = json!(default);
    }
    let unique = field.unique.then_some("Unique.");
    let referenceable = (form != Form::Shown && field.referenceable)
        .then_some("May be a reference to a secret, {vault://…}.");
    let about: Vec<&str> = unique.into_iter().chain(referenceable).collect();
    if !about.is_empty() {
        schema["description"] = about.join(" ").into();
    }
    schema
}

/// Returns the schema of a field's value that is not null.
fn value(field: &Field, form: Form) -> Json {
    let mut schema = kind(&field.kind, form);
    let mut others = Vec::new();
    for constraint in &field.constraints {
        constrain(&mut schema, &mut others, constraint, &field.kind);
    }
    if schema.get("enum").is_some() || schema["format"] == "uuid" {
        // Enumerated texts and UUIDs are never empty, so `minLength` is redundant.
        schema
            .as_object_mut()
            .map(|schema| schema.remove("minLength"));
    }
    let takes_any_text = others.is_empty()
        && [
            json!({ "type": "string" }),
            json!({ "type": "string", "minLength": 1 }),
        ]
        .contains(&schema);
    add(&mut schema, others);
    if field.referenceable && !takes_any_text {
        return json!({ "anyOf": [schema, { "type": "string", "pattern": r"^\{vault:\/\/.*\}$" }] });
    }
    schema
}

/// Adds conditions to a schema. A condition becomes part of the schema itself if the schema does not use its keywords
/// yet, else a part of `allOf`.
fn add(schema: &mut Json, others: Vec<Json>) {
    let mut rest = Vec::new();
    for other in others {
        match (schema.as_object_mut(), other) {
            (Some(schema), Json::Object(other))
                if !other.keys().any(|key| schema.contains_key(key)) =>
            {
                schema.extend(other);
            }
            (_, other) => rest.push(other),
        }
    }
    if !rest.is_empty() {
        schema["allOf"] = rest.into();
    }
}

fn kind(kind: &Kind, form: Form) -> Json {
    // A patch replaces lists and maps as a whole, so their contents are described as in a new entity.
    let inner = match form {
        Form::Patch => Form::Given,
        form => form,
    };
    match kind {
        Kind::String => json!({ "type": "string" }),
        Kind::Integer => json!({ "type": "integer" }),
        Kind::Number => json!({ "type": "number" }),
        Kind::Boolean => json!({ "type": "boolean" }),
        Kind::Array(element) => json!({ "type": "array", "items": value(element, inner) }),
        Kind::Set(element) => {
            let mut schema = json!({ "type": "array", "items": value(element, inner) });
            // Like Kong, the engine removes repeated scalars from a set, but not repeated records.
            if form == Form::Shown && is_scalar(&element.kind) {
                schema["uniqueItems"] = true.into();
            }
            schema
        }
        Kind::Map(entry) => {
            let mut schema =
                json!({ "type": "object", "additionalProperties": value(&entry.1, inner) });
            if !entry.0.constraints.is_empty() {
                schema["propertyNames"] = value(&entry.0, inner);
            }
            schema
        }
        Kind::Record(record) => object(record, form),
        Kind::Foreign(reference) => referred(*reference, form),
        Kind::Any => json!({}),
        Kind::Abstract => json!({ "type": "object" }),
    }
}

fn is_scalar(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::String | Kind::Integer | Kind::Number | Kind::Boolean
    )
}

/// Returns the schema of a reference `{"id": …}`. Requests may use a unique field of the entity instead of its id.
fn referred(reference: Reference, form: Form) -> Json {
    let id = json!({ "type": "string", "format": "uuid" });
    if form == Form::Shown {
        return json!({
            "type": "object", "properties": { "id": id }, "required": ["id"], "additionalProperties": false,
        });
    }
    let unique = &registry().entity(reference.kind).unique;
    let mut properties = Map::from_iter([("id".to_owned(), id)]);
    properties.extend(
        unique
            .iter()
            .map(|name| (name.clone(), json!({ "type": "string" }))),
    );
    let mut schema = any_required(properties.keys().map(String::as_str));
    schema["type"] = "object".into();
    schema["properties"] = properties.into();
    schema
}

fn any_required<'n>(names: impl Iterator<Item = &'n str>) -> Json {
    let ways: Vec<Json> = names.map(|name| json!({ "required": [name] })).collect();
    json!({ "anyOf": ways })
}

fn constrain(schema: &mut Json, others: &mut Vec<Json>, constraint: &Constraint, kind: &Kind) {
    // `pattern` accepts every value that is not a string, so its negation must be limited to strings.
    let without = |pattern: &Pattern| {
        let pattern = pattern.ecma()?;
        Some(json!({ "not": { "type": "string", "pattern": pattern } }))
    };
    let with = |pattern: &Pattern| Some(json!({ "pattern": pattern.ecma()? }));
    match constraint {
        Constraint::Eq(Value::Null) => *schema = json!({ "type": "null" }),
        Constraint::Eq(wanted) => schema["const"] = json!(wanted),
        Constraint::Ne(unwanted) => others.push(json!({ "not": { "const": unwanted } })),
        Constraint::NotOneOf(values) => others.push(json!({ "not": { "enum": values } })),
        Constraint::OneOf(values) => schema["enum"] = json!(values),
        Constraint::Gt(limit) => schema["exclusiveMinimum"] = number(*limit),
        Constraint::Timestamp => schema["exclusiveMinimum"] = 0.into(),
        Constraint::Uuid => schema["format"] = "uuid".into(),
        Constraint::IsRegex => schema["format"] = "regex".into(),
        Constraint::Between(low, high) => {
            schema["minimum"] = number(*low);
            schema["maximum"] = number(*high);
        }
        Constraint::LenEq(length) => {
            at_least(schema, kind, *length);
            at_most(schema, kind, *length);
        }
        Constraint::LenMin(least) => at_least(schema, kind, *least),
        Constraint::LenMax(most) => at_most(schema, kind, *most),
        Constraint::StartsWith(prefix) => {
            others.push(json!({ "pattern": format!("^{}", escape_ecma(prefix)) }));
        }
        Constraint::NotMatch(pattern) => others.extend(without(pattern)),
        Constraint::MatchNone(pairs) => {
            others.extend(pairs.iter().filter_map(|(one, _)| without(one)))
        }
        Constraint::Match(pattern) => others.extend(with(pattern)),
        Constraint::MatchAll(pairs) => others.extend(pairs.iter().filter_map(|(one, _)| with(one))),
        Constraint::MatchAny(patterns, _) => {
            let any: Option<Vec<Json>> = patterns.iter().map(with).collect();
            others.extend(any.map(|any| json!({ "anyOf": any })));
        }
        Constraint::Contains(wanted) => others.push(json!({ "contains": { "const": wanted } })),
        Constraint::Custom(validator) if matches!(kind, Kind::String) => {
            schema["format"] = validator.name().replace('_', "-").into();
        }
        // All values must belong to the same subset.
        Constraint::ExclusiveSubsets(subsets) => {
            let one = subsets
                .iter()
                .map(|values| json!({ "items": { "enum": values } }));
            others.push(json!({ "anyOf": one.collect::<Vec<_>>() }));
        }
        Constraint::Custom(_) => {}
    }
}

fn at_least(schema: &mut Json, kind: &Kind, length: usize) {
    match kind {
        // `length` is in bytes, but `minLength` is in characters. A character has at most four bytes.
        Kind::String => schema["minLength"] = length.div_ceil(4).into(),
        Kind::Map(_) => schema["minProperties"] = length.into(),
        _ => schema["minItems"] = length.into(),
    }
}

fn at_most(schema: &mut Json, kind: &Kind, length: usize) {
    let keyword = match kind {
        Kind::String => "maxLength",
        Kind::Map(_) => "maxProperties",
        _ => "maxItems",
    };
    schema[keyword] = length.into();
}

/// Writes a whole number as a JSON integer.
fn number(limit: f64) -> Json {
    if limit.fract() == 0.0 && limit.abs() < 9e15 {
        (limit as i64).into()
    } else {
        limit.into()
    }
}

fn nullable(mut schema: Json) -> Json {
    if schema.get("const").is_some() {
        return json!({ "anyOf": [schema, { "type": "null" }] });
    }
    if let Some(values) = schema.get_mut("enum").and_then(Json::as_array_mut) {
        values.push(Json::Null);
    }
    match schema.get("type").cloned() {
        Some(Json::String(one)) if one != "null" => schema["type"] = json!([one, "null"]),
        Some(_) => {}
        None => {
            if let Some(any) = schema.get_mut("anyOf").and_then(Json::as_array_mut) {
                any.push(json!({ "type": "null" }));
            }
        }
    }
    schema
}

/// Describes a check over several fields in words.
fn rules(check: &Check) -> Vec<String> {
    let names = |paths: &[super::checks::Path]| {
        let names: Vec<String> = paths
            .iter()
            .map(|path| format!("`{}`", path.text))
            .collect();
        names.join(", ")
    };
    match check {
        Check::AtLeastOneOf(paths) => {
            vec![format!("At least one of {} must be set.", names(paths))]
        }
        Check::OnlyOneOf(paths) => vec![format!("Exactly one of {} must be set.", names(paths))],
        Check::Distinct(paths) => vec![format!("The values of {} must differ.", names(paths))],
        Check::MutuallyRequired(paths) => {
            vec![format!("All or none of {} must be set.", names(paths))]
        }
        Check::MutuallyExclusive(paths) => {
            vec![format!("At most one of {} may be set.", names(paths))]
        }
        Check::Conditional(one) => {
            vec![format!(
                "`{}` depends on `{}`.",
                one.then_path.text, one.if_path.text
            )]
        }
        Check::ConditionalAtLeastOneOf(one) => {
            let otherwise = one.otherwise.as_ref().map(|(_, otherwise)| otherwise);
            let told = |one_of: &super::checks::OneOf| {
                let error = one_of.error.as_ref()?;
                Some(format!("{}.", error.replace("%s", &names(&one_of.paths))))
            };
            [Some(&one.then), otherwise]
                .into_iter()
                .flatten()
                .filter_map(told)
                .collect()
        }
        Check::Custom(..) => Vec::new(),
    }
}
