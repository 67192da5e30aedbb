//! What is sent to Redis: scripts and commands.

use redis::{Cmd, Pipeline};
use sha1::{Digest, Sha1};

/// A script in Lua, which Redis runs as one step. Servers know it by its hash after its first run.
#[derive(Debug)]
pub struct Script {
    code: &'static str,
    hash: String,
}

impl Script {
    pub fn new(code: &'static str) -> Self {
        let digest = Sha1::digest(code.as_bytes());
        let hash = data_encoding::HEXLOWER.encode(&digest);
        Self { code, hash }
    }
}

/// A script or a command with its keys and arguments.
#[derive(Debug, Clone)]
pub struct Call {
    what: What,
    keys: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Script(&'static Script),
    Command(&'static str),
}

impl Call {
    pub fn script(script: &'static Script, keys: Vec<Vec<u8>>, arguments: Vec<Vec<u8>>) -> Self {
        let what = What::Script(script);
        Self {
            what,
            keys,
            arguments,
        }
    }

    /// A command whose keys come before its other arguments, such as `INCRBY`.
    pub fn command(name: &'static str, keys: Vec<Vec<u8>>, arguments: Vec<Vec<u8>>) -> Self {
        let what = What::Command(name);
        Self {
            what,
            keys,
            arguments,
        }
    }

    /// The slot of the first key in a Cluster.
    pub(super) fn slot(&self) -> u16 {
        self.keys.first().map_or(0, |key| slot(key))
    }

    /// Adds the call to a pipeline. `whole` sends the code of a script in place of its hash.
    pub(super) fn add(&self, pipeline: &mut Pipeline, whole: bool) {
        let mut command = match self.what {
            What::Script(script) => {
                let (name, text) = match whole {
                    true => ("EVAL", script.code),
                    false => ("EVALSHA", script.hash.as_str()),
                };
                let mut command = Cmd::new();
                command.arg(name).arg(text).arg(self.keys.len());
                command
            }
            What::Command(name) => redis::cmd(name),
        };
        for part in self.keys.iter().chain(&self.arguments) {
            command.arg(part.as_slice());
        }
        pipeline.add_command(command);
    }
}

/// Returns the slot of a key in a Cluster: the CRC-16 (XMODEM) of its hash tag, or of the whole key if it has none.
fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        let close = rest.iter().position(|&byte| byte == b'}')?;
        rest.get(..close).filter(|tag| !tag.is_empty())
    });
    let crc = tag.unwrap_or(key).iter().fold(0_u16, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => crc << 1 ^ 0x1021,
        })
    });
    crc % SLOTS
}

/// Number of slots of a Cluster.
pub(super) const SLOTS: u16 = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // From the documentation of Redis: CRC-16 of "123456789" is 31C3.
        assert_eq!(slot(b"123456789"), 0x31C3 % SLOTS);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"{foo}.bar"), slot(b"foo"));
        assert_eq!(slot(b"a{foo}{bar}"), slot(b"foo"));
        assert_ne!(slot(b"{}foo"), slot(b""));
    }
}
