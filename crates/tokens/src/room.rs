//! Room in the file of a store. LMDB copies a page before it changes it, so also a deletion takes room.

use heed::types::Bytes;
use heed::{Database, Env, RoTxn, WithoutTls};

/// One part in so many of the file is kept for revoking and deleting.
const RESERVE: usize = 20;

/// Whether only the reserve is left, so that nothing may be added.
pub(crate) fn is_short(
    env: &Env<WithoutTls>,
    txn: &RoTxn<'_>,
    tables: impl Iterator<Item = Database<'static, Bytes, Bytes>>,
) -> heed::Result<bool> {
    let info = env.info();
    let pages = info.map_size / env.unnamed_database_stat().page_size as usize;
    let most = pages - pages / RESERVE;
    // Pages beyond the last one were never used. To count those that were given back takes a look at each table.
    if info.last_page_number < most {
        return Ok(false);
    }
    let mut used = 0;
    for table in tables {
        let stat = table.stat(txn)?;
        used += stat.branch_pages + stat.leaf_pages + stat.overflow_pages;
    }
    Ok(used >= most)
}
