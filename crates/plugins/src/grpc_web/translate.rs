//! The bodies of gRPC-Web as bodies of gRPC and back, in pieces.

use super::codec::{
    Base64Decoder, COMPRESSED, CodecError, Frame, Frames, encode_base64, frame, trailer_frame,
};
use crate::protobuf::{JsonError, from_json, to_json};
use bytes::Bytes;
use prost_reflect::MessageDescriptor;

/// Maximum size of a message in JSON, or of one that becomes JSON. It is gRPC's usual limit for a received message.
pub(super) const MAX_MESSAGE: usize = 4 * 1024 * 1024;

/// Maximum size of the JSON that one piece of a response becomes. A message can be much larger in JSON, because fields
/// without a value are written too.
pub(super) const MAX_JSON: usize = 4 * MAX_MESSAGE;

/// The encoding of a request, which the response has too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Encoding {
    /// The whole body is in base64.
    pub(super) text: bool,
    /// The messages are in frames, and the last frame has the trailers. Without frames, a body is one message.
    pub(super) framed: bool,
    pub(super) json: bool,
}

impl Encoding {
    /// Returns the encoding for a content type. Parameters such as `charset` do not matter.
    pub(super) fn of(content_type: &[u8]) -> Option<Self> {
        let end = memchr::memchr(b';', content_type).unwrap_or(content_type.len());
        let name = content_type[..end].trim_ascii().to_ascii_lowercase();
        let (text, framed, json) = match name.as_slice() {
            b"application/grpc-web" | b"application/grpc-web+proto" => (false, true, false),
            b"application/grpc-web-text" | b"application/grpc-web-text+proto" => {
                (true, true, false)
            }
            b"application/grpc-web+json" => (false, true, true),
            b"application/grpc-web-text+json" => (true, true, true),
            b"application/json" => (false, false, true),
            _ => return None,
        };
        Some(Self { text, framed, json })
    }

    /// Whether a request's body is a body of gRPC already.
    pub(super) fn is_plain(self) -> bool {
        !self.text && !self.json
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TranslateError {
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error("decode json err: {0}")]
    NotJson(String),
    #[error(transparent)]
    Json(#[from] JsonError),
    #[error("a message is compressed and cannot be converted to or from JSON")]
    Compressed,
    #[error("there is a frame that is no message")]
    Flags,
}

/// Converts the body of a request.
#[derive(Debug)]
pub(super) struct RequestBody {
    base64: Option<Base64Decoder>,
    json: Option<Json>,
}

#[derive(Debug)]
struct Json {
    message: MessageDescriptor,
    frames: Frames,
    framed: bool,
    /// The body without frames.
    whole: Vec<u8>,
}

impl RequestBody {
    /// `input` is the type of the messages, for bodies in JSON.
    pub(super) fn new(encoding: Encoding, input: Option<MessageDescriptor>) -> Self {
        Self {
            base64: encoding.text.then(Base64Decoder::default),
            json: input.map(|message| Json {
                message,
                frames: Frames::new(MAX_MESSAGE),
                framed: encoding.framed,
                whole: Vec::new(),
            }),
        }
    }

    /// Converts a piece. Returns what is complete so far.
    pub(super) fn convert(&mut self, piece: &Bytes, last: bool) -> Result<Bytes, TranslateError> {
        let mut bytes = piece.clone();
        if let Some(decoder) = &mut self.base64 {
            let mut decoded = decoder.decode(piece)?;
            if last {
                decoded.extend(decoder.finish()?);
            }
            bytes = decoded.into();
        }
        match &mut self.json {
            None => Ok(bytes),
            Some(json) => json.convert(&bytes, last),
        }
    }
}

impl Json {
    fn convert(&mut self, piece: &[u8], last: bool) -> Result<Bytes, TranslateError> {
        let mut out = Vec::new();
        if self.framed {
            self.frames.push(piece);
            while let Some(found) = self.frames.next()? {
                check_message(&found)?;
                self.encode(&found.content, &mut out)?;
            }
            if last {
                self.frames.finish()?;
            }
            return Ok(out.into());
        }
        if self.whole.len() + piece.len() > MAX_MESSAGE {
            return Err(CodecError::TooLarge(MAX_MESSAGE).into());
        }
        self.whole.extend_from_slice(piece);
        if last {
            let whole = std::mem::take(&mut self.whole);
            self.encode(&whole, &mut out)?;
        }
        Ok(out.into())
    }

    fn encode(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), TranslateError> {
        let value = serde_json::from_slice(json)
            .map_err(|error| TranslateError::NotJson(error.to_string()))?;
        out.extend(frame(0, &from_json(&self.message, &value)?));
        Ok(())
    }
}

fn check_message(frame: &Frame) -> Result<(), TranslateError> {
    match frame.flags {
        0 => Ok(()),
        COMPRESSED => Err(TranslateError::Compressed),
        _ => Err(TranslateError::Flags),
    }
}

/// Converts the body of a response.
#[derive(Debug)]
pub(super) struct ResponseBody {
    encoding: Encoding,
    json: Option<(MessageDescriptor, Frames)>,
}

impl ResponseBody {
    /// `output` is the type of the messages, for bodies in JSON.
    pub(super) fn new(encoding: Encoding, output: Option<MessageDescriptor>) -> Self {
        Self {
            encoding,
            json: output.map(|message| (message, Frames::new(MAX_MESSAGE))),
        }
    }

    /// Converts a piece. Returns what is complete so far.
    pub(super) fn convert(&mut self, piece: &Bytes) -> Result<Bytes, TranslateError> {
        let bytes = match &mut self.json {
            None => piece.clone(),
            Some((message, frames)) => {
                let mut out = Vec::new();
                frames.push(piece);
                while let Some(found) = frames.next()? {
                    check_message(&found)?;
                    let json =
                        to_json(message, &found.content, MAX_JSON - out.len().min(MAX_JSON))?;
                    match self.encoding.framed {
                        true => out.extend(frame(0, &json)),
                        false => out.extend(json),
                    }
                }
                out.into()
            }
        };
        Ok(self.written(bytes))
    }

    /// Returns what follows the last piece: the trailers, except for bodies without frames.
    pub(super) fn finish<'t>(
        &self,
        trailers: impl Iterator<Item = (&'t str, &'t [u8])> + Clone,
    ) -> Result<Bytes, TranslateError> {
        if let Some((_, frames)) = &self.json {
            frames.finish()?;
        }
        match self.encoding.framed {
            true => Ok(self.written(trailer_frame(trailers).into())),
            false => Ok(Bytes::new()),
        }
    }

    fn written(&self, bytes: Bytes) -> Bytes {
        match self.encoding.text {
            true => encode_base64(&bytes),
            false => bytes,
        }
    }
}

#[cfg(test)]
#[path = "translate_tests.rs"]
mod tests;
