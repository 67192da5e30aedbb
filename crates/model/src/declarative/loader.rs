//! Converts a source to a [`Document`]. Checks the document's own fields and determines the elements to load. After a
//! failure, it loads the document again in a slower mode that reports the problems.

use super::load::{Load, Loaded, Mode, Others, annotation_problem};
use super::memo::{ElementKey, Hashing, Header, Memo, Unchanged};
use super::outline::{self, Element, Outline};
use super::positions::Positions;
use super::problems::Report;
use super::text::Parsed;
use super::{Document, Existing, Format, Options, Source, migrate, relations, text};
use crate::error::Error;
use crate::value::{Object, Value};

/// Request parameters that a JSON body or form may contain in addition to a configuration.
const PARAMETERS: [&str; 2] = ["check_hash", "flatten_errors"];

/// Fields of a document that are not collections.
pub(super) const FIELDS: [&str; 4] = ["_comment", "_format_version", "_ignore", "_transform"];

/// Approximate number of bytes that are parsed before the resulting entities are processed. They fit in the processor's
/// cache, and memory use stays low.
const PORTION: usize = 128 << 10;

/// Loads documents. It remembers the last document, so that equal parts of the next one cost little.
///
/// The caller must call [`committed`](Self::committed) when the store contains a loaded document. Until then, and after
/// any other change of the store, the remembered document is not used.
#[derive(Debug, Default)]
pub struct Loader {
    hashing: Hashing,
    memo: Option<Memo>,
    /// The memo of the last loaded document, which is not committed yet.
    pending: Option<Memo>,
}

impl Loader {
    pub fn new() -> Self {
        Self::default()
    }

    /// Compares a document with the existing configuration at `revision` of the store. An error changes nothing.
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
                replace_text(text, format, &[], options, existing)
            }
            Source::JsonBody(text) => {
                match self.load_json(text, &PARAMETERS, options, existing, revision) {
                    Some(document) => Ok(document),
                    None => replace_text(text, Format::Json, &PARAMETERS, options, existing),
                }
            }
            Source::Object(object) => load(without(object, &PARAMETERS), options, existing),
        }
    }

    /// Records that the store contains the last loaded document, at this revision.
    pub fn committed(&mut self, revision: u64) {
        self.memo = self.pending.take();
        if let Some(memo) = &mut self.memo {
            memo.revision = revision;
        }
    }

    /// Loads a JSON text element by element. Returns `None` if the text has a problem or needs a warning. The slower
    /// way then decides.
    fn load_json(
        &mut self,
        text: &[u8],
        ignored: &[&str],
        options: &Options,
        existing: &dyn Existing,
        revision: u64,
    ) -> Option<Document> {
        let Outline { fields, elements } = outline::read(text, ignored, &self.hashing)?;
        let is_in_order = |(name, value): (&str, &Value)| field_problem(name, value).is_none();
        if !fields.contains("_format_version") || !fields.iter().all(is_in_order) {
            return None;
        }
        let header = header(&fields, options);
        let keys: Vec<ElementKey> = elements.iter().map(|element| element.key).collect();
        let usable = |memo: &&Memo| memo.revision == revision && memo.header == header;
        let memo = self.memo.as_ref().filter(usable);
        let unchanged = memo.and_then(|memo| memo.recognize(&keys, existing));
        let load = |portion, unchanged| {
            load_elements(&elements, portion, &header, options, existing, unchanged)
        };
        if let Some(unchanged) = &unchanged
            && let Ok(loaded) = load(usize::MAX, Some(unchanged))?
        {
            self.pending = if unchanged.is_everything() {
                // The memo already describes this document. If the document is not committed, the next load is full.
                self.memo.take()
            } else {
                Some(Memo::of_part(header.clone(), &keys, &loaded, unchanged))
            };
            return Some(loaded.document);
        }
        let loaded = match load(PORTION, None)? {
            Ok(loaded) => loaded,
            // An element may refer to a later one. Try again with all elements at once.
            Err(_) => load(usize::MAX, None)?.ok()?,
        };
        self.pending = Some(Memo::of_all(header.clone(), &keys, &loaded));
        Some(loaded.document)
    }
}

/// Compares a document with the existing configuration.
pub fn load(
    document: Object,
    options: &Options,
    existing: &dyn Existing,
) -> Result<Document, Error> {
    let loaded = prepare(document, Mode::Report, options, existing, Others::None).run();
    finish(loaded, options)
}

/// Adds a document to the existing configuration. Its entities are created or replaced as a whole, and no entity is
/// removed. Its references may point to existing entities. An entity without an id replaces the existing entity with
/// the same name or other unique values. `watch` is called with the number of processed entities and their total.
///
/// Unlike with [`Loader::load`], the document may set `updated_at`, so that an export is restored unchanged.
pub fn merge(
    text: &[u8],
    format: Format,
    options: &Options,
    existing: &dyn Existing,
    watch: &mut dyn FnMut(usize, usize),
) -> Result<Document, Error> {
    load_text(text, format, &[], options, &mut |document, mode| {
        let load = prepare(document, mode, options, existing, Others::Existing);
        load.watched(&mut *watch).run()
    })
}

fn replace_text(
    text: &[u8],
    format: Format,
    ignored: &[&str],
    options: &Options,
    existing: &dyn Existing,
) -> Result<Document, Error> {
    load_text(text, format, ignored, options, &mut |document, mode| {
        prepare(document, mode, options, existing, Others::None).run()
    })
}

fn load_text(
    text: &[u8],
    format: Format,
    ignored: &[&str],
    options: &Options,
    run: &mut dyn FnMut(Object, Mode) -> Result<Loaded, Report>,
) -> Result<Document, Error> {
    let Parsed { object, repeated } = text::read(text, format)?;
    let loaded = match run(without(object, ignored), Mode::Quick) {
        Ok(loaded) => Ok(loaded),
        // Parsing again is rare. Keeping a copy would cost memory for every document without problems.
        Err(_) => run(without(text::parse(text, format)?, ignored), Mode::Report),
    };
    let mut document = finish(loaded, options)?;
    if repeated {
        let warnings = Positions::of(text, format).into_warnings();
        document.warnings.splice(..0, warnings);
    }
    Ok(document)
}

fn finish(loaded: Result<Loaded, Report>, options: &Options) -> Result<Document, Error> {
    match loaded {
        Ok(loaded) => Ok(loaded.document),
        Err(report) => Err(report.into_error(options.flatten_errors)),
    }
}

fn without(mut document: Object, ignored: &[&str]) -> Object {
    for name in ignored {
        document.remove(name);
    }
    document
}

fn prepare<'a>(
    document: Object,
    mode: Mode,
    options: &Options,
    existing: &'a dyn Existing,
    others: Others<'a>,
) -> Load<'a> {
    let header = header(&document, options);
    let mut load = Load::new(context(&header, options), mode, existing, others);
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
                migrate::top_level(kind, &mut value);
            }
            load.add(kind, None, index, element, value);
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

/// Returns the problem of a top-level field that is not a collection.
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

/// Loads all elements that are not in `unchanged`, up to the first problem. Returns `None` if the text of an element is
/// malformed or repeats a name. Parsed elements are processed after every `portion` bytes.
fn load_elements(
    elements: &[Element<'_>],
    portion: usize,
    header: &Header,
    options: &Options,
    existing: &dyn Existing,
    unchanged: Option<&Unchanged<'_>>,
) -> Option<Result<Loaded, Report>> {
    let others = unchanged.map_or(Others::None, Others::Unchanged);
    let mut load = Load::new(context(header, options), Mode::Quick, existing, others);
    let mut size = 0;
    for (number, element) in (0..).zip(elements) {
        if unchanged.is_some_and(|unchanged| unchanged.is_known(number)) {
            continue;
        }
        let value = element.value(header.migrate)?;
        let parent = element.nesting.parent();
        load.add(element.kind, parent, element.index, number, value);
        size += element.size();
        if size >= portion {
            size = 0;
            if !load.work_off() {
                break;
            }
        }
    }
    Some(load.run())
}
