//! One operation of the OpenAPI document: the request and the responses of one method on one path.

use super::components::{Fields, header_references, pascal, response_name};
use crate::control::LogLevel;
use model::EntityKind;
use model::schema::registry;
use serde_json::{Map, Value, json};

/// Error statuses of every operation: invalid arguments, missing or wrong credentials, an internal error, overload.
const ALWAYS: [u16; 5] = [400, 401, 403, 500, 503];
/// Error statuses of operations with a body: the body is too slow, too large, or of an unsupported type.
const WITH_BODY: [u16; 3] = [408, 413, 415];

#[derive(Debug)]
pub(super) struct Operation {
    /// The operation's id. It is unique in the document and the same in every version of the document.
    id: String,
    pub(super) tag: &'static str,
    summary: String,
    path: Map<String, Value>,
    query: Vec<Value>,
    body: Option<Value>,
    responses: Map<String, Value>,
}

impl Operation {
    pub(super) fn new(
        tag: &'static str,
        id: impl Into<String>,
        summary: impl Into<String>,
    ) -> Self {
        Self {
            id: id.into(),
            tag,
            summary: summary.into(),
            path: Map::new(),
            query: Vec::new(),
            body: None,
            responses: Map::new(),
        }
    }

    /// Creates an operation whose id consists of method and path: `putDebugNodeLogLevelByLogLevel`.
    pub(super) fn of_path(
        tag: &'static str,
        method: &str,
        path: &str,
        summary: impl Into<String>,
    ) -> Self {
        let mut id = method.to_ascii_lowercase();
        for segment in path.split('/').filter(|segment| !segment.is_empty()) {
            match segment
                .strip_prefix('{')
                .and_then(|name| name.strip_suffix('}'))
            {
                Some(name) => id.push_str(&format!("By{}", pascal(name))),
                None => id.push_str(&pascal(segment)),
            }
        }
        if path == "/" {
            id.push_str("Root");
        }
        Self::new(tag, id, summary)
    }

    /// Describes a path parameter that does not name an entity.
    pub(super) fn path(mut self, name: &str, about: &str, schema: Value) -> Self {
        self.path.insert(
            name.to_owned(),
            json!({ "description": about, "schema": schema }),
        );
        self
    }

    pub(super) fn query(mut self, name: &str, about: &str, schema: Value) -> Self {
        let argument =
            json!({ "name": name, "in": "query", "description": about, "schema": schema });
        self.query.push(argument);
        self
    }

    /// Adds the query parameters of paged lists: `size` and `offset`.
    pub(super) fn paged(mut self) -> Self {
        for name in ["size", "offset"] {
            self.query
                .push(json!({ "$ref": format!("#/components/parameters/{name}") }));
        }
        self
    }

    pub(super) fn tagged(mut self) -> Self {
        self.query
            .push(json!({ "$ref": "#/components/parameters/tags" }));
        self
    }

    /// Adds a body of fields, in each of the encodings that the endpoints of entities accept.
    pub(super) fn takes_fields(self, fields: Fields) -> Self {
        let kinds = [
            "application/json",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
        ];
        let content = kinds.map(|kind| (kind, fields.schema.clone()));
        self.takes(&content, fields.required)
    }

    pub(super) fn takes(mut self, content: &[(&str, Value)], required: bool) -> Self {
        let content: Map<String, Value> = content
            .iter()
            .map(|(kind, schema)| ((*kind).to_owned(), json!({ "schema": schema })))
            .collect();
        self.body = Some(json!({ "required": required, "content": content }));
        self
    }

    /// Adds a JSON response with this schema.
    pub(super) fn answers(self, status: u16, about: &str, schema: &Value) -> Self {
        self.answers_with(status, about, "application/json", schema)
    }

    pub(super) fn answers_with(
        mut self,
        status: u16,
        about: &str,
        kind: &str,
        schema: &Value,
    ) -> Self {
        let content = Map::from_iter([(kind.to_owned(), json!({ "schema": schema }))]);
        let response =
            json!({ "description": about, "headers": header_references(), "content": content });
        self.responses.insert(status.to_string(), response);
        self
    }

    /// Adds another media type to a response that already exists.
    pub(super) fn or_answers_with(mut self, status: u16, kind: &str, schema: &Value) -> Self {
        if let Some(response) = self.responses.get_mut(&status.to_string()) {
            response["content"][kind] = json!({ "schema": schema });
        }
        self
    }

    pub(super) fn answers_empty(mut self, status: u16, about: &str) -> Self {
        let response = json!({ "description": about, "headers": header_references() });
        self.responses.insert(status.to_string(), response);
        self
    }

    /// Adds error responses with these statuses. Every operation has those of [`ALWAYS`] in addition.
    pub(super) fn fails(mut self, statuses: &[u16]) -> Self {
        for status in statuses {
            let reference = format!("#/components/responses/{}", response_name(*status));
            self.responses
                .entry(status.to_string())
                .or_insert_with(|| json!({ "$ref": reference }));
        }
        self
    }

    pub(super) fn into_json(self, path: &str) -> Value {
        let with_body: &[u16] = if self.body.is_some() { &WITH_BODY } else { &[] };
        let this = self.fails(&ALWAYS).fails(with_body);
        let mut parameters = path_parameters(path, &this.path);
        parameters.extend(this.query);
        let mut operation = json!({
            "operationId": this.id,
            "tags": [this.tag],
            "summary": this.summary,
            "parameters": parameters,
            "responses": this.responses,
        });
        if let Some(body) = this.body {
            operation["requestBody"] = body;
        }
        operation
    }
}

fn path_parameters(path: &str, described: &Map<String, Value>) -> Vec<Value> {
    path.split('/')
        .filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| {
            let mut parameter = match (described.get(name), EntityKind::from_name(name)) {
                (Some(described), _) => described.clone(),
                (None, Some(kind)) => entity_parameter(kind),
                (None, None) => well_known(name),
            };
            parameter["name"] = name.into();
            parameter["in"] = "path".into();
            parameter["required"] = true.into();
            parameter
        })
        .collect()
}

/// Describes the path parameter that names an entity, by id or by key.
fn entity_parameter(kind: EntityKind) -> Value {
    let schema = registry().entity(kind);
    let key = match kind {
        EntityKind::Certificates => Some("the name of one of its SNIs".to_owned()),
        EntityKind::Targets => Some("its `host:port`".to_owned()),
        _ => (schema.nested_key.as_ref()).map(|field| format!("under a consumer, its {field}")),
    };
    let key = key.or_else(|| {
        let field = schema.endpoint_key.as_ref()?;
        Some(format!("its `{field}`"))
    });
    match key {
        Some(key) => json!({
            "description": format!("The id, or {key}."),
            "schema": { "type": "string", "minLength": 1 },
        }),
        None => json!({
            "description": "The id of the entity.",
            "schema": { "type": "string", "format": "uuid" },
        }),
    }
}

fn well_known(name: &str) -> Value {
    match name {
        "log_level" => json!({
            "description": "The log level.",
            "schema": { "type": "string", "enum": LogLevel::ALL.map(LogLevel::name) },
        }),
        _ => json!({ "schema": { "type": "string", "minLength": 1 } }),
    }
}
