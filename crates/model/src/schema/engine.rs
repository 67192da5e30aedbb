//! Completes and validates records: inserts defaults and generated values, and reports every problem in the shape of
//! the input. Source: kong/db/schema/init.lua (process_auto_fields, validate).
//!
//! One pass does the work of two in Kong, because a field's default and its validation do not depend on other fields.
//! Only shorthands are expanded first. If a shorthand is wrong, no other field is checked.

use super::checks::Fields;
use super::constraint::Constraint;
use super::definition::{Auto, Field, Kind, MAX_FIELDS, Record};
use super::shorthand::expand_shorthands;
use super::{Context, random, references};
use crate::value::{MAX_DEPTH, Object, Value};
use std::cell::RefCell;

const REQUIRED: &str = "required field missing";
/// The error for a number outside the range of integers. Kong accepts every float without a fraction.
const TOO_LARGE: &str = "value should be between -9223372036854775808 and 9223372036854775807";

/// Whether an entity is created or changed. Some error texts depend on this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Create,
    Update,
}

impl Mode {
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::Create => "",
            Self::Update => "when updating, ",
        }
    }
}

/// The reason why a field's value is refused.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A text, or a tree of texts in the shape of the value.
    Problem(Value),
    /// The problem of a wrong shorthand. All other problems are discarded.
    Shorthand(Value),
}

impl From<Value> for Failure {
    fn from(problem: Value) -> Self {
        Self::Problem(problem)
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self::Problem(text.into())
    }
}

pub(crate) struct Engine<'c> {
    pub(crate) context: &'c Context,
    pub(crate) mode: Mode,
}

/// The values of a record's fields, by field position, and the problems that were found.
pub(crate) struct Filled {
    pub(crate) slots: Vec<Value>,
    pub(crate) errors: Object,
}

thread_local! {
    /// Vectors that are reused for the slots of records. There is one per nesting level.
    static SPARE_SLOTS: RefCell<Vec<Vec<Value>>> = const { RefCell::new(Vec::new()) };
}

impl Filled {
    fn new(fields: usize) -> Self {
        let spare = SPARE_SLOTS.with_borrow_mut(Vec::pop);
        let mut slots = spare.unwrap_or_else(|| Vec::with_capacity(MAX_FIELDS));
        slots.resize_with(fields, Value::default);
        Self {
            slots,
            errors: Object::new(),
        }
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        let mut slots = std::mem::take(&mut self.slots);
        slots.clear();
        SPARE_SLOTS.with_borrow_mut(|spare| spare.push(slots));
    }
}

impl Engine<'_> {
    /// Fills in the fields of a record. A value comes from the input, else from the existing record (`base`, in an
    /// update), else from the schema. Unknown fields whose names are in `ignored` are not reported.
    pub(crate) fn fill(
        &self,
        record: &Record,
        input: Object,
        base: Option<&Object>,
        ignored: &[&str],
        depth: usize,
    ) -> Result<Filled, Value> {
        let mut filled = Filled::new(record.fields.len());
        let given = distribute(record, input, ignored, &mut filled);
        if let Some(base) = base {
            report_unknown(record, base, ignored, &mut filled.errors);
        }
        for (index, field) in record.fields.iter().enumerate() {
            let slot = &mut filled.slots[index];
            let given = given & (1 << index) != 0;
            let result = self.fill_field(field, slot, given, base, depth);
            match result {
                Ok(()) => {}
                Err(Failure::Problem(problem)) => {
                    filled.errors.insert(field.name.clone(), problem);
                }
                Err(Failure::Shorthand(problem)) => {
                    return Err(Value::Object(
                        [(field.name.clone(), problem)].into_iter().collect(),
                    ));
                }
            }
        }
        self.run_checks(record, &mut filled);
        Ok(filled)
    }

    fn run_checks(&self, record: &Record, filled: &mut Filled) {
        let fields = Fields {
            slots: &filled.slots,
        };
        for check in &record.checks {
            check.run(&fields, &mut filled.errors, self.mode, self.context);
        }
    }

    fn fill_field(
        &self,
        field: &Field,
        slot: &mut Value,
        given: bool,
        base: Option<&Object>,
        depth: usize,
    ) -> Result<(), Failure> {
        let existing = base.and_then(|base| base.get(&field.name));
        if let Some(auto) = field.auto
            && (slot.is_null() && existing.is_none() || auto == Auto::UpdatedAt)
        {
            *slot = self.generate(auto, field);
            return Ok(());
        }
        if given {
            return self.complete(field, slot, existing, depth);
        }
        if let Some(existing) = existing {
            *slot = existing.clone();
            return self.complete(field, slot, None, depth);
        }
        if base.is_some() && !field.required {
            // The value was null before the update and stays null.
            return Ok(());
        }
        self.fill_default(field, slot, depth)
    }

    fn fill_default(&self, field: &Field, slot: &mut Value, depth: usize) -> Result<(), Failure> {
        if let Kind::Record(record) = &field.kind
            && field.required
        {
            let input = match &field.default {
                Some(Value::Object(default)) => default.clone(),
                _ => Object::new(),
            };
            return self.complete_record(record, field, slot, input, None, depth);
        }
        match &field.default {
            // Defaults are not validated, because they come from the schema itself.
            Some(default) => {
                *slot = default.clone();
                Ok(())
            }
            None => missing(field),
        }
    }

    fn generate(&self, auto: Auto, field: &Field) -> Value {
        match auto {
            Auto::Uuid => Value::String(random::uuid()),
            Auto::RandomKey => Value::String(random::key()),
            Auto::CreatedAt | Auto::UpdatedAt => match field.kind {
                Kind::Number => Value::Float(self.context.now_ms),
                _ => Value::Int(self.context.now),
            },
        }
    }

    /// Completes and validates a value in place. If the value is a record in an update, `existing` is the stored record
    /// into which it is merged.
    fn complete(
        &self,
        field: &Field,
        value: &mut Value,
        existing: Option<&Value>,
        depth: usize,
    ) -> Result<(), Failure> {
        if value.is_null() {
            return null(field).map_err(Failure::from);
        }
        if field.referenceable && is_vault_reference(value) {
            return Ok(());
        }
        if depth > MAX_DEPTH {
            return Err("nested too deeply".into());
        }
        match &field.kind {
            Kind::Array(element) => {
                self.complete_list(element, value, "expected an array", depth)?
            }
            Kind::Set(element) => {
                self.complete_list(element, value, "expected a set", depth)?;
                remove_duplicates(value);
            }
            Kind::Map(entry) => self.complete_map(&entry.0, &entry.1, value, depth)?,
            Kind::Record(record) => {
                let Some(input) = take_object(value) else {
                    return Err("expected a record".into());
                };
                let base = existing.and_then(Value::as_object);
                return self.complete_record(record, field, value, input, base, depth);
            }
            Kind::Foreign(reference) => {
                references::complete(reference.kind, value, self.context)?;
            }
            _ => {
                scalar(field, value)?;
                if let (Kind::Integer, Some(integer)) = (&field.kind, value.as_int()) {
                    *value = Value::Int(integer);
                }
            }
        }
        constraints(field, value, self.context)?;
        match (&field.kind, &*value) {
            (Kind::Integer, Value::Float(_)) => Err(TOO_LARGE.into()),
            _ => Ok(()),
        }
    }

    fn complete_record(
        &self,
        record: &Record,
        field: &Field,
        slot: &mut Value,
        mut input: Object,
        base: Option<&Object>,
        depth: usize,
    ) -> Result<(), Failure> {
        expand_shorthands(&record.shorthands, &mut input, self.context)
            .map_err(|errors| Failure::Shorthand(Value::Object(errors)))?;
        let mut filled = self
            .fill(record, input, base, &[], depth + 1)
            .map_err(Failure::Shorthand)?;
        *slot = Value::Object(record.assemble(&mut filled.slots));
        if !filled.errors.is_empty() {
            return Err(Value::Object(std::mem::take(&mut filled.errors)).into());
        }
        constraints(field, slot, self.context).map_err(Failure::from)
    }

    fn complete_list(
        &self,
        element: &Field,
        value: &mut Value,
        expected: &'static str,
        depth: usize,
    ) -> Result<(), Failure> {
        // Lua cannot tell an empty object from an empty array, so Kong accepts both here.
        if matches!(value, Value::Object(object) if object.is_empty()) {
            *value = Value::Array(Vec::new());
        }
        let Value::Array(values) = value else {
            return Err(expected.into());
        };
        let mut errors = Vec::new();
        for (index, value) in values.iter_mut().enumerate() {
            let result = match value {
                Value::Null => Err(REQUIRED.into()),
                _ => self.complete(element, value, None, depth + 1),
            };
            match result {
                Ok(()) => {}
                Err(Failure::Problem(problem)) => {
                    errors.resize(index, Value::Null);
                    errors.push(problem);
                }
                Err(Failure::Shorthand(problem)) => {
                    errors.clear();
                    errors.resize(index, Value::Null);
                    errors.push(problem);
                    return Err(Failure::Shorthand(Value::Array(errors)));
                }
            }
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(Value::Array(errors).into())
    }

    /// Completes the entries of a map. Only the first problem of a key or value is reported.
    fn complete_map(
        &self,
        keys: &Field,
        values: &Field,
        value: &mut Value,
        depth: usize,
    ) -> Result<(), Failure> {
        if matches!(value, Value::Array(values) if values.is_empty()) {
            *value = Value::Object(Object::new());
        }
        let Value::Object(object) = value else {
            return Err("expected a map".into());
        };
        for (key, value) in object.iter_mut() {
            if !keys.constraints.is_empty() {
                check(keys, &Value::from(key), self.context)?;
            }
            match value {
                Value::Null => return Err(REQUIRED.into()),
                _ => self.complete(values, value, None, depth + 1)?,
            }
        }
        Ok(())
    }
}

/// Maximum number of unknown fields reported for one object. It is enough to understand a repeated mistake.
pub(crate) const MAX_UNKNOWN: usize = 100;

/// Moves the input's values to the slots of their fields. Returns a word with one bit per field, which is set if the
/// input contains the field, even as null.
fn distribute(record: &Record, input: Object, ignored: &[&str], filled: &mut Filled) -> u64 {
    debug_assert!(record.fields.len() <= MAX_FIELDS);
    let mut given = 0;
    for (name, value) in input {
        match record.position(&name) {
            Some(index) => {
                filled.slots[index] = value;
                given |= 1 << index;
            }
            None if ignored.contains(&name.as_str()) => {}
            // The names of an object are distinct, so `push` is correct. A search for duplicates would be slow for
            // adversarial input.
            None if filled.errors.len() < MAX_UNKNOWN => {
                filled.errors.push(name, "unknown field".into());
            }
            None => {}
        }
    }
    given
}

/// Reports stored fields that the record does not have. They occur only if the update selects another subschema.
fn report_unknown(record: &Record, base: &Object, ignored: &[&str], errors: &mut Object) {
    for (name, _) in base.iter() {
        if record.position(name).is_none() && !ignored.contains(&name) {
            errors.insert(name, "unknown field".into());
        }
    }
}

fn take_object(value: &mut Value) -> Option<Object> {
    match value {
        Value::Object(object) => Some(std::mem::take(object)),
        Value::Array(values) if values.is_empty() => Some(Object::new()),
        _ => None,
    }
}

/// Validates a value without completing it. Used for conditions of checks, for keys of maps and for single fields.
pub(crate) fn check(field: &Field, value: &Value, context: &Context) -> Result<(), Value> {
    if value.is_null() {
        return null(field).map_err(Value::from);
    }
    if field.referenceable && is_vault_reference(value) {
        return Ok(());
    }
    match &field.kind {
        Kind::Array(element) | Kind::Set(element) => check_elements(element, value, context)?,
        Kind::Map(_) | Kind::Record(_) | Kind::Foreign(_) => {}
        _ => scalar(field, value)?,
    }
    constraints(field, value, context)
}

fn check_elements(element: &Field, value: &Value, context: &Context) -> Result<(), Value> {
    let mut errors = Vec::new();
    for (index, value) in value.as_array().unwrap_or_default().iter().enumerate() {
        if let Err(problem) = check(element, value, context) {
            errors.resize(index, Value::Null);
            errors.push(problem);
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Value::Array(errors))
}

fn missing(field: &Field) -> Result<(), Failure> {
    if field.required {
        return Err(REQUIRED.into());
    }
    Ok(())
}

fn null(field: &Field) -> Result<(), &'static str> {
    for constraint in &field.constraints {
        if let Constraint::Eq(wanted) = constraint
            && !wanted.is_null()
        {
            return Err(match wanted {
                Value::Bool(true) => "value must be true",
                Value::Bool(false) => "value must be false",
                _ => REQUIRED,
            });
        }
    }
    if field.required {
        return Err(REQUIRED);
    }
    Ok(())
}

fn scalar(field: &Field, value: &Value) -> Result<(), Value> {
    let expected = match (&field.kind, value) {
        (Kind::String, Value::String(_))
        | (Kind::Integer, Value::Int(_))
        | (Kind::Number, Value::Int(_) | Value::Float(_))
        | (Kind::Boolean, Value::Bool(_))
        | (Kind::Any, _) => return Ok(()),
        (Kind::Integer, Value::Float(number)) if number.fract() == 0.0 => return Ok(()),
        (Kind::String, _) => "expected a string",
        (Kind::Integer, _) => "expected an integer",
        (Kind::Number, _) => "expected a number",
        (Kind::Boolean, _) => "expected a boolean",
        _ => "error in schema definition: abstract field was not specialized",
    };
    Err(expected.into())
}

#[inline]
fn constraints(field: &Field, value: &Value, context: &Context) -> Result<(), Value> {
    for constraint in &field.constraints {
        if let Err(problem) = constraint.check(value, context) {
            return Err(match &field.error_text {
                Some(text) => text.as_str().into(),
                None => problem,
            });
        }
    }
    Ok(())
}

/// Removes repeated texts, numbers and booleans from a set. The first of equal elements stays. Records stay as given.
fn remove_duplicates(value: &mut Value) {
    let Value::Array(values) = value else {
        return;
    };
    const SCAN_LIMIT: usize = 16;
    if values.len() < 2 || values[0].as_object().is_some() {
        return;
    }
    if values.len() <= SCAN_LIMIT {
        let mut index = 1;
        while index < values.len() {
            let own = Element::of(&values[index]);
            let is_known = |known| own.is_some() && Element::of(known) == own;
            if values[..index].iter().any(is_known) {
                values.remove(index);
            } else {
                index += 1;
            }
        }
        return;
    }
    let mut seen = std::collections::HashSet::new();
    let is_new = |value| Element::of(value).is_none_or(|element| seen.insert(element));
    let mut are_new = values.iter().map(is_new).collect::<Vec<_>>().into_iter();
    values.retain(|_| are_new.next().unwrap_or(true));
}

/// An element of a set, in a form that is compared as in Lua: `1` and `1.0` are the same number.
#[derive(PartialEq, Eq, Hash)]
enum Element<'v> {
    Bool(bool),
    Int(i64),
    Float(u64),
    Text(&'v str),
}

impl<'v> Element<'v> {
    /// Returns `None` for a value that is never regarded as a duplicate.
    fn of(value: &'v Value) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(Self::Bool(*value)),
            Value::Int(value) => Some(Self::Int(*value)),
            Value::Float(value) if *value as i64 as f64 == *value => Some(Self::Int(*value as i64)),
            Value::Float(value) => Some(Self::Float(value.to_bits())),
            Value::String(text) => Some(Self::Text(text)),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

/// Whether the value is a vault reference `{vault://…}`. Such a value is accepted without validation.
pub(crate) fn is_vault_reference(value: &Value) -> bool {
    value
        .as_str()
        .is_some_and(|text| text.starts_with("{vault://") && text.ends_with('}'))
}

pub(crate) fn entity_error(errors: &mut Object, text: String) {
    match errors.get_mut("@entity") {
        Some(Value::Array(texts)) => texts.push(text.into()),
        _ => {
            errors.insert("@entity", Value::Array(vec![text.into()]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_any_size_have_no_element_twice() {
        let elements = |count: i64| {
            let numbers =
                (0..count).flat_map(|number| [Value::Int(number), Value::Float(number as f64)]);
            let texts = (0..count).map(|number| Value::from(format!("{}", number % 3)));
            let others = [
                Value::Bool(true),
                Value::Float(0.5),
                Value::Bool(true),
                Value::Float(0.5),
            ];
            Value::Array(numbers.chain(texts).chain(others).collect())
        };
        for count in [3, 4, 5, 40] {
            let mut value = elements(count);
            remove_duplicates(&mut value);
            let left = value.as_array().map(<[Value]>::len);
            assert_eq!(left, Some(count as usize + 3 + 2), "{count}");
        }
    }
}
