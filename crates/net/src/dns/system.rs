//! The system files for name resolution, and detection of their changes.

use super::hosts_file::HostsFile;
use super::resolv_conf::ResolvConf;
use super::settings::DnsSettings;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct System {
    pub(super) conf: ResolvConf,
    pub(super) hosts: HostsFile,
}

/// Metadata of both files, compared to detect changes. A file that was replaced atomically has a new inode. A file that
/// was rewritten in place has a new modification time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp([Option<(u64, i64, i64, u64)>; 2]);

impl System {
    /// Reads both files. An unreadable file counts as empty, so that the other one still works.
    pub(super) fn read(settings: &DnsSettings) -> Self {
        let mut conf = ResolvConf::parse(&read(&settings.resolv_conf));
        if !settings.servers.is_empty() {
            conf.servers.clone_from(&settings.servers);
        }
        if conf.servers.is_empty() {
            tracing::warn!(
                file = %settings.resolv_conf.display(),
                "no name server is configured: only names in the hosts file can be resolved"
            );
        }
        Self {
            conf,
            hosts: HostsFile::parse(&read(&settings.hosts_file)),
        }
    }

    pub(super) fn stamp(settings: &DnsSettings) -> Stamp {
        Stamp([stamp(&settings.resolv_conf), stamp(&settings.hosts_file)])
    }
}

fn read(path: &Path) -> String {
    match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(%error, file = %path.display(), "cannot read resolv.conf or the hosts file");
            }
            String::new()
        }
    }
}

fn stamp(path: &Path) -> Option<(u64, i64, i64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
}
