//! Look-ups. They are also those of the writer, in its transaction.

use super::Shared;
use super::tables::{CODE, Map, OF_CREDENTIAL, OF_SERVICE, ROW, key, storage};
use crate::place::Place;
use crate::row::{CodeRow, Row};
use crate::secret::MAC;
use crate::store::{Code, Listed, State, StoreError, Token};
use heed::RoTxn;
use std::ops::Bound;
use uuid::Uuid;

/// Where a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    Place(Place),
    /// Among the loose rows, by the hash of its access token.
    Loose([u8; MAC]),
}

/// A state of the store.
pub(super) struct View<'v> {
    pub(super) shared: &'v Shared,
    pub(super) txn: &'v RoTxn<'v>,
    pub(super) map: &'v Map,
}

impl View<'_> {
    fn row_at(&self, place: Place) -> Result<Option<Row>, StoreError> {
        let Some(table) = self.shared.tables.at(self.map, place) else {
            return Ok(None);
        };
        let stored = table
            .get(self.txn, &key(ROW, place.number))
            .map_err(storage)?;
        stored.map(Row::decode).transpose()
    }

    fn loose(&self, access: &[u8; MAC]) -> Result<Option<Row>, StoreError> {
        let stored = self
            .shared
            .tables
            .loose
            .rows
            .get(self.txn, access)
            .map_err(storage)?;
        stored.map(Row::decode).transpose()
    }

    pub(super) fn loose_access(&self, mac: &[u8; MAC]) -> Result<Option<(At, Row)>, StoreError> {
        Ok(self.loose(mac)?.map(|row| (At::Loose(*mac), row)))
    }

    /// Returns the row with this access token, whatever has become of it.
    pub(super) fn by_access(&self, token: &str) -> Result<Option<(At, Row)>, StoreError> {
        let mac = self.shared.keys.mac(token.as_bytes());
        if let Some(place) = Place::read(token.as_bytes())
            && let Some(row) = self.row_at(place)?
            && row.has_access(&mac)
        {
            return Ok(Some((At::Place(place), row)));
        }
        self.loose_access(&mac)
    }

    pub(super) fn by_refresh(&self, token: &str) -> Result<Option<(At, Row)>, StoreError> {
        let mac = self.shared.keys.mac(token.as_bytes());
        if let Some(place) = Place::read(token.as_bytes())
            && let Some(row) = self.row_at(place)?
            && row.has_refresh(&mac)
            && !row.is_moved()
        {
            return Ok(Some((At::Place(place), row)));
        }
        self.loose_refresh(&mac)
    }

    pub(super) fn loose_refresh(&self, mac: &[u8; MAC]) -> Result<Option<(At, Row)>, StoreError> {
        let access = self
            .shared
            .tables
            .loose
            .refresh
            .get(self.txn, mac)
            .map_err(storage)?;
        self.loose_by(access)
    }

    pub(super) fn by_id(&self, id: Uuid) -> Result<Option<(At, Row)>, StoreError> {
        if let Some(place) = Place::of_id(id)
            && let Some(row) = self.row_at(place)?
            && row.id == id
            && !row.is_moved()
        {
            return Ok(Some((At::Place(place), row)));
        }
        let access = self
            .shared
            .tables
            .loose
            .ids
            .get(self.txn, id.as_bytes())
            .map_err(storage)?;
        self.loose_by(access)
    }

    fn loose_by(&self, access: Option<&[u8]>) -> Result<Option<(At, Row)>, StoreError> {
        let Some(access) = access else {
            return Ok(None);
        };
        let access = access.try_into().map_err(|_| StoreError::Damaged)?;
        self.loose_access(&access)
    }

    pub(super) fn code(&self, code: &str) -> Result<Option<(Place, CodeRow)>, StoreError> {
        let Some(place) = Place::read(code.as_bytes()) else {
            return Ok(None);
        };
        let Some(table) = self.shared.tables.at(self.map, place) else {
            return Ok(None);
        };
        let stored = table
            .get(self.txn, &key(CODE, place.number))
            .map_err(storage)?;
        let row = stored.map(CodeRow::decode).transpose()?;
        let mac = self.shared.keys.mac(code.as_bytes());
        Ok(row.filter(|row| row.has(&mac)).map(|row| (place, row)))
    }
}

impl Shared {
    /// Looks at the newest state. The map is read after the transaction has begun. If it is newer than the transaction, a
    /// look-up finds nothing or a row with another hash, as for a token that is issued a moment later.
    fn view<R>(
        &self,
        look: impl FnOnce(&View<'_>) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        let txn = self.tables.env.read_txn().map_err(storage)?;
        let map = self.tables.map.load();
        look(&View {
            shared: self,
            txn: &txn,
            map: &map,
        })
    }

    pub(super) fn find_by_access_token(
        &self,
        token: &str,
        now: i64,
    ) -> Result<Option<Token>, StoreError> {
        let found = self.view(|view| view.by_access(token))?;
        let row = found.map(|(_, row)| row).filter(|row| row.is_live(now));
        row.map(|row| row.token(None)).transpose()
    }

    pub(super) fn find_by_refresh_token(
        &self,
        token: &str,
        now: i64,
    ) -> Result<Option<Token>, StoreError> {
        let found = self.view(|view| view.by_refresh(token))?;
        let row = found.map(|(_, row)| row).filter(|row| row.is_there(now));
        row.map(|row| row.token(None)).transpose()
    }

    pub(super) fn find_by_id(&self, id: Uuid, now: i64) -> Result<Option<Token>, StoreError> {
        let found = self.view(|view| view.by_id(id))?;
        let row = found.map(|(_, row)| row).filter(|row| row.is_live(now));
        row.map(|row| row.token(Some(&self.keys))).transpose()
    }

    pub(super) fn find_code(&self, code: &str, now: i64) -> Result<Option<Code>, StoreError> {
        let found = self.view(|view| view.code(code))?;
        let free = found.filter(|(_, row)| row.token.is_none() && now < row.ends);
        Ok(free.map(|(_, row)| Code {
            id: row.id,
            code: row.code,
        }))
    }

    /// Lists the rows of the buckets in their order, and then the loose rows by id.
    pub(super) fn list(
        &self,
        of: Listed,
        after: Option<Uuid>,
        most: usize,
        now: i64,
    ) -> Result<Vec<Token>, StoreError> {
        self.view(|view| {
            let mut found = Vec::new();
            let place = after
                .and_then(Place::of_id)
                .filter(|place| view.shared.tables.at(view.map, *place).is_some());
            // An id of a loose row may look like a place; the row tells.
            let from = match (after, place) {
                (Some(id), Some(place)) => {
                    match view.row_at(place)?.is_some_and(|row| row.id == id) {
                        true => From::Place(place),
                        false => From::Loose(id),
                    }
                }
                (Some(id), None) => From::Loose(id),
                (None, _) => From::Start,
            };
            if !matches!(from, From::Loose(_)) {
                view.list_places(of, from, most, now, &mut found)?;
            }
            if found.len() < most {
                view.list_loose(of, from, most, now, &mut found)?;
            }
            found
                .into_iter()
                .map(|row| row.token(Some(&self.keys)))
                .collect()
        })
    }
}

/// Where a list goes on.
#[derive(Debug, Clone, Copy)]
enum From {
    Start,
    Place(Place),
    Loose(Uuid),
}

impl View<'_> {
    fn list_places(
        &self,
        of: Listed,
        from: From,
        most: usize,
        now: i64,
        found: &mut Vec<Row>,
    ) -> Result<(), StoreError> {
        for (bucket, part) in self.map.keys() {
            let after = match from {
                From::Place(place)
                    if (*bucket, *part) < (place.bucket, place.number / super::PART) =>
                {
                    continue;
                }
                From::Place(place) if place.bucket == *bucket => Some(place.number),
                _ => None,
            };
            let Some(table) = self.shared.tables.part(self.map, *bucket, *part) else {
                continue;
            };
            let mut prefix = Vec::with_capacity(25);
            match of {
                Listed::All => prefix.push(ROW),
                Listed::OfCredential(id) => {
                    prefix.push(OF_CREDENTIAL);
                    prefix.extend_from_slice(id.as_bytes());
                }
                Listed::OfService(id) => {
                    prefix.push(OF_SERVICE);
                    prefix.extend_from_slice(id.as_bytes());
                }
            }
            let mut start = prefix.clone();
            let bound = match after {
                Some(number) => {
                    start.extend_from_slice(&number.to_be_bytes());
                    Bound::Excluded(&start[..])
                }
                None => Bound::Included(&start[..]),
            };
            for entry in table
                .range(self.txn, &(bound, Bound::Unbounded))
                .map_err(storage)?
            {
                let (key, _) = entry.map_err(storage)?;
                if !key.starts_with(&prefix) {
                    break;
                }
                let number = key.last_chunk().ok_or(StoreError::Damaged)?;
                let place = Place {
                    bucket: *bucket,
                    number: u64::from_be_bytes(*number),
                };
                found.extend(self.row_at(place)?.filter(|row| row.is_live(now)));
                if found.len() == most {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn list_loose(
        &self,
        of: Listed,
        from: From,
        most: usize,
        now: i64,
        found: &mut Vec<Row>,
    ) -> Result<(), StoreError> {
        let loose = &self.shared.tables.loose;
        let mut prefix = Vec::with_capacity(33);
        let table = match of {
            Listed::All => loose.ids,
            Listed::OfCredential(_) | Listed::OfService(_) => loose.owners,
        };
        match of {
            Listed::All => {}
            Listed::OfCredential(id) => {
                prefix.push(OF_CREDENTIAL);
                prefix.extend_from_slice(id.as_bytes());
            }
            Listed::OfService(id) => {
                prefix.push(OF_SERVICE);
                prefix.extend_from_slice(id.as_bytes());
            }
        }
        let mut start = prefix.clone();
        let bound = match from {
            From::Loose(id) => {
                start.extend_from_slice(id.as_bytes());
                Bound::Excluded(&start[..])
            }
            // LMDB refuses an empty key.
            From::Start | From::Place(_) if start.is_empty() => Bound::Unbounded,
            From::Start | From::Place(_) => Bound::Included(&start[..]),
        };
        for entry in table
            .range(self.txn, &(bound, Bound::Unbounded))
            .map_err(storage)?
        {
            let (key, _) = entry.map_err(storage)?;
            if !key.starts_with(&prefix) {
                break;
            }
            let id = Uuid::from_bytes(*key.last_chunk().ok_or(StoreError::Damaged)?);
            let access = loose.ids.get(self.txn, id.as_bytes()).map_err(storage)?;
            let row = self.loose_by(access)?.map(|(_, row)| row);
            found.extend(row.filter(|row| row.state == State::Live && row.is_there(now)));
            if found.len() == most {
                return Ok(());
            }
        }
        Ok(())
    }
}
