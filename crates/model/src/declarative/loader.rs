//! The way from a source to a [`Document`]: what the document says of itself, which of its elements have to be loaded,
//! and a second, slower run that tells what is wrong when the first one finds that something is.

use super::load::{Load, Loaded, Mode, Others, annotation_problem};
use super::memo::{ElementKey, Hashing, Header, Memo, Unchanged};
use super::outline::{self, Element, Outline};
use super::positions::Positions;
use super::problems::Report;
use super::text::Parsed;
use super::{Document, Existing, Format, Options, Source, migrate, relations, text};
use crate::error::Error;
use crate::value::{Object, Value};

/// Parameters of the request that may stand beside a configuration in a JSON body or form.
const PARAMETERS: [&str; 2] = ["check_hash", "flatten_errors"];

/// The fields of a document that are no collections.
pub(super) const FIELDS: [&str; 4] = ["_comment", "_format_version", "_ignore", "_transform"];

/// So much text is parsed before it is worked off: little enough to stay in the processor's cache, and to keep memory
/// small.
const PORTION: usize = 128 << 10;

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
                // What is remembered of it already. Should it not be committed, the next load is a full one.
                self.memo.take()
            } else {
                Some(Memo::of_part(header.clone(), &keys, &loaded, unchanged))
            };
            return Some(loaded.document);
        }
        let loaded = match load(PORTION, None)? {
            Ok(loaded) => loaded,
            // Something may refer to what comes later.
            Err(_) => load(usize::MAX, None)?.ok()?,
        };
        self.pending = Some(Memo::of_all(header.clone(), &keys, &loaded));
        Some(loaded.document)
    }
}

/// Compares a document with what exists.
pub fn load(
    document: Object,
    options: &Options,
    existing: &dyn Existing,
) -> Result<Document, Error> {
    let loaded = prepare(document, Mode::Report, options, existing, Others::None).run();
    finish(loaded, options)
}

/// Adds a document to what exists: its entities are made, or replaced whole, and nothing is removed. Its references may lead
/// to what exists, and an entity without id is the one that has its name, or its other unique values. `watch` is told how many of
/// the entities have been looked at, of how many.
///
/// Unlike a document that replaces everything, this one may set `updated_at`: what was exported comes back as it was.
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
        // Reading it again is cheaper than keeping a copy of every document that has no problems.
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

/// Loads the elements that are not known, up to the first problem; `None` when the text of one is malformed. What has been
/// read is worked off whenever it has come to `portion` bytes.
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
