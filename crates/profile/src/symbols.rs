//! From addresses to names of functions.
//!
//! The symbol table of the program has every function that was not inlined. Where there is debug information, in the
//! program or in a file beside it, inlined functions and lines are known too.

use crate::Frame;
use crate::elf::{self, ElfFile, Module, Source};
use addr2line::{Context, LookupContinuation, LookupResult};
use gimli::{EndianArcSlice, NativeEndian};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest section of debug information that is read. A larger one would cost the gateway too much memory.
const MAX_SECTION: usize = 1 << 30;

/// Most inlined functions at one address.
const MAX_INLINED: usize = 64;

/// Where distributions keep debug information, by build id.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Function {
    pub name: String,
    /// Path of the source file, or nothing if unknown.
    pub file: String,
    /// Name of the program or library.
    pub module: String,
}

impl Function {
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            file: String::new(),
            module: String::new(),
        }
    }
}

type Reader = EndianArcSlice<NativeEndian>;

/// Names of the functions at addresses. Each address is looked up once.
pub(crate) struct Symbols<'m> {
    modules: &'m [Module],
    /// By position in `modules`, once one of its addresses was looked up.
    tables: HashMap<usize, Table>,
    known: HashMap<u64, Vec<Frame>>,
    functions: Vec<Function>,
    indexes: HashMap<Function, usize>,
}

impl<'m> Symbols<'m> {
    pub(crate) fn new(modules: &'m [Module]) -> Self {
        Self {
            modules,
            tables: HashMap::new(),
            known: HashMap::new(),
            functions: Vec::new(),
            indexes: HashMap::new(),
        }
    }

    /// The functions at an address: inlined ones first, then the one that contains them.
    pub(crate) fn frames(&mut self, address: u64) -> Vec<Frame> {
        if let Some(frames) = self.known.get(&address) {
            return frames.clone();
        }
        let frames: Vec<Frame> = self
            .look_up(address)
            .into_iter()
            .map(|(function, line)| Frame {
                function: self.index(function),
                line,
            })
            .collect();
        self.known.insert(address, frames.clone());
        frames
    }

    pub(crate) fn into_functions(self) -> Vec<Function> {
        self.functions
    }

    fn look_up(&mut self, address: u64) -> Vec<(Function, u32)> {
        let contains = |module: &Module| module.mapping.addresses.contains(&address);
        let Some(at) = self.modules.iter().position(contains) else {
            return vec![(Function::named("[code made at run time]"), 0)];
        };
        let module = &self.modules[at];
        let table = (self.tables.entry(at)).or_insert_with(|| Table::read(&module.source));
        let name = module.mapping.path.rsplit('/').next().unwrap_or_default();
        table.look_up(address.wrapping_sub(module.bias), name)
    }

    fn index(&mut self, function: Function) -> usize {
        if let Some(index) = self.indexes.get(&function) {
            return *index;
        }
        let index = self.functions.len();
        self.functions.push(function.clone());
        self.indexes.insert(function, index);
        index
    }
}

/// The functions of a module.
struct Table {
    /// Address, size (0 if unknown) and range of the name in `names`, sorted by address.
    symbols: Vec<(u64, u64, std::ops::Range<u32>)>,
    names: String,
    debug: Option<Context<Reader>>,
}

impl Table {
    fn read(source: &Source) -> Self {
        let read = source.read(|file| {
            let mut table = Self {
                symbols: Vec::new(),
                names: String::new(),
                debug: debug_information(file),
            };
            table.add_symbols(file);
            if table.debug.is_none()
                && let Some(path) = debug_file(source, file)
            {
                elf::read_file(&path, |apart| {
                    if apart.build_id() == file.build_id() {
                        table.debug = debug_information(apart);
                        // A program without symbols may have them there.
                        table.add_symbols(apart);
                    }
                });
            }
            table
                .symbols
                .sort_by_key(|(address, size, _)| (*address, *size));
            table
        });
        read.unwrap_or(Self {
            symbols: Vec::new(),
            names: String::new(),
            debug: None,
        })
    }

    fn add_symbols(&mut self, file: &dyn ElfFile) {
        file.symbols(&mut |address, size, name| {
            let start = self.names.len();
            self.names.push_str(name);
            let range =
                u32::try_from(start).and_then(|start| Ok(start..self.names.len().try_into()?));
            // A table of more than 4 GiB of names is no table of symbols.
            if let Ok(range) = range {
                self.symbols.push((address, size, range));
            }
        });
    }

    fn look_up(&self, address: u64, module: &str) -> Vec<(Function, u32)> {
        let function = |name: String, file: &str| Function {
            name,
            file: file.to_owned(),
            module: module.to_owned(),
        };
        let mut found = Vec::new();
        let symbol = self.symbol(address).map(demangled);
        let mut inlined = self.inlined(address);
        let outermost = inlined.pop();
        for (name, file, line) in inlined {
            found.push((function(demangled(&name), &file), line));
        }
        // Debug information of lines has no paths of functions, so the name of the symbol says more.
        let (name, file, line) = outermost.unwrap_or_default();
        let name = match symbol {
            Some(symbol) => symbol,
            None if name.is_empty() => format!("[{module}]"),
            None => demangled(&name),
        };
        found.push((function(name, &file), line));
        found
    }

    /// Functions at an address, by the debug information: linkage name, file and line.
    fn inlined(&self, address: u64) -> Vec<(String, String, u32)> {
        let mut found = Vec::new();
        let Some(debug) = &self.debug else {
            return found;
        };
        let mut lookup = debug.find_frames(address);
        let frames = loop {
            match lookup {
                LookupResult::Output(frames) => break frames,
                // Debug information of other files is not loaded.
                LookupResult::Load { continuation, .. } => lookup = continuation.resume(None),
            }
        };
        let Ok(mut frames) = frames else {
            return found;
        };
        while let Ok(Some(frame)) = frames.next() {
            let name = frame
                .function
                .and_then(|function| Some(function.raw_name().ok()?.into_owned()));
            let Some(name) = name else { break };
            let location = frame.location;
            let file = location.as_ref().and_then(|location| location.file);
            let line = location.as_ref().and_then(|location| location.line);
            found.push((name, file.unwrap_or_default().to_owned(), line.unwrap_or(0)));
            if found.len() == MAX_INLINED {
                break;
            }
        }
        found
    }

    fn symbol(&self, address: u64) -> Option<&str> {
        let after = self
            .symbols
            .partition_point(|(start, ..)| *start <= address);
        let (start, size, name) = self.symbols[..after].last()?;
        let is_inside = *size == 0 || address - start < *size;
        let name = name.start as usize..name.end as usize;
        is_inside.then(|| self.names.get(name)).flatten()
    }
}

/// A readable name. Names that are not Rust's stay as they are.
fn demangled(name: &str) -> String {
    match rustc_demangle::try_demangle(name) {
        Ok(name) => format!("{name:#}"),
        Err(_) => name.to_owned(),
    }
}

fn debug_information(file: &dyn ElfFile) -> Option<Context<Reader>> {
    let load = |id: gimli::SectionId| -> Result<Reader, gimli::Error> {
        let data = file.section(id.name()).map(|(_, data)| data);
        let data = data
            .filter(|data| data.len() <= MAX_SECTION)
            .unwrap_or_default();
        Ok(EndianArcSlice::new(Arc::from(data), NativeEndian))
    };
    file.section(gimli::SectionId::DebugInfo.name())?;
    Context::from_dwarf(gimli::Dwarf::load(load).ok()?).ok()
}

/// The file with the debug information that was split off the program, if there is one.
fn debug_file(source: &Source, file: &dyn ElfFile) -> Option<PathBuf> {
    let Source::File(path) = source else {
        return None;
    };
    let id = file.build_id()?;
    let (first, rest) = id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let by_id = Path::new(DEBUG_FILES).join(format!("{first:02x}/{rest}.debug"));
    let beside = || {
        let path = std::fs::canonicalize(path).ok()?;
        Some(path.parent()?.join(file.debug_file()?))
    };
    let candidates = [Some(by_id), beside()];
    candidates.into_iter().flatten().find(|path| path.is_file())
}
