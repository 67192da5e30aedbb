//! The tables of the environment, and which of them hold which part of which bucket.

use super::spent::Spent;
use crate::place::{Bucket, Place};
use crate::store::StoreError;
use arc_swap::ArcSwap;
use heed::types::Bytes;
use heed::{CommitOrAbort, Env, EnvOpenOptions, MdbError, RoTxn, RwTxn, WithoutTls};
use std::collections::{BTreeMap, HashSet};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

pub(super) type Table = heed::Database<'static, Bytes, Bytes>;

/// Tables for parts of buckets. A hundred buckets are in use at most; the others are for their further parts. Each makes
/// the begin of a transaction slower by about a nanosecond.
const PARTS: usize = 2000;

const DIRECTORY: &str = "directory";

/// The format of the store, which changes with the layout of its tables, keys and rows. Stores of the first format have no
/// number.
pub(super) const VERSION: u64 = 2;

/// The other tables. Loose rows are described at [`Loose`].
const OTHERS: [&str; 9] = [
    DIRECTORY,
    "loose",
    "loose-refresh",
    "loose-ids",
    "loose-owners",
    "loose-ends",
    "spent",
    "spent-ends",
    "spent-last",
];

const TABLES: usize = PARTS + OTHERS.len();

const MAX_READERS: u32 = 1024;

/// Kinds of keys in a part. Rows are last, so that new ones are at the end of the table.
pub(super) const CODE: u8 = 1;
pub(super) const OF_CREDENTIAL: u8 = 2;
pub(super) const OF_SERVICE: u8 = 3;
pub(super) const ROW: u8 = 4;

/// The open environment.
pub(super) struct Tables {
    pub(super) env: Env<WithoutTls>,
    parts: Vec<Table>,
    /// Part of a bucket to the number of its table.
    directory: Table,
    /// What the directory says. It is replaced after each commit that changes it.
    pub(super) map: ArcSwap<Map>,
    pub(super) loose: Loose,
    pub(super) spent: Spent,
}

/// The tables of loose rows.
#[derive(Clone, Copy)]
pub(super) struct Loose {
    /// Hash of the access token to the row.
    pub(super) rows: Table,
    /// Hash of the refresh token to that of the access token.
    pub(super) refresh: Table,
    /// Id to the hash of the access token.
    pub(super) ids: Table,
    /// Kind, id of the owner, id.
    pub(super) owners: Table,
    /// End and hash of the access token.
    pub(super) ends: Table,
}

/// What the directory says.
#[derive(Debug, Clone, Default)]
pub(super) struct Map {
    /// Changes with the tables of parts. Another process may have changed them.
    pub(super) generation: u64,
    pub(super) parts: BTreeMap<(Bucket, u64), Part>,
    /// Live rows among the loose ones.
    pub(super) loose: u64,
    /// Live loose rows that never end.
    pub(super) loose_endless: u64,
}

/// A part of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// The number of its table.
    pub(super) table: usize,
    /// Its live rows.
    pub(super) live: u64,
}

impl Tables {
    pub(super) fn open(directory: &Path, max_size: usize) -> Result<Self, StoreError> {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory);
        made.map_err(|error| StoreError::Storage(format!("{}: {error}", directory.display())))?;
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options
            .map_size(max_size)
            .max_readers(MAX_READERS)
            .max_dbs(TABLES as u32);
        #[expect(
            unsafe_code,
            reason = "LMDB maps a file, which no other program may change"
        )]
        // SAFETY: the directory is the store's own, and only its owner may write there.
        let env = unsafe { options.open(directory) }.map_err(storage)?;
        let txn = env.write_txn().map_err(storage)?;
        let created = env.create_databases_and_commit(txn, |opener, txn| {
            // Before anything is changed: a store in another format stays as it is.
            let directory = opener.create_database(txn, Some(DIRECTORY))?;
            if let Err(error) = check_format(txn, directory) {
                return Ok(CommitOrAbort::Abort(error));
            }
            let parts = (0..PARTS).map(|number| format!("part-{number}"));
            let others = OTHERS.map(str::to_owned);
            let mut created = Vec::with_capacity(TABLES);
            for name in parts.chain(others) {
                created.push(opener.create_database(txn, Some(&name))?);
            }
            let created: Result<[_; TABLES], _> = created.try_into();
            let created = created.map_err(|_| heed::Error::Mdb(MdbError::Problem))?;
            Ok::<_, heed::Error>(CommitOrAbort::Commit(created))
        });
        let mut parts: Vec<Table> = match created.map_err(storage)? {
            CommitOrAbort::Commit(created) => created.into(),
            CommitOrAbort::Abort(error) => return Err(error),
        };
        let others = parts.split_off(PARTS).try_into();
        let others: [Table; OTHERS.len()] = others.map_err(|_| StoreError::Damaged)?;
        let [
            directory,
            rows,
            refresh,
            ids,
            owners,
            ends,
            spent,
            spent_ends,
            last,
        ] = others;
        let loose = Loose {
            rows,
            refresh,
            ids,
            owners,
            ends,
        };
        let txn = env.read_txn().map_err(storage)?;
        let map = read_map(&txn, directory)?;
        drop(txn);
        Ok(Self {
            env,
            parts,
            directory,
            map: ArcSwap::from_pointee(map),
            loose,
            spent: Spent {
                tokens: spent,
                ends: spent_ends,
                last,
            },
        })
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Table> {
        let Loose {
            rows,
            refresh,
            ids,
            owners,
            ends,
        } = self.loose;
        let Spent {
            tokens,
            ends: spent_ends,
            last,
        } = self.spent;
        let others = [rows, refresh, ids, owners, ends, tokens, spent_ends, last];
        self.parts
            .iter()
            .copied()
            .chain(others)
            .chain([self.directory])
    }

    /// Returns the table of a part.
    pub(super) fn part(&self, map: &Map, bucket: Bucket, part: u64) -> Option<Table> {
        let part = map.parts.get(&(bucket, part))?;
        self.parts.get(part.table).copied()
    }

    /// Returns the table of a place.
    pub(super) fn at(&self, map: &Map, place: Place) -> Option<Table> {
        self.part(map, place.bucket, place.part())
    }

    /// Returns the map of a transaction, which is `known` unless another process has changed the tables of parts.
    pub(super) fn map_of(
        &self,
        txn: &RoTxn<'_>,
        known: &Arc<Map>,
    ) -> Result<Option<Arc<Map>>, StoreError> {
        if read_generation(txn, self.directory)? == known.generation {
            return Ok(None);
        }
        Ok(Some(Arc::new(self.read_map(txn)?)))
    }

    pub(super) fn read_map(&self, txn: &RoTxn<'_>) -> Result<Map, StoreError> {
        read_map(txn, self.directory)
    }

    /// Takes a free table for a part.
    pub(super) fn add(
        &self,
        txn: &mut RwTxn<'_>,
        map: &mut Map,
        bucket: Bucket,
        part: u64,
    ) -> Result<Table, StoreError> {
        let used: HashSet<usize> = map.parts.values().map(|used| used.table).collect();
        let free = (0..self.parts.len()).find(|number| !used.contains(number));
        let Some((number, table)) =
            free.and_then(|number| Some((number, *self.parts.get(number)?)))
        else {
            tracing::error!("all {PARTS} tables of the store of tokens are in use");
            return Err(StoreError::Full);
        };
        let taken = Part {
            table: number,
            live: 0,
        };
        map.parts.insert((bucket, part), taken);
        self.write_part(txn, (bucket, part), taken)?;
        self.next_generation(txn, map)?;
        Ok(table)
    }

    /// Empties the table of a part, which is free then.
    pub(super) fn drop_part(
        &self,
        txn: &mut RwTxn<'_>,
        map: &mut Map,
        bucket: Bucket,
        part: u64,
    ) -> Result<(), StoreError> {
        if let Some(table) = self.part(map, bucket, part) {
            table.clear(txn).map_err(storage)?;
            self.directory
                .delete(txn, &directory_key(bucket, part))
                .map_err(storage)?;
            map.parts.remove(&(bucket, part));
            self.next_generation(txn, map)?;
        }
        Ok(())
    }

    fn next_generation(&self, txn: &mut RwTxn<'_>, map: &mut Map) -> Result<(), StoreError> {
        map.generation = map.generation.wrapping_add(1);
        self.directory
            .put(txn, GENERATION, &map.generation.to_be_bytes())
            .map_err(storage)
    }

    fn write_part(
        &self,
        txn: &mut RwTxn<'_>,
        (bucket, part): (Bucket, u64),
        value: Part,
    ) -> Result<(), StoreError> {
        let value = pair([value.table as u64, value.live]);
        self.directory
            .put(txn, &directory_key(bucket, part), &value)
            .map_err(storage)
    }

    /// Writes the counts that differ from those before.
    pub(super) fn write_counts(
        &self,
        txn: &mut RwTxn<'_>,
        before: &Map,
        after: &Map,
    ) -> Result<(), StoreError> {
        for (key, part) in &after.parts {
            if before.parts.get(key) != Some(part) {
                self.write_part(txn, *key, *part)?;
            }
        }
        let loose = |map: &Map| [map.loose, map.loose_endless];
        if loose(before) != loose(after) {
            self.directory
                .put(txn, LOOSE, &pair(loose(after)))
                .map_err(storage)?;
        }
        Ok(())
    }
}

/// Refuses a store in another format, and notes the format of a new one.
fn check_format(
    txn: &mut RwTxn<'_>,
    directory: heed::Database<'_, Bytes, Bytes>,
) -> Result<(), StoreError> {
    let found = match directory.get(txn, FORMAT).map_err(storage)? {
        Some(stored) => {
            let stored = stored.try_into().map_err(|_| StoreError::Damaged)?;
            u64::from_be_bytes(stored)
        }
        // The first token writes to the directory.
        None if directory.is_empty(txn).map_err(storage)? => {
            let put = directory.put(txn, FORMAT, &VERSION.to_be_bytes());
            return put.map_err(storage);
        }
        None => 1,
    };
    match found == VERSION {
        true => Ok(()),
        false => Err(StoreError::Format {
            found,
            own: VERSION,
        }),
    }
}

/// Keys of the directory that are no parts.
const FORMAT: &[u8] = b"format";
const GENERATION: &[u8] = b"generation";
const LOOSE: &[u8] = b"loose";

fn directory_key(bucket: Bucket, part: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&bucket.to_bytes());
    key[4..].copy_from_slice(&part.to_be_bytes());
    key
}

fn read_generation(txn: &RoTxn<'_>, directory: Table) -> Result<u64, StoreError> {
    let stored = directory.get(txn, GENERATION).map_err(storage)?;
    let Some(stored) = stored else {
        return Ok(0);
    };
    let stored = stored.try_into().map_err(|_| StoreError::Damaged)?;
    Ok(u64::from_be_bytes(stored))
}

fn read_map(txn: &RoTxn<'_>, directory: Table) -> Result<Map, StoreError> {
    let mut map = Map {
        generation: read_generation(txn, directory)?,
        ..Map::default()
    };
    for entry in directory.iter(txn).map_err(storage)? {
        let (key, value) = entry.map_err(storage)?;
        if key == GENERATION || key == FORMAT {
            continue;
        }
        let [first, second] = parse_pair(value).ok_or(StoreError::Damaged)?;
        if key == LOOSE {
            (map.loose, map.loose_endless) = (first, second);
            continue;
        }
        let key = <[u8; 12]>::try_from(key).map_err(|_| StoreError::Damaged)?;
        let (Some(bucket), Some(part)) = (key.first_chunk(), key.last_chunk()) else {
            return Err(StoreError::Damaged);
        };
        let table = usize::try_from(first).ok().filter(|table| *table < PARTS);
        let value = Part {
            table: table.ok_or(StoreError::Damaged)?,
            live: second,
        };
        let key = (Bucket::from_bytes(*bucket), u64::from_be_bytes(*part));
        map.parts.insert(key, value);
    }
    Ok(map)
}

fn pair([first, second]: [u64; 2]) -> [u8; 16] {
    let mut value = [0; 16];
    value[..8].copy_from_slice(&first.to_be_bytes());
    value[8..].copy_from_slice(&second.to_be_bytes());
    value
}

fn parse_pair(value: &[u8]) -> Option<[u64; 2]> {
    let value: &[u8; 16] = value.try_into().ok()?;
    let (first, second) = (value.first_chunk()?, value.last_chunk()?);
    Some([u64::from_be_bytes(*first), u64::from_be_bytes(*second)])
}

/// The key of a row or a code.
pub(super) fn key(kind: u8, number: u64) -> [u8; 9] {
    let mut key = [kind; 9];
    key[1..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The key of a row among those of its owner.
pub(super) fn owner_key<const N: usize, const M: usize>(
    kind: u8,
    owner: uuid::Uuid,
    row: [u8; N],
) -> [u8; M] {
    const { assert!(M == 17 + N) };
    let mut key = [kind; M];
    key[1..17].copy_from_slice(owner.as_bytes());
    key[17..].copy_from_slice(&row);
    key
}

pub(super) fn storage(error: heed::Error) -> StoreError {
    match error {
        heed::Error::Mdb(MdbError::MapFull) => StoreError::Full,
        error => StoreError::Storage(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::Embedded;
    use crate::store::{NewToken, Owner, TokenStore};
    use crate::{Keys, Storage};
    use uuid::Uuid;

    const NOW: i64 = 1_767_225_600;

    fn open(directory: &Path) -> Result<Embedded, StoreError> {
        Embedded::open(directory, 1 << 28, Keys::new(&[7; 64], 1), Storage::Sealed)
    }

    /// Sets the number of the format, or removes it.
    fn number(store: &Embedded, format: Option<u64>) {
        let Tables { env, directory, .. } = &store.shared.tables;
        let mut txn = env.write_txn().unwrap();
        match format {
            Some(format) => directory.put(&mut txn, FORMAT, &format.to_be_bytes()),
            None => directory.delete(&mut txn, FORMAT).map(drop),
        }
        .unwrap();
        txn.commit().unwrap();
    }

    #[test]
    fn a_store_in_another_format_is_refused_and_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("tokens");
        // One that has never had a token has nothing in an earlier format.
        number(&open(&directory).unwrap(), None);
        let store = open(&directory).unwrap();
        let new = NewToken {
            credential: Owner {
                id: Uuid::from_u128(1),
                created: 7,
            },
            service: None,
            expires_in: 7200,
            with_refresh_token: false,
            ttl: None,
            scope: None,
            authenticated_userid: None,
        };
        let issued = store.issue(new, NOW).wait().unwrap();
        drop(store);
        let find = |store: &Embedded| {
            let found = store.find_by_access_token(&issued.access_token.0, NOW);
            found.wait().unwrap().map(|found| found.id)
        };
        for (format, expected) in [(None, 1), (Some(VERSION + 1), VERSION + 1)] {
            let store = open(&directory).unwrap();
            assert_eq!(find(&store), Some(issued.id));
            number(&store, format);
            drop(store);
            let file = || std::fs::read(directory.join("data.mdb")).unwrap();
            let before = file();
            let Err(StoreError::Format { found, own }) = open(&directory) else {
                panic!("it is refused");
            };
            assert_eq!((found, own), (expected, VERSION));
            assert!(file() == before, "the file is unchanged");
            repair(&directory);
        }
    }

    /// Sets the number of the format of a store that is refused.
    fn repair(path: &Path) {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(1 << 28).max_dbs(TABLES as u32);
        #[expect(unsafe_code, reason = "LMDB maps a file")]
        // SAFETY: nobody else uses the file.
        let env = unsafe { options.open(path) }.unwrap();
        let txn = env.write_txn().unwrap();
        let created = env.create_databases_and_commit(txn, |opener, txn| {
            let directory = opener.create_database::<Bytes, Bytes>(txn, Some(DIRECTORY))?;
            directory.put(txn, FORMAT, &VERSION.to_be_bytes())?;
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(directory))
        });
        created.unwrap().unwrap_commit();
    }
}
