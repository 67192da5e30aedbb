//! Look-ups. They are also those of the writer, in its transaction.

use super::Shared;
use super::tables::{CODE, Map, ROW, key, storage};
use crate::place::Place;
use crate::row::{CodeRow, Row};
use crate::secret::MAC;
use crate::store::{Code, Counts, State, StoreError, Token};
use heed::RoTxn;
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
    fn stored_at(&self, place: Place) -> Result<Option<&[u8]>, StoreError> {
        let Some(table) = self.shared.tables.at(self.map, place) else {
            return Ok(None);
        };
        table
            .get(self.txn, &key(ROW, place.number))
            .map_err(storage)
    }

    pub(super) fn row_at(&self, place: Place) -> Result<Option<Row>, StoreError> {
        self.stored_at(place)?.map(Row::decode).transpose()
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

    /// Returns the row with this access token, whatever has become of it. If there are a row with a place that has ended
    /// and a loose one, it is the loose one, which is newer.
    pub(super) fn by_access(&self, token: &str) -> Result<Option<(At, Row)>, StoreError> {
        let mac = self.shared.keys.mac(token.as_bytes());
        let placed = self.placed(token, |row| row.has_access(&mac))?;
        if placed
            .as_ref()
            .is_some_and(|(_, row)| row.state == State::Live)
        {
            return Ok(placed);
        }
        Ok(self.loose_access(&mac)?.or(placed))
    }

    pub(super) fn by_refresh(&self, token: &str) -> Result<Option<(At, Row)>, StoreError> {
        let mac = self.shared.keys.mac(token.as_bytes());
        let placed = self.placed(token, |row| row.has_refresh(&mac))?;
        if placed
            .as_ref()
            .is_some_and(|(_, row)| row.state == State::Live)
        {
            return Ok(placed);
        }
        let placed = placed.filter(|(_, row)| !row.is_moved());
        Ok(self.loose_refresh(&mac)?.or(placed))
    }

    /// Returns the row at the place that a token says, if it is the one of the token.
    fn placed(
        &self,
        token: &str,
        is_it: impl FnOnce(&Row) -> bool,
    ) -> Result<Option<(At, Row)>, StoreError> {
        let Some(place) = Place::read(token.as_bytes()) else {
            return Ok(None);
        };
        let stored = self.stored_at(place)?;
        let row = stored.map(Row::decode_unsealed).transpose()?;
        Ok(row.filter(is_it).map(|row| (At::Place(place), row)))
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

    pub(super) fn loose_by(&self, access: Option<&[u8]>) -> Result<Option<(At, Row)>, StoreError> {
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
    /// Looks for something in the newest state. If it is not there, another process may have changed the tables of parts:
    /// then this looks again.
    fn find<T>(
        &self,
        look: impl Fn(&View<'_>) -> Result<Option<T>, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        self.readers.read(|txn| {
            let map = self.tables.map.load();
            let found = look(&self.view(txn, &map))?;
            if found.is_some() {
                return Ok(found);
            }
            match self.tables.map_of(txn, &map)? {
                Some(map) => look(&self.view(txn, &map)),
                None => Ok(None),
            }
        })
    }

    pub(super) fn view<'v>(&'v self, txn: &'v RoTxn<'v>, map: &'v Map) -> View<'v> {
        View {
            shared: self,
            txn,
            map,
        }
    }

    /// Returns what is counted.
    pub(super) fn counts(&self) -> Result<Counts, StoreError> {
        let txn = self.tables.env.read_txn().map_err(storage)?;
        let map = self.tables.read_map(&txn)?;
        let [waited, aside] = self.pace.counts();
        let mut counts = Counts {
            live: map.loose,
            endless: map.loose_endless,
            waited,
            aside,
        };
        for ((bucket, _), part) in &map.parts {
            counts.live += part.live;
            if bucket.end().is_none() {
                counts.endless += part.live;
            }
        }
        Ok(counts)
    }

    pub(super) fn find_by_access_token(
        &self,
        token: &str,
        now: i64,
    ) -> Result<Option<Token>, StoreError> {
        let found = self.find(|view| view.by_access(token))?;
        let row = found.map(|(_, row)| row).filter(|row| row.is_live(now));
        row.map(|row| row.token(None)).transpose()
    }

    pub(super) fn find_by_refresh_token(
        &self,
        token: &str,
        now: i64,
    ) -> Result<Option<Token>, StoreError> {
        let found = self.find(|view| {
            let found = view.by_refresh(token)?.map(|(_, row)| row);
            match found.filter(|row| row.is_there(now)) {
                Some(row) => Ok(Some(row)),
                None => view.spent(token, now),
            }
        });
        let row = found?;
        row.map(|row| row.token(None)).transpose()
    }

    pub(super) fn find_by_id(&self, id: Uuid, now: i64) -> Result<Option<Token>, StoreError> {
        let found = self.find(|view| view.by_id(id))?;
        let row = found.map(|(_, row)| row).filter(|row| row.is_live(now));
        row.map(|row| row.token(Some(&self.keys))).transpose()
    }

    pub(super) fn find_known(&self, id: Uuid, now: i64) -> Result<Option<Token>, StoreError> {
        let found = self.find(|view| view.by_id(id))?;
        let row = found.map(|(_, row)| row).filter(|row| row.is_there(now));
        row.map(|row| row.token(None)).transpose()
    }

    pub(super) fn find_code(&self, code: &str, now: i64) -> Result<Option<Code>, StoreError> {
        let found = self.find(|view| view.code(code))?;
        let free = found.filter(|(_, row)| row.token.is_none() && now < row.ends);
        Ok(free.map(|(_, row)| Code {
            id: row.id,
            code: row.code,
        }))
    }
}
