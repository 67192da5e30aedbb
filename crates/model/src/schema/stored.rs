//! Writes stored entities as JSON without decoding them to values. `POST /config` returns tens of thousands of
//! entities, so decoding them would be too slow.
//!
//! The reader walks through the MessagePack of [`crate::codec`] and through the schema at the same time, because their
//! fields nearly always have the same order. Tests compare the result with [`super::json`], which writes decoded
//! objects.

use super::definition::{Field, Kind, Record};
use super::json::{write_float, write_string};
use super::{EntitySchema, RouterFlavor};
use std::ops::Range;

/// The error for bytes that are not an encoded entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a stored entity cannot be read")]
pub struct Malformed;

type Done = Result<(), Malformed>;

impl EntitySchema {
    /// Appends a stored entity in the form of the response of `POST /config`. The output has every field. An absent
    /// field is null or has its default. Unlike other responses, the output does not repeat plugin settings under their
    /// deprecated names. After an error, `out` may end with partial JSON.
    pub fn write_stored_json(
        &self,
        stored: &[u8],
        flavor: RouterFlavor,
        out: &mut Vec<u8>,
    ) -> Done {
        let record = match self.subschema_key.as_deref() {
            Some(key) => self.record(subschema_name(stored, key)?, flavor),
            None => self.record(None, flavor),
        };
        let mut reader = Reader { rest: stored };
        reader.record(record, &self.table(flavor).elsewhere, out)
    }
}

/// Returns the name of the subschema from the field `key`. If the field is a list, its first element is the name.
fn subschema_name<'b>(stored: &'b [u8], key: &str) -> Result<Option<&'b str>, Malformed> {
    let mut reader = Reader { rest: stored };
    for _ in 0..reader.map()? {
        if reader.text()? != key.as_bytes() {
            reader.skip()?;
            continue;
        }
        return match reader.token()? {
            Token::Text(name) => as_text(name).map(Some),
            Token::Array(length) if length > 0 => as_text(reader.text()?).map(Some),
            _ => Ok(None),
        };
    }
    Ok(None)
}

/// One field of a stored entity.
pub(crate) struct StoredField<'b> {
    /// The encoded value.
    pub(crate) value: &'b [u8],
    /// The byte range of the field's name and value in the entity.
    pub(crate) place: Range<usize>,
}

/// Finds a field by its name. Returns `None` if the entity does not have it.
pub(crate) fn field_of<'b>(
    stored: &'b [u8],
    name: &str,
) -> Result<Option<StoredField<'b>>, Malformed> {
    let mut reader = Reader { rest: stored };
    for _ in 0..reader.map()? {
        let start = stored.len() - reader.rest.len();
        let found = reader.text()? == name.as_bytes();
        let value = reader.rest;
        reader.skip()?;
        if found {
            let end = stored.len() - reader.rest.len();
            return Ok(Some(StoredField {
                value: &value[..value.len() - reader.rest.len()],
                place: start..end,
            }));
        }
    }
    Ok(None)
}

struct Reader<'b> {
    rest: &'b [u8],
}

/// The order of the fields in a stored record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Schema,
    Other,
}

#[derive(Debug, Clone, Copy)]
enum Token<'b> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// Text that is not yet checked to be UTF-8.
    Text(&'b [u8]),
    Array(usize),
    Map(usize),
}

impl<'b> Reader<'b> {
    /// Writes a record. Fields in `elsewhere` are skipped.
    fn record(&mut self, record: &Record, elsewhere: &[Field], out: &mut Vec<u8>) -> Done {
        let (stored, start) = (self.rest, out.len());
        if self.ordered(record, elsewhere, out)? == Order::Other {
            self.rest = stored;
            out.truncate(start);
            self.unordered(record, elsewhere, out)?;
        }
        // Every field is written with a leading comma. The first comma is replaced by the opening brace.
        match out.get_mut(start) {
            Some(first) => *first = b'{',
            None => out.push(b'{'),
        }
        out.push(b'}');
        Ok(())
    }

    /// Writes a record in one pass. If its fields are not in schema order, returns [`Order::Other`], and `out` ends
    /// with partial JSON.
    fn ordered(
        &mut self,
        record: &Record,
        elsewhere: &[Field],
        out: &mut Vec<u8>,
    ) -> Result<Order, Malformed> {
        let mut left = self.map()?;
        let mut name = self.next_name(&mut left)?;
        for field in record.fields.iter().filter(|field| !field.transient) {
            if name == Some(field.name.as_bytes()) {
                out.push(b',');
                out.extend_from_slice(field.json_key.as_bytes());
                self.field(field, out)?;
                name = self.next_name(&mut left)?;
            } else {
                out.extend_from_slice(field.json_absent.as_bytes());
            }
        }
        // A remaining entry is either a field that is out of order, or not a field of the schema, such as `ttl`.
        while let Some(extra) = name {
            if record.is_shown(extra) {
                return Ok(Order::Other);
            }
            self.extra(extra, elsewhere, out)?;
            name = self.next_name(&mut left)?;
        }
        Ok(Order::Schema)
    }

    /// Writes a record whose fields are in any order. Earlier versions appended computed fields, such as the digests of
    /// certificates.
    fn unordered(&mut self, record: &Record, elsewhere: &[Field], out: &mut Vec<u8>) -> Done {
        let mut left = self.map()?;
        let mut values = Vec::new();
        while let Some(name) = self.next_name(&mut left)? {
            let value = self.rest;
            self.skip()?;
            values.push((name, value));
        }
        for field in record.fields.iter().filter(|field| !field.transient) {
            match values
                .iter()
                .find(|(name, _)| *name == field.name.as_bytes())
            {
                Some(&(_, rest)) => {
                    out.push(b',');
                    out.extend_from_slice(field.json_key.as_bytes());
                    Reader { rest }.field(field, out)?;
                }
                None => out.extend_from_slice(field.json_absent.as_bytes()),
            }
        }
        for (name, rest) in values {
            if !record.is_shown(name) {
                Reader { rest }.extra(name, elsewhere, out)?;
            }
        }
        Ok(())
    }

    /// Writes a value that is not a field of the record. Fields in `elsewhere` are skipped.
    fn extra(&mut self, name: &[u8], elsewhere: &[Field], out: &mut Vec<u8>) -> Done {
        if elsewhere.iter().any(|one| one.name.as_bytes() == name) {
            return self.skip();
        }
        out.push(b',');
        write_text(name, out)?;
        out.push(b':');
        self.value(out)
    }

    fn next_name(&mut self, left: &mut usize) -> Result<Option<&'b [u8]>, Malformed> {
        match left.checked_sub(1) {
            None => Ok(None),
            Some(fewer) => {
                *left = fewer;
                self.text().map(Some)
            }
        }
    }

    fn field(&mut self, field: &Field, out: &mut Vec<u8>) -> Done {
        match &field.kind {
            Kind::Record(record) if self.at_map() => self.record(record, &[], out),
            Kind::Array(element) | Kind::Set(element) if has_records(element) => {
                match self.token()? {
                    Token::Array(length) => {
                        list(self, length, out, |reader, out| reader.field(element, out))
                    }
                    token => self.rest_of(token, out),
                }
            }
            Kind::Map(entry) if has_records(&entry.1) => match self.token()? {
                Token::Map(length) => {
                    pairs(self, length, out, |reader, out| reader.field(&entry.1, out))
                }
                token => self.rest_of(token, out),
            },
            _ => self.value(out),
        }
    }

    fn value(&mut self, out: &mut Vec<u8>) -> Done {
        let token = self.token()?;
        self.rest_of(token, out)
    }

    fn rest_of(&mut self, token: Token<'b>, out: &mut Vec<u8>) -> Done {
        match token {
            Token::Null => out.extend_from_slice(b"null"),
            Token::Bool(true) => out.extend_from_slice(b"true"),
            Token::Bool(false) => out.extend_from_slice(b"false"),
            Token::Int(number) => {
                out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            }
            Token::Float(number) => write_float(number, out),
            Token::Text(text) => write_text(text, out)?,
            Token::Array(length) => return list(self, length, out, Self::value),
            Token::Map(length) => return pairs(self, length, out, Self::value),
        }
        Ok(())
    }

    fn skip(&mut self) -> Done {
        let mut left = 1usize;
        while left > 0 {
            left -= 1;
            match self.token()? {
                Token::Array(length) => left += length,
                Token::Map(length) => left += 2 * length,
                _ => {}
            }
        }
        Ok(())
    }

    fn at_map(&self) -> bool {
        matches!(self.rest.first(), Some(0x80..=0x8f | 0xde | 0xdf))
    }

    fn map(&mut self) -> Result<usize, Malformed> {
        match self.token()? {
            Token::Map(length) => Ok(length),
            _ => Err(Malformed),
        }
    }

    fn text(&mut self) -> Result<&'b [u8], Malformed> {
        match self.token()? {
            Token::Text(text) => Ok(text),
            _ => Err(Malformed),
        }
    }

    /// Reads the next scalar, or the length of the next array or map. Source of the numbers: the MessagePack
    /// specification.
    fn token(&mut self) -> Result<Token<'b>, Malformed> {
        let marker = self.number::<1>()?[0];
        Ok(match marker {
            0x00..=0x7f => Token::Int(i64::from(marker)),
            0x80..=0x8f => Token::Map(usize::from(marker & 0x0f)),
            0x90..=0x9f => Token::Array(usize::from(marker & 0x0f)),
            0xa0..=0xbf => self.take_text(usize::from(marker & 0x1f))?,
            0xc0 => Token::Null,
            0xc2 => Token::Bool(false),
            0xc3 => Token::Bool(true),
            0xca => Token::Float(f64::from(f32::from_be_bytes(self.number()?))),
            0xcb => Token::Float(f64::from_be_bytes(self.number()?)),
            0xcc..=0xcf => self.unsigned(marker - 0xcc)?,
            0xd0 => Token::Int(i64::from(i8::from_be_bytes(self.number()?))),
            0xd1 => Token::Int(i64::from(i16::from_be_bytes(self.number()?))),
            0xd2 => Token::Int(i64::from(i32::from_be_bytes(self.number()?))),
            0xd3 => Token::Int(i64::from_be_bytes(self.number()?)),
            0xd9..=0xdb => {
                let length = self.length(marker - 0xd9)?;
                self.take_text(length)?
            }
            0xdc | 0xdd => Token::Array(self.length(marker - 0xdc + 1)?),
            0xde | 0xdf => Token::Map(self.length(marker - 0xde + 1)?),
            0xe0..=0xff => Token::Int(i64::from(marker as i8)),
            _ => return Err(Malformed),
        })
    }

    fn unsigned(&mut self, size: u8) -> Result<Token<'b>, Malformed> {
        let number = match size {
            0 => u64::from(u8::from_be_bytes(self.number()?)),
            1 => u64::from(u16::from_be_bytes(self.number()?)),
            2 => u64::from(u32::from_be_bytes(self.number()?)),
            _ => u64::from_be_bytes(self.number()?),
        };
        i64::try_from(number).map(Token::Int).map_err(|_| Malformed)
    }

    /// Reads a length of 1, 2 or 4 bytes, for a `size` of 0, 1 or 2.
    fn length(&mut self, size: u8) -> Result<usize, Malformed> {
        let length = match size {
            0 => u32::from(u8::from_be_bytes(self.number()?)),
            1 => u32::from(u16::from_be_bytes(self.number()?)),
            _ => u32::from_be_bytes(self.number()?),
        };
        usize::try_from(length).map_err(|_| Malformed)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (number, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*number)
    }

    fn take_text(&mut self, length: usize) -> Result<Token<'b>, Malformed> {
        let (text, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(Token::Text(text))
    }
}

/// Appends a string. Nearly all strings are ASCII without characters to escape, which one pass over the bytes detects.
fn write_text(bytes: &[u8], out: &mut Vec<u8>) -> Done {
    if is_plain(bytes) {
        out.push(b'"');
        out.extend_from_slice(bytes);
        out.push(b'"');
    } else {
        write_string(as_text(bytes)?, out);
    }
    Ok(())
}

/// Whether all bytes are printable ASCII that needs no escape. It tests eight bytes at a time, and may return `false`
/// for such bytes too, because a match in one byte can affect the next.
fn is_plain(bytes: &[u8]) -> bool {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = EACH << 7;
    // The result of `zero` and `special` has the highest bit of some byte set if any byte matches.
    let zero = |word: u64| word.wrapping_sub(EACH) & !word & HIGH;
    let repeated = |byte: u8| EACH * u64::from(byte);
    let special = |word: u64| {
        let control = word.wrapping_sub(repeated(b' ')) | word;
        control & HIGH | zero(word ^ repeated(b'"')) | zero(word ^ repeated(b'\\'))
    };
    let (words, rest) = bytes.as_chunks::<8>();
    // The padding with blanks needs no escape.
    let mut last = [b' '; 8];
    last[..rest.len()].copy_from_slice(rest);
    let last = special(u64::from_le_bytes(last));
    words.iter().fold(last, |found, word| {
        found | special(u64::from_le_bytes(*word))
    }) == 0
}

fn as_text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed)
}

/// Whether the field's values contain records, whose absent fields must be shown.
fn has_records(field: &Field) -> bool {
    match &field.kind {
        Kind::Record(_) => true,
        Kind::Array(element) | Kind::Set(element) => has_records(element),
        Kind::Map(entry) => has_records(&entry.1),
        _ => false,
    }
}

fn list<'b>(
    reader: &mut Reader<'b>,
    length: usize,
    out: &mut Vec<u8>,
    mut element: impl FnMut(&mut Reader<'b>, &mut Vec<u8>) -> Done,
) -> Done {
    out.push(b'[');
    for index in 0..length {
        if index > 0 {
            out.push(b',');
        }
        element(reader, out)?;
    }
    out.push(b']');
    Ok(())
}

fn pairs<'b>(
    reader: &mut Reader<'b>,
    length: usize,
    out: &mut Vec<u8>,
    mut value: impl FnMut(&mut Reader<'b>, &mut Vec<u8>) -> Done,
) -> Done {
    out.push(b'{');
    for index in 0..length {
        if index > 0 {
            out.push(b',');
        }
        write_text(reader.text()?, out)?;
        out.push(b':');
        value(reader, out)?;
    }
    out.push(b'}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::schema::{Context, RouterFlavor, registry};
    use crate::{EntityKind, Object, codec};
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn fields_out_of_schema_order_are_shown_in_it() {
        let input = json!({"name": "s", "host": "h.test", "tags": ["a"], "path": "/p"});
        let input: Object = serde_json::from_value(input).expect("an object");
        let context = Context::at(Duration::from_millis(1_700_000_000_250));
        let schema = registry().entity(EntityKind::Services);
        let ordered = schema.complete(input, &context).expect("a valid entity");
        let mut fields: Vec<_> = ordered.clone().into_iter().collect();
        fields.push(("unknown".into(), crate::Value::Int(1)));
        let flavor = RouterFlavor::default();
        let shown = |entity: &Object| {
            let (mut stored, mut built) = (Vec::new(), Vec::new());
            let bytes = codec::encode(entity);
            let read = schema.write_stored_json(&bytes, flavor, &mut stored);
            read.expect("readable");
            schema.write_json_for(entity, flavor, &mut built);
            [stored, built].map(|json| String::from_utf8(json).expect("UTF-8"))
        };
        let [mut stored, built] = shown(&ordered);
        stored.insert_str(stored.len() - 1, ",\"unknown\":1");
        for turn in 0..fields.len() {
            fields.rotate_left(1);
            let rotated: Object = fields.iter().cloned().collect();
            assert_eq!(shown(&rotated), [stored.clone(), built.clone()], "{turn}");
        }
    }

    #[test]
    fn every_text_is_written_as_json() {
        for length in 0..20 {
            for special in [
                "",
                "\"",
                "\\",
                "\n",
                "\u{1}",
                "\u{7f}",
                "\u{fc}",
                "\u{1f600}",
                " ~!#[]",
            ] {
                let plain = "a".repeat(length);
                for text in [
                    format!("{plain}{special}"),
                    format!("{special}{plain}{special}x"),
                ] {
                    let mut out = Vec::new();
                    super::write_text(text.as_bytes(), &mut out).expect("it is UTF-8");
                    let read: String = serde_json::from_slice(&out).expect("JSON");
                    assert_eq!(read, text);
                }
            }
        }
        assert!(super::write_text(b"\xff", &mut Vec::new()).is_err());
    }

    #[test]
    fn damaged_bytes_are_an_error() {
        let schema = registry().entity(EntityKind::Services);
        for bytes in [
            &b""[..],
            b"\x81",
            b"\x81\xa2id",
            b"\xc1",
            b"\xde\xff\xff\xa1a",
            b"\x81\xa4name\xa2\xff\xff",
        ] {
            let mut out = Vec::new();
            let read = schema.write_stored_json(bytes, RouterFlavor::default(), &mut out);
            assert!(read.is_err(), "{bytes:?}");
        }
    }
}
