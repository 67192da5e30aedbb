//! The store of this node: the entity tables and the local change log in one LMDB file.

use crate::change::{ChangeSet, Origin, Revision};
use crate::change_log::{ChangeLog, ChangeLogError, Changes};
use crate::env::{self, Environment, ReadOnly, Recovery};
use crate::error::{CommitError, Damage, OpenError, StoreError};
use crate::header::FORMAT;
use crate::keys;
use crate::map;
use crate::past::Difference;
use crate::reader::{Reader, Slot};
use crate::rules::KINDS;
use crate::view::View;
use model::EntityKind;
use rustix::mm::{Advice, madvise};
use std::cmp::Ordering::{Equal, Less};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::watch;
use uuid::Uuid;

/// 64 GiB of address space on 64-bit machines. The module `env` explains why it is reserved at once.
#[cfg(target_pointer_width = "64")]
pub const DEFAULT_MAX_SIZE: usize = 64 << 30;
#[cfg(not(target_pointer_width = "64"))]
pub const DEFAULT_MAX_SIZE: usize = 1 << 30;

/// Limits of the history. The newest state is always kept. Compaction also keeps the record of the newest revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    pub revisions: u64,
    /// Maximum age of a revision.
    pub age: Duration,
    /// Maximum total size of all records in bytes, including keys. A record that alone needs more is not written.
    pub bytes: u64,
}

impl Retention {
    pub(crate) const NOTHING: Self = Self {
        revisions: 0,
        age: Duration::ZERO,
        bytes: 0,
    };
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            revisions: 10_000,
            age: Duration::MAX,
            bytes: 256 << 20,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Maximum size of the file; beyond it, writes fail with [`CommitError::Full`].
    pub max_size: usize,
    pub retention: Retention,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_size: DEFAULT_MAX_SIZE,
            retention: Retention::default(),
        }
    }
}

/// An open store. Clones share the open file. It is closed when the last clone and the last [`Reader`] are dropped.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) environment: Environment,
    pub(crate) retention: Retention,
    /// The newest revision.
    head: AtomicU64,
    /// For each entity type, the newest revision that may have changed one of its entities.
    changed: [AtomicU64; KINDS],
    /// Number of write transactions that this process has noticed, including those without a revision. Before every
    /// lookup, a reader compares it with the number at which its own read transaction began.
    transactions: AtomicU64,
    watch: watch::Sender<Revision>,
    /// Locked during a write transaction. LMDB allows only one, but its own lock is not fair to threads of one process.
    pub(crate) writing: Mutex<()>,
    readers: Mutex<Vec<Weak<Slot>>>,
}

impl Store {
    /// Opens the store in a directory, which is created if it is missing. A damaged file is renamed and an empty store
    /// is opened; the [`Recovery`] reports this. A file of another program or version is an error.
    pub fn open(directory: &Path, options: Options) -> Result<(Store, Recovery), OpenError> {
        let max_size = options.max_size.next_multiple_of(MAP_GRANULE);
        let (environment, header, recovery) = env::open(directory, max_size)?;
        let store = Self::new(environment, options, header.revision);
        if header.format < FORMAT
            && let Err(error) = store.convert()
        {
            // The store works in the older format too, only slower.
            tracing::warn!(%error, format = header.format, "the store cannot be converted to the newest format");
        }
        Ok((store, recovery))
    }

    /// Whether a directory contains a store, even a damaged one.
    pub fn exists(directory: &Path) -> bool {
        env::exists_in(directory)
    }

    /// Opens a store that another process has open. `lock` comes from [`Store::lend`] in that process. Each process
    /// notices the other's commits with [`Store::refresh`].
    pub fn join(directory: &Path, options: Options, lock: File) -> Result<Store, OpenError> {
        let max_size = options.max_size.next_multiple_of(MAP_GRANULE);
        let (environment, header) = env::join(directory, max_size, lock)?;
        Ok(Self::new(environment, options, header.revision))
    }

    fn new(environment: Environment, options: Options, head: u64) -> Self {
        let inner = Inner {
            environment,
            retention: options.retention,
            head: AtomicU64::new(head),
            changed: std::array::from_fn(|_| AtomicU64::new(head)),
            transactions: AtomicU64::new(0),
            watch: watch::Sender::new(Revision(head)),
            writing: Mutex::new(()),
            readers: Mutex::default(),
        };
        Store {
            inner: Arc::new(inner),
        }
    }

    /// Returns the lock on the store, for a process that calls [`Store::join`]. The store is locked until every process
    /// has closed the lock.
    pub fn lend(&self) -> std::io::Result<File> {
        self.inner.environment.lend()
    }

    /// Notices the commits of other processes and returns the newest revision.
    pub fn refresh(&self) -> Result<Revision, StoreError> {
        let newest = self.view()?.revision();
        if newest > self.inner.head() {
            self.inner.note_changes(newest, EntityKind::all());
            self.inner.publish(newest);
        }
        Ok(newest)
    }

    /// Returns the newest revision that may have changed an entity of this type. Entities of the type that were read at
    /// this revision or later are still current.
    pub fn last_change(&self, kind: EntityKind) -> Revision {
        Revision(self.inner.changed[kind.index()].load(Ordering::Acquire))
    }

    /// Lets LMDB reuse the pages that processes were reading when they ended without closing the store.
    pub fn forget_dead_processes(&self) -> Result<(), StoreError> {
        self.inner.environment.env.clear_stale_readers()?;
        Ok(())
    }

    /// Returns a view of the newest revision. This briefly takes a lock that all threads share; workers use a
    /// [`Reader`].
    pub fn view(&self) -> Result<View<'_>, StoreError> {
        let environment = &self.inner.environment;
        View::new(environment.env.read_txn()?, &environment.tables)
    }

    /// Creates a reader for one worker.
    pub fn reader(&self) -> Reader {
        let reader = Reader::new(Arc::clone(&self.inner));
        let mut readers = lock(&self.inner.readers);
        readers.retain(|reader| reader.strong_count() > 0);
        readers.push(reader.slot());
        drop(readers);
        reader
    }

    /// The directory of the store.
    pub fn directory(&self) -> &Path {
        self.inner.environment.env.path()
    }

    /// Size of the file in bytes.
    pub fn size(&self) -> Result<u64, StoreError> {
        Ok(self.inner.environment.env.real_disk_size()?)
    }

    /// Returns how much of the store is used.
    pub fn usage(&self) -> Result<Usage, StoreError> {
        let environment = &self.inner.environment;
        let info = environment.env.info();
        let header = self.view()?.header()?;
        let pages = info.last_page_number as u64 + 1;
        Ok(Usage {
            limit: environment.max_size as u64,
            file: environment.env.real_disk_size()?,
            used: pages * rustix::param::page_size() as u64,
            history: header.history_bytes,
            revisions: header.revision - header.floor,
            readers: info.number_of_readers,
            max_readers: info.maximum_number_of_readers,
        })
    }

    /// Releases the file's pages from this process's resident memory. Use it after a pass over all entities, because a
    /// running gateway reads few of them. With 50,000 entities it releases 14 MB. Pages that are read again are mapped
    /// from the system's cache.
    pub fn release_resident_pages(&self) {
        let map = match map::find(&self.inner.environment) {
            Ok(Some(map)) => map,
            Ok(None) => return tracing::debug!("the store's map is not found"),
            Err(error) => return tracing::debug!(%error, "the store's map is not found"),
        };
        let start = std::ptr::with_exposed_provenance_mut(map.start);
        // SAFETY: the system reports the range as a shared, read-only map of a file. A value of LMDB is in it, so it is
        // LMDB's map, which exists as long as the environment. For such a map this advice only drops page table
        // entries, and concurrent readers fault them in again.
        #[expect(unsafe_code, reason = "advice about LMDB's map")]
        let result = unsafe { madvise(start, map.len(), Advice::LinuxDontNeed) };
        if let Err(error) = result {
            tracing::debug!(%error, "madvise");
        }
    }

    /// Maximum size of the file: the configured size, or less if address space is limited.
    pub fn max_size(&self) -> usize {
        self.inner.environment.max_size
    }

    #[cfg(test)]
    pub(crate) fn environment(&self) -> &Environment {
        &self.inner.environment
    }
}

/// How much of a store is used. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The most that the file may have.
    pub limit: u64,
    pub file: u64,
    /// The pages up to the last one that was ever used. Pages among them may be free again.
    pub used: u64,
    /// The history of changes.
    pub history: u64,
    /// Number of revisions whose changes are kept.
    pub revisions: u64,
    /// Places of readers that are taken, by all processes that have the store open.
    pub readers: u32,
    pub max_readers: u32,
}

/// An existing store that is only read, also while another process serves it. No file is created, changed or renamed.
#[derive(Debug)]
pub struct Inspection {
    opened: ReadOnly,
}

impl Inspection {
    pub fn open(directory: &Path, options: Options) -> Result<Self, OpenError> {
        let max_size = options.max_size.next_multiple_of(MAP_GRANULE);
        let opened = env::inspect(directory, max_size)?;
        Ok(Self { opened })
    }

    /// Returns a view of the newest revision. Until the view is dropped, another process that writes cannot reuse the
    /// pages of this revision.
    pub fn view(&self) -> Result<View<'_>, StoreError> {
        View::new(self.opened.env.read_txn()?, &self.opened.tables)
    }
}

/// A multiple of the page size of every system.
const MAP_GRANULE: usize = 1 << 16;

impl ChangeLog for Store {
    fn commit(
        &self,
        expected_head: Option<Revision>,
        change_set: ChangeSet,
        origin: &Origin,
    ) -> Result<Revision, CommitError> {
        self.transact(&mut |transaction| {
            if let Some(expected) = expected_head {
                transaction.expect_head(expected)?;
            }
            transaction.apply(&change_set)?;
            transaction.seal(origin)?;
            Ok(transaction.head())
        })
    }

    fn changes_since(&self, revision: Revision) -> Result<Changes, ChangeLogError> {
        let view = self.view()?;
        let change_set = view.history()?.changes_since(revision)?;
        Ok(Changes {
            from: revision,
            to: view.revision(),
            change_set,
        })
    }

    fn snapshot_at(
        &self,
        revision: Revision,
        visit: &mut dyn FnMut(EntityKind, Uuid, &[u8]),
    ) -> Result<(), ChangeLogError> {
        let view = self.view()?;
        let history = view.history()?;
        let mut then = history.diff(history.newest(), revision, None)?.peekable();
        let mut show = |kind, id, entity: Option<&[u8]>| {
            if let Some(entity) = entity {
                visit(kind, id, entity);
            }
        };
        let entries = view.tables().entities.iter(view.txn());
        for entry in entries.map_err(StoreError::from)? {
            let (key, now) = entry.map_err(StoreError::from)?;
            let damage = StoreError::Damaged(Damage::Entry { table: "entities" });
            let (kind, id) = keys::parse_entity(key).ok_or(damage)?;
            let place = |one: &Result<Difference<'_>, _>| match one {
                Ok(one) => (one.kind.number(), one.id).cmp(&(kind.number(), id)),
                Err(_) => Less,
            };
            while let Some(gone) = then.next_if(|one| place(one) == Less) {
                let gone = gone?;
                show(gone.kind, gone.id, gone.after);
            }
            let changed = then.next_if(|one| place(one) == Equal).transpose()?;
            show(kind, id, changed.map_or(Some(now), |changed| changed.after));
        }
        for gone in then {
            let gone = gone?;
            show(gone.kind, gone.id, gone.after);
        }
        Ok(())
    }

    fn watch(&self) -> watch::Receiver<Revision> {
        self.inner.watch.subscribe()
    }

    fn head(&self) -> Revision {
        self.inner.head()
    }
}

impl Inner {
    pub(crate) fn head(&self) -> Revision {
        Revision(self.head.load(Ordering::Acquire))
    }

    /// Records the types that a revision may have changed. Must be called before the revision is published, so that no
    /// cached entity of an older revision counts as current. A newer revision that another thread has recorded stays.
    pub(crate) fn note_changes(
        &self,
        revision: Revision,
        kinds: impl IntoIterator<Item = EntityKind>,
    ) {
        for kind in kinds {
            self.changed[kind.index()].fetch_max(revision.0, Ordering::AcqRel);
        }
    }

    /// Makes a revision the newest one, unless another thread has published a newer one.
    pub(crate) fn publish(&self, revision: Revision) {
        self.head.fetch_max(revision.0, Ordering::AcqRel);
        self.watch.send_if_modified(|head| {
            let is_newer = *head < revision;
            *head = revision.max(*head);
            is_newer
        });
        self.committed();
    }

    /// Makes idle readers release the pages of old revisions. Called after every write transaction.
    pub(crate) fn committed(&self) {
        let newest = self.transactions.fetch_add(1, Ordering::AcqRel) + 1;
        let readers = lock(&self.readers);
        for slot in readers.iter().filter_map(Weak::upgrade) {
            slot.release_if_idle(newest);
        }
    }

    pub(crate) fn transactions(&self) -> u64 {
        self.transactions.load(Ordering::Acquire)
    }
}

/// Locks a mutex and ignores poisoning. This is safe because a panic drops the transaction, which undoes its changes.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{Options, Store};
    use crate::{ChangeLog, Revision};
    use model::EntityKind;

    #[test]
    fn a_thread_that_publishes_late_does_not_bring_an_older_revision_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let (store, _) = Store::open(directory.path(), Options::default()).expect("a new store");
        let mut watch = store.watch();
        for revision in [Revision(3), Revision(2)] {
            store.inner.note_changes(revision, [EntityKind::Consumers]);
            store.inner.publish(revision);
        }
        assert_eq!(store.last_change(EntityKind::Consumers), Revision(3));
        assert_eq!(store.head(), Revision(3));
        assert_eq!(*watch.borrow_and_update(), Revision(3));
        store.inner.publish(Revision(3));
        assert!(!watch.has_changed().expect("the store is open"));
    }
}
