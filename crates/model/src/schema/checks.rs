//! Checks that involve several fields of a record, with Kong's texts.
//! Source: kong/db/schema/init.lua (entity_checkers, run_entity_checks).

use super::Context;
use super::constraint::same;
use super::definition::Field;
use super::engine::{self, Mode};
use super::validators::EntityRule;
use crate::value::{Object, Value};
use compact_str::CompactString;

#[derive(Debug, Clone)]
pub(crate) enum Check {
    AtLeastOneOf(Vec<Path>),
    OnlyOneOf(Vec<Path>),
    Distinct(Vec<Path>),
    MutuallyRequired(Vec<Path>),
    MutuallyExclusive(Vec<Path>),
    Conditional(Box<Conditional>),
    ConditionalAtLeastOneOf(Box<ConditionalAtLeastOneOf>),
    Custom(Vec<Path>, EntityRule),
}

/// A check that applies if one field satisfies a condition. Another field must then satisfy a second condition.
#[derive(Debug, Clone)]
pub(crate) struct Conditional {
    pub(crate) if_path: Path,
    /// The field, but with the constraints of the condition instead of its own. [`Conditional::then_field`] is similar.
    pub(crate) if_field: Field,
    pub(crate) then_path: Path,
    pub(crate) then_field: Field,
    pub(crate) then_error: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct ConditionalAtLeastOneOf {
    pub(crate) if_path: Path,
    pub(crate) if_field: Field,
    pub(crate) then: OneOf,
    pub(crate) otherwise: Option<(Field, OneOf)>,
}

#[derive(Debug, Clone)]
pub(crate) struct OneOf {
    pub(crate) paths: Vec<Path>,
    pub(crate) error: Option<String>,
}

/// The path of a field in the record or in a nested record.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    pub(crate) text: String,
    pub(crate) index: usize,
    pub(crate) rest: Vec<CompactString>,
    pub(crate) is_record: bool,
}

/// The values of a record during its checks, by field position.
pub(crate) struct Fields<'a> {
    pub(crate) slots: &'a [Value],
}

static NULL: Value = Value::Null;

impl<'a> Fields<'a> {
    pub(crate) fn get(&self, path: &Path) -> &'a Value {
        // A rule may name a field that the entity does not have in this router flavor. The field then counts as null.
        let mut value = self.slots.get(path.index).unwrap_or(&NULL);
        for name in &path.rest {
            match value.as_object().and_then(|object| object.get(name)) {
                Some(inner) => value = inner,
                None => return &NULL,
            }
        }
        value
    }

    /// Whether a field has a value that is not empty. A record counts even if all its fields are null, because Kong
    /// keeps these nulls during the checks.
    fn is_set(&self, path: &Path) -> bool {
        match self.get(path) {
            Value::Object(_) if path.is_record => true,
            value => is_nonempty(value),
        }
    }
}

impl Check {
    pub(crate) fn run(
        &self,
        fields: &Fields<'_>,
        errors: &mut Object,
        mode: Mode,
        context: &Context,
    ) {
        let text = match self {
            Self::Conditional(check) => return check.run(fields, errors, context),
            Self::ConditionalAtLeastOneOf(check) => check.run(fields, errors, mode, context),
            Self::Custom(paths, rule) => run_rule(paths, *rule, fields, errors, context),
            // These checks also run if one of their fields already has an error.
            Self::AtLeastOneOf(paths) | Self::OnlyOneOf(paths) | Self::Distinct(paths) => {
                self.count(paths, fields, mode)
            }
            Self::MutuallyRequired(paths) | Self::MutuallyExclusive(paths) => {
                if any_error(errors, paths) {
                    return;
                }
                self.count(paths, fields, mode)
            }
        };
        if let Some(text) = text {
            engine::entity_error(errors, text);
        }
    }

    fn count(&self, paths: &[Path], fields: &Fields<'_>, mode: Mode) -> Option<String> {
        let set = paths.iter().filter(|path| fields.is_set(path)).count();
        let (broken, text) = match self {
            Self::AtLeastOneOf(_) => (set == 0, "at least one of these fields must be non-empty: "),
            Self::OnlyOneOf(_) => (set != 1, "exactly one of these fields must be non-empty: "),
            Self::MutuallyRequired(_) => (
                set != 0 && set != paths.len(),
                "all or none of these fields must be set: ",
            ),
            Self::MutuallyExclusive(_) => {
                (set > 1, "only one or none of these fields must be set: ")
            }
            _ => (
                set > 1 && has_equals(paths, fields),
                "values of these fields must be distinct: ",
            ),
        };
        let prefix = match self {
            Self::AtLeastOneOf(_) => mode.prefix(),
            _ => "",
        };
        broken.then(|| format!("{prefix}{text}{}", quoted(paths)))
    }
}

impl Conditional {
    /// Runs the check, even if one of its fields already has an error. A new error of the field replaces the old one.
    fn run(&self, fields: &Fields<'_>, errors: &mut Object, context: &Context) {
        let value = fields.get(&self.if_path);
        if engine::check(&self.if_field, value, context).is_err() {
            return;
        }
        let value = fields.get(&self.then_path);
        let Err(problem) = engine::check(&self.then_field, value, context) else {
            return;
        };
        set_error(errors, &self.then_path, problem);
        let text = self.then_error.clone().unwrap_or_else(|| {
            format!(
                "failed conditional validation given value of field '{}'",
                self.if_path.text
            )
        });
        engine::entity_error(errors, text);
    }
}

impl ConditionalAtLeastOneOf {
    fn run(
        &self,
        fields: &Fields<'_>,
        errors: &Object,
        mode: Mode,
        context: &Context,
    ) -> Option<String> {
        if has_error(errors, &self.if_path) {
            return None;
        }
        let value = fields.get(&self.if_path);
        if engine::check(&self.if_field, value, context).is_ok() {
            return self.then.problem(fields, mode);
        }
        let (field, one_of) = self.otherwise.as_ref()?;
        engine::check(field, value, context).ok()?;
        one_of.problem(fields, mode)
    }
}

impl OneOf {
    fn problem(&self, fields: &Fields<'_>, mode: Mode) -> Option<String> {
        if self.paths.iter().any(|path| fields.is_set(path)) {
            return None;
        }
        let names = quoted(&self.paths);
        Some(match &self.error {
            Some(error) => error.replace("%s", &names),
            None => format!(
                "{}at least one of these fields must be non-empty: {names}",
                mode.prefix()
            ),
        })
    }
}

fn run_rule(
    paths: &[Path],
    rule: EntityRule,
    fields: &Fields<'_>,
    errors: &mut Object,
    context: &Context,
) -> Option<String> {
    if any_error(errors, paths) {
        return None;
    }
    if paths
        .iter()
        .any(|path| engine::is_vault_reference(fields.get(path)))
    {
        return None;
    }
    let values: Vec<&Value> = paths.iter().map(|path| fields.get(path)).collect();
    rule.check(&values, context).err()
}

fn any_error(errors: &Object, paths: &[Path]) -> bool {
    !errors.is_empty() && paths.iter().any(|path| has_error(errors, path))
}

/// Whether a field, or a record that contains it, has an error.
fn has_error(errors: &Object, path: &Path) -> bool {
    if errors.is_empty() {
        return false;
    }
    let mut names = path.text.split('.');
    let Some(mut error) = names.next().and_then(|name| errors.get(name)) else {
        return false;
    };
    for name in names {
        match error {
            Value::Object(object) => match object.get(name) {
                Some(inner) => error = inner,
                None => return false,
            },
            _ => return true,
        }
    }
    true
}

fn set_error(errors: &mut Object, path: &Path, problem: Value) {
    let mut object = errors;
    let mut names = path.text.split('.').peekable();
    while let Some(name) = names.next() {
        if names.peek().is_none() {
            object.insert(name, problem);
            return;
        }
        if !matches!(object.get(name), Some(Value::Object(_))) {
            object.insert(name, Value::Object(Object::new()));
        }
        let Some(Value::Object(inner)) = object.get_mut(name) else {
            return;
        };
        object = inner;
    }
}

fn is_nonempty(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(values) => !values.is_empty(),
        Value::Object(object) => !object.is_empty(),
        _ => true,
    }
}

fn has_equals(paths: &[Path], fields: &Fields<'_>) -> bool {
    paths.iter().enumerate().any(|(index, path)| {
        let value = fields.get(path);
        fields.is_set(path)
            && paths[..index]
                .iter()
                .any(|other| same(fields.get(other), value))
    })
}

fn quoted(paths: &[Path]) -> String {
    let names: Vec<_> = paths
        .iter()
        .map(|path| format!("'{}'", path.text))
        .collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use crate::schema::engine::{Engine, Mode};
    use crate::schema::loader::Loader;
    use crate::schema::{Checks, Context};
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn an_empty_record_is_set_and_an_empty_map_is_not() {
        let loader = Loader {
            checks: &Checks::NONE,
            kinds: &[],
        };
        let record = loader.record(&json!({
            "fields": [
                {"record": {"type": "record", "fields": [{"text": {"type": "string"}}]}},
                {"map": {"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}}},
                {"other": {"type": "string"}},
            ],
            "entity_checks": [{"only_one_of": ["record", "map", "other"]}],
        }));
        let record = record.expect("a right schema");
        let context = Context::at(Duration::ZERO);
        let engine = Engine {
            context: &context,
            mode: Mode::Create,
        };
        for (input, is_valid) in [
            (json!({"record": {}}), true),
            (json!({"record": {"text": "t"}}), true),
            (json!({"record": {}, "map": {}}), true),
            (json!({"record": {}, "map": {"a": "b"}}), false),
            (json!({"record": {}, "other": "o"}), false),
            (json!({"record": null, "other": "o"}), true),
            (json!({"map": {}}), false),
            (json!({}), false),
        ] {
            let object = serde_json::from_value(input.clone()).expect("an object");
            let filled = engine.fill(&record, object, None, &[], 0).expect("filled");
            assert_eq!(filled.errors.is_empty(), is_valid, "{input}");
        }
    }
}
