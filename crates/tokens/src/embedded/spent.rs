//! Refresh tokens that were used. They are known until their grant ends, also when their own rows are gone, so that a
//! replay is known as one. A grant that never ends could be refreshed for ever: its used refresh tokens are known for
//! [`KEPT`] only, and then their rows are deleted too.

use super::reading::{At, View};
use super::tables::{ROW, storage};
use super::writer::Write;
use crate::place::Place;
use crate::row::Row;
use crate::secret::MAC;
use crate::store::{State, StoreError};
use std::ops::Bound;
use subtle::ConstantTimeEq;
use uuid::Uuid;

/// Seconds for which a used refresh token of a grant without an end is known.
const KEPT: i64 = 90 * 86_400;

/// The tables of used refresh tokens.
#[derive(Clone, Copy)]
pub(super) struct Spent {
    /// Place of the row, or hash of the refresh token if the row was loose. The value is that hash, and the first row of
    /// the grant.
    pub(super) tokens: super::tables::Table,
    /// The time at which an entry is looked at again, and its key.
    pub(super) ends: super::tables::Table,
    /// First row of a grant to its last one.
    pub(super) last: super::tables::Table,
}

impl View<'_> {
    /// Returns the last row of the grant in which a refresh token was used, if the grant goes on.
    pub(super) fn last_of_spent(&self, token: &str, now: i64) -> Result<Option<Row>, StoreError> {
        let mac = self.shared.keys.mac(token.as_bytes());
        let place = Place::read(token.as_bytes()).map(Place::key);
        for key in place.iter().map(|key| &key[..]).chain([&mac[..]]) {
            let stored = self.shared.tables.spent.tokens.get(self.txn, key);
            let Some(stored) = stored.map_err(storage)? else {
                continue;
            };
            let (own, family) = parse(stored)?;
            if bool::from(own.ct_eq(&mac)) {
                return self.last_of(family, now);
            }
        }
        Ok(None)
    }

    pub(super) fn last_of(&self, family: Uuid, now: i64) -> Result<Option<Row>, StoreError> {
        let last = self
            .shared
            .tables
            .spent
            .last
            .get(self.txn, family.as_bytes());
        let Some(last) = last.map_err(storage)? else {
            return Ok(None);
        };
        let last = last.try_into().map_err(|_| StoreError::Damaged)?;
        let found = self.by_id(Uuid::from_bytes(last))?;
        Ok(found.map(|(_, row)| row).filter(|row| row.is_there(now)))
    }

    /// Returns a row that stands for the one of a used refresh token, which is gone.
    pub(super) fn spent(&self, token: &str, now: i64) -> Result<Option<Row>, StoreError> {
        let last = self.last_of_spent(token, now)?;
        Ok(last.map(|row| Row {
            state: State::Superseded,
            ..row
        }))
    }
}

impl Write<'_> {
    /// Notes that the refresh token of a row was used, and that the row `next` follows.
    pub(super) fn note_spent(
        &mut self,
        at: At,
        row: &Row,
        next: Uuid,
        ends: Option<i64>,
        now: i64,
    ) -> Result<(), StoreError> {
        let Some(refresh) = &row.refresh else {
            return Ok(());
        };
        let family = row.family.unwrap_or(row.id);
        let key = match at {
            At::Place(place) => place.key().to_vec(),
            At::Loose(_) => refresh.to_vec(),
        };
        let spent = &self.shared.tables.spent;
        let value = [&refresh[..], family.as_bytes()].concat();
        self.put(spent.tokens, &key, &value)?;
        self.put(spent.last, family.as_bytes(), next.as_bytes())?;
        let ends = ends.unwrap_or(now.saturating_add(KEPT));
        self.put(spent.ends, &end_key(ends, &key), &[])
    }

    /// Forgets used refresh tokens whose grant has ended. Returns how many entries it has looked at.
    pub(super) fn forget_spent(&mut self, most: usize, now: i64) -> Result<usize, StoreError> {
        let spent = &self.shared.tables.spent;
        let last = now.to_be_bytes();
        let range = (Bound::Unbounded, Bound::Excluded(&last[..]));
        let mut ended = Vec::new();
        for entry in spent
            .ends
            .range(&self.txn, &range)
            .map_err(storage)?
            .take(most)
        {
            ended.push(entry.map_err(storage)?.0.to_vec());
        }
        for entry in &ended {
            let key = entry.get(8..).ok_or(StoreError::Damaged)?;
            self.delete(spent.ends, entry)?;
            let stored = spent.tokens.get(&self.txn, key).map_err(storage)?;
            let Some((_, family)) = stored.map(parse).transpose()? else {
                continue;
            };
            let last = self.view().last_of(family, now)?;
            if let Some(ends) = last.as_ref().and_then(|last| last.ends) {
                // The grant has been refreshed since.
                self.put(spent.ends, &end_key(ends, key), &[])?;
                continue;
            }
            self.delete(spent.tokens, key)?;
            self.delete_superseded(key)?;
            if last.is_none() {
                self.delete(spent.last, family.as_bytes())?;
            }
        }
        Ok(ended.len())
    }

    /// Deletes the row of a used refresh token, if it is in a bucket that is never dropped.
    fn delete_superseded(&mut self, key: &[u8]) -> Result<(), StoreError> {
        let Some(place) = Place::of_key(key).filter(|place| place.bucket.end().is_none()) else {
            return Ok(());
        };
        let Some(table) = self.shared.tables.at(&self.map, place) else {
            return Ok(());
        };
        let row = self.view().row_at(place)?;
        let Some(row) = row.filter(|row| row.state == State::Superseded && !row.is_moved()) else {
            return Ok(());
        };
        self.delete(table, &super::tables::key(ROW, place.number))?;
        self.list(table, &row, place.number, false)
    }
}

fn parse(stored: &[u8]) -> Result<([u8; MAC], Uuid), StoreError> {
    let (mac, family) = stored.split_first_chunk().ok_or(StoreError::Damaged)?;
    let family = family.try_into().map_err(|_| StoreError::Damaged)?;
    Ok((*mac, Uuid::from_bytes(family)))
}

fn end_key(ends: i64, key: &[u8]) -> Vec<u8> {
    [&ends.max(0).to_be_bytes()[..], key].concat()
}

#[cfg(test)]
mod tests {
    use crate::embedded::Embedded;
    use crate::store::{NewToken, Owner, RefreshOutcome, State, TokenStore};
    use crate::{Keys, Storage};
    use uuid::Uuid;

    const NOW: i64 = 1_767_225_600;
    const DAY: i64 = 86_400;

    #[test]
    fn a_grant_that_is_refreshed_for_ever_does_not_grow() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        let keys = Keys::new(&[7; 64], 1);
        let store = Embedded::open(&path, 1 << 28, keys, Storage::Sealed).unwrap();
        let owner = |id| Owner {
            id: Uuid::from_u128(id),
            created: 7,
        };
        let token = || NewToken {
            credential: owner(1),
            service: Some(owner(2)),
            expires_in: 7200,
            with_refresh_token: true,
            ttl: None,
            scope: None,
            authenticated_userid: None,
        };
        let refresh = |text: &str, now| store.refresh(text, token(), now).wait().unwrap();
        let entries = || {
            let tables = &store.shared.tables;
            let txn = tables.env.read_txn().unwrap();
            let of_tables: Vec<u64> = (tables.all())
                .map(|table| table.len(&txn).unwrap())
                .collect();
            of_tables.iter().sum::<u64>()
        };
        let first = store.issue(token(), NOW).wait().unwrap();
        let mut used = vec![first.refresh_token.unwrap().0];
        let mut sizes = Vec::new();
        for day in 1..400 {
            let now = NOW + day * DAY;
            let RefreshOutcome::Issued(next) = refresh(used.last().unwrap(), now) else {
                panic!("it is refreshed on day {day}");
            };
            used.push(next.refresh_token.unwrap().0);
            while store.expire(now).wait().unwrap() {}
            sizes.push(entries());
        }
        let largest = |of: &[u64]| of.iter().max().copied();
        assert_eq!(largest(&sizes[100..200]), largest(&sizes[300..]));
        let now = NOW + 400 * DAY;
        let (live, used) = used.split_last().unwrap();
        for recent in &used[used.len() - 80..] {
            assert!(matches!(refresh(recent, now), RefreshOutcome::Replayed(_)));
        }
        assert!(matches!(refresh(&used[0], now), RefreshOutcome::Unknown));
        let found = store.find_by_refresh_token(live, now).wait().unwrap();
        assert_eq!(found.map(|row| row.state), Some(State::Live));
        assert!(matches!(refresh(live, now), RefreshOutcome::Issued(_)));
    }

    #[test]
    fn a_grant_that_ends_leaves_no_row_of_the_time_when_it_was_endless() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        let keys = Keys::new(&[7; 64], 1);
        let store = Embedded::open(&path, 1 << 28, keys, Storage::Sealed).unwrap();
        let token = |ttl| NewToken {
            credential: Owner {
                id: Uuid::from_u128(1),
                created: 7,
            },
            service: None,
            expires_in: 7200,
            with_refresh_token: true,
            ttl,
            scope: None,
            authenticated_userid: None,
        };
        let first = store.issue(token(None), NOW).wait().unwrap();
        let used = first.refresh_token.unwrap().0;
        let refreshed = store.refresh(&used, token(Some(10 * DAY)), NOW).wait();
        assert!(matches!(refreshed, Ok(RefreshOutcome::Issued(_))));
        while store.expire(NOW + 200 * DAY).wait().unwrap() {}
        let tables = &store.shared.tables;
        let txn = tables.env.read_txn().unwrap();
        // What is left is in the directory.
        let left = tables.all().map(|table| table.len(&txn).unwrap());
        assert_eq!(left.filter(|left| *left > 0).count(), 1);
    }
}
