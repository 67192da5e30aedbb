//! Shows a line of a text with a part underlined, for diagnostics. Long lines are cut around that part.

use std::fmt;
use std::ops::Range;

/// Maximum number of columns shown of a line.
const WIDTH: usize = 100;
/// Maximum number of columns shown before the marked part.
const BEFORE: usize = 50;
/// Maximum number of characters shown of a part of the line. The limits on columns are not enough, because some
/// characters take no column.
const MAX_CHARACTERS: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Excerpt {
    line: usize,
    column: usize,
    shown: Box<str>,
    /// Columns of `shown` that are underlined.
    marked: Range<usize>,
    mark: Mark,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// Marks the position of something missing.
    Point,
    Whole,
    /// Marks the beginning of a part that continues in the next line or is cut off.
    Begin,
}

/// Returns line and column of a byte, counted from 1. Columns are characters.
pub(super) fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

impl Excerpt {
    pub(super) fn new(text: &str, span: Range<usize>) -> Self {
        let (line, column) = position(text, span.start);
        let before = text.get(..span.start).unwrap_or(text);
        let before = before.rsplit('\n').next().unwrap_or_default();
        let after = text.get(span.start..).unwrap_or_default();
        let after = after.split('\n').next().unwrap_or_default();
        let after = after.strip_suffix('\r').unwrap_or(after);
        let length = span.len().min(after.len());
        let mut shown = beginning(before);
        let start = width(&shown);
        let is_complete = append(&mut shown, &after[..length]) && length == span.len();
        let end = width(&shown);
        if is_complete {
            append(&mut shown, &after[length..]);
        }
        let mark = if !is_complete {
            Mark::Begin
        } else if span.is_empty() {
            Mark::Point
        } else {
            Mark::Whole
        };
        Self {
            line,
            column,
            shown: shown.into(),
            marked: start..end,
            mark,
        }
    }

    pub(super) fn line(&self) -> usize {
        self.line
    }

    pub(super) fn column(&self) -> usize {
        self.column
    }

    /// Number of columns left of the bar.
    pub(super) fn gutter(&self) -> usize {
        self.line.to_string().len()
    }

    fn underline(&self) -> String {
        let length = self.marked.len();
        match self.mark {
            Mark::Point => "^---".to_owned(),
            Mark::Begin => format!("^{}", "-".repeat(length.saturating_sub(1))),
            Mark::Whole if length < 2 => "^".to_owned(),
            Mark::Whole => format!("^{}^", "-".repeat(length - 2)),
        }
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = (self.line, self.column);
        let gutter = " ".repeat(self.gutter());
        writeln!(formatter, "{gutter}--> {line}:{column}")?;
        writeln!(formatter, "{gutter} |")?;
        writeln!(formatter, "{line} | {}", self.shown.trim_end())?;
        let indent = " ".repeat(self.marked.start);
        write!(formatter, "{gutter} | {indent}{}", self.underline())
    }
}

/// Returns the end of the text before the marked part, at most [`BEFORE`] columns.
fn beginning(before: &str) -> String {
    let mut columns = 0;
    let mut from = before.len();
    for (number, (at, character)) in before.char_indices().rev().enumerate() {
        columns += columns_of(character);
        if columns > BEFORE || number == MAX_CHARACTERS {
            break;
        }
        from = at;
    }
    let mut shown = String::new();
    if from > 0 {
        shown.push('…');
    }
    shown.extend(before[from..].chars().map(printable));
    shown
}

/// Appends as much of the text as fits in [`WIDTH`] columns. Returns whether that was the whole text.
fn append(shown: &mut String, text: &str) -> bool {
    let mut columns = width(shown);
    for (number, character) in text.chars().enumerate() {
        columns += columns_of(character);
        if columns > WIDTH || number == MAX_CHARACTERS {
            shown.push('…');
            return false;
        }
        shown.push(printable(character));
    }
    true
}

fn width(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

fn printable(character: char) -> char {
    match character {
        '\t' => ' ',
        character if character.is_control() => '\u{fffd}',
        character => character,
    }
}

/// Returns how many columns a terminal uses for a character, precisely enough to place a caret. Combining marks use no
/// column. East Asian scripts and symbols use two columns.
fn columns_of(character: char) -> usize {
    match u32::from(character) {
        0x300..=0x36f | 0x200b..=0x200f | 0x20d0..=0x20ff | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1faff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}
