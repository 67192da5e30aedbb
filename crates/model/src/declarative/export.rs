//! Exports the existing configuration as a document that loads to the same configuration, for `GET /config` and
//! `config db_export`.
//!
//! Entities are not nested, every field is written, references are bare ids, and secrets are as stored. Kong does the
//! same (kong/db/declarative/export.lua). Unlike in Kong, the order of the entities is fixed: equal configurations have
//! equal exports, whatever their history.

use super::relations::{self, Relations};
use super::{Existing, emit};
use crate::codec::{self, DecodeError};
use crate::kind::EntityKind;
use crate::schema::{Malformed, RouterFlavor, stored_field};
use crate::value::Object;
use compact_str::CompactString;
use serde::Deserialize;
use std::io::{self, Write};
use uuid::Uuid;

/// The format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    Yaml,
    Json,
}

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("{} {id}: {source}", kind.name())]
    Entity {
        kind: EntityKind,
        id: Uuid,
        source: DecodeError,
    },
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// Approximate number of bytes of each write to the output.
const PIECE: usize = 64 << 10;

/// Exports the existing configuration. Each kind comes after the kinds that it refers to. Within a kind, entities are
/// ordered by the entities they belong to, then by name, then by id.
pub fn export(
    existing: &dyn Existing,
    format: ExportFormat,
    flavor: RouterFlavor,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let mut text = Text {
        format,
        piece: String::with_capacity(PIECE + PIECE / 8),
        kind: None,
        out,
    };
    text.begin();
    for kind in EntityKind::all().filter(|kind| is_exported(*kind)) {
        for id in ordered(existing, kind)? {
            let Some(bytes) = existing.get(kind, id) else {
                continue;
            };
            let entity = codec::decode(bytes);
            let entity = entity.map_err(|source| ExportError::Entity { kind, id, source })?;
            text.entity(kind, &shown(kind, &entity, flavor))?;
        }
    }
    text.end()?;
    Ok(())
}

/// Whether the export contains this kind. Workspaces are left out as in Kong, because there is only the default one.
fn is_exported(kind: EntityKind) -> bool {
    kind != EntityKind::Workspaces && relations::of(kind).schema.db_export
}

/// The ids of a kind in the order of the export.
fn ordered(existing: &dyn Existing, kind: EntityKind) -> Result<Vec<Uuid>, Malformed> {
    let relations = relations::of(kind);
    let fields = ordering_fields(relations);
    let mut keys = Vec::new();
    let mut outcome = Ok(());
    existing.for_each(
        kind,
        &mut |id, bytes| match ordering_key(existing, relations, &fields, bytes) {
            Ok(key) => keys.push((key, id)),
            Err(error) => outcome = Err(error),
        },
    );
    outcome?;
    keys.sort_unstable();
    Ok(keys.into_iter().map(|(_, id)| id).collect())
}

/// The fields that determine the order of a kind: required references, then identifying fields.
fn ordering_fields(relations: &'static Relations) -> Vec<&'static str> {
    let owners = relations.schema.foreign.iter();
    let owners = owners.filter(|foreign| foreign.required);
    let owners = owners.map(|foreign| foreign.name.as_str());
    let key = relations.cache_key.iter().map(|part| part.field);
    let name = relations.schema.endpoint_key.as_deref();
    let unique = relations.unique.iter().copied();
    let mut fields = Vec::new();
    for field in owners.chain(key).chain(name).chain(unique) {
        if !fields.contains(&field) {
            fields.push(field);
        }
    }
    fields
}

fn ordering_key(
    existing: &dyn Existing,
    relations: &Relations,
    fields: &[&str],
    bytes: &[u8],
) -> Result<CompactString, Malformed> {
    // Sorts after every other text.
    const ABSENT: char = char::MAX;
    let mut key = CompactString::default();
    for field in fields {
        match text_of(bytes, field)? {
            None => key.push(ABSENT),
            Some(FieldText::Own(text)) => key.push_str(text),
            Some(FieldText::Reference { id }) => {
                let foreign = relations.foreign.iter().find(|one| one.field == *field);
                let name = foreign.and_then(|foreign| name_of(existing, foreign.kind, id));
                // An entity without a name sorts after those with a name.
                key.push_str(&name.unwrap_or_else(|| format!("{ABSENT}{id}").into()));
            }
        }
        key.push('\0');
    }
    Ok(key)
}

/// The value of a field that determines the order.
#[derive(Deserialize)]
#[serde(untagged)]
enum FieldText<'b> {
    Own(&'b str),
    Reference { id: &'b str },
}

fn text_of<'b>(bytes: &'b [u8], field: &str) -> Result<Option<FieldText<'b>>, Malformed> {
    let value = stored_field(bytes, field)?;
    Ok(value.and_then(|value| rmp_serde::from_slice(value.value).ok()))
}

/// The name of an entity that another entity refers to.
fn name_of(existing: &dyn Existing, kind: EntityKind, id: &str) -> Option<CompactString> {
    let name = relations::of(kind).schema.endpoint_key.as_deref()?;
    match text_of(existing.get(kind, id.parse().ok()?)?, name) {
        Ok(Some(FieldText::Own(name))) => Some(name.into()),
        _ => None,
    }
}

/// Returns the entity with every field, and with bare ids as references.
fn shown(kind: EntityKind, entity: &Object, flavor: RouterFlavor) -> Object {
    let schema = relations::of(kind).schema;
    let mut shown = schema.spelled_out(entity, flavor);
    for foreign in &schema.foreign {
        if let Some(slot) = shown.get_mut(&foreign.name)
            && let Some(id) = slot.as_object().and_then(|reference| reference.get("id"))
        {
            *slot = id.clone();
        }
    }
    shown
}

/// The exported document while it is being written.
struct Text<'w> {
    format: ExportFormat,
    piece: String,
    /// The kind of the open collection.
    kind: Option<EntityKind>,
    out: &'w mut dyn Write,
}

impl Text<'_> {
    fn begin(&mut self) {
        // Hashes are exported as stored and must not be hashed again when the document is loaded.
        self.piece.push_str(match self.format {
            ExportFormat::Yaml => "_format_version: '3.0'\n_transform: false\n",
            ExportFormat::Json => "{\n  \"_format_version\": \"3.0\",\n  \"_transform\": false",
        });
    }

    fn entity(&mut self, kind: EntityKind, entity: &Object) -> io::Result<()> {
        let is_first = self.kind != Some(kind);
        let is_open = self.kind.is_some();
        self.kind = Some(kind);
        match self.format {
            ExportFormat::Yaml => {
                if is_first {
                    self.piece.push_str(kind.name());
                    self.piece.push_str(":\n");
                }
                self.piece.push_str("- ");
                emit::write_fields(&mut self.piece, entity, 2);
            }
            ExportFormat::Json => {
                match (is_first, is_open) {
                    (true, true) => self.piece.push_str("\n  ]"),
                    (true, false) => {}
                    (false, _) => self.piece.push(','),
                }
                if is_first {
                    self.piece.push_str(",\n  \"");
                    self.piece.push_str(kind.name());
                    self.piece.push_str("\": [");
                }
                // JSON escapes the line breaks inside strings, so every line may be indented.
                for line in serde_json::to_string_pretty(entity)?.lines() {
                    self.piece.push_str("\n    ");
                    self.piece.push_str(line);
                }
            }
        }
        if self.piece.len() >= PIECE {
            self.flush()?;
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        if self.format == ExportFormat::Json {
            let end = self.kind.map_or("\n}\n", |_| "\n  ]\n}\n");
            self.piece.push_str(end);
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(self.piece.as_bytes())?;
        self.piece.clear();
        Ok(())
    }
}
