//! Putting an expression to a request. Allocates nothing, but for header values with letters outside ASCII that must be
//! compared in lower case.

use crate::field::{Fields, TextField};
use crate::pattern::Regex;
use crate::tree::{Expression, Quantifier, TextPredicate, TextTest, Transform};
use memchr::memmem;
use std::ops::{ControlFlow, Range};

/// The steps that looking for the values of a field takes which may have several.
const LINES: usize = 16;

/// Hears of the predicates that were true on the way to the answer, in the order they were asked, those of parts that
/// were false in the end included. Kong strips paths and takes captures by them.
pub trait Observer {
    /// A test of the path located a part of it.
    fn path(&mut self, _located: Range<usize>) {}

    /// A regex was found in a value of the field, shown as it was tested.
    fn regex(&mut self, _field: &TextField, _regex: &Regex, _value: &[u8]) {}

    /// Asked before each test, which takes so many steps. If the answer is no, the test is left out, and the answer to the
    /// whole expression means nothing.
    fn allows(&mut self, _steps: usize) -> bool {
        true
    }
}

/// For those who want the answer alone.
pub struct NoObserver;

impl Observer for NoObserver {}

impl Expression {
    /// Whether the request passes. `buffer` is for values that must be transformed; its content means nothing.
    pub fn evaluate(
        &self,
        fields: &impl Fields,
        buffer: &mut Vec<u8>,
        observer: &mut impl Observer,
    ) -> bool {
        match self {
            Self::All(parts) => parts
                .iter()
                .all(|part| part.evaluate(fields, buffer, observer)),
            Self::Any(parts) => parts
                .iter()
                .any(|part| part.evaluate(fields, buffer, observer)),
            Self::Not(part) => !part.evaluate(fields, buffer, observer),
            Self::Text(predicate) => predicate.evaluate(fields, buffer, observer),
            Self::Number(predicate) => {
                let value = fields.number(predicate.field);
                let holds = |value| predicate.comparison.holds(value, predicate.value);
                observer.allows(1) && value.is_some_and(holds)
            }
            Self::Address(predicate) => {
                let address = fields.address(predicate.field);
                observer.allows(1) && address.is_some_and(|address| predicate.test.holds(address))
            }
        }
    }
}

impl TextPredicate {
    fn evaluate(
        &self,
        fields: &impl Fields,
        buffer: &mut Vec<u8>,
        observer: &mut impl Observer,
    ) -> bool {
        if !self.field.has_several_values() {
            let value = fields.text(&self.field);
            return value.is_some_and(|value| self.test_value(value, buffer, observer));
        }
        if !observer.allows(LINES) {
            return false;
        }
        let mut passed = false;
        fields.texts(&self.field, &mut |value| {
            passed = self.test_value(value, buffer, observer);
            // The first that passes decides for `any`, the first that fails for all.
            if passed == (self.quantifier == Quantifier::Any) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        passed
    }

    fn test_value(&self, value: &[u8], buffer: &mut Vec<u8>, observer: &mut impl Observer) -> bool {
        if !observer.allows(self.steps(value.len())) {
            return false;
        }
        let value = self.transform.apply(value, buffer);
        let TextTest::Matches(regex) = &self.test else {
            let located = self.test.locate(value);
            if let (TextField::Path, Some(Some(located))) = (&self.field, &located) {
                observer.path(located.clone());
            }
            return located.is_some();
        };
        let found = if self.field == TextField::Path {
            let located = regex.find(value);
            located.map(|located| observer.path(located)).is_some()
        } else {
            regex.is_match(value)
        };
        if found {
            observer.regex(&self.field, regex, value);
        }
        found
    }

    /// How many steps a test of so many bytes takes at most: about as many as bytes are looked at.
    #[inline]
    fn steps(&self, bytes: usize) -> usize {
        let transforming = match self.transform {
            Transform::None => 0,
            Transform::Lower | Transform::LowerAscii => bytes,
        };
        transforming
            + match &self.test {
                TextTest::Equals(text)
                | TextTest::Differs(text)
                | TextTest::StartsWith(text)
                | TextTest::EndsWith(text) => 1 + text.len().min(bytes),
                TextTest::Contains(_) => 1 + bytes,
                TextTest::Matches(regex) => regex.steps(bytes),
            }
    }
}

impl TextTest {
    /// Whether the value passes, and where in it the literal stands if the test says so. A regex is not asked here.
    fn locate(&self, value: &[u8]) -> Option<Option<Range<usize>>> {
        let length = value.len();
        match self {
            Self::Equals(text) => (value == text.as_bytes()).then_some(Some(0..length)),
            Self::StartsWith(text) => value
                .starts_with(text.as_bytes())
                .then_some(Some(0..text.len())),
            Self::EndsWith(text) => value
                .ends_with(text.as_bytes())
                .then(|| Some(length - text.len()..length)),
            Self::Differs(text) => (value != text.as_bytes()).then_some(None),
            Self::Contains(text) => memmem::find(value, text.as_bytes()).map(|_| None),
            Self::Matches(_) => None,
        }
    }
}

impl Transform {
    /// The value as it is compared. What `buffer` holds before means nothing.
    #[inline]
    pub fn apply<'v>(self, value: &'v [u8], buffer: &'v mut Vec<u8>) -> &'v [u8] {
        let is_ascii = match self {
            Self::None => return value,
            Self::Lower => value.is_ascii(),
            Self::LowerAscii => true,
        };
        buffer.clear();
        if is_ascii {
            buffer.extend(value.iter().map(u8::to_ascii_lowercase));
            return buffer;
        }
        for chunk in value.utf8_chunks() {
            buffer.extend_from_slice(chunk.valid().to_lowercase().as_bytes());
            buffer.extend_from_slice(chunk.invalid());
        }
        buffer
    }
}
