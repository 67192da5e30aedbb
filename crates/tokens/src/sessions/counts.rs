//! How many rows and bytes an owner has, and all owners together.

use super::SessionStoreError;
use super::tables::{Tables, Write, storage};
use uuid::Uuid;

/// The key of the sums in the table of counts. It is no id of an owner.
pub(super) const ALL: &[u8] = b"all";

impl Tables {
    /// Writes the sums of a store that has none yet, or whose sums are wrong, because an earlier version has written to it
    /// since.
    pub(super) fn sum_up(&self) -> Result<(), SessionStoreError> {
        let mut write = self.write()?;
        let rows = self.rows.len(&write.txn).map_err(storage)?;
        if self.counts.get(&write.txn, ALL).map_err(storage)?.is_some()
            && write.count_at(ALL)?.0 == rows
        {
            return Ok(());
        }
        let mut sums = (0, 0);
        for entry in self.counts.iter(&write.txn).map_err(storage)? {
            let (key, stored) = entry.map_err(storage)?;
            if key == ALL {
                continue;
            }
            let (rows, bytes) = parse_count(stored)?;
            sums = (sums.0 + rows, sums.1 + bytes);
        }
        write.write_count(ALL, sums)?;
        write.commit()
    }
}

impl Write<'_> {
    pub(super) fn count(&self, owner: Uuid) -> Result<(u64, u64), SessionStoreError> {
        self.count_at(owner.as_bytes())
    }

    pub(super) fn count_at(&self, key: &[u8]) -> Result<(u64, u64), SessionStoreError> {
        let stored = self.tables.counts.get(&self.txn, key);
        stored.map_err(storage)?.map_or(Ok((0, 0)), parse_count)
    }

    /// Writes the counts of an owner, and changes the sums accordingly.
    pub(super) fn set_count(
        &mut self,
        owner: Uuid,
        rows: u64,
        bytes: u64,
    ) -> Result<(), SessionStoreError> {
        let bytes = if rows == 0 { 0 } else { bytes };
        let (rows_before, bytes_before) = self.count(owner)?;
        let (all_rows, all_bytes) = self.count_at(ALL)?;
        let sums = (
            (all_rows + rows).saturating_sub(rows_before),
            (all_bytes + bytes).saturating_sub(bytes_before),
        );
        self.write_count(ALL, sums)?;
        if rows > 0 {
            return self.write_count(owner.as_bytes(), (rows, bytes));
        }
        self.delete(self.tables.counts, owner.as_bytes())
    }

    fn write_count(
        &mut self,
        key: &[u8],
        (rows, bytes): (u64, u64),
    ) -> Result<(), SessionStoreError> {
        let value = [rows.to_be_bytes(), bytes.to_be_bytes()].concat();
        self.store(self.tables.counts, key, &value)
    }

    /// Removes the sums, or writes others.
    #[cfg(test)]
    pub(super) fn spoil_sums(&mut self, sums: Option<(u64, u64)>) -> Result<(), SessionStoreError> {
        match sums {
            Some(sums) => self.write_count(ALL, sums),
            None => self.delete(self.tables.counts, ALL),
        }
    }
}

fn parse_count(stored: &[u8]) -> Result<(u64, u64), SessionStoreError> {
    match (stored.first_chunk(), stored.last_chunk()) {
        (Some(rows), Some(bytes)) => Ok((u64::from_be_bytes(*rows), u64::from_be_bytes(*bytes))),
        _ => Err(SessionStoreError::Damaged),
    }
}
