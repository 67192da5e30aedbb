//! Finds the address at which LMDB has mapped the file. LMDB reports the address only if the program requested a fixed
//! one. So this module reads the process's list of maps and finds the one that contains a value of the store.

use crate::env::{Environment, Table};
use crate::error::StoreError;
use crate::header::HEADER_KEY;
use std::ops::Range;

/// Returns the addresses of the map; `None` if the system does not report them, or reports a different kind of map.
pub(crate) fn find(environment: &Environment) -> Result<Option<Range<usize>>, StoreError> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let inside = address(environment, environment.tables.header)?;
    Ok(inside.and_then(|inside| containing(&maps, inside)))
}

/// Returns an address inside the map: the address of a value, because LMDB returns values without copying them.
fn address(environment: &Environment, header: Table) -> Result<Option<usize>, StoreError> {
    let txn = environment.env.read_txn()?;
    let value = header.get(&txn, HEADER_KEY)?;
    Ok(value.map(|bytes| bytes.as_ptr().addr()))
}

/// Finds the map that contains `address`, if it is a shared, read-only map from the start of a file. Example of a line
/// in `maps`: `7f00-7fff r--s 00000000 08:01 42 /path`.
fn containing(maps: &str, address: usize) -> Option<Range<usize>> {
    maps.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
        let is_of_file = words.next()? == "r--s" && words.next()?.bytes().all(|byte| byte == b'0');
        (range.contains(&address) && is_of_file).then_some(range)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55550000-55560000 r-xp 00000000 08:01 7 /usr/bin/silverback
7f000000-7f100000 r--s 00000000 08:01 42 /srv/store.lmdb/data.mdb
7f100000-7f200000 rw-s 00000000 08:01 43 /srv/store.lmdb/lock.mdb
7f200000-7f300000 rw-p 00000000 00:00 0
7f300000-7f400000 r--s 00100000 08:01 42 /srv/store.lmdb/data.mdb
";

    #[test]
    fn only_a_shared_read_only_map_of_a_whole_file_is_found() {
        assert_eq!(
            containing(MAPS, 0x7f00_0010),
            Some(0x7f00_0000..0x7f10_0000)
        );
        for other in [0, 0x5555_0000, 0x7f10_0000, 0x7f20_0000, 0x7f30_0000] {
            assert_eq!(containing(MAPS, other), None, "{other:x}");
        }
        assert_eq!(containing("", 0x7f00_0010), None);
    }
}
