//! Lists of rows: those of the buckets in their order, and then the loose rows by id.

use super::Shared;
use super::reading::View;
use super::tables::{OF_CREDENTIAL, OF_SERVICE, ROW, Table, owner_key, storage};
use super::writer::Write;
use crate::place::Place;
use crate::row::Row;
use crate::store::{Cursor, Listed, Owner, Page, StoreError};
use std::ops::Bound;
use uuid::Uuid;

/// Rows that are read for a page, live or not.
const MOST_READ: usize = 10_000;

/// Rows with places that one entry lists, with a bit for each. Mostly neighbours have the same owner, so that the lists
/// take little room.
const LISTED: u64 = 64;

/// A key and its value.
type Entry<'v> = (&'v [u8], &'v [u8]);

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
            let first = match after {
                Some(after) if (*bucket, *part) < (after.bucket, after.part()) => continue,
                Some(after) if after.bucket == *bucket => after.number + 1,
                _ => 0,
            };
            let Some(table) = self.shared.tables.part(self.map, *bucket, *part) else {
                continue;
            };
            let per_entry = match page.of {
                Listed::All => 1,
                Listed::OfCredential(_) | Listed::OfService(_) => LISTED,
            };
            let start = (first / per_entry).to_be_bytes();
            let mut entries = self.entries(table, &prefix, &start)?;
            while let Some((key, value)) = entries.next().transpose()? {
                let entry = key.last_chunk().ok_or(StoreError::Damaged)?;
                let begin = u64::from_be_bytes(*entry) * per_entry;
                let bits = match per_entry {
                    1 => 1,
                    _ => read_bits(value)?,
                };
                let numbers = (0..per_entry).filter(|bit| bits >> bit & 1 == 1);
                let numbers = numbers.map(|bit| begin + bit);
                for number in numbers.filter(|number| *number >= first) {
                    let bucket = *bucket;
                    let row = self.row_at(Place { bucket, number })?;
                    if row.is_some_and(|row| page.take(row, false)) {
                        return Ok(true);
                    }
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
        let start = after.unwrap_or_default();
        let mut entries = self.entries(table, &prefix, start.as_bytes())?;
        while let Some((key, _)) = entries.next().transpose()? {
            let id = Uuid::from_bytes(*key.last_chunk().ok_or(StoreError::Damaged)?);
            if after == Some(id) {
                continue;
            }
            let access = loose.ids.get(self.txn, id.as_bytes()).map_err(storage)?;
            let row = self.loose_by(access)?.map(|(_, row)| row);
            if row.is_some_and(|row| page.take(row, true)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Iterates over the entries whose keys have a prefix, from the one of `prefix` and `start`.
    fn entries<'v>(
        &'v self,
        table: Table,
        prefix: &'v [u8],
        start: &[u8],
    ) -> Result<impl Iterator<Item = Result<Entry<'v>, StoreError>>, StoreError> {
        let start = [prefix, start].concat();
        let range = (Bound::Included(&start[..]), Bound::Unbounded);
        let entries = table.range(self.txn, &range).map_err(storage)?;
        let entries = entries.map(|entry| entry.map_err(storage));
        Ok(entries.take_while(move |entry| match entry {
            Ok((key, _)) => key.starts_with(prefix),
            Err(_) => true,
        }))
    }
}

impl Write<'_> {
    /// Lists a row with a place among those of its owners, or no more.
    pub(super) fn list(
        &mut self,
        table: Table,
        row: &Row,
        number: u64,
        is_listed: bool,
    ) -> Result<(), StoreError> {
        let bit = 1 << (number % LISTED);
        for key in listing_keys(row.credential, row.service, number) {
            let stored = table.get(&self.txn, &key).map_err(storage)?;
            let bits = stored.map(read_bits).transpose()?.unwrap_or(0);
            match if is_listed { bits | bit } else { bits & !bit } {
                0 => self.delete(table, &key)?,
                bits => self.put(table, &key, &bits.to_be_bytes())?,
            }
        }
        Ok(())
    }
}

/// The keys of the entries that list a row with a place.
fn listing_keys(
    credential: Owner,
    service: Option<Owner>,
    number: u64,
) -> impl Iterator<Item = [u8; 25]> {
    let entry = (number / LISTED).to_be_bytes();
    let of_service = service.map(|service| owner_key(OF_SERVICE, service.id, entry));
    [owner_key(OF_CREDENTIAL, credential.id, entry)]
        .into_iter()
        .chain(of_service)
}

fn read_bits(stored: &[u8]) -> Result<u64, StoreError> {
    let stored = stored.try_into().map_err(|_| StoreError::Damaged)?;
    Ok(u64::from_be_bytes(stored))
}
