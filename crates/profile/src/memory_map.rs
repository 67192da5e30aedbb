//! The code that is mapped into this process, from `/proc/self/maps`.

use std::io;
use std::ops::Range;

/// A mapping of executable memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) addresses: Range<u64>,
    /// Offset of the mapping in the file.
    pub(crate) offset: u64,
    /// Path of the file, a name such as `[vdso]`, or nothing for memory without a file, such as code made at run time.
    pub(crate) path: String,
}

/// Name of the kernel's code in every process.
pub(crate) const VDSO: &str = "[vdso]";

/// What the kernel appends to the path of a file that was deleted or replaced.
const DELETED: &str = " (deleted)";

impl Mapping {
    /// Whether the file on disk is still the mapped one, as far as the kernel tells.
    pub(crate) fn is_current(&self) -> bool {
        self.path.starts_with('/') && !self.path.ends_with(DELETED)
    }
}

pub(crate) fn read() -> io::Result<Vec<Mapping>> {
    Ok(parse(&std::fs::read_to_string("/proc/self/maps")?))
}

/// Parses lines such as `55d0-55e0 r-xp 00001000 fd:01 1234   /usr/bin/program`.
fn parse(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(mapping).collect()
}

fn mapping(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut next = || {
        let (field, after) = rest.split_once(' ')?;
        rest = after.trim_start();
        Some(field)
    };
    let (start, end) = next()?.split_once('-')?;
    let permissions = next()?;
    let offset = next()?;
    // The device. The last field ends at the inode where there is no path.
    next()?;
    let (_inode, path) = rest.split_once(' ').unwrap_or((rest, ""));
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    (permissions.as_bytes().get(2) == Some(&b'x')).then_some(Mapping {
        addresses: number(start)?..number(end)?,
        offset: number(offset)?,
        path: path.trim_start().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_mappings_are_found_whatever_their_path() {
        let text = "\
55d000-55e000 r--p 00000000 fd:01 1234                                   /usr/bin/a b
55e000-560000 r-xp 00001000 fd:01 1234                                   /usr/bin/a b
7f0000-7f1000 rwxp 00000000 00:00 0 
7f1000-7f2000 r-xp 00000000 fd:01 9                                      /lib/x.so (deleted)
7ffe00-7ffe10 r-xp 00000000 00:00 0                                      [vdso]
nonsense
";
        let mappings = parse(text);
        let paths: Vec<&str> = mappings.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(paths, ["/usr/bin/a b", "", "/lib/x.so (deleted)", "[vdso]"]);
        assert_eq!(mappings[0].addresses, 0x55_e000..0x56_0000);
        assert_eq!(mappings[0].offset, 0x1000);
        let current: Vec<bool> = mappings.iter().map(Mapping::is_current).collect();
        assert_eq!(current, [true, false, false, false]);
    }
}
