//! Reads the declarative configuration for `start`, `check` and reloads. The file extension selects the format, as in
//! Kong (kong/db/declarative/init.lua).

use crate::settings::Declarative;
use model::declarative::Format;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The text of a configuration, and its name in messages.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) format: Format,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("cannot read the declarative configuration file {path}: {source}")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("unknown file type: {0}. (Accepted types: json, yaml)")]
    Type(String),
}

/// Name of the configuration of the setting `declarative_config_string`.
const STRING: &str = "string";

/// Prefix of the names of files.
const FILE: &str = "file ";

/// Whether the source of a revision is the [`Text::name`] of a declarative configuration. Other sources are addresses of
/// clients, and names of commands.
pub(crate) fn is_source(source: &str) -> bool {
    source == STRING || source.starts_with(FILE)
}

/// Returns the path in the [`Text::name`] of a file.
pub(crate) fn path(name: &str) -> Option<&str> {
    name.strip_prefix(FILE)
}

/// Reads the configuration that the settings name. Returns `None` if they name the configuration in the store.
pub(crate) fn read(declarative: &Declarative) -> Result<Option<Text>, FileError> {
    match declarative {
        Declarative::Persisted => Ok(None),
        Declarative::Text(text) => Ok(Some(Text {
            name: STRING.to_owned(),
            bytes: text.clone().into_bytes(),
            format: Format::Auto,
        })),
        Declarative::File(path) => read_file(path).map(Some),
    }
}

pub(crate) fn read_file(path: &Path) -> Result<Text, FileError> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let format = match extension {
        Some("json") => Format::Json,
        Some("yml" | "yaml") => Format::Yaml,
        _ => return Err(FileError::Type(path.display().to_string())),
    };
    let bytes = read_regular(path).map_err(|source| FileError::Read {
        path: path.to_owned(),
        source,
    })?;
    Ok(Text {
        name: format!("{FILE}{}", path.display()),
        bytes,
        format,
    })
}

/// Reads a regular file. A pipe is refused: the main thread reads this file, and signals would wait for a writer.
fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::options()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(about.len()).unwrap_or_default());
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    #[test]
    fn only_a_regular_file_is_read() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("file.yml"), "a: 1").expect("writable");
        std::os::unix::fs::symlink(path("file.yml"), path("link.yml")).expect("a link");
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, path("pipe.yml"), FileType::Fifo, mode, 0).expect("a pipe");
        std::fs::create_dir(path("directory.yml")).expect("a directory");
        let read = |name: &str| read_file(&path(name)).map(|text| text.bytes);
        assert_eq!(read("link.yml").expect("readable"), b"a: 1");
        for name in ["pipe.yml", "directory.yml"] {
            let error = read(name).expect_err("refused").to_string();
            assert!(error.contains("it is not a regular file"), "{error}");
        }
    }
}
