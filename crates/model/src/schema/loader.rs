//! Loads schemas from their data files. The files are compiled into the program and loaded all at once, so any test
//! that uses a schema finds a mistake in them. Therefore the loader panics with a description of the mistake.

use super::checks::{Check, Conditional, ConditionalAtLeastOneOf, OneOf, Path};
use super::constraint::Constraint;
use super::definition::{Auto, Effect, Field, Kind, MAX_FIELDS, Record, Reference, Shorthand};
use super::pattern::Pattern;
use super::validators::{EntityRule, Validator};
use super::{OnDelete, json, shorthand};
use crate::EntityKind;
use crate::value::Value;
use compact_str::CompactString;
use serde_json::{Map, Value as Json};

/// Attributes of a field in the data files.
type Attributes = Map<String, Json>;

pub(crate) fn record(definition: &Json) -> Record {
    let mut record = Record {
        fields: named(&definition["fields"])
            .map(|(name, attributes)| field(name, attributes))
            .collect(),
        shorthands: named(&definition["shorthand_fields"])
            .map(|(name, attributes)| shorthand(name, attributes))
            .collect(),
        checks: Vec::new(),
    };
    add_checks(&mut record, &definition["entity_checks"]);
    record
}

/// Copies a record, then applies the definition: it replaces or adds fields, adds checks, and removes the rules that
/// `without_checks` names.
pub(crate) fn specialize(base: &Record, definition: &Json) -> Record {
    let mut record = base.clone();
    for (name, attributes) in named(&definition["fields"]) {
        let field = field(name, attributes);
        match record.position(name) {
            Some(index) => record.fields[index] = field,
            None => record.fields.push(field),
        }
    }
    let without: Vec<&str> = strings(&definition["without_checks"]).collect();
    record
        .checks
        .retain(|check| !matches!(check, Check::Custom(_, rule) if without.contains(&rule.name())));
    // Rules may name fields that only this record has, so their paths are resolved again.
    for index in 0..record.checks.len() {
        let Check::Custom(paths, rule) = &record.checks[index] else {
            continue;
        };
        let paths = paths.iter().map(|one| path(&record, &one.text)).collect();
        record.checks[index] = Check::Custom(paths, *rule);
    }
    add_checks(&mut record, &definition["entity_checks"]);
    record
}

fn add_checks(record: &mut Record, definitions: &Json) {
    assert!(record.fields.len() <= MAX_FIELDS, "too many fields");
    let checks: Vec<Check> = items(definitions)
        .map(|definition| check(record, definition))
        .collect();
    record.checks.extend(checks);
}

/// The entries of `[{"name": {…}}, …]`.
pub(crate) fn named(list: &Json) -> impl Iterator<Item = (&str, &Attributes)> {
    items(list).map(|item| {
        let (name, value) = only_entry(item);
        let attributes = value
            .as_object()
            .unwrap_or_else(|| panic!("field {name} has no attributes"));
        (name, attributes)
    })
}

fn only_entry(item: &Json) -> (&str, &Json) {
    let mut entries = item.as_object().into_iter().flatten();
    match (entries.next(), entries.next()) {
        (Some((name, value)), None) => (name, value),
        _ => panic!("expected one entry: {item}"),
    }
}

fn items(list: &Json) -> impl Iterator<Item = &Json> {
    list.as_array().into_iter().flatten()
}

fn strings(list: &Json) -> impl Iterator<Item = &str> {
    items(list).filter_map(Json::as_str)
}

pub(crate) fn value(json: &Json) -> Value {
    serde_json::from_value(json.clone()).expect("JSON is a value")
}

fn field(name: &str, attributes: &Attributes) -> Field {
    let flag = |key: &str| attributes.get(key) == Some(&Json::Bool(true));
    let kind = kind(name, attributes);
    let mut field = Field {
        // The leak is harmless, because schemas are loaded once and never dropped.
        name: CompactString::const_new(String::leak(name.to_owned())),
        json_key: format!("\"{name}\":"),
        json_absent: String::new(),
        required: flag("required"),
        default: attributes
            .get("default")
            .filter(|json| !json.is_null())
            .map(|json| arranged(&kind, value(json))),
        auto: flag("auto").then(|| auto(name, attributes)),
        unique: flag("unique"),
        referenceable: flag("referenceable"),
        transient: flag("transient"),
        error_text: attributes.get("err").and_then(Json::as_str).map(Into::into),
        constraints: constraints(attributes, &kind),
        kind,
    };
    let mut absent = Vec::new();
    json::write_value(field.absent(), &mut absent);
    let absent = String::from_utf8(absent).expect("JSON is text");
    field.json_absent = format!(",{}{absent}", field.json_key);
    field
}

/// Converts a default to canonical form: the fields of its records in schema order.
fn arranged(kind: &Kind, value: Value) -> Value {
    match (kind, value) {
        (Kind::Record(record), Value::Object(mut object)) => {
            let mut slots: Vec<_> = record
                .fields
                .iter()
                .map(|field| {
                    let value = object.remove(&field.name).unwrap_or_default();
                    arranged(&field.kind, value)
                })
                .collect();
            assert!(object.is_empty(), "a default has unknown fields");
            Value::Object(record.assemble(&mut slots))
        }
        (Kind::Array(element) | Kind::Set(element), Value::Array(values)) => values
            .into_iter()
            .map(|value| arranged(&element.kind, value))
            .collect::<Vec<_>>()
            .into(),
        (_, value) => value,
    }
}

fn auto(name: &str, attributes: &Attributes) -> Auto {
    match name {
        "updated_at" => Auto::UpdatedAt,
        _ if attributes.contains_key("uuid") => Auto::Uuid,
        _ if attributes.contains_key("timestamp") => Auto::CreatedAt,
        _ => Auto::RandomKey,
    }
}

fn kind(name: &str, attributes: &Attributes) -> Kind {
    let nested = |key: &str| {
        let attributes = attributes[key].as_object().expect("a nested field");
        field(key, attributes)
    };
    match attributes["type"].as_str() {
        Some("string") => Kind::String,
        Some("integer") => Kind::Integer,
        Some("number") => Kind::Number,
        Some("boolean") => Kind::Boolean,
        Some("array") => Kind::Array(Box::new(nested("elements"))),
        Some("set") => Kind::Set(Box::new(nested("elements"))),
        Some("map") if !attributes.contains_key("keys") => Kind::Any,
        Some("map") => Kind::Map(Box::new((nested("keys"), nested("values")))),
        Some("record") if attributes.contains_key("abstract") => Kind::Abstract,
        Some("record") => Kind::Record(Box::new(record(&Json::Object(attributes.clone())))),
        Some("foreign") => Kind::Foreign(reference(name, attributes)),
        Some("json" | "any" | "function") => Kind::Any,
        other => panic!("field {name} is of unknown type {other:?}"),
    }
}

fn reference(name: &str, attributes: &Attributes) -> Reference {
    let kind = attributes["reference"]
        .as_str()
        .and_then(EntityKind::from_name)
        .unwrap_or_else(|| panic!("field {name} refers to an unknown entity"));
    let on_delete = match attributes.get("on_delete").and_then(Json::as_str) {
        Some("cascade") => OnDelete::Cascade,
        _ => OnDelete::Restrict,
    };
    Reference { kind, on_delete }
}

fn shorthand(name: &str, attributes: &Attributes) -> Shorthand {
    let path = |json: &Json| strings(json).map(Into::into).collect();
    let replaced =
        &attributes.get("deprecation").unwrap_or(&Json::Null)["replaced_with"][0]["path"];
    let effect = match (attributes.get("func"), attributes.get("into")) {
        (Some(function), _) => Effect::Function(
            function
                .as_str()
                .and_then(shorthand::Function::from_name)
                .unwrap_or_else(|| panic!("shorthand {name} has an unknown function")),
        ),
        (None, Some(into)) => Effect::Into(path(into)),
        (None, None) => Effect::ReplacedBy(path(replaced)),
    };
    Shorthand {
        field: field(name, attributes),
        effect,
    }
}

fn constraints(attributes: &Attributes, kind: &Kind) -> Vec<Constraint> {
    let mut constraints: Vec<_> = ORDER
        .iter()
        .filter_map(|(key, read)| attributes.get(*key).map(read))
        .collect();
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
    constraints
}

type ReadConstraint = fn(&Json) -> Constraint;

/// The constraints by their names in the data files, in the order in which they are tried.
/// Source: kong/db/schema/init.lua (validators_order).
const ORDER: [(&str, ReadConstraint); 21] = [
    ("eq", |json| Constraint::Eq(value(json))),
    ("ne", |json| Constraint::Ne(value(json))),
    ("not_one_of", |json| Constraint::NotOneOf(values(json))),
    ("one_of", |json| Constraint::OneOf(values(json))),
    ("gt", |json| Constraint::Gt(float(json))),
    ("timestamp", |_| Constraint::Timestamp),
    ("uuid", |_| Constraint::Uuid),
    ("is_regex", |_| Constraint::IsRegex),
    ("between", |json| {
        Constraint::Between(float(&json[0]), float(&json[1]))
    }),
    ("len_eq", |json| Constraint::LenEq(size(json))),
    ("len_min", |json| Constraint::LenMin(size(json))),
    ("len_max", |json| Constraint::LenMax(size(json))),
    ("starts_with", |json| Constraint::StartsWith(text(json))),
    ("not_match", |json| Constraint::NotMatch(pattern(json))),
    ("match_none", |json| Constraint::MatchNone(pairs(json))),
    ("match", |json| Constraint::Match(pattern(json))),
    ("match_all", |json| Constraint::MatchAll(pairs(json))),
    ("match_any", |json| {
        Constraint::MatchAny(
            items(&json["patterns"]).map(pattern).collect(),
            json["err"].as_str().map(str::to_owned),
        )
    }),
    ("contains", |json| Constraint::Contains(value(json))),
    ("validator", |json| {
        let name = text(json);
        Constraint::Custom(
            Validator::from_name(&name).unwrap_or_else(|| panic!("unknown validator {name}")),
        )
    }),
    ("mutually_exclusive_subsets", |json| {
        Constraint::ExclusiveSubsets(items(json).map(values).collect())
    }),
];

fn values(json: &Json) -> Vec<Value> {
    items(json).map(value).collect()
}

fn text(json: &Json) -> String {
    json.as_str().expect("a text").to_owned()
}

fn float(json: &Json) -> f64 {
    json.as_f64().expect("a number")
}

fn size(json: &Json) -> usize {
    let size = json.as_u64().expect("a length");
    usize::try_from(size).expect("a length")
}

fn pattern(json: &Json) -> Pattern {
    let text = text(json);
    Pattern::compile(&text).unwrap_or_else(|error| panic!("{error}"))
}

fn pairs(json: &Json) -> Vec<(Pattern, String)> {
    items(json)
        .map(|item| (pattern(&item["pattern"]), text(&item["err"])))
        .collect()
}

fn check(record: &Record, definition: &Json) -> Check {
    let (name, arguments) = only_entry(definition);
    let paths = |json: &Json| strings(json).map(|text| path(record, text)).collect();
    match name {
        "at_least_one_of" => Check::AtLeastOneOf(paths(arguments)),
        "only_one_of" => Check::OnlyOneOf(paths(arguments)),
        "distinct" => Check::Distinct(paths(arguments)),
        "mutually_required" => Check::MutuallyRequired(paths(arguments)),
        "mutually_exclusive" => Check::MutuallyExclusive(paths(arguments)),
        "conditional" => Check::Conditional(Box::new(conditional(record, arguments))),
        "conditional_at_least_one_of" => {
            Check::ConditionalAtLeastOneOf(Box::new(conditional_one_of(record, arguments)))
        }
        "custom_entity_check" => {
            let rule = text(&arguments["fn"]);
            let rule =
                EntityRule::from_name(&rule).unwrap_or_else(|| panic!("unknown check {rule}"));
            Check::Custom(paths(&arguments["field_sources"]), rule)
        }
        _ => panic!("unknown check {name}"),
    }
}

fn path(record: &Record, dotted: &str) -> Path {
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
        path.index < record.fields.len() && matches!(find(record, &path).kind, Kind::Record(_));
    path
}

fn conditional(record: &Record, arguments: &Json) -> Conditional {
    let if_path = path(record, &text(&arguments["if_field"]));
    let then_path = path(record, &text(&arguments["then_field"]));
    Conditional {
        if_field: merged(record, &if_path, &arguments["if_match"]),
        then_field: merged(record, &then_path, &arguments["then_match"]),
        then_error: arguments["then_err"].as_str().map(str::to_owned),
        if_path,
        then_path,
    }
}

fn conditional_one_of(record: &Record, arguments: &Json) -> ConditionalAtLeastOneOf {
    let if_path = path(record, &text(&arguments["if_field"]));
    let one_of = |names: &Json, error: &Json| OneOf {
        paths: strings(names).map(|text| path(record, text)).collect(),
        error: error.as_str().map(str::to_owned),
    };
    let otherwise = arguments.get("else_match").map(|wanted| {
        let field = merged(record, &if_path, wanted);
        let names = &arguments["else_then_at_least_one_of"];
        (field, one_of(names, &arguments["else_then_err"]))
    });
    ConditionalAtLeastOneOf {
        if_field: merged(record, &if_path, &arguments["if_match"]),
        then: one_of(&arguments["then_at_least_one_of"], &arguments["then_err"]),
        otherwise,
        if_path,
    }
}

/// Copies a field with the attributes of a condition in place of its own.
fn merged(record: &Record, path: &Path, wanted: &Json) -> Field {
    let mut field = find(record, path).clone();
    let attributes = wanted.as_object().expect("attributes of a match");
    if let Some(elements) = attributes.get("elements").and_then(Json::as_object) {
        let elements = Box::new(self::field("elements", elements));
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
    let added: Vec<_> = ORDER
        .iter()
        .filter_map(|(key, read)| attributes.get(*key).map(read))
        .collect();
    field.constraints.retain(|own| {
        !added
            .iter()
            .any(|new| std::mem::discriminant(own) == std::mem::discriminant(new))
    });
    let mut constraints = added;
    constraints.append(&mut field.constraints);
    constraints.sort_by_key(order);
    field.constraints = constraints;
    field
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

fn find<'a>(record: &'a Record, path: &Path) -> &'a Field {
    let mut field = record
        .fields
        .get(path.index)
        .unwrap_or_else(|| panic!("no field {}", path.text));
    for name in &path.rest {
        let Kind::Record(inner) = &field.kind else {
            panic!("no field {}", path.text);
        };
        let index = inner
            .position(name)
            .unwrap_or_else(|| panic!("no field {}", path.text));
        field = &inner.fields[index];
    }
    field
}
