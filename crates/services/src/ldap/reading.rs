//! The parts that read what a directory sends, for the fuzz target.

use super::message::{Framing, Response, ResponseKind, framing};

/// Returns the length of the message that these bytes begin with; `None` if more are needed. Fails if there is none.
pub fn length(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    match framing(bytes) {
        Ok(Framing::Whole(length)) => Ok(Some(length)),
        Ok(Framing::Unknown) => Ok(None),
        Err(_) => Err("it is malformed or too long"),
    }
}

/// What a response says.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// The number of the request.
    pub id: u32,
    /// Whether it responds to a bind, and not to an extended request.
    pub is_bind: bool,
    pub code: u32,
    pub diagnostic: Box<str>,
}

/// Parses a whole response.
pub fn answer(message: &[u8]) -> Option<Answer> {
    let response = Response::parse(message).ok()?;
    Some(Answer {
        id: response.id,
        is_bind: response.kind == ResponseKind::Bind,
        code: response.code,
        diagnostic: response.diagnostic,
    })
}
