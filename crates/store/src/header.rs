//! The header record of the file: format, revision, and the sums of the tables. Every commit writes it.

use crate::checksum::{Sum, bytes_hash};
use crate::error::Damage;
use crate::rules::KINDS;
use model::EntityKind;

pub(crate) const FORMAT: u32 = 3;
/// The oldest format that this program reads and writes. In format 2 the table `unique` has only ids.
const OLDEST_FORMAT: u32 = 2;
pub(crate) const HEADER_KEY: &[u8] = b"silverback";

const MAGIC: [u8; 8] = *b"SLVRBACK";
/// Byte offset of `revision`. Views read only this field.
const REVISION_AT: usize = 16;

/// The tables with a sum, in the order of [`Header::sums`].
pub(crate) const SUMMED_TABLES: [&str; 8] = [
    "entities",
    "unique",
    "children",
    "tags",
    "kind_tags",
    "meta",
    "journal",
    "touched",
];

/// Positions of the tables `meta`, `journal` and `touched` in [`SUMMED_TABLES`].
pub(crate) const META: usize = 5;
pub(crate) const JOURNAL: usize = 6;
pub(crate) const TOUCHED: usize = 7;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    /// An older format stays as it is until the store is opened by a process alone, because another process of an older
    /// version may have the store open.
    pub(crate) format: u32,
    pub(crate) revision: u64,
    /// The transaction that wrote this record. If it is not the file's newest transaction, a meta page is damaged.
    pub(crate) transaction: u64,
    /// The oldest revision whose state can be read. All records after it are kept.
    pub(crate) floor: u64,
    /// The newest revision whose record is completely removed. The records between it and the floor are being removed.
    pub(crate) swept: u64,
    /// Total size of all records in bytes, including keys.
    pub(crate) history_bytes: u64,
    pub(crate) sums: [Sum; SUMMED_TABLES.len()],
    /// Number of entities per type, indexed by the type's number.
    pub(crate) counts: [u64; KINDS],
}

impl Default for Header {
    fn default() -> Self {
        Self {
            format: FORMAT,
            revision: 0,
            transaction: 0,
            floor: 0,
            swept: 0,
            history_bytes: 0,
            sums: [Sum::default(); SUMMED_TABLES.len()],
            counts: [0; KINDS],
        }
    }
}

impl Header {
    pub(crate) fn count(&self, kind: EntityKind) -> u64 {
        self.counts[kind.index()]
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1024);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&u64::from(self.format).to_le_bytes());
        for number in self.numbers() {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let check = bytes_hash(0, &bytes);
        bytes.extend_from_slice(&check.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let content = bytes.strip_prefix(&MAGIC).ok_or(Damage::OtherProgram)?;
        let mut numbers = content
            .chunks_exact(8)
            .map(|chunk| u64::from_le_bytes(chunk.try_into().expect("chunks of eight")));
        let format = numbers.next().ok_or(Damage::Header)?;
        let format = u32::try_from(format).unwrap_or(u32::MAX);
        if !(OLDEST_FORMAT..=FORMAT).contains(&format) {
            return Err(Damage::Format {
                found: format,
                expected: FORMAT,
            });
        }
        let (covered, check) = bytes
            .split_at_checked(bytes.len() - 8)
            .ok_or(Damage::Header)?;
        let mut header = Header {
            format,
            ..Header::default()
        };
        if bytes.len() != header.encode().len() || check != bytes_hash(0, covered).to_le_bytes() {
            return Err(Damage::Header);
        }
        for (slot, number) in header.slots().zip(numbers) {
            *slot = number;
        }
        Ok(header)
    }

    /// Reads only the revision of a record that [`Header::decode`] accepted when the store was opened.
    pub(crate) fn peek_revision(bytes: &[u8]) -> Result<u64, Damage> {
        let field = bytes.get(REVISION_AT..REVISION_AT + 8);
        let field = field.ok_or(Damage::Header)?;
        Ok(u64::from_le_bytes(
            field.try_into().map_err(|_| Damage::Header)?,
        ))
    }

    fn numbers(&self) -> Vec<u64> {
        self.clone().slots().map(|slot| *slot).collect()
    }

    /// All numbers in the order in which they are written, `revision` first.
    fn slots(&mut self) -> impl Iterator<Item = &mut u64> {
        [
            &mut self.revision,
            &mut self.transaction,
            &mut self.floor,
            &mut self.swept,
            &mut self.history_bytes,
        ]
        .into_iter()
        .chain(
            self.sums
                .iter_mut()
                .flat_map(|sum| [&mut sum.entries, &mut sum.hash]),
        )
        .chain(self.counts.iter_mut())
    }
}
