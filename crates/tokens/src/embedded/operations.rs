//! The operations that write.

use super::reading::At;
use super::tables::{CODE, OF_CREDENTIAL, OF_SERVICE, ROW, Table, key, owner_key, storage};
use super::writer::Write;
use crate::place::{Bucket, Place};
use crate::row::{CodeRow, Row};
use crate::secret::{MAC, Made, random_id_bits};
use crate::store::{Issued, Known, NewCode, NewToken, RefreshOutcome, State, StoreError};
use std::collections::HashMap;
use std::ops::Bound;
use uuid::Uuid;

/// Loose rows that are deleted in one step of [`Write::expire`].
const EXPIRED_AT_ONCE: usize = 500;
/// Rows that may follow each other without a note that leads to the last one, when the live one is looked for.
const MAX_SUCCESSORS: usize = 100;

/// The next number in each bucket that was written to.
pub(super) type Numbers = HashMap<Bucket, u64>;

impl Write<'_> {
    /// Takes the next place of a bucket, and returns the table for it.
    fn place(&mut self, bucket: Bucket) -> Result<(Place, Table), StoreError> {
        let number = match self.numbers.get(&bucket) {
            Some(number) => *number,
            None => self.next_number(bucket)?,
        };
        if number > Place::MAX_NUMBER {
            return Err(StoreError::Storage("a bucket is full".to_owned()));
        }
        self.numbers.insert(bucket, number + 1);
        let place = Place { bucket, number };
        if let Some(table) = self.shared.tables.at(&self.map, place) {
            return Ok((place, table));
        }
        let part = place.part();
        let table = self.change(|shared, txn, map| shared.tables.add(txn, map, bucket, part))?;
        Ok((place, table))
    }

    fn next_number(&self, bucket: Bucket) -> Result<u64, StoreError> {
        let parts = &self.map.parts;
        let mut parts = parts.range((bucket, 0)..=(bucket, u64::MAX));
        let Some(((_, part), _)) = parts.next_back() else {
            return Ok(0);
        };
        let Some(table) = self.shared.tables.part(&self.map, bucket, *part) else {
            return Ok(0);
        };
        let mut next = Place::first_of(*part);
        for kind in [CODE, ROW] {
            let range = (
                Bound::Included(&[kind][..]),
                Bound::Excluded(&[kind + 1][..]),
            );
            let last = table.rev_range(&self.txn, &range).map_err(storage)?.next();
            if let Some(entry) = last {
                let (key, _) = entry.map_err(storage)?;
                let number = key.last_chunk().ok_or(StoreError::Damaged)?;
                next = next.max(u64::from_be_bytes(*number) + 1);
            }
        }
        Ok(next)
    }

    pub(super) fn issue(&mut self, token: &NewToken, now: i64) -> Result<Issued, StoreError> {
        self.issue_in(None, token, now)
    }

    /// Issues a token that belongs to the grant with this first row.
    fn issue_in(
        &mut self,
        family: Option<Uuid>,
        token: &NewToken,
        now: i64,
    ) -> Result<Issued, StoreError> {
        self.need_room()?;
        let (place, table) = self.place(Bucket::of(now, token.ends(now)))?;
        let id = place.id(random_id_bits()?);
        let access_token = Made::at(place)?;
        let refresh_token = token
            .with_refresh_token
            .then(|| Made::at(place))
            .transpose()?;
        let keys = &self.shared.keys;
        let mut row = Row {
            id,
            state: State::Live,
            access: keys.mac(access_token.0.as_bytes()),
            refresh: (refresh_token.as_ref()).map(|token| keys.mac(token.0.as_bytes())),
            credential: token.credential,
            service: token.service,
            created_at: now,
            expires_in: token.expires_in,
            ends: token.ends(now),
            successor: None,
            family,
            scope: token.scope.clone(),
            authenticated_userid: token.authenticated_userid.clone(),
            sealed: None,
        };
        let refresh = refresh_token.as_ref().map(Made::known);
        let access = access_token.known();
        row.keep(&access, refresh.as_ref(), keys, self.shared.storage)?;
        let value = row.encode();
        self.list(table, &row, place.number, true)?;
        self.append(table, &key(ROW, place.number), &value)?;
        self.count_placed(place, 1)?;
        Ok(Issued {
            id,
            access_token,
            refresh_token,
            created_at: now,
        })
    }

    pub(super) fn issue_code(&mut self, code: &NewCode, now: i64) -> Result<Made, StoreError> {
        self.need_room()?;
        let ends = now.saturating_add(code.ttl);
        let (place, table) = self.place(Bucket::of(now, Some(ends)))?;
        let made = Made::at(place)?;
        let row = CodeRow {
            id: place.id(random_id_bits()?),
            mac: self.shared.keys.mac(made.0.as_bytes()),
            ends,
            token: None,
            code: code.clone(),
        };
        self.put(table, &key(CODE, place.number), &row.encode()?)?;
        Ok(made)
    }

    pub(super) fn take_code(
        &mut self,
        code: &str,
        token: &NewToken,
        revoke_on_replay: bool,
        now: i64,
    ) -> Result<Option<Issued>, StoreError> {
        let found = self.view().code(code)?;
        let of_client = found.filter(|(_, row)| row.code.credential == token.credential);
        let Some((place, mut row)) = of_client else {
            return Ok(None);
        };
        if let Some(token) = row.token {
            if revoke_on_replay {
                self.revoke_successor(token, now)?;
            }
            return Ok(None);
        }
        let Some(table) = self
            .shared
            .tables
            .at(&self.map, place)
            .filter(|_| now < row.ends)
        else {
            return Ok(None);
        };
        let issued = self.issue(token, now)?;
        row.token = Some(issued.id);
        self.put(table, &key(CODE, place.number), &row.encode()?)?;
        Ok(Some(issued))
    }

    pub(super) fn refresh(
        &mut self,
        refresh_token: &str,
        token: &NewToken,
        now: i64,
    ) -> Result<RefreshOutcome, StoreError> {
        let found = self.view().by_refresh(refresh_token)?;
        let Some((at, mut row)) = found.filter(|(_, row)| row.is_there(now)) else {
            let last = self.view().last_of_spent(refresh_token, now)?;
            return Ok(last.map_or(RefreshOutcome::Unknown, |last| {
                RefreshOutcome::Replayed(last.id)
            }));
        };
        match row.state {
            State::Live => {}
            State::Superseded => return Ok(RefreshOutcome::Replayed(row.id)),
            State::Revoked => return Ok(RefreshOutcome::Unknown),
        }
        let issued = self.supersede(at, &mut row, token, now)?;
        Ok(RefreshOutcome::Issued(issued))
    }

    pub(super) fn refresh_again(
        &mut self,
        id: Uuid,
        token: &NewToken,
        within: i64,
        now: i64,
    ) -> Result<Option<Issued>, StoreError> {
        let used = self.view().by_id(id)?.map(|(_, row)| row);
        let used = used.filter(|row| row.state == State::Superseded && row.is_there(now));
        let Some(successor) = used.and_then(|row| row.successor) else {
            return Ok(None);
        };
        let found = self.view().by_id(successor)?;
        let is_recent = |row: &Row| now.saturating_sub(row.created_at) < within;
        let Some((at, mut row)) = found.filter(|(_, row)| row.is_live(now) && is_recent(row))
        else {
            return Ok(None);
        };
        let issued = self.supersede(at, &mut row, token, now)?;
        // This row was replaced before it was used. If its refresh token comes, both answers have arrived, and one of
        // them at somebody else. So it leads nowhere that a lost answer could be repeated from.
        row.successor = None;
        self.end_row(at, &mut row, State::Superseded)?;
        Ok(Some(issued))
    }

    /// Issues the row that follows another one.
    fn supersede(
        &mut self,
        at: At,
        row: &mut Row,
        token: &NewToken,
        now: i64,
    ) -> Result<Issued, StoreError> {
        let family = row.family.unwrap_or(row.id);
        let issued = self.issue_in(Some(family), token, now)?;
        self.note_spent(at, row, issued.id, token.ends(now), now)?;
        row.successor = Some(issued.id);
        self.end_row(at, row, State::Superseded)?;
        Ok(issued)
    }

    pub(super) fn renew(
        &mut self,
        refresh_token: &str,
        expires_in: i64,
        ttl: Option<i64>,
        now: i64,
    ) -> Result<Option<Issued>, StoreError> {
        let found = self.view().by_refresh(refresh_token)?;
        let Some((at, old)) = found.filter(|(_, row)| row.is_live(now)) else {
            return Ok(None);
        };
        self.need_room()?;
        let access_token = Made::loose()?;
        let keys = &self.shared.keys;
        let mut row = Row {
            access: keys.mac(access_token.0.as_bytes()),
            created_at: now,
            expires_in,
            ends: ttl.map(|ttl| now.saturating_add(ttl)),
            sealed: None,
            ..old.clone()
        };
        row.keep(
            &access_token.known(),
            Some(&Known::Text(refresh_token.to_owned())),
            keys,
            self.shared.storage,
        )?;
        self.make_way(at, old, row.id)?;
        self.insert_loose(&row)?;
        Ok(Some(Issued {
            id: row.id,
            access_token,
            refresh_token: Some(Made(refresh_token.to_owned())),
            created_at: now,
        }))
    }

    pub(super) fn revoke(&mut self, id: Uuid, now: i64) -> Result<bool, StoreError> {
        let found = self.view().by_id(id)?;
        let Some((at, mut row)) = found.filter(|(_, row)| row.is_live(now)) else {
            return Ok(false);
        };
        self.end_row(at, &mut row, State::Revoked)?;
        Ok(true)
    }

    pub(super) fn revoke_successor(&mut self, id: Uuid, now: i64) -> Result<bool, StoreError> {
        let mut at = id;
        for _ in 0..MAX_SUCCESSORS {
            let Some((_, row)) = self.view().by_id(at)? else {
                return Ok(false);
            };
            match row.state {
                State::Live => return self.revoke(at, now),
                State::Revoked => return Ok(false),
                State::Superseded => {}
            }
            // The note of the grant leads to its last row. Rows in between may be many, and some may be gone.
            let last = self.view().last_of(row.family.unwrap_or(row.id), now)?;
            let last = last.map(|last| last.id).filter(|last| *last != at);
            match last.or(row.successor) {
                Some(next) => at = next,
                None => return Ok(false),
            }
        }
        Err(StoreError::Storage("a grant has too many rows".to_owned()))
    }

    /// Gives a row another state.
    fn end_row(&mut self, at: At, row: &mut Row, state: State) -> Result<(), StoreError> {
        let was_live = row.state == State::Live;
        row.state = state;
        // The texts of a token that nobody may use are of no use either.
        row.sealed = None;
        let value = row.encode();
        match at {
            At::Loose(access) => {
                self.put(self.shared.tables.loose.rows, &access, &value)?;
                self.count_loose(row.ends, -i64::from(was_live))
            }
            At::Place(place) => {
                let table = self.shared.tables.at(&self.map, place);
                let table = table.ok_or(StoreError::Damaged)?;
                self.put(table, &key(ROW, place.number), &value)?;
                self.count_placed(place, -i64::from(was_live))
            }
        }
    }

    /// Takes a row out of the way of a loose one with this id, which has its id or one of its tokens.
    pub(super) fn make_way(&mut self, at: At, mut row: Row, of: Uuid) -> Result<(), StoreError> {
        match at {
            At::Loose(_) => self.remove_loose(&row),
            At::Place(_) => {
                if row.id == of {
                    row.successor = Some(of);
                }
                self.end_row(at, &mut row, State::Superseded)
            }
        }
    }

    fn count_placed(&mut self, place: Place, change: i64) -> Result<(), StoreError> {
        self.change(|_, _, map| {
            let part = map.parts.get_mut(&(place.bucket, place.part()));
            let part = part.ok_or(StoreError::Damaged)?;
            part.live = part.live.saturating_add_signed(change);
            Ok(())
        })
    }

    fn count_loose(&mut self, ends: Option<i64>, change: i64) -> Result<(), StoreError> {
        self.change(|_, _, map| {
            map.loose = map.loose.saturating_add_signed(change);
            if ends.is_none() {
                map.loose_endless = map.loose_endless.saturating_add_signed(change);
            }
            Ok(())
        })
    }

    pub(super) fn insert_loose(&mut self, row: &Row) -> Result<(), StoreError> {
        let loose = &self.shared.tables.loose;
        self.put(loose.rows, &row.access, &row.encode())?;
        self.put(loose.ids, row.id.as_bytes(), &row.access)?;
        if let Some(refresh) = &row.refresh {
            self.put(loose.refresh, refresh, &row.access)?;
        }
        for key in owner_keys(row) {
            self.put(loose.owners, &key, &[])?;
        }
        if let Some(ends) = row.ends {
            self.put(loose.ends, &end_key(ends, &row.access), &[])?;
        }
        self.count_loose(row.ends, 1)
    }

    fn remove_loose(&mut self, row: &Row) -> Result<(), StoreError> {
        let loose = &self.shared.tables.loose;
        self.delete(loose.rows, &row.access)?;
        self.delete(loose.ids, row.id.as_bytes())?;
        if let Some(refresh) = &row.refresh {
            self.delete(loose.refresh, refresh)?;
        }
        for key in owner_keys(row) {
            self.delete(loose.owners, &key)?;
        }
        if let Some(ends) = row.ends {
            self.delete(loose.ends, &end_key(ends, &row.access))?;
        }
        self.count_loose(row.ends, -i64::from(row.state == State::Live))
    }

    pub(super) fn expire(&mut self, now: i64) -> Result<bool, StoreError> {
        // Commits of another process do not end the transactions of this one.
        self.shared.readers.release_idle();
        let is_over = |bucket: &Bucket| bucket.end().is_some_and(|end| end <= now);
        let mut over = self.map.parts.keys().filter(|(bucket, _)| is_over(bucket));
        if let Some((bucket, part)) = over.next().copied() {
            self.change(|shared, txn, map| shared.tables.drop_part(txn, map, bucket, part))?;
            self.numbers.remove(&bucket);
            return Ok(true);
        }
        let loose = &self.shared.tables.loose;
        let last = now.to_be_bytes();
        let range = (Bound::Unbounded, Bound::Excluded(&last[..]));
        let mut ended = Vec::new();
        for entry in loose
            .ends
            .range(&self.txn, &range)
            .map_err(storage)?
            .take(EXPIRED_AT_ONCE)
        {
            let (key, _) = entry.map_err(storage)?;
            let access: &[u8; MAC] = key.last_chunk().ok_or(StoreError::Damaged)?;
            ended.push(*access);
        }
        for access in &ended {
            if let Some((_, row)) = self.view().loose_access(access)? {
                self.remove_loose(&row)?;
            }
        }
        let spent = self.forget_spent(EXPIRED_AT_ONCE, now)?;
        Ok(ended.len().max(spent) == EXPIRED_AT_ONCE)
    }
}

fn owner_keys(row: &Row) -> Vec<[u8; 33]> {
    let id = *row.id.as_bytes();
    let mut keys = vec![owner_key(OF_CREDENTIAL, row.credential.id, id)];
    keys.extend(
        row.service
            .map(|service| owner_key(OF_SERVICE, service.id, id)),
    );
    keys
}

fn end_key(ends: i64, access: &[u8; MAC]) -> [u8; 8 + MAC] {
    let mut key = [0; 8 + MAC];
    // Times before 1970 are over as well.
    key[..8].copy_from_slice(&ends.max(0).to_be_bytes());
    key[8..].copy_from_slice(access);
    key
}
