//! Steps describe how every text that a regex matches begins. They are walked without backtracking, and an index can
//! follow them. For most regexes on paths, the steps describe the whole regex. `starts` derives them from a pattern.

use regex_syntax::hir::{self, Hir, HirKind};
use std::sync::LazyLock;

/// A sequence of steps that is matched from the first byte of a text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Steps {
    pub(crate) steps: Box<[Step]>,
    pub(crate) whole: bool,
    pub(crate) ends_text: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// Exactly these bytes.
    Literal(Box<[u8]>),
    /// The longest run of bytes that are in the class.
    Class(Class),
}

/// A repeated class of bytes or characters. Beyond ASCII it may contain more than the regex says, but never less.
// The type is kept small because most regexes have several classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Class {
    ascii: [u64; 2],
    min: u16,
    /// Maximum number of repetitions, or [`NO_LIMIT`].
    max: u16,
    beyond: Beyond,
}

/// The part of a set that is beyond ASCII.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum Beyond {
    #[default]
    Nothing,
    /// All bytes.
    Bytes,
    /// All characters. Bytes that are not valid UTF-8 are not included.
    Characters,
    /// The characters of a Unicode class that has a name.
    In(Property),
    NotIn(Property),
}

/// The Unicode classes that have a name in patterns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Property {
    /// `\d`
    Digit,
    /// `\w`
    Word,
    /// `\s`
    Space,
}

/// The character ranges beyond ASCII of each property, in ascending order.
static PROPERTIES: LazyLock<[Vec<(char, char)>; 3]> =
    LazyLock::new(|| [r"\d", r"\w", r"\s"].map(beyond_ascii));

fn beyond_ascii(class: &str) -> Vec<(char, char)> {
    let parsed = regex_syntax::parse(class);
    let ranges = match parsed.as_ref().map(Hir::kind) {
        Ok(HirKind::Class(hir::Class::Unicode(class))) => class.ranges(),
        _ => &[],
    };
    let ranges = ranges.iter().map(|range| (range.start(), range.end()));
    let ranges = ranges.map(|(start, end)| (start.max('\u{80}'), end));
    ranges.filter(|(start, end)| start <= end).collect()
}

impl Property {
    const ALL: [Self; 3] = [Self::Digit, Self::Word, Self::Space];

    fn ranges(self) -> &'static [(char, char)] {
        &PROPERTIES[self as usize]
    }

    /// Whether the property contains this character. The character must not be ASCII.
    fn has(self, character: char) -> bool {
        let ranges = self.ranges();
        let after = ranges.partition_point(|(start, _)| *start <= character);
        after > 0 && character <= ranges[after - 1].1
    }
}

impl Beyond {
    /// The set that equals these ascending ranges beyond ASCII. Returns `None` if no variant describes it.
    pub(crate) fn of(ranges: &[(char, char)]) -> Option<Self> {
        if ranges.is_empty() {
            return Some(Self::Nothing);
        }
        if ranges == [('\u{80}', char::MAX)] {
            return Some(Self::Characters);
        }
        let is_in = |property: &Property| property.ranges() == ranges;
        let is_not_in = |property: &Property| are_others(property.ranges(), ranges);
        let mut all = Property::ALL.into_iter();
        let inside = all.clone().find(is_in).map(Self::In);
        inside.or_else(|| all.find(is_not_in).map(Self::NotIn))
    }

    fn has(self, character: char) -> bool {
        match self {
            Self::Nothing | Self::Bytes => false,
            Self::Characters => true,
            Self::In(property) => property.has(character),
            Self::NotIn(property) => !property.has(character),
        }
    }
}

/// Whether two sets beyond ASCII are complementary. Such sets share no character, and together they contain all
/// characters beyond ASCII.
fn are_others(left: &[(char, char)], right: &[(char, char)]) -> bool {
    let mut all: Vec<_> = left.iter().chain(right).copied().collect();
    all.sort_unstable();
    let follows = |pair: &[(char, char)]| {
        let next = match pair[0].1 {
            '\u{D7FF}' => '\u{E000}' as u32,
            end => end as u32 + 1,
        };
        pair[1].0 as u32 == next
    };
    let (first, last) = (all.first(), all.last());
    first.is_some_and(|first| first.0 == '\u{80}')
        && last.is_some_and(|last| last.1 == char::MAX)
        && all.windows(2).all(follows)
}

/// The first character of the text. Returns `None` if the text does not begin with valid UTF-8.
fn first_character(text: &[u8]) -> Option<char> {
    let longest = &text[..text.len().min(4)];
    longest.utf8_chunks().next()?.valid().chars().next()
}

const NO_LIMIT: u16 = u16::MAX;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ByteSet {
    ascii: [u64; 2],
    beyond: Beyond,
}

impl Steps {
    /// A sequence without steps, for a regex of which nothing is known. Every text can be walked.
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

    /// Whether the steps describe the whole regex. If so, the regex matches every ASCII text whose walk succeeds, and
    /// the match is the walked range.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Whether the walk must end at the end of the text. Always false for steps that are not whole.
    pub fn ends_text(&self) -> bool {
        self.ends_text
    }

    /// Walks the text and returns the end of the walk. Returns `None` if a step fails. Also returns `None` if
    /// [`Self::ends_text`] is true and the walk ends before the end of the text.
    pub fn walk(&self, text: &[u8]) -> Option<usize> {
        let end = self.walk_through(text, &mut |_| {})?;
        (!self.ends_text || end == text.len()).then_some(end)
    }

    /// Walks the text like [`Self::walk`], but ignores [`Self::ends_text`]. Calls `at` with the beginning of each step.
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
    /// Creates a class; `u32::MAX` means no limit. Returns `None` if a count is too large for the fields.
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

    /// Minimum number of bytes or characters that the class takes.
    pub fn min(&self) -> u32 {
        self.min.into()
    }

    /// Maximum number of bytes or characters that the class takes; `u32::MAX` means no limit.
    pub fn max(&self) -> u32 {
        if self.max == NO_LIMIT {
            u32::MAX
        } else {
            self.max.into()
        }
    }

    /// Returns how many bytes the class takes from the start of the text, or `None` if there are fewer than the
    /// minimum.
    pub fn take(&self, text: &[u8]) -> Option<usize> {
        let limit = match self.max {
            NO_LIMIT => text.len(),
            max => text.len().min(max.into()),
        };
        let bytes = self.bytes();
        let end = text[..limit].iter().position(|byte| !bytes.contains(*byte));
        let taken = end.unwrap_or(limit);
        let is_of_characters = !matches!(self.beyond, Beyond::Nothing | Beyond::Bytes);
        if is_of_characters && !text[..taken].is_ascii() {
            return self.take_characters(text);
        }
        (taken >= self.min.into()).then_some(taken)
    }

    fn take_characters(&self, text: &[u8]) -> Option<usize> {
        let (mut taken, mut characters) = (0, 0);
        let bytes = self.bytes();
        while characters < self.max()
            && let Some(byte) = text.get(taken)
        {
            if byte.is_ascii() {
                if !bytes.contains(*byte) {
                    break;
                }
                taken += 1;
            } else {
                let character = first_character(&text[taken..]);
                match character.filter(|character| self.beyond.has(*character)) {
                    Some(character) => taken += character.len_utf8(),
                    None => break,
                }
            }
            characters += 1;
        }
        (characters >= self.min()).then_some(taken)
    }
}

impl ByteSet {
    /// Whether the set contains the byte. Beyond ASCII, a set contains either all bytes or none.
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

    /// Whether the set contains bytes beyond ASCII.
    pub fn goes_beyond_ascii(&self) -> bool {
        self.beyond != Beyond::Nothing
    }

    /// The set of this byte. For a byte beyond ASCII it is the set of all such bytes.
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

    /// Replaces the part of the set that is beyond ASCII.
    pub(crate) fn set_beyond(&mut self, beyond: Beyond) {
        self.beyond = beyond;
    }

    /// Returns a set for comparisons with [`Self::is_disjoint`]. Its characters beyond ASCII are only those of one set.
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
