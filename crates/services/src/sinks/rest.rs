//! The part of a batch that a sink has still to send.

use crate::queue::Text;
use std::sync::Arc;

/// The lines of a batch that are still to be sent. No line is in two texts of a batch.
pub(super) struct Rest {
    batch: Arc<Vec<Text>>,
    /// The first text that is not sent completely, and the number of its bytes that were sent.
    text: usize,
    at: usize,
}

/// The rest of the batch that could not be sent completely, for its next attempt.
#[derive(Default)]
pub(super) struct Unsent(Option<Rest>);

impl Unsent {
    /// Returns what is to be sent of this batch: all, or its rest.
    pub(super) fn of(&mut self, batch: &Arc<Vec<Text>>) -> Rest {
        let rest = self.0.take();
        let same = rest.filter(|rest| Arc::ptr_eq(&rest.batch, batch));
        same.unwrap_or_else(|| Rest {
            batch: batch.clone(),
            text: 0,
            at: 0,
        })
    }

    pub(super) fn keep(&mut self, rest: Rest) {
        self.0 = Some(rest);
    }
}

impl Rest {
    /// Returns the next bytes to send, which are whole lines unless [`Self::advance`] has ended within one. `None` at the
    /// end.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        let text = self.batch.get(self.text)?.as_ref();
        text.get(self.at..).filter(|rest| !rest.is_empty())
    }

    /// Returns the next line with its end.
    pub(super) fn line(&self) -> Option<&[u8]> {
        let bytes = self.bytes()?;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        Some(end.map_or(bytes, |end| &bytes[..=end]))
    }

    /// Goes on after this number of bytes of [`Self::bytes`].
    pub(super) fn advance(&mut self, bytes: usize) {
        self.at += bytes;
        let length = self
            .batch
            .get(self.text)
            .map_or(0, |text| text.as_ref().len());
        if self.at >= length {
            self.text += 1;
            self.at = 0;
        }
    }

    /// Goes back to the start of the line, because what was sent of it is lost.
    pub(super) fn rewind(&mut self) {
        let sent = self
            .batch
            .get(self.text)
            .and_then(|text| text.as_ref().get(..self.at));
        let end = sent.and_then(|sent| sent.iter().rposition(|byte| *byte == b'\n'));
        self.at = end.map_or(0, |end| end + 1);
    }
}
