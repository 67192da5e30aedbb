//! What a regex demands of the start of a text, as steps that are walked without ever going back: an index can follow
//! them, and of most regexes on paths they are all there is to know. How they are read off a pattern: `starts`.

/// Steps that a text takes from its first byte on, if they allow it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Steps {
    pub(crate) steps: Box<[Step]>,
    pub(crate) whole: bool,
    pub(crate) ends_text: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// These bytes.
    Literal(Box<[u8]>),
    /// The longest run of bytes of a class.
    Class(Class),
}

/// A repeated class of bytes. Bytes beyond ASCII are either all in it or none is, so it may hold more than the regex
/// says there, and never less.
// Kept small: there are several in most regexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Class {
    ascii: [u64; 2],
    min: u16,
    /// [`NO_LIMIT`] for none.
    max: u16,
    beyond: Beyond,
}

/// What of the bytes beyond ASCII is in a set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
enum Beyond {
    #[default]
    Nothing,
    Bytes,
    /// All of them, and those of a character are counted as one.
    Characters,
}

const NO_LIMIT: u16 = u16::MAX;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ByteSet {
    ascii: [u64; 2],
    beyond: Beyond,
}

impl Steps {
    /// Nothing is demanded, and nothing is known of what may follow.
    pub(crate) fn unknown() -> Self {
        Self {
            steps: Box::new([]),
            whole: false,
            ends_text: false,
        }
    }

    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whether the regex demands nothing else: a text of ASCII in which the walk comes to its end is one the regex is
    /// found in, and what is found is what was walked.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Whether the walk must come out at the end of the text. Never so of steps that are not whole.
    pub fn ends_text(&self) -> bool {
        self.ends_text
    }

    /// Where the walk comes out; None when the text does not allow a step or goes on where it must end.
    pub fn walk(&self, text: &[u8]) -> Option<usize> {
        let end = self.walk_through(text, &mut |_| {})?;
        (!self.ends_text || end == text.len()).then_some(end)
    }

    /// [`Self::walk`] without regard to the end of the text; `at` hears where each step begins.
    pub(crate) fn walk_through(&self, text: &[u8], at: &mut impl FnMut(usize)) -> Option<usize> {
        let mut walked = 0;
        for step in &self.steps {
            at(walked);
            let rest = &text[walked..];
            walked += match step {
                Step::Literal(literal) => rest.starts_with(literal).then_some(literal.len())?,
                Step::Class(class) => class.take(rest)?,
            };
        }
        Some(walked)
    }
}

impl Class {
    /// None if it repeats too often to be counted here; `u32::MAX` is for no limit.
    pub(crate) fn new(bytes: ByteSet, min: u32, max: u32) -> Option<Self> {
        let counted = |count: u32| u16::try_from(count).ok().filter(|count| *count < NO_LIMIT);
        Some(Self {
            ascii: bytes.ascii,
            beyond: bytes.beyond,
            min: counted(min)?,
            max: if max == u32::MAX {
                NO_LIMIT
            } else {
                counted(max)?
            },
        })
    }

    pub fn bytes(&self) -> ByteSet {
        ByteSet {
            ascii: self.ascii,
            beyond: self.beyond,
        }
    }

    /// The least that it takes, of bytes or of characters.
    pub fn min(&self) -> u32 {
        self.min.into()
    }

    /// The most that it takes, of bytes or of characters; `u32::MAX` for no limit.
    pub fn max(&self) -> u32 {
        if self.max == NO_LIMIT {
            u32::MAX
        } else {
            self.max.into()
        }
    }

    /// How many bytes of the start of the text it takes; None when that is too few.
    pub fn take(&self, text: &[u8]) -> Option<usize> {
        let unlimited = self.max == NO_LIMIT;
        if self.beyond == Beyond::Characters && !(unlimited && self.min <= 1) {
            return self.take_characters(text);
        }
        let limit = if unlimited {
            text.len()
        } else {
            text.len().min(self.max.into())
        };
        let bytes = self.bytes();
        let end = text[..limit].iter().position(|byte| !bytes.contains(*byte));
        let taken = end.unwrap_or(limit);
        (taken >= self.min.into()).then_some(taken)
    }

    fn take_characters(&self, text: &[u8]) -> Option<usize> {
        let (mut taken, mut characters) = (0, 0);
        let bytes = self.bytes();
        for byte in text {
            let goes_on = byte & 0xC0 == 0x80;
            if !bytes.contains(*byte) || (!goes_on && characters == self.max()) {
                break;
            }
            characters += u32::from(!goes_on);
            taken += 1;
        }
        (characters >= self.min()).then_some(taken)
    }
}

impl ByteSet {
    pub fn contains(&self, byte: u8) -> bool {
        if byte.is_ascii() {
            self.ascii[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
        } else {
            self.goes_beyond_ascii()
        }
    }

    pub fn is_disjoint(&self, other: &Self) -> bool {
        let mut pairs = self.ascii.iter().zip(&other.ascii);
        pairs.all(|(own, other)| own & other == 0)
            && !(self.goes_beyond_ascii() && other.goes_beyond_ascii())
    }

    /// Whether bytes beyond ASCII are in it.
    pub fn goes_beyond_ascii(&self) -> bool {
        self.beyond != Beyond::Nothing
    }

    /// The byte, or if it is not of ASCII, all that are not.
    pub(crate) fn of(byte: u8) -> Self {
        let mut set = Self::default();
        set.insert(byte);
        set
    }

    pub(crate) fn insert(&mut self, byte: u8) {
        if byte.is_ascii() {
            self.ascii[usize::from(byte >> 6)] |= 1 << (byte & 63);
        } else {
            self.beyond = Beyond::Bytes;
        }
    }

    /// All bytes beyond ASCII, which are counted by the character.
    pub(crate) fn insert_characters(&mut self) {
        self.beyond = Beyond::Characters;
    }

    #[must_use]
    pub(crate) fn union(self, other: Self) -> Self {
        Self {
            ascii: std::array::from_fn(|word| self.ascii[word] | other.ascii[word]),
            beyond: if self.goes_beyond_ascii() {
                self.beyond
            } else {
                other.beyond
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_small() {
        assert_eq!(size_of::<Step>(), 24);
    }
}
