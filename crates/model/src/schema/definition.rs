//! What a schema is once it has been read from its data file: fields with their constraints compiled, checks with
//! their field paths resolved. Built once by [`super::loader`]; nothing here changes afterwards.

use super::checks::Check;
use super::constraint::Constraint;
use crate::EntityKind;
use crate::value::{Object, Value};
use compact_str::CompactString;

/// The fields of an entity, a plugin's configuration or a nested record.
#[derive(Debug, Clone, Default)]
pub(crate) struct Record {
    pub(crate) fields: Vec<Field>,
    pub(crate) shorthands: Vec<Shorthand>,
    pub(crate) checks: Vec<Check>,
}

/// Presence of fields is kept in one word.
pub(crate) const MAX_FIELDS: usize = 64;

#[derive(Debug, Clone)]
pub(crate) struct Field {
    /// Refers to a text that lives as long as the program, so that a clone is no allocation, however long it is.
    pub(crate) name: CompactString,
    pub(crate) kind: Kind,
    pub(crate) required: bool,
    pub(crate) default: Option<Value>,
    pub(crate) auto: Option<Auto>,
    pub(crate) unique: bool,
    pub(crate) referenceable: bool,
    /// Given on input, acted upon by the Admin API, never stored: `snis` of certificates.
    pub(crate) transient: bool,
    /// Replaces the text of every failed constraint.
    pub(crate) error_text: Option<CompactString>,
    /// In the order in which Kong tries them.
    pub(crate) constraints: Vec<Constraint>,
    /// `"name":`, as written in JSON.
    pub(crate) json_key: String,
    /// `,"name":null`: an absent field in one piece.
    pub(crate) json_absent: String,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    String,
    Integer,
    Number,
    Boolean,
    Array(Box<Field>),
    Set(Box<Field>),
    Map(Box<(Field, Field)>),
    Record(Box<Record>),
    Foreign(Reference),
    /// Any value: JSON of a filter's configuration.
    Any,
    /// Takes its shape from a subschema.
    Abstract,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Reference {
    pub(crate) kind: EntityKind,
    pub(crate) on_delete: super::OnDelete,
}

/// What a field holds when it is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Auto {
    Uuid,
    /// Now, when the entity is created.
    CreatedAt,
    /// Now, at every write, whatever was given.
    UpdatedAt,
    /// 32 random letters and digits.
    RandomKey,
}

/// A field that exists on input only and is turned into others before anything else happens.
#[derive(Debug, Clone)]
pub(crate) struct Shorthand {
    pub(crate) field: Field,
    pub(crate) effect: Effect,
}

#[derive(Debug, Clone)]
pub(crate) enum Effect {
    Function(super::shorthand::Function),
    /// The value moves to this path and wins over what is there.
    Into(Vec<CompactString>),
    /// The value moves to this path unless a value is there; output shows both.
    ReplacedBy(Vec<CompactString>),
}

impl Field {
    /// Whether the schema has the field only to say that it is not to be used.
    pub(crate) fn must_be_null(&self) -> bool {
        let mut constraints = self.constraints.iter();
        constraints.any(|constraint| matches!(constraint, Constraint::Eq(Value::Null)))
    }

    /// What the field is where an entity does not have it: null, unless it cannot be. That is so for entities that were
    /// stored when there was no such field, as under another router flavour.
    pub(crate) fn absent(&self) -> &Value {
        match &self.default {
            Some(default) if self.required => default,
            _ => &Value::Null,
        }
    }
}

impl Record {
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }

    /// The names that input may have.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let shorthands = self.shorthands.iter().map(|shorthand| &shorthand.field);
        let fields = self.fields.iter().chain(shorthands);
        fields.map(|field| field.name.as_str())
    }

    /// The record that a field holds, also as an element of a list.
    pub(crate) fn inner(&self, name: &str) -> Option<&Record> {
        let mut field = &self.fields[self.position(name)?];
        while let Kind::Array(element) | Kind::Set(element) = &field.kind {
            field = element;
        }
        match &field.kind {
            Kind::Record(record) => Some(record),
            _ => None,
        }
    }

    /// Whether stored entities have a field of this name.
    pub(crate) fn is_shown(&self, name: &[u8]) -> bool {
        let mut fields = self.fields.iter();
        fields.any(|field| !field.transient && field.name.as_bytes() == name)
    }

    /// The fields in the order of the schema; what is no field comes last.
    pub(crate) fn ordered(&self, object: Object) -> Object {
        let mut fields: Vec<_> = object.into_iter().collect();
        fields.sort_by_key(|(name, _)| self.position(name).unwrap_or(MAX_FIELDS));
        fields.into_iter().collect()
    }

    /// Moves the values that are kept into an object, in schema order: those that are not null, nor only for input.
    pub(crate) fn assemble(&self, slots: &mut [Value]) -> Object {
        let present = slots.iter().filter(|value| !value.is_null()).count();
        // One more for `ttl`, which entities carry beside their fields.
        let mut object = Object::with_capacity(present + 1);
        for (field, value) in self.fields.iter().zip(slots) {
            if !value.is_null() && !field.transient {
                object.push(field.name.clone(), std::mem::take(value));
            }
        }
        object
    }

    /// A canonical object with its nulls spelled out, records included.
    pub(crate) fn with_nulls(&self, object: &Object) -> Object {
        let fields = self.fields.iter().map(|field| {
            let value = match (&field.kind, object.get(&field.name)) {
                (Kind::Record(record), Some(Value::Object(inner))) => {
                    Value::Object(record.with_nulls(inner))
                }
                (_, value) => value.cloned().unwrap_or_default(),
            };
            (field.name.clone(), value)
        });
        fields.collect()
    }
}
