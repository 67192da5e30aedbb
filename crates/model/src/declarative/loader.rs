//! The way from a source to a [`Document`]: what the document says of itself, which of its elements have to be loaded,
//! and a second, slower run that tells what is wrong when the first one finds that something is.

use super::load::{Load, Loaded, Mode, annotation_problem};
use super::memo::{ElementKey, Hashing, Header, Memo, Unchanged};
use super::{Document, Existing, Format, Options, Source, json, migrate, relations, text};
use crate::error::Error;
use crate::kind::EntityKind;
use crate::value::{Object, Value};
use compact_str::CompactString;

/// Parameters of the request that may stand beside a configuration in a JSON body or form.
const PARAMETERS: [&str; 2] = ["check_hash", "flatten_errors"];

/// Loads documents, and remembers the last one so that what is the same in the next costs little.
///
/// The caller says with [`committed`](Self::committed) when a document has become what the store holds; until then, and
/// whenever the store was changed by anything else, nothing that is remembered is used.
#[derive(Debug, Default)]
pub struct Loader {
    hashing: Hashing,
    memo: Option<Memo>,
    /// The memo of the document that was handed out last.
    pending: Option<Memo>,
}

impl Loader {
    pub fn new() -> Self {
        Self::default()
    }

    /// Compares a document with what exists at `revision` of the store. On an error nothing has happened.
    pub fn load(
        &mut self,
        source: Source<'_>,
        options: &Options,
        existing: &dyn Existing,
        revision: u64,
    ) -> Result<Document, Error> {
        self.pending = None;
        match source {
            Source::Text(text, format) => {
                if format != Format::Yaml
                    && let Some(document) = self.load_json(text, &[], options, existing, revision)
                {
                    return Ok(document);
                }
                load_text(text, format, &[], options, existing)
            }
            Source::JsonBody(text) => {
                match self.load_json(text, &PARAMETERS, options, existing, revision) {
                    Some(document) => Ok(document),
                    None => load_text(text, Format::Json, &PARAMETERS, options, existing),
                }
            }
            Source::Object(object) => report(without(object, &PARAMETERS), options, existing),
        }
    }

    /// The document that was loaded last is what the store holds, at this revision.
    pub fn committed(&mut self, revision: u64) {
        self.memo = self.pending.take();
        if let Some(memo) = &mut self.memo {
            memo.revision = revision;
        }
    }

    /// Loads a JSON text element by element; `None` when anything is wrong with it.
    fn load_json(
        &mut self,
        text: &[u8],
        ignored: &[&str],
        options: &Options,
        existing: &dyn Existing,
        revision: u64,
    ) -> Option<Document> {
        let outline = Outline::of_json(text, ignored, options)?;
        let keys: Vec<ElementKey> = outline
            .elements
            .iter()
            .map(|element| self.hashing.key(element.kind, element.text))
            .collect();
        let usable = |memo: &&Memo| memo.revision == revision && memo.header == outline.header;
        let unchanged = self
            .memo
            .as_ref()
            .filter(usable)
            .and_then(|memo| memo.recognize(&keys, existing));
        if let Some(unchanged) = unchanged
            && let Ok(loaded) = outline.load(options, existing, Some(&unchanged))?
        {
            self.pending = Some(Memo::of_part(outline.header, &keys, &loaded, &unchanged));
            return Some(loaded.document);
        }
        let loaded = outline.load(options, existing, None)?.ok()?;
        self.pending = Some(Memo::of_all(outline.header, &keys, &loaded));
        Some(loaded.document)
    }
}

/// Compares a document with what exists.
pub fn load(
    document: Object,
    options: &Options,
    existing: &dyn Existing,
) -> Result<Document, Error> {
    report(document, options, existing)
}

fn load_text(
    text: &[u8],
    format: Format,
    ignored: &[&str],
    options: &Options,
    existing: &dyn Existing,
) -> Result<Document, Error> {
    let document = without(text::parse(text, format)?, ignored);
    if let Some(loaded) = run(document, Mode::Quick, options, existing) {
        return Ok(loaded.document);
    }
    // Reading it again is cheaper than keeping a copy of every document that has no problems.
    report(
        without(text::parse(text, format)?, ignored),
        options,
        existing,
    )
}

fn without(mut document: Object, ignored: &[&str]) -> Object {
    for name in ignored {
        document.remove(name);
    }
    document
}

fn run(document: Object, mode: Mode, options: &Options, existing: &dyn Existing) -> Option<Loaded> {
    prepare(document, mode, options, existing).run().ok()
}

fn report(document: Object, options: &Options, existing: &dyn Existing) -> Result<Document, Error> {
    match prepare(document, Mode::Report, options, existing).run() {
        Ok(loaded) => Ok(loaded.document),
        Err(report) => Err(report.into_error(options.flatten_errors)),
    }
}

fn prepare<'a>(
    document: Object,
    mode: Mode,
    options: &Options,
    existing: &'a dyn Existing,
) -> Load<'a> {
    let header = header(&document, options);
    let mut load = Load::new(context(&header, options), mode, existing, None);
    let mut element = 0;
    if !document.contains("_format_version") {
        load.top_problem("_format_version", "required field missing");
    }
    for (name, value) in document {
        let Some(kind) = relations::collection(&name) else {
            if let Some(problem) = field_problem(&name, &value) {
                load.top_problem(&name, problem);
            }
            continue;
        };
        let Some(values) = collection(value) else {
            load.top_problem(&name, "expected an array");
            continue;
        };
        for (index, mut value) in values.into_iter().enumerate() {
            if header.migrate {
                migrate_element(kind, &mut value);
            }
            load.add(kind, index, element, value);
            element += 1;
        }
    }
    load
}

fn context(header: &Header, options: &Options) -> crate::schema::Context {
    crate::schema::Context {
        transform: header.transform,
        ..options.context.clone()
    }
}

fn header(document: &Object, options: &Options) -> Header {
    Header {
        migrate: matches!(document.str("_format_version"), Some("1.1" | "2.1")),
        transform: document.get("_transform") != Some(&Value::Bool(false)),
        flavor: options.context.flavor,
        plugins: options.context.plugins.clone(),
        dbless: options.context.dbless,
    }
}

/// What is wrong with a top-level field that is no collection.
fn field_problem(name: &str, value: &Value) -> Option<&'static str> {
    match (name, value) {
        ("_format_version", Value::Null) => Some("required field missing"),
        ("_format_version", Value::String(version)) => match version.as_str() {
            "1.1" | "2.1" | "3.0" => None,
            _ => Some("expected one of: 1.1, 2.1, 3.0"),
        },
        ("_format_version", _) => Some("expected a string"),
        ("_transform", Value::Null | Value::Bool(_)) => None,
        ("_transform", _) => Some("expected a boolean"),
        ("_comment" | "_ignore", value) => annotation_problem(name, value),
        _ => Some("unknown field"),
    }
}

fn collection(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(values) => Some(values),
        Value::Null => Some(Vec::new()),
        Value::Object(object) if object.is_empty() => Some(Vec::new()),
        _ => None,
    }
}

fn migrate_element(kind: EntityKind, value: &mut Value) {
    match (kind, value) {
        (EntityKind::Routes, Value::Object(route)) => migrate::route(route),
        (EntityKind::Services, Value::Object(service)) => migrate::service(service),
        _ => {}
    }
}

/// A JSON document of which the elements have not been read yet.
struct Outline<'a> {
    header: Header,
    elements: Vec<Element<'a>>,
}

struct Element<'a> {
    kind: EntityKind,
    /// The position in its collection.
    index: usize,
    text: &'a [u8],
}

impl<'a> Outline<'a> {
    /// `None` unless everything outside the elements is in order.
    fn of_json(text: &'a [u8], ignored: &[&str], options: &Options) -> Option<Self> {
        let mut fields = Object::new();
        let mut elements = Vec::new();
        for (name, field) in json::split(text)? {
            if ignored.contains(&name.as_str()) {
                continue;
            }
            match relations::collection(&name) {
                Some(kind) => add_elements(kind, field, &mut elements)?,
                None => {
                    let value = top_value(&name, field)?;
                    fields.push(name, value);
                }
            }
        }
        fields.contains("_format_version").then(|| Self {
            header: header(&fields, options),
            elements,
        })
    }

    /// Loads the elements that are not known; `None` when the text of one is malformed.
    fn load(
        &self,
        options: &Options,
        existing: &dyn Existing,
        unchanged: Option<&Unchanged<'_>>,
    ) -> Option<Result<Loaded, super::problems::Report>> {
        let context = context(&self.header, options);
        let mut load = Load::new(context, Mode::Quick, existing, unchanged);
        for (number, element) in (0..).zip(&self.elements) {
            if unchanged.is_some_and(|unchanged| unchanged.is_known(number)) {
                continue;
            }
            let mut value = serde_json::from_slice(element.text).ok()?;
            if self.header.migrate {
                migrate_element(element.kind, &mut value);
            }
            load.add(element.kind, element.index, number, value);
        }
        Some(load.run())
    }
}

fn add_elements<'a>(
    kind: EntityKind,
    field: json::Field<'a>,
    elements: &mut Vec<Element<'a>>,
) -> Option<()> {
    match field {
        json::Field::Array(texts) => {
            let texts = texts.into_iter().enumerate();
            elements.extend(texts.map(|(index, text)| Element { kind, index, text }));
            Some(())
        }
        json::Field::Other(text) => {
            let values = collection(serde_json::from_slice(text).ok()?)?;
            values.is_empty().then_some(())
        }
    }
}

fn top_value(name: &CompactString, field: json::Field<'_>) -> Option<Value> {
    let value = match field {
        json::Field::Array(elements) => {
            let values = elements.into_iter().map(serde_json::from_slice);
            Value::Array(values.collect::<Result<_, _>>().ok()?)
        }
        json::Field::Other(text) => serde_json::from_slice(text).ok()?,
    };
    problems_free(name, value)
}

fn problems_free(name: &str, value: Value) -> Option<Value> {
    field_problem(name, &value).is_none().then_some(value)
}
