//! Finds references to vaults in entities, so that users can be warned. References are stored and shown, but the
//! gateway does not resolve them yet. A warning never repeats the reference itself, because it shows where a secret is
//! stored.

use super::definition::{Field, Kind, Record};
use super::engine::is_vault_reference;
use super::{RouterFlavor, registry};
use crate::codec::{self, DecodeError};
use crate::kind::EntityKind;
use crate::value::{Object, Value};
use compact_str::CompactString;
use std::collections::BTreeMap;

/// The first bytes of a reference such as `{vault://env/my-secret}`.
const BEGIN: &[u8] = b"{vault://";

/// The fields of entities that contain references to vaults. In plugins and credentials, all fields are searched,
/// because the text of a reference would become a setting or a credential that others can guess. In keys, only the
/// fields in which Kong resolves references are searched.
#[derive(Debug, Default)]
pub struct VaultReferences {
    /// Number of entities that contain a reference in a field, by the kind of entity and the field.
    found: BTreeMap<(Subject, Found), usize>,
}

/// A field that contains a reference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    path: String,
    /// Whether Kong resolves references in this field.
    resolved_by_kong: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Plugin(CompactString),
    Other(EntityKind),
}

impl VaultReferences {
    /// Whether entities of this kind are searched. Certificates are not, because one with a reference is refused.
    pub fn are_in(kind: EntityKind) -> bool {
        matches!(kind, EntityKind::Plugins | EntityKind::Keys)
            || registry().entity(kind).is_credential
    }

    /// The kinds of entities that are searched.
    pub fn kinds() -> impl Iterator<Item = EntityKind> {
        let all = EntityKind::all();
        all.filter(|kind| Self::are_in(*kind))
    }

    /// Looks for references in an encoded entity. The entity is decoded only if its bytes contain the start of a
    /// reference.
    pub fn look(&mut self, kind: EntityKind, stored: &[u8]) -> Result<(), DecodeError> {
        if Self::are_in(kind) && memchr::memmem::find(stored, BEGIN).is_some() {
            self.look_at(kind, &codec::decode(stored)?);
        }
        Ok(())
    }

    /// Looks for references in a decoded entity.
    pub fn look_at(&mut self, kind: EntityKind, entity: &Object) {
        if !Self::are_in(kind) {
            return;
        }
        let schema = registry().entity(kind);
        let mut paths = Vec::new();
        in_record(
            schema.shown_as(entity, RouterFlavor::default()),
            entity,
            "",
            &mut paths,
        );
        // The other fields of a key contain no secret, only its names and the id of its key set.
        paths.retain(|found| found.resolved_by_kong || kind != EntityKind::Keys);
        paths.sort();
        paths.dedup();
        for path in paths {
            let subject = match (kind, entity.str("name")) {
                (EntityKind::Plugins, Some(name)) => Subject::Plugin(name.into()),
                _ => Subject::Other(kind),
            };
            *self.found.entry((subject, path)).or_default() += 1;
        }
    }

    /// Returns one sentence for each field that holds references.
    pub fn notices(&self) -> impl Iterator<Item = String> {
        self.found.iter().map(|((subject, found), count)| {
            let of = match subject {
                Subject::Plugin(name) => format!("plugin {name}"),
                Subject::Other(kind) => kind.name().trim_end_matches('s').to_owned(),
            };
            let times = match count {
                1 => String::new(),
                count => format!(" ({count} times)"),
            };
            let path = &found.path;
            if found.resolved_by_kong {
                format!(
                    "{path} of {of} is a vault reference{times}, which is not resolved yet: its text is used as the value"
                )
            } else {
                format!(
                    "{path} of {of} is a vault reference{times}, but is not a field where Kong resolves references: its text is \
                     used as the value"
                )
            }
        })
    }
}

fn in_record(record: &Record, object: &Object, path: &str, out: &mut Vec<Found>) {
    for (name, value) in object.iter().filter(|(name, _)| *name != "tags") {
        if let Some(at) = record.position(name) {
            let path = match path {
                "" => name.to_owned(),
                path => format!("{path}.{name}"),
            };
            in_field(&record.fields[at], value, &path, out);
        }
    }
}

/// Adds the paths of references in a field to `out`. A reference in a list or map gets the path of the list or map.
fn in_field(field: &Field, value: &Value, path: &str, out: &mut Vec<Found>) {
    let resolved_by_kong = field.referenceable && is_vault_reference(value);
    let begins = |text: &str| text.as_bytes().starts_with(BEGIN);
    if value.as_str().is_some_and(begins) {
        out.push(Found {
            path: path.to_owned(),
            resolved_by_kong,
        });
        return;
    }
    match (&field.kind, value) {
        (Kind::Array(element) | Kind::Set(element), Value::Array(values)) => values
            .iter()
            .for_each(|value| in_field(element, value, path, out)),
        (Kind::Map(entry), Value::Object(object)) => object
            .iter()
            .for_each(|(_, value)| in_field(&entry.1, value, path, out)),
        (Kind::Record(record), Value::Object(object)) => in_record(record, object, path, out),
        _ => {}
    }
}
