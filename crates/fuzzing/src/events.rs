//! Messages on the events socket: encoding a decoded opening or frame gives the same bytes, and an incomplete frame is
//! never decoded.

use crate::beginnings;
use admin::events::wire::{self, Frame, MAX_FRAME, OPENING};

/// Checks a client's opening and the frames after it.
pub fn events(data: &[u8]) {
    plugins::install();
    let Some((opening, frames)) = data.split_first_chunk::<OPENING>() else {
        return;
    };
    if let Ok(start) = wire::decode_opening(opening) {
        assert_eq!(wire::encode_opening(start), *opening);
    }
    let mut rest = frames;
    while let Ok(Some((frame, length))) = wire::decode(rest) {
        let (bytes, after) = rest.split_at(length);
        assert!(bytes.len() <= 4 + MAX_FRAME);
        for cut in beginnings(bytes) {
            assert_eq!(wire::decode(cut), Ok(None), "at {}", cut.len());
        }
        let mut again = Vec::new();
        wire::encode(&owned(frame), &mut again);
        assert_eq!(again, bytes);
        rest = after;
    }
}

/// Returns an owned copy of a frame, as a client keeps it.
fn owned(frame: Frame<'_>) -> Frame<'_> {
    match frame {
        Frame::Revision(head) => Frame::Revision(head.into_owned()),
        Frame::Changes(changes) => {
            let changes = changes.into_iter().map(wire::Change::into_owned);
            Frame::Changes(changes.collect())
        }
        other => other,
    }
}
