//! The compiled form of a schema: fields with compiled constraints, and checks with resolved field paths.
//! [`super::loader`] builds it once from a data file, and it never changes afterwards.

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

/// Maximum number of fields of a record. A word of this many bits records which fields are given.
pub(crate) const MAX_FIELDS: usize = 64;

#[derive(Debug, Clone)]
pub(crate) struct Field {
    /// The name as a `'static` text, so that cloning it never allocates.
    pub(crate) name: CompactString,
    pub(crate) kind: Kind,
    pub(crate) required: bool,
    pub(crate) default: Option<Value>,
    pub(crate) auto: Option<Auto>,
    pub(crate) unique: bool,
    pub(crate) referenceable: bool,
    /// Whether the field is accepted as input and handled by the Admin API, but never stored: `snis` of certificates.
    pub(crate) transient: bool,
    /// Whether Kong lacks the field. It is shown only where it is set, so that everything else is as in Kong.
    pub(crate) own: bool,
    /// Replaces the error text of every constraint that fails.
    pub(crate) error_text: Option<CompactString>,
    /// Constraints in the order in which Kong tries them.
    pub(crate) constraints: Vec<Constraint>,
    /// The JSON key: `"name":`.
    pub(crate) json_key: String,
    /// The JSON text of the absent field: `,"name":null`, or the default, or nothing if Kong lacks the field.
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
    /// Any value, such as the JSON configuration of a filter.
    Any,
    /// A field whose type the subschema defines.
    Abstract,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Reference {
    pub(crate) kind: EntityKind,
    pub(crate) on_delete: super::OnDelete,
}

/// The method that generates a value for a field that is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Auto {
    Uuid,
    /// The current time, when the entity is created.
    CreatedAt,
    /// The current time at every write, whatever was given.
    UpdatedAt,
    /// 32 random letters and digits.
    RandomKey,
}

/// A field that exists only as input and is converted to other fields before anything else happens.
#[derive(Debug, Clone)]
pub(crate) struct Shorthand {
    pub(crate) field: Field,
    pub(crate) effect: Effect,
}

#[derive(Debug, Clone)]
pub(crate) enum Effect {
    Function(super::source::Conversion),
    /// Moves the value to this path, replacing any value there.
    Into(Vec<CompactString>),
    /// Moves the value to this path if there is none yet. A different value there is an error. Output contains both
    /// fields.
    ReplacedBy(Vec<CompactString>),
}

impl Field {
    /// Whether the field exists in the schema only to forbid its use.
    pub(crate) fn must_be_null(&self) -> bool {
        let mut constraints = self.constraints.iter();
        constraints.any(|constraint| matches!(constraint, Constraint::Eq(Value::Null)))
    }

    /// The value of the field if an entity lacks it: null, or the default of a required field. An entity lacks the
    /// field if it was stored before the field existed, or under another router flavor.
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

    /// The names of all fields that input may contain, including shorthands.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let shorthands = self.shorthands.iter().map(|shorthand| &shorthand.field);
        let fields = self.fields.iter().chain(shorthands);
        fields.map(|field| field.name.as_str())
    }

    /// The record in a field that contains a record or a list of records.
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

    /// The fields with which an object is shown.
    pub(crate) fn shown_fields(&self, object: &Object) -> impl Iterator<Item = &Field> {
        let fields = self.fields.iter();
        fields.filter(|field| !field.own || object.get(&field.name).is_some())
    }

    /// Whether stored entities have a field of this name.
    pub(crate) fn is_shown(&self, name: &[u8]) -> bool {
        let mut fields = self.fields.iter();
        fields.any(|field| !field.transient && field.name.as_bytes() == name)
    }

    /// Sorts the fields in schema order. Unknown fields come last.
    pub(crate) fn ordered(&self, object: Object) -> Object {
        let mut fields: Vec<_> = object.into_iter().collect();
        fields.sort_by_key(|(name, _)| self.position(name).unwrap_or(MAX_FIELDS));
        fields.into_iter().collect()
    }

    /// Moves the values to be stored into an object in schema order, without nulls and transient fields.
    pub(crate) fn assemble(&self, slots: &mut [Value]) -> Object {
        let present = slots.iter().filter(|value| !value.is_null()).count();
        // One more for `ttl`, which is not a field of the schema.
        let mut object = Object::with_capacity(present + 1);
        for (field, value) in self.fields.iter().zip(slots) {
            if !value.is_null() && !field.transient {
                object.push(field.name.clone(), std::mem::take(value));
            }
        }
        object
    }

    /// Adds explicit nulls to a canonical object and its records.
    pub(crate) fn with_nulls(&self, object: &Object) -> Object {
        let fields = self.shown_fields(object).map(|field| {
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
