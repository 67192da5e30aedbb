//! What a program writes to a file, when it syncs the file, and what it sends, in the order of time. A killed process
//! keeps the page cache. So a test that kills does not show whether an answer was sent before its data was synced. From
//! the records, a test can build the file as it is after a power failure at any moment ([`Disk`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A library that records, and the file for its records.
#[derive(Debug)]
pub struct Recorder {
    library: PathBuf,
    records: PathBuf,
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A write to the file. It is on the disk when it returns if the file was opened so.
    Write {
        offset: u64,
        bytes: Vec<u8>,
        is_synced: bool,
    },
    SyncBegins,
    /// The sync that began last was successful.
    SyncEnds,
    /// Bytes that are about to be sent on any socket.
    Sent(Vec<u8>),
}

impl Recorder {
    /// Compiles the library. The records are written into the same directory.
    pub fn compile(directory: &Path) -> Self {
        let (source, library) = (directory.join("recorder.c"), directory.join("recorder.so"));
        fs::write(&source, include_str!("recorder.c")).expect("the directory can be written");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .arg("-ldl")
            .status();
        assert!(compiled.expect("there is a C compiler").success());
        Self {
            library,
            records: directory.join("records"),
        }
    }

    /// Returns the environment variables of a program whose writes to a file are recorded. The path of the file has no
    /// symbolic links.
    pub fn variables(&self, file: &Path) -> [(&'static str, String); 3] {
        let text = |path: &Path| path.to_str().expect("the path is UTF-8").to_owned();
        [
            ("LD_PRELOAD", text(&self.library)),
            ("RECORD_FILE", text(file)),
            ("RECORD_TO", text(&self.records)),
        ]
    }

    /// Reads all records. A last one that is incomplete, because the program was killed, is left out.
    pub fn records(&self) -> Vec<Record> {
        let bytes = fs::read(&self.records).expect("something was recorded");
        let mut rest = &bytes[..];
        let mut records = Vec::new();
        while let Some((head, after)) = rest.split_first_chunk::<13>() {
            let number = |range: std::ops::Range<usize>| {
                let bytes = head[range].iter().rev();
                bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
            };
            let Some((bytes, after)) = after.split_at_checked(number(9..13) as usize) else {
                break;
            };
            rest = after;
            records.push(match head[0] {
                kind @ (b'W' | b'D') => Record::Write {
                    offset: number(1..9),
                    bytes: bytes.to_vec(),
                    is_synced: kind == b'D',
                },
                b'B' => Record::SyncBegins,
                b'E' => Record::SyncEnds,
                b'A' => Record::Sent(bytes.to_vec()),
                kind => panic!("a record of kind {kind}"),
            });
        }
        records
    }
}

/// A disk with a volatile cache, to which records are applied.
#[derive(Debug, Default)]
pub struct Disk {
    /// The file as it is after a power failure, if the cache is lost as a whole.
    synced: Vec<u8>,
    /// Writes in the cache. The disk may have stored any of them.
    cached: Vec<(u64, Vec<u8>)>,
    /// How many of them a sync that has begun covers.
    covered: usize,
}

impl Disk {
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Write {
                offset,
                bytes,
                is_synced: true,
            } => put(&mut self.synced, *offset, bytes),
            Record::Write { offset, bytes, .. } => self.cached.push((*offset, bytes.clone())),
            Record::SyncBegins => self.covered = self.cached.len(),
            Record::SyncEnds => {
                for (offset, bytes) in self.cached.drain(..self.covered) {
                    put(&mut self.synced, offset, &bytes);
                }
                self.covered = 0;
            }
            Record::Sent(_) => {}
        }
    }

    /// Returns the file after a power failure. `is_stored` says which of the cached writes the disk has stored.
    pub fn after_failure(&self, mut is_stored: impl FnMut() -> bool) -> Vec<u8> {
        let mut file = self.synced.clone();
        for (offset, bytes) in self.cached.iter().filter(|_| is_stored()) {
            put(&mut file, *offset, bytes);
        }
        file
    }
}

fn put(file: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let start = offset as usize;
    let end = start + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[start..end].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_in_the_order_of_time() {
        let directory = tempfile::tempdir().expect("a directory");
        let directory = directory.path().canonicalize().expect("a path");
        let recorder = Recorder::compile(&directory);
        let file = directory.join("data");
        let mut command = Command::new("dd");
        let to = format!("of={}", file.display());
        command.args(["if=/dev/stdin", &to, "bs=4", "seek=2", "conv=fsync"]);
        command.envs(recorder.variables(&file));
        command.stdin(std::process::Stdio::piped());
        let mut child = command.spawn().expect("dd runs");
        let mut input = child.stdin.take().expect("a pipe");
        std::io::Write::write_all(&mut input, b"abcd").expect("dd reads");
        drop(input);
        assert!(child.wait().expect("a child").success());
        let records = recorder.records();
        let write = Record::Write {
            offset: 8,
            bytes: b"abcd".to_vec(),
            is_synced: false,
        };
        assert_eq!(records, [write, Record::SyncBegins, Record::SyncEnds]);
        let mut disk = Disk::default();
        disk.apply(&records[0]);
        assert_eq!(disk.after_failure(|| false), b"");
        assert_eq!(disk.after_failure(|| true), b"\0\0\0\0\0\0\0\0abcd");
        disk.apply(&records[1]);
        disk.apply(&records[2]);
        assert_eq!(disk.after_failure(|| false), b"\0\0\0\0\0\0\0\0abcd");
    }
}
