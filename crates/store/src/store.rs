//! The store of this node: the mirror and the local journal in one LMDB file.

use crate::change::{ChangeSet, Origin, Revision};
use crate::env::{self, Environment, Recovery};
use crate::error::{CommitError, Damage, OpenError, StoreError};
use crate::journal::{Changes, Journal, JournalError};
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

/// 64 GiB of address space on 64-bit machines; see the module `env` for why it is reserved at once.
#[cfg(target_pointer_width = "64")]
pub const DEFAULT_MAX_SIZE: usize = 64 << 30;
#[cfg(not(target_pointer_width = "64"))]
pub const DEFAULT_MAX_SIZE: usize = 1 << 30;

/// How much history is kept. The newest state and what is known of its revision are kept in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    pub revisions: u64,
    /// How long ago a revision may have been made.
    pub age: Duration,
    /// Bytes of replaced entities, and what leads to them. A revision that needs more alone is not kept.
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
    /// The file grows to at most this; then writes fail with [`CommitError::Full`].
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

/// An open store. Clones share it; the file is closed with the last clone and the last [`Reader`].
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
    /// By kind, the newest revision that may have changed any of its entities.
    changed: [AtomicU64; KINDS],
    /// Of LMDB's, whether they made a revision or not; a reader compares it with its own before every lookup.
    transactions: AtomicU64,
    watch: watch::Sender<Revision>,
    /// Held during a commit: LMDB has one writer, and its own lock is not fair to threads of one process.
    pub(crate) writing: Mutex<()>,
    readers: Mutex<Vec<Weak<Slot>>>,
}

impl Store {
    /// Opens the store in a directory, which is created when it is missing. A file that cannot be read is renamed, and the
    /// store that is opened is empty: look at the [`Recovery`].
    pub fn open(directory: &Path, options: Options) -> Result<(Store, Recovery), OpenError> {
        let max_size = options.max_size.next_multiple_of(MAP_GRANULE);
        let (environment, header, recovery) = env::open(directory, max_size)?;
        Ok((Self::new(environment, options, header.revision), recovery))
    }

    /// Whether there is a store in a directory, readable or not.
    pub fn exists(directory: &Path) -> bool {
        env::exists_in(directory)
    }

    /// Opens the store that another process has open, with the lock that it has lent ([`Store::lend`]). What either commits
    /// the other one sees after [`Store::refresh`].
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

    /// The lock on the store, for a process that is to [`Store::join`]. It holds until every process has closed it.
    pub fn lend(&self) -> std::io::Result<File> {
        self.inner.environment.lend()
    }

    /// Takes notice of what another process has committed, and gives the newest revision.
    pub fn refresh(&self) -> Result<Revision, StoreError> {
        let newest = self.view()?.revision();
        if newest > self.inner.head() {
            self.inner.note_changes(newest, EntityKind::ALL);
            self.inner.publish(newest);
        }
        Ok(newest)
    }

    /// The newest revision that may have changed an entity of this kind: what was read of the kind at it or later is what
    /// would be read now.
    pub fn last_change(&self, kind: EntityKind) -> Revision {
        Revision(self.inner.changed[kind as usize].load(Ordering::Acquire))
    }

    /// Frees the pages that a process which has ended without closing the store still holds.
    pub fn forget_dead_processes(&self) -> Result<(), StoreError> {
        self.inner.environment.env.clear_stale_readers()?;
        Ok(())
    }

    /// The newest revision. Takes a lock shared with other threads for a moment; workers use a [`Reader`].
    pub fn view(&self) -> Result<View<'_>, StoreError> {
        let environment = &self.inner.environment;
        View::new(environment.env.read_txn()?, &environment.tables)
    }

    /// A reader for one worker.
    pub fn reader(&self) -> Reader {
        let reader = Reader::new(Arc::clone(&self.inner));
        let mut readers = lock(&self.inner.readers);
        readers.retain(|reader| reader.strong_count() > 0);
        readers.push(reader.slot());
        drop(readers);
        reader
    }

    /// The directory that the store is in.
    pub fn directory(&self) -> &Path {
        self.inner.environment.env.path()
    }

    /// Bytes of the file.
    pub fn size(&self) -> Result<u64, StoreError> {
        Ok(self.inner.environment.env.real_disk_size()?)
    }

    /// Lets go of the pages of the file that are mapped into this process's resident memory; what is read again is mapped
    /// again from the system's cache. For after a pass over everything, of which the lookups of a running gateway need
    /// little: 14 MB of 50,000 entities.
    pub fn release_resident_pages(&self) {
        let map = match map::find(&self.inner.environment) {
            Ok(Some(map)) => map,
            Ok(None) => return tracing::debug!("the store's map is not found"),
            Err(error) => return tracing::debug!(%error, "the store's map is not found"),
        };
        let start = std::ptr::with_exposed_provenance_mut(map.start);
        // SAFETY: the system says that the range is a shared, read-only map of a file, and an entry of LMDB's lies in it;
        // LMDB keeps it as long as the environment. For such a map this advice only drops page table entries, and readers
        // at the same time fault them in again.
        #[expect(unsafe_code, reason = "advice about LMDB's map")]
        let result = unsafe { madvise(start, map.len(), Advice::LinuxDontNeed) };
        if let Err(error) = result {
            tracing::debug!(%error, "madvise");
        }
    }

    /// What the file can grow to: the configured size, or less where address space is limited.
    pub fn max_size(&self) -> usize {
        self.inner.environment.max_size
    }

    #[cfg(test)]
    pub(crate) fn environment(&self) -> &Environment {
        &self.inner.environment
    }
}

/// Multiples of this are multiples of the page size of every system.
const MAP_GRANULE: usize = 1 << 16;

impl Journal for Store {
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

    fn changes_since(&self, revision: Revision) -> Result<Changes, JournalError> {
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
    ) -> Result<(), JournalError> {
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
                Ok(one) => (one.kind as u8, one.id).cmp(&(kind as u8, id)),
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

    /// To be called before the revision is published.
    pub(crate) fn note_changes(
        &self,
        revision: Revision,
        kinds: impl IntoIterator<Item = EntityKind>,
    ) {
        for kind in kinds {
            self.changed[kind as usize].store(revision.0, Ordering::Release);
        }
    }

    pub(crate) fn publish(&self, revision: Revision) {
        self.head.store(revision.0, Ordering::Release);
        self.watch.send_if_modified(|head| {
            let newer = *head != revision;
            *head = revision;
            newer
        });
        self.committed();
    }

    /// A transaction of LMDB is on disk: readers let go of the pages of the one before.
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

/// A panic of a lookup or of `accept` leaves nothing half done behind these locks: transactions end with their scope.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
