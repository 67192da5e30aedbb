//! Parser for LMDB's data file: data version 1 on 64-bit machines (mdb.c: `MDB_page`, `MDB_node`, `MDB_db`,
//! `MDB_meta`), with numbers in the machine's byte order. It checks bounds, but not whether the pages are consistent
//! with each other.

use super::ScanError;
use crate::error::Damage;
use std::fs::File;
use std::os::unix::fs::FileExt;

pub(super) const MAGIC: u32 = 0xBEEF_C0DE;
pub(super) const DATA_VERSION: u32 = 1;

pub(super) const PAGE_HEADER: usize = 16;
pub(super) const NODE_HEADER: usize = 8;
pub(super) const META_LENGTH: usize = 136;
pub(super) const TREE_LENGTH: usize = 48;
pub(super) const MAX_KEY: usize = 511;
/// LMDB's own limit (`CURSOR_STACK`).
pub(super) const MAX_DEPTH: u16 = 32;
/// Upper bound of the number of pages. With the smallest page size this allows files of 16 TiB.
pub(super) const MAX_PAGES: u64 = 1 << 32;

pub(super) const BRANCH: u16 = 0x01;
pub(super) const LEAF: u16 = 0x02;
pub(super) const OVERFLOW: u16 = 0x04;
pub(super) const META: u16 = 0x08;

pub(super) const BIG_DATA: u16 = 0x01;
pub(super) const SUB_TREE: u16 = 0x02;

pub(super) const INTEGER_KEY: u16 = 0x08;
pub(super) const NO_PAGE: u64 = u64::MAX;

/// One of the two root records of a file. Transactions write the two alternately.
#[derive(Debug)]
pub(super) struct Meta {
    pub(super) page_size: usize,
    pub(super) free: Tree,
    pub(super) main: Tree,
    pub(super) last_page: u64,
    pub(super) transaction: u64,
}

/// `MDB_db`: the root of a tree and its statistics.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tree {
    pub(super) pad: u32,
    pub(super) flags: u16,
    pub(super) depth: u16,
    pub(super) branch_pages: u64,
    pub(super) leaf_pages: u64,
    pub(super) overflow_pages: u64,
    pub(super) entries: u64,
    pub(super) root: u64,
}

impl Tree {
    pub(super) fn parse(bytes: &[u8]) -> Self {
        Self {
            pad: u32_at(bytes, 0),
            flags: u16_at(bytes, 4),
            depth: u16_at(bytes, 6),
            branch_pages: u64_at(bytes, 8),
            leaf_pages: u64_at(bytes, 16),
            overflow_pages: u64_at(bytes, 24),
            entries: u64_at(bytes, 32),
            root: u64_at(bytes, 40),
        }
    }
}

/// Reads both meta pages; returns the older one first.
pub(super) fn metas(file: &File, length: u64) -> Result<[Meta; 2], ScanError> {
    let first = read_meta(file, length, 0, 0)?;
    let second = read_meta(file, length, 1, first.page_size as u64)?;
    let consistent = if first.transaction == 0 && second.transaction == 0 {
        true
    } else {
        // Transaction N writes page N % 2. A wrong number could make LMDB choose an old state as the newest.
        first.transaction % 2 == 0
            && second.transaction % 2 == 1
            && first.transaction.abs_diff(second.transaction) == 1
    };
    if !consistent || first.page_size != second.page_size {
        return Err(page_damage(0, "meta pages disagree").into());
    }
    Ok(if second.transaction > first.transaction {
        [first, second]
    } else {
        [second, first]
    })
}

pub(super) fn read_meta(
    file: &File,
    length: u64,
    page: u64,
    offset: u64,
) -> Result<Meta, ScanError> {
    let mut bytes = [0; PAGE_HEADER + META_LENGTH];
    if length < offset + bytes.len() as u64 {
        return Err(match page {
            0 if length > 0 => Damage::NotLmdb,
            _ => Damage::Truncated { length, page },
        }
        .into());
    }
    file.read_exact_at(&mut bytes, offset)
        .map_err(ScanError::Io)?;
    let (header, meta) = bytes.split_at(PAGE_HEADER);
    if u32_at(meta, 0) != MAGIC {
        return Err(match page {
            0 => Damage::NotLmdb,
            _ => page_damage(page, "no meta page"),
        }
        .into());
    }
    let version = u32_at(meta, 4);
    if version != DATA_VERSION {
        return Err(Damage::LmdbFormat {
            found: version,
            expected: DATA_VERSION,
        }
        .into());
    }
    let free = Tree::parse(&meta[24..24 + TREE_LENGTH]);
    let parsed = Meta {
        page_size: free.pad as usize,
        free,
        main: Tree::parse(&meta[72..72 + TREE_LENGTH]),
        last_page: u64_at(meta, 120),
        transaction: u64_at(meta, 128),
    };
    check_meta(page, header, &parsed)?;
    Ok(parsed)
}

pub(super) fn check_meta(page: u64, header: &[u8], meta: &Meta) -> Result<(), Damage> {
    let sound = u64_at(header, 0) == page
        && u16_at(header, 10) == META
        && matches!(meta.page_size, 4096 | 8192 | 16384 | 32768)
        && meta.free.flags == INTEGER_KEY
        && meta.main.flags == 0
        && (1..MAX_PAGES).contains(&meta.last_page)
        && meta.transaction < u64::MAX / 2;
    if sound {
        Ok(())
    } else {
        Err(page_damage(page, "meta page"))
    }
}

/// The nodes of a branch or leaf page.
pub(super) struct Nodes<'p> {
    pub(super) page: u64,
    pub(super) bytes: &'p [u8],
    pub(super) flags: u16,
    pub(super) count: usize,
    pub(super) upper: usize,
}

pub(super) struct Node<'p> {
    /// Length of the value; in a branch, the low half of the page number.
    pub(super) low: u32,
    pub(super) flags: u16,
    pub(super) key: &'p [u8],
    /// Offset of the value.
    pub(super) end: usize,
}

impl<'p> Nodes<'p> {
    pub(super) fn parse(page: u64, bytes: &'p [u8]) -> Result<Self, Damage> {
        let (lower, upper) = (
            usize::from(u16_at(bytes, 12)),
            usize::from(u16_at(bytes, 14)),
        );
        let sound = u64_at(bytes, 0) == page
            && lower > PAGE_HEADER
            && lower.is_multiple_of(2)
            && lower <= upper
            && upper <= bytes.len();
        if !sound {
            return Err(page_damage(page, "page header"));
        }
        Ok(Self {
            page,
            bytes,
            flags: u16_at(bytes, 10),
            count: (lower - PAGE_HEADER) / 2,
            upper,
        })
    }

    pub(super) fn node(&self, index: usize) -> Result<Node<'p>, Damage> {
        let outside = page_damage(self.page, "offset of a node");
        let start = usize::from(u16_at(self.bytes, PAGE_HEADER + 2 * index));
        let key = start + NODE_HEADER;
        if start < self.upper || !start.is_multiple_of(2) || key > self.bytes.len() {
            return Err(outside);
        }
        let header = &self.bytes[start..key];
        let end = key + usize::from(u16_at(header, 6));
        Ok(Node {
            low: low_word(header),
            flags: u16_at(header, 4),
            key: self.bytes.get(key..end).ok_or(outside)?,
            end,
        })
    }
}

impl<'p> Node<'p> {
    pub(super) fn child(&self) -> u64 {
        u64::from(self.low) | u64::from(self.flags) << 32
    }

    pub(super) fn value(&self, nodes: &Nodes<'p>) -> Result<&'p [u8], Damage> {
        let value = nodes.bytes.get(self.end..self.end + self.low as usize);
        value.ok_or_else(|| page_damage(nodes.page, "length of a value"))
    }

    pub(super) fn overflow_page(&self, nodes: &Nodes<'p>) -> Result<u64, Damage> {
        let bytes = nodes.bytes.get(self.end..self.end + 8);
        let bytes = bytes.ok_or_else(|| page_damage(nodes.page, "length of a value"))?;
        Ok(u64_at(bytes, 0))
    }
}

/// Reads `mn_lo` and `mn_hi` of a node as one number. LMDB stores the two in the machine's byte order.
pub(super) fn low_word(header: &[u8]) -> u32 {
    u32_at(header, 0)
}

pub(super) fn page_damage(page: u64, what: &'static str) -> Damage {
    Damage::Page { page, what }
}

// The callers guarantee that the slices are long enough: the offsets are constants in fixed headers, or were checked.

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
