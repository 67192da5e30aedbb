//! The parts that read what clients send, for the fuzz target.

use super::format::{HEADER_TEXT, Purpose, Secret, Times};
use super::payload::Payload;

/// Encrypts data, and returns the whole session as one text.
pub fn seal(secret: &str, data: &[u8]) -> Option<String> {
    let secret = Secret::new(secret);
    let times = Times {
        created: 1,
        rolling: 2,
    };
    let (header, payload) = secret
        .seal(0, times, data.to_vec(), Purpose::Session)
        .ok()?;
    Some(secret.header_text(&header).ok()? + &payload)
}

/// Decrypts what [`seal`] returns.
pub fn open(secret: &str, session: &[u8]) -> Option<Vec<u8>> {
    let secret = Secret::new(secret);
    let (header, payload) = session.split_at_checked(HEADER_TEXT)?;
    let header = secret.open_header(header).ok()?;
    secret.open_payload(&header, payload, Purpose::Session).ok()
}

/// Decodes decrypted data with these flags, and encodes it again.
pub fn encode_again(data: &[u8], flags: u16) -> Option<(Vec<u8>, u16)> {
    let payload = Payload::decode(data, flags).ok()?;
    let _ = payload.login("default");
    payload.encode().ok()
}
