//! Short byte strings stored inline, without an allocation.

/// Maximum number of bytes that are stored inline.
const INLINE: usize = 14;

/// A byte string that is stored inline if it is short.
#[derive(Debug, Clone)]
pub(crate) struct Label(Bytes);

#[derive(Debug, Clone)]
enum Bytes {
    Inline(u8, [u8; INLINE]),
    /// A longer string. The double box keeps the label at 16 bytes.
    Boxed(Box<Box<[u8]>>),
}

impl Label {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut inline = [0; INLINE];
        match (inline.get_mut(..bytes.len()), u8::try_from(bytes.len())) {
            (Some(place), Ok(length)) => {
                place.copy_from_slice(bytes);
                Self(Bytes::Inline(length, inline))
            }
            _ => Self(Bytes::Boxed(Box::new(bytes.into()))),
        }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.0 {
            Bytes::Inline(length, bytes) => &bytes[..usize::from(*length).min(INLINE)],
            Bytes::Boxed(bytes) => bytes,
        }
    }
}

impl Default for Label {
    fn default() -> Self {
        Self(Bytes::Inline(0, [0; INLINE]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_strings_are_stored() {
        for length in [0, 1, INLINE, INLINE + 1, 1000] {
            let bytes = vec![7; length];
            assert_eq!(Label::new(&bytes).bytes(), bytes);
        }
        assert_eq!(size_of::<Label>(), 16);
    }
}
