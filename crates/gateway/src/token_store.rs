//! The store of OAuth2 tokens of this node, and its keys, which are in a file outside of it.

use crate::commands::Failure;
use crate::settings::{Settings, TokenSettings};
use admin::control::{Metric, Reading};
use data_encoding::HEXLOWER_PERMISSIVE;
use model::{EntityKind, Object, Value};
use plugin::services::Background;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use store::View;
use tempfile::NamedTempFile;
use tokens::embedded::Embedded;
use tokens::{Keys, TokenStore};

/// The directory of the store, in the prefix.
const DIRECTORY: &str = "tokens.lmdb";
/// The least size of the store. LMDB refuses an incomplete page.
const LEAST_SIZE: usize = 16 << 20;
/// The largest file with keys.
const MAX_KEY_FILE: u64 = 64 << 10;
/// Time between two looks for tokens that have ended.
const EXPIRY: Duration = Duration::from_secs(60);
/// Pause after a slice of ended tokens, so that those who write do not wait for all of them.
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) fn open(settings: &Settings) -> Result<Arc<dyn TokenStore>, Failure> {
    let TokenSettings {
        storage,
        key_file,
        max_size,
    } = &settings.tokens;
    let keys = read_or_make(key_file).map_err(|error| {
        let path = key_file.display();
        Failure::new(format!("token_key_file: {path}: {error}"))
    })?;
    let directory = settings.prefix.join(DIRECTORY);
    let size = usize::try_from(*max_size).unwrap_or(usize::MAX);
    let size = size.max(LEAST_SIZE) / LEAST_SIZE * LEAST_SIZE;
    let store = Embedded::open(&directory, size, keys, *storage);
    let store = store.map_err(|error| {
        let path = directory.display();
        Failure::new(format!(
            "cannot open the store of OAuth2 tokens {path} (largest size: token_store_size): {error}"
        ))
    });
    Ok(Arc::new(store?))
}

/// Opens the store if there is one.
pub(crate) fn open_existing(settings: &Settings) -> Result<Option<Arc<dyn TokenStore>>, Failure> {
    let is_there = settings.prefix.join(DIRECTORY).is_dir() && settings.tokens.key_file.is_file();
    is_there.then(|| open(settings)).transpose()
}

/// Frees the space of tokens that have ended, as long as the node serves.
pub(crate) fn expire(store: Arc<dyn TokenStore>, background: &Background) {
    background.spawn_service(async move {
        loop {
            tokio::time::sleep(EXPIRY).await;
            loop {
                match store.expire(now()).get().await {
                    Ok(true) => tokio::time::sleep(PAUSE).await,
                    Ok(false) => break,
                    Err(error) => {
                        tracing::warn!(%error, "ended OAuth2 tokens could not be removed");
                        break;
                    }
                }
            }
        }
    });
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    i64::try_from(now.unwrap_or_default().as_secs()).unwrap_or(i64::MAX)
}

/// Returns the numbers of tokens.
pub(crate) fn metrics(store: Option<&dyn TokenStore>) -> Vec<Metric> {
    let Some(Ok(counts)) = store.map(|store| store.counts().wait()) else {
        return Vec::new();
    };
    vec![
        Metric {
            name: "silverback_oauth2_tokens",
            help: "OAuth2 tokens in the store of this node that are valid or can be refreshed, or have ended a short time ago.",
            reading: Reading::Gauge(counts.live),
        },
        Metric {
            name: "silverback_oauth2_tokens_endless",
            help: "Those OAuth2 tokens that never end.",
            reading: Reading::Gauge(counts.endless),
        },
        Metric {
            name: "silverback_oauth2_look_ups_waited_total",
            help: "Look-ups of tokens that have waited for the disk.",
            reading: Reading::Counter(counts.waited),
        },
        Metric {
            name: "silverback_oauth2_look_ups_aside_total",
            help: "Look-ups of tokens that ran on a thread of their own because they might have had to wait for the disk.",
            reading: Reading::Counter(counts.aside),
        },
    ]
}

/// Warns that access tokens are valid on this node only, if it issues any.
pub(crate) fn warn_of_one_node(view: &View<'_>) {
    let keeps_tokens = |plugin: &[u8]| {
        model::codec::decode::<Object>(plugin).is_ok_and(|plugin| keeps_access_tokens(&plugin))
    };
    let Ok(mut plugins) = view.iter(EntityKind::Plugins) else {
        return;
    };
    if plugins.any(|plugin| plugin.is_ok_and(|(_, plugin)| keeps_tokens(plugin))) {
        tracing::warn!(
            "the plugin oauth2 keeps its tokens on this node: behind a load balancer, other nodes refuse them"
        );
    }
}

/// Whether this is a plugin oauth2 that does not sign its access tokens.
fn keeps_access_tokens(plugin: &Object) -> bool {
    let config = plugin.get("config").and_then(Value::as_object);
    let signs = config.is_some_and(|config| config.str("signing_key").is_some());
    plugin.str("name") == Some("oauth2") && !signs
}

// === keys ===

/// Reads the keys, or makes a file with new ones.
fn read_or_make(path: &Path) -> io::Result<Keys> {
    match File::open(path) {
        Ok(file) => {
            let mut bytes = Vec::new();
            file.take(MAX_KEY_FILE).read_to_end(&mut bytes)?;
            parse(&bytes)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(path),
        Err(error) => Err(error),
    }
}

/// Makes a file with new keys. It appears under its name when it is complete.
fn make(path: &Path) -> io::Result<Keys> {
    let secret = Keys::generate().map_err(io::Error::other)?;
    let (find, seal) = secret.split_at(secret.len() / 2);
    let text = format!(
        "# Keys of the store of OAuth2 tokens. Without this file no token of the store is valid.\n\
         # New tokens are sealed with the first `seal` line; the others open earlier tokens.\n\
         find {}\nseal 1 {}\n",
        HEXLOWER_PERMISSIVE.encode(find),
        HEXLOWER_PERMISSIVE.encode(seal)
    );
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    // It has mode 0600.
    let mut file = NamedTempFile::new_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path)?;
    File::open(directory)?.sync_all()?;
    parse(text.as_bytes())
}

/// Parses the lines `find KEY` and `seal NUMBER KEY`. Errors do not show keys.
fn parse(bytes: &[u8]) -> io::Result<Keys> {
    let wrong = |line: usize| {
        let text = format!(
            "line {line}: expected `find KEY` or `seal NUMBER KEY`, with 64 hexadecimal digits"
        );
        io::Error::new(io::ErrorKind::InvalidData, text)
    };
    let key = |text: &str| -> Option<[u8; 32]> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
        bytes.try_into().ok()
    };
    let text = str::from_utf8(bytes).map_err(|_| wrong(1))?;
    let (mut find, mut seals) = (None, Vec::new());
    for (line, text) in (1..).zip(text.lines()) {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        match words.as_slice() {
            [] => {}
            [comment, ..] if comment.starts_with('#') => {}
            ["find", secret] if find.is_none() => {
                find = Some(key(secret).ok_or_else(|| wrong(line))?);
            }
            ["seal", number, secret] => {
                let number: u32 = number.parse().map_err(|_| wrong(line))?;
                let secret = key(secret).ok_or_else(|| wrong(line))?;
                if seals.iter().any(|(other, _)| *other == number) {
                    let text = format!("line {line}: there is another seal {number}");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
                seals.push((number, secret));
            }
            _ => return Err(wrong(line)),
        }
    }
    let (Some(find), Some(((number, seal), earlier))) = (find, seals.split_first()) else {
        let text = "it has no line `find KEY` or no line `seal NUMBER KEY`";
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    };
    let mut secret = [0; 64];
    secret[..32].copy_from_slice(&find);
    secret[32..].copy_from_slice(seal);
    let keys = Keys::new(&secret, *number);
    Ok(earlier.iter().fold(keys, |keys, (number, seal)| {
        keys.with_earlier_seal(seal, *number)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_file_of_the_keys_is_made_once_and_for_its_owner() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("below/tokens.key");
        read_or_make(&path).expect("it is made");
        let text = fs::read_to_string(&path).expect("it is there");
        let mode = fs::metadata(&path)
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        read_or_make(&path).expect("it is read");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), text);
    }

    #[test]
    fn only_plugins_that_do_not_sign_keep_access_tokens() {
        let keeps = |text: &str| {
            let plugin: Object = serde_json::from_str(text).expect("an object");
            keeps_access_tokens(&plugin)
        };
        assert!(keeps(r#"{"name": "oauth2", "config": {}}"#));
        assert!(keeps(
            r#"{"name": "oauth2", "config": {"signing_key": null}}"#
        ));
        assert!(!keeps(
            r#"{"name": "oauth2", "config": {"signing_key": "PEM"}}"#
        ));
        assert!(!keeps(r#"{"name": "jwt", "config": {}}"#));
    }

    #[test]
    fn wrong_files_of_keys_are_refused_without_showing_a_key() {
        let key = "ab".repeat(32);
        let fine = format!("find {key}\nseal 2 {key}\nseal 1 {key}\n");
        assert!(parse(fine.as_bytes()).is_ok());
        for (wrong, reason) in [
            (String::new(), "no line `find"),
            (format!("find {key}\n"), "no line `find"),
            (format!("seal 1 {key}\n"), "no line `find"),
            (format!("find {key}x\nseal 1 {key}\n"), "line 1"),
            (format!("find {key}\nfind {key}\n"), "line 2"),
            (format!("find {key}\nseal x {key}\n"), "line 2"),
            (format!("{fine}seal 1 {key}\n"), "another seal 1"),
        ] {
            let error = parse(wrong.as_bytes())
                .err()
                .expect("it is refused")
                .to_string();
            assert!(error.contains(reason), "{error}");
            assert!(!error.contains("abab"), "{error}");
        }
        assert!(parse(&[0xff; 64]).is_err());
    }
}
