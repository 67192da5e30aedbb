//! The token file of the Admin API. `silverback tokens` edits it, and the running gateway notices its changes.

use admin::time::{rfc3339, since_1970};
use admin::tokens::{LineError, Role, Token, TokenError, Tokens};
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

const HEADER: &str =
    "# Tokens of the Admin API: name, role, hash, time. Kept by `silverback tokens`.\n";

#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
    #[error("{path}: {source}")]
    Line { path: PathBuf, source: LineError },
    #[error(
        "{0} can be written by others than its owner, who could make tokens of their own: `chmod 600` it"
    )]
    Exposed(PathBuf),
    #[error("{0}")]
    Token(#[from] TokenError),
    #[error("there is no token `{0}`")]
    Missing(String),
}

/// The tokens that are in the file now. A change takes effect with the next request, without a reload, so that a
/// revoked token is refused immediately. Each request therefore checks whether the file has changed.
#[derive(Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    known: Mutex<LoadedTokens>,
}

#[derive(Debug)]
struct LoadedTokens {
    identity: Option<Identity>,
    tokens: Arc<Tokens>,
}

/// The identity of the file that was read, and its tokens.
type ReadTokens = (Option<Identity>, Tokens);

/// Metadata that changes when the file is written or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    file: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            file: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl TokenFile {
    pub(crate) fn open(path: &Path) -> Result<Self, FileError> {
        let (identity, tokens) = read(path)?;
        Ok(Self {
            path: path.to_owned(),
            known: Mutex::new(LoadedTokens {
                identity,
                tokens: Arc::new(tokens),
            }),
        })
    }

    /// Returns the current tokens. While the file cannot be read, the last known tokens stay valid.
    pub(crate) fn tokens(&self) -> Arc<Tokens> {
        self.tokens_by(read)
    }

    fn tokens_by(&self, read: impl FnOnce(&Path) -> Result<ReadTokens, FileError>) -> Arc<Tokens> {
        let identity = identity_of(&self.path);
        // A panic during a replacement leaves the previous tokens in place.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if identity != known.identity {
            match read(&self.path) {
                Ok((identity, tokens)) => {
                    tracing::info!(
                        tokens = tokens.iter().count(),
                        "tokens of the Admin API are read again"
                    );
                    *known = LoadedTokens {
                        identity,
                        tokens: Arc::new(tokens),
                    };
                }
                Err(error) => {
                    tracing::error!(%error, "the tokens of the Admin API stay as they were");
                    // With this identity, the error is logged only once for each state of the file. It is the identity
                    // from before the read: if the file was corrected in between, the next request reads it again.
                    known.identity = identity;
                }
            }
        }
        Arc::clone(&known.tokens)
    }
}

fn identity_of(path: &Path) -> Option<Identity> {
    fs::metadata(path)
        .ok()
        .map(|metadata| Identity::of(&metadata))
}

/// Reads the file. A missing file counts as one without tokens.
fn read(path: &Path) -> Result<ReadTokens, FileError> {
    let failed = |source| FileError::Read {
        path: path.to_owned(),
        source,
    };
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok((None, Tokens::default()));
        }
        Err(error) => return Err(failed(error)),
    };
    let metadata = file.metadata().map_err(failed)?;
    if metadata.permissions().mode() & 0o022 != 0 {
        return Err(FileError::Exposed(path.to_owned()));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    let tokens = text.parse().map_err(|source| FileError::Line {
        path: path.to_owned(),
        source,
    })?;
    Ok((Some(Identity::of(&metadata)), tokens))
}

/// Creates a token and returns its text. The file has only its hash, so the text cannot be shown again.
pub(crate) fn create(path: &Path, name: &str, role: Role) -> Result<String, FileError> {
    change(path, |tokens| {
        let created = rfc3339(since_1970(SystemTime::now()));
        let (token, text) = Token::generate(name, role, created)?;
        tokens.add(token)?;
        Ok(text)
    })
}

pub(crate) fn list(path: &Path) -> Result<Tokens, FileError> {
    read(path).map(|(_, tokens)| tokens)
}

pub(crate) fn revoke(path: &Path, name: &str) -> Result<(), FileError> {
    change(path, |tokens| match tokens.remove(name) {
        Some(_) => Ok(()),
        None => Err(FileError::Missing(name.to_owned())),
    })
}

/// Changes the file under a lock, so that concurrent commands run one after another. Readers see the file as it was
/// before the change or as it is after the change, never half of it.
fn change<T>(
    path: &Path,
    act: impl FnOnce(&mut Tokens) -> Result<T, FileError>,
) -> Result<T, FileError> {
    let failed = |source| FileError::Write {
        path: path.to_owned(),
        source,
    };
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(failed)?;
    let lock = File::open(folder).and_then(|folder| folder.lock().map(|()| folder));
    let lock = lock.map_err(failed)?;
    let (_, mut tokens) = read(path)?;
    let outcome = act(&mut tokens)?;
    replace(path, &format!("{HEADER}{tokens}"), &lock).map_err(failed)?;
    Ok(outcome)
}

fn replace(path: &Path, text: &str, folder: &File) -> io::Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    // Remove a file that a crash has left, because it may have other permissions.
    match fs::remove_file(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&partial)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    // The gateway may run as another user than this command. It must be able to read the file, and its user owns the
    // directory, so the file gets the same owner.
    let (owner, own) = (folder.metadata()?, file.metadata()?);
    if (owner.uid(), owner.gid()) != (own.uid(), own.gid()) {
        let given = fchown(&file, Some(owner.uid()), Some(owner.gid()));
        if let Err(error) = given
            && error.kind() != io::ErrorKind::PermissionDenied
        {
            return Err(error);
        }
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&partial, path)?;
    // Without this, a power failure could bring back the previous file, and with it a revoked token.
    folder.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_made_found_and_revoked() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("tokens");
        let file = TokenFile::open(&path).expect("a missing file is fine");
        assert!(file.tokens().is_empty());
        let text = create(&path, "ci", Role::Admin).expect("a new token");
        let other = create(&path, "eyes", Role::ReadOnly).expect("a new token");
        assert_eq!(
            file.tokens()
                .find(text.as_bytes())
                .expect("a valid token")
                .name,
            "ci"
        );
        assert_eq!(
            file.tokens()
                .find(other.as_bytes())
                .expect("a valid token")
                .role,
            Role::ReadOnly
        );
        let mode = fs::metadata(&path)
            .expect("the file exists")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let twice = create(&path, "ci", Role::Admin).expect_err("the name exists");
        assert!(twice.to_string().contains("`ci`"), "{twice}");
        revoke(&path, "ci").expect("the token exists");
        assert!(file.tokens().find(text.as_bytes()).is_none());
        assert!(file.tokens().find(other.as_bytes()).is_some());
        let missing = revoke(&path, "ci").expect_err("the token is revoked");
        assert!(missing.to_string().contains("no token `ci`"), "{missing}");
        fs::remove_file(&path).expect("the file exists");
        assert!(file.tokens().is_empty());
    }

    #[test]
    fn a_file_that_cannot_be_read_changes_nothing() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("tokens");
        let text = create(&path, "ci", Role::Admin).expect("a new token");
        let file = TokenFile::open(&path).expect("readable");
        fs::write(&path, "ci admin\n").expect("writable");
        assert!(file.tokens().find(text.as_bytes()).is_some());
        let error = TokenFile::open(&path).expect_err("a line is invalid");
        assert!(error.to_string().contains("line 1"), "{error}");
        fs::write(&path, "").expect("writable");
        fs::set_permissions(&path, Permissions::from_mode(0o620)).expect("a file of this user");
        assert!(file.tokens().find(text.as_bytes()).is_some());
        let error = TokenFile::open(&path).expect_err("exposed");
        assert!(error.to_string().contains("chmod 600"), "{error}");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a file of this user");
        assert!(file.tokens().is_empty());
    }

    #[test]
    fn a_file_that_is_corrected_after_a_failed_read_is_read_again() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("tokens");
        let text = create(&path, "ci", Role::Admin).expect("a new token");
        let file = TokenFile::open(&path).expect("readable");
        fs::write(&path, "ci admin\n").expect("writable");
        let kept = file.tokens_by(|path| {
            let outcome = read(path);
            fs::write(path, "").expect("writable");
            outcome
        });
        assert!(kept.find(text.as_bytes()).is_some());
        assert!(file.tokens().is_empty());
    }

    #[test]
    fn concurrent_commands_lose_nothing() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("tokens");
        std::thread::scope(|scope| {
            for number in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    create(path, &format!("t{number}"), Role::Admin).expect("a new token")
                });
            }
        });
        assert_eq!(list(&path).expect("readable").iter().count(), 8);
    }
}
