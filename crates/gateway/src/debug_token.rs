//! The token with which clients on other machines may ask for the timings of their requests (`request_debug_token`). It is
//! in a file of the prefix that only the gateway's user can read. Kong logs it too; here secrets are not logged.

use crate::settings::Settings;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

const FILE: &str = ".request_debug_token";

/// Returns the token. `None` if nobody may ask for timings.
pub(crate) fn of(settings: &Settings) -> Option<Arc<str>> {
    let debug = &settings.proxy.request_debug;
    debug.is_on.then(|| match debug.token.as_str() {
        "" => Uuid::new_v4().to_string().into(),
        token => token.into(),
    })
}

/// Writes the token into the prefix, or removes that of an earlier process. A process that takes over calls this when
/// nothing else can fail: until then, the file belongs to the process that it replaces.
pub(crate) fn publish(prefix: &Path, token: Option<&str>) {
    let path = prefix.join(FILE);
    let published = match token {
        Some(token) => write(&path, token),
        None => remove(&path),
    };
    if let Err(error) = published {
        tracing::warn!(
            %error,
            "cannot write {FILE} into the prefix; only clients on this machine may ask for the timings of requests, unless \
             request_debug_token is set"
        );
    }
}

/// Replaces the file as a whole, so that its permissions are those of a new file. After a failure, the file is as before.
fn write(path: &Path, token: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    remove(&new)?;
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    let written = file.write_all(token.as_bytes());
    let replaced = written.and_then(|()| fs::rename(&new, path));
    if replaced.is_err() {
        // The first failure is reported.
        let _ = remove(&new);
    }
    replaced
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_file_is_replaced_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        for token in ["one", "other"] {
            write(&path, token).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), token);
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        publish(folder.path(), None);
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
    }

    #[test]
    fn a_failure_leaves_no_token_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        // A file cannot take the place of a directory.
        fs::create_dir(&path).unwrap();
        write(&path, "secret").unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
