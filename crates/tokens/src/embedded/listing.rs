//! Lists of rows: those of the buckets in their order, and then the loose rows by id.

use super::Shared;
use super::reading::View;
use super::tables::{OF_CREDENTIAL, OF_SERVICE, ROW, Table, storage};
use crate::place::Place;
use crate::row::Row;
use crate::store::{Cursor, Listed, Page, StoreError};
use std::ops::Bound;
use uuid::Uuid;

/// Rows that are read for a page, live or not.
const MOST_READ: usize = 10_000;

/// A page that is being read.
struct Reading {
    of: Listed,
    most: usize,
    now: i64,
    found: Vec<Row>,
    /// The last row that was read.
    last: Option<Cursor>,
    read: usize,
}

impl Reading {
    /// Takes a row, and returns whether the page is full.
    fn take(&mut self, row: Row, is_loose: bool) -> bool {
        let id = row.id;
        self.last = Some(Cursor { id, is_loose });
        self.read += 1;
        self.found
            .extend(Some(row).filter(|row| row.is_live(self.now)));
        self.found.len() >= self.most || self.read == MOST_READ
    }

    /// The beginning of the keys of the rows that are listed, in a table with keys of several kinds.
    fn prefix(&self, all: &[u8]) -> Vec<u8> {
        let (kind, owner) = match self.of {
            Listed::All => return all.to_vec(),
            Listed::OfCredential(id) => (OF_CREDENTIAL, id),
            Listed::OfService(id) => (OF_SERVICE, id),
        };
        let mut prefix = Vec::with_capacity(33);
        prefix.push(kind);
        prefix.extend_from_slice(owner.as_bytes());
        prefix
    }
}

impl Shared {
    pub(super) fn list(
        &self,
        of: Listed,
        after: Option<Cursor>,
        most: usize,
        now: i64,
    ) -> Result<Page, StoreError> {
        let txn = self.tables.env.read_txn().map_err(storage)?;
        let map = self.tables.map.load_full();
        let map = self.tables.map_of(&txn, &map)?.unwrap_or(map);
        let view = self.view(&txn, &map);
        let mut page = Reading {
            of,
            most,
            now,
            found: Vec::new(),
            last: None,
            read: 0,
        };
        let is_full = match after {
            Some(Cursor { id, is_loose: true }) => view.list_loose(Some(id), &mut page)?,
            placed => {
                let after = placed.and_then(|cursor| Place::of_id(cursor.id));
                view.list_places(after, &mut page)? || view.list_loose(None, &mut page)?
            }
        };
        let next = page.last.filter(|_| is_full);
        let tokens = page.found.into_iter();
        let tokens = tokens.map(|row| row.token(Some(&self.keys)));
        Ok(Page {
            tokens: tokens.collect::<Result<_, _>>()?,
            next,
        })
    }
}

impl View<'_> {
    /// Reads the rows of the buckets, and returns whether the page is full.
    fn list_places(&self, after: Option<Place>, page: &mut Reading) -> Result<bool, StoreError> {
        let prefix = page.prefix(&[ROW]);
        for (bucket, part) in self.map.parts.keys() {
            let number = match after {
                Some(after) if (*bucket, *part) < (after.bucket, after.part()) => continue,
                Some(after) if after.bucket == *bucket => Some(after.number),
                _ => None,
            };
            let Some(table) = self.shared.tables.part(self.map, *bucket, *part) else {
                continue;
            };
            let after = number.map(u64::to_be_bytes);
            let mut keys = self.keys(table, &prefix, after.as_ref().map(|after| &after[..]))?;
            while let Some(key) = keys.next().transpose()? {
                let number = key.last_chunk().ok_or(StoreError::Damaged)?;
                let place = Place {
                    bucket: *bucket,
                    number: u64::from_be_bytes(*number),
                };
                let row = self.row_at(place)?;
                if row.is_some_and(|row| page.take(row, false)) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Reads the loose rows, and returns whether the page is full.
    fn list_loose(&self, after: Option<Uuid>, page: &mut Reading) -> Result<bool, StoreError> {
        let loose = &self.shared.tables.loose;
        let table = match page.of {
            Listed::All => loose.ids,
            Listed::OfCredential(_) | Listed::OfService(_) => loose.owners,
        };
        let prefix = page.prefix(&[]);
        let after = after.as_ref().map(|after| &after.as_bytes()[..]);
        let mut keys = self.keys(table, &prefix, after)?;
        while let Some(key) = keys.next().transpose()? {
            let id = Uuid::from_bytes(*key.last_chunk().ok_or(StoreError::Damaged)?);
            let access = loose.ids.get(self.txn, id.as_bytes()).map_err(storage)?;
            let row = self.loose_by(access)?.map(|(_, row)| row);
            if row.is_some_and(|row| page.take(row, true)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Iterates over the keys with a prefix, from the one after `prefix` and `after`.
    fn keys<'v>(
        &'v self,
        table: Table,
        prefix: &'v [u8],
        after: Option<&[u8]>,
    ) -> Result<impl Iterator<Item = Result<&'v [u8], StoreError>>, StoreError> {
        let start = [prefix, after.unwrap_or_default()].concat();
        let bound = match after {
            Some(_) => Bound::Excluded(&start[..]),
            // LMDB refuses an empty key.
            None if start.is_empty() => Bound::Unbounded,
            None => Bound::Included(&start[..]),
        };
        let entries = table.range(self.txn, &(bound, Bound::Unbounded));
        let keys = entries.map_err(storage)?;
        let keys = keys.map(|entry| Ok(entry.map_err(storage)?.0));
        Ok(keys.take_while(move |key| match key {
            Ok(key) => key.starts_with(prefix),
            Err(_) => true,
        }))
    }
}
