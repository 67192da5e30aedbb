//! Compiles schemas from their texts. A mistake in a schema is an error that names the field.

use super::checks::{Check, Conditional, ConditionalAtLeastOneOf, OneOf, Path};
use super::constraint::Constraint;
use super::definition::{Auto, Effect, Field, Kind, MAX_FIELDS, Record, Reference, Shorthand};
use super::pattern::Pattern;
use super::shorthand::CONVERSIONS;
use super::source::{Checks, Transformation};
use super::transformations::TRANSFORMATIONS;
use super::validators::{EntityRule, Validator};
use super::{OnDelete, json, random};
use crate::EntityKind;
use crate::value::Value;
use compact_str::CompactString;
use serde_json::{Map, Value as Json};

/// Stands for a default that each process makes.
const RANDOM_DEFAULT: &str = "<random base64 of 32 bytes, generated per process at schema load>";

/// Attributes of a field in a schema.
type Attributes = Map<String, Json>;

/// A compiled part, or the mistake in it as a text that begins with the path of the field.
pub(super) type Loaded<T> = Result<T, String>;

/// Compiles the schemas of one plugin, or those of this crate.
#[derive(Clone, Copy)]
pub(crate) struct Loader<'a> {
    /// The functions that the schemas may name besides those of this crate.
    pub(crate) checks: &'a Checks,
    /// The names and kinds that references may name.
    pub(crate) kinds: &'a [(&'static str, EntityKind)],
}

/// Adds the name of a field to a mistake in it.
fn within(name: &str) -> impl FnOnce(String) -> String + '_ {
    move |mistake| format!("{name}: {mistake}")
}

impl Loader<'_> {
    pub(crate) fn record(&self, definition: &Json) -> Loaded<Record> {
        let fields = named(&definition["fields"])?;
        let shorthands = named(&definition["shorthand_fields"])?;
        let mut record = Record {
            fields: fields
                .into_iter()
                .map(|(name, attributes)| self.field(name, attributes))
                .collect::<Loaded<_>>()?,
            shorthands: shorthands
                .into_iter()
                .map(|(name, attributes)| self.shorthand(name, attributes))
                .collect::<Loaded<_>>()?,
            checks: Vec::new(),
        };
        self.add_checks(&mut record, &definition["entity_checks"])?;
        Ok(record)
    }

    /// Copies a record, then applies the definition: it replaces or adds fields, adds checks, and removes the rules
    /// that `without_checks` names.
    pub(crate) fn specialize(&self, base: &Record, definition: &Json) -> Loaded<Record> {
        let mut record = base.clone();
        for (name, attributes) in named(&definition["fields"])? {
            let field = self.field(name, attributes)?;
            match record.position(name) {
                Some(index) => record.fields[index] = field,
                None => record.fields.push(field),
            }
        }
        let without: Vec<&str> = strings(&definition["without_checks"]).collect();
        record.checks.retain(
            |check| !matches!(check, Check::Custom(_, rule) if without.contains(&rule.name())),
        );
        // Rules may name fields that only this record has, so their paths are resolved again.
        for index in 0..record.checks.len() {
            let Check::Custom(paths, rule) = &record.checks[index] else {
                continue;
            };
            let paths = paths.iter().map(|one| path(&record, &one.text));
            let paths = paths.collect::<Loaded<_>>()?;
            record.checks[index] = Check::Custom(paths, *rule);
        }
        self.add_checks(&mut record, &definition["entity_checks"])?;
        Ok(record)
    }

    /// The transformations that an entity's definition names.
    pub(crate) fn transformations(&self, definition: &Json) -> Loaded<Vec<Transformation>> {
        let known = || TRANSFORMATIONS.iter().chain(self.checks.transformations);
        strings(&definition["transformations"])
            .map(|name| {
                let found = known().find(|one| one.name == name).copied();
                found.ok_or_else(|| format!("unknown transformation {name}"))
            })
            .collect()
    }

    fn add_checks(&self, record: &mut Record, definitions: &Json) -> Loaded<()> {
        if record.fields.len() > MAX_FIELDS {
            return Err(format!("a record has more than {MAX_FIELDS} fields"));
        }
        let checks = items(definitions).map(|definition| self.check(record, definition));
        let checks = checks.collect::<Loaded<Vec<Check>>>()?;
        record.checks.extend(checks);
        Ok(())
    }

    fn field(&self, name: &str, attributes: &Attributes) -> Loaded<Field> {
        self.unnamed_field(name, attributes).map_err(within(name))
    }

    fn unnamed_field(&self, name: &str, attributes: &Attributes) -> Loaded<Field> {
        let flag = |key: &str| attributes.get(key) == Some(&Json::Bool(true));
        let kind = self.kind(attributes)?;
        let default = attributes.get("default").filter(|json| !json.is_null());
        let default = match default {
            Some(Json::String(text)) if text == RANDOM_DEFAULT => {
                Some(Value::from(random::process_secret()))
            }
            Some(json) => Some(arranged(&kind, value(json)?)?),
            None => None,
        };
        let mut field = Field {
            // The leak is harmless, because a process builds few registries, and keeps the one that it installs.
            name: CompactString::const_new(String::leak(name.to_owned())),
            json_key: format!("{}:", Json::from(name)),
            json_absent: String::new(),
            required: flag("required"),
            default,
            auto: flag("auto").then(|| auto(name, attributes)),
            unique: flag("unique"),
            referenceable: flag("referenceable"),
            transient: flag("transient"),
            own: flag("own"),
            error_text: attributes.get("err").and_then(Json::as_str).map(Into::into),
            constraints: self.constraints(attributes, &kind)?,
            kind,
        };
        if field.own {
            if field.required || field.default.is_some() || field.auto.is_some() {
                return Err("a field that Kong lacks is optional and has no default".to_owned());
            }
            return Ok(field);
        }
        let mut absent = Vec::new();
        json::write_value(field.absent(), &mut absent);
        let absent = String::from_utf8(absent).map_err(|error| error.to_string())?;
        field.json_absent = format!(",{}{absent}", field.json_key);
        Ok(field)
    }

    fn kind(&self, attributes: &Attributes) -> Loaded<Kind> {
        let nested = |key: &str| {
            let attributes = attributes.get(key).and_then(Json::as_object);
            let attributes = attributes.ok_or_else(|| format!("{key} is missing"))?;
            self.field(key, attributes)
        };
        Ok(match attributes.get("type").and_then(Json::as_str) {
            Some("string") => Kind::String,
            Some("integer") => Kind::Integer,
            Some("number") => Kind::Number,
            Some("boolean") => Kind::Boolean,
            Some("array") => Kind::Array(Box::new(nested("elements")?)),
            Some("set") => Kind::Set(Box::new(nested("elements")?)),
            Some("map") if !attributes.contains_key("keys") => Kind::Any,
            Some("map") => Kind::Map(Box::new((nested("keys")?, nested("values")?))),
            Some("record") if attributes.contains_key("abstract") => Kind::Abstract,
            Some("record") => {
                Kind::Record(Box::new(self.record(&Json::Object(attributes.clone()))?))
            }
            Some("foreign") => Kind::Foreign(self.reference(attributes)?),
            Some("json" | "any" | "function") => Kind::Any,
            Some(other) => return Err(format!("unknown type {other}")),
            None => return Err("type is missing".to_owned()),
        })
    }

    fn reference(&self, attributes: &Attributes) -> Loaded<Reference> {
        let name = attributes.get("reference").and_then(Json::as_str);
        let name = name.ok_or("reference is missing")?;
        let known = self.kinds.iter().find(|(known, _)| *known == name);
        let (_, kind) = known.ok_or_else(|| format!("reference to the unknown entity {name}"))?;
        let on_delete = match attributes.get("on_delete").and_then(Json::as_str) {
            Some("cascade") => OnDelete::Cascade,
            _ => OnDelete::Restrict,
        };
        Ok(Reference {
            kind: *kind,
            on_delete,
        })
    }

    fn shorthand(&self, name: &str, attributes: &Attributes) -> Loaded<Shorthand> {
        let path = |json: &Json| strings(json).map(Into::into).collect();
        let replaced =
            &attributes.get("deprecation").unwrap_or(&Json::Null)["replaced_with"][0]["path"];
        let effect = match (attributes.get("func"), attributes.get("into")) {
            (Some(function), _) => {
                let wanted = text(function)?;
                let mut known = CONVERSIONS.iter().chain(self.checks.shorthands);
                let found = known.find(|one| one.name == wanted);
                let found = found.ok_or_else(|| format!("{name}: unknown function {wanted}"))?;
                Effect::Function(*found)
            }
            (None, Some(into)) => Effect::Into(path(into)),
            (None, None) => Effect::ReplacedBy(path(replaced)),
        };
        Ok(Shorthand {
            field: self.field(name, attributes)?,
            effect,
        })
    }

    fn constraints(&self, attributes: &Attributes, kind: &Kind) -> Loaded<Vec<Constraint>> {
        let mut constraints = self.given_constraints(attributes)?;
        // Strings must not be empty unless the schema allows it.
        if matches!(kind, Kind::String) && !attributes.contains_key("len_min") {
            let least = Constraint::LenMin(1);
            let at = constraints
                .iter()
                .position(|constraint| order(constraint) > order(&least))
                .unwrap_or(constraints.len());
            constraints.insert(at, least);
        }
        constraints.retain(|constraint| !matches!(constraint, Constraint::LenMin(0)));
        Ok(constraints)
    }

    /// The constraints that the attributes contain, in the order in which they are tried.
    fn given_constraints(&self, attributes: &Attributes) -> Loaded<Vec<Constraint>> {
        let given = ORDER.iter().filter_map(|key| {
            let json = attributes.get(*key)?;
            Some(self.constraint(key, json).map_err(within(key)))
        });
        given.collect()
    }

    fn constraint(&self, key: &str, json: &Json) -> Loaded<Constraint> {
        Ok(match key {
            "eq" => Constraint::Eq(value(json)?),
            "ne" => Constraint::Ne(value(json)?),
            "not_one_of" => Constraint::NotOneOf(values(json)?),
            "one_of" => Constraint::OneOf(values(json)?),
            "gt" => Constraint::Gt(float(json)?),
            "timestamp" => Constraint::Timestamp,
            "uuid" => Constraint::Uuid,
            "is_regex" => Constraint::IsRegex,
            "between" => Constraint::Between(float(&json[0])?, float(&json[1])?),
            "len_eq" => Constraint::LenEq(size(json)?),
            "len_min" => Constraint::LenMin(size(json)?),
            "len_max" => Constraint::LenMax(size(json)?),
            "starts_with" => Constraint::StartsWith(text(json)?.to_owned()),
            "not_match" => Constraint::NotMatch(pattern(json)?),
            "match_none" => Constraint::MatchNone(pairs(json)?),
            "match" => Constraint::Match(pattern(json)?),
            "match_all" => Constraint::MatchAll(pairs(json)?),
            "match_any" => Constraint::MatchAny(
                items(&json["patterns"])
                    .map(pattern)
                    .collect::<Loaded<_>>()?,
                json["err"].as_str().map(str::to_owned),
            ),
            "contains" => Constraint::Contains(value(json)?),
            "validator" => {
                let name = text(json)?;
                let found = Validator::from_name(name, self.checks);
                Constraint::Custom(found.ok_or_else(|| format!("unknown validator {name}"))?)
            }
            _ => Constraint::ExclusiveSubsets(items(json).map(values).collect::<Loaded<_>>()?),
        })
    }

    fn check(&self, record: &Record, definition: &Json) -> Loaded<Check> {
        let (name, arguments) = only_entry(definition)?;
        self.named_check(record, name, arguments)
            .map_err(within(name))
    }

    fn named_check(&self, record: &Record, name: &str, arguments: &Json) -> Loaded<Check> {
        Ok(match name {
            "at_least_one_of" => Check::AtLeastOneOf(paths(record, arguments)?),
            "only_one_of" => Check::OnlyOneOf(paths(record, arguments)?),
            "distinct" => Check::Distinct(paths(record, arguments)?),
            "mutually_required" => Check::MutuallyRequired(paths(record, arguments)?),
            "mutually_exclusive" => Check::MutuallyExclusive(paths(record, arguments)?),
            "conditional" => Check::Conditional(Box::new(self.conditional(record, arguments)?)),
            "conditional_at_least_one_of" => Check::ConditionalAtLeastOneOf(Box::new(
                self.conditional_one_of(record, arguments)?,
            )),
            "custom_entity_check" => {
                let rule = text(&arguments["fn"])?;
                let found = EntityRule::from_name(rule, self.checks);
                let found = found.ok_or_else(|| format!("unknown check {rule}"))?;
                Check::Custom(paths(record, &arguments["field_sources"])?, found)
            }
            _ => return Err("unknown check".to_owned()),
        })
    }

    fn conditional(&self, record: &Record, arguments: &Json) -> Loaded<Conditional> {
        let if_path = path(record, text(&arguments["if_field"])?)?;
        let then_path = path(record, text(&arguments["then_field"])?)?;
        Ok(Conditional {
            if_field: self.merged(record, &if_path, &arguments["if_match"])?,
            then_field: self.merged(record, &then_path, &arguments["then_match"])?,
            then_error: arguments["then_err"].as_str().map(str::to_owned),
            if_path,
            then_path,
        })
    }

    fn conditional_one_of(
        &self,
        record: &Record,
        arguments: &Json,
    ) -> Loaded<ConditionalAtLeastOneOf> {
        let if_path = path(record, text(&arguments["if_field"])?)?;
        let one_of = |names: &Json, error: &Json| -> Loaded<OneOf> {
            Ok(OneOf {
                paths: paths(record, names)?,
                error: error.as_str().map(str::to_owned),
            })
        };
        let otherwise = match arguments.get("else_match") {
            Some(wanted) => {
                let field = self.merged(record, &if_path, wanted)?;
                let names = &arguments["else_then_at_least_one_of"];
                Some((field, one_of(names, &arguments["else_then_err"])?))
            }
            None => None,
        };
        Ok(ConditionalAtLeastOneOf {
            if_field: self.merged(record, &if_path, &arguments["if_match"])?,
            then: one_of(&arguments["then_at_least_one_of"], &arguments["then_err"])?,
            otherwise,
            if_path,
        })
    }

    /// Copies a field with the attributes of a condition in place of its own.
    fn merged(&self, record: &Record, path: &Path, wanted: &Json) -> Loaded<Field> {
        let mut field = find(record, path)?.clone();
        let attributes = wanted
            .as_object()
            .ok_or("a condition is not a list of attributes")?;
        if let Some(elements) = attributes.get("elements").and_then(Json::as_object) {
            let elements = Box::new(self.field("elements", elements)?);
            field.kind = match field.kind {
                Kind::Set(_) => Kind::Set(elements),
                _ => Kind::Array(elements),
            };
        }
        if let Some(required) = attributes.get("required").and_then(Json::as_bool) {
            field.required = required;
        }
        if attributes.contains_key("eq") {
            // `eq` alone decides whether null is valid: a required field could never satisfy `eq: null`.
            field.required = false;
        }
        let added = self.given_constraints(attributes)?;
        field.constraints.retain(|own| {
            !added
                .iter()
                .any(|new| std::mem::discriminant(own) == std::mem::discriminant(new))
        });
        let mut constraints = added;
        constraints.append(&mut field.constraints);
        constraints.sort_by_key(order);
        field.constraints = constraints;
        Ok(field)
    }
}

/// The entries of `[{"name": {…}}, …]`.
pub(crate) fn named(list: &Json) -> Loaded<Vec<(&str, &Attributes)>> {
    let attributes = |item| {
        let (name, value) = only_entry(item)?;
        let attributes = value.as_object();
        Ok((
            name,
            attributes.ok_or_else(|| format!("{name}: the field has no attributes"))?,
        ))
    };
    items(list).map(attributes).collect()
}

fn only_entry(item: &Json) -> Loaded<(&str, &Json)> {
    let mut entries = item.as_object().into_iter().flatten();
    match (entries.next(), entries.next()) {
        (Some((name, value)), None) => Ok((name, value)),
        _ => Err(format!("expected one entry: {item}")),
    }
}

fn items(list: &Json) -> impl Iterator<Item = &Json> {
    list.as_array().into_iter().flatten()
}

fn strings(list: &Json) -> impl Iterator<Item = &str> {
    items(list).filter_map(Json::as_str)
}

pub(crate) fn value(json: &Json) -> Loaded<Value> {
    serde_json::from_value(json.clone()).map_err(|error| error.to_string())
}

/// Converts a default to canonical form: the fields of its records in schema order.
fn arranged(kind: &Kind, value: Value) -> Loaded<Value> {
    Ok(match (kind, value) {
        (Kind::Record(record), Value::Object(mut object)) => {
            let slots = record.fields.iter().map(|field| {
                let value = object.remove(&field.name).unwrap_or_default();
                arranged(&field.kind, value)
            });
            let mut slots = slots.collect::<Loaded<Vec<_>>>()?;
            if let Some((name, _)) = object.iter().next() {
                return Err(format!("the default has the unknown field {name}"));
            }
            Value::Object(record.assemble(&mut slots))
        }
        (Kind::Array(element) | Kind::Set(element), Value::Array(values)) => values
            .into_iter()
            .map(|value| arranged(&element.kind, value))
            .collect::<Loaded<Vec<_>>>()?
            .into(),
        (_, value) => value,
    })
}

fn auto(name: &str, attributes: &Attributes) -> Auto {
    match name {
        "updated_at" => Auto::UpdatedAt,
        _ if attributes.contains_key("uuid") => Auto::Uuid,
        _ if attributes.contains_key("timestamp") => Auto::CreatedAt,
        _ => Auto::RandomKey,
    }
}

/// The names of the constraints in schemas, in the order in which they are tried.
/// Source: kong/db/schema/init.lua (validators_order).
const ORDER: [&str; 21] = [
    "eq",
    "ne",
    "not_one_of",
    "one_of",
    "gt",
    "timestamp",
    "uuid",
    "is_regex",
    "between",
    "len_eq",
    "len_min",
    "len_max",
    "starts_with",
    "not_match",
    "match_none",
    "match",
    "match_all",
    "match_any",
    "contains",
    "validator",
    "mutually_exclusive_subsets",
];

fn values(json: &Json) -> Loaded<Vec<Value>> {
    items(json).map(value).collect()
}

fn text(json: &Json) -> Loaded<&str> {
    json.as_str()
        .ok_or_else(|| format!("expected a text: {json}"))
}

fn float(json: &Json) -> Loaded<f64> {
    json.as_f64()
        .ok_or_else(|| format!("expected a number: {json}"))
}

fn size(json: &Json) -> Loaded<usize> {
    let size = json.as_u64().and_then(|size| usize::try_from(size).ok());
    size.ok_or_else(|| format!("expected a length: {json}"))
}

fn pattern(json: &Json) -> Loaded<Pattern> {
    Pattern::compile(text(json)?).map_err(|error| error.to_string())
}

fn pairs(json: &Json) -> Loaded<Vec<(Pattern, String)>> {
    items(json)
        .map(|item| Ok((pattern(&item["pattern"])?, text(&item["err"])?.to_owned())))
        .collect()
}

fn paths(record: &Record, names: &Json) -> Loaded<Vec<Path>> {
    strings(names).map(|text| path(record, text)).collect()
}

fn path(record: &Record, dotted: &str) -> Loaded<Path> {
    let mut names = dotted.split('.');
    let head = names.next().unwrap_or_default();
    let mut path = Path {
        text: dotted.to_owned(),
        // A check may name a field that the entity lacks in this flavor. It gets an index beyond all fields, so its
        // value is always null.
        index: record.position(head).unwrap_or(usize::MAX),
        rest: names.map(Into::into).collect(),
        is_record: false,
    };
    path.is_record =
        path.index < record.fields.len() && matches!(find(record, &path)?.kind, Kind::Record(_));
    Ok(path)
}

/// The position of a constraint in [`ORDER`].
fn order(constraint: &Constraint) -> u8 {
    match constraint {
        Constraint::Eq(_) => 0,
        Constraint::Ne(_) => 1,
        Constraint::NotOneOf(_) => 2,
        Constraint::OneOf(_) => 3,
        Constraint::Gt(_) => 4,
        Constraint::Timestamp => 5,
        Constraint::Uuid => 6,
        Constraint::IsRegex => 7,
        Constraint::Between(..) => 8,
        Constraint::LenEq(_) => 9,
        Constraint::LenMin(_) => 10,
        Constraint::LenMax(_) => 11,
        Constraint::StartsWith(_) => 12,
        Constraint::NotMatch(_) => 13,
        Constraint::MatchNone(_) => 14,
        Constraint::Match(_) => 15,
        Constraint::MatchAll(_) => 16,
        Constraint::MatchAny(..) => 17,
        Constraint::Contains(_) => 18,
        Constraint::Custom(_) => 19,
        Constraint::ExclusiveSubsets(_) => 20,
    }
}

fn find<'a>(record: &'a Record, path: &Path) -> Loaded<&'a Field> {
    let missing = || format!("there is no field {}", path.text);
    let mut field = record.fields.get(path.index).ok_or_else(missing)?;
    for name in &path.rest {
        let Kind::Record(inner) = &field.kind else {
            return Err(missing());
        };
        let index = inner.position(name).ok_or_else(missing)?;
        field = &inner.fields[index];
    }
    Ok(field)
}
