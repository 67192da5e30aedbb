//! The format of pprof: a protobuf message, compressed by gzip. <https://github.com/google/pprof/blob/main/proto/profile.proto>

use crate::{Error, Frame, Function, Profile, Stack};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use prost::Message;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Largest message that is read.
const MAX_MESSAGE: u64 = 256 << 20;

/// Name of the label with the thread of a sample.
const THREAD: &str = "thread";

#[derive(Clone, PartialEq, Message)]
struct Document {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Named>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, repeated, tag = "13")]
    comment: Vec<i64>,
}

/// What a value counts. Texts are positions in the table of strings, here and below.
#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Named {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// The table of strings. The first one is empty, as the format demands.
struct Strings {
    all: Vec<String>,
    positions: HashMap<String, i64>,
}

impl Strings {
    fn new() -> Self {
        let mut strings = Self {
            all: Vec::new(),
            positions: HashMap::new(),
        };
        strings.add("");
        strings
    }

    fn add(&mut self, text: &str) -> i64 {
        if let Some(position) = self.positions.get(text) {
            return *position;
        }
        let position = self.all.len() as i64;
        self.all.push(text.to_owned());
        self.positions.insert(text.to_owned(), position);
        position
    }
}

pub(crate) fn encode(profile: &Profile) -> Vec<u8> {
    let message = document(profile).encode_to_vec();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder
        .write_all(&message)
        .expect("writing to memory does not fail");
    encoder.finish().expect("writing to memory does not fail")
}

fn document(profile: &Profile) -> Document {
    let mut strings = Strings::new();
    let cpu = ValueType {
        kind: strings.add("cpu"),
        unit: strings.add("nanoseconds"),
    };
    let samples = ValueType {
        kind: strings.add("samples"),
        unit: strings.add("count"),
    };
    let thread = strings.add(THREAD);
    let since_1970 = profile
        .started
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut document = Document {
        sample_type: vec![samples, cpu.clone()],
        time_nanos: nanoseconds(since_1970),
        duration_nanos: nanoseconds(profile.duration),
        period_type: Some(cpu),
        period: profile.period as i64,
        comment: profile.notes.iter().map(|note| strings.add(note)).collect(),
        ..Document::default()
    };
    let mut mappings: HashMap<&str, u64> = HashMap::new();
    for (at, function) in profile.functions.iter().enumerate() {
        let name = strings.add(&function.name);
        document.function.push(Named {
            id: at as u64 + 1,
            name,
            system_name: name,
            filename: strings.add(&function.file),
        });
        let next = mappings.len() as u64 + 1;
        mappings.entry(&function.module).or_insert_with(|| {
            document.mapping.push(Mapping {
                id: next,
                filename: strings.add(&function.module),
                has_functions: true,
            });
            next
        });
    }
    // A location for each function and line.
    let mut locations: HashMap<(usize, u32), u64> = HashMap::new();
    for stack in &profile.stacks {
        let ids = stack.frames.iter().map(|frame| {
            let next = locations.len() as u64 + 1;
            *locations
                .entry((frame.function, frame.line))
                .or_insert_with(|| {
                    let module = &*profile.functions[frame.function].module;
                    document.location.push(Location {
                        id: next,
                        mapping_id: mappings[module],
                        line: vec![Line {
                            function_id: frame.function as u64 + 1,
                            line: frame.line.into(),
                        }],
                    });
                    next
                })
        });
        let sample = Sample {
            location_id: ids.collect(),
            value: vec![
                stack.samples as i64,
                (stack.samples * profile.period) as i64,
            ],
            label: vec![Label {
                key: thread,
                text: strings.add(&stack.thread),
            }],
        };
        document.sample.push(sample);
    }
    document.string_table = strings.all;
    document
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Profile, Error> {
    let malformed = |why: &dyn std::fmt::Display| Error::Malformed(why.to_string());
    let mut message = Vec::new();
    let mut decoder = GzDecoder::new(bytes).take(MAX_MESSAGE);
    decoder
        .read_to_end(&mut message)
        .map_err(|error| malformed(&error))?;
    let document = Document::decode(&*message).map_err(|error| malformed(&error))?;
    read(&document).ok_or_else(|| malformed(&"it refers to what is not there"))
}

/// Returns `None` if a reference leads nowhere.
fn read(document: &Document) -> Option<Profile> {
    let text = |position: i64| {
        document
            .string_table
            .get(usize::try_from(position).ok()?)
            .cloned()
    };
    let modules: HashMap<u64, i64> = (document.mapping.iter())
        .map(|one| (one.id, one.filename))
        .collect();
    let mut functions = Vec::new();
    let mut indexes: HashMap<u64, usize> = HashMap::new();
    for named in &document.function {
        indexes.insert(named.id, functions.len());
        functions.push(Function {
            name: text(named.name)?,
            file: text(named.filename)?,
            module: String::new(),
        });
    }
    let mut locations: HashMap<u64, Vec<Frame>> = HashMap::new();
    for location in &document.location {
        let mut frames = Vec::new();
        for line in &location.line {
            let function = *indexes.get(&line.function_id)?;
            if let Some(module) = modules.get(&location.mapping_id) {
                functions[function].module = text(*module)?;
            }
            frames.push(Frame {
                function,
                line: u32::try_from(line.line).ok()?,
            });
        }
        locations.insert(location.id, frames);
    }
    let mut stacks = Vec::new();
    for sample in &document.sample {
        let mut frames = Vec::new();
        for id in &sample.location_id {
            frames.extend(locations.get(id)?);
        }
        let thread = (sample.label.iter())
            .find(|label| text(label.key).is_some_and(|key| key == THREAD))
            .and_then(|label| text(label.text));
        stacks.push(Stack {
            thread: thread.unwrap_or_default(),
            samples: u64::try_from(*sample.value.first()?).ok()?,
            frames,
        });
    }
    let nanoseconds = |number: i64| Duration::from_nanos(u64::try_from(number).unwrap_or(0));
    Some(Profile {
        started: SystemTime::UNIX_EPOCH + nanoseconds(document.time_nanos),
        duration: nanoseconds(document.duration_nanos),
        period: u64::try_from(document.period).ok()?,
        stacks,
        functions,
        notes: (document.comment.iter())
            .map(|note| text(*note))
            .collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let profile = crate::flame::tests::example();
        assert_eq!(decode(&encode(&profile)).expect("a profile"), profile);
    }

    #[test]
    fn bytes_that_are_no_profile_are_refused() {
        let mut cut = encode(&crate::flame::tests::example());
        cut.truncate(cut.len() / 2);
        let mut dangling = document(&crate::flame::tests::example());
        dangling.string_table.truncate(3);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder
            .write_all(&dangling.encode_to_vec())
            .expect("memory");
        for bytes in [
            &b""[..],
            b"nonsense",
            &cut,
            &encoder.finish().expect("memory"),
        ] {
            assert!(matches!(decode(bytes), Err(Error::Malformed(_))));
        }
    }
}
