//! Type inference for form bodies: converts text to the type of its field in the schema. JSON bodies are never
//! converted.
//!
//! The types come from the JSON that `/schemas` returns (`schema_json`). This JSON is reduced once per entity type to
//! the parts that inference needs.
//! Source: kong/api/arguments.lua (infer_value).

use model::schema::{RouterFlavor, registry};
use model::{EntityKind, Object, Value};
use serde_json::Value as Json;
use std::collections::HashMap;
use std::sync::LazyLock;

/// The type of a field, reduced to the parts that the conversion of text needs.
#[derive(Debug, Clone, PartialEq)]
enum Shape {
    Number,
    Boolean,
    List(Box<Shape>),
    Map(Box<Shape>),
    Record(HashMap<String, Shape>),
    Foreign(EntityKind),
    /// Text, or a type to which text is not converted.
    Text,
}

static ENTITIES: LazyLock<HashMap<EntityKind, Shape>> = LazyLock::new(|| {
    EntityKind::all()
        .map(|kind| {
            // Under the `expressions` flavor routes have every field. Under another flavor, validation refuses the
            // fields that routes do not have there.
            let schema = registry()
                .entity(kind)
                .schema_json(RouterFlavor::Expressions);
            (kind, record(&schema))
        })
        .collect()
});

static PLUGINS: LazyLock<HashMap<String, Shape>> = LazyLock::new(|| {
    registry()
        .plugins()
        .map(|plugin| (plugin.name.to_owned(), record(&plugin.whole_schema_json())))
        .collect()
});

/// Converts the text in `arguments` to the types of the fields of `kind`. The types in a plugin's `config` depend on
/// the plugin's name. A PATCH may omit the name, so `plugin` is the name of the stored plugin.
pub(crate) fn infer(kind: EntityKind, arguments: &mut Object, plugin: Option<&str>) {
    if kind == EntityKind::Plugins {
        let name = arguments.str("name").or(plugin).map(str::to_owned);
        let shape = name.and_then(|name| PLUGINS.get(&name));
        if let (Some(shape), Some(config)) = (shape, arguments.get_mut("config")) {
            let Shape::Record(fields) = shape else { return };
            fields.get("config").unwrap_or(&Shape::Text).apply(config);
        }
    }
    if let Some(shape) = ENTITIES.get(&kind) {
        shape.apply_fields(arguments);
    }
}

fn record(schema: &Json) -> Shape {
    let fields = ["fields", "shorthand_fields"]
        .into_iter()
        .filter_map(|key| schema.get(key)?.as_array())
        .flatten()
        .filter_map(Json::as_object)
        .flatten()
        .map(|(name, field)| (name.clone(), shape(field)));
    Shape::Record(fields.collect())
}

fn shape(field: &Json) -> Shape {
    let element = |key: &str| Box::new(field.get(key).map_or(Shape::Text, shape));
    match field.get("type").and_then(Json::as_str) {
        Some("number" | "integer") => Shape::Number,
        Some("boolean") => Shape::Boolean,
        Some("array" | "set") => Shape::List(element("elements")),
        Some("map") => Shape::Map(element("values")),
        Some("record") => record(field),
        Some("foreign") => field
            .get("reference")
            .and_then(Json::as_str)
            .and_then(EntityKind::from_name)
            .map_or(Shape::Text, Shape::Foreign),
        _ => Shape::Text,
    }
}

impl Shape {
    fn apply(&self, value: &mut Value) {
        // In Kong an empty value of a form means null.
        if value.as_str() == Some("") {
            *value = Value::Null;
            return;
        }
        match self {
            Self::Number => number(value),
            Self::Boolean => boolean(value),
            Self::List(element) => {
                if !matches!(value, Value::Array(_) | Value::Null) {
                    *value = Value::Array(vec![std::mem::take(value)]);
                }
                if let Value::Array(values) = value {
                    values.iter_mut().for_each(|one| element.apply(one));
                }
            }
            Self::Map(element) => {
                if let Value::Object(object) = value {
                    object.iter_mut().for_each(|(_, one)| element.apply(one));
                }
            }
            Self::Record(_) => {
                if let Value::Object(object) = value {
                    self.apply_fields(object);
                }
            }
            Self::Foreign(kind) => {
                if let (Value::Object(object), Some(shape)) = (value, ENTITIES.get(kind)) {
                    shape.apply_fields(object);
                }
            }
            Self::Text => {}
        }
    }

    fn apply_fields(&self, object: &mut Object) {
        let Self::Record(fields) = self else { return };
        for (name, value) in object.iter_mut() {
            if let Some(shape) = fields.get(name) {
                shape.apply(value);
            }
        }
    }
}

/// Converts numeric text to a number. Other text stays unchanged, and validation refuses it.
fn number(value: &mut Value) {
    let Some(text) = value.as_str().map(str::trim) else {
        return;
    };
    if let Ok(integer) = text.parse::<i64>() {
        *value = Value::Int(integer);
    } else if let Ok(float) = text.parse::<f64>()
        && float.is_finite()
    {
        *value = Value::Float(float);
    }
}

fn boolean(value: &mut Value) {
    match value.as_str() {
        Some("true") => *value = Value::Bool(true),
        Some("false") => *value = Value::Bool(false),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::{arguments, form};

    fn inferred(kind: EntityKind, plugin: Option<&str>, form: &str) -> serde_json::Value {
        plugins::install();
        let mut object = form::decode(arguments(form).unwrap());
        infer(kind, &mut object, plugin);
        serde_json::to_value(object).unwrap()
    }

    #[test]
    fn text_takes_the_type_of_its_field() {
        let service = "name=1&port=8081&retries=abc&enabled=false&tags=one&path=";
        assert_eq!(
            inferred(EntityKind::Services, None, service),
            serde_json::json!({
                "name": "1", "port": 8081, "retries": "abc", "enabled": false, "tags": ["one"], "path": null
            })
        );
    }

    #[test]
    fn references_and_maps_keep_their_shape() {
        let route = "paths[1]=/a&headers.x-tier[]=gold&service.id=x&strip_path=maybe";
        assert_eq!(
            inferred(EntityKind::Routes, None, route),
            serde_json::json!({
                "paths": ["/a"], "headers": {"x-tier": ["gold"]}, "service": {"id": "x"}, "strip_path": "maybe"
            })
        );
    }

    #[test]
    fn a_plugins_config_is_inferred_by_its_name() {
        let config = serde_json::json!({"max_age": 60, "credentials": true, "origins": ["*"]});
        let form = "config.max_age=60&config.credentials=true&config.origins=*";
        let named = inferred(EntityKind::Plugins, None, &format!("name=cors&{form}"));
        assert_eq!(named["config"], config);
        assert_eq!(
            inferred(EntityKind::Plugins, Some("cors"), form)["config"],
            config
        );
        let unknown = inferred(EntityKind::Plugins, None, form);
        assert_eq!(unknown["config"]["max_age"], "60");
    }
}
