//! Parts that operations share: schemas of entities in each of their forms, errors, headers, and arguments of lists.
//! Schemas of entities are added when an operation refers to them.

use axum::http::StatusCode;
use model::schema::{EntitySchema, Form, RouterFlavor, registry};
use model::{EntityKind, ErrorCode};
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

pub(super) struct Components {
    flavor: RouterFlavor,
    plugins: Vec<String>,
    schemas: Map<String, Value>,
}

/// A request body that contains the fields of an entity.
pub(super) struct Fields {
    pub(super) schema: Value,
    /// Whether a body is required.
    pub(super) required: bool,
}

impl Fields {
    pub(super) fn needed(schema: Value) -> Self {
        Self {
            schema,
            required: true,
        }
    }
}

impl Components {
    pub(super) fn new(flavor: RouterFlavor, plugins: Vec<String>) -> Self {
        let mut schemas = Map::from_iter([("Message".to_owned(), message())]);
        for code in shown_errors() {
            schemas.insert(error_name(code), error(code));
        }
        Self {
            flavor,
            plugins,
            schemas,
        }
    }

    pub(super) fn flavor(&self) -> RouterFlavor {
        self.flavor
    }

    /// Schema of an entity in responses.
    pub(super) fn shown(&mut self, kind: EntityKind) -> Value {
        self.entity(kind, Form::Shown, type_name(kind), &[])
    }

    /// The body that creates an entity. `known` lists fields that the path sets, so the body may omit them.
    pub(super) fn input(&mut self, kind: EntityKind, known: &[&str]) -> Fields {
        let mut name = format!("{}Input", type_name(kind));
        let schema = registry()
            .entity(kind)
            .json_schema(Form::Given, self.flavor);
        let required = schema["required"].as_array();
        let known: Vec<&str> = known
            .iter()
            .copied()
            .filter(|field| {
                required.is_some_and(|required| required.iter().any(|one| one == field))
            })
            .collect();
        for field in &known {
            name.push_str(&format!("Without{}", pascal(field)));
        }
        let missing = required.is_some_and(|required| required.len() > known.len());
        let needs_one = missing || schema.get("anyOf").is_some();
        Fields {
            schema: self.entity(kind, Form::Given, name, &known),
            required: needs_one,
        }
    }

    pub(super) fn patch(&mut self, kind: EntityKind) -> Fields {
        let name = format!("{}Patch", type_name(kind));
        let flavor = self.flavor;
        // The schemas of plugins and vaults have one variant per name. A patch may omit the name, so its schema has no
        // variants.
        let patch = || registry().entity(kind).json_schema(Form::Patch, flavor);
        Fields {
            schema: self.shared(&name, patch),
            required: false,
        }
    }

    /// Schema of a page of entities of this type.
    pub(super) fn page(&mut self, kind: EntityKind) -> Value {
        let entity = self.shown(kind);
        self.shared(&format!("{}Page", type_name(kind)), || page_of(&entity))
    }

    /// Returns a reference to the schema with this name. The first call creates the schema.
    pub(super) fn shared(&mut self, name: &str, schema: impl FnOnce() -> Value) -> Value {
        if !self.schemas.contains_key(name) {
            let schema = schema();
            self.schemas.insert(name.to_owned(), schema);
        }
        json!({ "$ref": reference(name) })
    }

    fn entity(&mut self, kind: EntityKind, form: Form, name: String, known: &[&str]) -> Value {
        if self.schemas.contains_key(&name) {
            return json!({ "$ref": reference(&name) });
        }
        let (schema, flavor) = (registry().entity(kind), self.flavor);
        let key = match kind {
            EntityKind::Plugins | EntityKind::Vaults => schema.subschema_key.as_deref(),
            _ => None,
        };
        let Some(key) = key else {
            return self.shared(&name, || without(schema.json_schema(form, flavor), known));
        };
        let mut mapping = Map::new();
        for variant in self.variants(schema) {
            let name = format!("{name}{}", pascal(variant));
            self.shared(&name, || {
                without(schema.variant_json_schema(variant, form, flavor), known)
            });
            mapping.insert(variant.to_owned(), reference(&name).into());
        }
        self.shared(&name, || {
            let one_of: Vec<Value> = mapping.values().map(|one| json!({ "$ref": one })).collect();
            json!({ "oneOf": one_of, "discriminator": { "propertyName": key, "mapping": mapping } })
        })
    }

    fn variants(&self, schema: &'static EntitySchema) -> Vec<&'static str> {
        let enabled = |name: &&str| {
            schema.kind != EntityKind::Plugins || self.plugins.iter().any(|plugin| plugin == name)
        };
        schema.variants(self.flavor).filter(enabled).collect()
    }

    pub(super) fn into_json(self) -> Value {
        json!({
            "schemas": self.schemas,
            "responses": responses(),
            "parameters": parameters(),
            "headers": headers(),
            "securitySchemes": {
                "bearer": {
                    "type": "http", "scheme": "bearer",
                    "description": "A token of the node, if it requires one.",
                },
                "token": {
                    "type": "apiKey", "in": "header", "name": "Kong-Admin-Token",
                    "description": "The same token, in the header that Kong's clients use.",
                },
                "mutualTLS": {
                    "type": "mutualTLS",
                    "description": "A client certificate that the node trusts, if it requires one.",
                },
            },
        })
    }
}

fn reference(schema: &str) -> String {
    format!("#/components/schemas/{schema}")
}

/// Makes fields optional that the path sets.
fn without(mut schema: Value, known: &[&str]) -> Value {
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|field| !known.iter().any(|one| field == one));
    }
    schema
}

pub(super) fn page_of(entity: &Value) -> Value {
    object([
        ("data", json!({ "type": "array", "items": entity })),
        (
            "next",
            json!({ "type": ["string", "null"], "description": "The path of the next page." }),
        ),
        (
            "offset?",
            json!({ "type": ["string", "null"], "description": "The `offset` of the next page." }),
        ),
    ])
}

/// Schema of an object with exactly these fields; a field whose name ends with `?` may be absent.
pub(super) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let required: Vec<&str> = (fields.iter().map(|(name, _)| *name))
        .filter(|name| !name.ends_with('?'))
        .collect();
    let properties: Map<String, Value> = fields
        .iter()
        .map(|(name, schema)| (name.trim_end_matches('?').to_owned(), schema.clone()))
        .collect();
    let mut schema =
        json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema
}

pub(super) fn text() -> Value {
    json!({ "type": "string" })
}

pub(super) fn integer() -> Value {
    json!({ "type": "integer" })
}

fn message() -> Value {
    object([("message", text())])
}

/// Schema of one of Kong's error objects.
fn error(code: ErrorCode) -> Value {
    let name = match code {
        ErrorCode::InvalidUnique => {
            json!({ "type": "string", "pattern": format!("^{} ", code.name()) })
        }
        _ => json!({ "type": "string", "const": code.name() }),
    };
    let number = json!({ "type": "integer", "const": code as u8 });
    let about = |text: &str| json!({ "type": "object", "description": text });
    match code {
        ErrorCode::InvalidOptions => object([
            ("code", number),
            ("name", name),
            ("message", text()),
            ("options", about("Errors by query argument.")),
        ]),
        ErrorCode::DeclarativeConfig => object([
            ("code", number),
            ("name", name),
            ("message", text()),
            (
                "fields?",
                about("Errors, in the structure of the configuration."),
            ),
            (
                "flattened_errors?",
                json!({ "type": ["array", "object"], "description": "Errors by entity, if requested." }),
            ),
        ]),
        _ => object([
            ("code", number),
            ("name", name),
            ("message", text()),
            ("fields?", about("Errors, in the structure of the entity.")),
        ]),
    }
}

/// The errors that responses show. Of an internal error, clients get only a message.
fn shown_errors() -> impl Iterator<Item = ErrorCode> {
    ErrorCode::ALL
        .into_iter()
        .filter(|code| code.status() < 500)
}

fn error_name(code: ErrorCode) -> String {
    format!("Error{}", pascal(code.name()))
}

/// Name of the response of an error status: `NotFound`.
pub(super) fn response_name(status: u16) -> String {
    let status = StatusCode::from_u16(status).expect("operations fail with valid statuses");
    pascal(
        &status
            .canonical_reason()
            .unwrap_or("Error")
            .to_ascii_lowercase(),
    )
}

fn responses() -> Map<String, Value> {
    const STATUSES: [u16; 16] = [
        400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 429, 500, 501, 503, 504, 507,
    ];
    let response = |status: u16| {
        let reason = StatusCode::from_u16(status).ok();
        let reason = reason
            .and_then(|status| status.canonical_reason())
            .unwrap_or_default();
        let content = match status {
            // Kong's endpoints answer with nginx's page, and Silverback's own endpoints with JSON.
            415 => json!({
                "text/html": { "schema": text() },
                "application/json": { "schema": failure(status) },
            }),
            _ => json!({ "application/json": { "schema": failure(status) } }),
        };
        let mut headers = header_references();
        if let Some((name, about)) = header_of(status) {
            let header = json!({ "description": about, "schema": { "type": "string" } });
            headers.insert(name.to_owned(), header);
        }
        json!({ "description": reason, "headers": headers, "content": content })
    };
    STATUSES
        .iter()
        .map(|status| (response_name(*status), response(*status)))
        .collect()
}

/// A header that only responses with this status have.
fn header_of(status: u16) -> Option<(&'static str, &'static str)> {
    match status {
        401 => Some(("WWW-Authenticate", "The authentication scheme to use.")),
        405 => Some(("Allow", "The methods that the path supports.")),
        429 | 503 => Some(("Retry-After", "Seconds to wait, if known.")),
        _ => None,
    }
}

/// Schema of an error response: a message, or one of the error objects of this status.
pub(super) fn failure(status: u16) -> Value {
    let errors = shown_errors().filter(|code| code.status() == status);
    let any: Vec<Value> = ["Message".to_owned()]
        .into_iter()
        .chain(errors.map(error_name))
        .map(|name| json!({ "$ref": reference(&name) }))
        .collect();
    json!({ "anyOf": any })
}

fn parameters() -> Value {
    let argument = |name: &str, about: &str, schema: Value| json!({ "name": name, "in": "query", "description": about, "schema": schema });
    json!({
        "size": argument(
            "size",
            "Maximum number of entities on a page.",
            json!({ "type": "integer", "minimum": 1, "maximum": 1000, "default": 100 }),
        ),
        "offset": argument(
            "offset",
            "Start of the page: the `offset` of the previous page.",
            text(),
        ),
        "tags": argument(
            "tags",
            "Only entities with all of these tags (`a,b`) or with any of them (`a/b`); at most five tags.",
            json!({ "type": "string", "minLength": 1 }),
        ),
    })
}

const HEADERS: [(&str, &str, &str); 4] = [
    (
        "Server",
        "string",
        "`kong/` and the version of Kong that this is compatible with.",
    ),
    (
        "X-Kong-Admin-Latency",
        "integer",
        "Time in milliseconds that the response took.",
    ),
    (
        "Access-Control-Allow-Origin",
        "string",
        "The origin whose scripts may read the response.",
    ),
    (
        "Access-Control-Allow-Credentials",
        "string",
        "Always `true`.",
    ),
];

fn headers() -> Map<String, Value> {
    let header = |(name, kind, about): (&str, &str, &str)| {
        (
            name.to_owned(),
            json!({ "description": about, "schema": { "type": kind } }),
        )
    };
    HEADERS.into_iter().map(header).collect()
}

/// Schema of a struct as it is serialized: with these fields and no others.
pub(super) fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let settings = settings.with_transform(RecursiveTransform(|schema: &mut Schema| {
        if schema.get("properties").is_some() && schema.get("additionalProperties").is_none() {
            schema.insert("additionalProperties".to_owned(), false.into());
        }
    }));
    let generator = settings.for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    if let Some(schema) = schema.as_object_mut() {
        // The name of the struct means nothing to clients.
        schema.remove("title");
    }
    schema
}

pub(super) fn header_references() -> Map<String, Value> {
    let reference = |(name, ..): (&str, &str, &str)| {
        (
            name.to_owned(),
            json!({ "$ref": format!("#/components/headers/{name}") }),
        )
    };
    HEADERS.into_iter().map(reference).collect()
}

/// Type name of an entity, from its collection: `KeyauthCredential` for `keyauth_credentials`.
pub(super) fn type_name(kind: EntityKind) -> String {
    let plural = pascal(kind.name());
    plural.strip_suffix('s').unwrap_or(&plural).to_owned()
}

/// Returns `RateLimiting` for `rate-limiting`, `rate_limiting` or `rate limiting`.
pub(super) fn pascal(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let capital = |word: &str| {
        let mut chars = word.chars();
        let first = chars.next().map(|c| c.to_ascii_uppercase());
        first.into_iter().chain(chars).collect::<String>()
    };
    words.map(capital).collect()
}
