//! The untyped value of configuration documents. JSON, YAML and form bodies are decoded to it, schemas validate and
//! complete it, and the store keeps it as MessagePack.
//!
//! The request path does not use it: there, entities are the structs of [`crate::entities`].

use compact_str::CompactString;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;

/// Maximum nesting depth of documents. Kong's deepest entity has nine levels.
pub const MAX_DEPTH: usize = 64;

/// One value. Integers and floats are separate because Kong's `integer` refuses fractions; `3.0` counts as an integer.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    String(CompactString),
    Array(Vec<Value>),
    Object(Object),
}

/// Fields in the order in which they were given. A name that occurs twice keeps its last value, as in Kong's decoders.
///
/// The fields are in a vector because entities have at most about thirty fields. Scanning so few is faster than
/// hashing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Object(Vec<(CompactString, Value)>);

/// Number of fields above which [`Builder`] finds names in a hash map.
const SCAN_LIMIT: usize = 32;

impl Object {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    pub fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.0
            .iter_mut()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)
    }

    /// The text of a string field. Returns `None` if the field is absent or of another type.
    pub fn str(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_str)
    }

    /// Sets a field and returns its previous value. An existing field keeps its position.
    pub fn insert(
        &mut self,
        name: impl Into<CompactString> + AsRef<str>,
        value: Value,
    ) -> Option<Value> {
        match self.get_mut(name.as_ref()) {
            Some(slot) => Some(std::mem::replace(slot, value)),
            None => {
                self.0.push((name.into(), value));
                None
            }
        }
    }

    /// Appends a field. The caller must ensure that the object has no field of this name yet.
    pub fn push(&mut self, name: impl Into<CompactString>, value: Value) {
        self.0.push((name.into(), value));
    }

    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let index = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.remove(index).1)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (&str, &mut Value)> {
        self.0.iter_mut().map(|(key, value)| (key.as_str(), value))
    }

    /// Removes all fields but keeps their memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Keeps the first `length` fields.
    pub fn truncate(&mut self, length: usize) {
        self.0.truncate(length);
    }

    /// Sorts the fields by name, for deterministic output.
    pub fn sort(&mut self) {
        self.0.sort_by(|a, b| a.0.cmp(&b.0));
    }
}

impl IntoIterator for Object {
    type Item = (CompactString, Value);
    type IntoIter = std::vec::IntoIter<(CompactString, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<K: Into<CompactString>> FromIterator<(K, Value)> for Object {
    fn from_iter<I: IntoIterator<Item = (K, Value)>>(fields: I) -> Self {
        let mut object = Builder::default();
        for (key, value) in fields {
            object.set(key.into(), value);
        }
        object.finish()
    }
}

/// Builds an object from fields whose names may repeat. It takes linear time for any number of fields, so that
/// adversarial input cannot slow it down.
#[derive(Default)]
pub(crate) struct Builder {
    object: Object,
    /// Positions of the fields by name; `None` while there are few fields.
    index: Option<HashMap<CompactString, usize>>,
}

impl Builder {
    /// Sets a field and returns its previous value. An existing field keeps its position.
    pub(crate) fn set(&mut self, name: CompactString, value: Value) -> Option<Value> {
        match self.position(&name) {
            Some(at) => Some(std::mem::replace(&mut self.object.0[at].1, value)),
            None => {
                if let Some(index) = &mut self.index {
                    index.insert(name.clone(), self.object.len());
                }
                self.object.0.push((name, value));
                None
            }
        }
    }

    pub(crate) fn contains(&mut self, name: &str) -> bool {
        self.position(name).is_some()
    }

    pub(crate) fn finish(self) -> Object {
        self.object
    }

    fn position(&mut self, name: &str) -> Option<usize> {
        let fields = &self.object.0;
        if fields.len() < SCAN_LIMIT {
            return fields.iter().position(|(key, _)| key == name);
        }
        let names = || fields.iter().enumerate();
        let index = self
            .index
            .get_or_insert_with(|| names().map(|(at, (key, _))| (key.clone(), at)).collect());
        index.get(name).copied()
    }
}

impl Value {
    /// Parses JSON. The flag says whether an object repeats a name. The value cannot show this, because it has only the
    /// last value of each name.
    pub(crate) fn from_json(text: &[u8]) -> serde_json::Result<(Self, bool)> {
        let repeated = Cell::new(false);
        let mut reader = serde_json::Deserializer::from_slice(text);
        let value = ValueVisitor {
            repeated: &repeated,
        }
        .deserialize(&mut reader)?;
        reader.end()?;
        Ok((value, repeated.get()))
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The integer, or the value of a float without a fraction.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(value) => Some(*value),
            Value::Float(value) => whole(*value),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(values) => Some(values),
            _ => None,
        }
    }

    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }

    pub fn as_object_mut(&mut self) -> Option<&mut Object> {
        match self {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }
}

/// Converts a float without a fraction to an integer, if it is in range. Lua has only floats, so Kong writes large
/// integers as floats: `9.007199254741e15`.
pub(crate) fn whole(number: f64) -> Option<i64> {
    const LIMIT: f64 = (1_u64 << 63) as f64;
    let fits = number.fract() == 0.0 && (-LIMIT..LIMIT).contains(&number);
    fits.then_some(number as i64)
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::String(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::String(text.into())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Int(value)
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Self {
        Value::Object(object)
    }
}

impl From<Vec<Value>> for Value {
    fn from(values: Vec<Value>) -> Self {
        Value::Array(values)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Int(value) => serializer.serialize_i64(*value),
            Value::Float(value) => serializer.serialize_f64(*value),
            Value::String(text) => serializer.serialize_str(text),
            Value::Array(values) => serializer.collect_seq(values),
            Value::Object(object) => object.serialize(serializer),
        }
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (key, value) in self.iter() {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[derive(Clone, Copy)]
struct ValueVisitor<'r> {
    /// Set when an object has a name more than once.
    repeated: &'r Cell<bool>,
}

impl<'de> DeserializeSeed<'de> for ValueVisitor<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueVisitor<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or(Value::Float(value as f64), Value::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.into()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values = Vec::with_capacity(seq.size_hint().unwrap_or(0).min(1024));
        while let Some(value) = seq.next_element_seed(self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        ObjectVisitor { values: self }
            .visit_map(map)
            .map(Value::Object)
    }
}

struct ObjectVisitor<'r> {
    values: ValueVisitor<'r>,
}

impl<'de> Visitor<'de> for ObjectVisitor<'_> {
    type Value = Object;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
        let size = map.size_hint().unwrap_or(0).min(SCAN_LIMIT);
        let mut object = Builder {
            object: Object::with_capacity(size),
            index: None,
        };
        let name = PhantomData::<CompactString>;
        while let Some((key, value)) = map.next_entry_seed(name, self.values)? {
            if object.set(key, value).is_some() {
                self.values.repeated.set(true);
            }
        }
        Ok(object.finish())
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let repeated = &Cell::new(false);
        ValueVisitor { repeated }.deserialize(deserializer)
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let repeated = &Cell::new(false);
        let values = ValueVisitor { repeated };
        deserializer.deserialize_map(ObjectVisitor { values })
    }
}

/// Reads a typed struct from a value, such as a plugin's configuration struct from its validated `config`.
impl<'de> de::IntoDeserializer<'de, de::value::Error> for &'de Value {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for &'de Value {
    type Error = de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(value) => visitor.visit_i64(*value),
            Value::Float(value) => match whole(*value) {
                Some(integer) => visitor.visit_i64(integer),
                None => visitor.visit_f64(*value),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(values) => {
                visitor.visit_seq(de::value::SeqDeserializer::new(values.iter()))
            }
            Value::Object(object) => {
                visitor.visit_map(de::value::MapDeserializer::new(object.iter()))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        match self {
            Value::String(text) => visitor.visit_enum(de::value::StrDeserializer::new(text)),
            _ => Err(de::Error::custom("expected a string")),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map struct identifier ignored_any
    }
}

/// Converts a validated value to a type.
pub fn from_value<'v, T: Deserialize<'v>>(value: &'v Value) -> Result<T, de::value::Error> {
    T::deserialize(value)
}

/// Converts a validated object to a type.
pub fn from_object<'v, T: Deserialize<'v>>(object: &'v Object) -> Result<T, de::value::Error> {
    T::deserialize(de::value::MapDeserializer::new(object.iter()))
}
