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

/// Returns the token, and writes it into the prefix. `None` if nobody may ask for timings.
pub(crate) fn prepare(settings: &Settings) -> Option<Arc<str>> {
    let debug = &settings.proxy.request_debug;
    if !debug.is_on {
        return None;
    }
    let token: Arc<str> = match debug.token.as_str() {
        "" => Uuid::new_v4().to_string().into(),
        token => token.into(),
    };
    if let Err(error) = write(&settings.prefix.join(FILE), &token) {
        tracing::warn!(
            %error,
            "cannot write {FILE} into the prefix; only clients on this machine may ask for the timings of requests, unless \
             request_debug_token is set"
        );
    }
    Some(token)
}

/// Replaces the file as a whole, so that its permissions are those of a new file.
fn write(path: &Path, token: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(token.as_bytes())?;
    fs::rename(&new, path)
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
    }
}
