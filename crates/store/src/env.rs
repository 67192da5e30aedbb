//! Opens the store's file: locks it, checks it for damage, and sets a damaged file aside.
//!
//! The directory holds `data.mdb` (all tables), `lock.mdb` (LMDB's reader table) and `owner.lock`. A process holds
//! `owner.lock` while it has the store open, and only the holder may examine or rename the file. During an upgrade of
//! the program two processes share that lock ([`join`]); LMDB lets one of them write at a time.
//!
//! The address range of the map is reserved completely at the start ([`crate::DEFAULT_MAX_SIZE`]), because LMDB can
//! enlarge a map only while no transaction of the process is active, and every worker keeps a read transaction open.
//! The reservation uses address space, not memory or disk: the file grows only by the data written, and only pages that
//! were read are resident.

use crate::error::{Damage, OpenError};
use crate::header::{HEADER_KEY, Header, SUMMED_TABLES};
use crate::scan::{self, ScanError};
use heed::types::Bytes;
use heed::{CommitOrAbort, EnvFlags, EnvOpenOptions, MdbError, WithoutTls};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) type Table = heed::Database<'static, Bytes, Bytes>;

/// The state of the store when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovery {
    /// The store exists and is undamaged.
    Opened,
    /// There was no store; an empty one was created.
    Created,
    /// The existing store is unreadable. It was renamed to `aside`, and an empty store was opened. Without another
    /// source of configuration, serving the empty store would be an outage that looks like success.
    SetAside {
        path: PathBuf,
        aside: PathBuf,
        damage: Damage,
    },
}

const DATA_FILE: &str = "data.mdb";
const LMDB_LOCK_FILE: &str = "lock.mdb";
const OWNER_FILE: &str = "owner.lock";
/// A new file is created in this directory and renamed when it is complete, so that a data file without a header is
/// always a damaged one.
const NEW_DIRECTORY: &str = "new";
const ASIDE_MARK: &str = ".unreadable-";

const MAX_READERS: u32 = 1024;
const MAX_TABLES: u32 = 16;
/// Upper bound for the size of the lock file: its header, and one cache line per reader.
const LOCK_FILE_SIZE: u64 = 64 * MAX_READERS as u64 + 4096;
/// Minimum size of the map; smaller reservations are not tried.
const LEAST_MAP: usize = 1 << 30;

/// The tables of an open store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tables {
    pub(crate) header: Table,
    pub(crate) entities: Table,
    /// Indexed by [`crate::facts::IndexTable`].
    pub(crate) index: [Table; 4],
    pub(crate) meta: Table,
    /// The records of the change log; see [`crate::history`].
    pub(crate) journal: Table,
    /// Earlier states of changed entities; see [`crate::history`].
    pub(crate) touched: Table,
}

impl Tables {
    fn new(header: Table, summed: [Table; SUMMED_TABLES.len()]) -> Self {
        let [
            entities,
            unique,
            children,
            tags,
            kind_tags,
            meta,
            journal,
            touched,
        ] = summed;
        Self {
            header,
            entities,
            index: [unique, children, tags, kind_tags],
            meta,
            journal,
            touched,
        }
    }

    /// Returns the tables in the order of [`SUMMED_TABLES`].
    pub(crate) fn summed(&self) -> [Table; SUMMED_TABLES.len()] {
        let [unique, children, tags, kind_tags] = self.index;
        [
            self.entities,
            unique,
            children,
            tags,
            kind_tags,
            self.meta,
            self.journal,
            self.touched,
        ]
    }
}

/// The open file. Fields are dropped in this order, so the owner's lock is released last.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) env: heed::Env<WithoutTls>,
    pub(crate) tables: Tables,
    pub(crate) max_size: usize,
    owner: Owner,
}

/// The lock of the process that has the store open. During an upgrade several processes share it.
#[derive(Debug)]
struct Owner {
    file: File,
    /// Whether another process may hold the same lock. Then the kernel releases it when the last process closes the
    /// file.
    is_lent: AtomicBool,
}

impl Owner {
    fn new(file: File) -> Self {
        Self {
            file,
            is_lent: AtomicBool::new(false),
        }
    }
}

impl Drop for Owner {
    /// Releases the lock explicitly. Closing the file is not enough, because a child process that was just forked has
    /// the file open too, until it executes its program.
    fn drop(&mut self) {
        if self.is_lent.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = self.file.unlock() {
            tracing::warn!(%error, "the store's lock cannot be released");
        }
    }
}

impl Environment {
    /// Returns the lock, for another process that also opens the store.
    pub(crate) fn lend(&self) -> io::Result<File> {
        self.owner.is_lent.store(true, Ordering::Relaxed);
        self.owner.file.try_clone()
    }
}

/// Opens a store that another process has open, with the lock of that process. The file is not examined, because the
/// other process has already done so and may be writing to it.
pub(crate) fn join(
    directory: &Path,
    max_size: usize,
    lock: File,
) -> Result<(Environment, Header), OpenError> {
    let path = directory.join(DATA_FILE);
    let owner = Owner::new(lock);
    owner.is_lent.store(true, Ordering::Relaxed);
    let failed = |source| OpenError::Lmdb {
        path: path.clone(),
        source,
    };
    let damaged = |damage| OpenError::Io {
        action: "take over",
        path: path.clone(),
        source: io::Error::new(io::ErrorKind::InvalidData, damage),
    };
    let (env, max_size) = map(directory, max_size, EnvFlags::empty()).map_err(failed)?;
    let tables = open_tables(&env).map_err(failed)?;
    let tables = tables.ok_or_else(|| damaged(Damage::OtherProgram))?;
    let txn = env.read_txn().map_err(failed)?;
    let record = tables.header.get(&txn, HEADER_KEY).map_err(failed)?;
    let header = Header::decode(record.unwrap_or_default()).map_err(damaged)?;
    drop(txn);
    let environment = Environment {
        env,
        tables,
        max_size,
        owner,
    };
    Ok((environment, header))
}

/// An open file that is only read.
#[derive(Debug)]
pub(crate) struct ReadOnly {
    pub(crate) env: heed::Env<WithoutTls>,
    pub(crate) tables: Tables,
    /// Held if no other process has the store open.
    _owner: Option<Owner>,
}

/// Opens an existing store without changing any file. The file is examined, also if another process has it open: it may
/// have been damaged since that process examined it.
pub(crate) fn inspect(directory: &Path, max_size: usize) -> Result<ReadOnly, OpenError> {
    let path = directory.join(DATA_FILE);
    let owner = inspector(directory)?;
    let failed = |source| OpenError::Lmdb {
        path: path.clone(),
        source,
    };
    let env = if owner.is_some() {
        let header = scan::examine(&path).map_err(|error| refused(&path, error))?;
        if header.revision == 0 && newest_aside(directory)?.is_some() {
            return Err(damaged(&path, Damage::Earlier));
        }
        // LMDB would create its lock file, which the gateway's user could not open if another user has created it.
        let flags = EnvFlags::READ_ONLY | EnvFlags::NO_LOCK;
        map(directory, max_size, flags).map_err(failed)?.0
    } else {
        let mapped = map(directory, max_size, EnvFlags::READ_ONLY);
        examine_in_use(&path, mapped.as_ref().ok().map(|(env, _)| env))?;
        mapped.map_err(failed)?.0
    };
    let tables = open_tables(&env).map_err(failed)?;
    Ok(ReadOnly {
        env,
        tables: tables.ok_or_else(|| damaged(&path, Damage::OtherProgram))?,
        _owner: owner,
    })
}

/// Examines a file that another process may be writing to. A read transaction keeps that process from reusing the pages
/// meanwhile. To begin the transaction, LMDB reads only the meta pages. A commit while the meta pages are read can look
/// like damage, so the file is then examined again.
fn examine_in_use(path: &Path, env: Option<&heed::Env<WithoutTls>>) -> Result<(), OpenError> {
    let _pages = env.and_then(|env| env.read_txn().ok());
    let examined = scan::examine(path).or_else(|_| scan::examine(path));
    examined.map(drop).map_err(|error| refused(path, error))
}

fn refused(path: &Path, error: ScanError) -> OpenError {
    match error {
        ScanError::Damage(reason) if reason.is_foreign() => OpenError::Foreign {
            path: path.to_owned(),
            reason,
        },
        ScanError::Damage(damage) => damaged(path, damage),
        ScanError::Io(source) => io_error("read", path)(source),
    }
}

fn damaged(path: &Path, damage: Damage) -> OpenError {
    OpenError::Damaged {
        path: path.to_owned(),
        damage,
    }
}

/// Takes the lock of a store that no process has open. Returns `None` if a process has it open.
fn inspector(directory: &Path) -> Result<Option<Owner>, OpenError> {
    let path = directory.join(OWNER_FILE);
    let failed = io_error("lock", &path);
    let file = match File::open(&path) {
        // Without the file there is no lock: lock the directory, which nothing else does.
        Err(error) if error.kind() == io::ErrorKind::NotFound => File::open(directory),
        opened => opened,
    };
    let file = file.map_err(&failed)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Owner::new(file))),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

pub(crate) fn exists_in(directory: &Path) -> bool {
    directory.join(DATA_FILE).exists()
}

pub(crate) fn open(
    directory: &Path,
    max_size: usize,
) -> Result<(Environment, Header, Recovery), OpenError> {
    create_directory(directory)?;
    let owner = become_owner(directory)?;
    let path = directory.join(DATA_FILE);
    let mut recovery = Recovery::Opened;
    if !exists(&path)? {
        create(directory, max_size)?;
        recovery = Recovery::Created;
    }
    let opened = match examine_and_open(directory, max_size)? {
        Ok(opened) => opened,
        Err(reason) if reason.is_foreign() => return Err(OpenError::Foreign { path, reason }),
        Err(damage) => {
            let aside = set_aside(directory)?;
            tracing::error!(path = %path.display(), aside = %aside.display(), %damage, "the store is damaged and was renamed");
            recovery = Recovery::SetAside {
                path: path.clone(),
                aside: aside.clone(),
                damage: damage.clone(),
            };
            create_after(directory, max_size, &path, &aside, &damage)?
        }
    };
    let (env, tables, max_size, header) = opened;
    if header.revision == 0
        && !matches!(recovery, Recovery::SetAside { .. })
        && let Some(aside) = newest_aside(directory)?
    {
        // After a file was set aside, a restart must not report the empty store as intact.
        recovery = Recovery::SetAside {
            path,
            aside,
            damage: Damage::Earlier,
        };
    }
    let environment = Environment {
        env,
        tables,
        max_size,
        owner,
    };
    Ok((environment, header, recovery))
}

type Opened = (heed::Env<WithoutTls>, Tables, usize, Header);

fn create_after(
    directory: &Path,
    max_size: usize,
    path: &Path,
    aside: &Path,
    damage: &Damage,
) -> Result<Opened, OpenError> {
    let failed = |source| OpenError::AfterSettingAside {
        path: path.to_owned(),
        aside: aside.to_owned(),
        damage: damage.clone(),
        source: Box::new(source),
    };
    create(directory, max_size).map_err(failed)?;
    let opened = examine_and_open(directory, max_size).map_err(failed)?;
    opened.map_err(|again| {
        failed(OpenError::Io {
            action: "read back",
            path: path.to_owned(),
            source: io::Error::new(io::ErrorKind::InvalidData, again),
        })
    })
}

/// Examines the file before LMDB maps it. LMDB trusts the file, so a damaged page would crash the process.
fn examine_and_open(
    directory: &Path,
    max_size: usize,
) -> Result<Result<Opened, Damage>, OpenError> {
    let path = directory.join(DATA_FILE);
    let header = match scan::examine(&path) {
        Ok(header) => header,
        Err(ScanError::Damage(damage)) => return Ok(Err(damage)),
        Err(ScanError::Io(source)) => {
            return Err(io_error("read", &path)(source));
        }
    };
    let result = map_alone(directory, max_size).and_then(|(env, max_size)| {
        let tables = open_tables(&env)?;
        Ok((env, tables, max_size))
    });
    match result {
        Ok((env, Some(tables), max_size)) => Ok(Ok((env, tables, max_size, header))),
        Ok((_, None, _)) => Ok(Err(Damage::OtherProgram)),
        Err(error) if is_damage(&error) => Ok(Err(Damage::Refused(error.to_string()))),
        Err(source) => Err(OpenError::Lmdb { path, source }),
    }
}

fn is_damage(error: &heed::Error) -> bool {
    use MdbError::{Corrupted, Incompatible, Invalid, PageNotFound, VersionMismatch};
    matches!(
        error,
        heed::Error::Mdb(Corrupted | Incompatible | Invalid | PageNotFound | VersionMismatch)
    )
}

/// Maps a file that only this process uses.
fn map_alone(
    directory: &Path,
    max_size: usize,
) -> Result<(heed::Env<WithoutTls>, usize), heed::Error> {
    allocate_lock_file(&directory.join(LMDB_LOCK_FILE)).map_err(heed::Error::Io)?;
    map(directory, max_size, EnvFlags::empty())
}

/// Allocates the whole lock file on disk. LMDB writes to its reader table through a map: on a full disk, writing to an
/// unallocated page would end the process with SIGBUS, in the middle of a lookup. If there is no space, this returns an
/// error instead.
fn allocate_lock_file(path: &Path) -> io::Result<()> {
    let file = File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    match fallocate(&file, FallocateFlags::empty(), 0, LOCK_FILE_SIZE) {
        // Not every file system supports `fallocate`.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Maps the file, with a smaller reservation if the address space is limited (`ulimit -v`).
fn map(
    directory: &Path,
    max_size: usize,
    flags: EnvFlags,
) -> Result<(heed::Env<WithoutTls>, usize), heed::Error> {
    let mut size = max_size;
    loop {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options
            .map_size(size)
            .max_readers(MAX_READERS)
            .max_dbs(MAX_TABLES);
        // SAFETY: the file must be well-formed, and only LMDB may change it while it is mapped. This process holds or
        // shares the owner's lock, LMDB's own locking is on, and no unsafe flag is set. The file is either new, or
        // `scan::examine` has checked it in this process or in the process that shares the lock.
        #[expect(unsafe_code, reason = "LMDB is a memory map")]
        let result = unsafe { options.flags(flags).open(directory) };
        match result {
            Ok(env) => return Ok((env, size)),
            Err(error) if is_out_of_memory(&error) && size / 2 >= LEAST_MAP => {
                size /= 2;
                tracing::warn!(
                    bytes = size,
                    "address space is limited: a smaller largest size of the store"
                );
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_out_of_memory(error: &heed::Error) -> bool {
    let io = match error {
        heed::Error::Io(error) => error.kind(),
        heed::Error::Mdb(MdbError::Other(code)) => io::Error::from_raw_os_error(*code).kind(),
        _ => return false,
    };
    io == io::ErrorKind::OutOfMemory
}

/// Opens the tables; returns `None` if one is missing.
fn open_tables(env: &heed::Env<WithoutTls>) -> Result<Option<Tables>, heed::Error> {
    let txn = env.read_txn()?;
    let opened = env.open_databases_and_commit(txn, |opener, txn| {
        let open = |name| opener.open_database::<Bytes, Bytes>(txn, Some(name));
        let header = open(HEADER_TABLE)?;
        let mut summed = Vec::with_capacity(SUMMED_TABLES.len());
        for name in SUMMED_TABLES {
            summed.push(open(name)?);
        }
        let summed: Result<[_; SUMMED_TABLES.len()], _> = summed.try_into();
        let summed = summed.map_err(|_| heed::Error::Mdb(MdbError::Problem))?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit((header, summed)))
    })?;
    let (header, summed) = opened.unwrap_commit();
    let summed: Option<Vec<Table>> = summed.into_iter().collect();
    Ok(header
        .zip(summed.and_then(|summed| summed.try_into().ok()))
        .map(|(header, summed)| Tables::new(header, summed)))
}

pub(crate) const HEADER_TABLE: &str = "header";

fn create(directory: &Path, max_size: usize) -> Result<(), OpenError> {
    let new = directory.join(NEW_DIRECTORY);
    remove_directory(&new)?;
    create_directory(&new)?;
    create_tables(&new, max_size).map_err(|source| OpenError::Lmdb {
        path: new.clone(),
        source,
    })?;
    // The reader table of a file that was set aside must not be used for a new file.
    remove_file(&directory.join(LMDB_LOCK_FILE))?;
    let path = directory.join(DATA_FILE);
    fs::rename(new.join(DATA_FILE), &path).map_err(io_error("create", &path))?;
    remove_directory(&new)?;
    sync_directory(directory)
}

fn create_tables(directory: &Path, max_size: usize) -> Result<(), heed::Error> {
    let (env, _) = map_alone(directory, max_size)?;
    let txn = env.write_txn()?;
    env.create_databases_and_commit(txn, |opener, txn| {
        for name in SUMMED_TABLES {
            opener.create_database::<Bytes, Bytes>(txn, Some(name))?;
        }
        let header = opener.create_database::<Bytes, Bytes>(txn, Some(HEADER_TABLE))?;
        let record = Header {
            transaction: txn.id() as u64,
            ..Header::default()
        };
        header.put(txn, HEADER_KEY, &record.encode())?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(()))
    })?;
    Ok(())
}

fn set_aside(directory: &Path) -> Result<PathBuf, OpenError> {
    let path = directory.join(DATA_FILE);
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_secs());
    let mut aside = directory.join(format!("{DATA_FILE}{ASIDE_MARK}{seconds}"));
    let mut again = 1;
    while exists(&aside)? {
        again += 1;
        aside = directory.join(format!("{DATA_FILE}{ASIDE_MARK}{seconds}.{again}"));
    }
    fs::rename(&path, &aside).map_err(io_error("rename", &path))?;
    sync_directory(directory)?;
    Ok(aside)
}

fn newest_aside(directory: &Path) -> Result<Option<PathBuf>, OpenError> {
    let failed = io_error("list", directory);
    let mut newest: Option<PathBuf> = None;
    for entry in fs::read_dir(directory).map_err(&failed)? {
        let entry = entry.map_err(&failed)?;
        let name = entry.file_name();
        let is_aside = name
            .to_str()
            .and_then(|name| name.strip_prefix(DATA_FILE))
            .is_some_and(|rest| rest.starts_with(ASIDE_MARK));
        if is_aside {
            newest = newest.max(Some(entry.path()));
        }
    }
    Ok(newest)
}

fn become_owner(directory: &Path) -> Result<Owner, OpenError> {
    let path = directory.join(OWNER_FILE);
    let failed = io_error("lock", &path);
    let file = File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .open(&path)
        .map_err(&failed)?;
    match file.try_lock() {
        Ok(()) => Ok(Owner::new(file)),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse {
            path: directory.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Creates a directory that only the owner can read, because entities contain keys and passwords.
fn create_directory(path: &Path) -> Result<(), OpenError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(io_error("create", path))
}

fn exists(path: &Path) -> Result<bool, OpenError> {
    path.try_exists().map_err(io_error("read", path))
}

fn remove_directory(path: &Path) -> Result<(), OpenError> {
    missing_is_fine(fs::remove_dir_all(path)).map_err(io_error("remove", path))
}

fn remove_file(path: &Path) -> Result<(), OpenError> {
    missing_is_fine(fs::remove_file(path)).map_err(io_error("remove", path))
}

fn missing_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Syncs a directory. A rename in it is not durable before that.
fn sync_directory(path: &Path) -> Result<(), OpenError> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(io_error("sync", path))
}

fn io_error(action: &'static str, path: &Path) -> impl Fn(io::Error) -> OpenError + use<> {
    let path = path.to_owned();
    move |source| OpenError::Io {
        action,
        path: path.clone(),
        source,
    }
}
