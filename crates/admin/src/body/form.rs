//! `application/x-www-form-urlencoded` bodies: key-value pairs, and Kong's rules for nested keys (`a.b`, `a[b]`, `a[]`,
//! `a[1]`).
//!
//! All decoded values are text, and `infer` converts them later. Source: kong/api/arguments_decoder.lua and
//! arguments.lua. Kong's defects are reproduced. For example, a key that begins or ends with a dot becomes `name`.

use indexmap::IndexMap;
use model::value::MAX_DEPTH;
use model::{Object, Value};
use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;

/// Maximum number of query or form arguments. Kong reads this many. Here, a request with more is refused.
pub(crate) const MAX_ARGUMENTS: usize = 1000;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooManyArguments;

/// Splits a query or form body into pairs and decodes them; `+` is a space. A key without `=` has no value.
pub(crate) fn pairs(text: &str) -> Result<Vec<(String, Option<String>)>, TooManyArguments> {
    let mut pairs = Vec::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        if pairs.len() == MAX_ARGUMENTS {
            return Err(TooManyArguments);
        }
        let (key, value) = match pair.split_once('=') {
            Some((key, value)) => (key, Some(unescape(value))),
            None => (pair, None),
        };
        if key.is_empty() {
            continue;
        }
        pairs.push((unescape(key), value));
    }
    Ok(pairs)
}

/// Decodes `%xx` and `+`. Invalid escapes stay, and invalid UTF-8 is replaced.
pub(crate) fn unescape(text: &str) -> String {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

/// Nests arguments by their keys. As in Kong, the values of equal keys are collected first.
pub(crate) fn decode(arguments: Vec<(String, Value)>) -> Object {
    let mut root = Table::default();
    for (key, values) in gather(arguments) {
        let mut argument = Table::default();
        place(&mut argument, &segments(&key), values);
        root.combine(argument);
    }
    object(root.named)
}

/// Builds an object from distinct names, so it does not check for duplicates.
fn object(fields: impl IntoIterator<Item = (String, Node)>) -> Object {
    let mut object = Object::new();
    for (key, node) in fields {
        object.push(key, node.into_value());
    }
    object
}

fn gather(arguments: Vec<(String, Value)>) -> IndexMap<String, Vec<Value>> {
    let mut gathered: IndexMap<String, Vec<Value>> = IndexMap::new();
    for (key, value) in arguments {
        gathered.entry(key).or_default().push(value);
    }
    gathered
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Key(String),
    /// `[]` or `[n]`.
    Index(Option<u32>),
}

fn segments(key: &str) -> Vec<Segment> {
    if key.starts_with('.') || key.ends_with('.') {
        return vec![Segment::Key("name".to_owned())];
    }
    let key = unescape_brackets(key);
    let mut segments = Vec::new();
    for part in parts(&key) {
        part_segments(part, &mut segments);
        if segments.len() > MAX_DEPTH {
            break;
        }
    }
    // This bounds the recursion for adversarial keys. No entity has fields nested this deeply.
    if segments.is_empty() || segments.len() > MAX_DEPTH {
        return vec![Segment::Key(key)];
    }
    segments
}

/// Replaces `%5Bx%5D` by `[x]`. A decoded key still contains such escapes if the client escaped its brackets twice.
fn unescape_brackets(key: &str) -> String {
    let lower = key.to_ascii_lowercase();
    let mut out = String::with_capacity(key.len());
    let mut at = 0;
    while let Some(open) = lower[at..].find("%5b").map(|found| at + found) {
        let Some(close) = lower[open..].find("%5d").map(|found| open + found) else {
            break;
        };
        out.push_str(&key[at..open]);
        out.push('[');
        out.push_str(&key[open + 3..close]);
        out.push(']');
        at = close + 3;
    }
    out.push_str(&key[at..]);
    out
}

/// Splits at dots outside brackets. Empty parts are skipped.
fn parts(key: &str) -> impl Iterator<Item = &str> {
    let bytes = key.as_bytes();
    // A bracket after the last closing bracket is never closed. Searching for its end each time would take quadratic
    // time.
    let last_close = key.rfind(']').unwrap_or(0);
    let mut start = 0;
    let next = move || {
        let part_start = start;
        let mut at = start;
        while bytes.get(at).is_some_and(|&byte| byte != b'.') {
            if bytes[at] == b'[' && at > start && at < last_close {
                at += key[at..].find(']').unwrap_or(0);
            }
            at += 1;
        }
        start = at + 1;
        key.get(part_start..at)
    };
    std::iter::from_fn(next).filter(|part| !part.is_empty())
}

/// Splits `a[b][1]` into the key `a`, the key `b` and the index 1. A bracket as the first character is part of the key.
fn part_segments(part: &str, segments: &mut Vec<Segment>) {
    let first = part.chars().next().map_or(0, char::len_utf8);
    let brackets = part[first..].find('[').map(|found| first + found);
    let Some(open) = brackets.filter(|&open| part[open..].contains(']')) else {
        segments.push(Segment::Key(part.to_owned()));
        return;
    };
    segments.push(Segment::Key(part[..open].to_owned()));
    let mut rest = &part[open..];
    while segments.len() <= MAX_DEPTH
        && let Some((_, after)) = rest.split_once('[')
    {
        let Some((inner, after)) = after.split_once(']') else {
            break;
        };
        segments.push(match inner {
            "" => Segment::Index(None),
            _ => match inner.parse() {
                Ok(index) => Segment::Index(Some(index)),
                // The brackets contain the name of a field. An index that is too large counts as a name too.
                Err(_) => Segment::Key(inner.to_owned()),
            },
        });
        rest = after;
    }
}

/// A Lua table, reduced to the parts that arguments need. It can hold list elements and fields at the same time.
/// `into_value` turns it into an array or an object.
#[derive(Debug, Default)]
struct Table {
    /// The indexes are wider than those of a segment, so that there is always a next index.
    listed: BTreeMap<u64, Node>,
    named: IndexMap<String, Node>,
}

#[derive(Debug)]
enum Node {
    Leaf(Value),
    Table(Table),
}

fn place(table: &mut Table, path: &[Segment], mut values: Vec<Value>) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    if rest.is_empty() {
        if *first == Segment::Index(None) {
            return values.into_iter().for_each(|value| table.append(value));
        }
        let node = match (values.len(), values.pop()) {
            (1, Some(value)) => Node::Leaf(value),
            (_, last) => Node::Table(Table::list(values.into_iter().chain(last))),
        };
        return table.add(first, node);
    }
    let mut inner = Table::default();
    place(&mut inner, rest, values);
    table.add(first, Node::Table(inner));
}

impl Table {
    fn list(values: impl IntoIterator<Item = Value>) -> Self {
        let mut table = Table::default();
        values.into_iter().for_each(|value| table.append(value));
        table
    }

    fn append(&mut self, value: Value) {
        let next = self.listed.keys().next_back().map_or(1, |last| last + 1);
        self.listed.insert(next, Node::Leaf(value));
    }

    fn add(&mut self, segment: &Segment, node: Node) {
        match segment {
            Segment::Key(key) => {
                self.named.insert(key.clone(), node);
            }
            Segment::Index(index) => {
                self.listed.insert(u64::from(index.unwrap_or(1)), node);
            }
        }
    }

    /// Merges another argument's table into this one. Two values in the same position become a list.
    fn combine(&mut self, other: Table) {
        for (index, node) in other.listed {
            match self.listed.remove(&index) {
                Some(existing) => self.listed.insert(index, existing.combine(node)),
                None => self.listed.insert(index, node),
            };
        }
        for (key, node) in other.named {
            match self.named.get_mut(&key) {
                Some(place) => {
                    let existing = std::mem::replace(place, Node::Leaf(Value::Null));
                    *place = existing.combine(node);
                }
                None => {
                    self.named.insert(key, node);
                }
            }
        }
    }
}

impl Node {
    fn combine(self, other: Node) -> Node {
        let mut table = match self {
            Node::Table(table) => table,
            Node::Leaf(value) => Table::list([value]),
        };
        match other {
            Node::Table(other) => table.combine(other),
            Node::Leaf(value) => table.append(value),
        }
        Node::Table(table)
    }

    fn into_value(self) -> Value {
        match self {
            Node::Leaf(value) => value,
            Node::Table(table) if table.named.is_empty() => {
                Value::Array(table.listed.into_values().map(Node::into_value).collect())
            }
            Node::Table(table) => {
                let listed = table.listed.into_iter();
                let mut fields: IndexMap<String, Node> = listed
                    .map(|(index, node)| (index.to_string(), node))
                    .collect();
                // `a.1` replaces `a[1]`.
                fields.extend(table.named);
                Value::Object(object(fields))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_text(text: &str) -> serde_json::Value {
        let arguments = pairs(text)
            .unwrap()
            .into_iter()
            .map(|(key, value)| (key, value.map_or(Value::Bool(true), Value::from)))
            .collect();
        serde_json::to_value(decode(arguments)).unwrap()
    }

    #[test]
    fn recorded_form_bodies_decode_as_recorded() {
        let vectors: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/data/form-decoding.json")).unwrap();
        let cases = vectors["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 25);
        for case in cases {
            let body = case["body"].as_str().unwrap();
            assert_eq!(decode_text(body), case["decoded"], "{body}");
        }
    }

    #[test]
    fn a_list_and_a_value_with_one_key_are_merged() {
        assert_eq!(
            decode_text("a[]=1&a=2"),
            serde_json::json!({"a": ["1", "2"]})
        );
    }

    #[test]
    fn fields_of_one_list_element_are_merged() {
        assert_eq!(
            decode_text("a[1].b=1&a[1].c=2&a[2].b=3"),
            serde_json::json!({"a": [{"b": "1", "c": "2"}, {"b": "3"}]})
        );
    }

    #[test]
    fn an_unclosed_bracket_is_part_of_the_key() {
        assert_eq!(decode_text("a[b=1"), serde_json::json!({"a[b": "1"}));
    }

    #[test]
    fn the_thousand_and_first_argument_is_refused() {
        let text = vec!["a=1"; MAX_ARGUMENTS].join("&");
        assert!(pairs(&text).is_ok());
        assert_eq!(pairs(&format!("{text}&b=1")), Err(TooManyArguments));
    }

    #[test]
    fn a_key_deeper_than_any_entity_is_a_plain_name() {
        let key = format!("a{}", "[b]".repeat(10_000));
        let decoded = decode_text(&format!("{key}=1"));
        assert_eq!(decoded[&key], "1");
    }

    #[test]
    fn a_key_of_a_million_open_brackets_is_read_in_linear_time() {
        let key = format!("a{}", "[".repeat(1_000_000));
        assert_eq!(segments(&key), [Segment::Key(key.clone())]);
        let key = format!("a{}]", "[".repeat(1_000_000));
        assert_eq!(segments(&key).len(), 2);
    }

    #[test]
    fn an_index_beyond_every_list_is_the_name_of_a_field() {
        for index in ["18446744073709551615", "18446744073709551616", "4294967296"] {
            assert_eq!(
                decode_text(&format!("tags[{index}]=1&tags=2"))["tags"][index],
                "1"
            );
        }
        let last = decode_text("tags[4294967295]=1&tags=2");
        assert_eq!(last, serde_json::json!({"tags": ["1", "2"]}));
    }

    /// The time is linear in the number of arguments, for each form that keys can take.
    #[test]
    fn many_arguments_cost_as_much_as_there_are() {
        let keys: [fn(usize) -> String; 4] = [
            |number| format!("{}{number}=1", "k".repeat(200)),
            |number| format!("a[{number}]=1"),
            |number| format!("a.b{number}.c[{number}]=1"),
            |_| "a=1&a[]=2".to_owned(),
        ];
        testkit::cost::assert_linear(
            240,
            |size| keys.map(|key| (0..size).map(key).collect::<Vec<_>>().join("&")),
            |texts| {
                for text in texts {
                    decode_text(&text);
                }
            },
        );
    }

    #[test]
    fn a_long_key_costs_as_much_as_it_is_long() {
        testkit::cost::assert_linear(
            5000,
            |size| {
                ["[", "]", ".", "[a]", "%5b", "%5B]", ".[", "a."]
                    .map(|part| format!("a{}", part.repeat(size)))
            },
            |keys| keys.iter().for_each(|key| drop(segments(key))),
        );
    }

    #[test]
    fn invalid_escapes_are_kept() {
        assert_eq!(unescape("a%2"), "a%2");
        assert_eq!(unescape("%zz+%41"), "%zz A");
        assert_eq!(unescape("%+1"), "% 1");
        assert_eq!(unescape("%ff"), "\u{fffd}");
    }
}
