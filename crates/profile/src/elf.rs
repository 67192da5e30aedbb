//! Files of programs and libraries, as they are mapped into this process.

use crate::memory_map::{Mapping, VDSO};
use object::elf::PF_X;
use object::read::ReadCache;
use object::{Object, ObjectSection, ObjectSegment, SegmentFlags};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A program or library in memory.
#[derive(Debug, Clone)]
pub(crate) struct Module {
    pub(crate) mapping: Mapping,
    /// What the loader has added to the addresses in the file.
    pub(crate) bias: u64,
    pub(crate) source: Source,
}

/// Where to read a module.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    File(PathBuf),
    /// A copy, for code of the kernel that has no file.
    Memory(Arc<[u8]>),
}

impl Module {
    /// Returns `None` for code that is not in a file which can be read.
    pub(crate) fn of(mapping: &Mapping) -> Option<Self> {
        let source = if mapping.path == VDSO {
            Source::Memory(copy(mapping))
        } else if is_program(mapping) {
            // Also right after the file was replaced, as an upgrade does.
            Source::File(PathBuf::from("/proc/self/exe"))
        } else if mapping.is_current() {
            Source::File(PathBuf::from(&mapping.path))
        } else {
            return None;
        };
        let bias = source.read(|file| bias(file, mapping)).flatten()?;
        Some(Self {
            mapping: mapping.clone(),
            bias,
            source,
        })
    }
}

impl Source {
    /// Calls `act` with the parsed file. Only the parts that are looked at are read from disk.
    pub(crate) fn read<T>(&self, act: impl FnOnce(&dyn ElfFile) -> T) -> Option<T> {
        match self {
            Self::File(path) => read_file(path, act),
            Self::Memory(bytes) => {
                let file = object::File::parse(&**bytes).ok()?;
                Some(act(&Parsed(file)))
            }
        }
    }
}

/// Parses a file and calls `act` with it.
pub(crate) fn read_file<T>(path: &Path, act: impl FnOnce(&dyn ElfFile) -> T) -> Option<T> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    Some(act(&Parsed(file)))
}

/// A parsed file, whatever it is read from.
pub(crate) trait ElfFile {
    /// The address and the data of a section.
    fn section(&self, name: &str) -> Option<(u64, Vec<u8>)>;
    /// Part of the file and address of each segment with code.
    fn segments(&self) -> Vec<(Range<u64>, u64)>;
    /// Calls `each` with address, size and name of every symbol of code.
    fn symbols(&self, each: &mut dyn FnMut(u64, u64, &str));
    fn build_id(&self) -> Option<Vec<u8>>;
    /// Name of the file with debug information.
    fn debug_file(&self) -> Option<String>;
}

struct Parsed<'d, R: object::ReadRef<'d>>(object::File<'d, R>);

impl<'d, R: object::ReadRef<'d>> ElfFile for Parsed<'d, R> {
    fn section(&self, name: &str) -> Option<(u64, Vec<u8>)> {
        let section = self.0.section_by_name(name)?;
        Some((section.address(), section.data().ok()?.to_vec()))
    }

    fn segments(&self) -> Vec<(Range<u64>, u64)> {
        let segments = self.0.segments().filter_map(|segment| {
            let (offset, size) = segment.file_range();
            let has_code =
                matches!(segment.flags(), SegmentFlags::Elf { p_flags } if p_flags & PF_X != 0);
            has_code.then(|| (offset..offset.saturating_add(size), segment.address()))
        });
        segments.collect()
    }

    fn symbols(&self, each: &mut dyn FnMut(u64, u64, &str)) {
        use object::{ObjectSymbol, SymbolKind};
        for symbol in self.0.symbols().chain(self.0.dynamic_symbols()) {
            // Functions written in assembly are labels in some libraries.
            let is_code = matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Label);
            if is_code
                && symbol.is_definition()
                && let Ok(name) = symbol.name()
            {
                each(symbol.address(), symbol.size(), name);
            }
        }
    }

    fn build_id(&self) -> Option<Vec<u8>> {
        Some(self.0.build_id().ok()??.to_vec())
    }

    fn debug_file(&self) -> Option<String> {
        let (name, _) = self.0.gnu_debuglink().ok()??;
        Some(String::from_utf8_lossy(name).into_owned())
    }
}

/// What the loader has added to the addresses in the file. The segment tells it that has this part of the file.
fn bias(file: &dyn ElfFile, mapping: &Mapping) -> Option<u64> {
    let size = mapping.addresses.end - mapping.addresses.start;
    let part = mapping.offset..mapping.offset.saturating_add(size);
    let overlaps = |range: &Range<u64>| range.start < part.end && part.start < range.end;
    let segments = file.segments();
    let (range, address) = segments.into_iter().find(|(range, _)| overlaps(range))?;
    let start = mapping.addresses.start.wrapping_add(range.start);
    Some(start.wrapping_sub(mapping.offset).wrapping_sub(address))
}

fn is_program(mapping: &Mapping) -> bool {
    let program = std::fs::read_link("/proc/self/exe");
    program.is_ok_and(|path| path.as_os_str() == mapping.path.as_str())
}

#[expect(unsafe_code, reason = "the kernel's code in this process has no file")]
fn copy(mapping: &Mapping) -> Arc<[u8]> {
    let length = (mapping.addresses.end - mapping.addresses.start) as usize;
    let start = std::ptr::with_exposed_provenance(mapping.addresses.start as usize);
    // SAFETY: the kernel maps this memory readable and unchanged for as long as the process lives.
    unsafe { std::slice::from_raw_parts(start, length) }.into()
}
