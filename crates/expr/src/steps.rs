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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Class {
    pub(crate) bytes: ByteSet,
    pub(crate) min: u32,
    pub(crate) max: u32,
    /// Whether a character of several bytes counts once.
    pub(crate) characters: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ByteSet([u64; 4]);

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
    pub fn bytes(&self) -> &ByteSet {
        &self.bytes
    }

    /// The least that it takes, of bytes or of characters.
    pub fn min(&self) -> u32 {
        self.min
    }

    /// The most that it takes, of bytes or of characters; `u32::MAX` for no limit.
    pub fn max(&self) -> u32 {
        self.max
    }

    /// How many bytes of the start of the text it takes; None when that is too few.
    pub fn take(&self, text: &[u8]) -> Option<usize> {
        let unlimited = self.max == u32::MAX;
        if self.characters && !(unlimited && self.min <= 1) {
            return self.take_characters(text);
        }
        let limit = if unlimited {
            text.len()
        } else {
            text.len().min(self.max as usize)
        };
        let end = text[..limit]
            .iter()
            .position(|byte| !self.bytes.contains(*byte));
        let taken = end.unwrap_or(limit);
        (taken >= self.min as usize).then_some(taken)
    }

    fn take_characters(&self, text: &[u8]) -> Option<usize> {
        let (mut taken, mut characters) = (0, 0);
        for byte in text {
            let goes_on = byte & 0xC0 == 0x80;
            if !self.bytes.contains(*byte) || (!goes_on && characters == self.max) {
                break;
            }
            characters += u32::from(!goes_on);
            taken += 1;
        }
        (characters >= self.min).then_some(taken)
    }
}

impl ByteSet {
    pub fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }

    pub fn is_disjoint(&self, other: &Self) -> bool {
        let mut pairs = self.0.iter().zip(&other.0);
        pairs.all(|(own, other)| own & other == 0)
    }

    /// Whether bytes beyond ASCII are in it.
    pub(crate) fn goes_beyond_ascii(&self) -> bool {
        self.0[2] | self.0[3] != 0
    }

    pub(crate) fn of(byte: u8) -> Self {
        let mut set = Self::default();
        set.insert(byte);
        set
    }

    pub(crate) fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    pub(crate) fn insert_beyond_ascii(&mut self) {
        (self.0[2], self.0[3]) = (u64::MAX, u64::MAX);
    }

    #[must_use]
    pub(crate) fn union(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }
}
