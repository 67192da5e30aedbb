//! What Lua code of users adds to a trace (`kong.tracing`): spans of its own, and additions to the root span.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// Maximum number of spans of a request, of attributes of its root, and of events of its root.
const MAX: usize = 128;
/// Maximum size of the JSON of all additions of a request. The worker reads and writes them while other requests wait.
const MAX_BYTES: usize = 256 * 1024;

/// The additions of a request.
#[derive(Debug, Clone, Default)]
pub struct Custom {
    spans: Vec<CustomSpan>,
    root: Additions,
    /// Size of the JSON so far.
    bytes: usize,
}

/// Whether an addition is within the limit of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    Fits,
    /// It is the first that is not.
    Exceeds,
    Exceeded,
}

/// A finished span.
#[derive(Debug, Clone, Deserialize)]
pub struct CustomSpan {
    #[serde(deserialize_with = "hex")]
    pub id: u64,
    /// The span above it. Without one, it is the root.
    #[serde(default, deserialize_with = "some_hex")]
    pub parent: Option<u64>,
    pub name: String,
    /// The number of OTLP: 1 is internal, 2 server, 3 client, 4 producer, 5 consumer.
    pub kind: i32,
    /// Nanoseconds since 1970.
    #[serde(deserialize_with = "decimal")]
    pub start: u64,
    #[serde(deserialize_with = "decimal")]
    pub end: u64,
    #[serde(flatten)]
    pub more: Additions,
}

/// What a span has besides its name and its times.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Additions {
    pub attributes: BTreeMap<String, Value>,
    pub events: Vec<Event>,
    /// The number of OTLP: 1 is a success, 2 an error.
    pub status: Option<i32>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Event {
    pub name: String,
    #[serde(deserialize_with = "decimal")]
    pub time: u64,
    #[serde(default)]
    pub attributes: BTreeMap<String, Value>,
}

impl Custom {
    pub fn spans(&self) -> &[CustomSpan] {
        &self.spans
    }

    /// The additions to the root span.
    pub fn root(&self) -> &Additions {
        &self.root
    }

    pub(super) fn count(&mut self, bytes: usize) -> Counted {
        let before = self.bytes;
        self.bytes = before.saturating_add(bytes);
        if self.bytes <= MAX_BYTES {
            Counted::Fits
        } else if before <= MAX_BYTES {
            Counted::Exceeds
        } else {
            Counted::Exceeded
        }
    }

    pub(super) fn add(&mut self, span: CustomSpan) {
        if self.spans.len() < MAX {
            self.spans.push(span);
        }
    }

    pub(super) fn add_to_root(&mut self, more: Additions) {
        let root = &mut self.root;
        for (key, value) in more.attributes {
            if root.attributes.len() < MAX || root.attributes.contains_key(&key) {
                root.attributes.insert(key, value);
            }
        }
        let room = MAX.saturating_sub(root.events.len());
        root.events.extend(more.events.into_iter().take(room));
        root.status = more.status.or(root.status);
    }
}

fn hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let digits = String::deserialize(deserializer)?;
    u64::from_str_radix(&digits, 16).map_err(D::Error::custom)
}

fn some_hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    hex(deserializer).map(Some)
}

/// Reads a number that is a text, because it has more digits than numbers of Lua.
fn decimal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let digits = String::deserialize(deserializer)?;
    digits.parse().map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn span(json: Value) -> Result<CustomSpan, serde_json::Error> {
        serde_json::from_value(json)
    }

    #[test]
    fn spans_are_read_with_and_without_additions() {
        let bare = json!({"id": "00f067aa0ba902b7", "name": "a", "kind": 1, "start": "1700000000000000001", "end": "1700000000000000002"});
        let read = span(bare.clone()).unwrap();
        assert_eq!((read.id, read.parent), (0x00f0_67aa_0ba9_02b7, None));
        assert_eq!(read.end - read.start, 1);
        let mut full = bare.clone();
        full["parent"] = json!("b");
        full["status"] = json!(2);
        full["attributes"] = json!({"x": [1, "y"]});
        full["events"] = json!([{"name": "e", "time": "3"}]);
        let read = span(full).unwrap();
        assert_eq!((read.parent, read.more.status), (Some(11), Some(2)));
        assert_eq!(read.more.attributes["x"], json!([1, "y"]));
        assert_eq!(read.more.events[0].time, 3);
        let mut wrong = bare;
        wrong["id"] = json!("no");
        span(wrong).unwrap_err();
    }

    #[test]
    fn what_exceeds_the_size_is_reported_once() {
        let mut custom = Custom::default();
        let counted = [MAX_BYTES, 1, 1, usize::MAX].map(|bytes| custom.count(bytes));
        use Counted::{Exceeded, Exceeds, Fits};
        assert_eq!(counted, [Fits, Exceeds, Exceeded, Exceeded]);
    }

    #[test]
    fn additions_are_bounded_and_the_last_value_counts() {
        let mut custom = Custom::default();
        let more = |key: String, value: usize| Additions {
            attributes: [(key, json!(value))].into(),
            events: vec![Event {
                name: "e".into(),
                time: 1,
                attributes: BTreeMap::new(),
            }],
            status: None,
        };
        for number in 0..2 * MAX {
            custom.add_to_root(more(format!("{number:03}"), 1));
        }
        custom.add_to_root(more("000".into(), 2));
        let root = custom.root();
        assert_eq!((root.attributes.len(), root.events.len()), (MAX, MAX));
        assert_eq!(root.attributes["000"], json!(2));
    }
}
