//! Resolves references by a unique field of the referenced entity: `{"service": {"name": "billing"}}`.
//! Source: kong/db/dao/init.lua (resolve_foreign).

use crate::entities::reference_to;
use crate::respond::Failure;
use model::error::brace_notation;
use model::schema::registry;
use model::{EntityKind, Error, ErrorCode, Object, Value};
use store::View;

/// Replaces references by unique fields with references by id. An unresolvable reference has its own error code; other
/// invalid references are left to the schema.
pub(crate) fn resolve(
    view: &View<'_>,
    kind: EntityKind,
    input: &mut Object,
) -> Result<(), Failure> {
    let mut problems = Object::new();
    for foreign in registry().entity(kind).foreign.iter() {
        let Some(Value::Object(reference)) = input.get(&foreign.name) else {
            continue;
        };
        let target = registry().entity(foreign.kind);
        let named = reference.iter().find_map(|(field, value)| {
            let unique = target.unique.iter().any(|unique| unique == field);
            Some((field, value.as_str()?)).filter(|_| unique)
        });
        let Some((field, value)) = named.filter(|_| !reference.contains("id")) else {
            continue;
        };
        match view.id_by_unique(foreign.kind, field, value) {
            Ok(Some(id)) => {
                input.insert(foreign.name.as_str(), reference_to(id));
            }
            Ok(None) => {
                let problem = unresolved(foreign.kind, field, value);
                problems.insert(foreign.name.as_str(), problem);
            }
            Err(error) => return Err(error.into()),
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(error(problems).into())
    }
}

fn unresolved(kind: EntityKind, field: &str, value: &str) -> Value {
    let key = Value::Object(Object::from_iter([(field, Value::from(value))]));
    let text = format!(
        "the foreign key cannot be resolved with '{}' for an existing '{}' entity",
        brace_notation(&key),
        kind.name()
    );
    Value::Object(Object::from_iter([(field, Value::from(text))]))
}

fn error(problems: Object) -> Error {
    let mut texts = Vec::new();
    for (name, problem) in problems.iter() {
        for (field, text) in problem.as_object().into_iter().flat_map(Object::iter) {
            texts.push(format!("{name}.{field}: {}", text.as_str().unwrap_or("")));
        }
    }
    texts.sort();
    let shown = texts.join("; ");
    let message = match texts.len() {
        1 => format!("foreign key unresolved ({shown})"),
        many => format!("{many} foreign keys unresolved ({shown})"),
    };
    Error::new(ErrorCode::ForeignKeysUnresolved, message).with_fields(problems)
}
