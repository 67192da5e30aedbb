//! A configuration in memory that the loader uses in place of the store.

use model::declarative::{
    Document, Existing, ExportFormat, Format, KeyPart, Loader, Options, Source, export, merge,
};
use model::schema::{Context, RouterFlavor};
use model::{EntityKind, Error, Object, Value, codec};
use plugins::install as registry;
use serde_json::Value as Json;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use uuid::Uuid;

#[derive(Default)]
pub struct Running {
    pub entities: BTreeMap<(EntityKind, Uuid), Vec<u8>>,
    unique: HashMap<(EntityKind, String, String), Uuid>,
    pub revision: u64,
    pub loader: Loader,
}

impl Existing for Running {
    fn get(&self, kind: EntityKind, id: Uuid) -> Option<&[u8]> {
        self.entities.get(&(kind, id)).map(Vec::as_slice)
    }

    fn id_by_unique(&self, kind: EntityKind, field: &str, value: &str) -> Option<Uuid> {
        let key = (kind, field.to_owned(), value.to_owned());
        self.unique.get(&key).copied()
    }

    fn id_by_cache_key(&self, kind: EntityKind, parts: &[KeyPart<'_>]) -> Option<Uuid> {
        let fields = &registry().entity(kind).cache_key;
        let mut of_kind = self.entities.iter().filter(|((one, _), _)| *one == kind);
        let found = of_kind.find(|(_, bytes)| {
            let entity: Object = codec::decode(bytes).expect("an entity");
            let matches = |(field, part): (&String, &KeyPart<'_>)| match (entity.get(field), part) {
                (None, KeyPart::Absent) => true,
                (Some(Value::String(text)), KeyPart::Text(part)) => text == part,
                (Some(Value::Object(object)), KeyPart::Reference(id)) => {
                    object.str("id") == Some(id.to_string().as_str())
                }
                _ => false,
            };
            fields.iter().zip(parts).all(matches)
        });
        found.map(|((_, id), _)| *id)
    }

    fn for_each(&self, kind: EntityKind, visit: &mut dyn FnMut(Uuid, &[u8])) {
        for ((one, id), bytes) in &self.entities {
            if *one == kind {
                visit(*id, bytes);
            }
        }
    }
}

impl Running {
    /// Commits a document. Panics if it deletes a missing entity, puts an unchanged entity, or violates uniqueness or a
    /// reference.
    pub fn commit(&mut self, document: &Document) {
        for key in &document.deletes {
            assert!(self.entities.remove(key).is_some(), "{key:?} is not there");
        }
        for put in &document.puts {
            let key = (put.kind, put.id);
            assert_ne!(
                self.entities.insert(key, put.entity.clone()).as_ref(),
                Some(&put.entity)
            );
        }
        self.revision += 1;
        self.index();
    }

    /// Loads a document like `POST /config` and commits it. The loader reuses its memo of the previous document.
    pub fn post(&mut self, document: &Json, now: u64) -> Result<Document, Error> {
        let text = serde_json::to_vec(document).expect("json");
        let mut loader = std::mem::take(&mut self.loader);
        let loaded = loader.load(Source::JsonBody(&text), &options(now), self, self.revision);
        self.loader = loader;
        let loaded = loaded?;
        self.commit(&loaded);
        self.loader.committed(self.revision);
        Ok(loaded)
    }

    /// Adds a document to the existing configuration.
    pub fn merge(&mut self, document: &Json, now: u64) -> Result<Document, Error> {
        let text = serde_json::to_vec(document).expect("json");
        self.merge_text(&text, Format::Json, now)
    }

    pub fn merge_text(&mut self, text: &[u8], format: Format, now: u64) -> Result<Document, Error> {
        let merged = merge(text, format, &options(now), self, &mut |_, _| {})?;
        assert!(merged.deletes.is_empty());
        self.commit(&merged);
        Ok(merged)
    }

    pub fn export(&self, format: ExportFormat) -> String {
        let mut text = Vec::new();
        export(self, format, RouterFlavor::default(), &mut text).expect("readable entities");
        String::from_utf8(text).expect("UTF-8")
    }

    pub fn all(&self, kind: EntityKind) -> Vec<Object> {
        let of_kind = self.entities.iter().filter(|((one, _), _)| *one == kind);
        let decoded = of_kind.map(|(_, bytes)| codec::decode(bytes).expect("an entity"));
        decoded.collect()
    }

    /// Rebuilds the index of unique fields. Panics if a unique value repeats or a referenced entity is missing.
    fn index(&mut self) {
        self.unique.clear();
        for ((kind, id), bytes) in &self.entities {
            let schema = registry().entity(*kind);
            let entity: Object = codec::decode(bytes).expect("an entity");
            for field in &schema.unique {
                if let Some(value) = entity.str(field) {
                    let key = (*kind, field.clone(), value.to_owned());
                    assert_eq!(self.unique.insert(key, *id), None, "{field} {value}");
                }
            }
            for foreign in &schema.foreign {
                if let Some(Value::Object(reference)) = entity.get(&foreign.name) {
                    let id = reference.str("id").expect("an id").parse().expect("an id");
                    assert!(
                        self.entities.contains_key(&(foreign.kind, id)),
                        "{entity:?}"
                    );
                }
            }
        }
    }
}

/// The options of a load. Makes sure that the schemas are installed.
pub fn options(now: u64) -> Options {
    plugins::install();
    Options {
        context: Context {
            dbless: true,
            ..Context::at(Duration::from_secs(now))
        },
        flatten_errors: false,
    }
}

pub fn object(json: &Json) -> Object {
    serde_json::from_value(json.clone()).expect("an object")
}
