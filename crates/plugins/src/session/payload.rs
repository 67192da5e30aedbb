//! The decrypted data of a session: a JSON list with, for each audience, the list of data, audience and subject.
//! The plugin's data is the list of consumer id, credential id and groups, of which later ones may be absent.

use super::format::{DEFLATED, Invalid};
use flate2::Compression;
use flate2::write::{DeflateDecoder, DeflateEncoder};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Maximum length of the data, also after it was inflated. A cookie of 36 kB could inflate to 1000 times its size.
pub(crate) const MAX_PLAINTEXT: usize = 256 * 1024;

/// Data above this length is deflated (`compression_threshold`, which Kong does not change).
const COMPRESS_ABOVE: usize = 1024;

/// The sessions of all audiences in one cookie.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Payload(Vec<Value>);

/// The data of one audience.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) consumer: Option<String>,
    pub(crate) credential: Option<String>,
    pub(crate) groups: Option<Vec<String>>,
    pub(crate) subject: Option<String>,
}

impl Payload {
    pub(crate) fn decode(plaintext: &[u8], flags: u16) -> Result<Self, Invalid> {
        let inflated;
        let text = match flags & DEFLATED {
            0 => plaintext,
            _ => {
                inflated = inflate(plaintext)?;
                &inflated
            }
        };
        let all: Vec<Value> = serde_json::from_slice(text).map_err(|_| Invalid::Payload)?;
        match all.iter().all(Value::is_array) {
            true => Ok(Self(all)),
            false => Err(Invalid::Payload),
        }
    }

    /// Returns the encoded data, and the flags that say how it is encoded.
    pub(crate) fn encode(&self) -> Result<(Vec<u8>, u16), Invalid> {
        let text = serde_json::to_vec(&self.0).map_err(|_| Invalid::Payload)?;
        if text.len() > MAX_PLAINTEXT {
            return Err(Invalid::TooLarge);
        }
        if text.len() > COMPRESS_ABOVE {
            let deflated = deflate(&text).map_err(|_| Invalid::Payload)?;
            if deflated.len() < text.len() {
                return Ok((deflated, DEFLATED));
            }
        }
        Ok((text, 0))
    }

    /// Returns the data of an audience. `None` if there is none for it.
    pub(crate) fn login(&self, audience: &str) -> Option<Login> {
        let entry = self.0.iter().find(|entry| is_for(entry, audience))?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let groups = entry[0][2].as_array().map(|groups| {
            let groups = groups.iter().filter_map(text);
            groups.collect()
        });
        Some(Login {
            consumer: text(&entry[0][0]),
            credential: text(&entry[0][1]),
            groups,
            subject: text(&entry[2]),
        })
    }

    /// Returns the consumer of an audience, or else of another one.
    pub(crate) fn owner(&self, audience: &str) -> Option<&str> {
        let own = self.0.iter().find(|entry| is_for(entry, audience));
        own.or(self.0.first())?[0][0].as_str()
    }

    /// Replaces the data of an audience.
    pub(crate) fn set(&mut self, audience: &str, login: &Login) {
        let mut data = vec![json!(login.consumer), json!(login.credential)];
        if login.groups.is_some() {
            data.push(json!(login.groups));
        }
        let entry = json!([data, audience, login.subject]);
        match self.0.iter_mut().find(|entry| is_for(entry, audience)) {
            Some(old) => *old = entry,
            None => self.0.push(entry),
        }
    }

    pub(crate) fn remove(&mut self, audience: &str) {
        self.0.retain(|entry| !is_for(entry, audience));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn is_for(entry: &Value, audience: &str) -> bool {
    entry[1] == audience
}

fn deflate(text: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text)?;
    encoder.finish()
}

/// Inflates data up to [`MAX_PLAINTEXT`].
fn inflate(data: &[u8]) -> Result<Vec<u8>, Invalid> {
    let mut decoder = DeflateDecoder::new(Bounded(Vec::new()));
    decoder.write_all(data).map_err(|_| Invalid::Payload)?;
    let text = decoder.finish().map_err(|_| Invalid::Payload)?;
    Ok(text.0)
}

/// Refuses to grow above [`MAX_PLAINTEXT`].
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.0.len() + piece.len() > MAX_PLAINTEXT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
