//! Rows that were not issued here: imported ones, and those that the Admin API writes.

use super::reading::{At, View};
use super::writer::Write;
use crate::row::Row;
use crate::secret::MAC;
use crate::store::{self, ImportOutcome, Imported, Known, State, StoreError, WriteOutcome};
use uuid::Uuid;

type Found = (At, Row);

impl Write<'_> {
    pub(super) fn import(
        &mut self,
        rows: &[Imported],
        now: i64,
    ) -> Result<Vec<ImportOutcome>, StoreError> {
        rows.iter().map(|row| self.import_one(row, now)).collect()
    }

    fn import_one(&mut self, imported: &Imported, now: i64) -> Result<ImportOutcome, StoreError> {
        let row = self.row_of(imported);
        if !row.is_there(now) {
            return Ok(ImportOutcome::Expired);
        }
        let rivals = Rivals::of(&self.view(), &row, imported)?;
        let is_in_the_way = |other: &Row| other.is_there(now) && !is_orphan(other, &row);
        if let Some((_, other)) = &rivals.by_id
            && is_in_the_way(other)
        {
            return Ok(match other.state {
                State::Live if is_same(&row, other) => ImportOutcome::Present,
                State::Live => ImportOutcome::OtherContent,
                State::Superseded | State::Revoked => ImportOutcome::Ended,
            });
        }
        let mut others = rivals.by_access.iter().chain(&rivals.by_refresh);
        if others.any(|(_, other)| is_in_the_way(other)) {
            return Ok(ImportOutcome::OtherId);
        }
        self.insert(imported, row, rivals)?;
        Ok(ImportOutcome::Imported)
    }

    pub(super) fn write(
        &mut self,
        imported: &Imported,
        how: &store::Write,
        now: i64,
    ) -> Result<WriteOutcome, StoreError> {
        let row = self.row_of(imported);
        let rivals = Rivals::of(&self.view(), &row, imported)?;
        let own = rivals.by_id.as_ref().map(|(_, own)| own);
        let is_there = own.is_some_and(|own| own.is_there(now));
        match how {
            store::Write::Create if is_there => return Ok(WriteOutcome::IdTaken),
            store::Write::Replace { access_token } => {
                let mac = self.mac_of(access_token);
                if !own.is_some_and(|own| own.is_live(now) && own.has_access(&mac)) {
                    return Ok(WriteOutcome::NotFound);
                }
            }
            store::Write::Create | store::Write::Put => {}
        }
        let live_other = |found: &[Found]| {
            let mut others = found.iter().map(|(_, other)| other);
            let other = others.find(|other| other.id != row.id && other.is_live(now));
            other.map(|other| other.id)
        };
        if let Some(other) = live_other(&rivals.by_access) {
            return Ok(WriteOutcome::AccessTaken(other));
        }
        if let Some(other) = live_other(&rivals.by_refresh) {
            return Ok(WriteOutcome::RefreshTaken(other));
        }
        self.insert(imported, row, rivals)?;
        Ok(WriteOutcome::Written)
    }

    fn insert(
        &mut self,
        imported: &Imported,
        mut row: Row,
        rivals: Rivals,
    ) -> Result<(), StoreError> {
        self.need_room()?;
        row.family = rivals.by_id.as_ref().and_then(|(_, own)| own.family);
        let mut gone: Vec<At> = Vec::new();
        let others = rivals.by_access.into_iter().chain(rivals.by_refresh);
        for (at, other) in rivals.by_id.into_iter().chain(others) {
            // One row may have both tokens. A row with a place that only has the same tokens stays as it is.
            if !gone.contains(&at) && (other.id == row.id || matches!(at, At::Loose(_))) {
                gone.push(at);
                self.make_way(at, other, row.id)?;
            }
        }
        let (keys, storage) = (&self.shared.keys, self.shared.storage);
        let refresh = imported.refresh_token.as_ref();
        row.keep(&imported.access_token, refresh, keys, storage)?;
        self.insert_loose(&row)
    }

    fn mac_of(&self, known: &Known) -> [u8; MAC] {
        match known {
            Known::Text(text) => self.shared.keys.mac(text.as_bytes()),
            Known::Sha256(sha) => self.shared.keys.mac_of_digest(sha),
        }
    }

    fn row_of(&self, imported: &Imported) -> Row {
        Row {
            id: imported.id,
            state: State::Live,
            access: self.mac_of(&imported.access_token),
            refresh: (imported.refresh_token.as_ref()).map(|known| self.mac_of(known)),
            credential: imported.credential,
            service: imported.service,
            created_at: imported.created_at,
            expires_in: imported.expires_in,
            ends: imported.ends,
            successor: None,
            family: None,
            scope: imported.scope.clone(),
            authenticated_userid: imported.authenticated_userid.clone(),
            sealed: None,
        }
    }
}

/// The rows with the id or with one of the tokens of a row, whatever has become of them.
struct Rivals {
    by_id: Option<Found>,
    by_access: Vec<Found>,
    by_refresh: Vec<Found>,
}

impl Rivals {
    fn of(view: &View<'_>, row: &Row, imported: &Imported) -> Result<Self, StoreError> {
        // A row with a place is found by the text of its token only.
        let mut by_access = Vec::new();
        if let Known::Text(text) = &imported.access_token {
            by_access.extend(view.by_access(text)?);
        }
        by_access.extend(view.loose_access(&row.access)?);
        let mut by_refresh = Vec::new();
        if let Some(Known::Text(text)) = &imported.refresh_token {
            by_refresh.extend(view.by_refresh(text)?);
        }
        if let Some(refresh) = &row.refresh {
            by_refresh.extend(view.loose_refresh(refresh)?);
        }
        Ok(Self {
            by_id: view.by_id(row.id)?,
            by_access,
            by_refresh,
        })
    }
}

/// Whether a row belongs to an entity that was deleted, and made again with the same id. Nobody can use it.
fn is_orphan(other: &Row, row: &Row) -> bool {
    let differs = |id: Uuid, created: u64, other: Option<store::Owner>| {
        other.is_some_and(|other| other.id == id && other.created != created)
    };
    let credential = row.credential;
    differs(credential.id, credential.created, Some(other.credential))
        || row
            .service
            .is_some_and(|service| differs(service.id, service.created, other.service))
}

/// Whether an imported row says the same as one that is there. The end is not compared: exports show the seconds that are
/// left. Nor is the time of creation: a declarative file without it has another one each time it is loaded.
fn is_same(row: &Row, other: &Row) -> bool {
    let owner = |row: &Row| (row.credential.id, row.service.map(|service| service.id));
    row.access == other.access
        && row.refresh == other.refresh
        && owner(row) == owner(other)
        && row.expires_in == other.expires_in
        && row.scope == other.scope
        && row.authenticated_userid == other.authenticated_userid
}
